/**
 * One lease: the async-completed, heartbeating activity that proves that a worker holds the session.
 *
 * Owns the scheduling of that activity and the reading of how it ended. Leaves all decisions to `session.ts`.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  proxyActivities,
  TimeoutFailure,
} from '@temporalio/workflow';
import { acquireQueue, sessionActivityId } from '../contract/names.js';
import { LEASE_ACTIVITY, type LeaseRequest } from '../contract/session.js';
import type { SessionContract } from './options.js';

/** How a lease ended, as far as the owner must tell the ways apart. */
export type LeaseEnd = Refusal /** The worker was silent for the lease TTL. */ &
  (
    | { readonly kind: 'silent'; readonly message: string; readonly cause: Error }
    /** The lease reached the maximum duration of the session. */
    | { readonly kind: 'expired'; readonly message: string; readonly cause: Error }
    /** The worker gave the session up, and says why. */
    | { readonly kind: 'given-up'; readonly message: string; readonly cause: Error | undefined }
  );

/** What a worker answers when it will never grant the lease, as opposed to giving up one that it holds. */
type Refusal = { readonly refused?: ApplicationFailure };

export interface Lease {
  readonly epoch: number;
  /** Set once the lease has ended. */
  readonly end: () => LeaseEnd | undefined;
  /** Resolves when the lease ends. */
  readonly ended: Promise<LeaseEnd>;
  /** Asks the server to cancel the lease, for a worker that can not be reached. */
  readonly cancel: () => void;
}

/** Between attempts on a full fleet; short, since a slot may be free at any moment, and no history event is written. */
const ACQUIRE_RETRY = { initialInterval: 200, backoffCoefficient: 1.5, maximumInterval: 5_000 };

/** Schedules the lease on the acquire queue of the capability set. */
export function scheduleLease(session: string, epoch: number, contract: SessionContract): Lease {
  const request: LeaseRequest = {
    session,
    epoch,
    capabilities: contract.capabilities,
    leaseTtlMs: contract.leaseTtlMs,
    maxDurationMs: contract.maxDurationMs,
  };
  let end: LeaseEnd | undefined;
  let scope: CancellationScope | undefined;
  // The lease must outlive a cancellation of the owner, which still has to release; only cancel() below ends it early.
  const ended = CancellationScope.nonCancellable(() => {
    scope = new CancellationScope({ cancellable: true });
    return scope.run(async (): Promise<LeaseEnd> => {
      const acquire = proxyActivities<{ [LEASE_ACTIVITY]: (request: LeaseRequest) => Promise<void> }>({
        taskQueue: acquireQueue(contract.fleet, contract.capabilities),
        activityId: sessionActivityId({ session, epoch, step: 'lease' }),
        heartbeatTimeout: contract.leaseTtlMs,
        startToCloseTimeout: contract.maxDurationMs,
        retry: {
          ...ACQUIRE_RETRY,
          // "Full" is retried by the server without a history event, while a dead worker fails the lease at once.
          nonRetryableErrorTypes: ['TemporalTimeout:Heartbeat', 'TemporalTimeout:StartToClose'],
        },
        ...(contract.priority === undefined ? {} : { priority: contract.priority }),
      });
      try {
        await acquire[LEASE_ACTIVITY](request);
        end = { kind: 'given-up', message: 'The worker ended the lease.', cause: undefined };
      } catch (error) {
        end = leaseEnd(error);
      }
      return end;
    });
  });
  return { epoch, end: () => end, ended, cancel: () => scope?.cancel() };
}

function leaseEnd(error: unknown): LeaseEnd {
  const failure = error instanceof Error ? error : new Error(String(error));
  const cause = failure instanceof ActivityFailure && failure.cause !== undefined ? failure.cause : failure;
  if (cause instanceof TimeoutFailure) {
    if (cause.timeoutType === 'HEARTBEAT') {
      return { kind: 'silent', message: 'The worker was silent for the lease TTL.', cause: failure };
    }
    return { kind: 'expired', message: 'The session reached its maximum duration.', cause: failure };
  }
  if (!(cause instanceof ApplicationFailure)) {
    return { kind: 'given-up', message: `The lease ended: ${cause.message}`, cause: failure };
  }
  const end = { kind: 'given-up', message: cause.message, cause: failure } as const;
  return cause.type === 'SessionLost' ? end : { ...end, refused: cause };
}
