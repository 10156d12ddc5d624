/** Updates of workflows, sent again where the server has dropped one. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, isGrpcServiceError, ServiceError, WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';

/** gRPC's FAILED_PRECONDITION; the server answers other conditions by it too. */
const FAILED_PRECONDITION = 9;
const TASK_FAILED = 'unexpected workflow task failure';
const ASK_AGAIN_MS = 200;

/**
 * Calls `update` until the server has an answer of the workflow. It drops an update, without a trace in the history,
 * whose workflow task is answered late or with what an event between them has made void; a worker that is short of
 * processor does that. The update must therefore be safe to repeat: the same update id, or no harm in coming twice.
 *
 * @param deadlineMs Milliseconds from now until the call, and with it the last repetition, fails.
 * @throws what the last call threw.
 */
export async function sendUpdate<T>({ connection }: Client, deadlineMs: number, update: () => Promise<T>): Promise<T> {
  const giveUpAtMs = Date.now() + deadlineMs;
  for (;;) {
    try {
      return await connection.withDeadline(giveUpAtMs, update);
    } catch (error) {
      // Past the deadline the call fails with another error, so that this ends.
      if (!wasDropped(error)) throw error;
      await sleep(ASK_AGAIN_MS);
    }
  }
}

function wasDropped(error: unknown): boolean {
  if (failureTypeOf(error) === 'UnprocessedUpdate') return true;
  if (!(error instanceof ServiceError) || !isGrpcServiceError(error.cause)) return false;
  const { code, details } = error.cause;
  return Number(code) === FAILED_PRECONDITION && details.includes(TASK_FAILED);
}

/** The type of the failure that an update was answered with, which may be one of the server's own. */
export function failureTypeOf(error: unknown): string | null | undefined {
  if (!(error instanceof WorkflowUpdateFailedError) || !(error.cause instanceof ApplicationFailure)) return undefined;
  return error.cause.type;
}
