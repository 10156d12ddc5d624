/** Workers that serve the activities and workflows of `test/fixtures/user`. */
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import type { Client, WorkflowHandle, WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import { FleetClient, type SessionRecord, type WorkerRecord } from '../../src/fleet/client.js';
import { spawnAtlasd, startAtlasd, type Atlasd, type AtlasdOptions } from './atlasd.js';
import { uniqueId } from './fleet.js';

const ACTIVITIES = fileURLToPath(new URL('../fixtures/user/activities.js', import.meta.url));

export function fixtureArgs(args: readonly string[] = []): string[] {
  return ['--activities', ACTIVITIES, '--workflows', inject('fixtureWorkflows'), ...args];
}

/** Starts a worker with the fixtures and waits until it takes sessions. */
export async function startWorker(options: AtlasdOptions = {}): Promise<Atlasd> {
  return await startAtlasd({ ...options, args: fixtureArgs(options.args) });
}

export async function spawnWorker(options: AtlasdOptions = {}): Promise<Atlasd> {
  return await spawnAtlasd({ ...options, args: fixtureArgs(options.args) });
}

/** The same worker again, as after a crash: same directory, name and fleet. */
export async function restartWorker(previous: Atlasd, options: AtlasdOptions = {}): Promise<Atlasd> {
  const { stateDirectory, fleet, name, address } = previous;
  return await startWorker({ stateDirectory, fleet, name, address, ...options });
}

/** Starts a workflow of the fixtures on the fleet's queue. */
export async function startWorkflow(
  client: Client,
  fleet: string,
  type: string,
  input?: unknown,
): Promise<WorkflowHandleWithFirstExecutionRunId> {
  return await client.workflow.start(type, {
    taskQueue: fleet,
    workflowId: uniqueId(type),
    args: input === undefined ? [] : [input],
    // A guard against hanging, far over what any test takes.
    workflowExecutionTimeout: '3 minutes',
  });
}

export async function runWorkflow<T>(client: Client, fleet: string, type: string, input?: unknown): Promise<T> {
  return (await (await startWorkflow(client, fleet, type, input)).result()) as T;
}

/** Asks until the answer is there. Bounded; the last answer is in the message. */
export async function eventually<T>(
  ask: () => Promise<T | undefined | false>,
  { timeoutMs = 30_000, what = 'the condition' }: { timeoutMs?: number; what?: string } = {},
): Promise<T> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadlineMs) throw new Error(`Not within ${timeoutMs} ms: ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export async function workersOf(client: Client, fleet: string): Promise<WorkerRecord[]> {
  return await new FleetClient(client, { fleet }).listWorkers();
}

export async function sessionsOf(client: Client, fleet: string): Promise<SessionRecord[]> {
  return await new FleetClient(client, { fleet }).listSessions();
}

/** What the server's history says about the activities of a run, in the order in which they were scheduled. */
export interface ActivityHistory {
  readonly type: string;
  readonly activityId: string;
  readonly queue: string;
  /** The identity of the worker that completed it, or failed it for good. */
  identity?: string;
  attempt?: number;
  outcome: 'open' | 'completed' | 'failed' | 'timed-out' | 'cancelled';
}

export async function activitiesOf(handle: WorkflowHandle): Promise<ActivityHistory[]> {
  const { events } = await handle.fetchHistory();
  const byEvent = new Map<string, ActivityHistory>();
  for (const event of events ?? []) {
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled != null) {
      byEvent.set(String(event.eventId), {
        type: scheduled.activityType?.name ?? '',
        activityId: scheduled.activityId ?? '',
        queue: scheduled.taskQueue?.name ?? '',
        outcome: 'open',
      });
    }
    const started = event.activityTaskStartedEventAttributes;
    if (started != null) {
      const activity = byEvent.get(String(started.scheduledEventId));
      if (activity !== undefined) {
        activity.identity = started.identity ?? '';
        activity.attempt = started.attempt ?? 0;
      }
    }
    const ends = [
      [event.activityTaskCompletedEventAttributes, 'completed'],
      [event.activityTaskFailedEventAttributes, 'failed'],
      [event.activityTaskTimedOutEventAttributes, 'timed-out'],
      [event.activityTaskCanceledEventAttributes, 'cancelled'],
    ] as const;
    for (const [attributes, outcome] of ends) {
      const activity = attributes == null ? undefined : byEvent.get(String(attributes.scheduledEventId));
      if (activity !== undefined) activity.outcome = outcome;
    }
  }
  return [...byEvent.values()];
}
