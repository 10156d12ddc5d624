/**
 * `withSession`: acquire a worker, run the body with its activities pinned there, release in the end whatever happens.
 *
 * This file is the owner's side of the session protocol and can be read from top to bottom: acquire → hold → run the
 * body → release, and redo when the worker is lost. The daemon's side is `daemon/session-keeper.ts`.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  isCancellation,
  log,
  proxyActivities,
  uuid4,
} from '@temporalio/workflow';
import type { ActivityOptions } from '@temporalio/common';
import { formatDurationMs } from '../contract/duration.js';
import { capabilityLabel, acquireQueue, sessionActivityId } from '../contract/names.js';
import { SESSION_DEFAULTS, type Grant } from '../contract/session.js';
import { sessionFailure } from './failures.js';
import { releaseGrant, stopTakingGrants, takeGrants } from './grants.js';
import { type Lease, type LeaseEnd, scheduleLease } from './lease.js';
import type { RoutedActivities } from './routing.js';
import { sessionContract, type SessionContract, type SessionOptions } from './options.js';

/**
 * Options of pinned activities: Temporal's own, less what the session decides.
 *
 * `heartbeatTimeout` is 30 seconds unless given; the executor heartbeats by itself, so that an activity need not.
 */
export type PinnedActivityOptions = Omit<
  ActivityOptions,
  'taskQueue' | 'activityId' | 'allowEagerDispatch' | 'versioningIntent'
>;

/** A session that is held: what the body of {@link withSession} receives. */
export interface Session {
  /** Unique within the workflow run; the same over a redo. */
  readonly id: string;
  /** The name of the worker that holds it, such as `worker-7`. */
  readonly worker: string;
  /** The unique task queue of that worker, for `workerActivities`. */
  readonly queue: string;
  /** 1 for the first run of the body, 2 after the first redo, and so on. */
  readonly attempt: number;
  /**
   * Activities that run on the worker that holds the session, one after the other or side by side.
   *
   * They reject with `SessionLost` or `SessionExpired` when the session ends under them. Every other failure is theirs:
   * it is retried in place by `retry` and never moves the session.
   */
  proxyActivities<A = Record<string, never>>(options: PinnedActivityOptions): RoutedActivities<A>;
}

/**
 * Runs `body` with a session: a sequence of activities pinned to one worker, which keeps local state between them.
 *
 * The slot is given back when the body ends, however it ends. If the worker is lost, another is acquired and the body is
 * run again from its start (`onLost: 'redo'`), so the body must be repeatable. Business errors of activities are never
 * taken for a lost worker.
 *
 * @throws `ApplicationFailure` with one of the types `AcquireTimeout`, `SessionLost` (with `onLost: 'fail'`),
 * `SessionReacquisitionsExhausted`, `SessionExpired`, `SessionOptionsInvalid`; and whatever the body throws.
 */
export async function withSession<T>(options: SessionOptions, body: (session: Session) => Promise<T>): Promise<T> {
  const contract = sessionContract(options);
  const owner = new Owner(contract);
  try {
    for (let attempt = 1; ; attempt += 1) {
      const held = await owner.acquire();
      const outcome = await runBody(held, attempt, body);
      await owner.release(held);
      if (outcome.kind === 'returned') return outcome.value;
      if (outcome.kind === 'threw') throw outcome.error;
      const { loss } = outcome;
      if (loss.code === 'SessionExpired' || contract.onLost === 'fail') throw loss.failure;
      if (attempt > contract.maxReacquisitions) {
        throw sessionFailure(
          'SessionReacquisitionsExhausted',
          `The session ${owner.id} was lost ${attempt} times, which is more than maxReacquisitions (${contract.maxReacquisitions}) allows; last on ${held.grant.worker}.`,
          loss.failure,
        );
      }
      log.warn('The session was lost; its body is run again on another worker', {
        session: owner.id,
        worker: held.grant.worker,
        attempt,
        reason: loss.failure.message,
      });
    }
  } finally {
    stopTakingGrants(owner.id);
  }
}

/** Why a held session ended under its body. */
interface Loss {
  readonly code: 'SessionLost' | 'SessionExpired';
  readonly failure: ApplicationFailure;
  /** Whether the worker may still hold the session and answers on its control queue. */
  readonly workerAnswers: boolean;
}

/** A session that is held by a worker, from the grant to the release. */
class HeldSession {
  private loss: Loss | undefined;
  private readonly lossListeners: ((loss: Loss) => void)[] = [];
  /** Another grant for the same lease: a workflow reset made the server dispatch it twice. */
  readonly otherGrants: Grant[] = [];

  constructor(
    readonly contract: SessionContract,
    readonly lease: Lease,
    readonly grant: Grant,
  ) {
    void lease.ended.then((end) => {
      this.lose(lossOfLease(this, end));
    });
  }

  lose(loss: Loss): void {
    if (this.loss !== undefined) return;
    this.loss = loss;
    for (const listener of this.lossListeners) listener(loss);
  }

  lost(): Loss | undefined {
    return this.loss;
  }

  onLoss(listener: (loss: Loss) => void): void {
    if (this.loss === undefined) this.lossListeners.push(listener);
    else listener(this.loss);
  }
}

/** Lease epochs never repeat within a run: an activity id that is used again stops the workflow while the old one is open. */
let lastEpoch = 0;

/** Acquires and releases the leases of one session. */
class Owner {
  readonly id = uuid4().replaceAll('-', '').slice(0, 12);

  constructor(private readonly contract: SessionContract) {}

  /** Waits for a worker. Throws `AcquireTimeout`, or Temporal's `CancelledFailure` when the owner is cancelled. */
  async acquire(): Promise<HeldSession> {
    const { contract } = this;
    const deadlineMs = Date.now() + contract.acquireTimeoutMs;
    for (;;) {
      lastEpoch += 1;
      const lease = scheduleLease(this.id, lastEpoch, contract);
      let granted: Grant | undefined;
      takeGrants(this.id, (grant) => {
        if (grant.epoch !== lease.epoch || granted !== undefined) return granted?.grantId === grant.grantId;
        granted = grant;
        return true;
      });
      try {
        // The acquire timeout is a timer of the workflow, not a timeout of the activity: schedule-to-start begins anew
        // at every retry of the server.
        const inTime = await condition(
          () => granted !== undefined || lease.end() !== undefined,
          Math.max(1, deadlineMs - Date.now()),
        );
        if (granted !== undefined) return this.hold(lease, granted);
        if (!inTime) throw acquireTimeout(contract);
      } catch (error) {
        // Timed out or cancelled. A grant that is on its way finds nobody who takes it and is released.
        stopTakingGrants(this.id);
        lease.cancel();
        if (granted !== undefined) await releaseGrant(granted);
        throw error;
      }
      // The lease ended before its grant: nothing was lost, another worker is asked. What a worker refuses for good,
      // such as a request it can not read, every other one would refuse too.
      const end = lease.end();
      if (end?.refused !== undefined) throw end.refused;
    }
  }

  private hold(lease: Lease, grant: Grant): HeldSession {
    const held = new HeldSession(this.contract, lease, grant);
    takeGrants(this.id, (other) => {
      if (other.epoch !== lease.epoch) return false;
      if (other.grantId === grant.grantId) return true;
      held.otherGrants.push(other);
      held.lose({
        code: 'SessionLost',
        workerAnswers: true,
        failure: sessionFailure(
          'SessionLost',
          `The session ${this.id} was granted a second time, by ${other.worker}, while ${grant.worker} held it.`,
        ),
      });
      return true;
    });
    return held;
  }

  /** Gives the slot back, also when the owner is cancelled. Never throws: what can not be released is left to the lease. */
  async release(held: HeldSession): Promise<void> {
    stopTakingGrants(this.id);
    const loss = held.lost();
    if (loss !== undefined && !loss.workerAnswers) {
      // A live worker would renew a lease that nobody wants for ever.
      held.lease.cancel();
      return;
    }
    const answers = await Promise.all([held.grant, ...held.otherGrants].map((grant) => releaseGrant(grant)));
    if (answers.includes(false)) held.lease.cancel();
  }
}

type Outcome<T> =
  | { readonly kind: 'returned'; readonly value: T }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'lost'; readonly loss: Loss };

/** Runs the body in a scope of its own, which is cancelled when the session is lost, and waits until it has ended. */
async function runBody<T>(
  held: HeldSession,
  attempt: number,
  body: (session: Session) => Promise<T>,
): Promise<Outcome<T>> {
  const scope = new CancellationScope({ cancellable: true });
  const pinned = new PinnedCalls(held);
  held.onLoss(() => {
    scope.cancel();
  });
  const session: Session = {
    id: held.grant.session,
    worker: held.grant.worker,
    queue: held.grant.queue,
    attempt,
    proxyActivities: (options) => pinned.proxy(options),
  };
  try {
    const value = await scope.run(() => body(session));
    // A body that returned although one of its pinned activities was lost has swallowed the loss: its value rests on
    // state that is gone. A loss that hit no activity does not matter any more.
    const loss = held.lost();
    return loss !== undefined && pinned.hitByLoss ? { kind: 'lost', loss } : { kind: 'returned', value };
  } catch (error) {
    const loss = held.lost();
    return loss === undefined ? { kind: 'threw', error } : { kind: 'lost', loss };
  }
}

/** The pinned activities of one run of the body. */
class PinnedCalls {
  /** Whether a pinned activity was rejected because the session was lost. */
  hitByLoss = false;
  private count = 0;

  constructor(private readonly held: HeldSession) {}

  proxy<A>(options: PinnedActivityOptions): RoutedActivities<A> {
    return new Proxy(
      {},
      {
        get: (_, activityType) => {
          if (typeof activityType !== 'string') {
            throw new TypeError(`Only strings are supported for activity types, got: ${String(activityType)}`);
          }
          return (...args: unknown[]) => this.call(activityType, args, options);
        },
      },
    ) as RoutedActivities<A>;
  }

  private async call(activityType: string, args: unknown[], options: PinnedActivityOptions): Promise<unknown> {
    const { held } = this;
    const before = held.lost();
    if (before !== undefined) throw this.hit(before);
    this.count += 1;
    const activities = proxyActivities<Record<string, (...args: unknown[]) => Promise<unknown>>>({
      heartbeatTimeout: SESSION_DEFAULTS.pinnedHeartbeatTimeoutMs,
      ...options,
      taskQueue: held.grant.queue,
      activityId: sessionActivityId({ session: held.grant.session, epoch: held.grant.epoch, step: String(this.count) }),
    });
    const lost = new Promise<never>((_, reject) => {
      held.onLoss((loss) => {
        reject(this.hit(loss));
      });
    });
    // The loss must reject at once, with its type, and not with the bare cancellation that follows from it.
    lost.catch(() => undefined);
    try {
      return await Promise.race([lost, activities[activityType]!(...args)]);
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal !== undefined) {
        held.lose({ code: 'SessionLost', failure: lostFailure(held, refusal.message, refusal), workerAnswers: false });
      }
      const after = held.lost();
      if (after !== undefined && (refusal !== undefined || isCancellation(error))) throw this.hit(after);
      throw error;
    }
  }

  private hit(loss: Loss): ApplicationFailure {
    this.hitByLoss = true;
    return loss.failure;
  }
}

/** The worker's own word that it does not hold the session, which is a loss although the lease has not ended yet. */
function refusalOf(error: unknown): ApplicationFailure | undefined {
  if (!(error instanceof ActivityFailure)) return undefined;
  const { cause } = error;
  return cause instanceof ApplicationFailure && cause.type === 'SessionLost' ? cause : undefined;
}

function lossOfLease(held: HeldSession, end: LeaseEnd): Loss {
  if (end.kind === 'expired') {
    const failure = sessionFailure(
      'SessionExpired',
      `The session ${held.grant.session} on ${held.grant.worker} reached its maximum duration of ${formatDurationMs(held.contract.maxDurationMs)}.`,
      end.cause,
    );
    return { code: 'SessionExpired', failure, workerAnswers: true };
  }
  return { code: 'SessionLost', failure: lostFailure(held, end.message, end.cause), workerAnswers: false };
}

function lostFailure(held: HeldSession, reason: string, cause?: Error): ApplicationFailure {
  return sessionFailure(
    'SessionLost',
    `The session ${held.grant.session} on ${held.grant.worker} was lost. ${reason}`,
    cause,
  );
}

function acquireTimeout(contract: SessionContract): ApplicationFailure {
  return sessionFailure(
    'AcquireTimeout',
    `No worker of the fleet ${contract.fleet} with the capabilities "${capabilityLabel(contract.capabilities)}" granted a session within ${formatDurationMs(contract.acquireTimeoutMs)} (queue ${acquireQueue(contract.fleet, contract.capabilities)}).`,
  );
}
