/**
 * Reads the run that owns a session: its status, its open leases, the pinned activities that run now, and, from its
 * history, where each pinned call ran. Asks the server only.
 */
import type { Client } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { parseSessionActivityId, workerOfIdentity } from '../contract/names.js';
import { isProgress, type Progress } from '../contract/progress.js';
import { ADOPT_ACTIVITY, CONFIRM_ACTIVITY, LEASE_ACTIVITY, RELEASE_ACTIVITY } from '../contract/session.js';
import type { RunningStepRecord, SessionDetail, SessionRecord, StepRecord, WorkerRecord } from './records.js';

/** What is said of a run that the server does not know. */
export const NOT_FOUND = 'NOT_FOUND';
/** By the numbers of Temporal's WorkflowExecutionStatus, as its client spells them. */
const STATUS_NAMES: readonly string[] = [
  'UNSPECIFIED',
  'RUNNING',
  'COMPLETED',
  'FAILED',
  'CANCELLED',
  'TERMINATED',
  'CONTINUED_AS_NEW',
  'TIMED_OUT',
  'PAUSED',
];
const OPEN_STATUSES: ReadonlySet<string> = new Set(['RUNNING', 'PAUSED']);
const GRPC_NOT_FOUND = 5;
/** Temporal's PendingActivityState. */
const STATE = { scheduled: 1, started: 2, cancelRequested: 3, paused: 4, pauseRequested: 5 } as const;
/** Activities of a session that are no steps of its owner. */
const PROTOCOL: ReadonlySet<string> = new Set([LEASE_ACTIVITY, ADOPT_ACTIVITY, CONFIRM_ACTIVITY, RELEASE_ACTIVITY]);
/** Of a history only its end is read: one that is longer has its last steps there. */
const HISTORY_PAGE_EVENTS = 1_000;
const HISTORY_PAGES = 5;

export type PendingActivity = temporal.api.workflow.v1.IPendingActivityInfo;
type HistoryEvent = temporal.api.history.v1.IHistoryEvent;
type Timestamp = temporal.api.workflow.v1.IPendingActivityInfo['lastHeartbeatTime'];

export interface OwnerRun {
  /** As Temporal's client spells it, or {@link NOT_FOUND}. */
  readonly status: string;
  readonly startedAtMs: number | null;
  readonly closedAtMs: number | null;
  readonly pending: readonly PendingActivity[];
}

export function statusName(status: unknown): string {
  return STATUS_NAMES[Number(status)] ?? 'UNKNOWN';
}

export function isOpen(status: string): boolean {
  return OPEN_STATUSES.has(status);
}

export function timeMs(time: Timestamp): number | null {
  if (time?.seconds === undefined || time.seconds === null) return null;
  return Number(time.seconds) * 1_000 + (time.nanos ?? 0) / 1e6;
}

function iso(atMs: number | null): string | null {
  return atMs === null ? null : new Date(atMs).toISOString();
}

/** The run as it is now. */
export async function describeOwner(
  client: Client,
  { workflowId, runId }: Pick<SessionRecord, 'workflowId' | 'runId'>,
): Promise<OwnerRun> {
  const { namespace } = client.options;
  try {
    // Not through the client's own describe: that decodes memo and search attributes, which nobody here reads.
    const { workflowExecutionInfo: info, pendingActivities } =
      await client.connection.workflowService.describeWorkflowExecution({
        namespace,
        execution: { workflowId, runId },
      });
    const status = statusName(info?.status);
    return {
      status,
      startedAtMs: timeMs(info?.startTime),
      closedAtMs: timeMs(info?.closeTime),
      // Of a run that was terminated the server goes on listing what was pending then.
      pending: isOpen(status) ? (pendingActivities ?? []) : [],
    };
  } catch (error) {
    if (!isNotFound(error)) throw error;
    return { status: NOT_FOUND, startedAtMs: null, closedAtMs: null, pending: [] };
  }
}

function isNotFound(error: unknown): boolean {
  const { code, details } = error as { code?: unknown; details?: unknown };
  // Of a namespace that does not exist the server says the same, and that is another error.
  return code === GRPC_NOT_FOUND && !/namespace/i.test(String(details));
}

/** The activity that is the lease of this session on this worker; in doubt one that might be. */
export function openLease(
  session: Pick<SessionRecord, 'session' | 'epoch' | 'worker'>,
  pending: readonly PendingActivity[],
): PendingActivity | undefined {
  return pending.find((activity) => {
    const type = activity.activityType?.name;
    if (type !== LEASE_ACTIVITY && type !== ADOPT_ACTIVITY) return false;
    const id = parseSessionActivityId(activity.activityId ?? '');
    if (id?.session !== session.session) return false;
    if (id.epoch === session.epoch) return true;
    // A lease of a later epoch is of another worker when the session is redone, and of this one when it was adopted, of
    // which the last snapshot may not know yet. An adoption that nobody has taken is on its way to the worker that had it.
    const holder = workerOfIdentity(activity.lastWorkerIdentity ?? '');
    return holder === undefined ? type === ADOPT_ACTIVITY : holder === session.worker;
  });
}

/** Whether the owner has given the lease up, which stays open until its worker answers or its TTL is over. */
export function isGivenUp({ state }: PendingActivity): boolean {
  return Number(state) === STATE.cancelRequested;
}

/** A session together with what its owner knows of it. `workers` tells on which host each step ran. */
export async function describeSession(
  client: Client,
  session: SessionRecord,
  workers: readonly WorkerRecord[],
): Promise<SessionDetail> {
  const [run, history] = await Promise.all([describeOwner(client, session), readHistory(client, session)]);
  const nowMs = Date.now();
  const lease = openLease(session, run.pending);
  const mine = run.pending.filter((activity) => isStepOf(session.session, activity.activityId, activity.activityType));
  const running = await Promise.all(mine.map((activity) => runningStep(client, activity, nowMs)));
  return {
    session,
    owner: {
      workflowId: session.workflowId,
      runId: session.runId,
      workflowType: session.workflowType,
      status: run.status,
      startedAt: iso(run.startedAtMs),
      closedAt: iso(run.closedAtMs),
    },
    lease: lease === undefined ? null : { activityId: lease.activityId ?? '', renewedAgoMs: age(lease, nowMs) },
    running,
    steps: stepsIn(history.events, session.session, workers, running).map((step) =>
      step.endedAt === null && !isOpen(run.status)
        ? { ...step, result: 'cancelled' as const, failure: 'its owner closed first' }
        : step,
    ),
    stepsTruncated: history.truncated,
  };
}

function isStepOf(
  session: string,
  activityId: string | null | undefined,
  type: { readonly name?: string | null } | null | undefined,
): boolean {
  return !PROTOCOL.has(type?.name ?? '') && parseSessionActivityId(activityId ?? '')?.session === session;
}

function age({ lastHeartbeatTime }: PendingActivity, nowMs: number): number | null {
  const atMs = timeMs(lastHeartbeatTime);
  return atMs === null ? null : Math.max(0, Math.round(nowMs - atMs));
}

async function runningStep(client: Client, raw: PendingActivity, nowMs: number): Promise<RunningStepRecord> {
  const state = Number(raw.state);
  return {
    activity: raw.activityType?.name ?? '',
    activityId: raw.activityId ?? '',
    attempt: Math.max(1, raw.attempt ?? 1),
    state:
      state === STATE.scheduled
        ? 'waiting'
        : state === STATE.cancelRequested
          ? 'cancelling'
          : state === STATE.paused || state === STATE.pauseRequested
            ? 'paused'
            : 'running',
    startedAt: state === STATE.scheduled ? null : iso(timeMs(raw.lastStartedTime)),
    heartbeatAgeMs: age(raw, nowMs),
    progress: await progressOf(client, raw),
    lastFailure: messageOf(raw.lastFailure),
    nextAttemptAt: iso(timeMs(raw.nextAttemptScheduleTime)),
  };
}

async function progressOf(client: Client, raw: PendingActivity): Promise<Progress | null> {
  const payloads = raw.heartbeatDetails?.payloads ?? [];
  if (payloads.length === 0) return null;
  const { payloadConverter, payloadCodecs } = client.options.loadedDataConverter;
  try {
    let decoded = payloads;
    for (const codec of [...payloadCodecs].reverse()) decoded = await codec.decode(decoded);
    const value: unknown = payloadConverter.fromPayload(decoded[0]!);
    return isProgress(value) ? value : null;
  } catch {
    // Encrypted by a codec that this client does not have: the step is shown without its numbers.
    return null;
  }
}

interface FailureInfo {
  readonly message?: string | null;
  readonly cause?: FailureInfo | null;
}

/** The innermost message: the outer one of an activity only says that a task failed. */
function messageOf(failure: FailureInfo | null | undefined): string | null {
  if (failure == null) return null;
  return messageOf(failure.cause) ?? (failure.message == null || failure.message === '' ? null : failure.message);
}

/** The end of the history, in order. */
async function readHistory(
  client: Client,
  { workflowId, runId }: SessionRecord,
): Promise<{ events: HistoryEvent[]; truncated: boolean }> {
  const { namespace } = client.options;
  const reversed: HistoryEvent[] = [];
  let token: Uint8Array | undefined;
  try {
    for (let page = 0; page < HISTORY_PAGES; page += 1) {
      const response = await client.connection.workflowService.getWorkflowExecutionHistoryReverse({
        namespace,
        execution: { workflowId, runId },
        maximumPageSize: HISTORY_PAGE_EVENTS,
        ...(token === undefined ? {} : { nextPageToken: token }),
      });
      reversed.push(...(response.history?.events ?? []));
      token = response.nextPageToken ?? undefined;
      if (token === undefined || token.length === 0) return { events: reversed.reverse(), truncated: false };
    }
    return { events: reversed.reverse(), truncated: true };
  } catch (error) {
    if (!isNotFound(error)) throw error;
    return { events: [], truncated: false };
  }
}

/** The pinned calls of a session in a history. Pure. */
export function stepsIn(
  events: readonly HistoryEvent[],
  session: string,
  workers: readonly Pick<WorkerRecord, 'name' | 'queue' | 'host'>[],
  running: readonly RunningStepRecord[],
): StepRecord[] {
  const byEvent = new Map<string, StepRecord>();
  const started = new Map<string, { attempt: number; atMs: number | null; failure: string | null }>();
  const update = (scheduledEventId: unknown, event: HistoryEvent, result: StepRecord['result'], why: string | null) => {
    const key = String(scheduledEventId);
    const step = byEvent.get(key);
    if (step === undefined) return;
    const start = started.get(key);
    byEvent.set(key, {
      ...step,
      attempt: start?.attempt ?? null,
      startedAt: iso(start?.atMs ?? null),
      endedAt: iso(timeMs(event.eventTime)),
      result,
      failure: why ?? (result === 'completed' ? null : (start?.failure ?? null)),
    });
  };
  for (const event of events) {
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled != null && isStepOf(session, scheduled.activityId, scheduled.activityType)) {
      const queue = scheduled.taskQueue?.name ?? '';
      const worker = workers.find((each) => each.queue === queue);
      const now = running.find(({ activityId }) => activityId === scheduled.activityId);
      byEvent.set(String(event.eventId), {
        activity: scheduled.activityType?.name ?? '',
        activityId: scheduled.activityId ?? '',
        epoch: parseSessionActivityId(scheduled.activityId ?? '')!.epoch,
        worker: worker?.name ?? nameInQueue(queue),
        host: worker?.host ?? null,
        attempt: now?.attempt ?? null,
        scheduledAt: iso(timeMs(event.eventTime)) ?? '',
        startedAt: now?.startedAt ?? null,
        endedAt: null,
        result: now === undefined || now.state === 'waiting' ? 'waiting' : 'running',
        failure: now?.lastFailure ?? null,
      });
    }
    const start = event.activityTaskStartedEventAttributes;
    if (start != null) {
      started.set(String(start.scheduledEventId), {
        attempt: start.attempt ?? 1,
        atMs: timeMs(event.eventTime),
        failure: messageOf(start.lastFailure),
      });
    }
    const completed = event.activityTaskCompletedEventAttributes;
    if (completed != null) update(completed.scheduledEventId, event, 'completed', null);
    const failed = event.activityTaskFailedEventAttributes;
    if (failed != null) update(failed.scheduledEventId, event, 'failed', messageOf(failed.failure));
    const timedOut = event.activityTaskTimedOutEventAttributes;
    if (timedOut != null) update(timedOut.scheduledEventId, event, 'timed out', messageOf(timedOut.failure));
    const cancelled = event.activityTaskCanceledEventAttributes;
    if (cancelled != null) update(cancelled.scheduledEventId, event, 'cancelled', null);
  }
  return [...byEvent.values()];
}

/** The name in a unique queue, `FLEET-NAME.INSTANCE`: of a worker that is known no more, or has another identity now. */
function nameInQueue(queue: string): string {
  const afterFleet = queue.indexOf('-') + 1;
  const instance = queue.lastIndexOf('.');
  return instance > afterFleet ? queue.slice(afterFleet, instance) : queue;
}
