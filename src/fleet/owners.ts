/**
 * Which sessions are still used: the status of the run that owns each, and whether the slot is held for nothing.
 *
 * Statuses come from visibility in bulk, as a list of sessions may name thousands of runs. What visibility does not know,
 * and the leases of sessions that do nothing, are asked of the runs themselves.
 */
import type { Client } from '@temporalio/client';
import { HAND_OVER_MS } from '../contract/session.js';
import { inLanes } from './lanes.js';
import { describeOwner, isOpen, openLease, type OwnerRun, statusName, timeMs } from './owner-run.js';
import type { SessionRecord } from './records.js';

/** The server parses the list of runs in each query; a hundred is well within what every store takes. */
const RUNS_PER_QUERY = 100;
const QUERIES_AT_ONCE = 8;
const DESCRIBES_AT_ONCE = 32;
/** Visibility lags a second or two behind, and so do snapshots: of a younger session nothing bad is said. */
export const TOO_YOUNG_MS = 5_000;

/** What is known of the owner of a session. */
export interface OwnerState {
  readonly status: string;
  readonly closedAtMs: number | null;
  /** Whether a lease of the session is open; null where that was not asked. */
  readonly leaseOpen: boolean | null;
}

/** The sessions with `ownerStatus` and `leaked`. */
export async function withOwners(client: Client, sessions: readonly SessionRecord[]): Promise<SessionRecord[]> {
  const owners = await statusesOf(client, sessions);
  // A run that has begun, or a store that lags: the run itself tells, before anyone is told that it does not exist.
  const described = new Map<string, OwnerRun>();
  const describeAll = async (wanted: readonly SessionRecord[]): Promise<void> => {
    const unknown = [...new Map(wanted.map((session) => [session.runId, session])).values()].filter(
      ({ runId }) => !described.has(runId),
    );
    await inLanes(unknown, DESCRIBES_AT_ONCE, async (session) => {
      described.set(session.runId, await describeOwner(client, session));
    });
  };
  await describeAll(sessions.filter((session) => !owners.has(session.runId) || isIdle(session, owners)));
  return sessions.map((session) => {
    const run = described.get(session.runId);
    const seen = run ?? owners.get(session.runId)!;
    const owner: OwnerState = {
      status: seen.status,
      closedAtMs: seen.closedAtMs,
      leaseOpen: run === undefined ? null : openLease(session, run.pending) !== undefined,
    };
    return { ...session, ownerStatus: owner.status, leaked: isLeaked(session, owner, Date.now()) };
  });
}

function isIdle(session: SessionRecord, owners: ReadonlyMap<string, { readonly status: string }>): boolean {
  const status = owners.get(session.runId)?.status;
  return status !== undefined && isOpen(status) && mayLackLease(session);
}

/**
 * A session with a running step has a lease: its owner would have cancelled the step. Unless it is the last that was heard
 * of a worker which is lost.
 */
function mayLackLease({ state, step, heldForMs, workerState }: SessionRecord): boolean {
  return state !== 'releasing' && (step === null || workerState === 'lost') && heldForMs >= TOO_YOUNG_MS;
}

/** Whether the slot of a session is held with nothing using it. Pure. */
export function isLeaked(session: SessionRecord, owner: OwnerState, nowMs: number): boolean {
  if (session.state === 'releasing' || session.heldForMs < TOO_YOUNG_MS) return false;
  if (isOpen(owner.status)) return owner.leaseOpen === false && mayLackLease(session);
  // The worker keeps it for the next run of the workflow to adopt.
  if (owner.status === 'CONTINUED_AS_NEW') return owner.closedAtMs !== null && nowMs - owner.closedAtMs > HAND_OVER_MS;
  return true;
}

/** By run id; a run that visibility does not know is absent. */
async function statusesOf(
  client: Client,
  sessions: readonly SessionRecord[],
): Promise<Map<string, { readonly status: string; readonly closedAtMs: number | null }>> {
  const runIds = [...new Set(sessions.map(({ runId }) => runId))];
  const batches = Array.from({ length: Math.ceil(runIds.length / RUNS_PER_QUERY) }, (_, index) =>
    runIds.slice(index * RUNS_PER_QUERY, (index + 1) * RUNS_PER_QUERY),
  );
  const answers = await inLanes(batches, QUERIES_AT_ONCE, async (batch) => {
    const { executions } = await client.connection.workflowService.listWorkflowExecutions({
      namespace: client.options.namespace,
      pageSize: batch.length,
      query: `RunId IN (${batch.map((runId) => `'${runId}'`).join(', ')})`,
    });
    return executions ?? [];
  });
  return new Map(
    answers
      .flat()
      .map(({ execution, status, closeTime }) => [
        execution?.runId ?? '',
        { status: statusName(status), closedAtMs: timeMs(closeTime) },
      ]),
  );
}
