/**
 * The contract of a session in numbers, with every default in one place, and the messages that owner and supervisor
 * exchange. Imports nothing.
 */

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** What happens when the worker of a session is lost. */
export type OnLost = 'redo' | 'rediscover' | 'fail';

/**
 * Where the steps of a session leave what later ones need. `disk`: in files of the worker, which survive a restart of its
 * executor. `memory`: in the memory of the executor, so that its end loses the session.
 */
export type LocalState = 'disk' | 'memory';

export const SESSION_DEFAULTS = {
  /** How long a silent worker keeps a session: the heartbeat timeout of the lease. It is renewed every third of this. */
  leaseTtlMs: 60 * SECOND_MS,
  /** How long a session may be open in all: the start-to-close timeout of the lease. */
  maxDurationMs: 4 * HOUR_MS,
  /** How long a workflow waits for a worker before it gives up with `AcquireTimeout`. */
  acquireTimeoutMs: 10 * MINUTE_MS,
  onLost: 'redo' as OnLost,
  state: 'disk' as LocalState,
  /**
   * How long the owner waits for a worker that is suspected to be gone before it gives the session up: the
   * schedule-to-start timeout of the question whether the worker still holds it.
   */
  recoveryWindowMs: 5 * SECOND_MS,
  /** How many times a lost session is acquired again before `SessionReacquisitionsExhausted`. */
  maxReacquisitions: 3,
  /** Heartbeat timeout of a pinned activity that names none. The executor heartbeats by itself. */
  pinnedHeartbeatTimeoutMs: 30 * SECOND_MS,
  /** How long the worker that `prefer` names is waited for before any other is asked. */
  preferForMs: 5 * SECOND_MS,
} as const;

/** Bounds of what may be asked for; outside them the options are refused. */
export const SESSION_LIMITS = {
  leaseTtlMs: { min: 1 * SECOND_MS, max: 24 * HOUR_MS },
  maxDurationMs: { min: 1 * SECOND_MS, max: 30 * 24 * HOUR_MS },
  acquireTimeoutMs: { min: 100, max: 30 * 24 * HOUR_MS },
  recoveryWindowMs: { min: 1 * SECOND_MS, max: 1 * HOUR_MS },
  idleTimeoutMs: { min: 1 * SECOND_MS, max: 30 * 24 * HOUR_MS },
  maxReacquisitions: { min: 0, max: 1_000 },
  preferForMs: { min: 100, max: 1 * HOUR_MS },
} as const;

/** A lease is renewed three times within its TTL, so that two calls may fail before the owner notices. */
export const RENEWALS_PER_TTL = 3;
/** How long the owner waits for a worker to take the release before it cancels the lease instead. */
export const RELEASE_SCHEDULE_TO_START_MS = 5 * SECOND_MS;
/** How long a release may take: the supervisor first waits for running activities to end. */
export const RELEASE_START_TO_CLOSE_MS = 90 * SECOND_MS;
/** A release whose worker is not heard of for this long is asked for again: the open poll of a dead one has taken it. */
export const RELEASE_HEARTBEAT_TIMEOUT_MS = 5 * SECOND_MS;
/** How much later than the supervisor the server expires a lease: its start-to-close timeout is the backstop. */
export const EXPIRY_BACKSTOP_MS = 30 * SECOND_MS;
/** How long a worker keeps the slot of an owner that continued as new, for the next run to adopt the session. */
export const HAND_OVER_MS = 15 * SECOND_MS;
/** How long a worker asks an owner that still runs whether it adopts a session whose lease the server has timed out. */
export const ASK_OWNER_MS = 60 * SECOND_MS;
/** How long the supervisor waits for a cancelled activity of a released session before it kills the executor. */
export const RELEASE_KILL_AFTER_MS = 30 * SECOND_MS;

export const LEASE_ACTIVITY = 'atlas:acquireWorker';
export const RELEASE_ACTIVITY = 'atlas:releaseSession';
export const CONFIRM_ACTIVITY = 'atlas:confirmSession';
export const ADOPT_ACTIVITY = 'atlas:adoptSession';
export const GRANT_SIGNAL = 'atlas:grant';
/** From the workflow of a worker to the owners of its sessions: its presence timed out. */
export const SUSPECTED_SIGNAL = 'atlas:workerSuspected';
/** From a worker to an owner: the server has timed the lease out; adopt the session or release it. */
export const ASK_SIGNAL = 'atlas:askOwner';

/**
 * What the owner asks for. Of this the activity id says session and epoch, the queue the capabilities, and the heartbeat
 * timeout the lease TTL, so that the activity is given only the rest: {@link LeaseArguments}.
 */
export interface LeaseRequest {
  readonly session: string;
  readonly epoch: number;
  readonly capabilities: readonly string[];
  readonly leaseTtlMs: number;
  readonly maxDurationMs: number;
  readonly recoveryWindowMs: number;
  /** The session ends when no pinned activity ran for this long; null for never. */
  readonly idleTimeoutMs: number | null;
  readonly state: LocalState;
}

/** Argument of the lease activity. */
export interface LeaseArguments extends Pick<LeaseRequest, 'maxDurationMs' | 'recoveryWindowMs'> {
  /** Left out for never. */
  readonly idleTimeoutMs?: number;
  /** Only on the queue of a worker that is preferred, which does not say them. */
  readonly capabilities?: readonly string[];
  /** Left out for `disk`. */
  readonly state?: 'memory';
}

/** Argument of the adopt activity, which becomes the new lease of a session that still lives on its worker. */
export interface AdoptRequest {
  readonly session: string;
  /** That of the new lease; leases of older epochs are ignored from then on. */
  readonly epoch: number;
  /** Which acquisition is meant: its owner may be an earlier run of the workflow. */
  readonly grantId: string;
  /** Those of the adopting run, which may ask for other ones than the run before it. */
  readonly leaseTtlMs: number;
  readonly recoveryWindowMs: number;
  readonly idleTimeoutMs: number | null;
  /** Left out for `disk`. */
  readonly state?: 'memory';
}

/** Argument of the question whether the worker still holds a session whose lease lives. */
export interface ConfirmRequest {
  readonly session: string;
  readonly grantId: string;
}

/** Argument of {@link SUSPECTED_SIGNAL}. */
export interface Suspicion {
  readonly worker: string;
  readonly queue: string;
}

/** What the supervisor signals to the owner once a slot is taken. */
export interface Grant {
  readonly session: string;
  readonly epoch: number;
  /** New at every grant, and the same when a restarted supervisor repeats the signal of one it made. */
  readonly grantId: string;
  readonly worker: string;
  /** Its unique queue; the control queue follows from it. */
  readonly queue: string;
  /** How long the fleet takes to notice that the worker is silent. */
  readonly presenceTtlMs: number;
}

/**
 * A session as a value, which the next run of a workflow that continues as new passes to `withSession`. Small and
 * serialisable; its fields are Atlas's own.
 */
export interface SessionHandle {
  readonly version: 1;
  readonly grant: Grant;
  /** The highest lease epoch of the run that made the handle. */
  readonly epoch: number;
  readonly attempt: number;
  /** By the clock of the workflow. */
  readonly expiresAtMs: number;
}

/** Argument of the release activity. */
export interface ReleaseRequest {
  readonly session: string;
  /** Which acquisition is meant. */
  readonly grantId: string;
}
