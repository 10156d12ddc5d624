/**
 * One worker of a test fleet: what a daemon and its executor hold, in the memory of the test's process. The protocol
 * towards owners is that of the daemon, spoken by the same parts: `SessionKeeper`, `SlotGate` and `AttemptGuard`.
 *
 * Owns a life of the worker after the other. Does not know Temporal's Workers; those are in `fleet.ts`.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { asyncLocalStorage, CompleteAsyncError, Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import type { CurrentWorker } from '../activity/index.js';
import { provide, provided } from '../activity/provider.js';
import { AtlasError } from '../contract/errors.js';
import type { SessionMemoryName } from '../contract/local.js';
import { sessionKey, WORKER_ACTIVITY_PREFIX, workerQueue } from '../contract/names.js';
import type { TemporalPort } from '../daemon/ports.js';
import { Scratch } from '../daemon/scratch.js';
import { type LeaseTask, SessionKeeper } from '../daemon/session-keeper.js';
import { type SessionEntry, SessionTable } from '../daemon/session-table.js';
import { SlotGate } from '../daemon/slots.js';
import { AttemptGuard, derive } from '../executor/attempts.js';
import { throwingFailures } from '../executor/failures.js';
import { SessionMemories } from '../executor/memories.js';
import { failure } from '../temporal/failures.js';
import type { CallLog, TestCall } from './calls.js';
import type { Seat } from './placement.js';

/** The default of `--keep`. */
const KEPT_FOR_MS = 24 * 60 * 60 * 1_000;
const IGNORE = (): void => undefined;
/** A value that could not be given back is a fault of the activities under test. */
const warn = (fields: object, message: string): void => {
  process.emitWarning(`${message}: ${JSON.stringify(fields)}`);
};
const SILENT = { debug: IGNORE, info: IGNORE, warn: IGNORE, error: IGNORE };

export type ActivityMap = ReadonlyMap<string, (...args: unknown[]) => unknown>;

export interface HostOptions {
  readonly fleet: string;
  readonly name: string;
  readonly capabilities: readonly string[];
  readonly maxSessions: number;
  readonly activities: ActivityMap;
  /** Of this worker alone; exists. */
  readonly directory: string;
  readonly presenceTtlMs: number;
  readonly temporal: TemporalPort;
  readonly calls: CallLog;
  /** Called whenever sessions come or go, or the worker takes others than before. */
  readonly onChange: () => void;
}

/** Runs the activities, as an executor does; its end is silent, and what ran is heard of no more. */
class TestExecutor {
  readonly incarnation = randomBytes(6).toString('hex');
  private readonly end = new AbortController();
  private readonly guard: AttemptGuard;
  private readonly memories = new SessionMemories({
    // Whoever has it dropped waits for `drop`.
    dropped: () => Promise.resolve(),
    log: { warn: IGNORE, error: warn },
  });

  constructor(keeper: () => SessionKeeper, worker: CurrentWorker) {
    this.guard = new AttemptGuard(
      {
        beginAttempt: (attempt) => keeper().beginAttempt(attempt),
        endAttempt: (id, result) => keeper().endAttempt(id, result),
      },
      this.incarnation,
      worker,
      this.memories,
    );
  }

  async dropMemory(memory: SessionMemoryName): Promise<void> {
    await this.memories.drop(memory);
  }

  get ended(): AbortSignal {
    return this.end.signal;
  }

  cancelSession(command: Omit<Parameters<AttemptGuard['cancelSession']>[0], 'type'>): void {
    this.guard.cancelSession({ type: 'cancel-session', ...command });
  }

  die(reason: ApplicationFailure): void {
    this.end.abort(reason);
    // What can be told to stop must not go on after its test.
    this.guard.cancelAll(reason.message);
  }

  async runPinned(context: Context, args: unknown[], call: () => Promise<unknown>): Promise<unknown> {
    const guarded = this.guard.interceptor(context);
    return await this.unlessEnded(() => guarded.execute!({ args, headers: {} }, call));
  }

  async runPooled(context: Context, worker: CurrentWorker, call: () => Promise<unknown>): Promise<unknown> {
    const { ended } = this;
    const cancelled = new Promise<never>((_, reject) => {
      context.cancelled.catch(reject);
      ended.addEventListener('abort', () => {
        reject(ended.reason as Error);
      });
    });
    cancelled.catch(IGNORE);
    const signal = AbortSignal.any([context.cancellationSignal, ended]);
    const derived = derive(context, cancelled, signal, (details) => {
      context.heartbeat(details);
    });
    return await this.unlessEnded(() =>
      provide({ worker }, () => asyncLocalStorage.run(derived, () => throwingFailures(call))),
    );
  }

  /** Once the executor has ended the server hears nothing of the attempt any more, whatever becomes of it. */
  private async unlessEnded(run: () => Promise<unknown>): Promise<unknown> {
    const { ended } = this;
    if (ended.aborted) throw ended.reason;
    return await new Promise<unknown>((resolve, reject) => {
      const onEnd = (): void => {
        reject(new CompleteAsyncError());
      };
      ended.addEventListener('abort', onEnd, { once: true });
      void run()
        .then(resolve, reject)
        .finally(() => {
          ended.removeEventListener('abort', onEnd);
        });
    });
  }
}

/** From the start of a worker to its loss. */
class Life {
  readonly table = new SessionTable();
  readonly gate: SlotGate;
  readonly keeper: SessionKeeper;
  executor: TestExecutor;
  private over = false;
  private ticking: Promise<void> | undefined;

  constructor(
    options: HostOptions,
    readonly queue: string,
    readonly scratchDirectory: string,
    readonly worker: CurrentWorker,
  ) {
    const { name, maxSessions, presenceTtlMs, temporal, onChange } = options;
    this.gate = new SlotGate({ cap: maxSessions, reserve: {} }, () =>
      this.table.sessions().map(({ capabilities }) => capabilities),
    );
    this.executor = this.newExecutor();
    this.keeper = new SessionKeeper(
      { worker: name, queue, presenceTtlMs },
      {
        temporal: this.whileAlive(temporal),
        // Nothing outlives the process.
        ledger: { append: () => Promise.resolve() },
        scratch: new Scratch(scratchDirectory, ''),
        executor: {
          isAlive: (incarnation) => incarnation === this.executor.incarnation,
          memoryHome: () => this.executor.incarnation,
          dropMemory: async (incarnation, memory) => {
            if (incarnation === this.executor.incarnation) await this.executor.dropMemory(memory);
          },
          cancelSession: ({ key, session, runId }, code, reason) => {
            this.executor.cancelSession({ key, session, runId, code, reason });
          },
          // The fence is for a worker that Temporal does not hear; here the test and all workers share one connection.
          renewLocalLease: IGNORE,
          kill: (reason) => this.killExecutor(`The executor on ${name} was killed: ${reason}.`),
        },
        clock: {
          now: () => Date.now(),
          monotonicMs: () => performance.now(),
          timer: (delayMs, callback) => {
            const timer = setTimeout(callback, delayMs).unref();
            return () => {
              clearTimeout(timer);
            };
          },
        },
        log: SILENT,
        newGrantId: () => randomBytes(6).toString('hex'),
      },
      this.gate,
      this.table,
      onChange,
    );
  }

  private newExecutor(): TestExecutor {
    return new TestExecutor(() => this.keeper, this.worker);
  }

  /** Another executor takes its place, as after a crash: what ran is attempted again, what was in memory is gone. */
  async killExecutor(reason: string): Promise<void> {
    const before = this.executor;
    this.executor = this.newExecutor();
    before.die(failure('ExecutorDied', reason));
    await this.keeper.failAttempts();
  }

  /** What has begun may still want to talk after the worker was lost, which must be as silent as a dead one. */
  private whileAlive(port: TemporalPort): TemporalPort {
    return new Proxy(port, {
      get: (target, method: keyof TemporalPort) => {
        if (this.over) return () => Promise.reject(new Error('The worker is lost.'));
        return target[method];
      },
    });
  }

  /** Renewals, expiries and what else is due; nothing while the last ones are under way. */
  tick(): void {
    this.ticking ??= this.keeper.tick().finally(() => {
      this.ticking = undefined;
    });
  }

  end(reason: ApplicationFailure): void {
    this.over = true;
    this.gate.setClosed(true);
    this.executor.die(reason);
  }
}

export class TestWorkerHost implements Seat {
  readonly queue: string;
  readonly worker: CurrentWorker;
  private life: Life;
  private lives = 0;
  private isLost = false;
  private isCordoned = false;
  /** What sessions asked for that are being granted. */
  private readonly coming: (readonly string[])[] = [];
  private readonly cleaning = new Set<Promise<void>>();

  constructor(readonly options: HostOptions) {
    const { fleet, name, capabilities, directory } = options;
    this.queue = workerQueue(fleet, name, `t${randomBytes(4).toString('hex')}`);
    const made = (kind: string): string => {
      const path = join(directory, kind);
      mkdirSync(path);
      return path;
    };
    this.worker = {
      name,
      fleet,
      queue: this.queue,
      capabilities,
      keptDirectory: made('kept'),
      cacheDirectory: made('cache'),
      keptForMs: KEPT_FOR_MS,
    };
    this.life = this.newLife();
    this.life.gate.setClosed(false);
  }

  get name(): string {
    return this.options.name;
  }

  get capabilities(): readonly string[] {
    return this.options.capabilities;
  }

  get maxSessions(): number {
    return this.options.maxSessions;
  }

  get lost(): boolean {
    return this.isLost;
  }

  get cordoned(): boolean {
    return this.isCordoned;
  }

  get open(): boolean {
    return !this.isLost && !this.isCordoned;
  }

  get held(): readonly (readonly string[])[] {
    // One that is on its way may be in the table already; counting it twice for a moment only makes others wait for it.
    return [...this.life.table.sessions().map(({ capabilities }) => capabilities), ...this.coming];
  }

  get keeper(): SessionKeeper {
    return this.life.keeper;
  }

  sessions(): SessionEntry[] {
    return this.life.table.sessions();
  }

  scratchDirectoryOf(entry: SessionEntry): string {
    return join(this.life.scratchDirectory, entry.key);
  }

  /** A new life is synchronous, since the old one ends in the same turn; it holds nothing. */
  private newLife(): Life {
    this.lives += 1;
    const scratchDirectory = join(this.options.directory, `scratch-${this.lives}`);
    mkdirSync(scratchDirectory);
    return new Life(this.options, this.queue, scratchDirectory, this.worker);
  }

  /** Grants a session here, for which {@link emptiest} has found room in this turn. */
  async acquire(task: LeaseTask): Promise<void> {
    const asked = task.request.capabilities;
    this.coming.push(asked);
    try {
      await this.life.keeper.acquire(task);
    } finally {
      this.coming.splice(this.coming.indexOf(asked), 1);
      this.options.onChange();
    }
  }

  /** Whether the session of this task is held here: the server may hand a lease out again. */
  holds({ request, runId }: LeaseTask): boolean {
    return this.life.table.session(sessionKey(request.session, runId)) !== undefined;
  }

  tick(): void {
    if (!this.isLost) this.life.tick();
  }

  /** Ends this life. Returns the sessions that it held, of which nobody has told the owners. */
  lose(): SessionEntry[] {
    const before = this.life;
    this.isLost = true;
    this.life = this.newLife();
    before.end(failure('ExecutorDied', `The worker ${this.name} was lost.`));
    const cleaning = rm(before.scratchDirectory, { recursive: true, force: true, maxRetries: 3 }).finally(() => {
      this.cleaning.delete(cleaning);
    });
    this.cleaning.add(cleaning);
    this.options.onChange();
    return before.table.sessions();
  }

  async restartExecutor(): Promise<void> {
    await this.life.killExecutor(`The executor on ${this.name} was restarted.`);
    this.options.onChange();
  }

  /** Comes back, with what it was told to do and nothing held. */
  comeBack(): void {
    this.isLost = false;
    this.life.gate.setCordoned(this.isCordoned);
    this.life.gate.setClosed(false);
    this.options.onChange();
  }

  setCordoned(cordoned: boolean): void {
    this.isCordoned = cordoned;
    this.life.gate.setCordoned(cordoned);
    this.options.onChange();
  }

  /** Everything that runs ends silently. */
  async close(): Promise<void> {
    this.life.end(failure('ExecutorDied', 'The test fleet was closed.'));
    await Promise.allSettled([...this.cleaning]);
  }

  /** An attempt on the unique queue. */
  async runPinned(args: unknown[]): Promise<unknown> {
    const context = Context.current();
    const { executor } = this.life;
    const isCall = context.info.activityId.startsWith(WORKER_ACTIVITY_PREFIX);
    // Its poll was out when the worker was lost. Of a session the keeper says that it is gone.
    if (this.isLost && isCall) throw failure('ExecutorDied', `The worker ${this.name} is lost.`);
    return await executor.runPinned(context, args, () =>
      this.call(isCall ? 'worker' : 'pinned', context, args, executor.ended),
    );
  }

  async runPooled(args: unknown[]): Promise<unknown> {
    const context = Context.current();
    const { executor } = this.life;
    return await executor.runPooled(context, this.worker, () => this.call('pooled', context, args, executor.ended));
  }

  private async call(
    kind: TestCall['kind'],
    { info }: Context,
    args: readonly unknown[],
    lost: AbortSignal,
  ): Promise<unknown> {
    const { activities, calls } = this.options;
    const activity = activities.get(info.activityType) ?? activities.get('default');
    if (activity === undefined) {
      // Not retryable, as it would be on a real worker: the test would wait for its own time limit.
      throw ApplicationFailure.nonRetryable(
        `The worker ${this.name} of the test fleet has no activity ${JSON.stringify(info.activityType)}; it has ${[...activities.keys()].join(', ')}. Add it to the activities given to TestFleet.create.`,
        'NotFoundError',
      );
    }
    const ended = calls.begin({
      kind,
      activity: info.activityType,
      worker: this.name,
      session: provided()?.session?.id ?? null,
      workflowId: info.workflowExecution?.workflowId ?? '',
      runId: info.workflowExecution?.runId ?? '',
      attempt: info.attempt,
      args,
    });
    const onLost = (): void => {
      ended('lost');
    };
    lost.addEventListener('abort', onLost, { once: true });
    try {
      const value = await activity(...args);
      ended('completed');
      return value;
    } catch (error) {
      ended('failed');
      throw error;
    } finally {
      lost.removeEventListener('abort', onLost);
    }
  }
}

/** The functions among the properties, as activities by their names. Throws where there is none. */
export function activityMap(worker: string, activities: object | undefined): ActivityMap {
  const found = Object.entries(activities ?? {}).filter(([, value]) => typeof value === 'function');
  if (found.length === 0) {
    throw new AtlasError('ConfigInvalid', `The worker ${JSON.stringify(worker)} of the test fleet has no activities.`, {
      next: 'Give it an object of functions as `activities`, or give TestFleet.create one for all workers.',
    });
  }
  return new Map(found as [string, (...args: unknown[]) => unknown][]);
}
