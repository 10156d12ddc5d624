/**
 * The options of {@link withSession}: what a user may ask for, and how that is checked and filled with the defaults of
 * the contract.
 */
import { workflowInfo } from '@temporalio/workflow';
import type { Priority } from '@temporalio/common';
import { type Duration, formatDurationMs, parseDurationMs } from '../contract/duration.js';
import { capabilitySet, checkName } from '../contract/names.js';
import {
  SESSION_DEFAULTS,
  SESSION_LIMITS,
  type LocalState,
  type OnLost,
  type SessionHandle,
} from '../contract/session.js';
import { failingTheWorkflow, sessionFailure } from './failures.js';
import type { SessionContract } from './owner.js';

export type { LocalState, OnLost, SessionHandle } from '../contract/session.js';

/** What a session asks for. Every field has a default. */
export interface SessionOptions {
  /**
   * The fleet to acquire from.
   *
   * @default the task queue of the workflow, since atlasd runs workflows on the queue named after its fleet. A workflow
   * run by your own worker on another queue must name the fleet.
   */
  readonly fleet?: string;
  /** What the worker must advertise, at most three words such as `gpu`. @default none */
  readonly capabilities?: readonly string[];
  /**
   * How long a silent worker keeps the session before it counts as lost. The worker renews the lease every third of it.
   * @default 60 seconds; at least 1 second
   */
  readonly leaseTtl?: Duration;
  /** How long the session may be open in all; then it fails with `SessionExpired`. @default 4 hours */
  readonly maxDuration?: Duration;
  /** How long to wait for a worker with a free slot; then it fails with `AcquireTimeout`. @default 10 minutes */
  readonly acquireTimeout?: Duration;
  /**
   * What happens when the worker is lost: `redo` acquires another and runs the body again from its start, `rediscover` lets
   * the body go on and runs only the pinned calls again that the loss hit, on the next worker, and `fail` fails with
   * `SessionLost`. `rediscover` is for work that is pinned for speed and not for correctness.
   * @default 'redo'
   */
  readonly onLost?: OnLost;
  /** How many times a lost session is acquired again before it fails. @default 3 */
  readonly maxReacquisitions?: number;
  /**
   * How long to wait for a worker that is suspected to be gone before the session counts as lost.
   * @default 5 seconds; at least 1 second
   */
  readonly recoveryWindow?: Duration;
  /** Ends the session with `SessionExpired` when no pinned activity ran for this long. @default never */
  readonly idleTimeout?: Duration;
  /**
   * Where the steps keep what later ones need: in files of the worker (`disk`), or in the memory of the process that runs
   * them (`memory`, see `currentSession().memory`). With `memory` the session is lost when that process ends, also
   * where the worker itself stays: `onLost` says what happens then.
   * @default 'disk'
   */
  readonly state?: LocalState;
  /**
   * Allows this session beside others of the same workflow, nested or side by side. Workflows that each hold one session
   * and wait for a second can fill a fleet and wait for each other for ever, so this is refused unless you know better.
   * @default false
   */
  readonly allowConcurrentSessions?: boolean;
  /** A session of the run before this one, from {@link Session.handle}: it is adopted instead of acquired. */
  readonly handle?: SessionHandle | undefined;
  /**
   * Temporal's priority, for the acquisition and for pinned calls whose options give no other: which of those that wait for a
   * slot is served first.
   * @default that of the workflow
   */
  readonly priority?: Priority;
  /**
   * The name of a worker to try first, such as `worker-7`. Where it does not grant the session within `preferFor` (it is full,
   * cordoned, gone or unknown), or lacks a capability, any worker may. After a loss no worker is preferred.
   * @default none
   */
  readonly prefer?: string;
  /** How long the preferred worker is waited for. @default 5 seconds; 100 milliseconds to 1 hour */
  readonly preferFor?: Duration;
}

/** Checks the options; throws a non-retryable `SessionOptionsInvalid` or `NameInvalid` that names the option. */
export function sessionContract(options: SessionOptions): SessionContract {
  const onLost = options.onLost ?? SESSION_DEFAULTS.onLost;
  if (onLost !== 'redo' && onLost !== 'rediscover' && onLost !== 'fail')
    throw invalid('onLost', onLost, '"redo", "rediscover" or "fail"');
  const state = options.state ?? SESSION_DEFAULTS.state;
  if (state !== 'disk' && state !== 'memory') throw invalid('state', state, '"disk" or "memory"');
  const contract: SessionContract = {
    fleet: fleetOf(options.fleet),
    capabilities: failingTheWorkflow(() => capabilitySet(options.capabilities ?? [])),
    leaseTtlMs: duration('leaseTtl', options.leaseTtl, SESSION_DEFAULTS.leaseTtlMs, SESSION_LIMITS.leaseTtlMs),
    maxDurationMs: duration(
      'maxDuration',
      options.maxDuration,
      SESSION_DEFAULTS.maxDurationMs,
      SESSION_LIMITS.maxDurationMs,
    ),
    acquireTimeoutMs: duration(
      'acquireTimeout',
      options.acquireTimeout,
      SESSION_DEFAULTS.acquireTimeoutMs,
      SESSION_LIMITS.acquireTimeoutMs,
    ),
    recoveryWindowMs: duration(
      'recoveryWindow',
      options.recoveryWindow,
      SESSION_DEFAULTS.recoveryWindowMs,
      SESSION_LIMITS.recoveryWindowMs,
    ),
    idleTimeoutMs:
      options.idleTimeout === undefined
        ? null
        : duration('idleTimeout', options.idleTimeout, 0, SESSION_LIMITS.idleTimeoutMs),
    state,
    onLost,
    maxReacquisitions: options.maxReacquisitions ?? SESSION_DEFAULTS.maxReacquisitions,
    priority: priority(options.priority),
    prefer: preferred(options.prefer),
    preferForMs: duration('preferFor', options.preferFor, SESSION_DEFAULTS.preferForMs, SESSION_LIMITS.preferForMs),
  };
  const { min, max } = SESSION_LIMITS.maxReacquisitions;
  if (
    !Number.isInteger(contract.maxReacquisitions) ||
    contract.maxReacquisitions < min ||
    contract.maxReacquisitions > max
  ) {
    throw invalid('maxReacquisitions', contract.maxReacquisitions, `a whole number from ${min} to ${max}`);
  }
  if (options.handle !== undefined && options.handle.version !== 1) {
    throw invalid('handle', options.handle.version, 'made by session.handle() of this version');
  }
  return contract;
}

/** What a replay takes for the fleet: the queue of an activity is nothing that a history is compared by. */
const REPLAYED_FLEET = 'replayed';

/**
 * The fleet that was named, or else that of the workflow's task queue.
 *
 * `Worker.runReplayHistory` runs a workflow on a queue of its own, whose name is no fleet's. The run that is replayed
 * passed the check, so a replay does not fail by it.
 */
export function fleetOf(named: string | undefined): string {
  const { taskQueue, unsafe } = workflowInfo();
  const fleet = named ?? taskQueue;
  if (named === undefined && unsafe.isReplaying && !isFleetName(fleet)) return REPLAYED_FLEET;
  return failingTheWorkflow(() => checkName('fleet', fleet));
}

function isFleetName(name: string): boolean {
  try {
    checkName('fleet', name);
    return true;
  } catch {
    return false;
  }
}

function preferred(worker: string | undefined): string | null {
  return worker === undefined ? null : failingTheWorkflow(() => checkName('worker', worker));
}

const MAX_FAIRNESS_KEY_BYTES = 64;
const FAIRNESS_WEIGHT = { min: 0.001, max: 1_000 };

/** As Temporal documents it. What the server refuses would fail the workflow task again and again instead. */
function priority(value: Priority | undefined): Priority | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'object' || value === null)
    throw invalid('priority', value, 'an object with priorityKey, fairnessKey or fairnessWeight');
  const { priorityKey, fairnessKey, fairnessWeight } = value;
  if (priorityKey !== undefined && !(Number.isInteger(priorityKey) && priorityKey >= 1)) {
    throw invalid('priority.priorityKey', priorityKey, 'a whole number from 1, which is the most urgent');
  }
  if (
    fairnessKey !== undefined &&
    (typeof fairnessKey !== 'string' || new TextEncoder().encode(fairnessKey).length > MAX_FAIRNESS_KEY_BYTES)
  ) {
    throw invalid('priority.fairnessKey', fairnessKey, `a string of at most ${MAX_FAIRNESS_KEY_BYTES} bytes`);
  }
  const { min, max } = FAIRNESS_WEIGHT;
  if (
    fairnessWeight !== undefined &&
    !(typeof fairnessWeight === 'number' && fairnessWeight >= min && fairnessWeight <= max)
  ) {
    throw invalid('priority.fairnessWeight', fairnessWeight, `a number from ${min} to ${max}`);
  }
  return value;
}

function duration(name: string, value: Duration | undefined, fallbackMs: number, limits: { min: number; max: number }) {
  if (value === undefined) return fallbackMs;
  let parsedMs: number;
  try {
    parsedMs = typeof value === 'number' ? value : parseDurationMs(value);
  } catch {
    throw invalid(name, value, 'a duration such as "30 seconds", or a number of milliseconds');
  }
  if (!(parsedMs >= limits.min && parsedMs <= limits.max)) {
    throw invalid(name, value, `from ${formatDurationMs(limits.min)} to ${formatDurationMs(limits.max)}`);
  }
  return parsedMs;
}

function invalid(name: string, value: unknown, allowed: string) {
  return sessionFailure(
    'SessionOptionsInvalid',
    `The session option ${name} is ${JSON.stringify(value)}, but must be ${allowed}.`,
  );
}
