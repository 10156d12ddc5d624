/**
 * Reads a fleet. A list is one visibility query, whose memo tells the coarse state, plus one describe per worker for the
 * live snapshot in its presence heartbeat. Nothing is asked of the hosts.
 */
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { describeDesired, firstNote } from '../contract/desired.js';
import {
  PRESENCE_ACTIVITY,
  type PresenceSnapshot,
  UNTOUCHED,
  WORKER_MEMO_KEY,
  WORKER_WORKFLOW_TYPE,
  type WorkerMemo,
} from '../contract/fleet.js';
import { fleetControlQueue, sessionKey } from '../contract/names.js';
import type { FleetLook, SchedulingRecord, SessionRecord, WorkerRecord, WorkerState } from './records.js';

interface ObservedWorker {
  readonly record: WorkerRecord;
  readonly snapshot: PresenceSnapshot | null;
}

type PendingActivity = temporal.api.workflow.v1.IPendingActivityInfo;

/** Presence comes three times within its TTL; one that is late by half of it is worth a word. */
const STALE_AFTER_TTL_SHARE = 0.75;
const DEFAULT_CONCURRENCY = 16;

export class FleetView {
  constructor(
    private readonly client: Client,
    private readonly fleet: string,
    private readonly concurrency = DEFAULT_CONCURRENCY,
  ) {}

  /** Every worker that is known to the fleet, by name. */
  async listWorkers(): Promise<WorkerRecord[]> {
    return (await this.observe()).map(({ record }) => record);
  }

  /** Every session that a worker holds, or held when it was last heard of; by worker, the oldest first. */
  async listSessions(): Promise<SessionRecord[]> {
    return this.sessionsIn(await this.observe());
  }

  /** Workers and sessions of one look, so that the one list knows every worker that the other names. */
  async look(): Promise<FleetLook> {
    const observed = await this.observe();
    return { workers: observed.map(({ record }) => record), sessions: this.sessionsIn(observed) };
  }

  private sessionsIn(observed: readonly ObservedWorker[]): SessionRecord[] {
    const nowMs = Date.now();
    return observed.flatMap(({ record, snapshot }) =>
      record.state === 'stopped'
        ? []
        : (snapshot?.sessions ?? []).map((session) => {
            const oldest = [...session.attempts].sort((a, b) => a.startedAtMs - b.startedAtMs)[0];
            return {
              session: session.session,
              key: session.key ?? sessionKey(session.session, session.runId),
              worker: record.name,
              workerState: record.state,
              workerHeartbeatAgeMs: record.heartbeatAgeMs,
              workerPresenceTtlMs: record.presenceTtlMs,
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
                      startedAt: iso(oldest.startedAtMs),
                    },
              heldForMs: Math.max(0, nowMs - session.grantedAtMs),
              expiresInMs: session.expiresAtMs - nowMs,
              idleForMs: session.idleForMs ?? null,
              scratchBytes: session.scratchBytes ?? null,
              lastStep:
                session.lastStep == null
                  ? null
                  : { activity: session.lastStep.activity, endedAt: iso(session.lastStep.endedAtMs) },
              ownerStatus: null,
              leaked: null,
              leaseTtlMs: session.leaseTtlMs ?? null,
              recoveryWindowMs: session.recoveryWindowMs ?? null,
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
    const { state, reason } = withScheduling(memo, liveness(memo, pending !== undefined, live, heartbeatAgeMs));
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
        reserve: snapshot?.slots.reserve ?? null,
        version: identity.version,
        host: identity.host,
        pid: identity.pid,
        startedAt: iso(identity.startedAtMs),
        heartbeatAgeMs,
        executor: live === null ? null : { state: live.executor.state, restarts: live.executor.restarts },
        disk: live?.disk ?? null,
        load1: live?.load1 ?? null,
        presenceTtlMs: identity.presenceTtlMs,
        clockSkewMs: live === null || heartbeatAtMs === null ? null : Math.round(live.sentAtMs - heartbeatAtMs),
        scheduling: schedulingRecord(memo),
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

interface StateAndReason {
  readonly state: WorkerState;
  readonly reason: string | null;
}

/** A worker that is alive and well is what operators want of it; of any other both are said. */
function withScheduling({ desired = UNTOUCHED }: WorkerMemo, live: StateAndReason): StateAndReason {
  if (desired.scheduling === 'open') return live;
  const reasons = [...(live.reason === null ? [] : [live.reason]), describeDesired(desired)];
  return { state: live.state === 'ready' ? desired.scheduling : live.state, reason: reasons.join('; ') };
}

function schedulingRecord({ desired = UNTOUCHED, appliedRevision = 0 }: WorkerMemo): SchedulingRecord {
  const { drain, notes } = desired;
  const first = firstNote(desired);
  return {
    scheduling: desired.scheduling,
    revision: desired.revision,
    applied: appliedRevision >= desired.revision,
    who: first?.who ?? null,
    why: first?.why ?? null,
    since: first === undefined ? null : iso(first.atMs),
    drain:
      drain === null
        ? null
        : {
            who: drain.who,
            startedAt: iso(drain.startedAtMs),
            deadlineAt: drain.deadlineAtMs === null ? null : iso(drain.deadlineAtMs),
            onDeadline: drain.onDeadline,
            overdue: drain.overdue,
            stop: drain.stopNonce !== null,
          },
    notes: notes.map(({ action, who, why, atMs }) => ({ action, who, why, at: iso(atMs) })),
  };
}

function iso(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** Liveness is the age of the heartbeat; the memo only tells what the age can not. */
function liveness(
  memo: WorkerMemo,
  presenceIsPending: boolean,
  live: PresenceSnapshot | null,
  ageMs: number | null,
): StateAndReason {
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
