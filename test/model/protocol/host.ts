/**
 * One host: a supervisor with the real session keeper, fence, table and slot gate, and an executor with the real guard of
 * attempts. What `daemon/daemon.ts`, `executor-process.ts`, `presence.ts`, `owner-check.ts` and `fence-watch.ts` do with
 * processes, sockets and clients is done here in their order, between simulated processes.
 *
 * Every effect of a process (a call, a write, a spawn) takes time, and the process may be gone before the answer.
 */
import { Context } from '@temporalio/activity';
import { ApplicationFailure, CancelledFailure, CompleteAsyncError } from '@temporalio/common';
import type { ActivityInboundCallsInterceptor } from '@temporalio/worker';
import { AtlasError, ERRORS, findError } from '../../../src/contract/errors.js';
import type { BeginAttempt, EncodedResult, ExecutorCommand, SessionMemoryName } from '../../../src/contract/local.js';
import { acquireQueue, acquireQueueOf, capabilitySubsets } from '../../../src/contract/names.js';
import {
  ADOPT_ACTIVITY,
  ASK_SIGNAL,
  CONFIRM_ACTIVITY,
  GRANT_SIGNAL,
  LEASE_ACTIVITY,
  RELEASE_ACTIVITY,
} from '../../../src/contract/session.js';
import type { EventLog, TemporalPort } from '../../../src/daemon/ports.js';
import { type OwnerTask, SessionKeeper } from '../../../src/daemon/session-keeper.js';
import { type LedgerRecord, SessionTable } from '../../../src/daemon/session-table.js';
import { SlotGate } from '../../../src/daemon/slots.js';
import { AttemptGuard } from '../../../src/executor/attempts.js';
import { SessionMemories } from '../../../src/executor/memories.js';
import type { SupervisorLink } from '../../../src/executor/supervisor-link.js';
import { never, Process, type Simulation } from './kernel.js';
import type { PinnedRequest } from './owner.js';
import { type Failure, Link, type Task } from './server.js';
import type { World } from './world.js';

const TICK_MS = 200;
const OWNER_CHECK_MS = 3_000;
const PRESENCE_ACTIVITY = 'atlas:presence';
const INTERVALS_PER_TTL = 3;
const CHANGE_DELAY_MS = 250;
const RELEASE_HEARTBEAT_MS = 1_500;
const PINNED_POLLS = 2;
const CONTROL_POLLS = 2;
const DROP_MEMORY_TIMEOUT_MS = 15_000;
/** The clock of the records, far from the monotonic one. */
const EPOCH_MS = 1_700_000_000_000;

/** What a test may change of the rules of a supervisor. */
export interface HostMutation {
  readonly keeper?: (keeper: SessionKeeper, supervisor: Supervisor) => void;
  readonly guard?: (guard: AttemptGuard) => void;
  /** Whether the executor's own fence works. */
  readonly noFenceWatch?: boolean;
  /** Whether a restarted supervisor leaves an old executor at work. */
  readonly keepsOldExecutor?: boolean;
}

/** What is on the disk of a host. */
class Disk {
  records: LedgerRecord[] = [];
  private writtenCount = 0;
  private syncedCount = 0;
  readonly scratch = new Map<string, number>();
  /** Renamed away and not deleted yet. */
  trash = 0;
  /** Counted, since faults overlap. */
  full = 0;

  constructor(private readonly sim: Simulation) {}

  async append(process: Process, record: LedgerRecord, durable: boolean): Promise<void> {
    if (!process.mayAct()) return never();
    const { random } = this.sim;
    if (this.full > 0) {
      await process.sleep(random.between(0, 1));
      throw noSpace();
    }
    const position = this.records.push(record);
    await process.sleep(random.between(0, 1));
    this.writtenCount = Math.max(this.writtenCount, position);
    if (!durable) return;
    await process.sleep(random.between(0, 4));
    this.syncedCount = Math.max(this.syncedCount, position);
  }

  /** What a crash leaves: all that was written, and of a host only what was synced for sure. */
  crash(host: boolean): void {
    const safe = host ? this.syncedCount : this.writtenCount;
    this.records = this.records.slice(0, this.sim.random.int(safe, this.records.length));
    this.writtenCount = this.records.length;
    this.syncedCount = Math.min(this.syncedCount, this.records.length);
  }

  replace(records: LedgerRecord[]): void {
    this.records = records;
    this.writtenCount = this.syncedCount = records.length;
  }
}

function noSpace(): Error {
  return new Error('ENOSPC: no space left on device');
}

export class Host {
  readonly disk: Disk;
  /** The way of the whole host, and of each of its processes. */
  readonly link = new Link();
  readonly supervisorLink = new Link(this.link);
  readonly executorLink = new Link(this.link);
  readonly queue: string;
  readonly controlQueue: string;
  supervisor: Supervisor | undefined;
  /** Every executor that is alive, with what a killed supervisor left. */
  readonly executors = new Set<Executor>();
  lives = 0;
  /** Called when an owner was asked for its word, or was given an answer. */
  onQuestion: () => void = () => undefined;
  /** What the clock of the records was set by. */
  clockOffsetMs = 0;
  /** The longest time that both processes were frozen at once, or one frozen and the other dead. */
  frozenTogetherMs = 0;
  private frozenTogetherSinceMs: number | undefined;
  /** Grants that this host has made. */
  readonly granted = new Set<string>();

  constructor(
    readonly world: World,
    readonly name: string,
    readonly cap: number,
  ) {
    this.disk = new Disk(world.sim);
    this.queue = `atlas-${name}.i`;
    this.controlQueue = `atlas-${name}.i:control`;
  }

  start(): void {
    if (this.supervisor?.process.alive === true) return;
    this.supervisor = new Supervisor(this);
    this.noteFreezes();
    this.supervisor.process.deliver(() => {
      void this.supervisor!.start();
    });
  }

  /** To be called whenever a process was stopped, goes on or died, and before it goes on. */
  noteFreezes(): void {
    const { nowMs } = this.world.sim;
    if (this.frozenTogetherSinceMs !== undefined)
      this.frozenTogetherMs = Math.max(this.frozenTogetherMs, nowMs - this.frozenTogetherSinceMs);
    // One that is dead ends a stopped executor no more than one that is stopped.
    const { process } = this.supervisor ?? {};
    const both =
      process !== undefined &&
      (process.frozen || !process.alive) &&
      [...this.executors].some((executor) => executor.stopped);
    if (!both) this.frozenTogetherSinceMs = undefined;
    else this.frozenTogetherSinceMs ??= nowMs;
  }

  crashSupervisor(): void {
    const { supervisor } = this;
    if (supervisor?.process.alive !== true) return;
    this.world.sim.note(this.name, () => 'the supervisor dies');
    supervisor.process.die();
    this.noteFreezes();
    this.disk.crash(false);
  }

  crashHost(): void {
    if (this.supervisor === undefined) return;
    this.world.sim.note(this.name, () => 'the host dies');
    this.supervisor.process.die();
    for (const executor of this.executors) executor.kill('the host dies');
    this.disk.crash(true);
  }

  crashExecutor(): void {
    for (const executor of this.executors) executor.kill('it crashes');
  }

  /** In which acquisition an attempt runs, while somebody knows it. */
  acquisitionOf(attemptId: string): string | undefined {
    const { supervisor } = this;
    if (supervisor?.process.alive !== true || !supervisor.resumed) return undefined;
    const key = supervisor.table.attempt(attemptId)?.sessionKey;
    return key == null ? undefined : supervisor.table.session(key)?.grantId;
  }

  /** Whether another attempt of the activity is at work here. */
  runsAnother(activityKey: string, attempt: number): boolean {
    return [...this.executors].some((executor) =>
      [...executor.activities].some((activity) => activity.activityKey === activityKey && activity.attempt !== attempt),
    );
  }

  /** Sessions that take a slot, with those whose activities have not ended. */
  sessionsInUse(): Set<string> {
    const used = new Set<string>();
    if (this.supervisor?.process.alive === true && this.supervisor.resumed)
      for (const entry of this.supervisor.table.sessions()) used.add(entry.grantId);
    for (const executor of this.executors)
      for (const activity of executor.activities) used.add(this.world.grantOf(activity.activityKey));
    return used;
  }

  isFree(): boolean {
    return (
      this.supervisor?.process.alive === true &&
      this.supervisor.resumed &&
      this.supervisor.table.sessionCount === 0 &&
      this.disk.scratch.size === 0 &&
      this.disk.trash === 0
    );
  }
}

const silent: EventLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

export class Supervisor {
  readonly process: Process;
  table = new SessionTable();
  keeper: SessionKeeper | undefined;
  gate: SlotGate | undefined;
  resumed = false;
  executor: Executor | undefined;
  private nextIncarnation: string;
  /** That of the executor that polls. */
  private readyIncarnation: string | null = null;
  private backoffMs = 200;
  private presenceToken: string | undefined;
  private presenceTimer: (() => void) | undefined;
  private presenceSending = false;
  private presenceAgain = false;
  readonly nonce: string;
  private readonly sim: Simulation;

  constructor(readonly host: Host) {
    this.sim = host.world.sim;
    host.lives += 1;
    this.nonce = `${host.name}/${host.lives}`;
    this.process = new Process(this.sim, `${host.name}/sup`);
    this.nextIncarnation = this.newIncarnation();
  }

  private note(what: () => string): void {
    this.sim.note(this.host.name, what);
  }

  // ---- Start, in the order of daemon.ts ----

  async start(): Promise<void> {
    const { host, sim, process } = this;
    const { world, disk } = host;
    this.note(() => `the supervisor starts (life ${host.lives})`);
    await process.sleep(sim.random.between(20, 200));
    // The ledger can not be opened: the daemon ends, and is started again.
    while (disk.full > 0) await process.sleep(500);
    const table = SessionTable.replay(disk.records);
    this.table = table;
    if (!process.mayAct()) return;
    disk.replace(table.records());
    const old = table.executors();
    if (old.length > 0 && world.options.host?.keepsOldExecutor !== true) {
      for (const executor of host.executors) executor.kill('a restarted supervisor ends it');
      await process.sleep(sim.random.between(1, 20));
      table.apply({ type: 'executor', process: null });
      await disk.append(process, { type: 'executor', process: null }, false).catch(() => undefined);
    }
    let giveSettings = (): void => undefined;
    const settings = new Promise<void>((resolve) => {
      giveSettings = resolve;
    });
    void this.keepExecutor(settings);
    // Without a server the daemon ends and is started again; all that comes of it is that it tries again.
    for (;;) {
      try {
        await world.server.call(process, host.supervisorLink, () => undefined);
        break;
      } catch {
        await process.sleep(500);
      }
    }
    const gate = new SlotGate({ cap: host.cap, reserve: {} }, () =>
      table.sessions().map((entry) => entry.capabilities),
    );
    this.gate = gate;
    let grantCount = 0;
    const keeper = new SessionKeeper(
      {
        worker: host.name,
        queue: host.queue,
        presenceTtlMs: world.presenceTtlMs,
      },
      {
        temporal: this.temporalPort(),
        ledger: { append: (record, { durable }) => disk.append(process, record, durable) },
        scratch: this.scratchPort(),
        executor: {
          isAlive: (incarnation) => incarnation === this.executor?.incarnation,
          memoryHome: () => this.readyIncarnation,
          dropMemory: async (incarnation, memory) => {
            if (this.executor?.incarnation === incarnation) await this.executor.dropMemory(memory);
          },
          cancelSession: ({ key, session, runId }, code, reason) => {
            this.executor?.command({ type: 'cancel-session', key, session, runId, code, reason });
          },
          renewLocalLease: (forMs) => {
            this.executor?.fenceLine(forMs);
          },
          kill: (reason) => this.killExecutor(reason),
        },
        clock: {
          now: () => EPOCH_MS + sim.nowMs + host.clockOffsetMs,
          monotonicMs: () => sim.nowMs,
          timer: (delayMs, callback) => process.timer(delayMs, callback),
        },
        log: sim.trace === undefined ? silent : this.tracingLog(),
        newGrantId: () => {
          const id = `${host.name}-${host.lives}-${(grantCount += 1)}`;
          host.granted.add(id);
          return id;
        },
      },
      gate,
      table,
      () => {
        world.checkCap(host);
        this.presenceChanged();
      },
    );
    world.options.host?.keeper?.(keeper, this);
    this.keeper = keeper;
    const failing = keeper.failAttempts();
    giveSettings();
    await failing;
    await keeper.resume();
    if (!process.alive) return;
    this.sweep();
    this.resumed = true;
    world.checkCap(host);
    process.every(OWNER_CHECK_MS, () => void this.checkOwners());
    this.startPolls(keeper, gate);
    process.every(TICK_MS, () => {
      if (table.sessionCount > 0 || table.results().length > 0 || sim.nowMs % 1_000 < TICK_MS) void keeper.tick();
    });
    await this.register();
    this.note(() => 'the worker is registered');
  }

  private tracingLog(): EventLog {
    const log = (fields: object, message: string) => {
      const { event, session, reason } = fields as { event?: string; session?: string; reason?: string };
      this.note(() => `${event ?? ''} ${session ?? ''}: ${message}${reason === undefined ? '' : ` (${reason})`}`);
    };
    return { debug: log, info: log, warn: log, error: log };
  }

  private sweep(): void {
    const { scratch } = this.host.disk;
    for (const key of [...scratch.keys()]) if (this.table.session(key) === undefined) scratch.delete(key);
    this.host.disk.trash = 0;
  }

  private temporalPort(): TemporalPort {
    const { server } = this.host.world;
    const call = <T>(serve: () => T): Promise<T> => server.call(this.process, this.host.supervisorLink, serve);
    return {
      heartbeat: (token) => call(() => server.heartbeat(token)),
      completeLease: (token) =>
        call(() => {
          server.complete(token, undefined);
        }),
      answerConfirm: (token) =>
        call(() => {
          this.host.onQuestion();
          return server.complete(token, undefined) ? 'answered' : 'gone';
        }),
      cancelLease: (token) =>
        call(() => {
          server.cancelled(token);
        }),
      failLease: (token, code, message) =>
        call(() => {
          server.fail(token, { type: code, message, nonRetryable: !ERRORS[code].retryable });
        }),
      failAttempt: (token, code, message) =>
        call(() => {
          server.fail(token, { type: code, message, nonRetryable: !ERRORS[code].retryable });
        }),
      completeAttempt: (token, { json }) =>
        call(() => {
          server.complete(token, json === undefined ? undefined : JSON.parse(json));
        }),
      describeOwner: ({ runId }) => call(() => server.describe(runId)),
      askOwner: ({ runId }, grant) =>
        call(() => {
          this.host.onQuestion();
          return server.signal(runId, ASK_SIGNAL, grant);
        }),
      signalGrant: ({ runId }, grant) => call(() => server.signal(runId, GRANT_SIGNAL, grant)),
    };
  }

  private scratchPort() {
    const { disk } = this.host;
    const { process, sim } = this;
    const effect = async <T>(act: () => T, needsSpace = false): Promise<T> => {
      if (!process.mayAct()) return never();
      await process.sleep(sim.random.between(0, 3));
      if (needsSpace && disk.full > 0) throw noSpace();
      return act();
    };
    return {
      create: (key: string, { epoch }: { epoch: number }) =>
        effect(() => {
          disk.scratch.set(key, epoch);
          return `/scratch/${key}`;
        }, true),
      isIntact: (key: string) => effect(() => disk.scratch.has(key)),
      directory: (key: string) => `/scratch/${key}`,
      discard: (key: string) =>
        effect(() => {
          if (disk.scratch.delete(key)) disk.trash += 1;
          return () =>
            effect(() => {
              disk.trash = Math.max(0, disk.trash - 1);
            });
        }),
    };
  }

  // ---- The executor as a process ----

  private newIncarnation(): string {
    return `${this.host.name}-e${(this.host.world.incarnations += 1)}`;
  }

  private async keepExecutor(settings: Promise<void>): Promise<void> {
    const { process, host } = this;
    for (;;) {
      if (!process.mayAct()) return;
      const executor = new Executor(this, this.nextIncarnation, settings);
      this.executor = executor;
      this.table.apply({ type: 'executor', process: { pid: 1, startedAt: executor.incarnation } as never });
      try {
        await host.disk.append(process, { type: 'executor', process: { pid: 1 } as never }, true);
      } catch {
        executor.kill('the ledger does not name it');
      }
      const startedAtMs = this.sim.nowMs;
      await executor.ended(process);
      this.note(() => `the executor ${executor.incarnation} has ended`);
      if (this.sim.nowMs - startedAtMs > 60_000) this.backoffMs = 200;
      this.nextIncarnation = this.newIncarnation();
      this.executor = undefined;
      this.readyIncarnation = null;
      this.gate?.setClosed(true);
      await host.disk.append(process, { type: 'executor', process: null }, false).catch(() => undefined);
      await this.keeper?.failAttempts();
      this.presenceChanged();
      await process.sleep(this.backoffMs);
      this.backoffMs = Math.min(this.backoffMs * 2, 10_000);
    }
  }

  private async killExecutor(reason: string): Promise<void> {
    const { executor, process } = this;
    if (!process.mayAct()) return never();
    if (executor === undefined) return;
    executor.kill(reason);
    await executor.ended(process);
  }

  /** The executor polls. */
  executorReady(executor: Executor): void {
    if (executor !== this.executor) return;
    this.readyIncarnation = executor.incarnation;
    this.gate?.setClosed(false);
    this.presenceChanged();
  }

  // ---- Tasks ----

  private startPolls(keeper: SessionKeeper, gate: SlotGate): void {
    for (let index = 0; index < CONTROL_POLLS; index += 1) void this.pollControl(keeper);
    for (const capabilities of capabilitySubsets(this.host.world.mix.aim.capabilities ?? []))
      void this.pollAcquire(keeper, gate, acquireQueue('atlas', capabilities), capabilities);
    const { capabilities = [], prefers } = this.host.world.mix.aim;
    if (prefers === true) void this.pollAcquire(keeper, gate, acquireQueueOf('atlas', this.host.name), capabilities);
  }

  private async pollControl(keeper: SessionKeeper): Promise<void> {
    for (;;) {
      const task = await this.poll(this.host.controlQueue);
      if (task === undefined) continue;
      void this.serve(task, async () => {
        switch (task.spec.type) {
          case RELEASE_ACTIVITY:
            return { released: await this.heartbeating(task, keeper.release(task.spec.request as never)) };
          case CONFIRM_ACTIVITY:
            await keeper.confirm(ownerTask(task));
            throw new CompleteAsyncError();
          case ADOPT_ACTIVITY:
            await keeper.adopt(ownerTask(task));
            throw new CompleteAsyncError();
          case PRESENCE_ACTIVITY:
            this.pickUpPresence(task);
            throw new CompleteAsyncError();
          default:
            throw new Error(`There is no activity ${task.spec.type}.`);
        }
      });
    }
  }

  private async pollAcquire(
    keeper: SessionKeeper,
    gate: SlotGate,
    queue: string,
    capabilities: readonly string[],
  ): Promise<void> {
    const supplier = gate.supplier(capabilities);
    const abort = new AbortController();
    for (;;) {
      const permit = await supplier.reserveSlot({} as never, abort.signal);
      const task = await this.poll(queue);
      if (task === undefined) {
        supplier.releaseSlot({ permit } as never);
        continue;
      }
      supplier.markSlotUsed({ permit } as never);
      void this.serve(task, async () => {
        if (task.spec.type !== LEASE_ACTIVITY) throw new Error(`There is no activity ${task.spec.type}.`);
        await keeper.acquire(ownerTask(task));
        throw new CompleteAsyncError();
      }).finally(() => {
        supplier.releaseSlot({ permit } as never);
      });
    }
  }

  private async poll(queue: string): Promise<Task | undefined> {
    const task = await this.host.world.server.poll(this.process, this.host.supervisorLink, queue);
    if (task === undefined) await this.process.sleep(this.sim.random.between(20, 1_000));
    return task;
  }

  private async heartbeating<T>(task: Task, work: Promise<T>): Promise<T> {
    const { server } = this.host.world;
    let cancelTimer = (): void => undefined;
    const next = (): void => {
      cancelTimer = this.process.timer(RELEASE_HEARTBEAT_MS, () => {
        server.call(this.process, this.host.supervisorLink, () => server.heartbeat(task.token)).catch(() => undefined);
        next();
      });
    };
    next();
    try {
      return await work;
    } finally {
      cancelTimer();
    }
  }

  private async serve(task: Task, run: () => Promise<unknown>): Promise<void> {
    const { server } = this.host.world;
    const { process, host } = this;
    try {
      const result = await run();
      await server.report(process, host.supervisorLink, () => {
        server.complete(task.token, result);
      });
    } catch (error) {
      if (error instanceof CompleteAsyncError) return;
      const failure = failureOf(error);
      await server.report(process, host.supervisorLink, () => {
        server.fail(task.token, failure);
      });
    }
  }

  // ---- Presence and the owner check ----

  private async register(): Promise<void> {
    for (;;) {
      const sentAtMs = this.sim.nowMs;
      try {
        const suspected = await this.host.world.server.call(this.process, this.host.supervisorLink, () =>
          this.host.world.fleet.register(this.host, this.nonce),
        );
        if (!suspected) this.keeper?.notMissed(sentAtMs);
        return;
      } catch {
        await this.process.sleep(1_000);
      }
    }
  }

  private pickUpPresence(task: Task): void {
    const { nonce, lost } = task.spec.request as { nonce: string; lost: boolean };
    if (nonce !== this.nonce) return;
    this.presenceToken = task.token;
    if (lost) this.keeper?.presenceGone();
    else this.keeper?.presenceTrusted();
    this.presenceChanged();
    if (lost) void this.register();
  }

  presenceChanged(): void {
    this.schedulePresence(CHANGE_DELAY_MS);
  }

  private schedulePresence(delayMs: number): void {
    if (this.presenceToken === undefined) return;
    if (this.presenceSending) {
      this.presenceAgain = true;
      return;
    }
    this.presenceTimer?.();
    this.presenceTimer = this.process.timer(delayMs, () => void this.sendPresence());
  }

  private async sendPresence(): Promise<void> {
    const { keeper, host, presenceToken } = this;
    if (keeper === undefined || presenceToken === undefined) return;
    const { server, presenceTtlMs } = host.world;
    this.presenceSending = true;
    const sentAtMs = this.sim.nowMs;
    keeper.presenceSent(sentAtMs);
    const sessions = this.table.sessions().map(({ runId }) => runId);
    try {
      const answer = await server.call(
        this.process,
        host.supervisorLink,
        () => server.heartbeat(presenceToken, sessions),
        presenceTtlMs / INTERVALS_PER_TTL,
      );
      if (this.presenceToken === presenceToken) {
        if (answer === 'renewed') keeper.presenceAnswered(sentAtMs);
        else {
          this.presenceToken = undefined;
          keeper.presenceGone();
        }
      }
    } catch {
      keeper.callFailed();
    }
    this.presenceSending = false;
    const again = this.presenceAgain;
    this.presenceAgain = false;
    this.schedulePresence(again ? CHANGE_DELAY_MS : presenceTtlMs / INTERVALS_PER_TTL);
  }

  private async checkOwners(): Promise<void> {
    const { keeper, host } = this;
    const runIds = this.table.sessions().map(({ runId }) => runId);
    if (keeper === undefined || runIds.length === 0) return;
    try {
      const closed = await host.world.server.call(this.process, host.supervisorLink, () =>
        host.world.closedRuns(runIds),
      );
      if (closed.length > 0) await keeper.ownersClosed(closed);
    } catch {
      // Lease renewals notice them too.
    }
  }
}

function ownerTask<R>(task: Task): OwnerTask<R> {
  return {
    request: task.spec.request as R,
    workflowId: task.workflowId,
    runId: task.runId,
    workflowType: 'work',
    leaseToken: task.token,
    scheduledAtMs: EPOCH_MS + task.scheduledAtMs,
  };
}

function failureOf(error: unknown): Failure {
  if (error instanceof ApplicationFailure)
    return { type: error.type ?? '', message: error.message, nonRetryable: error.nonRetryable === true };
  const found = findError(error);
  if (found !== undefined)
    return { type: found.code, message: found.message, nonRetryable: !ERRORS[found.code].retryable };
  return { type: 'Error', message: String(error), nonRetryable: false };
}

/** A pinned activity at work. Its effects happen for as long as its process group lives, whatever the guard believes. */
export interface PinnedActivity {
  readonly activityKey: string;
  readonly attempt: number;
  readonly cancelEffects: () => void;
}

const EFFECT_EVERY_MS = 250;

/** A process group: a thread with the workers and the guard, and one with the fence. */
export class Executor {
  readonly main: Process;
  private readonly watch: Process;
  readonly activities = new Set<PinnedActivity>();
  private readonly sim: Simulation;
  private readonly host: Host;
  private guard: AttemptGuard | undefined;
  private memories: SessionMemories | undefined;
  private cancelLapse: (() => void) | undefined;
  private readonly endListeners: (() => void)[] = [];
  private busyCount = 0;
  private fenceHeard = false;

  constructor(
    readonly supervisor: Supervisor,
    readonly incarnation: string,
    settings: Promise<void>,
  ) {
    this.host = supervisor.host;
    this.sim = this.host.world.sim;
    this.main = new Process(this.sim, `${this.host.name}/exe`);
    this.watch = new Process(this.sim, `${this.host.name}/fence`);
    this.host.executors.add(this);
    // It lives as long as its supervisor: the end of the stream reaches both threads, one of which may be busy.
    supervisor.process.onDeath(() => {
      for (const thread of [this.main, this.watch])
        this.sim.after(this.sim.random.between(1, 20), () => {
          thread.deliver(() => {
            if (this.host.world.options.host?.keepsOldExecutor !== true) this.kill('its supervisor is gone');
          });
        });
    });
    void settings.then(() => {
      this.sim.after(this.sim.random.between(200, 1_000), () => {
        this.main.deliver(() => {
          this.serve();
        });
      });
    });
  }

  get alive(): boolean {
    return this.main.alive;
  }

  kill(reason: string): void {
    if (!this.alive) return;
    this.sim.note(this.host.name, () => `the executor ${this.incarnation} dies: ${reason}`);
    this.main.die();
    this.watch.die();
    for (const activity of this.activities) activity.cancelEffects();
    this.activities.clear();
    this.host.executors.delete(this);
    for (const listener of this.endListeners.splice(0)) listener();
  }

  /** Resolves in the process that waits for it. */
  ended(waiter: Process): Promise<void> {
    return new Promise((resolve) => {
      const tell = () => {
        this.sim.after(this.sim.random.between(1, 40), () => {
          waiter.deliver(resolve);
        });
      };
      if (this.alive) this.endListeners.push(tell);
      else tell();
    });
  }

  freeze(): void {
    this.main.freeze();
    this.watch.freeze();
  }

  thaw(): void {
    this.main.thaw();
    this.watch.thaw();
  }

  /** An activity that never gives the event loop back: nothing reaches the guard, and the activity goes on. */
  private setBusy(busy: boolean): void {
    this.busyCount += busy ? 1 : -1;
    if (busy) this.main.freeze();
    else this.main.thaw();
  }

  get stopped(): boolean {
    return this.watch.frozen;
  }

  // ---- What the supervisor says ----

  command(command: Extract<ExecutorCommand, { type: 'cancel-session' }>): void {
    if (!this.supervisor.process.mayAct()) return;
    this.sim.after(this.sim.random.between(0, 2), () => {
      this.main.deliver(() => {
        this.guard?.cancelSession(command);
      });
    });
  }

  /** Resolves in the supervisor when it has done so, or is dead, or after a while. */
  dropMemory(memory: SessionMemoryName): Promise<void> {
    const { process } = this.supervisor;
    if (!process.mayAct()) return never();
    return new Promise((resolve) => {
      const cancelTimer = process.timer(DROP_MEMORY_TIMEOUT_MS, resolve);
      const settle = (): void => {
        process.deliver(() => {
          cancelTimer();
          resolve();
        });
      };
      this.endListeners.push(settle);
      this.sim.after(this.sim.random.between(0, 2), () => {
        this.main.deliver(() => {
          void this.memories?.drop(memory).then(() => {
            this.sim.after(this.sim.random.between(0, 2), settle);
          });
        });
      });
    });
  }

  fenceLine(forMs: number | null): void {
    // Nothing changes while nothing is pinned; saves the simulation most of its events.
    if (!this.supervisor.process.mayAct() || (forMs === null && !this.fenceHeard)) return;
    this.fenceHeard = forMs !== null;
    this.sim.after(this.sim.random.between(0, 2), () => {
      this.watch.deliver(() => {
        this.cancelLapse?.();
        this.cancelLapse =
          forMs === null
            ? undefined
            : this.watch.timer(Math.max(0, forMs), () => {
                if (this.host.world.options.host?.noFenceWatch !== true) this.kill('its local lease has lapsed');
              });
      });
    });
  }

  /** A request to the supervisor over the socket. */
  private ask<T>(handle: () => Promise<T>): Promise<T> {
    if (!this.main.mayAct()) return never();
    const { sim, supervisor } = this;
    return new Promise<T>((resolve, reject) => {
      const cancelDeadline = this.main.timer(10_000, () => {
        reject(new AtlasError('ExecutorFailed', 'The supervisor did not answer.'));
      });
      sim.after(sim.random.between(0, 2), () => {
        if (!supervisor.process.alive) return;
        supervisor.process.deliver(() => {
          const back = (act: () => void) => {
            sim.after(sim.random.between(0, 2), () => {
              this.main.deliver(() => {
                cancelDeadline();
                act();
              });
            });
          };
          handle().then(
            (value) => {
              back(() => {
                resolve(value);
              });
            },
            (error: unknown) => {
              back(() => {
                reject(error as Error);
              });
            },
          );
        });
      });
    });
  }

  // ---- Work ----

  private serve(): void {
    const { supervisor, host } = this;
    const link = {
      beginAttempt: (attempt: BeginAttempt) =>
        this.ask(() => {
          if (supervisor.keeper === undefined) throw new AtlasError('ExecutorFailed', 'Not ready.');
          return supervisor.keeper.beginAttempt(attempt);
        }),
      endAttempt: (id: string, result?: EncodedResult) =>
        this.ask(async () => {
          await supervisor.keeper?.endAttempt(id, result);
          if (result !== undefined) host.world.resultKept(id.slice(0, id.lastIndexOf('#')));
        }),
    };
    const worker = {
      name: host.name,
      fleet: 'atlas',
      queue: host.queue,
      capabilities: [],
      keptDirectory: '/kept',
      cacheDirectory: '/cache',
      keptForMs: 86_400_000,
    };
    this.memories = new SessionMemories({ dropped: () => Promise.resolve(), log: silent });
    this.guard = new AttemptGuard(link as unknown as SupervisorLink, this.incarnation, worker, this.memories);
    host.world.options.host?.guard?.(this.guard);
    for (let index = 0; index < PINNED_POLLS; index += 1) void this.pollPinned();
    // The word that it polls.
    this.sim.after(this.sim.random.between(0, 2), () => {
      supervisor.process.deliver(() => {
        supervisor.executorReady(this);
      });
    });
  }

  private async pollPinned(): Promise<void> {
    const { host, sim, main } = this;
    for (;;) {
      const task = await host.world.server.poll(main, host.executorLink, host.queue);
      if (task === undefined) await main.sleep(sim.random.between(20, 1_000));
      else void this.runTask(task);
    }
  }

  private async runTask(task: Task): Promise<void> {
    const { host, main } = this;
    const { server } = host.world;
    const abort = new AbortController();
    let cancel: (error: CancelledFailure) => void = () => undefined;
    const cancelled = new Promise<never>((_, reject) => {
      cancel = (error) => {
        abort.abort(error);
        reject(error);
      };
    });
    cancelled.catch(() => undefined);
    let over = false;
    let beating = false;
    const heartbeat = (): void => {
      if (over || beating) return;
      beating = true;
      server
        .call(main, host.executorLink, () => server.heartbeat(task.token))
        .then(
          (answer) => {
            if (answer !== 'renewed') cancel(new CancelledFailure(answer));
          },
          () => undefined,
        )
        .finally(() => {
          beating = false;
        });
    };
    const context = new Context(
      {
        activityId: task.spec.activityId,
        activityType: task.spec.type,
        attempt: task.attempt,
        base64TaskToken: task.token,
        heartbeatTimeoutMs: task.spec.heartbeatMs,
        heartbeatDetails: task.heartbeatDetails,
        workflowExecution: { workflowId: task.workflowId, runId: task.runId },
      } as never,
      cancelled,
      abort.signal,
      heartbeat,
      undefined,
      { warn: () => undefined } as never,
      undefined as never,
      {} as never,
    );
    const interceptor = this.guard!.interceptor(context);
    const next = () => this.work(task);
    try {
      const result = await interceptor.execute!(
        { args: [task.spec.request], headers: {} },
        next as unknown as Parameters<NonNullable<ActivityInboundCallsInterceptor['execute']>>[1],
      );
      over = true;
      await server.report(main, host.executorLink, () => {
        server.complete(task.token, result);
      });
    } catch (error) {
      over = true;
      await server.report(main, host.executorLink, () => {
        if (error instanceof CancelledFailure) server.cancelled(task.token);
        else server.fail(task.token, failureOf(error));
      });
    }
  }

  /** The user's activity. */
  private work(task: Task): Promise<unknown> {
    const { host, sim, main } = this;
    const { world } = host;
    const activityKey = `${task.runId}/${task.spec.activityId}`;
    const { step } = task.spec.request as PinnedRequest;
    const plan = world.stepOf(task.workflowId, step);
    const context = Context.current();
    const startedAtMs = sim.nowMs;
    return new Promise<unknown>((resolve, reject) => {
      let ended = false;
      const end = (settleIt: () => void) => {
        if (ended) return;
        ended = true;
        this.activities.delete(activity);
        if (plan.busy) this.setBusy(false);
        main.deliver(settleIt);
      };
      const effect = () => {
        if (ended || !this.alive) return;
        // Stopped: what was due happens the moment it goes on.
        if (this.stopped) {
          sim.after(20, effect);
          return;
        }
        world.effect(host, activityKey, task.attempt);
        if (sim.nowMs - startedAtMs >= plan.durationMs) {
          world.stepFinished(activityKey);
          end(() => {
            resolve(`${host.name}/${step}`);
          });
        } else sim.after(Math.min(EFFECT_EVERY_MS, startedAtMs + plan.durationMs - sim.nowMs), effect);
      };
      const activity: PinnedActivity = {
        activityKey,
        attempt: task.attempt,
        cancelEffects: () => {
          ended = true;
        },
      };
      this.activities.add(activity);
      if (plan.busy) this.setBusy(true);
      world.stepStarted(host, activityKey, this.incarnation);
      effect();
      context.cancelled.catch((error: Error) => {
        const { stopsAfterMs } = plan;
        if (stopsAfterMs === null || ended) return;
        main.timer(stopsAfterMs, () => {
          end(() => {
            reject(error);
          });
        });
      });
    });
  }
}
