/**
 * The supervisor's calls to Temporal about leases and attempts, each with a deadline, and the answers reduced to what the
 * session keeper decides on.
 */
import { ActivityCancelledError, ActivityNotFoundError, type Client, WorkflowNotFoundError } from '@temporalio/client';
import { GRANT_SIGNAL, type Grant } from '../contract/session.js';
import { failure } from '../temporal/failures.js';
import type { TemporalPort } from './ports.js';

/** A call without an answer by then is repeated; the shortest lease TTL (1 s) leaves room for that. */
const CALL_DEADLINE_MS = 5_000;

export function temporalPort(client: Client): TemporalPort {
  const bounded = <T>(call: () => Promise<T>): Promise<T> =>
    client.connection.withDeadline(Date.now() + CALL_DEADLINE_MS, call);
  /** An activity that is not there any more needs no answer. */
  const unlessGone = async (call: () => Promise<void>): Promise<void> => {
    try {
      await bounded(call);
    } catch (error) {
      if (!(error instanceof ActivityNotFoundError)) throw error;
    }
  };
  return {
    async heartbeat(leaseToken) {
      try {
        await bounded(() => client.activity.heartbeat(bytes(leaseToken)));
        return 'renewed';
      } catch (error) {
        if (error instanceof ActivityNotFoundError) return 'not-found';
        if (error instanceof ActivityCancelledError) return 'cancel-requested';
        throw error;
      }
    },
    completeLease: (leaseToken) => unlessGone(() => client.activity.complete(bytes(leaseToken), undefined)),
    cancelLease: (leaseToken) => unlessGone(() => client.activity.reportCancellation(bytes(leaseToken))),
    failLease: (leaseToken, code, message) =>
      unlessGone(() => client.activity.fail(bytes(leaseToken), failure(code, message))),
    failAttempt: (taskToken, code, message) =>
      unlessGone(() => client.activity.fail(bytes(taskToken), failure(code, message))),
    async signalGrant({ workflowId, runId }, grant) {
      try {
        await bounded(() => client.workflow.getHandle(workflowId, runId).signal<[Grant]>(GRANT_SIGNAL, grant));
        return 'delivered';
      } catch (error) {
        if (error instanceof WorkflowNotFoundError) return 'gone';
        throw error;
      }
    },
  };
}

function bytes(base64: string): Uint8Array {
  return Buffer.from(base64, 'base64');
}
