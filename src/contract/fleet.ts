/**
 * What the fleet knows of its workers: the registration a daemon sends, and the snapshot its presence heartbeat carries.
 * These records are what `atlas workers ls -o json` and `atlas sessions ls -o json` print. Imports nothing.
 */

export const WORKER_WORKFLOW_TYPE = 'atlasWorker';
export const REGISTER_UPDATE = 'atlas:register';
export const STOPPED_UPDATE = 'atlas:stopped';
export const PRESENCE_ACTIVITY = 'atlas:presence';
/** What operators want of a worker: updates, each validated, on the workflow that represents it. */
export const CORDON_UPDATE = 'atlas:cordon';
export const UNCORDON_UPDATE = 'atlas:uncordon';
export const DRAIN_UPDATE = 'atlas:drain';
export const RELEASE_UPDATE = 'atlas:release';
export const FORGET_UPDATE = 'atlas:forget';
/** From a daemon to the workflow of its worker: the last session of a worker that drains has ended. */
export const DRAINED_SIGNAL = 'atlas:drained';
/**
 * The same orders as a signal, for a fleet of which no worker runs: nobody is there to validate it or to answer, and the
 * first that returns acts on it.
 */
export const ORDER_SIGNAL = 'atlas:order';
/** On the control queue of a worker: takes the desired state to its daemon. */
export const APPLY_ACTIVITY = 'atlas:apply';
/** On the control queue of a worker: ends sessions that an operator releases. */
export const FORCE_RELEASE_ACTIVITY = 'atlas:forceRelease';

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
  /** It runs inside a user's own process and not as atlasd. */
  readonly embedded?: true;
}

/** Whether a worker takes new sessions, as operators want it; pinned activities of sessions it holds run all the same. */
export type Scheduling = 'open' | 'cordoned' | 'draining' | 'drained';

/** `refused`: an order that waited for a worker of the fleet to run, and could not be followed then. */
export type OperatorAction = 'cordon' | 'uncordon' | 'drain' | 'release' | 'deadline' | 'drained' | 'refused';

/** One thing that was done to a worker: by whom, why and when. */
export interface OperatorNote {
  readonly action: OperatorAction;
  readonly who: string;
  readonly why: string | null;
  /** By the clock of the server. */
  readonly atMs: number;
  /** Keys of the sessions that were released, the first {@link NOTED_SESSIONS} of them. */
  readonly sessions?: readonly string[];
}

export const NOTED_SESSIONS = 20;

export type OnDeadline = 'report' | 'release';

/** A drain that was ordered. */
export interface DrainOrder {
  readonly who: string;
  readonly startedAtMs: number;
  /** By the clock of the server; null for none. */
  readonly deadlineAtMs: number | null;
  /** What happens to sessions that remain at the deadline: they are only reported, or released by force. */
  readonly onDeadline: OnDeadline;
  /** Set once the deadline was reached with work left. */
  readonly overdue: boolean;
  /** The life of the daemon that ends itself once drained; null where it goes on. A later life is not ended again. */
  readonly stopNonce: string | null;
}

/** What operators want of a worker. Survives its host, its daemon and its workflow's runs. */
export interface DesiredState {
  /** Rises with every change. 0: never touched. */
  readonly revision: number;
  readonly scheduling: Scheduling;
  readonly sinceMs: number;
  readonly drain: DrainOrder | null;
  /** Since the worker was last open: the first, whose reason counts, and the latest, {@link NOTES_KEPT} in all. */
  readonly notes: readonly OperatorNote[];
}

export const NOTES_KEPT = 20;

export const UNTOUCHED: DesiredState = { revision: 0, scheduling: 'open', sinceMs: 0, drain: null, notes: [] };

/** What every operator's order says. */
export interface OperatorOrder {
  /** Names the order, so that one that arrives twice counts once. */
  readonly orderId: string;
  /** Such as `ops@bastion-1`. */
  readonly who: string;
  readonly why: string | null;
  /** Only on the state that the operator saw; with any other the order is a conflict. */
  readonly ifRevision?: number;
}

/** Argument of {@link CORDON_UPDATE}. */
export type CordonOrder = OperatorOrder;

/** Argument of {@link UNCORDON_UPDATE}. */
export interface UncordonOrder extends OperatorOrder {
  /** Also what another operator has cordoned or drains. */
  readonly ofOthers: boolean;
}

/** Argument of {@link DRAIN_UPDATE}. */
export interface DrainRequest extends OperatorOrder {
  /** From now; null for none. */
  readonly deadlineMs: number | null;
  readonly onDeadline: OnDeadline;
  /** Whether the daemon ends itself once drained. */
  readonly stop: boolean;
  /** Replaces a drain that goes on by other terms, which is a conflict otherwise. */
  readonly replace: boolean;
}

/** Answer to the orders above. */
export interface OperatorAnswer {
  readonly desired: DesiredState;
  /** Whether the daemon has confirmed it. If not, it is recorded and applied when the worker returns. */
  readonly applied: boolean;
  /** False where the worker was in this state already. */
  readonly changed: boolean;
}

/** Argument of {@link RELEASE_UPDATE}. */
export interface ReleaseOrder extends OperatorOrder {
  /** Keys of sessions, see `sessionKey`. */
  readonly keys: readonly string[];
  /** The owner fails with `SessionReleased` instead of following its `onLost`. */
  readonly failOwner: boolean;
}

/** `released`: slot and scratch are free. `not-held`: the worker has no such session. `recorded`: applied on its return. */
export type ReleaseOutcome = 'released' | 'not-held' | 'recorded';

export interface ReleaseAnswer {
  readonly outcomes: readonly { readonly key: string; readonly outcome: ReleaseOutcome }[];
}

/** Argument of {@link FORGET_UPDATE}. */
export interface ForgetOrder extends OperatorOrder {
  /** Also a worker that held sessions when it was last heard of. */
  readonly withSessions: boolean;
}

/** Argument of {@link ORDER_SIGNAL}. */
export type SignalledOrder =
  | { readonly kind: 'cordon'; readonly order: CordonOrder }
  | { readonly kind: 'uncordon'; readonly order: UncordonOrder }
  | { readonly kind: 'drain'; readonly order: DrainRequest }
  | { readonly kind: 'release'; readonly order: ReleaseOrder };

/** Argument of {@link APPLY_ACTIVITY}. */
export interface ApplyRequest {
  readonly desired: DesiredState;
}

/** Answer of {@link APPLY_ACTIVITY}: from now on no session begins unless the desired state allows it. */
export interface ApplyAnswer {
  readonly revision: number;
  /** Of the sessions that the worker holds. */
  readonly owners: OwnerList;
}

/** Argument of {@link FORCE_RELEASE_ACTIVITY}. */
export interface ForceReleaseRequest {
  /** Null for every session. */
  readonly keys: readonly string[] | null;
  readonly who: string;
  readonly why: string | null;
  readonly failOwner: boolean;
}

/** Argument of {@link DRAINED_SIGNAL}. */
export interface DrainedNotice {
  readonly nonce: string;
  readonly revision: number;
}

/** Answer to a registration. */
export interface RegisterAnswer {
  /** What operators want of the worker; absent from the answer of an older fleet. */
  readonly desired?: DesiredState;
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
  /** Absent where no operator has touched the worker. */
  readonly desired?: DesiredState;
  /** The revision that the daemon has confirmed. */
  readonly appliedRevision?: number;
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
  /** The acquisition; names the session also where another run of its owner has it now. */
  readonly key?: string;
  readonly leaseTtlMs?: number;
  readonly recoveryWindowMs?: number;
  /** How long no pinned activity has run; null while one does. */
  readonly idleForMs?: number | null;
  /** What its scratch directory takes on disk, measured now and then; null where it was not measured yet. */
  readonly scratchBytes?: number | null;
  /** The pinned activity that ended last. */
  readonly lastStep?: { readonly activity: string; readonly endedAtMs: number } | null;
  /** Where its state is; absent from the snapshot of an older daemon, which knows `disk` only. */
  readonly localState?: 'disk' | 'memory';
}

/** `degraded`: it ends again and again, so the worker takes no sessions until it stays up. */
export type ExecutorState = 'starting' | 'ready' | 'down' | 'degraded';

/** A capability whose check fails, or has not passed yet: nothing that asks for it is taken meanwhile. */
export interface WithdrawnCapability {
  readonly capability: string;
  /** In words, without a full stop. */
  readonly reason: string;
  /** By the clock of the host. */
  readonly sinceMs: number;
}

export interface PresenceSnapshot {
  readonly v: 1;
  readonly sentAtMs: number;
  readonly stopping: boolean;
  readonly sessions: readonly SessionSnapshot[];
  readonly slots: {
    readonly used: number;
    readonly cap: number;
    /** Slots kept for sessions that ask for a capability; absent from the snapshot of an older daemon. */
    readonly reserve?: Readonly<Record<string, number>>;
  };
  readonly executor: {
    readonly state: ExecutorState;
    readonly pid: number | null;
    readonly incarnation: string | null;
    readonly restarts: number;
  };
  readonly disk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  readonly load1: number;
  /** Absent from the snapshot of an older daemon, like the next one. */
  readonly scheduling?: Scheduling;
  /** The revision of the desired state that the daemon acts on. */
  readonly desiredRevision?: number;
  /** Absent where none is. */
  readonly withdrawn?: readonly WithdrawnCapability[];
}
