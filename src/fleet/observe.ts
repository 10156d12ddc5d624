/**
 * Reads a fleet. A list is one visibility query plus one describe per worker, whose memo tells the coarse state and whose
 * presence heartbeat holds the live snapshot. Nothing is asked of the hosts.
 *
 * Both are raw calls: the client's own decode memo and search attributes of every answer twice, which for a fleet of a
 * thousand workers takes longer than the calls themselves. Calls are bounded in number at once, in rate and in time.
 */
import type { Client } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { describeDesired, firstNote } from '../contract/desired.js';
import { AtlasError } from '../contract/errors.js';
import {
  PRESENCE_ACTIVITY,
  type PresenceSnapshot,
  UNTOUCHED,
  WORKER_MEMO_KEY,
  WORKER_WORKFLOW_TYPE,
  type WorkerMemo,
} from '../contract/fleet.js';
import { fleetControlQueue, sessionKey, workerWorkflowId } from '../contract/names.js';
import type { FleetLook, SchedulingRecord, SessionRecord, WorkerRecord, WorkerState } from './records.js';

interface ObservedWorker {
  readonly record: WorkerRecord;
  readonly snapshot: PresenceSnapshot | null;
}

type PendingActivity = temporal.api.workflow.v1.IPendingActivityInfo;
type Execution = temporal.api.common.v1.IWorkflowExecution;
type Payload = temporal.api.common.v1.IPayload;

/** Presence comes three times within its TTL; one that is late by half of it is worth a word. */
const STALE_AFTER_TTL_SHARE = 0.75;
/** On a server that is busy a call waits for its turn most of the time; more than this at once only wait longer. */
const DEFAULT_CONCURRENCY = 48;
/** Among these is the timeout of presence as long as the workflow has not come to it. */
const LAST_EVENTS = 20;
/** Half of what a server lets one namespace have by default (`frontend.namespaceRPS`), so that workers keep the rest. */
const MAX_CALLS_PER_SECOND = 1_200;
/** What the server gives at most. */
const PAGE_SIZE = 1_000;
/**
 * The bounds on a list: longer than the client retries a call of which the server says that it is exhausted, ten times
 * and up to 48 s in all, so that this is what is said in the end.
 */
const LIST_LIMIT_MS = 60_000;
const LIMIT_MS_PER_WORKER = 50;
const GRPC_RESOURCE_EXHAUSTED = 8;
const GRPC_NOT_FOUND = 5;
/** The bound on how many causes are walked: a cause chain may be cyclic. */
const MAX_CAUSES = 16;

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

  /** One worker by its name, for the price of one call; undefined where the fleet does not know it. */
  async findWorker(name: string): Promise<WorkerRecord | undefined> {
    try {
      return (await this.observeOne({ workflowId: workerWorkflowId(this.fleet, name) }))?.record;
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === GRPC_NOT_FOUND) return undefined;
      throw error;
    }
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
              localState: session.localState ?? 'disk',
            };
          }),
    );
  }

  private async observe(): Promise<ObservedWorker[]> {
    try {
      const known = await this.client.withDeadline(Date.now() + LIST_LIMIT_MS, () => this.known());
      const limitMs = LIST_LIMIT_MS + known.length * LIMIT_MS_PER_WORKER;
      const observed = await this.client.withDeadline(Date.now() + limitMs, () => this.observeAll(known));
      const { compare } = new Intl.Collator('en', { numeric: true });
      return observed.sort((a, b) => compare(a.record.name, b.record.name));
    } catch (error) {
      throw exhausted(error) ?? error;
    }
  }

  /** The workflows that represent the workers. */
  private async known(): Promise<Execution[]> {
    const query = workersQuery(this.fleet);
    const { namespace } = this.client.options;
    const known: Execution[] = [];
    let nextPageToken: Uint8Array = new Uint8Array();
    do {
      const page = await this.client.workflowService.listWorkflowExecutions({
        namespace,
        query,
        pageSize: PAGE_SIZE,
        nextPageToken,
      });
      for (const { execution } of page.executions) if (execution != null) known.push(execution);
      ({ nextPageToken } = page);
    } while (nextPageToken.length > 0);
    return known;
  }

  private async observeAll(known: Execution[]): Promise<ObservedWorker[]> {
    const observed: ObservedWorker[] = [];
    const pace = new Pace(MAX_CALLS_PER_SECOND);
    const lane = async (): Promise<void> => {
      try {
        for (let execution = known.pop(); execution !== undefined; execution = known.pop()) {
          await pace.turn();
          const worker = await this.observeOne(execution);
          if (worker !== undefined) observed.push(worker);
        }
      } catch (error) {
        // The list has failed: the other lanes end with the call that they wait for.
        known.length = 0;
        throw error;
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.concurrency, known.length) }, lane));
    return observed;
  }

  private async observeOne(execution: Execution): Promise<ObservedWorker | undefined> {
    const description = await this.client.workflowService.describeWorkflowExecution({
      namespace: this.client.options.namespace,
      execution,
    });
    const held = description.workflowExecutionInfo?.memo?.fields?.[WORKER_MEMO_KEY];
    // Started, but its first registration has not been handled yet.
    if (held == null) return undefined;
    const memo = await this.decode<WorkerMemo>(held);
    const pending = description.pendingActivities.find((each) => each.activityType?.name === PRESENCE_ACTIVITY);
    const live = pending === undefined ? null : await this.snapshotOf(pending);
    const lastWords = pending === undefined && memo.state === 'ready' ? await this.lastWords(execution) : null;
    const snapshot = live ?? lastWords ?? memo.lastSnapshot ?? null;
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
        withdrawn: (live?.withdrawn ?? []).map(({ sinceMs, ...each }) => ({ ...each, since: iso(sinceMs) })),
        sessions: state === 'stopped' ? 0 : (snapshot?.slots.used ?? 0),
        cap: identity.maxSessions,
        reserve: snapshot?.slots.reserve ?? null,
        version: identity.version,
        host: identity.host,
        pid: identity.pid,
        startedAt: iso(identity.startedAtMs),
        ...(identity.embedded === true ? { embedded: true } : {}),
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
    const payload = pending.heartbeatDetails?.payloads?.[0];
    return payload === undefined ? null : await this.decode<PresenceSnapshot>(payload);
  }

  /**
   * What presence said last that has timed out, until the workflow notes it: which takes seconds, or has to wait for a
   * supervisor, and a worker that has just died is when somebody looks what it held.
   */
  private async lastWords(execution: Execution): Promise<PresenceSnapshot | null> {
    const { history } = await this.client.workflowService.getWorkflowExecutionHistoryReverse({
      namespace: this.client.options.namespace,
      execution,
      maximumPageSize: LAST_EVENTS,
    });
    for (const { activityTaskTimedOutEventAttributes: timedOut } of history?.events ?? []) {
      const payload = timedOut?.failure?.timeoutFailureInfo?.lastHeartbeatDetails?.payloads?.[0];
      if (payload != null) return await this.decode<PresenceSnapshot>(payload);
    }
    return null;
  }

  private async decode<T>(payload: Payload): Promise<T> {
    const { payloadConverter, payloadCodecs } = this.client.options.loadedDataConverter;
    let decoded = [payload];
    for (const codec of [...payloadCodecs].reverse()) decoded = await codec.decode(decoded);
    return payloadConverter.fromPayload<T>(decoded[0]!);
  }
}

/** Spreads calls over time: a turn is given no sooner than the rate allows. */
class Pace {
  private nextMs = 0;
  private readonly intervalMs: number;

  constructor(perSecond: number) {
    this.intervalMs = 1_000 / perSecond;
  }

  async turn(): Promise<void> {
    const nowMs = performance.now();
    const turnMs = Math.max(nowMs, this.nextMs);
    this.nextMs = turnMs + this.intervalMs;
    // A timer is no finer than this.
    if (turnMs - nowMs >= 1) await new Promise((resolve) => setTimeout(resolve, turnMs - nowMs));
  }
}

/** The error for a server that does not take more calls; undefined for any other. */
function exhausted(error: unknown): AtlasError | undefined {
  let cause = error;
  for (let depth = 0; depth < MAX_CAUSES && cause instanceof Error; depth += 1) {
    const { code, details } = cause as { code?: unknown; details?: unknown };
    if (code === GRPC_RESOURCE_EXHAUSTED) {
      const reason = typeof details === 'string' && details !== '' ? details : cause.message;
      return new AtlasError(
        'ServerUnreachable',
        `The Temporal server takes no more calls for now, however often it is asked: ${reason}`,
        {
          cause: error,
          next: 'Wait a minute and try again. If it stays so, raise the rate of calls of the namespace (frontend.namespaceRPS), or the presence TTL of the workers.',
        },
      );
    }
    cause = cause.cause;
  }
  return undefined;
}

/** The visibility query for the workflows that represent the workers of a fleet. */
export function workersQuery(fleet: string): string {
  return `WorkflowType = '${WORKER_WORKFLOW_TYPE}' AND ExecutionStatus = 'Running' AND TaskQueue = '${fleetControlQueue(fleet)}'`;
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
    notes: notes.map(({ action, who, why, atMs, sessions }) => ({
      action,
      who,
      why,
      at: iso(atMs),
      ...(sessions === undefined ? {} : { sessions }),
    })),
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
