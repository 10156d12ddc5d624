/**
 * The capability sets of a fleet: what waits for a session of each, and what the fleet has for it. One DescribeTaskQueue
 * call for each set, at most eight for a worker and few for a fleet, whose workers are mostly alike.
 */
import type { Client } from '@temporalio/client';
import { acquireQueue, capabilityLabel, capabilitySubsets } from '../contract/names.js';
import { inLanes } from './lanes.js';
import type { FleetLook, PoolRecord, SessionRecord, WorkerRecord } from './records.js';

const CALLS_AT_ONCE = 16;
/** Temporal's TaskQueueType and TaskQueueKind. */
const ACTIVITY_TASKS = 2;
const NORMAL_QUEUE = 1;

/** What waits on the acquire queue of a set. */
export interface QueueStats {
  readonly backlog: number | null;
  readonly oldestWaitMs: number | null;
}

/** Every subset that a known worker serves, lost and stopped workers included; the empty one first. */
export async function listPools(client: Client, fleet: string, look: FleetLook): Promise<PoolRecord[]> {
  const sets = new Map<string, readonly string[]>();
  for (const { capabilities } of look.workers) {
    for (const subset of capabilitySubsets(capabilities)) sets.set(capabilityLabel(subset), subset);
  }
  const ordered = [...sets.values()].sort(
    (a, b) => a.length - b.length || capabilityLabel(a).localeCompare(capabilityLabel(b), 'en', { numeric: true }),
  );
  return await inLanes(ordered, CALLS_AT_ONCE, async (capabilities) => {
    const queue = acquireQueue(fleet, capabilities);
    return poolOf(capabilities, queue, look, await statsOf(client, queue));
  });
}

/** What the server says about the tasks of a queue over all of its partitions. */
async function statsOf(client: Client, queue: string): Promise<QueueStats> {
  const { stats } = await client.connection.workflowService.describeTaskQueue({
    namespace: client.options.namespace,
    taskQueue: { name: queue, kind: NORMAL_QUEUE },
    taskQueueType: ACTIVITY_TASKS,
    reportStats: true,
  });
  if (stats == null) return { backlog: null, oldestWaitMs: null };
  const backlog = Number(stats.approximateBacklogCount ?? 0);
  const age = stats.approximateBacklogAge;
  const oldestWaitMs = Number(age?.seconds ?? 0) * 1_000 + Math.round((age?.nanos ?? 0) / 1e6);
  return { backlog, oldestWaitMs: backlog > 0 ? oldestWaitMs : null };
}

/** One row. Pure. */
export function poolOf(
  capabilities: readonly string[],
  queue: string,
  { workers, sessions }: FleetLook,
  { backlog, oldestWaitMs }: QueueStats,
): PoolRecord {
  const serving = workers.filter((worker) => capabilities.every((name) => worker.capabilities.includes(name)));
  const live = serving.filter(({ state }) => !GONE.has(state));
  const freeSlots = live.reduce((sum, worker) => sum + freeSlotsOf(worker, sessions, capabilities), 0);
  return {
    pool: capabilityLabel(capabilities),
    capabilities,
    queue,
    backlog,
    oldestWaitMs,
    freeSlots,
    liveWorkers: live.length,
    workers: serving.map(({ name }) => name),
    reason: freeSlots > 0 ? null : whyNone(live, capabilities),
  };
}

const GONE: ReadonlySet<string> = new Set(['lost', 'stopped', 'registering']);

function whyNone(live: readonly WorkerRecord[], capabilities: readonly string[]): string {
  if (live.length === 0) return 'no live worker serves it';
  const taking = live.filter(takesSessions);
  if (taking.some((worker) => withdrawnOf(worker, capabilities).length === 0)) return 'every slot is taken or reserved';
  if (taking.length > 0) {
    const withdrawn = [...new Set(taking.flatMap((worker) => withdrawnOf(worker, capabilities)))].sort();
    return `${withdrawn.join(' and ')} withdrawn on every worker that takes sessions`;
  }
  const states = [...new Set(live.map(({ state, reason }) => (state === 'ready' && reason !== null ? reason : state)))];
  return `no live worker takes sessions: ${states.join(', ')}`;
}

/** A ready worker with a reason is stopping, or its executor is not up. */
function takesSessions({ state, reason }: WorkerRecord): boolean {
  return state === 'ready' && reason === null;
}

/** Those of the set whose check fails there. */
function withdrawnOf({ withdrawn }: WorkerRecord, capabilities: readonly string[]): string[] {
  return withdrawn.map(({ capability }) => capability).filter((capability) => capabilities.includes(capability));
}

/** How many sessions that ask for `capabilities` the worker could take now, by the rule of the daemon. */
function freeSlotsOf(
  worker: WorkerRecord,
  sessions: readonly SessionRecord[],
  capabilities: readonly string[],
): number {
  if (!takesSessions(worker) || withdrawnOf(worker, capabilities).length > 0) return 0;
  let room = worker.cap - worker.sessions;
  const reserves = Object.entries(worker.reserve ?? {}).filter(([capability]) => !capabilities.includes(capability));
  // Looked for only where it counts: a large fleet has thousands of sessions.
  const held = reserves.length === 0 ? [] : sessions.filter((session) => session.worker === worker.name);
  for (const [capability, count] of reserves) {
    room -= Math.max(0, count - held.filter((session) => session.capabilities.includes(capability)).length);
  }
  return Math.max(0, room);
}
