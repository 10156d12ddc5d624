/**
 * What runs the activities of an embedded worker: Temporal Workers in this very process, on its unique queue and on the
 * pooled queues that the user's own Worker does not serve, and a thread that kills the process at the fence.
 *
 * There is one life of it: it is not started again, since its end is that of the process.
 */
import { randomBytes } from 'node:crypto';
import { Worker as Thread } from 'node:worker_threads';
import type { WorkerOptions } from '@temporalio/worker';
import type { CurrentWorker } from '../activity/index.js';
import { AtlasError } from '../contract/errors.js';
import type { ExecutorState } from '../contract/fleet.js';
import { inTime } from '../contract/in-time.js';
import type { SessionMemoryName } from '../contract/local.js';
import { capabilitySubsets, pooledQueue } from '../contract/names.js';
import { VERSION } from '../contract/version.js';
import type { ExecutorHost, SessionSide } from '../daemon/executor-host.js';
import { LocalServer } from '../daemon/local-server.js';
import type { EventLog, ExecutorPort } from '../daemon/ports.js';
import { AttemptGuard } from '../executor/attempts.js';
import { SessionMemories } from '../executor/memories.js';
import { MAX_PINNED, pinnedWorkerOptions, providingWorker } from '../executor/worker-options.js';
import { UnsignalledWorker } from '../temporal/unsignalled-worker.js';
import type { LeaseWatchMessage } from './lease-watch.js';

/** How long cancelled attempts may take to end when the worker stops. */
const CANCEL_WAIT_MS = 5_000;
/** Core waits this long for a Worker to stop before it drops it: an activity that never returns wedges it for ever. */
const FORCE_STOP_EXTRA_MS = 5_000;
/** The thread kills after a word on stderr; without it the process does so itself. */
const THREAD_KILLS_WITHIN_MS = 500;

/** Options of the user's Worker that count for all; workflows, deployments and tuning are its own. */
const FOR_ALL = ['connection', 'namespace', 'disablePayloadErrorLimit'] as const;

export interface EmbeddedExecutorOptions {
  readonly worker: CurrentWorker;
  readonly socketPath: string;
  /** Those of the user's Worker. */
  readonly workerOptions: WorkerOptions;
  readonly maxActivities: number;
  readonly graceMs: number;
  readonly log: EventLog;
}

export class EmbeddedExecutor implements ExecutorHost {
  private readonly life = randomBytes(6).toString('hex');
  private readonly guard: AttemptGuard;
  private readonly memories: SessionMemories;
  private readonly local: LocalServer;
  private sessions: SessionSide | undefined;
  private thread: Thread | undefined;
  private workers: readonly UnsignalledWorker[] = [];
  private readonly runs: Promise<void>[] = [];
  private currentState: ExecutorState = 'starting';
  /** Nothing runs any more that the thread would have to end. */
  private isOver = false;
  private fail: (error: unknown) => void = () => undefined;
  /** Rejects when a Worker can not go on. */
  readonly failed: Promise<never>;

  constructor(private readonly options: EmbeddedExecutorOptions) {
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    this.failed.catch(() => undefined);
    // Whoever has a memory dropped waits for that itself.
    this.memories = new SessionMemories({ dropped: () => Promise.resolve(), log: options.log });
    this.guard = new AttemptGuard(
      {
        beginAttempt: (attempt) => this.side().beginAttempt(attempt),
        endAttempt: (id, result) => this.side().endAttempt(id, result),
      },
      this.life,
      options.worker,
      this.memories,
    );
    // Commands of this host ask there; an executor never does, since there is none beside this process.
    const noExecutor = () => Promise.reject(new AtlasError('ExecutorFailed', 'This worker has no executor process.'));
    this.local = new LocalServer(
      {
        firstCommands: noExecutor,
        isExecutor: () => false,
        executorLoaded: () => undefined,
        executorFailed: () => undefined,
        executorReady: () => undefined,
        executorQuiet: () => undefined,
        beginAttempt: noExecutor,
        endAttempt: noExecutor,
        memoryDropped: () => undefined,
        status: () => this.side().status(),
        order: (order) => this.side().order(order),
        reload: () =>
          Promise.reject(
            new AtlasError('ReloadConflict', 'The worker is embedded: its code is that of a process of its user.', {
              next: 'Start that process again; its sessions are resumed.',
            }),
          ),
      },
      options.log,
    );
  }

  private side(): SessionSide {
    if (this.sessions === undefined) throw new AtlasError('ExecutorFailed', 'The worker was not started.');
    return this.sessions;
  }

  async start(sessions: SessionSide): Promise<void> {
    this.sessions = sessions;
    await this.local.listen(this.options.socketPath);
    await this.startThread();
    this.workers = await this.createWorkers();
  }

  private async startThread(): Promise<void> {
    const thread = new Thread(new URL('./lease-watch.js', import.meta.url), {
      // It needs next to nothing, and the defaults of a thread are those of a process.
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 },
    });
    this.thread = thread;
    await new Promise<void>((resolve, reject) => {
      thread.once('online', resolve);
      thread.once('error', reject);
    });
    thread.unref();
    // Without its fence this process must not run pinned activities.
    const killedWithout = (error: unknown): void => {
      if (this.isOver) return;
      this.options.log.error(
        { event: 'process-kill', reason: String(error) },
        'The thread that watches the fence has ended; the process is killed',
      );
      process.kill(process.pid, 'SIGKILL');
    };
    thread.once('error', killedWithout);
    thread.once('exit', killedWithout);
  }

  private createWorkers(): Promise<UnsignalledWorker[]> {
    const { worker, workerOptions, maxActivities, graceMs } = this.options;
    const { interceptors } = workerOptions;
    const activities = workerOptions.activities ?? {};
    const common = {
      ...given(workerOptions, FOR_ALL),
      identity: `${worker.name}@${worker.fleet} embedded ${process.pid}`,
      buildId: `atlas@${VERSION}`,
    };
    const ofUser = [
      ...(interceptors?.activityInbound ?? []).map((inbound) => (context: Parameters<typeof inbound>[0]) => ({
        inbound: inbound(context),
      })),
      ...(interceptors?.activity ?? []),
    ];
    const client = interceptors?.client === undefined ? {} : { client: interceptors.client };
    const pinned = pinnedWorkerOptions(activities, this.guard);
    const pooledQueues = capabilitySubsets(worker.capabilities)
      .map((capabilities) => pooledQueue(worker.fleet, capabilities))
      // Core refuses a second Worker on a queue.
      .filter((queue) => queue !== workerOptions.taskQueue);
    return Promise.all([
      UnsignalledWorker.create({
        ...common,
        ...pinned,
        maxConcurrentActivityTaskExecutions: MAX_PINNED,
        taskQueue: worker.queue,
        interceptors: { ...client, activity: [...pinned.interceptors.activity, ...ofUser] },
        // Its attempts are ended by the guard.
        shutdownGraceTime: graceMs + CANCEL_WAIT_MS,
        shutdownForceTime: graceMs + CANCEL_WAIT_MS + FORCE_STOP_EXTRA_MS,
      }),
      ...pooledQueues.map((taskQueue) =>
        UnsignalledWorker.create({
          ...common,
          taskQueue,
          activities,
          maxConcurrentActivityTaskExecutions: maxActivities,
          interceptors: { ...client, activity: [providingWorker(worker), ...ofUser] },
          ...given(workerOptions, ['shutdownGraceTime']),
          shutdownForceTime: graceMs + FORCE_STOP_EXTRA_MS,
        }),
      ),
    ]);
  }

  admit(): void {
    this.runWorkers();
    this.currentState = 'ready';
    this.side().executorReady();
  }

  private runWorkers(): void {
    for (const worker of this.workers) {
      const run = worker.run();
      run.catch((error: unknown) => {
        this.fail(error);
      });
      this.runs.push(run);
    }
  }

  state(): ExecutorState {
    return this.currentState;
  }

  pid(): number {
    return process.pid;
  }

  restarts(): number {
    return 0;
  }

  incarnation(): string {
    return this.life;
  }

  isAlive(incarnation: string): boolean {
    return incarnation === this.life;
  }

  memoryHome(): string | null {
    return this.currentState === 'ready' && !this.isOver ? this.life : null;
  }

  async dropMemory(incarnation: string, memory: SessionMemoryName): Promise<void> {
    if (this.isAlive(incarnation)) await this.memories.drop(memory);
  }

  cancelSession(...[{ key, session, runId }, code, reason]: Parameters<ExecutorPort['cancelSession']>): void {
    this.guard.cancelSession({ type: 'cancel-session', key, session, runId, code, reason });
  }

  renewLocalLease(forMs: number | null): void {
    this.tell({ forMs });
  }

  /** Kills this process. Never resolves. */
  async kill(reason: string): Promise<void> {
    this.options.log.error({ event: 'process-kill', reason }, 'The process is killed, since nothing less is sure');
    this.tell({ kill: reason });
    setTimeout(() => {
      this.killNow();
    }, THREAD_KILLS_WITHIN_MS);
    await new Promise<never>(() => undefined);
  }

  killNow(): void {
    process.kill(process.pid, 'SIGKILL');
  }

  private tell(message: LeaseWatchMessage): void {
    this.thread?.postMessage(message);
  }

  /** Lets attempts go on for `timeoutMs`, then cancels them; {@link runningCount} tells of those that ignore it. */
  async stop(timeoutMs: number): Promise<void> {
    // One that was never run holds the connection all the same, and only its run lets go of it.
    if (this.runs.length === 0) this.runWorkers();
    for (const worker of this.workers) worker.end();
    const ended = this.guard.allEnded();
    if (!(await endsIn(timeoutMs, ended))) {
      this.guard.cancelAll(`The worker ${this.options.worker.name} stops.`);
      await endsIn(CANCEL_WAIT_MS, ended);
    }
    // A Worker with an attempt that goes on does not end; it is left to what becomes of the process.
    if (this.runningCount > 0) return;
    await this.guard.allTold();
    await endsIn(FORCE_STOP_EXTRA_MS, Promise.allSettled(this.runs));
  }

  /** Attempts that have not ended. */
  get runningCount(): number {
    return this.guard.runningCount;
  }

  /** Resolves when no attempt runs any more, and nothing is left that could kill the process. */
  async settled(): Promise<void> {
    await this.guard.allEnded();
    this.isOver = true;
    await this.thread?.terminate();
  }

  async close(): Promise<void> {
    await this.local.close();
  }
}

/** The options among these that are set. */
function given<K extends keyof WorkerOptions>(options: WorkerOptions, keys: readonly K[]): Pick<WorkerOptions, K> {
  return Object.fromEntries(keys.filter((key) => options[key] !== undefined).map((key) => [key, options[key]])) as Pick<
    WorkerOptions,
    K
  >;
}

async function endsIn(timeoutMs: number, end: Promise<unknown>): Promise<boolean> {
  return await inTime(
    end.then(() => true),
    timeoutMs,
    () => false,
  );
}
