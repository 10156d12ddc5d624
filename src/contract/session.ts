/**
 * The contract of a session in numbers, with every default in one place, and the messages that owner and supervisor
 * exchange. Imports nothing.
 */

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** What happens when the worker of a session is lost. */
export type OnLost = 'redo' | 'fail';

export const SESSION_DEFAULTS = {
  /** How long a silent worker keeps a session: the heartbeat timeout of the lease. It is renewed every third of this. */
  leaseTtlMs: 60 * SECOND_MS,
  /** How long a session may be open in all: the start-to-close timeout of the lease. */
  maxDurationMs: 4 * HOUR_MS,
  /** How long a workflow waits for a worker before it gives up with `AcquireTimeout`. */
  acquireTimeoutMs: 10 * MINUTE_MS,
  onLost: 'redo' as OnLost,
  /** How many times a lost session is acquired again before `SessionReacquisitionsExhausted`. */
  maxReacquisitions: 3,
  /** Heartbeat timeout of a pinned activity that names none. The executor heartbeats by itself. */
  pinnedHeartbeatTimeoutMs: 30 * SECOND_MS,
} as const;

/** Bounds of what may be asked for; outside them the options are refused. */
export const SESSION_LIMITS = {
  leaseTtlMs: { min: 1 * SECOND_MS, max: 24 * HOUR_MS },
  maxDurationMs: { min: 1 * SECOND_MS, max: 30 * 24 * HOUR_MS },
  acquireTimeoutMs: { min: 100, max: 30 * 24 * HOUR_MS },
  maxReacquisitions: { min: 0, max: 1_000 },
} as const;

/** How long the owner waits for a worker to take the release before it cancels the lease instead. */
export const RELEASE_SCHEDULE_TO_START_MS = 5 * SECOND_MS;
/** How long a release may take: the supervisor first waits for running activities to end. */
export const RELEASE_START_TO_CLOSE_MS = 90 * SECOND_MS;
/** How long the supervisor waits for a cancelled activity of a released session before it kills the executor. */
export const RELEASE_KILL_AFTER_MS = 30 * SECOND_MS;

export const LEASE_ACTIVITY = 'atlas:acquireWorker';
export const RELEASE_ACTIVITY = 'atlas:releaseSession';
export const GRANT_SIGNAL = 'atlas:grant';

/** Argument of the lease activity. */
export interface LeaseRequest {
  readonly session: string;
  readonly epoch: number;
  readonly capabilities: readonly string[];
  readonly leaseTtlMs: number;
  readonly maxDurationMs: number;
}

/** What the supervisor signals to the owner once a slot is taken. */
export interface Grant {
  readonly session: string;
  readonly epoch: number;
  /** New at every grant, and the same when a restarted supervisor repeats the signal of one it made. */
  readonly grantId: string;
  readonly worker: string;
  readonly queue: string;
  readonly controlQueue: string;
  /** The life of the executor at the time of the grant. */
  readonly incarnation: string;
}

/** Argument of the release activity. */
export interface ReleaseRequest {
  readonly session: string;
  readonly epoch: number;
}

/** Answer of the release activity. `released: false` means that the worker did not hold the session. */
export interface ReleaseAnswer {
  readonly released: boolean;
}
