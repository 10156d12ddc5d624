/**
 * `withSession`: acquire a worker, run the body with its activities pinned there, release in the end whatever happens.
 *
 * Owns the body: its scope, its pinned activities and what they reject with. The protocol is in `owner.ts`.
 */
import {
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  CancellationScope,
  ContinueAsNew,
  isCancellation,
  proxyActivities,
} from '@temporalio/workflow';
import type { Priority } from '@temporalio/common';
import { capabilityLabel, pinnedStep, sessionActivityId } from '../contract/names.js';
import { SESSION_DEFAULTS, type SessionHandle } from '../contract/session.js';
import { type Affinity, ownAffinity } from './affinity.js';
import { sessionFailure } from './failures.js';
import { type BodyEnd, type HeldSession, type Loss, ownSession } from './owner.js';
import { sessionContract, type SessionOptions } from './options.js';
import { workflowRuntime } from './runtime.js';
import type { RoutedActivities } from './routing.js';

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
  /** Unique within the workflow run; the same over a redo and over a hand-over to the next run. */
  readonly id: string;
  /** The name of the worker that holds it, such as `worker-7`; with `rediscover` the one that holds it now. */
  readonly worker: string;
  /** The unique task queue of that worker, for `workerActivities`. */
  readonly queue: string;
  /** How many times the session was acquired: 1 at first, 2 after the first loss that was followed by another worker. */
  readonly attempt: number;
  /**
   * Activities that run on the worker that holds the session, one after the other or side by side.
   *
   * They reject with `SessionLost`, `SessionExpired` or `SessionReleased` when the session ends under them; with
   * `onLost: 'rediscover'` a call that is hit by a loss is run again on the next worker instead. Every other failure is
   * theirs: it is retried in place by `retry` and never moves the session. The death of the executor and a fence count as
   * attempts there.
   */
  proxyActivities<A = Record<string, never>>(options: PinnedActivityOptions): RoutedActivities<A>;
  /**
   * The session as a value, for the next run of a workflow that continues as new: pass it to `continueAsNew` as an
   * argument, from within the body, and give it to `withSession` there as `handle`. The session is then not released but
   * adopted, with what remains of its duration.
   */
  handle(): SessionHandle;
}

/** How many sessions of this run are held or awaited. */
let openSessions = 0;

/**
 * Runs `body` with a session: a sequence of activities pinned to one worker, which keeps local state between them.
 *
 * The slot is given back when the body ends, however it ends. If the worker is lost, another is acquired and the body is
 * run again from its start (`onLost: 'redo'`), so the body must be repeatable; or the body goes on, and only the calls that the
 * loss hit are run again (`onLost: 'rediscover'`). Business errors of activities are never taken for a lost worker.
 *
 * @throws `ApplicationFailure` with one of the types `AcquireTimeout`, `SessionLost` (with `onLost: 'fail'`),
 * `SessionReacquisitionsExhausted`, `SessionExpired`, `SessionReleased`, `SessionNested`, `SessionOptionsInvalid`; and whatever the body
 * throws.
 */
export async function withSession<T>(options: SessionOptions, body: (session: Session) => Promise<T>): Promise<T> {
  const contract = sessionContract(options);
  if (openSessions > 0 && options.allowConcurrentSessions !== true) {
    throw sessionFailure(
      'SessionNested',
      `A second session (capabilities "${capabilityLabel(contract.capabilities)}") was asked for while this workflow holds or awaits one: two owners that each hold one and wait for the other's would wait until one of them times out. Use one after the other, or set allowConcurrentSessions in its options.`,
    );
  }
  openSessions += 1;
  try {
    if (contract.onLost === 'rediscover') {
      return await ownAffinity(workflowRuntime, contract, (affinity) => runOnce(affinity, body), options.handle);
    }
    return await ownSession(workflowRuntime, contract, (held, attempt) => runBody(held, attempt, body), options.handle);
  } finally {
    openSessions -= 1;
  }
}

/** Runs the body in a scope of its own, which is cancelled when the session is lost, and waits until it has ended. */
async function runBody<T>(
  held: HeldSession,
  attempt: number,
  body: (session: Session) => Promise<T>,
): Promise<BodyEnd<T> & { hitByLoss: boolean }> {
  const scope = new CancellationScope({ cancellable: true });
  const pinned = new PinnedCalls((call) => call(held));
  held.onLoss(() => {
    scope.cancel();
  });
  const session: Session = {
    id: held.grant.session,
    worker: held.grant.worker,
    queue: held.grant.queue,
    attempt,
    proxyActivities: (options) => pinned.proxy(options),
    handle: () => held.handle(attempt),
  };
  try {
    const value = await scope.run(() => body(session));
    return { kind: 'returned', value, hitByLoss: pinned.hitByLoss };
  } catch (error) {
    return { kind: 'threw', error, continuesAsNew: error instanceof ContinueAsNew, hitByLoss: pinned.hitByLoss };
  }
}

/** Runs the body in a scope of its own, which is cancelled when the session ends without another to follow. */
async function runOnce<T>(affinity: Affinity, body: (session: Session) => Promise<T>): Promise<BodyEnd<T>> {
  const scope = new CancellationScope({ cancellable: true });
  affinity.onEnd(() => {
    scope.cancel();
  });
  const pinned = new PinnedCalls((call) => affinity.call((held) => droppedAtLoss(held, call)));
  const session: Session = {
    id: affinity.held.grant.session,
    get worker() {
      return affinity.held.grant.worker;
    },
    get queue() {
      return affinity.held.grant.queue;
    },
    get attempt() {
      return affinity.attempt;
    },
    proxyActivities: (options) => pinned.proxy(options),
    handle: () => affinity.handle(),
  };
  try {
    return { kind: 'returned', value: await scope.run(() => body(session)) };
  } catch (error) {
    return { kind: 'threw', error, continuesAsNew: error instanceof ContinueAsNew };
  }
}

/**
 * Runs a call in a scope of its own, which is cancelled at the loss: since the body goes on, nobody else would take its
 * activity off the queue of the worker that is lost.
 */
async function droppedAtLoss(held: HeldSession, call: PinnedCall): Promise<unknown> {
  const scope = new CancellationScope({ cancellable: true });
  // What the cancellation rejects at once is told apart by the loss, which is there already.
  const forget = held.onLoss(() => {
    scope.cancel();
  });
  try {
    return await scope.run(() => call(held));
  } finally {
    forget();
  }
}

/** A pinned call on the acquisition that it is given. */
type PinnedCall = (held: HeldSession) => Promise<unknown>;

/** Numbers the pinned calls of a run; a session that is adopted by the next run goes on with ids of another run. */
let pinnedCount = 0;

/** The pinned activities of one run of the body. */
class PinnedCalls {
  /** Whether a pinned activity was rejected because the session was lost. */
  hitByLoss = false;

  /** `place` runs a call on an acquisition of the session, and rejects with what the call rejected with. */
  constructor(private readonly place: (call: PinnedCall) => Promise<unknown>) {}

  proxy<A>(options: PinnedActivityOptions): RoutedActivities<A> {
    return new Proxy(
      {},
      {
        get: (_, activityType) => {
          if (typeof activityType !== 'string') {
            throw new TypeError(`Only strings are supported for activity types, got: ${String(activityType)}`);
          }
          return (...args: unknown[]) => this.place((held) => this.call(held, activityType, args, options));
        },
      },
    ) as RoutedActivities<A>;
  }

  private call(
    held: HeldSession,
    activityType: string,
    args: unknown[],
    options: PinnedActivityOptions,
  ): Promise<unknown> {
    const before = held.lost();
    if (before !== undefined) return Promise.reject(this.hit(before));
    pinnedCount += 1;
    const activities = proxyActivities<Record<string, (...args: unknown[]) => Promise<unknown>>>({
      heartbeatTimeout: SESSION_DEFAULTS.pinnedHeartbeatTimeoutMs,
      ...(held.contract.priority === undefined ? {} : { priority: held.contract.priority as Priority }),
      ...options,
      taskQueue: held.grant.queue,
      activityId: sessionActivityId({
        session: held.grant.session,
        epoch: held.grant.epoch,
        step: pinnedStep(pinnedCount, held.grant.grantId),
      }),
    });
    return new Promise((resolve, reject) => {
      // The loss rejects at once, with its type, and not with the bare cancellation that follows from it.
      const forget = held.onLoss((loss) => {
        reject(this.hit(loss));
      });
      activities[activityType]!(...args).then(
        (value) => {
          forget();
          resolve(value);
        },
        (error: unknown) => {
          forget();
          reject(this.failureOf(held, error));
        },
      );
    });
  }

  /** What a pinned activity that failed is rejected with: its own failure, unless the session is over. */
  private failureOf(held: HeldSession, error: unknown): Error {
    const refusal = refusalOf(error);
    if (refusal !== undefined) {
      const { code } = refusal;
      held.lose(
        code,
        sessionFailure(
          code,
          `The session ${held.grant.session} on ${held.grant.worker} ${WHAT_HAPPENED[code]}. ${refusal.failure.message}`,
          refusal.failure,
        ),
        true,
      );
    }
    const loss = held.lost();
    return loss !== undefined && (refusal !== undefined || isCancellation(error)) ? this.hit(loss) : (error as Error);
  }

  private hit(loss: Loss): Error {
    this.hitByLoss = true;
    return loss.failure;
  }
}

/** The worker's own word that it does not hold the session, which is a loss although the lease has not ended yet. */
function refusalOf(error: unknown): { code: Loss['code']; failure: ApplicationFailure } | undefined {
  if (!(error instanceof ActivityFailure)) return undefined;
  const { cause } = error;
  if (!(cause instanceof ApplicationFailure)) return undefined;
  const code = LOSS_CODES.find((each) => each === cause.type);
  return code === undefined ? undefined : { code, failure: cause };
}

const WHAT_HAPPENED = {
  SessionLost: 'was lost',
  SessionExpired: 'has expired',
  SessionReleased: 'was ended by an operator',
} as const satisfies Record<Loss['code'], string>;
const LOSS_CODES = Object.keys(WHAT_HAPPENED) as Loss['code'][];
