/**
 * A fleet in the process of a test: workers that hold sessions and run their activities without a daemon, and that are
 * lost, drained and restarted on demand.
 *
 * Owns Temporal's Workers and what is left to clean up. Core takes one activity Worker per queue in a process, so those of
 * the queues that a real fleet shares choose among the test's workers; each of these has its two own queues.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WorkflowNotFoundError } from '@temporalio/client';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import { formatDurationMs } from '../contract/duration.js';
import { AtlasError } from '../contract/errors.js';
import { PRESENCE_TTL_MS } from '../contract/fleet.js';
import {
  acquireQueue,
  acquireQueueOf,
  capabilityLabel,
  capabilitySet,
  capabilitySubsets,
  checkName,
  controlQueueOf,
  pooledQueue,
} from '../contract/names.js';
import {
  CONFIRM_ACTIVITY,
  type ConfirmRequest,
  LEASE_ACTIVITY,
  SUSPECTED_SIGNAL,
  type Suspicion,
} from '../contract/session.js';
import type { TemporalPort } from '../daemon/ports.js';
import type { LeaseTask } from '../daemon/session-keeper.js';
import type { SessionEntry } from '../daemon/session-table.js';
import { temporalPort } from '../daemon/temporal-port.js';
import { acquireActivities, askedOfPreferred, ownerActivities } from '../daemon/workers.js';
import { failure } from '../temporal/failures.js';
import { PollGate, type SlotUsage } from '../temporal/poll-gate.js';
import { CallLog, type TestCall } from './calls.js';
import { emptiest, freeSlots, serves } from './placement.js';
import type {
  SessionQuery,
  TestFleetOptions,
  TestSession,
  TestWorker,
  TestWorkerOptions,
  WaitOptions,
} from './types.js';
import { waitMs } from './wait.js';
import { activityMap, TestWorkerHost } from './worker.js';

/** How often renewals and expiries are looked at; the shortest lease TTL is a second. */
const TICK_MS = 200;
/** How often a session is asked for whose workflow may have ended without a release. */
const OWNER_CHECK_MS = 1_000;
/** A session that was polled for waits so long for a slot that was just taken. */
const SLOT_WAIT_MS = 2_000;
/** Core waits so long for a Worker to stop. What runs is let go before, so this only bounds the unforeseen. */
const FORCE_STOP_AFTER = '5s';
/** What activities report is seen at once, as on a real worker. */
const PROGRESS_INTERVAL = '1s';
const MAX_ACTIVITIES = 100;
/** The default of `--max-sessions`. */
const DEFAULT_MAX_SESSIONS = 4;

/**
 * Workers in the process of a test, which hold the sessions of your workflows without a daemon: the workflows run
 * unchanged, and the test decides when a worker is lost.
 *
 * There is no state directory, no ledger, no executor process and no presence: `atlas workers ls` shows nothing of it.
 */
export class TestFleet implements AsyncDisposable {
  private readonly gate = new PollGate();
  private readonly log = new CallLog();
  private readonly hosts: readonly TestWorkerHost[];
  private readonly port: TemporalPort;
  private readonly usage: SlotUsage = { given: 0, taken: 0 };
  private readonly runs: Promise<void>[] = [];
  /** By grant: who waits until an owner has asked whether its session lives. */
  private readonly asked = new Map<string, () => void>();
  private readonly closing = new AbortController();
  private workers: readonly Worker[] = [];
  private timer: NodeJS.Timeout | undefined;
  private ownerCheck: Promise<void> | undefined;
  private nextOwnerCheckMs = 0;
  private closed: Promise<void> | undefined;

  /**
   * Starts a fleet. Its workflows run on {@link TestFleet.taskQueue}.
   *
   * @throws {@link AtlasError} `ConfigInvalid`, `NameInvalid` or `TooManyCapabilities` for options that can not be.
   */
  static async create(options: TestFleetOptions): Promise<TestFleet> {
    const fleet = checkName('fleet', options.fleet ?? `test${randomBytes(5).toString('hex')}`);
    checkWorkers(options.workers);
    const activities = options.workers.map((worker) =>
      activityMap(worker.name, worker.activities ?? options.activities),
    );
    const directory = await mkdtemp(join(tmpdir(), 'atlas-test-fleet-'));
    const created = new TestFleet(fleet, options, directory, activities);
    try {
      await created.start();
    } catch (error) {
      await created.close();
      throw error;
    }
    return created;
  }

  private constructor(
    readonly fleet: string,
    private readonly options: TestFleetOptions,
    private readonly directory: string,
    activities: readonly ReturnType<typeof activityMap>[],
  ) {
    this.port = temporalPort(options.client);
    this.hosts = options.workers.map(({ name, capabilities = [], maxSessions = DEFAULT_MAX_SESSIONS }, index) => {
      const own = join(directory, name);
      mkdirSync(own);
      return new TestWorkerHost({
        fleet,
        name,
        capabilities: capabilitySet(capabilities),
        maxSessions,
        activities: activities[index]!,
        directory: own,
        presenceTtlMs: PRESENCE_TTL_MS,
        temporal: this.port,
        calls: this.log,
        onChange: () => {
          this.gate.changed();
        },
      });
    });
  }

  /** Where to start workflows. */
  get taskQueue(): string {
    return this.fleet;
  }

  /** What ran where, in the order in which it began: pinned calls, and pooled ones and those to one worker. */
  get calls(): readonly TestCall[] {
    return this.log.all();
  }

  /** @throws {@link AtlasError} `NotFound` for a name that is not in the fleet. */
  worker(name: string): TestWorker {
    const host = this.hosts.find((each) => each.name === name);
    if (host === undefined) {
      throw new AtlasError('NotFound', `The test fleet ${this.fleet} has no worker ${JSON.stringify(name)}.`, {
        next: `Its workers are ${this.hosts.map((each) => each.name).join(', ')}.`,
      });
    }
    return this.workerOf(host);
  }

  /**
   * Resolves when a session of the workflow is granted; at once where it holds one.
   *
   * @throws {@link AtlasError} `WaitTimeout` that says what the workflow and the workers do instead, `NotFound` when the
   * workflow ends without a session.
   */
  async session(query: SessionQuery): Promise<TestSession> {
    const { workflowId, id } = query;
    const find = (): TestSession | undefined => {
      for (const host of this.hosts) {
        const entry = host
          .sessions()
          .reverse()
          .find(
            (each) => each.workflowId === workflowId && each.state === 'held' && (id ?? each.session) === each.session,
          );
        if (entry !== undefined) return this.sessionOf(host, entry);
      }
      return undefined;
    };
    const isClosed = async (): Promise<boolean> => {
      const description = await this.describe(workflowId);
      return description !== undefined && description.status.name !== 'RUNNING' && find() === undefined;
    };
    const outcome = await this.wait(() => find() !== undefined, query, isClosed);
    const session = find();
    if (session !== undefined) return session;
    if (outcome === 'given-up') {
      throw new AtlasError('NotFound', `The workflow ${workflowId} has ended and holds no session.`, {
        next: 'Ask for the session before the workflow can end, for example while an activity waits for the test.',
      });
    }
    throw new AtlasError(
      'WaitTimeout',
      `The workflow ${workflowId} was not granted a session within ${formatDurationMs(waitMs(query))}: ${await this.whyNot(workflowId)}`,
      { next: 'Correct what the message names, or give more time with `timeout`.' },
    );
  }

  /**
   * Stops everything at once: what runs is heard of no more, and its signals abort. Temporary directories are deleted.
   * Workflows that still run are left as they are.
   */
  close(): Promise<void> {
    this.closed ??= this.closeNow();
    return this.closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // ---- Start and end ----

  private async start(): Promise<void> {
    const sets = new Map<string, string[]>();
    for (const host of this.hosts)
      for (const subset of capabilitySubsets(host.capabilities)) sets.set(capabilityLabel(subset), subset);
    sets.set(capabilityLabel([]), []);
    const created: Promise<Worker>[] = [];
    for (const set of sets.values()) created.push(this.createAcquireWorker(set), this.createPooledWorker(set));
    for (const host of this.hosts)
      created.push(this.createPinnedWorker(host), this.createControlWorker(host), this.createPreferWorker(host));
    const settled = await Promise.allSettled(created);
    this.workers = settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    for (const worker of this.workers) this.runs.push(worker.run());
    // Who waits for what can not come any more is told by `wait`.
    for (const run of this.runs) run.catch((error: unknown) => this.closing.abort(error));
    const failed = settled.find((each) => each.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    this.timer = setInterval(() => {
      for (const host of this.hosts) host.tick();
      this.checkOwners();
    }, TICK_MS).unref();
  }

  private async closeNow(): Promise<void> {
    clearInterval(this.timer);
    this.closing.abort(new AtlasError('Interrupted', `The test fleet ${this.fleet} was closed.`));
    await Promise.all(this.hosts.map((host) => host.close()));
    for (const worker of this.workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    const ends = await Promise.allSettled(this.runs);
    await this.ownerCheck;
    await rm(this.directory, { recursive: true, force: true, maxRetries: 3 });
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  private common(what: string) {
    const { client, connection, dataConverter } = this.options;
    return {
      connection,
      namespace: client.options.namespace,
      identity: `${what}@${this.fleet} test ${process.pid}`,
      shutdownGraceTime: 0,
      shutdownForceTime: FORCE_STOP_AFTER,
      ...(dataConverter === undefined ? {} : { dataConverter }),
    } as const satisfies Partial<WorkerOptions>;
  }

  private tuner(mayPoll: (usage: SlotUsage) => boolean, usage?: SlotUsage): NonNullable<WorkerOptions['tuner']> {
    return {
      activityTaskSlotSupplier: this.gate.supplier(mayPoll, usage),
      workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: MAX_ACTIVITIES },
      localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: MAX_ACTIVITIES },
      nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
    };
  }

  private createAcquireWorker(set: readonly string[]): Promise<Worker> {
    return Worker.create({
      ...this.common('fleet'),
      taskQueue: acquireQueue(this.fleet, set),
      activities: acquireActivities(
        () => set,
        (task) => this.acquire(task),
      ),
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
      tuner: this.tuner(({ taken }) => freeSlots(this.hosts, set) > taken, this.usage),
    });
  }

  /** For sessions that prefer this worker. */
  private createPreferWorker(host: TestWorkerHost): Promise<Worker> {
    const usage: SlotUsage = { given: 0, taken: 0 };
    return Worker.create({
      ...this.common(host.name),
      taskQueue: acquireQueueOf(this.fleet, host.name),
      activities: acquireActivities(
        (given) => askedOfPreferred(host.name, host.capabilities, given),
        (task) => this.acquire(task, [host]),
      ),
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
      tuner: this.tuner(({ taken }) => freeSlots([host], []) > taken, usage),
    });
  }

  /** Of the empty set also the workflows, as in a real fleet. */
  private createPooledWorker(set: readonly string[]): Promise<Worker> {
    const { workflowsPath, workflowBundle, workflowWorker } = this.options;
    const workflows =
      workflowBundle !== undefined ? { workflowBundle } : workflowsPath !== undefined ? { workflowsPath } : undefined;
    return Worker.create({
      ...(set.length === 0 && workflows !== undefined ? { ...workflowWorker, ...workflows } : {}),
      ...this.common('fleet'),
      taskQueue: pooledQueue(this.fleet, set),
      activities: { default: (...args: unknown[]) => this.runPooled(set, args) },
      tuner: this.tuner(({ given }) => given < MAX_ACTIVITIES && this.poolOf(set).length > 0),
    });
  }

  private createPinnedWorker(host: TestWorkerHost): Promise<Worker> {
    return Worker.create({
      ...this.common(host.name),
      taskQueue: host.queue,
      activities: { default: (...args: unknown[]) => host.runPinned(args) },
      maxHeartbeatThrottleInterval: PROGRESS_INTERVAL,
      defaultHeartbeatThrottleInterval: PROGRESS_INTERVAL,
      tuner: this.tuner(({ given }) => given < MAX_ACTIVITIES && !host.lost),
    });
  }

  private createControlWorker(host: TestWorkerHost): Promise<Worker> {
    const forOwners = ownerActivities(() => host.keeper);
    return Worker.create({
      ...this.common(host.name),
      taskQueue: controlQueueOf(host.queue),
      // Also while the worker is lost: then it holds nothing, and says so without the wait for a dead one's silence.
      activities: {
        ...forOwners,
        [CONFIRM_ACTIVITY]: (request: ConfirmRequest): Promise<void> =>
          forOwners[CONFIRM_ACTIVITY](request).finally(() => this.asked.get(request.grantId)?.()),
      },
      maxConcurrentActivityTaskExecutions: MAX_ACTIVITIES,
    });
  }

  // ---- Sessions and activities ----

  private async acquire(task: LeaseTask, hosts: readonly TestWorkerHost[] = this.hosts): Promise<void> {
    const asked = task.request.capabilities;
    const timeout = AbortSignal.any([
      this.closing.signal,
      AbortSignal.timeout(Math.ceil(Math.min(SLOT_WAIT_MS, task.request.leaseTtlMs / 2))),
    ]);
    let granted: Promise<void> | undefined;
    const take = (): boolean => {
      const host = this.hosts.find((each) => each.holds(task)) ?? emptiest(hosts, asked);
      if (granted === undefined && host !== undefined) granted = host.acquire(task);
      return granted !== undefined;
    };
    try {
      await this.gate.until(take, timeout);
    } catch {
      throw new AtlasError('NoFreeSlot', `No worker of the test fleet ${this.fleet} has a free slot.`);
    }
    await granted;
  }

  private poolOf(set: readonly string[]): TestWorkerHost[] {
    return this.hosts.filter((host) => !host.lost && serves(host, set));
  }

  /** On the worker on which the least runs, as each polls as much as it has room for. */
  private async runPooled(set: readonly string[], args: unknown[]): Promise<unknown> {
    const [host] = this.poolOf(set).sort((a, b) => this.log.runningOn(a.name) - this.log.runningOn(b.name));
    // Its poll was out when the last one was lost.
    if (host === undefined) throw failure('ExecutorDied', 'All workers of the test fleet that could run it are lost.');
    return await host.runPooled(args);
  }

  /** Workflows may end without a release, as when they are terminated. */
  private checkOwners(): void {
    if (this.ownerCheck !== undefined || performance.now() < this.nextOwnerCheckMs) return;
    this.nextOwnerCheckMs = performance.now() + OWNER_CHECK_MS;
    const checks = this.hosts.flatMap((host) =>
      host
        .sessions()
        .filter(({ state }) => state === 'held')
        .map(async (entry) => {
          if ((await this.port.describeOwner(entry)) !== 'running') await host.keeper.ownersClosed([entry.runId]);
        }),
    );
    // A call that fails is made again in a second.
    this.ownerCheck = Promise.allSettled(checks).then(() => {
      this.ownerCheck = undefined;
    });
  }

  // ---- What a test does ----

  private workerOf(host: TestWorkerHost): TestWorker {
    const lose = async (): Promise<void> => {
      if (host.lost) return;
      await Promise.all(host.lose().map((entry) => this.tellOfLoss(host, entry)));
    };
    const sessions = (): TestSession[] => host.sessions().map((entry) => this.sessionOf(host, entry));
    const cordon = async (): Promise<void> => {
      host.setCordoned(true);
      await host.keeper.acquisitionsSettled();
    };
    return {
      name: host.name,
      capabilities: host.capabilities,
      queue: host.queue,
      get state() {
        return host.lost ? 'lost' : host.cordoned ? 'cordoned' : 'open';
      },
      get sessions() {
        return sessions();
      },
      lose,
      restart: async () => {
        await lose();
        host.comeBack();
      },
      restartExecutor: async () => {
        await host.restartExecutor();
      },
      cordon,
      drain: async (options = {}) => {
        await cordon();
        if ((await this.wait(() => host.sessions().length === 0, options)) === 'holds') return;
        throw new AtlasError(
          'WaitTimeout',
          `The worker ${host.name} was not drained within ${formatDurationMs(waitMs(options))}: it holds ${host
            .sessions()
            .map(({ session, workflowId }) => `${session} of ${workflowId}`)
            .join(', ')}.`,
          { next: 'Let these workflows end while the drain waits, or release their sessions.' },
        );
      },
      uncordon: async () => {
        host.setCordoned(false);
      },
    };
  }

  /** As the fleet tells the owners of a worker whose presence is missed; resolves when this one has asked, or is over. */
  private async tellOfLoss(host: TestWorkerHost, entry: SessionEntry): Promise<void> {
    const { workflowId, runId, grantId, leaseToken, state } = entry;
    const reason = `The worker ${host.name} was lost.`;
    if (state !== 'held') {
      // Its owner does not know of it yet, or not any more: only the lease is left.
      await this.port.failLease(leaseToken, 'SessionLost', reason);
      return;
    }
    let hasAsked = false;
    this.asked.set(grantId, () => {
      hasAsked = true;
      this.gate.changed();
    });
    try {
      const handle = this.options.client.workflow.getHandle(workflowId, runId);
      await handle.signal<[Suspicion]>(SUSPECTED_SIGNAL, { worker: host.name, queue: host.queue });
      const isClosed = async (): Promise<boolean> => (await this.port.describeOwner(entry)) !== 'running';
      if ((await this.wait(() => hasAsked, {}, isClosed)) === 'timed-out') {
        throw new AtlasError(
          'WaitTimeout',
          `The workflow ${workflowId} was told that ${host.name} is lost, but has not asked for its session within ${formatDurationMs(waitMs({}))}.`,
          { next: 'See that a Worker runs its workflow tasks.' },
        );
      }
      // It has given the session up; a lease that is left open would only end at its TTL.
      await this.port.failLease(leaseToken, 'SessionLost', reason);
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
    } finally {
      this.asked.delete(grantId);
    }
  }

  private sessionOf(host: TestWorkerHost, entry: SessionEntry): TestSession {
    const isHeld = (): boolean =>
      host.sessions().some(({ grantId, state }) => grantId === entry.grantId && state === 'held');
    const checkHeld = (): void => {
      if (isHeld()) return;
      throw new AtlasError(
        'NotFound',
        `The session ${entry.session} of ${entry.workflowId} is not held by ${host.name} any more.`,
        { next: 'Ask for the present one with `fleet.session({ workflowId })`.' },
      );
    };
    return {
      id: entry.session,
      workflowId: entry.workflowId,
      runId: entry.runId,
      worker: host.name,
      capabilities: entry.capabilities,
      scratchDirectory: host.scratchDirectoryOf(entry),
      get held() {
        return isHeld();
      },
      expire: async () => {
        checkHeld();
        await host.keeper.expire(entry.key, 'It reached its maximum duration.');
      },
      release: async ({ failOwner = false, why = null } = {}) => {
        checkHeld();
        await host.keeper.forceRelease({ keys: [entry.key], who: 'The test', why, failOwner });
      },
    };
  }

  /** Waits in real time, until the fleet is closed at the latest; then it throws why. */
  private async wait(
    holds: () => boolean,
    options: WaitOptions,
    isGivenUp: () => Promise<boolean> = () => Promise.resolve(false),
  ): Promise<'holds' | 'timed-out' | 'given-up'> {
    const deadlineMs = performance.now() + waitMs(options);
    for (;;) {
      this.closing.signal.throwIfAborted();
      const leftMs = deadlineMs - performance.now();
      const pause = AbortSignal.timeout(Math.ceil(Math.max(0, Math.min(leftMs, OWNER_CHECK_MS))));
      try {
        await this.gate.until(holds, AbortSignal.any([this.closing.signal, pause]));
        return 'holds';
      } catch {
        if (this.closing.signal.aborted) continue;
      }
      if (await isGivenUp()) return 'given-up';
      if (leftMs <= OWNER_CHECK_MS) return 'timed-out';
    }
  }

  /** Undefined for a workflow that is not started yet. */
  private async describe(workflowId: string) {
    try {
      return await this.options.client.workflow.getHandle(workflowId).describe();
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return undefined;
      throw error;
    }
  }

  private async whyNot(workflowId: string): Promise<string> {
    const description = await this.describe(workflowId);
    if (description === undefined) return 'no workflow of this id has been started.';
    const asks = description.raw.pendingActivities?.some(({ activityType }) => activityType?.name === LEASE_ACTIVITY);
    if (asks !== true) return `it runs on the task queue ${description.taskQueue}, and has not asked for a session.`;
    const workers = this.hosts.map((host) => {
      const label = host.capabilities.length === 0 ? '' : ` (${capabilityLabel(host.capabilities)})`;
      return `${host.name}${label} ${this.workerOf(host).state} with ${host.sessions().length} of ${host.maxSessions} sessions`;
    });
    return `it asks for one, and the workers are ${workers.join(', ')}.`;
  }
}

function checkWorkers(workers: readonly TestWorkerOptions[]): void {
  const invalid = (message: string): AtlasError =>
    new AtlasError('ConfigInvalid', message, { next: 'Correct the `workers` given to TestFleet.create.' });
  if (workers.length === 0) throw invalid('A test fleet needs at least one worker.');
  const names = new Set<string>();
  for (const { name, maxSessions = DEFAULT_MAX_SESSIONS } of workers) {
    checkName('worker', name);
    if (names.has(name)) throw invalid(`Two workers of the test fleet have the name ${JSON.stringify(name)}.`);
    names.add(name);
    if (!Number.isInteger(maxSessions) || maxSessions < 1) {
      throw invalid(
        `The worker ${JSON.stringify(name)} of the test fleet has maxSessions ${maxSessions}, but it must be a whole number from 1.`,
      );
    }
  }
}
