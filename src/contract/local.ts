/**
 * What supervisor and executor say to each other over the Unix socket in the state directory: HTTP with JSON bodies.
 * Imports nothing but other parts of the contract.
 *
 * | request | answer |
 * | --- | --- |
 * | `POST /executor` {@link ExecutorHello} | a stream of {@link ExecutorCommand} lines; its end means that the supervisor is gone |
 * | `POST /executor/fence` {@link ExecutorHello} | a stream of {@link FenceLine}s for the executor's fence; its end means the same |
 * | `POST /executor/loaded` {@link ExecutorHello} | 204 |
 * | `POST /executor/failed` {@link ExecutorFailure} | 204 |
 * | `POST /executor/ready` | 204 |
 * | `POST /executor/quiet` {@link ExecutorHello}: its last polls have come back | 204 |
 * | `POST /attempts` {@link BeginAttempt} | 200 {@link AttemptFacts}, or 409 {@link AttemptRefusal} |
 * | `POST /attempts/end` {@link EndAttempt} | 204 |
 * | `POST /memory/dropped` {@link MemoryDropped} | 204 |
 * | `GET /status` | {@link LocalStatus} |
 * | `POST /reload` {@link ReloadRequest} | 200 and a stream of {@link ReloadLine}s, or 409 {@link AttemptRefusal} |
 * | `POST /orders` {@link LocalOrder} | 200 {@link LocalOrderAnswer}, or 409 {@link AttemptRefusal} |
 *
 * A body that is not what it should be gets 400, one that is too long 413, anything else unknown 404.
 */
import type { ErrorCode } from './errors.js';
import type {
  CordonOrder,
  DesiredState,
  DrainRequest,
  PresenceSnapshot,
  UncordonOrder,
  WorkerIdentity,
} from './fleet.js';

/**
 * The longest body of a request. The largest ends an attempt with a result, which is JSON within JSON and may double by
 * that; the rest are a task token and a few names.
 */
export const LOCAL_BODY_LIMIT_BYTES = 128 * 1024;

export interface ExecutorHello {
  readonly pid: number;
  readonly incarnation: string;
}

/** Why an executor ends before it polls. */
export interface ExecutorFailure extends ExecutorHello {
  readonly code: ErrorCode;
  readonly message: string;
}

/** What the executor serves, sent as the first command of the stream. */
export interface ExecutorSettings {
  readonly fleet: string;
  readonly name: string;
  readonly queue: string;
  readonly capabilities: readonly string[];
  /** Those that have a check. */
  readonly checkedCapabilities: readonly string[];
  /** Those of them that are withdrawn now. */
  readonly withdrawn: readonly string[];
  readonly keptDirectory: string;
  readonly cacheDirectory: string;
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

/** Why the supervisor ends attempts: the session is over, or a fence is near. */
export type SessionEndCode = 'SessionLost' | 'SessionExpired' | 'SessionReleased' | 'AttemptFenced';

export type ExecutorCommand =
  | { readonly type: 'settings'; readonly settings: ExecutorSettings }
  /** Poll: what it has loaded may run. */
  | { readonly type: 'serve' }
  /** Cancel every attempt of this session of this run: it is over, or it must end before a fence. */
  | {
      readonly type: 'cancel-session';
      /** That of {@link AttemptFacts}. Session and run are for attempts that have not got their facts yet. */
      readonly key: string;
      readonly session: string;
      readonly runId: string;
      readonly code: SessionEndCode;
      readonly reason: string;
    }

  /** The session is over and its attempts have ended: drop what it has in memory, and say so. */
  | { readonly type: 'drop-memory'; readonly memory: SessionMemoryName }
  /** From now on no pooled activity is taken that asks for one of these capabilities; all others are again. */
  | { readonly type: 'withdrawn'; readonly capabilities: readonly string[] }

  /** Stop polling, let running activities end within the grace of the settings, then exit. */
  | {
      readonly type: 'stop';
      /** Another executor has taken its place: polls of the unique queue that are out may come back before. */
      readonly replaced?: true;
    };

/** What a session has in memory, by its acquisition: one that is acquired again begins with an empty memory. */
export interface SessionMemoryName {
  readonly key: string;
  readonly fencingToken: number;
}

/** What a session had in memory is given back, as far as it lets itself. */
export interface MemoryDropped {
  readonly incarnation: string;
  readonly memory: SessionMemoryName;
}

/** How long pinned attempts may go on unless this is said again; null while there is none. */
export interface FenceLine {
  readonly forMs: number | null;
}

/** An attempt of an activity on the worker's unique queue. */
export interface BeginAttempt {
  readonly id: string;
  readonly incarnation: string;
  /** The session by its owner and lease; absent for calls through `workerActivities`, which are in no session. */
  readonly session?: {
    readonly session: string;
    readonly runId: string;
    readonly epoch: number;
    /** The acquisition that the activity was scheduled for. */
    readonly grantId?: string;
  };
  readonly activity: string;
  readonly activityId: string;
  readonly attempt: number;
  /** Base64. With it the supervisor fails the attempt at once when the executor dies. */
  readonly taskToken: string;
}

export interface AttemptFacts {
  /** The session's own, which outlives its runs; null for calls in no session. */
  readonly sessionKey: string | null;
  readonly scratchDirectory: string | null;
  readonly capabilities: readonly string[];
  /** Rises with every acquisition of a session. */
  readonly fencingToken: number | null;
  /** Absent for a session whose state is on disk, and for calls in no session. */
  readonly state?: 'memory';
  /** The result of an earlier attempt, which the server may not have got: to be answered instead of run again. */
  readonly result?: EncodedResult;
}

export interface AttemptRefusal {
  readonly code: ErrorCode;
  readonly message: string;
}

/** The result of a finished activity as JSON; `json` is absent for `undefined`. */
export interface EncodedResult {
  readonly json?: string;
}

/** A result over this is not kept: it is better computed again than written to the ledger at every step. */
export const KEPT_RESULT_LIMIT_BYTES = 32 * 1024;

export interface EndAttempt {
  readonly id: string;
  /** What the activity returned, where it succeeded and the result is small. */
  readonly result?: EncodedResult;
}

export interface LocalStatus {
  readonly identity: WorkerIdentity;
  readonly snapshot: PresenceSnapshot;
  /** What operators want of the worker, orders of this host included. */
  readonly desired: DesiredState;
  /** Whether the fleet knows that; false while an order of this host waits for Temporal. */
  readonly told: boolean;
}

/** Has another executor take the place of the current one, with the code as it is on disk now. */
export interface ReloadRequest {
  /** How long sessions whose state is in the memory of the current executor may take to end before it is given up. */
  readonly timeoutMs: number;
  /** Ends those sessions instead: their owners redo them. */
  readonly force: boolean;
}

/**
 * Where a reload is. `loading`: the new executor loads the code. `memory`: sessions in memory are waited for, and none is
 * granted. `switching`: the new one begins to poll. `retiring`: it is the current one, and attempts of the old one end.
 * `atMostMs`: how much longer this may take; then the reload is given up, or attempts that still run are interrupted.
 */
export type ReloadStep = { readonly atMostMs: number } & (
  | { readonly step: 'loading' | 'switching' }
  | { readonly step: 'memory'; readonly sessions: number }
  | { readonly step: 'retiring'; readonly attempts: number }
);

export interface ReloadResult {
  readonly executor: { readonly pid: number; readonly incarnation: string };
  readonly replaced: { readonly pid: number | null; readonly incarnation: string };
  /** Attempts that ran for longer than the grace and are attempted again by the new executor. */
  readonly interruptedAttempts: number;
  /** Sessions in memory that were ended by force. */
  readonly lostSessions: number;
  readonly tookMs: number;
}

/** A line of the answer to a reload; the last one is the result or says why nothing was changed. */
export type ReloadLine =
  | ({ readonly type: 'step' } & ReloadStep)
  | { readonly type: 'done'; readonly result: ReloadResult }
  | { readonly type: 'failed'; readonly refusal: AttemptRefusal };

/** An order that an operator gives on the host itself, also while Temporal is away. */
export type LocalOrder =
  | { readonly kind: 'cordon'; readonly order: CordonOrder }
  | { readonly kind: 'uncordon'; readonly order: UncordonOrder }
  | { readonly kind: 'drain'; readonly order: DrainRequest };

export interface LocalOrderAnswer {
  readonly desired: DesiredState;
  /** Whether the fleet knows it already; if not it is told when Temporal answers. */
  readonly told: boolean;
}
