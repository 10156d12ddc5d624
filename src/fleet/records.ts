/**
 * What a fleet is seen as: the records that `atlas` prints and that programs get from {@link FleetClient}. Types only.
 *
 * @module
 */
import type { ExecutorState, OnDeadline, OperatorAction, Scheduling, SessionState } from '../contract/fleet.js';
import type { Progress } from '../contract/progress.js';
import type { LocalState } from '../contract/session.js';

/**
 * What an operator sees of a worker first. Liveness comes before everything else: `registering` (no presence yet), `stale`
 * (a presence is late), `lost` (presence timed out), `stopped` (it ended by itself), `degraded` (its executor can not stay
 * up). A live worker is `ready`, or what operators want of it: `cordoned`, `draining`, `drained`.
 */
export type WorkerState =
  'registering' | 'ready' | 'cordoned' | 'draining' | 'drained' | 'degraded' | 'stale' | 'lost' | 'stopped';

/** What operators want of a worker, whatever its state. */
export interface SchedulingRecord {
  readonly scheduling: Scheduling;
  /** Rises with every change; see `ifRevision` of an order. */
  readonly revision: number;
  /** Whether the daemon has confirmed it; if not, it is applied when the worker returns. */
  readonly applied: boolean;
  /** Who took the worker out of service, and why; null while it is open. */
  readonly who: string | null;
  readonly why: string | null;
  /** ISO 8601, like every time in a record. */
  readonly since: string | null;
  readonly drain: {
    readonly who: string;
    readonly startedAt: string;
    readonly deadlineAt: string | null;
    readonly onDeadline: OnDeadline;
    readonly overdue: boolean;
    readonly stop: boolean;
  } | null;
  readonly notes: readonly {
    readonly action: OperatorAction;
    readonly who: string;
    readonly why: string | null;
    readonly at: string;
    /** Keys of sessions that were released. */
    readonly sessions?: readonly string[];
  }[];
}

/** A capability that a worker has withdrawn until its check passes. */
export interface WithdrawnRecord {
  readonly capability: string;
  /** What the check says, in words. */
  readonly reason: string;
  readonly since: string;
}

export interface WorkerRecord {
  readonly name: string;
  readonly state: WorkerState;
  readonly fleet: string;
  readonly instance: string;
  readonly queue: string;
  readonly capabilities: readonly string[];
  /** Those of them whose check fails, so that nothing which asks for one is taken; none of a worker without checks. */
  readonly withdrawn: readonly WithdrawnRecord[];
  /** Slots taken. */
  readonly sessions: number;
  /** Slots in all. */
  readonly cap: number;
  /** Slots kept for sessions that ask for a capability; null where the daemon does not say. */
  readonly reserve: Readonly<Record<string, number>> | null;
  readonly version: string;
  readonly host: string;
  readonly pid: number;
  /** When its daemon started, ISO 8601, by the clock of its host. */
  readonly startedAt: string;
  /** It runs inside a user's own process, by `SessionWorkerPlugin`; absent for atlasd. */
  readonly embedded?: true;
  /** Milliseconds since the last presence, by the clocks of the server and of this host; null when there is none. */
  readonly heartbeatAgeMs: number | null;
  readonly executor: { readonly state: ExecutorState; readonly restarts: number } | null;
  readonly disk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  readonly load1: number | null;
  readonly presenceTtlMs: number;
  /** How far the clock of its host is ahead of the server's, by its last presence; null where there is none. */
  readonly clockSkewMs: number | null;
  readonly scheduling: SchedulingRecord;
  /** Why the worker is not ready, in words. */
  readonly reason: string | null;
}

export interface SessionRecord {
  readonly session: string;
  /** `<session>.<run id>`: unique in the fleet. */
  readonly key: string;
  readonly worker: string;
  readonly workerState: WorkerState;
  readonly workerHeartbeatAgeMs: number | null;
  readonly workerPresenceTtlMs: number;
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
  /** How long no pinned activity has run; null while one does, and where the daemon does not say. */
  readonly idleForMs: number | null;
  readonly scratchBytes: number | null;
  /** The pinned activity that ended last. */
  readonly lastStep: { readonly activity: string; readonly endedAt: string } | null;
  /**
   * The status of the owning run, such as `RUNNING` or `TERMINATED`; null where it was not asked for, `NOT_FOUND` where
   * the server knows no such run.
   */
  readonly ownerStatus: string | null;
  /**
   * Whether the slot is held with nothing using it: its owner has closed, or has no lease of this session any more. Null
   * where that was not asked for.
   */
  readonly leaked: boolean | null;
  readonly leaseTtlMs: number | null;
  readonly recoveryWindowMs: number | null;
  /** Where its steps keep what later ones need; a session in `memory` is lost when its executor ends. */
  readonly localState: LocalState;
}

/** Workers and sessions, seen together. */
export interface FleetLook {
  readonly workers: readonly WorkerRecord[];
  readonly sessions: readonly SessionRecord[];
}

/** A capability set that sessions may ask for, and what the fleet has for it. */
export interface PoolRecord {
  /** `gpu+ocr`; `any` for sessions that ask for nothing. */
  readonly pool: string;
  readonly capabilities: readonly string[];
  /** Where sessions of this set wait for a worker. */
  readonly queue: string;
  /** Sessions that wait for a slot, about, as the server counts them; null where it does not say. */
  readonly backlog: number | null;
  /** How long the first of them has waited, about; null where none does. */
  readonly oldestWaitMs: number | null;
  /** Sessions of this set that could begin now. Pools share the slots of their workers: the numbers do not add up. */
  readonly freeSlots: number;
  /** Workers that serve it and are neither lost nor stopped nor still registering. */
  readonly liveWorkers: number;
  /** The names of all that serve it. */
  readonly workers: readonly string[];
  /** Why no session of this set can begin now, in words; null where one can. */
  readonly reason: string | null;
}

/** A pinned call of a session, as the history of its owner tells it. */
export interface StepRecord {
  readonly activity: string;
  readonly activityId: string;
  /** Which acquisition of the session it belongs to: it rises when the session is redone. */
  readonly epoch: number;
  /** The worker it was pinned to. */
  readonly worker: string;
  /** The host of that worker; null where the worker is not known any more, or has another identity now. */
  readonly host: string | null;
  /** Of the attempt that ended it, or that runs or waits now; null where none was started. */
  readonly attempt: number | null;
  readonly scheduledAt: string;
  /** When that attempt started; null where the server does not say. */
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly result: 'running' | 'waiting' | 'completed' | 'failed' | 'timed out' | 'cancelled';
  /** Why it failed, or why its last attempt did. */
  readonly failure: string | null;
}

/** A pinned activity of a session that has not ended. */
export interface RunningStepRecord {
  readonly activity: string;
  readonly activityId: string;
  readonly attempt: number;
  /** `waiting`: for the worker to take it, or for the next attempt. */
  readonly state: 'running' | 'waiting' | 'cancelling' | 'paused';
  readonly startedAt: string | null;
  readonly heartbeatAgeMs: number | null;
  /** What it last reported of itself, if it does. */
  readonly progress: Progress | null;
  readonly lastFailure: string | null;
  readonly nextAttemptAt: string | null;
}

/** A session with what its owner knows of it. */
export interface SessionDetail {
  readonly session: SessionRecord;
  readonly owner: {
    readonly workflowId: string;
    readonly runId: string;
    readonly workflowType: string;
    readonly status: string;
    readonly startedAt: string | null;
    readonly closedAt: string | null;
  };
  /** The lease that is open for it; null where there is none. */
  readonly lease: {
    readonly activityId: string;
    /** Since its last renewal; null where there was none yet. */
    readonly renewedAgoMs: number | null;
  } | null;
  readonly running: readonly RunningStepRecord[];
  /** In the order in which they were called. */
  readonly steps: readonly StepRecord[];
  /** Whether the history is longer than what was read of it, so that older steps are missing. */
  readonly stepsTruncated: boolean;
}
