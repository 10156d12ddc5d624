/**
 * The supervisor's calls to Temporal about leases and attempts, each with a deadline, and the answers reduced to what the
 * session keeper decides on.
 */
import { ActivityCancelledError, ActivityNotFoundError, type Client, WorkflowNotFoundError } from '@temporalio/client';
import { ASK_SIGNAL, GRANT_SIGNAL, type Grant } from '../contract/session.js';
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
  const signalOwner = async (
    { workflowId, runId }: { workflowId: string; runId: string },
    signal: string,
    grant: Grant,
  ): Promise<'delivered' | 'gone'> => {
    try {
      await bounded(() => client.workflow.getHandle(workflowId, runId).signal<[Grant]>(signal, grant));
      return 'delivered';
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return 'gone';
      throw error;
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
    async answerConfirm(taskToken) {
      try {
        await bounded(() => client.activity.complete(bytes(taskToken), undefined));
        return 'answered';
      } catch (error) {
        if (error instanceof ActivityNotFoundError) return 'gone';
        throw error;
      }
    },
    cancelLease: (leaseToken) => unlessGone(() => client.activity.reportCancellation(bytes(leaseToken))),
    failLease: (leaseToken, code, message) =>
      unlessGone(() => client.activity.fail(bytes(leaseToken), failure(code, message))),
    failAttempt: (taskToken, code, message) =>
      unlessGone(() => client.activity.fail(bytes(taskToken), failure(code, message))),
    completeAttempt: (taskToken, { json }) =>
      unlessGone(() =>
        client.activity.complete(bytes(taskToken), json === undefined ? undefined : (JSON.parse(json) as unknown)),
      ),
    async describeOwner({ workflowId, runId }) {
      try {
        const { status } = await bounded(() => client.workflow.getHandle(workflowId, runId).describe());
        if (status.name === 'RUNNING' || status.name === 'PAUSED') return 'running';
        return status.name === 'CONTINUED_AS_NEW' ? 'continued' : 'closed';
      } catch (error) {
        if (error instanceof WorkflowNotFoundError) return 'closed';
        throw error;
      }
    },
    askOwner: (owner, grant) => signalOwner(owner, ASK_SIGNAL, grant),
    signalGrant: (owner, grant) => signalOwner(owner, GRANT_SIGNAL, grant),
  };
}

function bytes(base64: string): Uint8Array {
  return Buffer.from(base64, 'base64');
}
