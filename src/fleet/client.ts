/**
 * What programs and the command line use to look at a fleet: {@link FleetClient}.
 *
 * A list is one visibility query, whose memo tells the coarse state, plus one describe per worker for the live snapshot
 * in its presence heartbeat. Nothing is asked of the hosts.
 *
 * @module
 */
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import {
  type ExecutorState,
  PRESENCE_ACTIVITY,
  type PresenceSnapshot,
  type SessionState,
  WORKER_MEMO_KEY,
  WORKER_WORKFLOW_TYPE,
  type WorkerMemo,
} from '../contract/fleet.js';
import { checkName, fleetControlQueue, sessionKey } from '../contract/names.js';

/**
 * The liveness of a worker: `registering` (no presence yet), `ready`, `degraded` (its executor can not stay up), `stale` (a presence is late), `lost` (presence
 * timed out), `stopped` (it ended by itself).
 */
export type WorkerState = 'registering' | 'ready' | 'degraded' | 'stale' | 'lost' | 'stopped';

export interface WorkerRecord {
  readonly name: string;
  readonly state: WorkerState;
  readonly fleet: string;
  readonly instance: string;
  readonly queue: string;
  readonly capabilities: readonly string[];
  /** Slots taken. */
  readonly sessions: number;
  /** Slots in all. */
  readonly cap: number;
  readonly version: string;
  readonly host: string;
  readonly pid: number;
  /** When its daemon started, ISO 8601, by the clock of its host. */
  readonly startedAt: string;
  /** Milliseconds since the last presence, by the clocks of the server and of this host; null when there is none. */
  readonly heartbeatAgeMs: number | null;
  readonly executor: { readonly state: ExecutorState; readonly restarts: number } | null;
  readonly disk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  /** Why the worker is not ready, in words. */
  readonly reason: string | null;
}

export interface SessionRecord {
  readonly session: string;
  /** `<session>.<run id>`: unique in the fleet. */
  readonly key: string;
  readonly worker: string;
  readonly workerState: WorkerState;
  readonly state: SessionState;
  readonly workflowId: string;
  readonly runId: string;
  readonly workflowType: string;
  readonly capabilities: readonly string[];
  /** Rises with every acquisition of the session. */
  readonly epoch: number;
  /** The pinned activity that runs now, the oldest first where there are several. */
  readonly step: { readonly activity: string; readonly attempt: number; readonly startedAt: string } | null;
  readonly heldForMs: number;
  readonly expiresInMs: number;
}

export interface FleetClientOptions {
  readonly fleet: string;
  /** How many describe calls run at once. @default 16 */
  readonly concurrency?: number;
}

interface ObservedWorker {
  readonly record: WorkerRecord;
  readonly snapshot: PresenceSnapshot | null;
}

type PendingActivity = temporal.api.workflow.v1.IPendingActivityInfo;

/** Presence comes three times within its TTL; one that is late by half of it is worth a word. */
const STALE_AFTER_TTL_SHARE = 0.75;
const DEFAULT_CONCURRENCY = 16;

export class FleetClient {
  private readonly fleet: string;
  private readonly concurrency: number;

  constructor(
    private readonly client: Client,
    options: FleetClientOptions,
  ) {
    this.fleet = checkName('fleet', options.fleet);
    this.concurrency = options.concurrency ?? DEFAULT_CONCURRENCY;
  }

  /** Every worker that is known to the fleet, by name. */
  async listWorkers(): Promise<WorkerRecord[]> {
    return (await this.observe()).map(({ record }) => record);
  }

  /** Every session that a worker holds, or held when it was last heard of; by worker, the oldest first. */
  async listSessions(): Promise<SessionRecord[]> {
    const nowMs = Date.now();
    return (await this.observe()).flatMap(({ record, snapshot }) =>
      record.state === 'stopped'
        ? []
        : (snapshot?.sessions ?? []).map((session) => {
            const oldest = [...session.attempts].sort((a, b) => a.startedAtMs - b.startedAtMs)[0];
            return {
              session: session.session,
              key: sessionKey(session.session, session.runId),
              worker: record.name,
              workerState: record.state,
              state: session.state,
              workflowId: session.workflowId,
              runId: session.runId,
              workflowType: session.workflowType,
              capabilities: session.capabilities,
              epoch: session.epoch,
              step:
                oldest === undefined
                  ? null
                  : {
                      activity: oldest.activity,
                      attempt: oldest.attempt,
                      startedAt: new Date(oldest.startedAtMs).toISOString(),
                    },
              heldForMs: Math.max(0, nowMs - session.grantedAtMs),
              expiresInMs: session.expiresAtMs - nowMs,
            };
          }),
    );
  }

  private async observe(): Promise<ObservedWorker[]> {
    const query = `WorkflowType = '${WORKER_WORKFLOW_TYPE}' AND ExecutionStatus = 'Running' AND TaskQueue = '${fleetControlQueue(this.fleet)}'`;
    const known: WorkflowExecutionInfo[] = [];
    for await (const info of this.client.workflow.list({ query })) known.push(info);
    const observed: ObservedWorker[] = [];
    const lane = async (): Promise<void> => {
      for (let info = known.pop(); info !== undefined; info = known.pop()) {
        const worker = await this.observeOne(info);
        if (worker !== undefined) observed.push(worker);
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.concurrency, known.length) }, lane));
    return observed.sort((a, b) => a.record.name.localeCompare(b.record.name, 'en', { numeric: true }));
  }

  private async observeOne(info: WorkflowExecutionInfo): Promise<ObservedWorker | undefined> {
    const description = await this.client.workflow.getHandle(info.workflowId, info.runId).describe();
    const memo = description.memo?.[WORKER_MEMO_KEY] as WorkerMemo | undefined;
    // Started, but its first registration has not been handled yet.
    if (memo === undefined) return undefined;
    const pending = description.raw.pendingActivities?.find((each) => each.activityType?.name === PRESENCE_ACTIVITY);
    const live = pending === undefined ? null : await this.snapshotOf(pending);
    const snapshot = live ?? memo.lastSnapshot ?? null;
    const heartbeatAtMs =
      live === null ? (snapshot?.sentAtMs ?? null) : (milliseconds(pending?.lastHeartbeatTime) ?? live.sentAtMs);
    const heartbeatAgeMs = heartbeatAtMs === null ? null : Math.max(0, Math.round(Date.now() - heartbeatAtMs));
    const { state, reason } = liveness(memo, pending !== undefined, live, heartbeatAgeMs);
    const { identity } = memo;
    return {
      snapshot,
      record: {
        name: identity.name,
        state,
        fleet: identity.fleet,
        instance: identity.instance,
        queue: identity.queue,
        capabilities: identity.capabilities,
        sessions: state === 'stopped' ? 0 : (snapshot?.slots.used ?? 0),
        cap: identity.maxSessions,
        version: identity.version,
        host: identity.host,
        pid: identity.pid,
        startedAt: new Date(identity.startedAtMs).toISOString(),
        heartbeatAgeMs,
        executor: live === null ? null : { state: live.executor.state, restarts: live.executor.restarts },
        disk: live?.disk ?? null,
        reason,
      },
    };
  }

  private async snapshotOf(pending: PendingActivity): Promise<PresenceSnapshot | null> {
    const payloads = pending.heartbeatDetails?.payloads ?? [];
    if (payloads.length === 0) return null;
    const { payloadConverter, payloadCodecs } = this.client.options.loadedDataConverter;
    let decoded = payloads;
    for (const codec of [...payloadCodecs].reverse()) decoded = await codec.decode(decoded);
    return payloadConverter.fromPayload<PresenceSnapshot>(decoded[0]!);
  }
}

/** Liveness is the age of the heartbeat; the memo only tells what the age can not. */
function liveness(
  memo: WorkerMemo,
  presenceIsPending: boolean,
  live: PresenceSnapshot | null,
  ageMs: number | null,
): { state: WorkerState; reason: string | null } {
  const ttlMs = memo.identity.presenceTtlMs;
  if (memo.state === 'stopped') return { state: 'stopped', reason: null };
  if (memo.state === 'lost') return { state: 'lost', reason: 'its presence timed out' };
  if (!presenceIsPending) {
    // It timed out, but no supervisor is left in the fleet to run the workflow that would note it.
    const sinceMs = Date.now() - memo.changedAtMs;
    return sinceMs < ttlMs
      ? { state: 'registering', reason: null }
      : { state: 'lost', reason: 'its presence timed out, and no worker of the fleet is left to note it' };
  }
  if (live === null || ageMs === null) {
    const sinceMs = Date.now() - memo.changedAtMs;
    return sinceMs < ttlMs
      ? { state: 'registering', reason: null }
      : { state: 'lost', reason: 'it never sent its presence' };
  }
  if (ageMs > ttlMs) return { state: 'lost', reason: 'its presence is overdue' };
  if (ageMs > ttlMs * STALE_AFTER_TTL_SHARE) return { state: 'stale', reason: 'its presence is late' };
  if (live.executor.state === 'degraded') return { state: 'degraded', reason: 'its executor ends again and again' };
  if (live.executor.state !== 'ready') return { state: 'ready', reason: `its executor is ${live.executor.state}` };
  return { state: 'ready', reason: live.stopping ? 'it is stopping' : null };
}

function milliseconds(time: temporal.api.workflow.v1.IPendingActivityInfo['lastHeartbeatTime']): number | undefined {
  if (time?.seconds === undefined || time.seconds === null) return undefined;
  return Number(time.seconds) * 1_000 + (time.nanos ?? 0) / 1e6;
}
