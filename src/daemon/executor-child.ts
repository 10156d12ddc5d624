/**
 * The executor of atlasd, put together: a child process that is kept started, and the Unix socket over which it gets its
 * settings, asks before attempts and hears commands.
 *
 * Owns: when the child may run user code, and that one which can not stay up is `degraded` until it does.
 */
import { AtlasError } from '../contract/errors.js';
import type { ExecutorState } from '../contract/fleet.js';
import type { ExecutorSettings, MemoryDropped, SessionMemoryName } from '../contract/local.js';
import type { ExecutorHost, SessionSide } from './executor-host.js';
import { ExecutorProcess } from './executor-process.js';
import { LocalServer } from './local-server.js';
import type { EventLog, ExecutorPort } from './ports.js';

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
        onEnd: (incarnation) => this.ended(incarnation),
        onCrashLoop: () => {
          this.crashLoops();
        },
      },
      log,
    );
    this.executor = executor;
    this.local = new LocalServer(
      {
        settings: async () => {
          await this.settingsDue;
          return { type: 'settings', settings: { ...settings(), withdrawn: this.withdrawn } };
        },
        isCurrentExecutor: ({ incarnation }) => incarnation === executor.incarnation(),
        executorReady: (incarnation) => {
          if (incarnation !== executor.incarnation()) return;
          // It may have got its settings just before they changed.
          this.setWithdrawn(this.withdrawn);
          this.ready();
        },
        beginAttempt: (attempt) => this.side().beginAttempt(attempt),
        endAttempt: (id, result) => this.side().endAttempt(id, result),
        memoryDropped: (dropped) => {
          this.dropping.get(droppingId(dropped))?.();
        },
        status: () => this.side().status(),
        order: (order) => this.side().order(order),
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

  /** Pooled activities that ask for one of these are not taken; by the executor of now and by those to come. */
  setWithdrawn(capabilities: readonly string[]): void {
    this.withdrawn = capabilities;
    this.local.send({ type: 'withdrawn', capabilities });
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

  private async ended(incarnation: string): Promise<void> {
    clearTimeout(this.soundTimer);
    this.currentState = this.degraded ? 'degraded' : 'down';
    for (const [id, settle] of [...this.dropping]) if (id.startsWith(`${incarnation}/`)) settle();
    await this.side().executorEnded(incarnation);
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
    this.local.send({ type: 'cancel-session', key, session, runId, code, reason });
  }

  isAlive(incarnation: string): boolean {
    return incarnation === this.executor.incarnation();
  }

  memoryHome(): string | null {
    return this.currentState === 'ready' ? this.executor.incarnation() : null;
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
      this.local.send({ type: 'drop-memory', memory });
    });
  }

  renewLocalLease(forMs: number | null): void {
    this.local.sendFence(forMs);
  }

  async kill(reason: string): Promise<void> {
    await this.executor.kill(reason);
  }

  async stop(timeoutMs: number): Promise<void> {
    if (this.hasSettings) this.local.send({ type: 'stop' });
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
