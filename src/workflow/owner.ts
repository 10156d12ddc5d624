/**
 * The owner's side of the session protocol: acquire → hold → (suspect → adopt) → release, and redo when the worker is
 * lost. It can be read from top to bottom; the daemon's side is `daemon/session-keeper.ts`.
 *
 * Everything outside is behind {@link OwnerRuntime}: in a workflow it is Temporal (`runtime.ts`), in the model tests a
 * simulated server with virtual time. Nothing here reads a clock, a run id or a random number.
 */
import { formatDurationMs } from '../contract/duration.js';
import type { ErrorCode } from '../contract/errors.js';
import { acquireQueue, capabilityLabel } from '../contract/names.js';
import type { Grant, LocalState, OnLost, SessionHandle } from '../contract/session.js';

/** What a session asks for, with every default filled in. */
export interface SessionContract {
  readonly fleet: string;
  readonly capabilities: readonly string[];
  readonly leaseTtlMs: number;
  readonly maxDurationMs: number;
  readonly acquireTimeoutMs: number;
  readonly recoveryWindowMs: number;
  readonly idleTimeoutMs: number | null;
  readonly state: LocalState;
  readonly onLost: OnLost;
  readonly maxReacquisitions: number;
  readonly priority: unknown;
  /** The name of the worker that is asked first; null for any. */
  readonly prefer: string | null;
  readonly preferForMs: number;
}

/** How a lease ended, as far as the owner must tell the ways apart. */
export type LeaseEnd =
  /** The worker was silent for the lease TTL. */
  | { readonly kind: 'silent'; readonly message: string; readonly cause: Error }
  /** The lease was not taken in time: nobody polls the queue, or the worker that took it had no room. */
  | { readonly kind: 'not-taken'; readonly message: string; readonly cause: Error }
  /** The session reached its maximum duration, or was idle for too long. */
  | { readonly kind: 'expired'; readonly message: string; readonly cause: Error }
  /** An operator ended the session together with its owner. */
  | { readonly kind: 'released'; readonly message: string; readonly cause: Error }
  /** The worker gave the session up, or does not hold it, and says why. */
  | { readonly kind: 'given-up'; readonly message: string; readonly cause: Error | undefined }
  /** The worker will never grant this request, and neither would another. */
  | { readonly kind: 'refused'; readonly message: string; readonly cause: Error };

/** A lease activity that has been scheduled. */
export interface Lease {
  readonly epoch: number;
  /** Set once the lease has ended. */
  readonly end: () => LeaseEnd | undefined;
  /** Asks the server to cancel the lease, for a worker that can not be reached. */
  readonly cancel: () => void;
}

export type LeaseSpec =
  | {
      readonly kind: 'acquire';
      readonly session: string;
      readonly epoch: number;
      /**
       * How long a worker may take to take it, which is tried once; null to have the server try it until it is cancelled.
       */
      readonly scheduleToStartMs: number | null;
      /** The worker that is asked on a queue of its own; null for any. */
      readonly worker: string | null;
    }
  | {
      readonly kind: 'adopt';
      readonly epoch: number;
      readonly grant: Grant;
      /** How long the worker may take to take it. */
      readonly scheduleToStartMs: number;
      readonly durationMs: number;
    };

/** What the body of a session run came to, before the session's own end is considered. */
export type BodyEnd<T> =
  | { readonly kind: 'returned'; readonly value: T }
  | { readonly kind: 'threw'; readonly error: unknown; readonly continuesAsNew: boolean };

export type Confirmation = 'held' | 'unknown' | 'no-answer';

export interface OwnerRuntime {
  now(): number;
  newSessionId(): string;
  /** Rises with every call and never repeats within a run. */
  nextEpoch(): number;
  /** Makes later epochs higher than this one, which an earlier run used. */
  raiseEpoch(epoch: number): void;
  scheduleLease(spec: LeaseSpec, contract: SessionContract): Lease;
  /** Asks the worker whether it still holds the session. `no-answer`: the server has got none within about the time. */
  confirm(grant: Grant, timeoutMs: number): Promise<Confirmation>;
  /** Gives the slot back, also when the owner is cancelled. Resolves to whether the worker answered. */
  release(grant: Grant): Promise<boolean>;
  /** Resolves to true as soon as the condition holds, to false after the time. Throws when the owner is cancelled. */
  until(condition: () => boolean, timeoutMs: number): Promise<boolean>;
  /** The same, for what must be waited out also when the owner is cancelled. */
  untilEvenIfCancelled(condition: () => boolean, timeoutMs: number): Promise<boolean>;
  /** The inbox of grants, questions and suspicions for a session; see {@link OwnerInbox}. */
  listen(session: string, inbox: OwnerInbox): void;
  stopListening(session: string): void;
  failure(code: ErrorCode, message: string, cause?: Error): Error;
  log(level: 'info' | 'warn', message: string, fields: object): void;
}

/** What reaches an owner from outside. What is not taken is answered with a release. */
export interface OwnerInbox {
  /** Returns whether the grant was taken. */
  granted(grant: Grant): boolean;
  /** The worker of this queue may be gone. */
  suspected(queue: string): void;
  /** The server timed the lease out while the worker was away; returns whether the session is still wanted. */
  asked(grant: Grant): boolean;
}

/** Why a held session ended under its body. */
export interface Loss {
  readonly code: 'SessionLost' | 'SessionExpired' | 'SessionReleased';
  readonly failure: Error;
  /** Whether the worker may still hold the session and answers on its control queue. */
  readonly workerAnswers: boolean;
}

export type SessionOutcome<T> =
  | { readonly kind: 'returned'; readonly value: T }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'lost'; readonly loss: Loss };

/** Runs the body of a session under one acquisition; ends it when the session is lost. */
export type RunBody<T> = (held: HeldSession, attempt: number) => Promise<BodyEnd<T> & { readonly hitByLoss: boolean }>;

/** Acquire, run the body, release; again from the start when the worker was lost and the contract says so. */
export async function ownSession<T>(
  runtime: OwnerRuntime,
  contract: SessionContract,
  runBody: RunBody<T>,
  handle?: SessionHandle,
): Promise<T> {
  const owner = new Owner(runtime, contract, handle?.grant.session ?? runtime.newSessionId());
  try {
    let { held, attempt } = await owner.begin(handle);
    for (;;) {
      const outcome = await owner.run(held, attempt, runBody);
      if (outcome.kind === 'returned') return outcome.value;
      if (outcome.kind === 'threw') throw outcome.error;
      const { loss } = outcome;
      if (loss.code !== 'SessionLost' || contract.onLost === 'fail') throw loss.failure;
      owner.checkReacquisitions(attempt, held.grant.worker, loss);
      runtime.log('warn', 'The session was lost; its body is run again on another worker', {
        session: owner.id,
        worker: held.grant.worker,
        attempt,
        reason: loss.failure.message,
      });
      held = await owner.acquire(true);
      attempt += 1;
    }
  } finally {
    runtime.stopListening(owner.id);
  }
}

/**
 * How long the owner waits before it asks for a second lease beside the first, where the poll of a worker that died may
 * have taken the first with it; twice as long before the third.
 */
const SECOND_LEASE_AFTER_MS = 5_000;
const MAX_LEASES_AT_ONCE = 3;
/** Between leases that ended before their grant. */
const NEXT_LEASE_AFTER_MS = 1_000;
/** The first lease is awaited without a timer where the acquire timeout is at least so many lease TTLs. */
const TRIED_ONCE_FROM_TTLS = 3;

/** Acquires, watches and releases the leases of one session. */
export class Owner {
  constructor(
    private readonly runtime: OwnerRuntime,
    private readonly contract: SessionContract,
    readonly id: string,
  ) {}

  /** The session of the run before this one where there is one that lives, else an acquisition. */
  async begin(handle: SessionHandle | undefined): Promise<{ held: HeldSession; attempt: number }> {
    if (handle === undefined) return { held: await this.acquire(false), attempt: 1 };
    return (await this.takeOver(handle)) ?? { held: await this.acquire(true), attempt: handle.attempt + 1 };
  }

  /**
   * Waits for a worker. Throws `AcquireTimeout`, the cancellation of the owner, or {@link Abandoned} once nobody waits for
   * it any more.
   *
   * `wary`: a worker has died, whose open poll may swallow a lease until the lease TTL.
   */
  async acquire(wary: boolean, isAbandoned: () => boolean = () => false): Promise<HeldSession> {
    const { runtime, contract } = this;
    const acquisition = new Acquisition(runtime, contract, this.id, isAbandoned);
    runtime.listen(this.id, acquisition);
    try {
      const { lease, grant } = await acquisition.outcome(wary);
      const held = this.hold(lease, grant, runtime.now() + contract.maxDurationMs);
      for (const other of acquisition.otherGrants) held.granted(other);
      return held;
    } catch (error) {
      // Timed out, refused or cancelled. A grant that is on its way finds nobody who takes it and is released.
      runtime.stopListening(this.id);
      acquisition.cancelLeases();
      for (const grant of [acquisition.grant, ...acquisition.otherGrants])
        if (grant !== undefined) await runtime.release(grant);
      throw error;
    }
  }

  /** Adopts the session of the run before this one. Undefined when it is lost; then it is acquired anew. */
  private async takeOver(handle: SessionHandle): Promise<{ held: HeldSession; attempt: number } | undefined> {
    const { runtime, contract } = this;
    runtime.raiseEpoch(handle.epoch);
    const held = new HeldSession(runtime, contract, undefined, handle.grant, handle.expiresAtMs);
    this.listenFor(held);
    try {
      await held.adopt(handle.grant.presenceTtlMs + contract.recoveryWindowMs);
    } catch (error) {
      await this.release(held);
      throw error;
    }
    const loss = held.lost();
    if (loss === undefined) return { held, attempt: handle.attempt };
    await this.release(held);
    if (loss.code !== 'SessionLost' || contract.onLost === 'fail') throw loss.failure;
    this.checkReacquisitions(handle.attempt, handle.grant.worker, loss);
    runtime.log('warn', 'The session of the run before could not be adopted; it is acquired again', {
      session: this.id,
      worker: handle.grant.worker,
      reason: loss.failure.message,
    });
    return undefined;
  }

  /** Runs the body while the session is held, and gives the slot back whatever happens. */
  async run<T>(held: HeldSession, attempt: number, runBody: RunBody<T>): Promise<SessionOutcome<T>> {
    const end = await runBody(held, attempt);
    await this.finish(held, end);
    const loss = held.lost();
    // A body that returned although one of its pinned activities was lost has swallowed the loss: its value rests on
    // state that is gone. A loss that hit no activity does not matter any more.
    if (end.kind === 'returned') return loss !== undefined && end.hitByLoss ? { kind: 'lost', loss } : end;
    return loss === undefined ? { kind: 'threw', error: end.error } : { kind: 'lost', loss };
  }

  /** Gives the slot back when the body has ended, unless the next run adopts the session. */
  async finish(held: HeldSession, end: BodyEnd<unknown>): Promise<void> {
    // Handed over: the lease ends with this run, the slot does not.
    if (end.kind === 'threw' && end.continuesAsNew && held.handedOver && held.lost() === undefined) return;
    await this.release(held);
  }

  /** Throws when the session was lost more often than it may be acquired again. */
  checkReacquisitions(attempt: number, worker: string, loss: Loss): void {
    const { maxReacquisitions } = this.contract;
    if (attempt <= maxReacquisitions) return;
    throw this.runtime.failure(
      'SessionReacquisitionsExhausted',
      `The session ${this.id} was lost ${attempt} times, which is more than maxReacquisitions (${maxReacquisitions}) allows; last on ${worker}.`,
      loss.failure,
    );
  }

  private hold(lease: Lease, grant: Grant, expiresAtMs: number): HeldSession {
    const held = new HeldSession(this.runtime, this.contract, lease, grant, expiresAtMs);
    this.listenFor(held);
    held.watch();
    return held;
  }

  private listenFor(held: HeldSession): void {
    this.runtime.listen(this.id, {
      granted: (grant) => held.granted(grant),
      suspected: (queue) => {
        if (queue === held.grant.queue) held.suspect();
      },
      asked: (grant) => {
        if (grant.grantId !== held.grant.grantId || held.ended()) return false;
        held.suspect();
        return true;
      },
    });
  }

  /** Gives the slot back, also when the owner is cancelled. Never throws: what can not be released is left to the lease. */
  async release(held: HeldSession): Promise<void> {
    const { runtime } = this;
    held.close();
    runtime.stopListening(this.id);
    const loss = held.lost();
    let answered = false;
    if (loss === undefined || loss.workerAnswers) {
      const answers = await Promise.all([held.grant, ...held.otherGrants].map((grant) => runtime.release(grant)));
      answered = !answers.includes(false);
    }
    if (answered) return;
    // A live worker would renew a lease that nobody wants for ever.
    held.cancelLeases();
    if (loss === undefined || loss.code === 'SessionExpired') return;
    // Before the body is run again: the worker ends what still runs when it learns of the cancellation, or at its fence,
    // which falls a window after it could last have been heard of. A suspicion has waited that out already.
    if (!held.fenceHasFallen) {
      // The end of a lease that two workers had speaks for one of them.
      const isSole = held.otherGrants.length === 0;
      await runtime.untilEvenIfCancelled(
        () => isSole && held.leaseEndedByWorker(),
        Math.max(held.contract.leaseTtlMs, held.grant.presenceTtlMs) + held.contract.recoveryWindowMs,
      );
    }
  }
}

/** Ends an acquisition that nobody waits for any more. */
class Abandoned extends Error {}

/** The leases of a session that is not granted yet. */
class Acquisition implements OwnerInbox {
  grant: Grant | undefined;
  /** Grants of other workers for the same lease. */
  readonly otherGrants: Grant[] = [];
  private leases: Lease[] = [];

  constructor(
    private readonly runtime: OwnerRuntime,
    private readonly contract: SessionContract,
    private readonly session: string,
    private readonly isAbandoned: () => boolean,
  ) {}

  async outcome(wary: boolean): Promise<{ lease: Lease; grant: Grant }> {
    const { runtime, contract } = this;
    const deadlineMs = runtime.now() + contract.acquireTimeoutMs;
    // Not after a loss: it may be that very worker which is gone.
    if (!wary && contract.prefer !== null) await this.askPreferred(contract.prefer);
    let careful = wary;
    const isUnhurried = deadlineMs - runtime.now() >= TRIED_ONCE_FROM_TTLS * contract.leaseTtlMs;
    if (this.grant === undefined && !wary && isUnhurried) {
      // With room in the fleet this is all. Bounded by the timeouts of the activity, which do not begin anew as long as
      // it is tried once; a timer would be two events more in every history.
      this.schedule(contract.leaseTtlMs);
      await runtime.until(() => this.isDecided(), Number.POSITIVE_INFINITY);
      careful = this.dropEnded();
    }
    let nextLeaseMs = runtime.now();
    let pauseMs = SECOND_LEASE_AFTER_MS;
    while (this.grant === undefined) {
      // The acquire timeout is a timer of the workflow, not a timeout of the activity: schedule-to-start begins anew at
      // every retry of the server.
      const nowMs = runtime.now();
      if (nowMs >= deadlineMs) throw this.acquireTimeout();
      const mayAsk = this.leases.length === 0 || (careful && this.leases.length < MAX_LEASES_AT_ONCE);
      if (mayAsk && nowMs >= nextLeaseMs) {
        this.schedule(null);
        nextLeaseMs = nowMs + pauseMs;
        pauseMs *= 2;
        continue;
      }
      await runtime.until(
        () => this.isDecided(),
        Math.max(1, Math.min(deadlineMs, mayAsk ? nextLeaseMs : deadlineMs) - nowMs),
      );
      if (this.grant === undefined && this.isAbandoned()) throw new Abandoned();
      const openCount = this.leases.length;
      const silent = this.dropEnded();
      careful ||= silent;
      // Nothing was lost: another worker is asked, soon where this one had an answer.
      if (openCount > 0 && this.leases.length === 0) nextLeaseMs = runtime.now() + (silent ? 0 : NEXT_LEASE_AFTER_MS);
    }
    const { grant } = this;
    const lease = this.leases.find(({ epoch }) => epoch === grant.epoch)!;
    for (const other of this.leases) if (other !== lease) other.cancel();
    return { lease, grant };
  }

  /** Asks one worker on its own queue, for a while. What it grants later is released like all that nobody waits for. */
  private async askPreferred(worker: string): Promise<void> {
    const { runtime, contract } = this;
    const forMs = Math.min(contract.preferForMs, contract.acquireTimeoutMs);
    this.schedule(forMs, worker);
    // A timer beside the timeout of the activity: the open poll of a dead worker takes the task and never answers.
    await runtime.until(() => this.isDecided(), forMs);
    this.dropEnded();
    if (this.grant !== undefined) return;
    this.cancelLeases();
    this.leases = [];
  }

  cancelLeases(): void {
    for (const lease of this.leases) lease.cancel();
  }

  granted(grant: Grant): boolean {
    if (this.grant === undefined) {
      if (!this.leases.some(({ epoch }) => epoch === grant.epoch)) return false;
      this.grant = grant;
    } else if (this.grant.grantId !== grant.grantId) {
      if (this.grant.epoch !== grant.epoch) return false;
      this.otherGrants.push(grant);
    }
    return true;
  }

  suspected(): void {
    // Nothing is held yet.
  }

  asked(grant: Grant): boolean {
    return grant.grantId === this.grant?.grantId;
  }

  private schedule(scheduleToStartMs: number | null, worker: string | null = null): void {
    const { runtime, contract, session } = this;
    const epoch = runtime.nextEpoch();
    this.leases.push(runtime.scheduleLease({ kind: 'acquire', session, epoch, scheduleToStartMs, worker }, contract));
  }

  /** Whether there is a grant, a lease has ended before its grant, or nobody waits for one. */
  private isDecided(): boolean {
    return this.grant !== undefined || this.leases.some((lease) => lease.end() !== undefined) || this.isAbandoned();
  }

  /** Forgets the leases that have ended without a grant. Returns whether a worker that took one has fallen silent. */
  private dropEnded(): boolean {
    if (this.grant !== undefined) return false;
    const ends = this.leases.map((lease) => lease.end());
    this.leases = this.leases.filter((lease) => lease.end() === undefined);
    for (const end of ends) if (end?.kind === 'refused' || end?.kind === 'released') throw end.cause;
    return ends.some((end) => end?.kind === 'silent');
  }

  private acquireTimeout(): Error {
    const { contract } = this;
    return this.runtime.failure(
      'AcquireTimeout',
      `No worker of the fleet ${contract.fleet} with the capabilities "${capabilityLabel(contract.capabilities)}" granted a session within ${formatDurationMs(contract.acquireTimeoutMs)} (queue ${acquireQueue(contract.fleet, contract.capabilities)}).`,
    );
  }
}

/** How often an adoption is tried whose lease fell silent before its grant; the worker is asked before each further one. */
const MAX_ADOPT_TRIES = 5;

/** A session that is held by a worker, from the grant to the release. */
export class HeldSession {
  private loss: Loss | undefined;
  private readonly lossListeners = new Set<(loss: Loss) => void>();
  /** Grants of other workers for the same lease: a workflow reset made the server dispatch it twice. */
  readonly otherGrants: Grant[] = [];
  private readonly leases: Lease[] = [];
  private adoption: { readonly epoch: number; granted?: Grant } | undefined;
  private suspicion: Promise<void> | undefined;
  private closed = false;
  /** Whether the owner has waited long enough after the worker was last heard of. */
  fenceHasFallen = false;
  /** Whether the body has taken a handle, to be adopted by the next run. */
  handedOver = false;

  constructor(
    private readonly runtime: OwnerRuntime,
    readonly contract: SessionContract,
    lease: Lease | undefined,
    public grant: Grant,
    readonly expiresAtMs: number,
  ) {
    if (lease !== undefined) this.leases.push(lease);
  }

  /** The newest lease. Leases of older epochs are ignored. */
  private get lease(): Lease | undefined {
    return this.leases.at(-1);
  }

  lost(): Loss | undefined {
    return this.loss;
  }

  ended(): boolean {
    return this.closed || this.loss !== undefined;
  }

  /** Calls the listener once, now or when the session is lost. Returns what forgets it. */
  onLoss(listener: (loss: Loss) => void): () => void {
    if (this.loss === undefined) this.lossListeners.add(listener);
    else listener(this.loss);
    return () => {
      this.lossListeners.delete(listener);
    };
  }

  lose(code: Loss['code'], failure: Error, workerAnswers: boolean): void {
    if (this.ended()) return;
    this.loss = { code, failure, workerAnswers };
    for (const listener of [...this.lossListeners]) listener(this.loss);
  }

  /** Nothing that comes from now on changes the session. */
  close(): void {
    this.closed = true;
  }

  cancelLeases(): void {
    for (const lease of this.leases) lease.cancel();
  }

  /** Whether the worker itself has ended the newest lease, which it does once the session's attempts have ended. */
  leaseEndedByWorker(): boolean {
    const end = this.lease?.end();
    return end !== undefined && end.kind !== 'silent' && end.kind !== 'not-taken';
  }

  handle(attempt: number): SessionHandle {
    this.handedOver = true;
    const epoch = Math.max(this.grant.epoch, ...this.leases.map((lease) => lease.epoch));
    return { version: 1, grant: this.grant, epoch, attempt, expiresAtMs: this.expiresAtMs };
  }

  /** Returns whether the grant is for this session; the same one may come twice. */
  granted(grant: Grant): boolean {
    if (this.adoption?.epoch === grant.epoch && grant.grantId === this.grant.grantId) {
      this.adoption.granted = grant;
      return true;
    }
    if (grant.grantId === this.grant.grantId) return true;
    if (grant.epoch !== this.lease?.epoch) return false;
    this.otherGrants.push(grant);
    this.lose(
      'SessionLost',
      this.runtime.failure(
        'SessionLost',
        `The session ${grant.session} was granted a second time, by ${grant.worker}, while ${this.grant.worker} held it.`,
      ),
      true,
    );
    return true;
  }

  /** Acts when the newest lease ends by itself. To be called for each lease. */
  watch(): void {
    const { lease } = this;
    if (lease === undefined) return;
    void this.runtime
      .untilEvenIfCancelled(() => lease.end() !== undefined || this.ended(), Number.POSITIVE_INFINITY)
      .then(() => {
        const end = lease.end();
        if (this.ended() || end === undefined || lease !== this.lease || this.suspicion !== undefined) return;
        if (end.kind === 'silent') this.suspect();
        else this.loseByEnd(end);
      });
  }

  /** The worker may be gone: asks it, and gives the session up when there is no answer within the recovery window. */
  suspect(): void {
    if (this.ended() || this.suspicion !== undefined) return;
    this.suspicion = this.recover().finally(() => {
      this.suspicion = undefined;
      // The lease may have ended while the worker was asked.
      if (!this.ended() && this.lease?.end() !== undefined) this.watch();
    });
  }

  private async recover(): Promise<void> {
    const { contract, grant } = this;
    if (this.lease === undefined || !(await this.isConfirmed())) return;
    // What the worker has ended by its own word counts as that, once this suspicion is over.
    if (this.lease.end() === undefined || this.leaseEndedByWorker()) return;
    await this.adopt(grant.presenceTtlMs + contract.recoveryWindowMs);
  }

  /**
   * Asks the worker whether it holds the session, and loses the session when it does not say so in time. A question is
   * short: one that the open poll of a dead worker takes is asked again, where an adoption would wait for its lease TTL.
   */
  private async isConfirmed(): Promise<boolean> {
    const { runtime, contract, grant } = this;
    for (;;) {
      // Where the lease has timed out nobody may have noticed the worker's absence: its presence may still be fresh.
      const silent = this.lease?.end() !== undefined;
      const windowMs = contract.recoveryWindowMs + (silent ? grant.presenceTtlMs : 0);
      const answer = await runtime.confirm(grant, windowMs);
      if (this.ended()) return false;
      if (answer === 'held' || this.leaseEndedByWorker()) return true;
      if (!silent && answer === 'no-answer' && this.lease?.end() !== undefined) continue;
      // The fence of the worker counts from what the server has last answered, which a question that failed is not; one
      // that says no has ended the attempts.
      this.fenceHasFallen = true;
      this.loseBy(
        answer === 'unknown'
          ? 'The worker no longer holds it.'
          : `The worker was suspected, and did not answer within ${formatDurationMs(windowMs)}.`,
        this.lease?.end()?.cause,
      );
      return false;
    }
  }

  /** Makes a new lease on the worker that had the session; loses the session when it can not be had. */
  async adopt(scheduleToStartMs: number): Promise<void> {
    const { runtime, contract } = this;
    for (let tries = 1; !this.ended(); tries += 1) {
      const durationMs = this.expiresAtMs - runtime.now();
      if (durationMs <= 0) {
        this.lose('SessionExpired', this.expiredFailure(), true);
        return;
      }
      const adoption: { readonly epoch: number; granted?: Grant } = { epoch: runtime.nextEpoch() };
      this.adoption = adoption;
      const lease = runtime.scheduleLease(
        { kind: 'adopt', epoch: adoption.epoch, grant: this.grant, scheduleToStartMs, durationMs },
        contract,
      );
      this.leases.push(lease);
      await runtime.untilEvenIfCancelled(
        () => adoption.granted !== undefined || lease.end() !== undefined || this.ended(),
        Number.POSITIVE_INFINITY,
      );
      if (this.ended()) return;
      if (adoption.granted !== undefined) {
        this.grant = adoption.granted;
        runtime.log('info', 'The session was adopted', { session: this.grant.session, worker: this.grant.worker });
        this.watch();
        return;
      }
      const end = lease.end()!;
      if (end.kind === 'silent' && tries < MAX_ADOPT_TRIES) {
        // The worker took it and fell silent once more, or its open poll did.
        if (await this.isConfirmed()) continue;
        return;
      }
      // A worker that took it and fell silent goes on until a window after that.
      this.fenceHasFallen = end.kind === 'not-taken';
      this.loseByEnd(end);
      return;
    }
  }

  private loseByEnd(end: LeaseEnd): void {
    if (end.kind === 'expired') this.lose('SessionExpired', this.expiredFailure(end.message, end.cause), true);
    else if (end.kind === 'released') this.lose('SessionReleased', this.releasedFailure(end.message, end.cause), false);
    else this.loseBy(end.message, end.cause);
  }

  /** The worker itself, or its silence, says that it does not hold the session any more. */
  loseBy(reason: string, cause?: Error): void {
    const { grant } = this;
    this.lose(
      'SessionLost',
      this.runtime.failure('SessionLost', `The session ${grant.session} on ${grant.worker} was lost. ${reason}`, cause),
      false,
    );
  }

  private releasedFailure(reason: string, cause: Error): Error {
    const { grant } = this;
    return this.runtime.failure(
      'SessionReleased',
      `The session ${grant.session} on ${grant.worker} was ended by an operator. ${reason}`,
      cause,
    );
  }

  private expiredFailure(reason?: string, cause?: Error): Error {
    const { grant, contract } = this;
    const why = reason ?? `It reached its maximum duration of ${formatDurationMs(contract.maxDurationMs)}.`;
    return this.runtime.failure(
      'SessionExpired',
      `The session ${grant.session} on ${grant.worker} has expired. ${why}`,
      cause,
    );
  }
}
