/**
 * Names: fleets, workers, capabilities, task queues, workflow ids and activity ids.
 *
 * Owns how every name is built and read back; nothing else in Atlas concatenates a queue name. Imports nothing but the
 * error catalogue, so that workflows may use it.
 */
import { AtlasError } from './errors.js';

export const MAX_NAME_LENGTH = 63;
/** Every subset of a worker's capabilities is a queue, so three capabilities already mean eight acquire queues. */
export const MAX_CAPABILITIES = 3;
export const DEFAULT_FLEET = 'atlas';

const NAME = /^[a-z0-9][a-z0-9.-]*$/;
/** A fleet name has no hyphen: the first hyphen of a queue name ends it, so that fleets can not collide. */
const FLEET_NAME = /^[a-z0-9][a-z0-9.]*$/;

export type NameKind = 'worker' | 'capability' | 'fleet';

/** Throws `NameInvalid` unless the name follows the rules; returns it otherwise. */
export function checkName(kind: NameKind, name: string): string {
  const rule = kind === 'fleet' ? FLEET_NAME : NAME;
  if (name.length > MAX_NAME_LENGTH || !rule.test(name)) {
    const allowed =
      kind === 'fleet' ? 'lower-case letters, digits and dots' : 'lower-case letters, digits, dots and hyphens';
    throw new AtlasError(
      'NameInvalid',
      `The ${kind} name ${JSON.stringify(name)} is not valid: it must begin with a letter or digit and have only ${allowed}, at most ${MAX_NAME_LENGTH} characters.`,
    );
  }
  return name;
}

/** Sorted, without duplicates, each name checked. The canonical form of a capability set. */
export function capabilitySet(capabilities: readonly string[]): string[] {
  const set = [...new Set(capabilities.map((name) => checkName('capability', name)))].sort();
  if (set.length > MAX_CAPABILITIES) {
    throw new AtlasError(
      'TooManyCapabilities',
      `${set.length} capabilities (${set.join(', ')}) are more than the ${MAX_CAPABILITIES} allowed: a worker polls one acquire queue for every subset of them.`,
    );
  }
  return set;
}

/** Every subset of a capability set, the empty one first. */
export function capabilitySubsets(capabilities: readonly string[]): string[][] {
  let subsets: string[][] = [[]];
  for (const capability of capabilitySet(capabilities)) {
    subsets = [...subsets, ...subsets.map((subset) => [...subset, capability])];
  }
  return subsets;
}

/** How a capability set is shown to people: `gpu+ocr`, or `any` for the empty one. */
export function capabilityLabel(capabilities: readonly string[]): string {
  return capabilities.length === 0 ? 'any' : [...capabilities].sort().join('+');
}

/** The queue of ordinary pooled activities (and, for the empty set, of user workflows): `atlas`, `atlas-gpu`. */
export function pooledQueue(fleet: string, capabilities: readonly string[] = []): string {
  const set = capabilitySet(capabilities);
  return set.length === 0 ? checkName('fleet', fleet) : `${checkName('fleet', fleet)}-${set.join('+')}`;
}

/** The queue on which sessions of a capability set are acquired: `atlas:acquire`, `atlas-gpu+ocr:acquire`. */
export function acquireQueue(fleet: string, capabilities: readonly string[]): string {
  return `${pooledQueue(fleet, capabilities)}:acquire`;
}

/**
 * The queue on which sessions are acquired that prefer one worker: `atlas-worker-7:prefer`. By its name alone, which is what
 * workflow code knows of a worker; the capabilities are in the request.
 */
export function acquireQueueOf(fleet: string, worker: string): string {
  return `${checkName('fleet', fleet)}-${checkName('worker', worker)}:prefer`;
}

/** The unique queue of one worker: `atlas-worker-7.k3f9`. It carries the instance id (DESIGN rule "whose directory"). */
export function workerQueue(fleet: string, name: string, instance: string): string {
  return `${checkName('fleet', fleet)}-${checkName('worker', name)}.${checkName('worker', instance)}`;
}

/** The control queue of one worker: `atlas-worker-7.k3f9:control`. */
export function workerControlQueue(fleet: string, name: string, instance: string): string {
  return controlQueueOf(workerQueue(fleet, name, instance));
}

/** The control queue that belongs to the unique queue of a worker. */
export function controlQueueOf(queue: string): string {
  return `${queue}:control`;
}

/** The worker whose unique or control queue it is; undefined for a queue of another fleet or form. */
export function parseWorkerQueue(fleet: string, queue: string): { name: string; instance: string } | undefined {
  const match = /^([^-:]+)-([^:]+)\.([^.:]+)(:control)?$/.exec(queue);
  if (match?.[1] !== fleet) return undefined;
  return { name: match[2]!, instance: match[3]! };
}

/** The capability set of an acquire queue of the fleet; undefined for any other queue. */
export function parseAcquireQueue(fleet: string, queue: string): string[] | undefined {
  if (queue === acquireQueue(fleet, [])) return [];
  const match = /^([^-:]+)-([^:]+):acquire$/.exec(queue);
  if (match?.[1] !== fleet) return undefined;
  return match[2]!.split('+');
}

/** The queue of the workflows that represent workers: `atlas:control`. */
export function fleetControlQueue(fleet: string): string {
  return `${checkName('fleet', fleet)}:control`;
}

/** The id of the workflow that represents a worker: `atlas:worker/worker-7`. */
export function workerWorkflowId(fleet: string, name: string): string {
  return `${checkName('fleet', fleet)}:worker/${checkName('worker', name)}`;
}

/** What an activity id of a session says: `<session>.<epoch>:<step>`. */
export interface SessionActivityId {
  readonly session: string;
  /** Rises with every lease of a session within a run and never repeats there. */
  readonly epoch: number;
  /** `lease`, `release` and a number, or what {@link pinnedStep} makes of a pinned call. */
  readonly step: string;
}

/**
 * The step of a pinned call: its number, and the acquisition that it was scheduled for. After a workflow reset the worker
 * may hold the session under another grant of the same epoch, with empty scratch space, before the owner knows.
 */
export function pinnedStep(count: number, grantId: string): string {
  return `${count}-${grantId}`;
}

/** The grant that a pinned call was scheduled for; undefined where its id does not say. */
export function grantOfStep(step: string): string | undefined {
  return /^[0-9]+-(.+)$/.exec(step)?.[1];
}

export function sessionActivityId(id: SessionActivityId): string {
  return `${id.session}.${id.epoch}:${id.step}`;
}

const SESSION_ACTIVITY_ID = /^([a-z0-9]+)\.([0-9]+):([a-z0-9-]+)$/;

export function parseSessionActivityId(activityId: string): SessionActivityId | undefined {
  const match = SESSION_ACTIVITY_ID.exec(activityId);
  if (match === null) return undefined;
  return { session: match[1]!, epoch: Number(match[2]), step: match[3]! };
}

/**
 * The key of a session on its worker. The run id is part of it because a workflow reset replays the same session id in
 * another run.
 */
export function sessionKey(session: string, runId: string): string {
  return `${session}.${runId}`;
}

/** The shape of activity ids of calls that are routed to one worker without a session (see `workerActivities`). */
export const WORKER_ACTIVITY_PREFIX = 'worker:';

/** The worker in what its processes call themselves towards Temporal, such as `worker-7@atlas executor 4711`. */
export function workerOfIdentity(identity: string): string | undefined {
  return /^([a-z0-9][a-z0-9.-]*)@/.exec(identity)?.[1];
}
