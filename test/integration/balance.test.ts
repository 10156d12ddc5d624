/** How sessions spread over workers that are alike. Nobody places them: each worker asks for the next when it has room. */
import type { WorkflowHandle } from '@temporalio/client';
import { expect, it } from 'vitest';
import { acquireQueue, workerOfIdentity } from '../../src/contract/names.js';
import { LEASE_ACTIVITY } from '../../src/contract/session.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, startWorker, startWorkflow } from '../support/fixtures.js';
import { atMs } from '../support/history.js';
import { SLOW } from '../support/promises.js';
import { useClient } from '../support/server.js';

const WORKERS = ['a', 'b', 'c', 'd'];
const SESSIONS = 20;
const ACTIVITY_QUEUE = 2;

const client = useClient();

/** When each worker has begun or ended a poll of the acquire queue, by the clock of the server. */
async function pollsOf(fleet: string): Promise<Map<string, number>> {
  const { pollers } = await client().workflowService.describeTaskQueue({
    namespace: client().options.namespace,
    taskQueue: { name: acquireQueue(fleet, []) },
    taskQueueType: ACTIVITY_QUEUE,
  });
  return new Map(
    (pollers ?? []).map(({ identity, lastAccessTime }) => [
      workerOfIdentity(identity ?? '') ?? '',
      atMs(lastAccessTime),
    ]),
  );
}

interface Taken {
  readonly worker: string;
  readonly takenAtMs: number;
}

/** Which worker has taken the lease of this workflow, and when. */
async function takenBy(handle: WorkflowHandle): Promise<Taken> {
  return await eventually(
    async () => {
      const { raw } = await handle.describe();
      const lease = raw.pendingActivities?.find(({ activityType }) => activityType?.name === LEASE_ACTIVITY);
      if (lease?.lastWorkerIdentity == null || lease.lastStartedTime == null) return undefined;
      return {
        worker: workerOfIdentity(lease.lastWorkerIdentity) ?? '',
        takenAtMs: atMs(lease.lastStartedTime),
      };
    },
    { what: `a worker for ${handle.workflowId}` },
  );
}

it('gives a session that comes to idle workers to the one that has waited for longest', SLOW, async () => {
  const fleet = uniqueFleet();
  await Promise.all(WORKERS.map((name) => startWorker({ fleet, name, args: ['--max-sessions', '8'] })));
  const handles: WorkflowHandle[] = [];
  const next = async (): Promise<string> => {
    const handle = await startWorkflow(client(), fleet, 'holder');
    handles.push(handle);
    const { worker, takenAtMs } = await takenBy(handle);
    // Only then is its next poll out, behind those of the others.
    await eventually(async () => ((await pollsOf(fleet)).get(worker) ?? 0) > takenAtMs, {
      what: `the next poll of ${worker}`,
    });
    return worker;
  };
  // The first polls are as old as the workers, and may end and begin again in between.
  for (const _ of WORKERS) await next();
  const turns: string[] = [];
  while (turns.length < SESSIONS) {
    turns.push(await next());
    // Every worker once, in any order, and in that order again and again.
    const order = turns.slice(0, WORKERS.length);
    expect(new Set(order).size, turns.join(' ')).toBe(order.length);
    expect(turns).toEqual(turns.map((_, index) => order[index % order.length]));
  }
  for (const handle of handles) await handle.signal('finish');
  await Promise.all(handles.map((handle) => handle.result()));
});
