/** What the server's history says about a run: what an invariant is read from, with the server's own timestamps. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { Grant } from '../../src/contract/session.js';

export interface RunActivity {
  readonly type: string;
  readonly activityId: string;
  readonly queue: string;
  readonly scheduledAtMs: number;
  /** These three are of the attempt that ended it; absent while it is open, and when no attempt of it was started. */
  startedAtMs?: number;
  identity?: string;
  attempt?: number;
  closedAtMs?: number;
  outcome: 'open' | 'completed' | 'failed' | 'timed-out' | 'cancelled';
}

export interface RunHistory {
  readonly runId: string;
  readonly status: string;
  readonly activities: readonly RunActivity[];
  /** In the order in which the server took them. A grant that is repeated is there twice. */
  readonly grants: readonly (Grant & { readonly atMs: number })[];
  readonly startedAtMs: number;
  readonly closedAtMs: number | undefined;
  readonly eventCount: number;
  /** The run that this one continued as. */
  readonly continuedAs: string | undefined;
  /** The ids of the events at which a run can be reset. */
  readonly resetPoints: readonly number[];
}

type HistoryEvent = NonNullable<Awaited<ReturnType<WorkflowHandle['fetchHistory']>>['events']>[number];

interface Timestamp {
  readonly seconds?: unknown;
  readonly nanos?: unknown;
}

/** A time of the server, in milliseconds and parts of them. */
export function atMs(time: Timestamp | null | undefined): number {
  return Number(time?.seconds ?? 0) * 1_000 + Number(time?.nanos ?? 0) / 1_000_000;
}

/** The activities of a run, in the order in which they were scheduled. */
export async function activitiesOf(handle: WorkflowHandle): Promise<RunActivity[]> {
  return activitiesIn((await handle.fetchHistory()).events ?? []);
}

function activitiesIn(events: readonly HistoryEvent[]): RunActivity[] {
  const byEvent = new Map<string, RunActivity>();
  for (const event of events) {
    const eventAtMs = atMs(event.eventTime);
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled != null) {
      byEvent.set(String(event.eventId), {
        type: scheduled.activityType?.name ?? '',
        activityId: scheduled.activityId ?? '',
        queue: scheduled.taskQueue?.name ?? '',
        scheduledAtMs: eventAtMs,
        outcome: 'open',
      });
    }
    const started = event.activityTaskStartedEventAttributes;
    const startedActivity = started == null ? undefined : byEvent.get(String(started.scheduledEventId));
    if (started != null && startedActivity !== undefined) {
      startedActivity.startedAtMs = eventAtMs;
      startedActivity.identity = started.identity ?? '';
      startedActivity.attempt = started.attempt ?? 0;
    }
    const ends = [
      [event.activityTaskCompletedEventAttributes, 'completed'],
      [event.activityTaskFailedEventAttributes, 'failed'],
      [event.activityTaskTimedOutEventAttributes, 'timed-out'],
      [event.activityTaskCanceledEventAttributes, 'cancelled'],
    ] as const;
    for (const [attributes, outcome] of ends) {
      const activity = attributes == null ? undefined : byEvent.get(String(attributes.scheduledEventId));
      if (activity === undefined) continue;
      activity.outcome = outcome;
      activity.closedAtMs = eventAtMs;
    }
  }
  return [...byEvent.values()];
}

export async function historyOf(client: Client, workflowId: string, runId?: string): Promise<RunHistory> {
  const handle: WorkflowHandle = client.workflow.getHandle(workflowId, runId);
  const description = await handle.describe();
  const { events } = await client.workflow.getHandle(workflowId, description.runId).fetchHistory();
  const grants: (Grant & { atMs: number })[] = [];
  const resetPoints: number[] = [];
  let continuedAs: string | undefined;
  for (const event of events ?? []) {
    const eventAtMs = atMs(event.eventTime);
    continuedAs ??= event.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId ?? undefined;
    if (event.workflowTaskCompletedEventAttributes != null) resetPoints.push(Number(event.eventId));
    const signal = event.workflowExecutionSignaledEventAttributes;
    const data = signal?.signalName === 'atlas:grant' ? signal.input?.payloads?.[0]?.data : undefined;
    if (data != null) grants.push({ ...(JSON.parse(Buffer.from(data).toString('utf8')) as Grant), atMs: eventAtMs });
  }
  return {
    runId: description.runId,
    status: description.status.name,
    activities: activitiesIn(events ?? []),
    grants,
    startedAtMs: description.startTime.getTime(),
    closedAtMs: description.closeTime?.getTime(),
    eventCount: events?.length ?? 0,
    continuedAs,
    resetPoints,
  };
}
