/**
 * What the fleet knows of its workers: the registration a daemon sends, and the snapshot its presence heartbeat carries.
 * These records are what `atlas workers ls -o json` and `atlas sessions ls -o json` print. Imports nothing.
 */

export const WORKER_WORKFLOW_TYPE = 'atlasWorker';
export const REGISTER_UPDATE = 'atlas:register';
export const STOPPED_UPDATE = 'atlas:stopped';
export const PRESENCE_ACTIVITY = 'atlas:presence';

/** A worker that sends no presence for this long is lost. */
export const PRESENCE_TTL_MS = 6_000;

/** Who a daemon is; fixed for one start of it. */
export interface WorkerIdentity {
  readonly name: string;
  readonly instance: string;
  /** New at every start of the daemon. */
  readonly nonce: string;
  readonly fleet: string;
  readonly queue: string;
  readonly controlQueue: string;
  readonly capabilities: readonly string[];
  readonly maxSessions: number;
  readonly version: string;
  readonly host: string;
  readonly pid: number;
  readonly machineId: string;
  readonly bootId: string;
  readonly presenceTtlMs: number;
  /** Milliseconds since the epoch, by the clock of the host. */
  readonly startedAtMs: number;
}

/** Answer to a registration. */
export interface RegisterAnswer {
  /** Whether another instance had the name before; its sessions are lost. */
  readonly replaced: boolean;
  /** Whether owners were told lately that the worker may be gone; absent from the answer of an older fleet. */
  readonly suspected?: boolean;
}

/** Runs that own a session. */
export type OwnerList = readonly { readonly workflowId: string; readonly runId: string }[];

/** Argument of the update by which a daemon says that it stops. */
export interface StoppedNotice {
  readonly nonce: string;
  /** The owners of the sessions that it leaves to its next start; absent from the notice of an older daemon. */
  readonly owners?: OwnerList;
}

/** Argument of the presence activity. */
export interface PresenceRequest {
  /** The life of the daemon that is meant; another one must not answer. */
  readonly nonce: string;
  /** Whether the worker counts as lost, so that the daemon registers again when it picks this up. */
  readonly lost: boolean;
}

/** The coarse state that the workflow of a worker holds; clients refine it by the age of the last heartbeat. */
export type HeldWorkerState = 'ready' | 'lost' | 'stopped';

/** The key of {@link WorkerMemo} in the memo of the workflow of a worker. */
export const WORKER_MEMO_KEY = 'atlas';

/** What the memo of the workflow of a worker says; upserted on transitions only. */
export interface WorkerMemo {
  readonly state: HeldWorkerState;
  readonly identity: WorkerIdentity;
  readonly changedAtMs: number;
  /** The last snapshot of a worker that was lost. */
  readonly lastSnapshot?: PresenceSnapshot;
}

export interface PinnedAttemptSnapshot {
  readonly activity: string;
  readonly activityId: string;
  readonly attempt: number;
  readonly startedAtMs: number;
}

export type SessionState = 'granting' | 'held' | 'releasing';

export interface SessionSnapshot {
  readonly session: string;
  readonly epoch: number;
  readonly state: SessionState;
  readonly workflowId: string;
  readonly runId: string;
  readonly workflowType: string;
  readonly capabilities: readonly string[];
  readonly grantedAtMs: number;
  readonly expiresAtMs: number;
  readonly attempts: readonly PinnedAttemptSnapshot[];
}

/** `degraded`: it ends again and again, so the worker takes no sessions until it stays up. */
export type ExecutorState = 'starting' | 'ready' | 'down' | 'degraded';

export interface PresenceSnapshot {
  readonly v: 1;
  readonly sentAtMs: number;
  readonly stopping: boolean;
  readonly sessions: readonly SessionSnapshot[];
  readonly slots: { readonly used: number; readonly cap: number };
  readonly executor: {
    readonly state: ExecutorState;
    readonly pid: number | null;
    readonly incarnation: string | null;
    readonly restarts: number;
  };
  readonly disk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  readonly load1: number;
}
