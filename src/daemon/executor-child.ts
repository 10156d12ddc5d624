/**
 * The executor of atlasd, put together: a child process that is kept started, and the Unix socket over which it gets its
 * settings, asks before attempts and hears commands.
 *
 * Owns: when the child may run user code, and that one which can not stay up is `degraded` until it does.
 */
import { AtlasError } from '../contract/errors.js';
import type { ExecutorState } from '../contract/fleet.js';
import type {
  ExecutorSettings,
  MemoryDropped,
  ReloadRequest,
  ReloadResult,
  ReloadStep,
  SessionMemoryName,
} from '../contract/local.js';
import type { ExecutorHost, SessionSide } from './executor-host.js';
import { ExecutorProcess } from './executor-process.js';
import { LocalServer } from './local-server.js';
import type { EventLog, ExecutorPort } from './ports.js';
import type { ProcessIdentity } from './process-identity.js';
import { type NewExecutor, reload, type ReloadPorts } from './reload.js';

/** More than the executor gives the values of a session, for the way there and back. */
const DROP_MEMORY_TIMEOUT_MS = 15_000;
/** How long an executor must stay up after a crash loop before sessions are taken again. */
const SOUND_AFTER_MS = 30_000;

export interface ExecutorChildOptions {
  readonly socketPath: string;
  readonly env: NodeJS.ProcessEnv;
  readonly settings: () => Omit<ExecutorSettings, 'withdrawn'>;
  readonly log: EventLog;
}

export class ExecutorChild implements ExecutorHost {
  private readonly executor: ExecutorProcess;
  private readonly local: LocalServer;
  private sessions: SessionSide | undefined;
  private currentState: ExecutorState = 'starting';
  private degraded = false;
  private withdrawn: readonly string[] = [];
  private soundTimer: NodeJS.Timeout | undefined;
  private stopping = false;
  private reloading = false;
  /** Whether a reload waits until no session is in the memory of the current executor. */
  private memoryHeld = false;
  /** The executor that is to take the place of the current one, and who waits for its words. */
  private incoming:
    | {
        readonly incarnation: string;
        readonly loaded: (problem: AtlasError | undefined) => void;
        readonly ready: () => void;
      }
    | undefined;
  /** The executor that retires, and who waits for the end of its polls. */
  private outgoing: { readonly incarnation: string; readonly quiet: () => void } | undefined;
  /** Before it has its settings it runs nothing, so that it need not be asked to stop. */
  private hasSettings = false;
  /** Memory that an executor is giving back, and what says that it has. */
  private readonly dropping = new Map<string, () => void>();
  private giveSettings: () => void = () => undefined;
  private readonly settingsDue = new Promise<void>((resolve) => {
    this.giveSettings = resolve;
  });

  constructor(private readonly options: ExecutorChildOptions) {
    const { socketPath, env, settings, log } = options;
    const executor = new ExecutorProcess(
      socketPath,
      env,
      {
        onStart: (process) => this.side().executorStarted(process),
        onEnd: (incarnation, process) => this.ended(incarnation, process),
        onCrashLoop: () => {
          this.crashLoops();
        },
      },
      log,
    );
    this.executor = executor;
    this.local = new LocalServer(
      {
        firstCommands: async ({ incarnation }) => {
          await this.settingsDue;
          const first = { type: 'settings', settings: { ...settings(), withdrawn: this.withdrawn } } as const;
          // One that is to take the place of another polls when that one's sessions in memory have ended.
          return this.incoming?.incarnation === incarnation ? [first] : [first, { type: 'serve' }];
        },
        isExecutor: ({ incarnation }) => executor.knows(incarnation),
        executorLoaded: (incarnation) => {
          if (this.incoming?.incarnation === incarnation) this.incoming.loaded(undefined);
        },
        executorFailed: ({ incarnation, code, message }) => {
          if (this.incoming?.incarnation === incarnation) this.incoming.loaded(new AtlasError(code, message));
        },
        executorReady: (incarnation) => {
          // It may have got its settings just before they changed.
          this.setWithdrawn(this.withdrawn);
          if (this.incoming?.incarnation === incarnation) this.incoming.ready();
          else if (incarnation === executor.incarnation()) this.ready();
        },
        executorQuiet: (incarnation) => {
          if (this.outgoing?.incarnation === incarnation) this.outgoing.quiet();
        },
        beginAttempt: (attempt) => this.side().beginAttempt(attempt),
        endAttempt: (id, result) => this.side().endAttempt(id, result),
        memoryDropped: (dropped) => {
          this.dropping.get(droppingId(dropped))?.();
        },
        status: () => this.side().status(),
        order: (order) => this.side().order(order),
        reload: (request, signal, onStep) => this.reload(request, signal, onStep),
      },
      log,
    );
  }

  async start(sessions: SessionSide): Promise<void> {
    this.sessions = sessions;
    await this.local.listen(this.options.socketPath);
    this.executor.start();
  }

  private side(): SessionSide {
    if (this.sessions === undefined) throw new AtlasError('ExecutorFailed', 'The executor was not started.');
    return this.sessions;
  }

  admit(): void {
    this.hasSettings = true;
    this.giveSettings();
  }

  /** Pooled activities that ask for one of these are not taken; by the executors of now and by those to come. */
  setWithdrawn(capabilities: readonly string[]): void {
    this.withdrawn = capabilities;
    this.local.sendToAll({ type: 'withdrawn', capabilities });
  }

  private ready(): void {
    if (this.degraded) {
      // It has polled before each of its ends, too; only time tells.
      this.soundTimer = setTimeout(() => {
        this.degraded = false;
        this.options.log.info({ event: 'recovered' }, 'The executor stays up; sessions are taken again');
        this.ready();
      }, SOUND_AFTER_MS);
    } else {
      this.currentState = 'ready';
    }
    this.side().executorReady();
  }

  /** An executor that can not stay up serves nobody: its sessions go to workers that can. */
  private crashLoops(): void {
    if (this.degraded) return;
    this.degraded = true;
    this.currentState = 'degraded';
    this.side().executorDegraded();
  }

  private async ended(incarnation: string, process: ProcessIdentity | undefined): Promise<void> {
    // Another one may be current by then, and go on.
    if (this.executor.running() === undefined) {
      clearTimeout(this.soundTimer);
      this.currentState = this.degraded ? 'degraded' : 'down';
    }
    for (const [id, settle] of [...this.dropping]) if (id.startsWith(`${incarnation}/`)) settle();
    await this.side().executorEnded(incarnation, process);
  }

  state(): ExecutorState {
    return this.currentState;
  }

  pid(): number | null {
    return this.executor.pid();
  }

  restarts(): number {
    return this.executor.restarts();
  }

  incarnation(): string {
    return this.executor.incarnation();
  }

  cancelSession(...[{ key, session, runId }, code, reason]: Parameters<ExecutorPort['cancelSession']>): void {
    this.local.sendToAll({ type: 'cancel-session', key, session, runId, code, reason });
  }

  isAlive(incarnation: string): boolean {
    return this.executor.knows(incarnation);
  }

  memoryHome(): string | null {
    return this.currentState === 'ready' && !this.memoryHeld ? this.executor.incarnation() : null;
  }

  async dropMemory(incarnation: string, memory: SessionMemoryName): Promise<void> {
    if (!this.isAlive(incarnation)) return;
    const id = droppingId({ incarnation, memory });
    await new Promise<void>((resolve) => {
      const settle = (): void => {
        clearTimeout(timer);
        this.dropping.delete(id);
        resolve();
      };
      const timer = setTimeout(() => {
        this.options.log.error(
          { event: 'memory-not-dropped', session: memory.key },
          'The executor did not say in time that it gave back what a session had in its memory',
        );
        settle();
      }, DROP_MEMORY_TIMEOUT_MS);
      this.dropping.set(id, settle);
      this.local.send(incarnation, { type: 'drop-memory', memory });
    });
  }

  renewLocalLease(forMs: number | null): void {
    this.local.sendFence(forMs);
  }

  async kill(reason: string, incarnations: readonly string[]): Promise<void> {
    await this.executor.kill(reason, incarnations);
  }

  // ---- Reload ----

  private async reload(
    request: ReloadRequest,
    signal: AbortSignal,
    onStep: (step: ReloadStep) => void,
  ): Promise<ReloadResult> {
    const { log } = this.options;
    if (this.reloading) throw new AtlasError('ReloadConflict', 'The worker is being reloaded already.');
    this.reloading = true;
    try {
      const result = await reload(this.reloadPorts(), request, signal, (step) => {
        log.info({ event: 'reload', ...step }, 'The worker is being reloaded');
        onStep(step);
      });
      const { executor, replaced, tookMs, interruptedAttempts, lostSessions } = result;
      log.info(
        {
          event: 'reloaded',
          incarnation: executor.incarnation,
          replaced: replaced.incarnation,
          interruptedAttempts,
          lostSessions,
          tookMs,
        },
        'The worker was reloaded',
      );
      return result;
    } catch (error) {
      log.error(
        { event: 'reload-failed', reason: error instanceof Error ? error.message : String(error) },
        'The worker was not reloaded',
      );
      throw error;
    } finally {
      this.reloading = false;
    }
  }

  private reloadPorts(): ReloadPorts {
    const { executor, local } = this;
    const side = this.side();
    return {
      objection: () => this.objectionToReload(),
      current: () => {
        const life = executor.running();
        // The objection says that it is ready, so there is one.
        if (life === undefined) throw new AtlasError('ReloadConflict', 'The worker has no executor now.');
        return { incarnation: life.incarnation, pid: life.identity?.pid ?? null, ended: life.ended };
      },
      startBeside: () => this.startBeside(),
      serve: (incarnation) => {
        local.send(incarnation, { type: 'serve' });
      },
      holdMemory: (held) => {
        this.memoryHeld = held;
      },
      memorySessions: (incarnation) => side.memorySessions(incarnation),
      loseMemory: (incarnation, reason) => side.loseMemory(incarnation, reason),
      promote: (incarnation) => {
        const promoted = executor.promote(incarnation);
        if (promoted) side.executorReady();
        this.incoming = undefined;
        return promoted;
      },
      retire: (incarnation) => {
        // Without a session there is no task for which a poll must be awaited.
        const isIdle = side.status().snapshot.sessions.length === 0;
        if (isIdle) {
          local.send(incarnation, { type: 'stop' });
          return Promise.resolve();
        }
        return new Promise((resolve) => {
          this.outgoing = { incarnation, quiet: resolve };
          local.send(incarnation, { type: 'stop', replaced: true });
        });
      },
      attempts: (incarnation) => side.attempts(incarnation),
      kill: async (incarnation, reason) => {
        if (this.incoming?.incarnation === incarnation) this.incoming = undefined;
        await executor.kill(reason, [incarnation]);
      },
      graceMs: this.options.settings().graceMs,
      nowMs: () => performance.now(),
      sleep: (ms) =>
        new Promise((resolve) => {
          // It must not keep a process from ending that has nothing else to do.
          setTimeout(resolve, ms).unref();
        }),
    };
  }

  private objectionToReload(): string | undefined {
    const { snapshot, desired } = this.side().status();
    if (snapshot.stopping || this.stopping) return 'The worker is stopping.';
    if (desired.scheduling === 'draining') return 'The worker is draining.';
    if (this.currentState !== 'ready')
      return `The executor of the worker is ${this.currentState}; when it is started again, that is with the code on disk.`;
    return undefined;
  }

  private startBeside(): NewExecutor {
    let loaded: (problem: AtlasError | undefined) => void = () => undefined;
    let ready: () => void = () => undefined;
    const whenLoaded = new Promise<AtlasError | undefined>((resolve) => {
      loaded = resolve;
    });
    const whenReady = new Promise<void>((resolve) => {
      ready = resolve;
    });
    const life = this.executor.startBeside();
    this.incoming = { incarnation: life.incarnation, loaded, ready };
    return {
      incarnation: life.incarnation,
      pid: life.identity?.pid ?? null,
      loaded: whenLoaded,
      ready: whenReady,
      ended: life.ended,
    };
  }

  async stop(timeoutMs: number): Promise<void> {
    this.stopping = true;
    if (this.incoming !== undefined) await this.executor.kill('the worker stops', [this.incoming.incarnation]);
    if (this.hasSettings) this.local.sendToAll({ type: 'stop' });
    else this.executor.killNow();
    await this.executor.stop(timeoutMs);
    clearTimeout(this.soundTimer);
  }

  async close(): Promise<void> {
    await this.local.close();
  }

  killNow(): void {
    this.executor.killNow();
  }
}

function droppingId({ incarnation, memory }: MemoryDropped): string {
  return `${incarnation}/${memory.key}@${memory.fencingToken}`;
}
