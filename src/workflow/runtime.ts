/**
 * Temporal as the owner of a session sees it: leases and questions are activities, grants are signals, waits are
 * conditions. Decides nothing; the protocol is in `owner.ts`.
 *
 * State of the module is state of the workflow: the sandbox gives every workflow execution its own copy.
 */
import {
  ActivityCancellationType,
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  CancellationScope,
  condition,
  defineSignal,
  log,
  proxyActivities,
  setHandler,
  TimeoutFailure,
  uuid4,
} from '@temporalio/workflow';
import { acquireQueue, acquireQueueOf, controlQueueOf, sessionActivityId } from '../contract/names.js';
import {
  ADOPT_ACTIVITY,
  type AdoptRequest,
  ASK_SIGNAL,
  CONFIRM_ACTIVITY,
  type ConfirmRequest,
  EXPIRY_BACKSTOP_MS,
  type Grant,
  GRANT_SIGNAL,
  LEASE_ACTIVITY,
  type LeaseArguments,
  RELEASE_ACTIVITY,
  RELEASE_HEARTBEAT_TIMEOUT_MS,
  RELEASE_SCHEDULE_TO_START_MS,
  RELEASE_START_TO_CLOSE_MS,
  type ReleaseRequest,
  SUSPECTED_SIGNAL,
  type Suspicion,
} from '../contract/session.js';
import { sessionFailure } from './failures.js';
import type { Confirmation, Lease, LeaseEnd, LeaseSpec, OwnerInbox, OwnerRuntime, SessionContract } from './owner.js';

/** Between attempts on a full fleet; short, since a slot may be free at any moment, and no history event is written. */
const ACQUIRE_RETRY = { initialInterval: 200, backoffCoefficient: 1.5, maximumInterval: 5_000 };
/** A question that the worker took but did not answer; it only looks into its memory. */
const CONFIRM_START_TO_CLOSE_MS = 2_000;

const grantSignal = defineSignal<[Grant]>(GRANT_SIGNAL);
const suspectedSignal = defineSignal<[Suspicion]>(SUSPECTED_SIGNAL);
const askSignal = defineSignal<[Grant]>(ASK_SIGNAL);

const inboxes = new Map<string, OwnerInbox>();
let listening = false;
/** Lease epochs never repeat within a run: an activity id that is used again stops the workflow while the old one is open. */
let lastEpoch = 0;
let questionCount = 0;

/** One set of handlers per workflow run. A grant or a question that nobody takes is answered with a release. */
function listenForSignals(): void {
  if (listening) return;
  listening = true;
  const releaseUnwanted = (grant: Grant): void => {
    log.info('A worker holds a session that nobody waits for; it is released', {
      session: grant.session,
      worker: grant.worker,
    });
    void release(grant);
  };
  setHandler(grantSignal, (grant) => {
    if (inboxes.get(grant.session)?.granted(grant) !== true) releaseUnwanted(grant);
  });
  setHandler(askSignal, (grant) => {
    if (inboxes.get(grant.session)?.asked(grant) !== true) releaseUnwanted(grant);
  });
  setHandler(suspectedSignal, ({ queue }) => {
    for (const inbox of inboxes.values()) inbox.suspected(queue);
  });
}

export const workflowRuntime: OwnerRuntime = {
  now: () => Date.now(),
  newSessionId: () => uuid4().replaceAll('-', '').slice(0, 12),
  nextEpoch: () => {
    lastEpoch += 1;
    return lastEpoch;
  },
  raiseEpoch: (epoch) => {
    lastEpoch = Math.max(lastEpoch, epoch);
  },
  scheduleLease,
  confirm,
  release,
  until,
  untilEvenIfCancelled: (done, timeoutMs) => shield().run(() => until(done, timeoutMs)),
  listen(session, inbox) {
    inboxes.set(session, inbox);
    listenForSignals();
  },
  stopListening(session) {
    inboxes.delete(session);
  },
  failure: sessionFailure,
  log: (level, message, fields) => {
    log[level](message, { ...fields });
  },
};

/**
 * What a cancellation of the workflow does not reach. One scope for all of it: the SDK notes a stack trace for every promise
 * of a workflow, which makes promises, and the scopes made of them, the dearest part of a session's workflow tasks.
 */
let shielded: CancellationScope | undefined;
function shield(): CancellationScope {
  shielded ??= new CancellationScope({ cancellable: false });
  return shielded;
}

function until(done: () => boolean, timeoutMs: number): Promise<boolean> {
  return Number.isFinite(timeoutMs) ? condition(done, timeoutMs) : condition(done).then(() => true);
}

function scheduleLease(spec: LeaseSpec, contract: SessionContract): Lease {
  let end: LeaseEnd | undefined;
  // The lease must outlive a cancellation of the owner, which still has to release; only cancel() below ends it early.
  const scope = new CancellationScope({ cancellable: true, parent: shield() });
  void scope
    .run(() => callLease(spec, contract))
    .then(
      () => {
        end = { kind: 'given-up', message: 'The worker ended the lease.', cause: undefined };
      },
      (error: unknown) => {
        end = leaseEnd(error);
      },
    );
  return {
    epoch: spec.epoch,
    end: () => end,
    cancel: () => {
      scope.cancel();
    },
  };
}

function callLease(spec: LeaseSpec, contract: SessionContract): Promise<void> {
  const common = {
    heartbeatTimeout: contract.leaseTtlMs,
    // What cancels the lease wants to know when the worker has really let go of the session.
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ...(contract.priority === undefined
      ? {}
      : { priority: contract.priority as NonNullable<ActivityOptions['priority']> }),
  } as const satisfies ActivityOptions;
  // "Full" is retried by the server without a history event, while a dead worker fails the lease at once.
  const nonRetryableErrorTypes = ['TemporalTimeout:Heartbeat', 'TemporalTimeout:StartToClose'];
  if (spec.kind === 'acquire') {
    const request: LeaseArguments = {
      maxDurationMs: contract.maxDurationMs,
      recoveryWindowMs: contract.recoveryWindowMs,
      ...(contract.idleTimeoutMs === null ? {} : { idleTimeoutMs: contract.idleTimeoutMs }),
      ...(spec.worker === null ? {} : { capabilities: contract.capabilities }),
      ...stateOf(contract),
    };
    const acquire = proxyActivities<{ [LEASE_ACTIVITY]: (request: LeaseArguments) => Promise<void> }>({
      ...common,
      taskQueue:
        spec.worker === null
          ? acquireQueue(contract.fleet, contract.capabilities)
          : acquireQueueOf(contract.fleet, spec.worker),
      activityId: sessionActivityId({ session: spec.session, epoch: spec.epoch, step: 'lease' }),
      startToCloseTimeout: contract.maxDurationMs + EXPIRY_BACKSTOP_MS,
      ...(spec.scheduleToStartMs === null
        ? { retry: { ...ACQUIRE_RETRY, nonRetryableErrorTypes } }
        : { retry: { maximumAttempts: 1 }, scheduleToStartTimeout: spec.scheduleToStartMs }),
    });
    return acquire[LEASE_ACTIVITY](request);
  }
  const { session, grantId, queue } = spec.grant;
  const adopt = proxyActivities<{ [ADOPT_ACTIVITY]: (request: AdoptRequest) => Promise<void> }>({
    ...common,
    taskQueue: controlQueueOf(queue),
    activityId: sessionActivityId({ session, epoch: spec.epoch, step: 'lease' }),
    scheduleToStartTimeout: spec.scheduleToStartMs,
    startToCloseTimeout: spec.durationMs + EXPIRY_BACKSTOP_MS,
    retry: { initialInterval: 200, maximumInterval: 1_000, nonRetryableErrorTypes },
  });
  const { leaseTtlMs, recoveryWindowMs, idleTimeoutMs } = contract;
  return adopt[ADOPT_ACTIVITY]({
    session,
    epoch: spec.epoch,
    grantId,
    leaseTtlMs,
    recoveryWindowMs,
    idleTimeoutMs,
    ...stateOf(contract),
  });
}

/** Left out for the default: it would be in every history. */
function stateOf({ state }: SessionContract): { state?: 'memory' } {
  return state === 'memory' ? { state } : {};
}

function leaseEnd(error: unknown): LeaseEnd {
  const failure = error instanceof Error ? error : new Error(String(error));
  const cause = failure instanceof ActivityFailure && failure.cause !== undefined ? failure.cause : failure;
  if (cause instanceof TimeoutFailure) {
    switch (cause.timeoutType) {
      case 'HEARTBEAT':
        return { kind: 'silent', message: 'The worker was silent for the lease TTL.', cause: failure };
      case 'SCHEDULE_TO_START':
        return { kind: 'not-taken', message: 'The worker did not answer in time.', cause: failure };
      default:
        return { kind: 'expired', message: 'It reached its maximum duration.', cause: failure };
    }
  }
  if (!(cause instanceof ApplicationFailure)) {
    return { kind: 'given-up', message: `The lease ended: ${cause.message}`, cause: failure };
  }
  switch (cause.type) {
    case 'SessionLost':
      return { kind: 'given-up', message: cause.message, cause: failure };
    case 'SessionExpired':
      return { kind: 'expired', message: cause.message, cause: failure };
    case 'SessionReleased':
      return { kind: 'released', message: cause.message, cause: failure };
    default:
      // What the server would retry surfaces only where it was told to try once.
      return cause.nonRetryable === true
        ? { kind: 'refused', message: cause.message, cause }
        : { kind: 'not-taken', message: cause.message, cause: failure };
  }
}

function confirm(grant: Grant, timeoutMs: number): Promise<Confirmation> {
  questionCount += 1;
  const step = `confirm-${questionCount}`;
  return shield().run(async () => {
    const control = proxyActivities<{ [CONFIRM_ACTIVITY]: (request: ConfirmRequest) => Promise<void> }>({
      taskQueue: controlQueueOf(grant.queue),
      activityId: sessionActivityId({ session: grant.session, epoch: grant.epoch, step }),
      scheduleToStartTimeout: timeoutMs,
      startToCloseTimeout: CONFIRM_START_TO_CLOSE_MS,
      // Asked again within the window: the first question may have gone to a poll of a process that is gone.
      scheduleToCloseTimeout: timeoutMs + CONFIRM_START_TO_CLOSE_MS,
      retry: { initialInterval: 100, maximumInterval: 1_000 },
    });
    try {
      await control[CONFIRM_ACTIVITY]({ session: grant.session, grantId: grant.grantId });
      return 'held';
    } catch (error) {
      const cause = error instanceof ActivityFailure ? error.cause : error;
      if (cause instanceof ApplicationFailure && cause.type === 'SessionLost') return 'unknown';
      return 'no-answer';
    }
  });
}

function release(grant: Grant): Promise<boolean> {
  questionCount += 1;
  const step = `release-${questionCount}`;
  return shield().run(async () => {
    const control = proxyActivities<{ [RELEASE_ACTIVITY]: (request: ReleaseRequest) => Promise<void> }>({
      taskQueue: controlQueueOf(grant.queue),
      activityId: sessionActivityId({ session: grant.session, epoch: grant.epoch, step }),
      scheduleToStartTimeout: RELEASE_SCHEDULE_TO_START_MS,
      startToCloseTimeout: RELEASE_START_TO_CLOSE_MS,
      heartbeatTimeout: RELEASE_HEARTBEAT_TIMEOUT_MS,
      // A daemon that restarts in the middle of a release answers the second attempt.
      retry: { initialInterval: 200, maximumAttempts: 3 },
    });
    try {
      await control[RELEASE_ACTIVITY]({ session: grant.session, grantId: grant.grantId });
      return true;
    } catch (error) {
      log.warn('The worker did not answer the release', {
        session: grant.session,
        worker: grant.worker,
        reason:
          error instanceof Error ? (error.cause instanceof Error ? error.cause.message : error.message) : String(error),
      });
      return false;
    }
  });
}
