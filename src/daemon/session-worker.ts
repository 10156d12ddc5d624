/**
 * A worker of the fleet, put together but for what runs its activities: the ledger, the sessions, the place in the fleet,
 * what is started in which order, and how everything is stopped in a bounded time.
 *
 * Owns the life of these parts. The protocol of sessions is in `session-keeper.ts`, the place in the fleet in
 * `presence.ts`; what runs the activities is an {@link ExecutorHost}.
 */
import { randomBytes } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { hostname, loadavg } from 'node:os';
import type { Client } from '@temporalio/client';
import type { NativeConnection } from '@temporalio/worker';
import { AtlasError } from '../contract/errors.js';
import type {
  ApplyAnswer,
  ApplyRequest,
  PresenceSnapshot,
  WithdrawnCapability,
  WorkerIdentity,
} from '../contract/fleet.js';
import type { LocalOrder, LocalOrderAnswer } from '../contract/local.js';
import type { Config } from './config.js';
import { DesiredKeeper } from './desired-keeper.js';
import { DesiredTender } from './desired-tender.js';
import type { ExecutorHost, SessionSide } from './executor-host.js';
import { endGroup } from './executor-process.js';
import type { LedgerFile } from './ledger-file.js';
import { OwnerCheck } from './owner-check.js';
import type { EventLog } from './ports.js';
import type { Presence } from './presence.js';
import { Scratch, sweepByAge } from './scratch.js';
import { ScratchSizes } from './scratch-sizes.js';
import { SessionKeeper } from './session-keeper.js';
import { openSessionLedger } from './session-ledger.js';
import { executorsRecord, type LedgerRecord, type SessionTable } from './session-table.js';
import { SlotGate } from './slots.js';
import type { ProcessIdentity } from './process-identity.js';
import type { StateDirectory } from './state-directory.js';
import { systemClock } from './system-clock.js';
import type { SupervisorWorkers } from './workers.js';

/** How often leases are looked at; the shortest TTL (1 s) is renewed every 333 ms. */
const TICK_MS = 200;
/** How often what follows from the desired state is looked at. */
const TEND_MS = 500;
const MEASURE_INTERVAL_MS = 10_000;
const SWEEP_INTERVAL_MS = 60 * 60_000;
/** A ledger is compacted at the start and when it has grown to this. */
const COMPACT_AT_BYTES = 4 * 1024 * 1024;
/** How long after its grace a stop may take in all before the process ends itself. */
const STOP_EXTRA_MS = 20_000;
const EXECUTOR_STOP_EXTRA_MS = 5_000;

/** The settings that are about sessions and the place in the fleet. */
export type SessionWorkerConfig = Pick<
  Config,
  'capabilities' | 'maxSessions' | 'reserve' | 'graceMs' | 'ephemeral' | 'keepMs' | 'presenceTtlMs'
>;

/** Two connections to one namespace: of the client, and of the Workers. */
export interface Connections {
  readonly client: Client;
  readonly native: NativeConnection;
  readonly namespace: string;
  /** For the log. */
  readonly address?: string;
  close(): Promise<void>;
}

export interface SessionWorkerOptions {
  readonly config: SessionWorkerConfig;
  readonly directory: StateDirectory;
  readonly executor: ExecutorHost;
  /** Called once, after the executor has begun to start. */
  readonly connect: (identity: WorkerIdentity) => Promise<Connections>;
  readonly log: EventLog;
  readonly version: string;
  /** A stop has taken {@link STOP_EXTRA_MS} longer than the grace. */
  readonly onStopStuck: () => void;
  /** Whether the executor is this process itself. */
  readonly embedded?: boolean;
}

export class SessionWorker {
  private connections: Connections | undefined;
  private ledger: LedgerFile<LedgerRecord> | undefined;
  private workers: SupervisorWorkers | undefined;
  private presence: Presence | undefined;
  private ownerCheck: OwnerCheck | undefined;
  private keeper: SessionKeeper | undefined;
  private gate: SlotGate | undefined;
  private desired: DesiredKeeper | undefined;
  private scratchSizes: ScratchSizes | undefined;
  private withdrawn: readonly WithdrawnCapability[] = [];
  /** Whether the fleet has said what operators want of this worker, in this life of the process. */
  private fleetHasSpoken = false;
  private readonly timers: NodeJS.Timeout[] = [];
  private stopping = false;
  private started = false;
  readonly identity: WorkerIdentity;
  private fail: (error: unknown) => void = () => undefined;
  /** Rejects when the worker can not go on. */
  readonly failed: Promise<never>;
  private finish: () => void = () => undefined;
  /** Resolves when the worker is drained and was told to end itself then. */
  readonly finished: Promise<void>;

  constructor(private readonly options: SessionWorkerOptions) {
    const { config, directory } = options;
    this.failed = new Promise<never>((_, reject) => {
      this.fail = reject;
    });
    this.failed.catch(() => undefined);
    this.finished = new Promise<void>((resolve) => {
      this.finish = resolve;
    });
    this.identity = {
      name: directory.identity.name,
      instance: directory.identity.instance,
      nonce: randomBytes(8).toString('hex'),
      fleet: directory.identity.fleet,
      queue: directory.identity.queue,
      controlQueue: directory.identity.controlQueue,
      capabilities: config.capabilities,
      maxSessions: config.maxSessions,
      version: options.version,
      host: hostname(),
      pid: process.pid,
      machineId: directory.identity.machineId,
      bootId: directory.identity.bootId,
      presenceTtlMs: config.presenceTtlMs,
      startedAtMs: Date.now(),
      ...(options.embedded === true ? { embedded: true } : {}),
    };
  }

  /** Resolves when the worker is registered and its executor polls. On an error everything is to be stopped. */
  async start(): Promise<void> {
    const { config, directory, executor, connect, log } = this.options;
    const table = await this.openLedger();
    await this.endOldExecutors(table);
    const desired = new DesiredKeeper(
      {
        worker: this.identity.name,
        nonce: this.identity.nonce,
        save: async (entry) => {
          const record: LedgerRecord = { type: 'desired', entry };
          table.apply(record);
          await this.append(record, true);
        },
        now: () => Date.now(),
        log,
        onChange: () => {
          this.keepGate();
          this.presence?.changed();
        },
      },
      table.desired(),
    );
    this.desired = desired;

    // The executor loads Temporal while this process does. It is let run the user's code once this process is connected
    // and fails what an earlier executor left.
    await executor.start(this.sessionSide(desired, table));

    const [{ Presence, SupervisorWorkers, temporalPort }, connections] = await Promise.all([
      loadTemporal(),
      connect(this.identity).then((connections) => (this.connections = connections)),
    ]);
    const { client, native, namespace } = connections;

    const gate = new SlotGate({ cap: config.maxSessions, reserve: config.reserve }, () =>
      table.sessions().map((entry) => entry.capabilities),
    );
    this.gate = gate;
    this.keepGate();
    this.keepWithdrawn();
    const scratch = new Scratch(directory.scratchRoot, directory.identity.bootId);
    const sizes = new ScratchSizes((key) => scratch.directory(key));
    this.scratchSizes = sizes;
    const keeper = new SessionKeeper(
      {
        worker: this.identity.name,
        queue: this.identity.queue,
        presenceTtlMs: config.presenceTtlMs,
      },
      {
        temporal: temporalPort(client),
        ledger: { append: (record, { durable }) => this.append(record, durable) },
        scratch,
        executor,
        clock: systemClock,
        log,
        newGrantId: () => randomBytes(6).toString('hex'),
      },
      gate,
      table,
      () => this.presence?.changed(),
    );
    this.keeper = keeper;

    // What an earlier life held: its attempts fail at once, its sessions go on.
    const failing = keeper.failAttempts();
    executor.admit();
    await failing;
    await keeper.resume();
    await this.sweep(scratch, table);

    this.presence = new Presence(client, this.identity, () => this.snapshot(), log, {
      onSent: (sentAtMs) => {
        keeper.presenceSent(sentAtMs);
      },
      onAnswered: (sentAtMs) => {
        keeper.presenceAnswered(sentAtMs);
      },
      onNotMissed: (sentAtMs) => {
        keeper.notMissed(sentAtMs);
      },
      onGone: () => {
        keeper.presenceGone();
      },
      onTrusted: () => {
        keeper.presenceTrusted();
      },
      onUnanswered: () => {
        keeper.callFailed();
      },
      known: () => desired.ofFleet(),
      onDesired: async (said) => {
        this.fleetHasSpoken = true;
        await desired.fromFleet(said);
        this.keepGate();
      },
      onSuperseded: (error) => {
        this.fail(error);
      },
      monotonicMs: () => systemClock.monotonicMs(),
    });
    this.ownerCheck = new OwnerCheck({
      client,
      namespace,
      fleet: this.identity.fleet,
      owners: () => table.sessions().map(({ runId }) => runId),
      onClosed: (runIds) => keeper.ownersClosed(runIds),
      log,
    });
    this.ownerCheck.start();
    const presence = this.presence;
    this.workers = await SupervisorWorkers.create(
      {
        connection: native,
        namespace,
        identity: `${this.identity.name}@${this.identity.fleet} supervisor ${process.pid}`,
        fleet: this.identity.fleet,
        worker: this.identity.name,
        capabilities: config.capabilities,
        controlQueue: this.identity.controlQueue,
      },
      keeper,
      gate,
      () => presence,
      (request) => this.applyDesired(desired, keeper, request),
    );
    this.workers.run().catch((error: unknown) => {
      if (!this.stopping) this.fail(error);
    });
    const tender = new DesiredTender(desired, {
      nonce: this.identity.nonce,
      sessionCount: () => table.sessionCount,
      forceRelease: (request) => keeper.forceRelease(request),
      tellOrder: (order) => presence.order(order),
      tellDrained: (revision) => presence.drained(revision),
      stop: () => {
        this.finish();
      },
      now: () => Date.now(),
      monotonicMs: () => systemClock.monotonicMs(),
      log,
    });
    this.timers.push(
      setInterval(() => void keeper.tick(), TICK_MS),
      setInterval(() => void tender.tick(), TEND_MS),
      setInterval(() => void sizes.measure(table.sessions().map(({ key }) => key)), MEASURE_INTERVAL_MS),
      setInterval(() => void this.sweep(scratch, table), SWEEP_INTERVAL_MS),
    );
    const { replaced } = await this.presence.register();
    if (replaced)
      log.warn(
        { event: 'take-over', name: this.identity.name },
        'The name was taken over from another instance, whose sessions are lost',
      );
    await this.untilExecutorReady();
    this.started = true;
    log.info(
      {
        event: 'worker-ready',
        worker: this.identity.name,
        fleet: this.identity.fleet,
        queue: this.identity.queue,
        capabilities: config.capabilities,
        slots: config.maxSessions,
        ...(connections.address === undefined ? {} : { address: connections.address }),
        namespace,
        stateDirectory: directory.path,
      },
      `Worker ${this.identity.name} is ready`,
    );
  }

  private async openLedger(): Promise<SessionTable> {
    const { directory, log } = this.options;
    const { ledger, table } = await openSessionLedger(directory, log);
    this.ledger = ledger;
    return table;
  }

  /** A supervisor that was killed leaves a busy executor at work; it must end before its attempts are failed. */
  private async endOldExecutors(table: SessionTable): Promise<void> {
    const old = table.executors();
    if (old.length === 0) return;
    await Promise.all(old.map((each) => endGroup(each, this.options.log)));
    await this.recordExecutors(table, [], false);
  }

  private async recordExecutors(
    table: SessionTable,
    processes: readonly ProcessIdentity[],
    durable: boolean,
  ): Promise<void> {
    const record = executorsRecord(processes);
    table.apply(record);
    await this.append(record, durable);
  }

  private async append(record: LedgerRecord, durable: boolean): Promise<void> {
    const { ledger } = this;
    if (ledger === undefined) throw new AtlasError('StateDirUnwritable', 'The ledger is not open.');
    await ledger.append(record, { durable });
    if (ledger.size > COMPACT_AT_BYTES && this.keeper !== undefined) await ledger.compact(this.keeper.table.records());
  }

  /** The executor begins attempts only after it has its settings, and by then the keeper is there. */
  private requireKeeper(): SessionKeeper {
    if (this.keeper === undefined) throw new AtlasError('ExecutorFailed', 'The supervisor is not ready for attempts.');
    return this.keeper;
  }

  // ---- Orders of operators ----

  /** New sessions are taken only once the fleet has said that they may, and as long as no order forbids it. */
  private keepGate(): void {
    this.gate?.setCordoned(!this.fleetHasSpoken || this.desired?.scheduling() !== 'open');
  }

  /** No session begins that asks for one of these capabilities; those that are held go on. */
  setWithdrawn(withdrawn: readonly WithdrawnCapability[]): void {
    this.withdrawn = withdrawn;
    this.keepWithdrawn();
    this.presence?.changed();
  }

  private keepWithdrawn(): void {
    this.gate?.setWithdrawn(this.withdrawn.map(({ capability }) => capability));
  }

  /** From the answer on no session begins that the desired state forbids. */
  private async applyDesired(
    desired: DesiredKeeper,
    keeper: SessionKeeper,
    { desired: wanted }: ApplyRequest,
  ): Promise<ApplyAnswer> {
    await desired.fromFleet(wanted);
    await keeper.acquisitionsSettled();
    const owners = keeper.table.sessions().map(({ workflowId, runId }) => ({ workflowId, runId }));
    return { revision: desired.ofFleet().revision, owners };
  }

  private async order(desired: DesiredKeeper, order: LocalOrder): Promise<LocalOrderAnswer> {
    return { desired: await desired.order(order), told: desired.untold() === undefined };
  }

  // ---- Executor ----

  private executorWaiters: (() => void)[] = [];

  private sessionSide(desired: DesiredKeeper, table: SessionTable): SessionSide {
    return {
      beginAttempt: (attempt) => this.requireKeeper().beginAttempt(attempt),
      endAttempt: (id, result) => this.requireKeeper().endAttempt(id, result),
      status: () => ({
        identity: this.identity,
        snapshot: this.snapshotWithoutDisk(),
        desired: desired.effective(),
        told: desired.untold() === undefined,
      }),
      order: (order) => this.order(desired, order),
      executorStarted: (process) => this.recordExecutors(table, [...table.executors(), process], true),
      executorReady: () => {
        this.executorReady();
      },
      executorEnded: (incarnation, process) => this.executorEnded(table, incarnation, process),
      memorySessions: (incarnation) => table.sessions().filter((entry) => entry.incarnation === incarnation).length,
      attempts: (incarnation) => table.attempts().filter((attempt) => attempt.incarnation === incarnation).length,
      loseMemory: (incarnation, reason) => this.requireKeeper().loseMemory(incarnation, reason),
      executorDegraded: () => {
        this.executorDegraded();
      },
    };
  }

  private executorReady(): void {
    for (const wake of this.executorWaiters.splice(0)) wake();
    if (this.options.executor.state() !== 'ready') return;
    if (!this.stopping) this.gate?.setClosed(false);
    this.presence?.changed();
  }

  private executorDegraded(): void {
    if (this.stopping) return;
    this.gate?.setClosed(true);
    this.options.log.error(
      { event: 'degraded' },
      'The executor ends again and again; no session is taken and those held are handed back',
    );
    void this.keeper?.giveUpAll('The executor of the worker ends again and again.');
    this.presence?.changed();
  }

  private async executorEnded(
    table: SessionTable,
    incarnation: string,
    process: ProcessIdentity | undefined,
  ): Promise<void> {
    if (this.options.executor.state() !== 'ready') this.gate?.setClosed(true);
    const left = table
      .executors()
      .filter(({ pid, startedAt }) => pid !== process?.pid || startedAt !== process.startedAt);
    // A full disk must not keep the attempts from being failed; a start finds the process group gone by itself.
    await this.recordExecutors(table, left, false).catch((error: unknown) => {
      this.options.log.error(
        { event: 'ledger-write-failed', reason: String(error) },
        'The ledger could not be written',
      );
    });
    await this.keeper?.failAttempts();
    this.presence?.changed();
    if (this.executorWaiters.length > 0 && !this.stopping) {
      // It never polled: the same modules would fail the same way.
      this.fail(new AtlasError('ExecutorFailed', `The executor ${incarnation} ended before it polled its queues.`));
    }
  }

  private untilExecutorReady(): Promise<void> {
    if (this.options.executor.state() === 'ready') return Promise.resolve();
    return new Promise((resolve) => this.executorWaiters.push(resolve));
  }

  // ---- What others see ----

  private async snapshot(): Promise<PresenceSnapshot> {
    const disk = await statfs(this.options.directory.path).then(
      (stats) => ({ freeBytes: stats.bavail * stats.bsize, totalBytes: stats.blocks * stats.bsize }),
      () => null,
    );
    return { ...this.snapshotWithoutDisk(), disk };
  }

  private snapshotWithoutDisk(): PresenceSnapshot {
    const sessions = (this.keeper?.snapshot() ?? []).map((session) => ({
      ...session,
      scratchBytes: session.key === undefined ? null : (this.scratchSizes?.of(session.key) ?? null),
    }));
    const desired = this.desired?.effective();
    const { executor } = this.options;
    return {
      v: 1,
      sentAtMs: Date.now(),
      stopping: this.stopping,
      sessions,
      slots: {
        used: sessions.length,
        cap: this.options.config.maxSessions,
        reserve: this.options.config.reserve,
      },
      executor: {
        state: executor.state(),
        pid: executor.pid(),
        incarnation: executor.incarnation(),
        restarts: executor.restarts(),
      },
      disk: null,
      load1: loadavg()[0] ?? 0,
      ...(desired === undefined
        ? {}
        : { scheduling: desired.scheduling, desiredRevision: this.desired?.ofFleet().revision ?? 0 }),
      ...(this.withdrawn.length === 0 ? {} : { withdrawn: this.withdrawn }),
    };
  }

  private async sweep(scratch: Scratch, table: SessionTable): Promise<void> {
    const { config, directory, log } = this.options;
    try {
      const orphans = await scratch.sweep({ has: (key) => table.session(key) !== undefined });
      if (orphans.length > 0)
        log.info({ event: 'sweep', orphans }, 'Scratch directories without a session were deleted');
      const old = await sweepByAge(directory.keptRoot, config.keepMs, Date.now());
      if (old.length > 0) log.info({ event: 'sweep-kept', deleted: old }, 'Kept artifacts over their age were deleted');
      const unused = await sweepByAge(directory.cacheRoot, config.keepMs, Date.now());
      if (unused.length > 0)
        log.info({ event: 'sweep-cache', deleted: unused }, 'What was not used for long was deleted from the cache');
    } catch (error) {
      log.error(
        { event: 'sweep-failed', reason: error instanceof Error ? error.message : String(error) },
        'The sweep failed; it is tried again',
      );
    }
  }

  // ---- Stop ----

  /**
   * Takes no new session, waits for those that are held, and ends everything. What remains after the grace stays on disk
   * and is resumed by the next start, or is given up with `--ephemeral`. Bounded: after the grace and
   * {@link STOP_EXTRA_MS} `onStopStuck` is called.
   */
  async stop(graceMs = this.options.config.graceMs): Promise<void> {
    const { config, executor, log, onStopStuck } = this.options;
    const deadlineMs = performance.now() + graceMs;
    this.stopping = true;
    const watchdog = setTimeout(() => {
      log.error({ event: 'stop-stuck' }, 'The stop took too long; the process ends itself');
      onStopStuck();
    }, graceMs + STOP_EXTRA_MS);

    this.gate?.setClosed(true);
    this.presence?.changed();
    const held = this.keeper?.table.sessionCount ?? 0;
    // A start that failed has its own word, which must not drown in what follows from it.
    const say: EventLog['info'] = (fields, message) => {
      if (this.started) log.info(fields, message);
      else log.debug(fields, message);
    };
    say({ event: 'stop', sessions: held, graceMs }, held === 0 ? 'Stopping' : 'Stopping when the sessions have ended');
    await this.untilNoSessions(deadlineMs);
    const remaining = this.keeper?.table.sessions() ?? [];
    if (remaining.length > 0 && config.ephemeral)
      await this.keeper?.giveUpAll('The worker stops for good (--ephemeral).');
    else if (remaining.length > 0)
      log.warn(
        {
          event: 'sessions-remain',
          sessions: remaining.map((entry) => entry.session),
          inMemory: remaining.filter(({ incarnation }) => incarnation !== undefined).length,
        },
        'Sessions remain; the next start resumes those whose state is on disk',
      );

    const left = remaining.length > 0 ? 0 : Math.max(0, deadlineMs - performance.now());
    await executor.stop(left + EXECUTOR_STOP_EXTRA_MS);
    // Sessions in its memory have ended with the executor, and their owners need not wait for a silence to know.
    await this.keeper?.endsTold();
    this.ownerCheck?.stop();
    await this.presence?.stop(
      (this.keeper?.table.sessions() ?? []).map(({ workflowId, runId }) => ({ workflowId, runId })),
    );
    for (const timer of this.timers) clearInterval(timer);
    await this.workers?.stop();
    await executor.close();
    await this.connections?.close();
    await this.ledger?.close();
    clearTimeout(watchdog);
    say({ event: 'stopped' }, 'Stopped');
  }

  private async untilNoSessions(deadlineMs: number): Promise<void> {
    while ((this.keeper?.table.sessionCount ?? 0) > 0 && performance.now() < deadlineMs) {
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  }
}

/** Loading these takes most of a start, so that the executor is started first. */
async function loadTemporal() {
  const [presence, workers, port] = await Promise.all([
    import('./presence.js'),
    import('./workers.js'),
    import('./temporal-port.js'),
  ]);
  return { ...presence, ...workers, ...port };
}
