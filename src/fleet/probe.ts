/**
 * The probe as a workflow. It is in the bundle that every supervisor runs, so that a fleet can be probed whatever user code
 * its executors have; client and limits are in `probe-client.ts`.
 */
import {
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  proxyActivities,
  TimeoutFailure,
} from '@temporalio/workflow';
import { controlQueueOf, WORKER_ACTIVITY_PREFIX } from '../contract/names.js';
import {
  PING_ACTIVITY,
  PROBE_ANSWERED_WITHIN_MS,
  PROBE_GRANT_WITHIN_MS,
  PROBE_LEASE_TTL_MS,
  PROBE_TAKEN_WITHIN_MS,
  type ProbeAnswer,
  type ProbeOutcome,
  type ProbeRequest,
  type ProbeTarget,
  type QueuesAnswer,
} from '../contract/probe.js';
import { CONFIRM_ACTIVITY, type ConfirmRequest } from '../contract/session.js';
import { withSession } from '../workflow/session.js';

/** A session and a grant that no worker has: random ones are longer. */
const NOBODY: ConfirmRequest = { session: 'probe', grantId: 'probe' };

export async function atlasProbe(request: ProbeRequest): Promise<ProbeAnswer> {
  if (request.kind === 'acquire') return await acquire(request.fleet, request.capabilities);
  return { kind: 'queues', answers: await Promise.all(request.targets.map(askQueues)) };
}

async function askQueues(target: ProbeTarget, index: number): Promise<QueuesAnswer> {
  const [control, pinned] = await Promise.all([askSupervisor(target, index), askExecutor(target, index)]);
  return { worker: target.worker, control, pinned };
}

/** The supervisor looks for a session that nobody has, and says so. */
function askSupervisor({ queue }: ProbeTarget, index: number): Promise<ProbeOutcome> {
  const control = proxyActivities<{ [CONFIRM_ACTIVITY]: (request: ConfirmRequest) => Promise<void> }>({
    ...BOUNDS,
    taskQueue: controlQueueOf(queue),
    activityId: `control-${index}`,
  });
  return timed(() => control[CONFIRM_ACTIVITY](NOBODY), 'SessionLost');
}

/** The executor does nothing, but asks its supervisor first, as for every pinned activity. */
function askExecutor({ queue }: ProbeTarget, index: number): Promise<ProbeOutcome> {
  const executor = proxyActivities<{ [PING_ACTIVITY]: () => Promise<void> }>({
    ...BOUNDS,
    taskQueue: queue,
    activityId: `${WORKER_ACTIVITY_PREFIX}probe-${index}`,
  });
  // An executor of an older version says that it knows no such activity, which is an answer as well.
  return timed(() => executor[PING_ACTIVITY](), 'NotFoundError');
}

const BOUNDS = {
  scheduleToStartTimeout: PROBE_TAKEN_WITHIN_MS,
  startToCloseTimeout: PROBE_ANSWERED_WITHIN_MS,
  // Asked again within that: the open poll of a process that is gone may have taken the first question with it.
  scheduleToCloseTimeout: PROBE_TAKEN_WITHIN_MS + PROBE_ANSWERED_WITHIN_MS,
  retry: { initialInterval: 200, maximumInterval: 1_000, nonRetryableErrorTypes: ['SessionLost', 'NotFoundError'] },
} satisfies ActivityOptions;

/** A failure of this type is the answer that was asked for. */
async function timed(ask: () => Promise<void>, answer: string): Promise<ProbeOutcome> {
  const startedMs = Date.now();
  let reason: string | null = null;
  try {
    await ask();
  } catch (error) {
    const cause = error instanceof ActivityFailure ? (error.cause ?? error) : (error as Error);
    if (!(cause instanceof ApplicationFailure && cause.type === answer)) reason = reasonOf(cause);
  }
  return { answered: reason === null, tookMs: Date.now() - startedMs, reason };
}

function reasonOf(cause: Error): string {
  if (!(cause instanceof TimeoutFailure)) return cause.message;
  if (cause.timeoutType === 'SCHEDULE_TO_START')
    return `nobody took the question within ${PROBE_TAKEN_WITHIN_MS / 1_000} s`;
  // Of several attempts the server reports the last failure beside the timeout.
  const last = cause.cause?.message;
  return last === undefined
    ? `it took the question and gave no answer within ${PROBE_ANSWERED_WITHIN_MS / 1_000} s`
    : `no answer: ${last}`;
}

async function acquire(fleet: string, capabilities: readonly string[]): Promise<ProbeAnswer> {
  const startedMs = Date.now();
  try {
    const worker = await withSession(
      {
        fleet,
        capabilities,
        acquireTimeout: PROBE_GRANT_WITHIN_MS,
        leaseTtl: PROBE_LEASE_TTL_MS,
        maxDuration: PROBE_GRANT_WITHIN_MS * 2,
        recoveryWindow: 1_000,
        onLost: 'fail',
      },
      (session) => Promise.resolve(session.worker),
    );
    return { kind: 'acquire', outcome: { answered: true, tookMs: Date.now() - startedMs, reason: null }, worker };
  } catch (error) {
    if (!(error instanceof ApplicationFailure)) throw error;
    const outcome = { answered: false, tookMs: Date.now() - startedMs, reason: error.message };
    return { kind: 'acquire', outcome, worker: null };
  }
}
