/**
 * What a fleet is seen as: the records that `atlas` prints and that programs get from {@link FleetClient}. Types only.
 *
 * @module
 */
import type { ExecutorState, OnDeadline, OperatorAction, Scheduling, SessionState } from '../contract/fleet.js';

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
  }[];
}

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
  /** Whether the slot is held with nothing using it: its owner has closed. Null where that was not asked for. */
  readonly leaked: boolean | null;
  readonly leaseTtlMs: number | null;
  readonly recoveryWindowMs: number | null;
}
