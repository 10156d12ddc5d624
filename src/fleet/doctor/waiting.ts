/**
 * What the open workflows of the namespace wait for: leases that no live worker may grant, and pinned work on queues of
 * workers that are gone. Bounded: the newest workflows only.
 */
import type { Client } from '@temporalio/client';
import { formatDurationMs } from '../../contract/duration.js';
import { WORKER_WORKFLOW_TYPE } from '../../contract/fleet.js';
import {
  capabilityLabel,
  controlQueueOf,
  parseAcquireQueue,
  parseSessionActivityId,
  parseWorkerQueue,
  WORKER_ACTIVITY_PREFIX,
} from '../../contract/names.js';
import { PROBE_WORKFLOW_TYPE } from '../../contract/probe.js';
import { LEASE_ACTIVITY } from '../../contract/session.js';
import { inLanes } from '../lanes.js';
import { describeOwner, timeMs } from '../owner-run.js';
import type { PoolRecord, WorkerRecord } from '../records.js';
import { type AtlasCommand, bad, counted, type Finding, listed, ok, orElse } from './findings.js';
import { liveWorkers } from './look.js';

const NEWEST_WORKFLOWS = 500;
const DESCRIBES_AT_ONCE = 16;
const SCHEDULED = 1;
/** The owner of a session notices a lost worker within this, by default, and then goes on elsewhere. */
const NOTICED_WITHIN_MS = 30_000;

/** An activity of an open workflow that waits for somebody to take it. */
export interface WaitingActivity {
  readonly workflowId: string;
  readonly activityId: string;
  readonly activityType: string;
  /** Null where the server does not say. */
  readonly queue: string | null;
  readonly waitedMs: number;
}

export interface WaitingWork {
  readonly activities: readonly WaitingActivity[];
  readonly workflows: number;
  /** There are more open workflows than were looked at. */
  readonly truncated: boolean;
}

export async function listWaiting(client: Client): Promise<WaitingWork> {
  const query = `ExecutionStatus = 'Running' AND WorkflowType NOT IN ('${WORKER_WORKFLOW_TYPE}', '${PROBE_WORKFLOW_TYPE}')`;
  const open: { readonly workflowId: string; readonly runId: string }[] = [];
  let nextPageToken: Uint8Array | undefined;
  do {
    const page = await client.connection.workflowService.listWorkflowExecutions({
      namespace: client.options.namespace,
      pageSize: NEWEST_WORKFLOWS,
      query,
      ...(nextPageToken === undefined ? {} : { nextPageToken }),
    });
    for (const { execution } of page.executions ?? [])
      open.push({ workflowId: execution?.workflowId ?? '', runId: execution?.runId ?? '' });
    nextPageToken = page.nextPageToken?.length ? page.nextPageToken : undefined;
    // One page more than is looked at tells whether there is one.
  } while (nextPageToken !== undefined && open.length <= NEWEST_WORKFLOWS);
  const looked = open.slice(0, NEWEST_WORKFLOWS);
  const nowMs = Date.now();
  const activities = await inLanes(looked, DESCRIBES_AT_ONCE, async (run) => {
    // One that has closed meanwhile has nothing pending.
    const { pending } = await describeOwner(client, run);
    return pending
      .filter(({ state }) => state === SCHEDULED)
      .map(({ activityId, activityType, scheduledTime, activityOptions }) => ({
        workflowId: run.workflowId,
        activityId: activityId ?? '',
        activityType: activityType?.name ?? '',
        queue: activityOptions?.taskQueue?.name ?? null,
        waitedMs: Math.max(0, nowMs - (timeMs(scheduledTime) ?? nowMs)),
      }));
  });
  return { activities: activities.flat(), workflows: looked.length, truncated: open.length > looked.length };
}

function within({ workflows, truncated }: WaitingWork): string {
  return truncated
    ? `in the newest ${workflows} open workflows; there are more, which were not looked at`
    : `in ${counted(workflows, 'open workflow')}`;
}

/** Leases that wait for a capability set which no live worker has. Pure. */
export function checkWaiting(
  work: WaitingWork,
  pools: readonly PoolRecord[],
  workers: readonly WorkerRecord[],
  fleet: string,
  atlas: AtlasCommand,
): readonly Finding[] {
  const live = liveWorkers(workers);
  const found: Finding[] = [];
  let served = 0;
  for (const { capabilities, waits } of waitsBySet(work, pools, fleet)) {
    const label = capabilityLabel(capabilities);
    const serving = (worker: WorkerRecord): boolean => capabilities.every((name) => worker.capabilities.includes(name));
    const who = waits.owners.length === 0 ? '' : `: ${listed(waits.owners)}`;
    const longest = waits.longestMs === null ? '' : `, the first for ${duration(waits.longestMs)}`;
    const what = `${counted(waits.count, 'session')} ${waits.count === 1 ? 'waits' : 'wait'}${longest}${who}`;
    if (!live.some(serving)) {
      const before = workers.find(serving);
      const start = `\`atlasd --fleet ${fleet}${capabilities.length === 0 ? '' : ` --capabilities ${capabilities.join(',')}`}\``;
      found.push(
        bad(
          'waiting',
          'fail',
          label,
          `${what}; no live worker serves it${before === undefined ? '' : `, ${before.name} (${before.state}) did`}`,
          before === undefined
            ? `start a worker that does: ${start}`
            : `on ${before.host}: \`systemctl start atlasd\`, or start another: ${start}`,
        ),
      );
      continue;
    }
    const closed = live.filter(serving).filter(({ scheduling }) => scheduling.scheduling !== 'open');
    if (closed.length === live.filter(serving).length) {
      const [first] = closed;
      found.push(
        bad(
          'waiting',
          'warn',
          label,
          `${what}; every live worker that serves it is out of service: ${listed(closed.map(({ name, state }) => `${name} (${state})`))}`,
          `\`${atlas(`atlas uncordon ${first!.name}`)}\`, which ${first!.scheduling.who ?? 'somebody'} took out of service`,
        ),
      );
      continue;
    }
    const open = live.filter(serving).filter((worker) => !closed.includes(worker));
    const lacking = open.map(({ name, withdrawn }) => ({
      name,
      withdrawn: withdrawn.map(({ capability }) => capability).filter((each) => capabilities.includes(each)),
    }));
    if (lacking.every(({ withdrawn }) => withdrawn.length > 0)) {
      found.push(
        bad(
          'waiting',
          'warn',
          label,
          `${what}; every live worker that serves it has withdrawn a part of it: ${listed(lacking.map(({ name, withdrawn }) => `${name} (${withdrawn.join(', ')})`))}`,
          `\`${atlas(`atlas workers show ${lacking[0]!.name}`)}\` has what its check says`,
        ),
      );
      continue;
    }
    served += waits.count;
  }
  const rest =
    served === 0
      ? 'no session waits for a worker'
      : `${counted(served, 'session')} ${served === 1 ? 'waits' : 'wait'} for a slot of live workers`;
  const good = ok('waiting', fleet, `${rest}, ${within(work)}`);
  return work.truncated ? [...found, good] : orElse(found, good);
}

interface Waits {
  readonly count: number;
  readonly longestMs: number | null;
  readonly owners: readonly string[];
}

/** From the leases themselves where the server tells their queues, else from what it counts on the queues that are known. */
function waitsBySet(
  { activities }: WaitingWork,
  pools: readonly PoolRecord[],
  fleet: string,
): { readonly capabilities: readonly string[]; readonly waits: Waits }[] {
  const leases = activities.filter(({ activityType }) => activityType === LEASE_ACTIVITY);
  if (leases.some(({ queue }) => queue === null))
    return pools
      .filter(({ backlog }) => backlog !== null && backlog > 0)
      .map(({ capabilities, backlog, oldestWaitMs }) => ({
        capabilities,
        waits: { count: backlog!, longestMs: oldestWaitMs, owners: [] },
      }));
  const bySet = new Map<string, { capabilities: readonly string[]; leases: WaitingActivity[] }>();
  for (const lease of leases) {
    const capabilities = parseAcquireQueue(fleet, lease.queue!);
    if (capabilities === undefined) continue;
    const label = capabilityLabel(capabilities);
    const entry = bySet.get(label) ?? { capabilities, leases: [] };
    entry.leases.push(lease);
    bySet.set(label, entry);
  }
  return [...bySet.values()].map(({ capabilities, leases: ofSet }) => {
    const longestFirst = [...ofSet].sort((a, b) => b.waitedMs - a.waitedMs);
    // Where an owner asks with several leases at once, it waits for one session.
    const owners = [...new Set(longestFirst.map(({ workflowId }) => workflowId))];
    return { capabilities, waits: { count: owners.length, longestMs: longestFirst[0]!.waitedMs, owners } };
  });
}

/** Pinned work on a queue that no live worker polls. Pure. */
export function checkStranded(
  work: WaitingWork,
  workers: readonly WorkerRecord[],
  fleet: string,
  atlas: AtlasCommand,
): readonly Finding[] {
  const polled = new Set(liveWorkers(workers).flatMap(({ queue }) => [queue, controlQueueOf(queue)]));
  const found: Finding[] = [];
  for (const { workflowId, activityId, activityType, queue, waitedMs } of work.activities) {
    const session = parseSessionActivityId(activityId);
    // Ids of Atlas: a pooled queue of a capability with a dot looks like the queue of a worker.
    if (queue === null || (session === undefined && !activityId.startsWith(WORKER_ACTIVITY_PREFIX))) continue;
    const target = parseWorkerQueue(fleet, queue);
    if (target === undefined || polled.has(queue)) continue;
    const worker = workers.find(({ name }) => name === target.name);
    const isSame = worker?.instance === target.instance;
    const state =
      worker === undefined
        ? 'which nobody knows'
        : isSame
          ? `which is ${worker.state}`
          : `an earlier ${worker.name}, whose directory is gone`;
    const recovers = session !== undefined && waitedMs < NOTICED_WITHIN_MS;
    const end = `\`temporal workflow cancel --workflow-id ${workflowId}\``;
    found.push(
      bad(
        'stranded',
        recovers ? 'warn' : 'fail',
        workflowId,
        `${activityType} waits for ${target.name}, ${state}, for ${duration(waitedMs)}${recovers ? '; its owner should go on elsewhere by itself' : ''}`,
        recovers
          ? `\`${atlas('atlas doctor --check stranded')}\` again in ${duration(NOTICED_WITHIN_MS)}`
          : isSame
            ? `on ${worker!.host}: \`systemctl start atlasd\`; if the worker is gone for good: ${end}`
            : end,
      ),
    );
  }
  const blind = work.activities.filter(({ queue }) => queue === null).length;
  const good = ok(
    'stranded',
    fleet,
    blind > 0
      ? `the server does not tell the queues of ${blind === 1 ? 'one waiting activity' : `${blind} waiting activities`}, so that nothing is known of them`
      : `no pinned work waits for a worker that is gone, ${within(work)}`,
  );
  return work.truncated || blind > 0 ? [...found, good] : orElse(found, good);
}

function duration(ms: number): string {
  return formatDurationMs(Math.max(1, Math.round(ms / 1_000)) * 1_000);
}
