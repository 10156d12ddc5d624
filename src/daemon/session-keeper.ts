/**
 * The sessions of this worker: grants them, renews their leases, answers for their attempts, releases them, and takes
 * them up again after a restart. This is the daemon's side of the session protocol; the owner's side is
 * `workflow/session.ts`.
 *
 * Every change is a record that is applied to the table and appended to the ledger. A slot counts as taken from before
 * the grant until the last activity of the session has really ended.
 */
import { sessionKey } from '../contract/names.js';
import { RELEASE_KILL_AFTER_MS, type Grant, type LeaseRequest } from '../contract/session.js';
import { AtlasError } from '../contract/errors.js';
import type { SessionSnapshot } from '../contract/fleet.js';
import type { AttemptFacts, BeginAttempt } from '../contract/local.js';
import type { Clock, EventLog, ExecutorPort, LedgerPort, ScratchPort, TemporalPort } from './ports.js';
import type { SessionTable } from './session-table.js';
import { type AttemptEntry, type LedgerRecord, type SessionEntry } from './session-table.js';
import type { SlotGate } from './slots.js';

/** A lease is renewed three times within its TTL, so that two calls may fail before the owner notices. */
const RENEWALS_PER_TTL = 3;
/** How long a task that was polled before a gate closed waits for a slot before it goes back to the server. */
const LOCAL_SLOT_WAIT_MS = 2_000;
/** After a call without an answer; short, because the lease may be near its end. */
const RETRY_AFTER_MS = 1_000;
const RENEWALS_AT_ONCE = 16;

export interface KeeperIdentity {
  readonly worker: string;
  readonly queue: string;
  readonly controlQueue: string;
}

export interface KeeperPorts {
  readonly temporal: TemporalPort;
  readonly ledger: LedgerPort;
  readonly scratch: ScratchPort;
  readonly executor: ExecutorPort;
  readonly clock: Clock;
  readonly log: EventLog;
  readonly newGrantId: () => string;
}

/** A lease task as it was polled. */
export interface LeaseTask {
  readonly request: LeaseRequest;
  readonly workflowId: string;
  readonly runId: string;
  readonly workflowType: string;
  /** Base64. */
  readonly leaseToken: string;
}

/** What becomes of the lease of a session that ended. */
type LeaseFate = 'complete' | 'cancelled' | 'fail' | 'none';

interface Renewal {
  dueAtMs: number;
  inFlight: boolean;
}

export class SessionKeeper {
  private readonly renewals = new Map<string, Renewal>();
  private readonly acquiring = new Map<string, Promise<void>>();
  private readonly endings = new Map<string, Promise<void>>();
  /** Leases of released sessions, to be completed when their next renewal would have been due. */
  private readonly finishing = new Map<string, { fate: Exclude<LeaseFate, 'none'>; dueAtMs: number; reason: string }>();
  private readonly attemptWaiters = new Set<() => void>();
  /** Scratch directories that are being made: an end waits for them, since one made after it would be left for ever. */
  private readonly preparing = new Map<string, Promise<unknown>>();

  constructor(
    private readonly identity: KeeperIdentity,
    private readonly ports: KeeperPorts,
    private readonly gate: SlotGate,
    readonly table: SessionTable,
    /** Called whenever the set of sessions has changed. */
    private readonly onChange: () => void,
  ) {}

  // ---- Grant ----

  /**
   * Takes a slot for the owner and tells it so. Resolves when the session is granted, after which the lease activity
   * stays open; throws `NoFreeSlot` (retryable) when there is no room.
   */
  async acquire(task: LeaseTask): Promise<void> {
    const key = sessionKey(task.request.session, task.runId);
    // One at a time per session: a poll answer that was lost on the way may come together with its successor.
    const before = this.acquiring.get(key);
    const mine = (before ?? Promise.resolve()).then(
      () => this.acquireNow(key, task),
      () => this.acquireNow(key, task),
    );
    this.acquiring.set(key, mine);
    try {
      await mine;
    } finally {
      if (this.acquiring.get(key) === mine) this.acquiring.delete(key);
    }
  }

  private async acquireNow(key: string, task: LeaseTask): Promise<void> {
    const { ports } = this;
    await this.makeWayForEpoch(key, task);
    const known = this.table.session(key);
    if (known !== undefined) {
      await this.takeOverLease(known, task);
      return;
    }
    const nowMs = ports.clock.now();
    const entry: SessionEntry = {
      key,
      session: task.request.session,
      workflowId: task.workflowId,
      runId: task.runId,
      workflowType: task.workflowType,
      epoch: task.request.epoch,
      grantId: ports.newGrantId(),
      capabilities: task.request.capabilities,
      leaseToken: task.leaseToken,
      leaseTtlMs: task.request.leaseTtlMs,
      grantedAtMs: nowMs,
      expiresAtMs: nowMs + task.request.maxDurationMs,
      state: 'granting',
    };
    await this.takeSlot(entry);
    try {
      await ports.ledger.append({ type: 'session', entry }, { durable: true });
      // Tells a wanted attempt from an abandoned one, whose poll answer was lost and whose lease has moved on.
      const answer = await ports.temporal.heartbeat(entry.leaseToken);
      if (!this.holdsLease(entry)) return;
      if (answer !== 'renewed') {
        await this.end(
          key,
          'the owner no longer wants the lease',
          answer === 'cancel-requested' ? 'cancelled' : 'none',
        );
        return;
      }
      await this.prepare(entry);
    } catch (error) {
      throw await this.failedGrant(entry, error);
    }
    await this.announce(key);
  }

  /** What an acquisition that failed ends with, once nothing of it is left. */
  private async failedGrant(entry: SessionEntry, error: unknown): Promise<AtlasError> {
    this.ports.log.warn(
      { event: 'grant-failed', ...named(entry), reason: messageOf(error) },
      'A session could not be granted',
    );
    if (this.holdsLease(entry)) await this.end(entry.key, 'it could not be granted', 'none');
    return new AtlasError(
      'NoFreeSlot',
      `The worker ${this.identity.worker} could not grant a session: ${messageOf(error)}`,
      { cause: error },
    );
  }

  /** A session is acquired again with a higher epoch after it was lost; what is left of the older one ends first. */
  private async makeWayForEpoch(key: string, task: LeaseTask): Promise<void> {
    for (let older = this.table.session(key); older !== undefined; older = this.table.session(key)) {
      if (older.epoch > task.request.epoch) {
        throw new AtlasError(
          'SessionLost',
          `The lease ${task.request.epoch} of session ${key} is older than the one held (${older.epoch}).`,
        );
      }
      if (older.epoch === task.request.epoch && older.state !== 'releasing') return;
      await this.end(key, 'its owner acquires it again', 'complete');
    }
  }

  /** The server handed a lease out again that is held; the grant stands, under the new task token. */
  private async takeOverLease(known: SessionEntry, task: LeaseTask): Promise<void> {
    const entry: SessionEntry = { ...known, leaseToken: task.leaseToken, state: 'granting' };
    // Not durable: a full disk must not end a session that is held, and an older token is found out at its renewal.
    await this.record({ type: 'session', entry }, 'buffered');
    await this.announce(entry.key);
  }

  /** Scratch space and renewal of a session, unless it has ended or its lease has moved on meanwhile. */
  private async prepare(entry: SessionEntry): Promise<void> {
    const { key, epoch, grantedAtMs } = entry;
    const making = this.ports.scratch.create(key, { key, epoch, grantedAtMs });
    this.preparing.set(key, making);
    try {
      await making;
    } finally {
      this.preparing.delete(key);
    }
    if (this.holdsLease(entry)) this.scheduleRenewal(entry);
  }

  /** Whether the session is still held under this lease: it may have ended, or moved on, while an answer was awaited. */
  private holdsLease(entry: SessionEntry): boolean {
    const current = this.table.session(entry.key);
    return current?.leaseToken === entry.leaseToken && current.state !== 'releasing';
  }

  /** Waits a little for a slot and takes it in memory, where it counts from then on. */
  private async takeSlot(entry: SessionEntry): Promise<void> {
    const abort = new AbortController();
    const cancelTimer = this.ports.clock.timer(LOCAL_SLOT_WAIT_MS, () => {
      abort.abort();
    });
    try {
      await this.gate.takeSlot(entry.capabilities, abort.signal, () => {
        this.table.apply({ type: 'session', entry });
      });
    } catch {
      throw new AtlasError('NoFreeSlot', `The worker ${this.identity.worker} has no free slot.`);
    } finally {
      cancelTimer();
    }
  }

  /**
   * Signals the grant to the owner. An unclear answer keeps the slot and is repeated with the renewals: failing the
   * attempt instead would have another worker grant the session too.
   */
  private async announce(key: string): Promise<void> {
    const entry = this.table.session(key);
    if (entry?.state !== 'granting') return;
    const { identity, ports } = this;
    const grant: Grant = {
      session: entry.session,
      epoch: entry.epoch,
      grantId: entry.grantId,
      worker: identity.worker,
      queue: identity.queue,
      controlQueue: identity.controlQueue,
      incarnation: ports.executor.incarnation(),
    };
    let answer: 'delivered' | 'gone';
    try {
      answer = await ports.temporal.signalGrant(entry, grant);
    } catch (error) {
      ports.log.warn(
        { event: 'grant-unclear', ...named(entry), reason: messageOf(error) },
        'The grant is repeated: it is not clear whether its owner got it',
      );
      return;
    }
    if (answer === 'gone') {
      await this.end(key, 'its owner has closed', 'none');
      return;
    }
    // The owner may have released it while the answer was on its way.
    const now = this.table.session(key);
    if (now?.grantId !== entry.grantId || now.state !== 'granting') return;
    await this.record({ type: 'session-state', key, state: 'held' }, 'buffered');
    ports.log.info({ event: 'grant', ...named(entry), capabilities: entry.capabilities }, 'Session granted');
    this.onChange();
  }

  // ---- Renewal ----

  /** Renews every lease that is due, and ends leases of released sessions. Called on a timer; never throws. */
  async tick(): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    const due = this.table.sessions().filter((entry) => {
      const renewal = this.renewals.get(entry.key);
      return entry.state !== 'releasing' && renewal !== undefined && !renewal.inFlight && renewal.dueAtMs <= nowMs;
    });
    const finished = [...this.finishing].filter(([, { dueAtMs }]) => dueAtMs <= nowMs);
    const jobs = [
      ...due.map((entry) => () => this.renew(entry)),
      ...finished.map(
        ([token, { fate, reason }]) =>
          () =>
            this.finishLease(token, fate, reason),
      ),
    ];
    await inParallel(jobs, RENEWALS_AT_ONCE);
  }

  private async renew(entry: SessionEntry): Promise<void> {
    const renewal = this.renewals.get(entry.key);
    if (renewal === undefined || renewal.inFlight) return;
    renewal.inFlight = true;
    const sentAtMs = this.ports.clock.monotonicMs();
    const intervalMs = entry.leaseTtlMs / RENEWALS_PER_TTL;
    try {
      // Before the signal of a grant that is unclear: that one may take longer than the TTL of the lease.
      const answer = await this.ports.temporal.heartbeat(entry.leaseToken);
      renewal.dueAtMs = sentAtMs + intervalMs;
      if (!this.holdsLease(entry)) return;
      if (answer === 'renewed') {
        await this.announce(entry.key);
        return;
      }
      const reason = answer === 'not-found' ? 'the server no longer knows its lease' : 'its owner cancelled the lease';
      await this.end(entry.key, reason, answer === 'not-found' ? 'none' : 'cancelled');
    } catch (error) {
      renewal.dueAtMs = sentAtMs + Math.min(RETRY_AFTER_MS, intervalMs);
      this.ports.log.warn(
        { event: 'renewal-unanswered', ...named(entry), reason: messageOf(error) },
        'A lease could not be renewed; it is tried again',
      );
    } finally {
      renewal.inFlight = false;
    }
  }

  private scheduleRenewal(entry: SessionEntry): void {
    const dueAtMs = this.ports.clock.monotonicMs() + entry.leaseTtlMs / RENEWALS_PER_TTL;
    this.renewals.set(entry.key, { dueAtMs, inFlight: false });
  }

  private async finishLease(token: string, fate: Exclude<LeaseFate, 'none'>, reason: string): Promise<void> {
    // Tried once: a lease that nobody renews ends by itself at its TTL.
    this.finishing.delete(token);
    try {
      if (fate === 'complete') await this.ports.temporal.completeLease(token);
      else if (fate === 'cancelled') await this.ports.temporal.cancelLease(token);
      else await this.ports.temporal.failLease(token, 'SessionLost', reason);
    } catch (error) {
      this.ports.log.debug(
        { event: 'lease-end-unanswered', reason: messageOf(error) },
        'The end of a lease was not answered; it ends at its TTL',
      );
    }
  }

  // ---- Release ----

  /** The owner gives the session back. Resolves to whether it was held here, once slot and scratch name are free. */
  async release(key: string, epoch: number): Promise<boolean> {
    const entry = this.table.session(key);
    // A release that was sent before a redo must not end the session that the redo acquired.
    if (entry === undefined || entry.epoch > epoch) return false;
    await this.end(key, 'its owner released it', 'complete');
    return true;
  }

  /** Gives every session up, for a stop that does not resume them. */
  async giveUpAll(reason: string): Promise<void> {
    await Promise.all(this.table.sessions().map((entry) => this.end(entry.key, reason, 'fail')));
    await inParallel(
      [...this.finishing].map(
        ([token, { fate, reason: why }]) =>
          () =>
            this.finishLease(token, fate, why),
      ),
      RENEWALS_AT_ONCE,
    );
  }

  private async end(key: string, reason: string, fate: LeaseFate): Promise<void> {
    const running = this.endings.get(key);
    if (running !== undefined) return running;
    const ending = this.endNow(key, reason, fate).finally(() => {
      this.endings.delete(key);
    });
    this.endings.set(key, ending);
    return ending;
  }

  private async endNow(key: string, reason: string, fate: LeaseFate): Promise<void> {
    const { ports } = this;
    const entry = this.table.session(key);
    if (entry === undefined) return;
    const renewal = this.renewals.get(key);
    this.renewals.delete(key);
    await this.record({ type: 'session-state', key, state: 'releasing' }, 'buffered');
    ports.executor.cancelSession(key, reason);
    // The slot is not free before the last activity has ended: the next session may need what this one still holds.
    if (!(await this.attemptsEnd(key, RELEASE_KILL_AFTER_MS))) {
      ports.log.warn(
        { event: 'release-kill', ...named(entry) },
        'An activity of the session ignores its cancellation; the executor is killed',
      );
      await ports.executor.kill(`an activity of session ${entry.session} ignored its cancellation`);
      // The executor's end has failed its attempts; what can not be told to the server must not keep the slot.
      for (const attempt of this.table.attemptsOf(key))
        await this.record({ type: 'attempt-ended', id: attempt.id }, 'buffered');
    }
    await this.preparing.get(key)?.catch(() => undefined);
    let remove: (() => Promise<void>) | undefined;
    try {
      remove = await ports.scratch.discard(key);
    } catch (error) {
      ports.log.error(
        { event: 'scratch-left', ...named(entry), reason: messageOf(error) },
        'The scratch directory could not be moved away; the next sweep tries again',
      );
    }
    await this.record({ type: 'session-gone', key }, 'buffered');
    if (fate !== 'none') {
      const dueAtMs = fate === 'complete' ? (renewal?.dueAtMs ?? ports.clock.monotonicMs()) : ports.clock.monotonicMs();
      this.finishing.set(entry.leaseToken, { fate, dueAtMs, reason });
    }
    ports.log.info(
      { event: 'release', ...named(entry), reason, heldMs: ports.clock.now() - entry.grantedAtMs },
      'Session released',
    );
    this.gate.changed();
    this.onChange();
    // After the answer: deleting a large directory must not keep the owner waiting.
    remove?.().catch((error: unknown) => {
      ports.log.error(
        { event: 'scratch-left', ...named(entry), reason: messageOf(error) },
        'The scratch directory could not be deleted; the next sweep tries again',
      );
    });
  }

  // ---- Attempts ----

  /** Asked by the executor before an attempt on the unique queue. Throws `SessionLost` when it must not run. */
  beginAttempt(attempt: BeginAttempt): AttemptFacts {
    const key = attempt.session?.key;
    const entry = key === undefined ? undefined : this.table.session(key);
    if (attempt.session !== undefined) {
      if (entry === undefined || entry.state === 'releasing' || entry.epoch !== attempt.session.epoch) {
        throw new AtlasError(
          'SessionLost',
          `The worker ${this.identity.worker} does not hold the session of activity ${attempt.activityId}.`,
        );
      }
    }
    if (attempt.incarnation !== this.ports.executor.incarnation()) {
      throw new AtlasError('ExecutorDied', 'The executor that asks is not the current one.');
    }
    const record: AttemptEntry = {
      id: attempt.id,
      sessionKey: key ?? null,
      activity: attempt.activity,
      activityId: attempt.activityId,
      attempt: attempt.attempt,
      taskToken: attempt.taskToken,
      incarnation: attempt.incarnation,
      startedAtMs: this.ports.clock.now(),
    };
    // Buffered: it must survive the death of the process, which a written page does, and not that of the machine, where
    // the heartbeat timeout of the activity takes over.
    void this.record({ type: 'attempt', entry: record }, 'buffered');
    return {
      scratchDirectory: key === undefined ? null : this.ports.scratch.directory(key),
      capabilities: entry?.capabilities ?? [],
    };
  }

  async endAttempt(id: string): Promise<void> {
    if (this.table.attempt(id) !== undefined) await this.record({ type: 'attempt-ended', id }, 'buffered');
    this.wakeAttemptWaiters();
  }

  /**
   * Fails the attempts of executors that are dead, so that the server hands them out at once. Only to be called once
   * the process group of those executors has ended.
   */
  async failAttempts(incarnationAlive: string | null): Promise<void> {
    const dead = this.table.attempts().filter((attempt) => attempt.incarnation !== incarnationAlive);
    await inParallel(
      dead.map((attempt) => async () => {
        try {
          const session = attempt.sessionKey === null ? undefined : this.table.session(attempt.sessionKey);
          const over = attempt.sessionKey !== null && (session === undefined || session.state === 'releasing');
          await this.ports.temporal.failAttempt(
            attempt.taskToken,
            over ? 'SessionLost' : 'ExecutorDied',
            over
              ? 'The session is over.'
              : `The executor on ${this.identity.worker} ended while the activity was running.`,
          );
        } catch (error) {
          this.ports.log.warn(
            {
              event: 'attempt-fail-unanswered',
              activity: attempt.activity,
              activityId: attempt.activityId,
              reason: messageOf(error),
            },
            'An attempt could not be failed; it is retried at its heartbeat timeout',
          );
        }
        await this.record({ type: 'attempt-ended', id: attempt.id }, 'buffered');
      }),
      RENEWALS_AT_ONCE,
    );
    this.wakeAttemptWaiters();
  }

  /** Resolves to whether every attempt of the session ended in time. */
  private async attemptsEnd(key: string, timeoutMs: number): Promise<boolean> {
    if (this.table.attemptsOf(key).length === 0) return true;
    return new Promise<boolean>((resolve) => {
      const settle = (ended: boolean) => {
        cancelTimer();
        this.attemptWaiters.delete(check);
        resolve(ended);
      };
      const check = () => {
        if (this.table.attemptsOf(key).length === 0) settle(true);
      };
      const cancelTimer = this.ports.clock.timer(timeoutMs, () => {
        settle(false);
      });
      this.attemptWaiters.add(check);
    });
  }

  private wakeAttemptWaiters(): void {
    for (const check of [...this.attemptWaiters]) check();
  }

  // ---- Restart ----

  /**
   * Takes up what the ledger of an earlier life says: sessions whose scratch directory is intact go on, the others are
   * given up. The executor of that life must have ended.
   */
  async resume(): Promise<void> {
    for (const entry of this.table.sessions()) {
      if (entry.state === 'releasing') {
        await this.end(entry.key, 'it was being released when the daemon stopped', 'complete');
        continue;
      }
      const problem = await this.scratchProblem(entry);
      if (problem === undefined) {
        this.renewals.set(entry.key, { dueAtMs: this.ports.clock.monotonicMs(), inFlight: false });
        this.ports.log.info({ event: 'resume', ...named(entry), state: entry.state }, 'Session resumed');
      } else {
        this.ports.log.warn({ event: 'loss', ...named(entry), reason: problem }, 'Session lost');
        await this.end(entry.key, problem, 'fail');
      }
    }
    await this.tick();
  }

  /** Why a session can not go on after a restart, if so; as a sentence for its owner. */
  private async scratchProblem({ key, epoch, grantedAtMs, state }: SessionEntry): Promise<string | undefined> {
    try {
      if (await this.ports.scratch.isIntact(key)) return undefined;
      if (state !== 'granting') return 'The scratch directory of the session is gone from the worker.';
      // The crash came between the ledger and the scratch directory; the owner was not told, and nothing ran.
      await this.ports.scratch.create(key, { key, epoch, grantedAtMs });
      return undefined;
    } catch (error) {
      return `The scratch directory of the session can not be used: ${messageOf(error)}`;
    }
  }

  snapshot(): SessionSnapshot[] {
    const attempts = this.table.attempts();
    return this.table.sessions().map((entry) => ({
      session: entry.session,
      epoch: entry.epoch,
      state: entry.state,
      workflowId: entry.workflowId,
      runId: entry.runId,
      workflowType: entry.workflowType,
      capabilities: entry.capabilities,
      grantedAtMs: entry.grantedAtMs,
      expiresAtMs: entry.expiresAtMs,
      attempts: attempts
        .filter((attempt) => attempt.sessionKey === entry.key)
        .map(({ activity, activityId, attempt, startedAtMs }) => ({ activity, activityId, attempt, startedAtMs })),
    }));
  }

  /**
   * Applies a record and appends it. A durable one is on disk when this resolves, and rejects where it could not be
   * written. The others only spare work after a restart, so a full disk must not keep them from taking effect.
   */
  private async record(record: LedgerRecord, durability: 'durable' | 'buffered'): Promise<void> {
    this.table.apply(record);
    try {
      await this.ports.ledger.append(record, { durable: durability === 'durable' });
    } catch (error) {
      if (durability === 'durable') throw error;
      this.ports.log.error(
        { event: 'ledger-write-failed', record: record.type, reason: messageOf(error) },
        'The ledger could not be written; after a restart the server is asked instead',
      );
    }
  }
}

function named(entry: SessionEntry): object {
  return { session: entry.session, owner: entry.workflowId, run: entry.runId, epoch: entry.epoch };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Runs all jobs, at most `limit` at once. Jobs handle their own errors; one that throws all the same stops nothing. */
async function inParallel(jobs: readonly (() => Promise<void>)[], limit: number): Promise<void> {
  const queue = [...jobs];
  const errors: unknown[] = [];
  const lane = async () => {
    for (let job = queue.shift(); job !== undefined; job = queue.shift()) {
      try {
        await job();
      } catch (error) {
        errors.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, queue.length) }, lane));
  if (errors.length > 0) throw errors[0];
}
