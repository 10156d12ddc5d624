/**
 * The sessions of this worker: grants them, renews their leases, answers for their attempts, releases them, and takes
 * them up again after a restart. This is the daemon's side of the session protocol; the owner's side is
 * `workflow/owner.ts`.
 *
 * Every change is a record that is applied to the table and appended to the ledger. A slot counts as taken from before
 * the grant until the last activity of the session has really ended.
 */
import { releasedBy } from '../contract/desired.js';
import { formatDurationMs } from '../contract/duration.js';
import { sessionKey } from '../contract/names.js';
import {
  ASK_OWNER_MS,
  HAND_OVER_MS,
  RELEASE_KILL_AFTER_MS,
  RENEWALS_PER_TTL,
  type AdoptRequest,
  type ConfirmRequest,
  type Grant,
  type LeaseRequest,
  type LocalState,
  type ReleaseRequest,
} from '../contract/session.js';
import { AtlasError } from '../contract/errors.js';
import type { ForceReleaseRequest, ReleaseAnswer, SessionSnapshot } from '../contract/fleet.js';
import type { AttemptFacts, BeginAttempt, EncodedResult, SessionMemoryName } from '../contract/local.js';
import { inLanes } from '../fleet/lanes.js';
import { Fence } from './fence.js';
import type { Clock, EventLog, ExecutorPort, LedgerPort, ScratchPort, TemporalPort } from './ports.js';
import type { AttemptEntry, LedgerRecord, ResultEntry, SessionEntry, SessionTable } from './session-table.js';
import type { SlotGate } from './slots.js';

/**
 * How long a task that was polled before a gate closed waits for a slot before it goes back to the server; less where its
 * lease would time out meanwhile.
 */
const LOCAL_SLOT_WAIT_MS = 2_000;
/** After a call without an answer; short, because the lease may be near its end. */
const RETRY_AFTER_MS = 1_000;
/** How long an attempt waits after a restart until it may start; less than the executor waits for a call. */
const WORD_WAIT_MS = 5_000;
const RENEWALS_AT_ONCE = 16;
/** How often an owner is asked that still runs while the server has timed its lease out. */
const ASK_EVERY_MS = 2_000;
/**
 * How long a result is kept after its attempt ended. Core gives up reporting after about 10 s without the server, so a
 * result whose report may be lost is younger than that when a call fails.
 */
const RESULT_AT_RISK_MS = 20_000;
/** What the owner of a session is told whose state was in the memory of an executor that has ended. */
const MEMORY_GONE =
  'The executor of the worker was restarted, and the state that the session had in its memory is gone.';
/** When scratch space that could not be given up is tried again: a disk that failed may work by then. */
const CLEAN_UP_AGAIN_MS = 10_000;

export interface KeeperIdentity {
  readonly worker: string;
  readonly queue: string;
  readonly presenceTtlMs: number;
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

/** A task of an owner as it was polled. */
export interface OwnerTask<R> {
  readonly request: R;
  readonly workflowId: string;
  readonly runId: string;
  readonly workflowType: string;
  /** Base64. */
  readonly leaseToken: string;
  /** When the server scheduled it, by its clock. */
  readonly scheduledAtMs: number;
}

export type LeaseTask = OwnerTask<LeaseRequest>;

/** A session before it has its slot, and with it the executor in whose memory it is, if it is in one's. */
interface SessionRequest extends Omit<SessionEntry, 'incarnation'> {
  readonly localState: LocalState;
}

/** What becomes of the lease of a session that ended. */
type LeaseFate = 'complete' | 'cancelled' | 'fail' | 'none';

type EndCode = 'SessionLost' | 'SessionExpired' | 'SessionReleased';

/** A lease that is still to be ended at the server. */
interface Finishing {
  readonly fate: Exclude<LeaseFate, 'none'>;
  readonly code: EndCode;
  readonly dueAtMs: number;
  readonly reason: string;
}

/** Why a session without a lease keeps its slot for a while, and until when. */
interface Limbo {
  readonly kind: 'handed-over' | 'asking';
  readonly untilMs: number;
  nextAskMs: number;
}

interface Renewal {
  dueAtMs: number;
  /** The call that is on its way, if any. */
  inFlight: Promise<void> | undefined;
}

/** What is known of the report of a result, beside what the ledger has. */
interface ResultReport {
  readonly endedAtMs: number;
  /** Whether a call to the server has failed since shortly before the end of the attempt. */
  atRisk: boolean;
  /** When it is reported again, if it is at risk. */
  nextReportMs: number;
  /** When it may be forgotten, if it is not. */
  forgetAtMs: number;
}

/** Scratch space of a session that is over, which could not be given up at once. */
interface CleanUp {
  readonly run: () => Promise<void>;
  dueAtMs: number;
}

export class SessionKeeper {
  private readonly renewals = new Map<string, Renewal>();
  private readonly acquiring = new Map<string, Promise<void>>();
  private readonly endings = new Map<string, Promise<void>>();
  /** Leases of released sessions, to be completed when their next renewal would have been due. */
  private readonly finishing = new Map<string, Finishing>();
  private readonly attemptWaiters = new Set<() => void>();
  /** Scratch directories that are being made: an end waits for them, since one made after it would be left for ever. */
  private readonly preparing = new Map<string, Promise<unknown>>();
  private readonly limbo = new Map<string, Limbo>();
  private readonly expiries = new Map<string, number>();
  private readonly fence: Fence;
  /** When the owner of a session that is suspected is asked for its word again. */
  private readonly nextWordMs = new Map<string, number>();
  /** Sessions whose attempts were cancelled for the fence, so that it is done once. */
  private readonly fenced = new Set<string>();
  /** When a pinned activity last ran, by session. */
  private readonly lastActiveMs = new Map<string, number>();
  /** The pinned activity that ended last, by session. */
  private readonly lastSteps = new Map<string, { readonly activity: string; readonly endedAtMs: number }>();
  /** By run and activity id, like the results in the table. A result of an earlier life has none and is at risk. */
  private readonly reports = new Map<string, ResultReport>();
  private readonly cleanUps = new Set<CleanUp>();

  /** Attempts of a daemon that was just restarted. */
  private readonly waitingAttempts = new Set<() => void>();

  /** When a call last got no answer, by the monotonic clock. */
  private lastCallFailedMs = Number.NEGATIVE_INFINITY;
  /** Whether the executor is being killed for a fence. */
  private killing = false;

  constructor(
    private readonly identity: KeeperIdentity,
    private readonly ports: KeeperPorts,
    private readonly gate: SlotGate,
    readonly table: SessionTable,
    /** Called whenever the set of sessions has changed. */
    private readonly onChange: () => void,
  ) {
    this.fence = new Fence(identity.presenceTtlMs);
  }

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

  /** Resolves when what is being granted now is granted, or has been refused. */
  async acquisitionsSettled(): Promise<void> {
    await Promise.allSettled([...this.acquiring.values()]);
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
    const asked: SessionRequest = {
      key,
      session: task.request.session,
      workflowId: task.workflowId,
      runId: task.runId,
      workflowType: task.workflowType,
      epoch: task.request.epoch,
      acquiredEpoch: task.request.epoch,
      grantId: ports.newGrantId(),
      // Later acquisitions of a session are scheduled later, by the one clock of the server.
      fencingToken: task.scheduledAtMs,
      capabilities: task.request.capabilities,
      leaseToken: task.leaseToken,
      leaseTtlMs: task.request.leaseTtlMs,
      recoveryWindowMs: task.request.recoveryWindowMs,
      idleTimeoutMs: task.request.idleTimeoutMs,
      grantedAtMs: nowMs,
      expiresAtMs: nowMs + task.request.maxDurationMs,
      state: 'granting',
      localState: task.request.state,
    };
    const entry = await this.takeSlot(asked);
    this.fence.granted(key, ports.clock.monotonicMs());
    try {
      const sentAtMs = ports.clock.monotonicMs();
      // All three before the owner hears of it, side by side: none of them promises anything to anybody.
      const [, answer] = await Promise.all([
        ports.ledger.append({ type: 'session', entry }, { durable: true }),
        // Tells a wanted attempt from an abandoned one, whose poll answer was lost and whose lease has moved on.
        ports.temporal.heartbeat(entry.leaseToken),
        this.makeScratch(entry),
      ]);
      if (!this.holdsLease(entry)) return;
      if (answer !== 'renewed') {
        await this.end(
          key,
          'the owner no longer wants the lease',
          answer === 'cancel-requested' ? 'cancelled' : 'none',
        );
        return;
      }
      this.heardOf(entry, sentAtMs);
      this.scheduleRenewal(entry);
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
    // The table forgets a session a little before its end is over, and what follows would hit the new one.
    await this.endings.get(key);
    for (let older = this.table.session(key); older !== undefined; older = this.table.session(key)) {
      if (older.epoch > task.request.epoch) {
        throw new AtlasError(
          'SessionLost',
          `The lease ${task.request.epoch} of session ${key} is older than the one held (${older.epoch}).`,
        );
      }
      if (older.epoch === task.request.epoch && older.state !== 'releasing') return;
      if (older.state !== 'releasing' && (await this.isLeaseWanted(older))) {
        throw new AtlasError(
          'NoFreeSlot',
          `The worker ${this.identity.worker} holds the session ${key} already, by the lease ${older.epoch} of the same owner.`,
        );
      }
      await this.end(key, 'its owner acquires it again', 'complete');
    }
  }

  /**
   * An owner that waits for long asks by several leases beside each other, and all of them may come here: the one that was
   * granted first counts, and the owner cancels the rest. A lease that it gave up is cancelled or timed out before it
   * acquires again. Without an answer nothing is ended.
   */
  private async isLeaseWanted({ leaseToken }: SessionEntry): Promise<boolean> {
    try {
      return (await this.ports.temporal.heartbeat(leaseToken)) === 'renewed';
    } catch (error) {
      this.callFailed();
      throw new AtlasError('NoFreeSlot', `The worker ${this.identity.worker} can not reach Temporal.`, {
        cause: error,
      });
    }
  }

  /** The server handed a lease out again that is held; the grant stands, under the new task token. */
  private async takeOverLease(known: SessionEntry, task: LeaseTask): Promise<void> {
    const entry: SessionEntry = { ...known, leaseToken: task.leaseToken, state: 'granting' };
    // Not durable: a full disk must not end a session that is held, and an older token is found out at its renewal.
    await this.record({ type: 'session', entry }, 'buffered');
    await this.announce(entry.key);
  }

  private async makeScratch({ key, epoch, grantedAtMs }: SessionEntry): Promise<void> {
    const making = this.ports.scratch.create(key, { key, epoch, grantedAtMs });
    this.preparing.set(key, making);
    try {
      await making;
    } finally {
      this.preparing.delete(key);
    }
  }

  /** Whether the session is still held under this lease: it may have ended, or moved on, while an answer was awaited. */
  private holdsLease(entry: SessionEntry): boolean {
    const current = this.table.session(entry.key);
    return current?.leaseToken === entry.leaseToken && current.state !== 'releasing';
  }

  /** Waits a little for a slot and takes it in memory, where it counts from then on. */
  private async takeSlot({ localState, ...asked }: SessionRequest): Promise<SessionEntry> {
    let entry: SessionEntry = asked;
    const abort = new AbortController();
    const waitMs = Math.min(LOCAL_SLOT_WAIT_MS, asked.leaseTtlMs / 2);
    const cancelTimer = this.ports.clock.timer(waitMs, () => {
      abort.abort();
    });
    try {
      await this.gate.takeSlot(asked.capabilities, abort.signal, () => {
        if (localState === 'memory') {
          // Known only now: another executor may have come while a slot was awaited.
          const incarnation = this.ports.executor.memoryHome();
          if (incarnation === null) return;
          entry = { ...asked, incarnation };
        }
        this.table.apply({ type: 'session', entry });
      });
    } catch (error) {
      if (error instanceof AtlasError) throw error;
      throw new AtlasError('NoFreeSlot', `The worker ${this.identity.worker} has no free slot.`);
    } finally {
      cancelTimer();
    }
    if (localState === 'memory' && entry.incarnation === undefined) {
      throw new AtlasError(
        'NoFreeSlot',
        `The worker ${this.identity.worker} has no executor now in whose memory a session may be.`,
      );
    }
    return entry;
  }

  /**
   * Signals the grant to the owner. An unclear answer keeps the slot and is repeated with the renewals: failing the
   * attempt instead would have another worker grant the session too.
   */
  private async announce(key: string): Promise<void> {
    const entry = this.table.session(key);
    if (entry?.state !== 'granting') return;
    const { ports } = this;
    const grant = this.grantOf(entry);
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
    // It may have been released, or adopted under another lease, while the answer was on its way.
    if (!this.holdsLease(entry) || this.table.session(key)?.state !== 'granting') return;
    if (answer === 'gone') {
      await this.askAfterOwner(entry);
      return;
    }
    await this.record({ type: 'session-state', key, state: 'held' }, 'buffered');
    ports.log.info({ event: 'grant', ...named(entry), capabilities: entry.capabilities }, 'Session granted');
    this.onChange();
  }

  private grantOf(entry: SessionEntry): Grant {
    const { worker, queue, presenceTtlMs } = this.identity;
    return {
      session: entry.session,
      epoch: entry.epoch,
      grantId: entry.grantId,
      worker,
      queue,
      presenceTtlMs,
    };
  }

  // ---- Adopt ----

  /**
   * Answers an owner that suspects this worker while the lease lives, by the token of the question. Throws `SessionLost`
   * when it is not held. The suspicion is lifted only when the server has taken the answer: one that comes too late, or
   * is lost, finds an owner that has moved on.
   */
  async confirm(task: OwnerTask<ConfirmRequest>): Promise<void> {
    const entry = await this.heldByGrant(task.request.grantId, task.request.session);
    const sentAtMs = this.ports.clock.monotonicMs();
    const answer = await this.ports.temporal.answerConfirm(task.leaseToken);
    if (answer === 'gone' || this.table.session(entry.key)?.grantId !== entry.grantId) return;
    this.fence.confirmed(entry.key, sentAtMs);
    this.fenced.delete(entry.key);
    this.wakeWaitingAttempts();
    this.ports.log.info({ event: 'confirm', ...named(entry) }, 'The owner was told that the session lives');
  }

  /**
   * Attaches a new lease to a session that still lives here: the server has timed the old one out, or its owner has
   * continued as new. Resolves when the owner was told, after which the adopt activity stays open as the lease.
   */
  async adopt(task: OwnerTask<AdoptRequest>): Promise<void> {
    const { ports } = this;
    const { grantId, session, epoch, leaseTtlMs, recoveryWindowMs, idleTimeoutMs } = task.request;
    const known = await this.heldByGrant(grantId, session);
    if (task.request.state === 'memory' && known.incarnation === undefined) {
      // It may outlive executors, and the run that adopts it counts on one.
      await this.end(known.key, 'the run that adopts it asks for one in memory', 'none');
      throw new AtlasError(
        'SessionLost',
        `The session ${known.key} was acquired with its state on disk, and the run that adopts it asks for memory.`,
      );
    }
    if (known.epoch > epoch) {
      // A reset takes an owner back behind a lease it had. Of two runs of a workflow one is open, and that is the one whose
      // lease can be renewed: the other's attempts must have ended before it is told that the session is lost.
      if (known.runId !== task.runId && (await ports.temporal.heartbeat(task.leaseToken)) === 'renewed')
        await this.end(known.key, 'its owner was reset', 'none');
      throw new AtlasError(
        'SessionLost',
        `The lease ${epoch} of session ${known.key} is older than the one held (${known.epoch}).`,
      );
    }
    const entry: SessionEntry = {
      ...known,
      workflowId: task.workflowId,
      runId: task.runId,
      workflowType: task.workflowType,
      epoch,
      leaseTtlMs,
      recoveryWindowMs,
      idleTimeoutMs,
      leaseToken: task.leaseToken,
      state: 'granting',
    };
    const sentAtMs = ports.clock.monotonicMs();
    // Not durable: without it a restart asks the owner again.
    await this.record({ type: 'session', entry }, 'buffered');
    let answer: Awaited<ReturnType<TemporalPort['heartbeat']>> | 'unclear';
    try {
      answer = await ports.temporal.heartbeat(entry.leaseToken);
    } catch (error) {
      // Failing the attempt would end the lease under an owner that a renewal may have told already.
      answer = 'unclear';
      this.callFailed();
      ports.log.warn(
        { event: 'adopt-unclear', ...named(entry), reason: messageOf(error) },
        'The lease of an adopted session could not be renewed; it is tried again',
      );
    }
    // It may have ended meanwhile, and then nobody would renew the new lease: its owner is told when all is over.
    const current = await this.heldByGrant(grantId, session);
    if (current.leaseToken !== entry.leaseToken) return;
    if (answer === 'unclear') {
      this.limbo.delete(entry.key);
      const renewal = this.renewals.get(entry.key);
      if (renewal !== undefined) renewal.dueAtMs = Math.min(renewal.dueAtMs, ports.clock.monotonicMs());
    }
    if (answer !== 'renewed') return;
    this.limbo.delete(entry.key);
    this.fence.confirmed(entry.key, sentAtMs);
    this.fenced.delete(entry.key);
    this.wakeWaitingAttempts();
    this.scheduleRenewal(entry);
    ports.log.info({ event: 'adopt', ...named(entry) }, 'Session adopted');
    await this.announce(entry.key);
  }

  /** Throws `SessionLost` only once the attempts of a session that is not held have ended. */
  private async heldByGrant(grantId: string, session: string): Promise<SessionEntry> {
    for (
      let entry = this.table.sessionByGrant(grantId);
      entry !== undefined;
      entry = this.table.sessionByGrant(grantId)
    ) {
      if (entry.state !== 'releasing') return entry;
      await this.end(entry.key, 'it was being released', 'none');
    }
    throw new AtlasError(
      'SessionLost',
      `The worker ${this.identity.worker} does not hold the session ${session} any more.`,
    );
  }

  /** Presence is being sent. `sentAtMs` is by the monotonic clock. */
  presenceSent(sentAtMs: number): void {
    this.fence.presenceSent(sentAtMs);
  }

  /** Presence was answered: nobody suspects this worker. `sentAtMs` is by the monotonic clock. */
  presenceAnswered(sentAtMs: number): void {
    this.fence.presenceAnswered(sentAtMs);
  }

  /** The fleet had not missed this worker when it registered. `sentAtMs` is by the monotonic clock. */
  notMissed(sentAtMs: number): void {
    this.fence.notMissed(sentAtMs);
    this.wakeWaitingAttempts();
  }

  /** The fleet asks for presence and does not take this worker for lost, so no owner was told to suspect it. */
  presenceTrusted(): void {
    this.fence.presenceTrusted(this.ports.clock.monotonicMs());
  }

  /** The server has ended the presence activity, perhaps by its timeout. */
  presenceGone(): void {
    this.fence.presenceGone(this.ports.clock.monotonicMs());
  }

  /** The owner check says that these runs have closed. */
  async ownersClosed(runIds: readonly string[]): Promise<void> {
    const closed = this.table.sessions().filter((entry) => entry.state !== 'releasing' && runIds.includes(entry.runId));
    await inParallel(
      closed.map((entry) => () => this.askAfterOwner(entry)),
      RENEWALS_AT_ONCE,
    );
  }

  /** The lease is gone, or its owner seems to be: what has become of the run that owns the session decides. */
  private async askAfterOwner(entry: SessionEntry): Promise<void> {
    const { ports } = this;
    let owner: 'running' | 'continued' | 'closed';
    try {
      owner = await ports.temporal.describeOwner(entry);
    } catch (error) {
      ports.log.warn(
        { event: 'owner-unknown', ...named(entry), reason: messageOf(error) },
        'The owner of a session could not be described; it is tried again',
      );
      // The renewal that leads here again need not wait for its time.
      const renewal = this.renewals.get(entry.key);
      if (renewal !== undefined)
        renewal.dueAtMs = Math.min(renewal.dueAtMs, ports.clock.monotonicMs() + RETRY_AFTER_MS);
      return;
    }
    if (!this.holdsLease(entry)) return;
    if (owner === 'closed') {
      await this.end(entry.key, 'its owner has closed', 'none');
      return;
    }
    if (this.limbo.has(entry.key)) return;
    const nowMs = ports.clock.monotonicMs();
    const handedOver = owner === 'continued';
    this.limbo.set(entry.key, {
      kind: handedOver ? 'handed-over' : 'asking',
      untilMs: nowMs + (handedOver ? HAND_OVER_MS : ASK_OWNER_MS),
      nextAskMs: nowMs,
    });
    ports.log.info(
      { event: handedOver ? 'hand-over' : 'ask-owner', ...named(entry) },
      handedOver
        ? 'The owner has continued as new; the slot is kept for its next run'
        : 'The server has timed the lease out; the owner is asked',
    );
  }

  /** A session without a lease: asks its owner again, or ends it when its time is over. */
  private async tendLimbo(entry: SessionEntry, limbo: Limbo): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    if (nowMs >= limbo.untilMs) {
      await this.end(
        entry.key,
        limbo.kind === 'handed-over' ? 'no later run of its owner adopted it' : 'its owner did not answer',
        'none',
      );
      return;
    }
    if (limbo.kind === 'handed-over' || nowMs < limbo.nextAskMs) return;
    limbo.nextAskMs = nowMs + ASK_EVERY_MS;
    this.fence.asked(entry.key, nowMs);
    try {
      const answer = await this.ports.temporal.askOwner(entry, this.grantOf(entry));
      if (answer === 'gone' && this.limbo.get(entry.key) === limbo) {
        this.limbo.delete(entry.key);
        await this.askAfterOwner(entry);
      }
    } catch (error) {
      this.ports.log.debug(
        { event: 'ask-unanswered', ...named(entry), reason: messageOf(error) },
        'The question to an owner was not answered',
      );
    }
  }

  /** Attempts wait for the owner's word whether it still counts on the session; has it ask. */
  private async askForWord(entry: SessionEntry): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    this.nextWordMs.set(entry.key, nowMs + ASK_EVERY_MS);
    this.fence.asked(entry.key, nowMs);
    try {
      const answer = await this.ports.temporal.askOwner(entry, this.grantOf(entry));
      if (answer === 'gone' && this.holdsLease(entry)) await this.askAfterOwner(entry);
    } catch (error) {
      this.ports.log.debug(
        { event: 'ask-unanswered', ...named(entry), reason: messageOf(error) },
        'The question to an owner was not answered',
      );
    }
  }

  // ---- Renewal ----

  /**
   * What is due: renewals, questions to owners, expiries, fences, ends of leases, results to report. Called on a timer;
   * never throws.
   */
  async tick(): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    const jobs: (() => Promise<void>)[] = [async () => this.keepFences()];
    for (const entry of this.table.sessions()) {
      const releasing = entry.state === 'releasing';
      const overdue = releasing ? undefined : this.overdue(entry);
      const limbo = releasing ? undefined : this.limbo.get(entry.key);
      const renewal = this.renewals.get(entry.key);
      if (overdue !== undefined) jobs.push(() => this.end(entry.key, overdue, 'fail', 'SessionExpired'));
      else if (limbo !== undefined) jobs.push(() => this.tendLimbo(entry, limbo));
      else {
        if (
          entry.state === 'held' &&
          this.fence.needsWord(entry.key, nowMs) &&
          nowMs >= (this.nextWordMs.get(entry.key) ?? 0)
        )
          jobs.push(() => this.askForWord(entry));
        if (renewal !== undefined && renewal.inFlight === undefined && renewal.dueAtMs <= nowMs)
          jobs.push(() => this.renew(entry));
      }
    }
    for (const [token, finishing] of this.finishing) {
      if (finishing.dueAtMs <= nowMs) jobs.push(() => this.finishLease(token, finishing));
    }
    for (const entry of this.table.results()) jobs.push(() => this.tendResult(entry));
    for (const cleanUp of this.cleanUps) if (cleanUp.dueAtMs <= nowMs) jobs.push(() => this.cleanUpAgain(cleanUp));
    try {
      await inParallel(jobs, RENEWALS_AT_ONCE);
    } catch (error) {
      // Each handles what can be expected; whatever else it is, the next tick is not the less needed.
      this.ports.log.error({ event: 'tick-failed', reason: messageOf(error) }, 'A part of what was due has failed');
    }
  }

  /** Why the session has to end now, as a sentence; undefined while its time is not over. */
  private overdue(entry: SessionEntry): string | undefined {
    if (this.ports.clock.monotonicMs() >= this.expiryMs(entry)) return 'It reached its maximum duration.';
    if (entry.idleTimeoutMs === null || entry.state !== 'held' || this.table.attemptsOf(entry.key).length > 0)
      return undefined;
    const activeMs = this.lastActiveMs.get(entry.key) ?? this.ports.clock.monotonicMs();
    this.lastActiveMs.set(entry.key, activeMs);
    return this.ports.clock.monotonicMs() - activeMs >= entry.idleTimeoutMs
      ? `No pinned activity ran for ${formatDurationMs(entry.idleTimeoutMs)}.`
      : undefined;
  }

  /** When the session expires, by the monotonic clock: a step of the other one must not end it. */
  private expiryMs(entry: SessionEntry): number {
    const known = this.expiries.get(entry.key);
    if (known !== undefined) return known;
    const expiryMs = this.ports.clock.monotonicMs() + entry.expiresAtMs - this.ports.clock.now();
    this.expiries.set(entry.key, expiryMs);
    return expiryMs;
  }

  /** Renews the lease now; resolves when it was answered or given up. Shares the call that is on its way. */
  private async renew(entry: SessionEntry): Promise<void> {
    const renewal = this.renewals.get(entry.key);
    if (renewal === undefined) return;
    renewal.inFlight ??= this.renewNow(entry, renewal).finally(() => {
      renewal.inFlight = undefined;
    });
    await renewal.inFlight;
  }

  private async renewNow(entry: SessionEntry, renewal: Renewal): Promise<void> {
    const sentAtMs = this.ports.clock.monotonicMs();
    const intervalMs = entry.leaseTtlMs / RENEWALS_PER_TTL;
    try {
      // Before the signal of a grant that is unclear: that one may take longer than the TTL of the lease.
      const answer = await this.ports.temporal.heartbeat(entry.leaseToken);
      renewal.dueAtMs = sentAtMs + intervalMs;
      if (answer === 'renewed' && this.table.session(entry.key)?.leaseToken === entry.leaseToken)
        this.heardOf(entry, sentAtMs);
      if (!this.holdsLease(entry)) return;
      if (answer === 'renewed') {
        await this.announce(entry.key);
      } else if (answer === 'not-found') await this.askAfterOwner(entry);
      else await this.end(entry.key, 'its owner cancelled the lease', 'cancelled');
    } catch (error) {
      renewal.dueAtMs = sentAtMs + Math.min(RETRY_AFTER_MS, intervalMs);
      this.callFailed();
      this.ports.log.warn(
        { event: 'renewal-unanswered', ...named(entry), reason: messageOf(error) },
        'A lease could not be renewed; it is tried again',
      );
    }
  }

  /** A renewal that was sent then was answered. */
  private heardOf(entry: SessionEntry, sentAtMs: number): void {
    this.fence.renewed(entry, sentAtMs);
    if (this.ports.clock.monotonicMs() < this.fence.cancelAtMs(entry)) this.fenced.delete(entry.key);
  }

  /** Ends attempts that must have ended before an owner may move on, and renews the local lease of the executor. */
  private keepFences(): void {
    const { ports } = this;
    const nowMs = ports.clock.monotonicMs();
    let killAtMs = Number.POSITIVE_INFINITY;
    const due: AttemptEntry[] = [];
    for (const entry of this.table.sessions()) {
      const attempts = this.table.attemptsOf(entry.key);
      if (attempts.length === 0) continue;
      // Also of a session that is being released: its owner may not know, and moves on at the same time.
      killAtMs = Math.min(killAtMs, this.fence.killAtMs(entry));
      if (nowMs >= this.fence.killAtMs(entry)) due.push(...attempts);
      if (entry.state === 'releasing' || nowMs < this.fence.cancelAtMs(entry) || this.fenced.has(entry.key)) continue;
      this.fenced.add(entry.key);
      ports.log.warn(
        { event: 'fence', ...named(entry) },
        'Temporal can not be reached; the activities of the session are ended before it may go to another worker',
      );
      ports.executor.cancelSession(entry, 'AttemptFenced', 'the worker can not reach Temporal');
    }
    if (nowMs < killAtMs) ports.executor.renewLocalLease(Number.isFinite(killAtMs) ? killAtMs - nowMs : null);
    else if (!this.killing) {
      this.killing = true;
      void this.killExecutors('an activity did not end before the fence of its session', due).finally(() => {
        this.killing = false;
      });
    }
  }

  /** Resolves to whether the executors of these attempts have ended, all their attempts with them. */
  private async killExecutors(reason: string, attempts: readonly AttemptEntry[]): Promise<boolean> {
    try {
      await this.ports.executor.kill(reason, [...new Set(attempts.map(({ incarnation }) => incarnation))]);
      return true;
    } catch (error) {
      this.ports.log.error(
        { event: 'executor-kill-failed', reason: messageOf(error) },
        'The executor could not be killed; it is tried again',
      );
      return false;
    }
  }

  private scheduleRenewal(entry: SessionEntry): void {
    const dueAtMs = this.ports.clock.monotonicMs() + entry.leaseTtlMs / RENEWALS_PER_TTL;
    this.renewals.set(entry.key, { dueAtMs, inFlight: undefined });
  }

  private async finishLease(token: string, { fate, code, reason }: Finishing): Promise<void> {
    // Tried once: a lease that nobody renews ends by itself at its TTL.
    this.finishing.delete(token);
    try {
      if (fate === 'complete') await this.ports.temporal.completeLease(token);
      else if (fate === 'cancelled') await this.ports.temporal.cancelLease(token);
      else await this.ports.temporal.failLease(token, code, reason);
    } catch (error) {
      this.ports.log.debug(
        { event: 'lease-end-unanswered', reason: messageOf(error) },
        'The end of a lease was not answered; it ends at its TTL',
      );
    }
  }

  // ---- Release ----

  /** The owner gives the session back. Resolves to whether it was held here, once slot and scratch name are free. */
  async release({ grantId }: ReleaseRequest): Promise<boolean> {
    // By its grant: a session of this name that was acquired again since is another one.
    const entry = this.table.sessionByGrant(grantId);
    if (entry === undefined) return false;
    await this.end(entry.key, 'its owner released it', 'complete');
    return true;
  }

  /** An operator ends sessions. Resolves once slots and scratch names are free and their owners were told. */
  async forceRelease({ keys, who, why, failOwner }: ForceReleaseRequest): Promise<ReleaseAnswer> {
    const wanted = keys ?? this.table.sessions().map(({ key }) => key);
    const outcomes = await Promise.all(
      wanted.map(async (key) => {
        const entry = this.table.session(key);
        if (entry === undefined) return { key, outcome: 'not-held' as const };
        await this.end(key, releasedBy(who, why), 'fail', failOwner ? 'SessionReleased' : 'SessionLost');
        await this.finishNow(entry);
        return { key, outcome: 'released' as const };
      }),
    );
    return { outcomes };
  }

  /** Ends a session as if its time were over, for whoever tests that. Resolves to whether it was held here. */
  async expire(key: string, reason: string): Promise<boolean> {
    const entry = this.table.session(key);
    if (entry === undefined) return false;
    await this.end(key, reason, 'fail', 'SessionExpired');
    await this.finishNow(entry);
    return true;
  }

  /** Tells the owner of a session that has ended, without waiting for the next tick. */
  private async finishNow({ leaseToken }: SessionEntry): Promise<void> {
    const finishing = this.finishing.get(leaseToken);
    if (finishing !== undefined) await this.finishLease(leaseToken, finishing);
  }

  /** Gives every session up: for a stop that does not resume them, or an executor that can not stay up. */
  async giveUpAll(reason: string): Promise<void> {
    await Promise.all(this.table.sessions().map((entry) => this.end(entry.key, reason, 'fail')));
    await this.endsTold();
  }

  /** Resolves when the sessions that are ending have ended and their owners were told, as far as Temporal answers. */
  async endsTold(): Promise<void> {
    await Promise.all([...this.endings.values()]);
    await inParallel(
      [...this.finishing].map(
        ([token, finishing]) =>
          () =>
            this.finishLease(token, finishing),
      ),
      RENEWALS_AT_ONCE,
    );
  }

  private async end(key: string, reason: string, fate: LeaseFate, code: EndCode = 'SessionLost'): Promise<void> {
    const running = this.endings.get(key);
    if (running !== undefined) return running;
    const ending = this.endNow(key, reason, fate, code).finally(() => {
      this.endings.delete(key);
    });
    this.endings.set(key, ending);
    return ending;
  }

  private async endNow(key: string, reason: string, fate: LeaseFate, code: EndCode): Promise<void> {
    const { ports } = this;
    const entry = this.table.session(key);
    if (entry === undefined) return;
    await this.record({ type: 'session-state', key, state: 'releasing' }, 'buffered');
    ports.executor.cancelSession(entry, code, reason);
    // The slot is not free before the last activity has ended: the next session may need what this one still holds.
    while (!(await this.attemptsEnd(key, RELEASE_KILL_AFTER_MS))) {
      ports.log.warn(
        { event: 'release-kill', ...named(entry) },
        'An activity of the session ignores its cancellation; the executor is killed',
      );
      const reason = `an activity of session ${entry.session} ignored its cancellation`;
      if (!(await this.killExecutors(reason, this.table.attemptsOf(key)))) continue;
      // The executor's end has failed its attempts; what can not be told to the server must not keep the slot.
      for (const attempt of this.table.attemptsOf(key))
        await this.record({ type: 'attempt-ended', id: attempt.id }, 'buffered');
    }
    await this.preparing.get(key)?.catch(() => undefined);
    // Before the slot is free: what is in the memory may be that of a device, and the next session needs it.
    if (entry.incarnation !== undefined) await ports.executor.dropMemory(entry.incarnation, memoryOf(entry));
    let remove: (() => Promise<void>) | undefined;
    try {
      remove = await ports.scratch.discard(key);
    } catch (error) {
      this.cleanUpLater(entry, error, async () => {
        // One that was acquired again since has taken the directory over.
        if (this.table.session(key) === undefined) await (await ports.scratch.discard(key))();
      });
    }
    await this.record({ type: 'session-gone', key }, 'buffered');
    // Until here the lease was renewed: the owner goes on waiting, and the fence of what still ran stayed away.
    const renewal = this.renewals.get(key);
    this.renewals.delete(key);
    this.limbo.delete(key);
    this.expiries.delete(key);
    this.fence.forget(key);
    this.nextWordMs.delete(key);
    this.fenced.delete(key);
    this.lastActiveMs.delete(key);
    this.lastSteps.delete(key);
    for (const activity of [...this.reports.keys()])
      if (this.table.result(activity) === undefined) this.reports.delete(activity);
    if (fate !== 'none') {
      const dueAtMs = fate === 'complete' ? (renewal?.dueAtMs ?? ports.clock.monotonicMs()) : ports.clock.monotonicMs();
      this.finishing.set(entry.leaseToken, { fate, code, dueAtMs, reason });
    }
    ports.log.info(
      { event: 'release', ...named(entry), reason, heldMs: ports.clock.now() - entry.grantedAtMs },
      'Session released',
    );
    this.gate.changed();
    this.onChange();
    // After the answer: deleting a large directory must not keep the owner waiting.
    remove?.().catch((error: unknown) => {
      this.cleanUpLater(entry, error, remove);
    });
  }

  private cleanUpLater(entry: SessionEntry, error: unknown, run: () => Promise<void>): void {
    this.ports.log.error(
      { event: 'scratch-left', ...named(entry), reason: messageOf(error) },
      'The scratch directory could not be deleted; it is tried again',
    );
    this.cleanUps.add({ run, dueAtMs: this.ports.clock.monotonicMs() + CLEAN_UP_AGAIN_MS });
  }

  private async cleanUpAgain(cleanUp: CleanUp): Promise<void> {
    // Not while it is under way: a large directory takes minutes.
    cleanUp.dueAtMs = Number.POSITIVE_INFINITY;
    try {
      await cleanUp.run();
      this.cleanUps.delete(cleanUp);
    } catch {
      cleanUp.dueAtMs = this.ports.clock.monotonicMs() + CLEAN_UP_AGAIN_MS;
    }
  }

  // ---- Attempts ----

  /**
   * Asked by the executor before an attempt on the unique queue. Throws `SessionLost` when the session is over, and
   * `AttemptFenced` (retryable) when its owner may be about to give it up.
   */
  async beginAttempt(attempt: BeginAttempt): Promise<AttemptFacts> {
    const owner = attempt.session;
    const held = owner === undefined ? undefined : () => this.heldForAttempt(attempt.activityId, owner);
    if (held !== undefined) await this.untilMayStart(held);
    // Nothing is awaited from here to the record of the attempt: an end that begins now waits for it.
    const entry = held?.();
    if (entry?.incarnation !== undefined && entry.incarnation !== attempt.incarnation) {
      throw new AtlasError(
        'SessionLost',
        `The activity ${attempt.activityId} has come to another executor than its session. ${MEMORY_GONE}`,
      );
    }
    if (!this.ports.executor.isAlive(attempt.incarnation)) {
      throw new AtlasError('ExecutorDied', 'The executor that asks is not known, or was given up.');
    }
    const facts = {
      sessionKey: entry?.key ?? null,
      scratchDirectory: entry === undefined ? null : this.ports.scratch.directory(entry.key),
      capabilities: entry?.capabilities ?? [],
      fencingToken: entry?.fencingToken ?? null,
      ...(entry?.incarnation === undefined ? {} : { state: 'memory' as const }),
    };
    const kept = this.table.result(activityOf(attempt.id));
    if (kept !== undefined) {
      // The step is done, only the server does not know: it is answered, not repeated.
      this.ports.log.info(
        { event: 'result-kept', activity: attempt.activity, activityId: attempt.activityId },
        'A finished activity was handed out again and is answered from the ledger',
      );
      return { ...facts, result: kept.result };
    }
    if (entry !== undefined) this.lastActiveMs.set(entry.key, this.ports.clock.monotonicMs());
    const record: AttemptEntry = {
      id: attempt.id,
      sessionKey: entry?.key ?? null,
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
    this.keepFences();
    return facts;
  }

  private heldForAttempt(activityId: string, owner: NonNullable<BeginAttempt['session']>): SessionEntry {
    const entry = this.table.sessionOf(owner.session, owner.runId);
    if (
      entry === undefined ||
      entry.state === 'releasing' ||
      owner.epoch < entry.acquiredEpoch ||
      owner.epoch > entry.epoch ||
      (owner.grantId !== undefined && owner.grantId !== entry.grantId)
    ) {
      throw new AtlasError(
        'SessionLost',
        `The worker ${this.identity.worker} does not hold the session of activity ${activityId}.`,
      );
    }
    return entry;
  }

  /** An attempt that was fetched the moment a link healed waits for one answer of the server first. */
  private async untilMayStart(held: () => SessionEntry): Promise<void> {
    let entry = held();
    // The word of the fleet, or of the owner, is seconds away: a refusal would cost the user's activity one of its attempts.
    if (this.fence.awaitsFleet(entry.key)) {
      await this.wordComes(entry.key);
      entry = held();
    }
    const may = () => this.fence.mayStart(entry, this.ports.clock.monotonicMs());
    let verdict = may();
    if (verdict === 'ask-first') {
      await this.renew(entry);
      entry = held();
      verdict = may();
    }
    if (verdict === 'yes' && !this.limbo.has(entry.key)) return;
    throw new AtlasError(
      'AttemptFenced',
      `The worker ${this.identity.worker} waits until it is clear whether it still holds the session ${entry.session}.`,
    );
  }

  /** Resolves when the fleet has not missed this worker, the owner has got its answer, or neither has come in time. */
  private wordComes(key: string): Promise<void> {
    return new Promise((resolve) => {
      const settle = () => {
        cancelTimer();
        this.waitingAttempts.delete(check);
        resolve();
      };
      const check = () => {
        if (!this.fence.isSuspected(key)) settle();
      };
      const cancelTimer = this.ports.clock.timer(WORD_WAIT_MS, settle);
      this.waitingAttempts.add(check);
    });
  }

  private wakeWaitingAttempts(): void {
    for (const check of [...this.waitingAttempts]) check();
  }

  /** The attempt has ended in the executor. Its result is on disk before the server may hear of it. */
  async endAttempt(id: string, result?: EncodedResult): Promise<void> {
    const attempt = this.table.attempt(id);
    if (attempt !== undefined) {
      if (attempt.sessionKey !== null) this.stepEnded(attempt.sessionKey, attempt);
      if (result !== undefined && attempt.sessionKey !== null)
        await this.keepResult(attempt, attempt.sessionKey, result);
      await this.record({ type: 'attempt-ended', id }, 'buffered');
    }
    this.wakeAttemptWaiters();
  }

  private stepEnded(sessionKey: string, { activity }: AttemptEntry): void {
    this.lastActiveMs.set(sessionKey, this.ports.clock.monotonicMs());
    this.lastSteps.set(sessionKey, { activity, endedAtMs: this.ports.clock.now() });
  }

  private async keepResult(attempt: AttemptEntry, sessionKey: string, result: EncodedResult): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    const activity = activityOf(attempt.id);
    this.reports.set(activity, newReport(nowMs, nowMs - this.lastCallFailedMs < RESULT_AT_RISK_MS));
    await this.record(
      { type: 'result', entry: { activity, sessionKey, taskToken: attempt.taskToken, result } },
      'buffered',
    );
  }

  /** A call got no answer: reports of Core from about now may be lost too. */
  callFailed(): void {
    const nowMs = this.ports.clock.monotonicMs();
    this.lastCallFailedMs = nowMs;
    for (const report of this.reports.values()) if (nowMs - report.endedAtMs < RESULT_AT_RISK_MS) report.atRisk = true;
  }

  /** Reports a result that the server may not have got until it answers; forgets one that is safe. */
  private async tendResult({ activity, taskToken, result }: ResultEntry): Promise<void> {
    const nowMs = this.ports.clock.monotonicMs();
    const report = this.reports.get(activity) ?? newReport(nowMs, true);
    this.reports.set(activity, report);
    if (!report.atRisk) {
      if (nowMs < report.forgetAtMs) return;
      this.reports.delete(activity);
      await this.record({ type: 'result-gone', activity }, 'buffered');
      return;
    }
    if (nowMs < report.nextReportMs) return;
    // Not while the call is on its way.
    report.nextReportMs = Number.POSITIVE_INFINITY;
    try {
      await this.ports.temporal.completeAttempt(taskToken, result);
      // It is in the history now, or was before, or the server had given its attempt up and hands the activity out again
      // after any backoff: which of them it does not say, so the result stays for as long as the session.
      report.atRisk = false;
      report.nextReportMs = Number.POSITIVE_INFINITY;
      report.forgetAtMs = Number.POSITIVE_INFINITY;
    } catch (error) {
      report.nextReportMs = this.ports.clock.monotonicMs() + RETRY_AFTER_MS;
      this.ports.log.debug(
        { event: 'result-unreported', activity, reason: messageOf(error) },
        'A result could not be reported; it is tried again',
      );
    }
  }

  /**
   * Fails the attempts of executors that are dead, so that the server hands them out at once, and ends the sessions that
   * had their state in the memory of one. Only to be called once the process group of those executors has ended.
   */
  async failAttempts(): Promise<void> {
    const { executor } = this.ports;
    // First, so that their attempts are not failed in a way that has them run again.
    this.loseGoneMemory();
    const dead = this.table.attempts().filter(({ incarnation }) => !executor.isAlive(incarnation));
    await inParallel(
      dead.map((attempt) => async () => {
        try {
          const session = attempt.sessionKey === null ? undefined : this.table.session(attempt.sessionKey);
          const over = attempt.sessionKey !== null && (session === undefined || session.state === 'releasing');
          await this.ports.temporal.failAttempt(
            attempt.taskToken,
            over ? 'SessionLost' : 'ExecutorDied',
            over
              ? session?.incarnation === attempt.incarnation
                ? MEMORY_GONE
                : 'The session is over.'
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
        if (attempt.sessionKey !== null) this.stepEnded(attempt.sessionKey, attempt);
        await this.record({ type: 'attempt-ended', id: attempt.id }, 'buffered');
      }),
      RENEWALS_AT_ONCE,
    );
    this.wakeAttemptWaiters();
  }

  /** Ends the sessions whose state is in the memory of this executor, which goes on. Resolves when they have ended. */
  async loseMemory(incarnation: string, reason: string): Promise<void> {
    const lost = this.table.sessions().filter((entry) => entry.incarnation === incarnation);
    for (const entry of lost) this.ports.log.warn({ event: 'loss', ...named(entry), reason }, 'Session lost');
    await Promise.all(lost.map(({ key }) => this.end(key, reason, 'fail')));
  }

  /** Begins to end the sessions whose state was in the memory of an executor that is not alive. */
  private loseGoneMemory(): void {
    for (const entry of this.table.sessions()) {
      if (entry.incarnation === undefined || this.ports.executor.isAlive(entry.incarnation)) continue;
      if (entry.state === 'releasing') continue;
      this.ports.log.warn({ event: 'loss', ...named(entry), reason: MEMORY_GONE }, 'Session lost');
      // Not awaited: it waits for attempts that are failed next, and an end that has the executor killed waits for this.
      this.end(entry.key, MEMORY_GONE, 'fail').catch((error: unknown) => {
        this.ports.log.error(
          { event: 'release-failed', ...named(entry), reason: messageOf(error) },
          'A session could not be ended',
        );
      });
    }
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
      const problem = entry.incarnation === undefined ? await this.scratchProblem(entry) : MEMORY_GONE;
      if (problem === undefined) {
        const nowMs = this.ports.clock.monotonicMs();
        this.renewals.set(entry.key, { dueAtMs: nowMs, inFlight: undefined });
        this.fence.resumed(entry, nowMs);
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
      if (state !== 'granting')
        return 'The scratch directory of the session is gone from the worker, or from before its host was restarted.';
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
      key: entry.key,
      epoch: entry.epoch,
      state: entry.state,
      workflowId: entry.workflowId,
      runId: entry.runId,
      workflowType: entry.workflowType,
      capabilities: entry.capabilities,
      grantedAtMs: entry.grantedAtMs,
      expiresAtMs: entry.expiresAtMs,
      leaseTtlMs: entry.leaseTtlMs,
      recoveryWindowMs: entry.recoveryWindowMs,
      idleForMs: this.idleForMs(entry, attempts),
      lastStep: this.lastSteps.get(entry.key) ?? null,
      localState: entry.incarnation === undefined ? 'disk' : 'memory',
      attempts: attempts
        .filter((attempt) => attempt.sessionKey === entry.key)
        .map(({ activity, activityId, attempt, startedAtMs }) => ({ activity, activityId, attempt, startedAtMs })),
    }));
  }

  /** Since the last pinned activity ended, or since the grant where there was none in this life of the daemon. */
  private idleForMs({ key, grantedAtMs }: SessionEntry, attempts: readonly AttemptEntry[]): number | null {
    if (attempts.some(({ sessionKey }) => sessionKey === key)) return null;
    const lastActiveMs = this.lastActiveMs.get(key);
    if (lastActiveMs === undefined) return Math.max(0, this.ports.clock.now() - grantedAtMs);
    return Math.round(this.ports.clock.monotonicMs() - lastActiveMs);
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

function memoryOf({ key, fencingToken }: SessionEntry): SessionMemoryName {
  return { key, fencingToken };
}

function newReport(endedAtMs: number, atRisk: boolean): ResultReport {
  return { endedAtMs, atRisk, nextReportMs: endedAtMs, forgetAtMs: endedAtMs + RESULT_AT_RISK_MS };
}

/** An attempt's id is that of its activity and a number. */
function activityOf(attemptId: string): string {
  return attemptId.slice(0, attemptId.lastIndexOf('#'));
}

function named(entry: SessionEntry): object {
  return { session: entry.session, owner: entry.workflowId, run: entry.runId, epoch: entry.epoch };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Runs all jobs, at most `limit` at once. Jobs handle their own errors; one that throws all the same stops nothing. */
async function inParallel(jobs: readonly (() => Promise<void>)[], limit: number): Promise<void> {
  const errors: unknown[] = [];
  await inLanes(jobs, limit, async (job) => {
    try {
      await job();
    } catch (error) {
      errors.push(error);
    }
  });
  if (errors.length > 0) throw errors[0];
}
