/** Workers that serve the activities and workflows of `test/fixtures/user`. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import type { Client, WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
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

/**
 * Until no session has a working directory on the worker, and what was in those of the past is deleted: a release frees
 * the name first, and the files after it was answered.
 */
export async function untilScratchIsEmpty({ name, stateDirectory }: Atlasd): Promise<void> {
  await eventually(async () => (await readdir(join(stateDirectory, 'scratch'))).length === 0, {
    what: `the scratch directory of ${name} is empty`,
  });
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
    // A guard against hanging, far over what any test takes on a machine that is busy.
    workflowExecutionTimeout: '10 minutes',
  });
}

export async function runWorkflow<T>(client: Client, fleet: string, type: string, input?: unknown): Promise<T> {
  return (await (await startWorkflow(client, fleet, type, input)).result()) as T;
}

/** Asks until the answer is there. Bounded; the last answer is in the message. */
export async function eventually<T>(
  ask: () => Promise<T | undefined | false>,
  { timeoutMs = 60_000, what = 'the condition' }: { timeoutMs?: number; what?: string } = {},
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
