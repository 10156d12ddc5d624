/**
 * What supervisor and executor say to each other over the Unix socket in the state directory: HTTP with JSON bodies.
 * Imports nothing but other parts of the contract.
 *
 * | request | answer |
 * | --- | --- |
 * | `POST /executor` {@link ExecutorHello} | a stream of {@link ExecutorCommand} lines; its end means that the supervisor is gone |
 * | `POST /executor/ready` | 204 |
 * | `POST /attempts` {@link BeginAttempt} | 200 {@link AttemptFacts}, or 409 {@link AttemptRefusal} |
 * | `POST /attempts/end` {@link EndAttempt} | 204 |
 * | `GET /status` | {@link LocalStatus} |
 *
 * A body that is not what it should be gets 400, one that is too long 413, anything else unknown 404.
 */
import type { ErrorCode } from './errors.js';
import type { PresenceSnapshot, WorkerIdentity } from './fleet.js';

/** The longest body of a request; a pinned attempt has a task token and a few names. */
export const LOCAL_BODY_LIMIT_BYTES = 64 * 1024;

export interface ExecutorHello {
  readonly pid: number;
  readonly incarnation: string;
}

/** What the executor serves, sent as the first command of the stream. */
export interface ExecutorSettings {
  readonly fleet: string;
  readonly name: string;
  readonly queue: string;
  readonly capabilities: readonly string[];
  readonly keptDirectory: string;
  readonly keptForMs: number;
  readonly activitiesPath: string;
  readonly workflows: { readonly kind: 'bundle' | 'path'; readonly path: string };
  /** How long running activities may go on when the executor is stopped. */
  readonly graceMs: number;
  /** Pooled activities at once, per queue. */
  readonly maxActivities: number;
  readonly temporal: { readonly address?: string; readonly namespace?: string; readonly profile?: string };
  readonly logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error';
  readonly logFormat: 'json' | 'text';
}

export type ExecutorCommand =
  | { readonly type: 'settings'; readonly settings: ExecutorSettings }
  /** Cancel every attempt of this session: it is over. */
  | { readonly type: 'cancel-session'; readonly key: string; readonly reason: string }
  /** Stop polling, let running activities end within the grace of the settings, then exit. */
  | { readonly type: 'stop' };

/** An attempt of an activity on the worker's unique queue. */
export interface BeginAttempt {
  readonly id: string;
  readonly incarnation: string;
  /** Key and epoch of the session; absent for calls through `workerActivities`, which are in no session. */
  readonly session?: { readonly key: string; readonly epoch: number };
  readonly activity: string;
  readonly activityId: string;
  readonly attempt: number;
  /** Base64. With it the supervisor fails the attempt at once when the executor dies. */
  readonly taskToken: string;
}

export interface AttemptFacts {
  readonly scratchDirectory: string | null;
  readonly capabilities: readonly string[];
}

export interface AttemptRefusal {
  readonly code: ErrorCode;
  readonly message: string;
}

export interface EndAttempt {
  readonly id: string;
}

export interface LocalStatus {
  readonly identity: WorkerIdentity;
  readonly snapshot: PresenceSnapshot;
}
