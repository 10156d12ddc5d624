/**
 * Follows a run until it closes, and rides out an outage of Temporal: a server that is away says nothing about the run,
 * which goes on where it is.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { workerOfIdentity } from '../../contract/names.js';
import { isProgress, type Progress } from '../../contract/progress.js';
import { isUnavailable } from '../../temporal/connect.js';
import { observe, observeOutage, type PendingActivity, type RunState } from './run-progress.js';

/** A look at the run costs the server a few milliseconds. */
const LOOK_INTERVAL_MS = 400;
/** While nothing changes, looks become rarer up to this. */
const SLOW_LOOK_INTERVAL_MS = 1_500;
const SLOWER_BY = 1.2;
/** A look that takes longer than this counts as no answer. */
const LOOK_DEADLINE_MS = 5_000;
/** Between two tries during an outage: soon at first, and never rarer than a person would look. */
const OUTAGE_FIRST_PAUSE_MS = 250;
const OUTAGE_MAX_PAUSE_MS = 3_000;

export type RunEnd<Result> =
  | { readonly kind: 'completed'; readonly result: Result }
  /** The error of Temporal's client, with the failure of the workflow as its cause. */
  | { readonly kind: 'failed'; readonly error: unknown };

export interface WatchOptions {
  readonly client: Client;
  readonly handle: WorkflowHandle;
  readonly state: RunState;
  readonly fleet: string;
  /** What to say when no worker takes the run. */
  readonly waitHint: string;
  /** Ends the watching, not the run. */
  readonly signal: AbortSignal;
  readonly onState: (state: RunState) => void;
}

/** Resolves when the run has closed. Rejects with the reason of `signal`, or with an error that waiting can not cure. */
export async function watchRun<Result>(options: WatchOptions): Promise<RunEnd<Result>> {
  const { client, handle, onState } = options;
  let { state } = options;
  let end: RunEnd<Result> | undefined;
  // The end is waited for beside the looks, so that a short run is not prolonged by the pause between two of them.
  const stop = new AbortController();
  const signal = AbortSignal.any([options.signal, stop.signal]);
  const ended = resultThroughOutages<Result>(client, handle, signal).then((value) => (end = value));
  ended.catch(() => undefined);
  let intervalMs = LOOK_INTERVAL_MS;
  try {
    while (end === undefined) {
      const seen = await look(options);
      // The result may have come while the look was under way; what was seen is older then.
      if (end !== undefined) break;
      const before = JSON.stringify(state.view);
      state = seen === 'unavailable' ? observeOutage(state, Date.now()) : observe(state, seen, options.waitHint);
      const changed = JSON.stringify(state.view) !== before;
      onState(state);
      intervalMs = changed ? LOOK_INTERVAL_MS : Math.min(intervalMs * SLOWER_BY, SLOW_LOOK_INTERVAL_MS);
      await Promise.race([sleep(intervalMs, undefined, { signal }), ended]);
    }
    return await ended;
  } catch (error) {
    options.signal.throwIfAborted();
    throw error;
  } finally {
    stop.abort();
  }
}

/** The result of a workflow, however often the server goes away in between. */
export async function resultThroughOutages<Result>(
  client: Client,
  handle: WorkflowHandle,
  signal: AbortSignal,
): Promise<RunEnd<Result>> {
  let pauseMs = OUTAGE_FIRST_PAUSE_MS;
  for (;;) {
    try {
      const result: unknown = await client.withAbortSignal(ownSignal(signal), () => handle.result());
      return { kind: 'completed', result: result as Result };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof Error && error.name === 'WorkflowFailedError') return { kind: 'failed', error };
      if (!isUnavailable(error)) throw error;
      await sleep(pauseMs, undefined, { signal });
      pauseMs = Math.min(pauseMs * 2, OUTAGE_MAX_PAUSE_MS);
    }
  }
}

/**
 * A signal for one call. The client adds a listener for every call and never removes it, so that a signal that lives as
 * long as the run would collect thousands.
 */
function ownSignal(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal]);
}

interface Seen {
  readonly atMs: number;
  readonly pending: readonly PendingActivity[];
}

async function look({ client, handle, fleet, signal }: WatchOptions): Promise<Seen | 'unavailable'> {
  try {
    const description = await client.withDeadline(Date.now() + LOOK_DEADLINE_MS, () =>
      client.withAbortSignal(ownSignal(signal), () => handle.describe()),
    );
    const pending = description.raw.pendingActivities ?? [];
    return { atMs: Date.now(), pending: pending.map((activity) => readPending(client, fleet, activity)) };
  } catch (error) {
    signal.throwIfAborted();
    if (isUnavailable(error)) return 'unavailable';
    throw error;
  }
}

type RawPending = NonNullable<Awaited<ReturnType<WorkflowHandle['describe']>>['raw']['pendingActivities']>[number];

/** Temporal's PENDING_ACTIVITY_STATE_SCHEDULED: no worker has the activity. */
const STATE_SCHEDULED: number = 1;

function readPending(client: Client, fleet: string, raw: RawPending): PendingActivity {
  const progress = readProgress(client, raw);
  const lastFailure = raw.lastFailure?.message;
  const worker = workerOf(raw, fleet);
  return {
    activityId: raw.activityId ?? '',
    activityType: raw.activityType?.name ?? '',
    started: Number(raw.state) !== STATE_SCHEDULED,
    attempt: Math.max(1, raw.attempt ?? 1),
    ...(progress === undefined ? {} : { progress }),
    ...(lastFailure === undefined || lastFailure === null || lastFailure === '' ? {} : { lastFailure }),
    ...(worker === undefined ? {} : { worker }),
  };
}

function readProgress(client: Client, raw: RawPending): Progress | undefined {
  const payload = raw.heartbeatDetails?.payloads?.[0];
  if (payload === undefined) return undefined;
  try {
    const value: unknown = client.options.loadedDataConverter.payloadConverter.fromPayload(payload);
    return isProgress(value) ? value : undefined;
  } catch {
    // Encrypted by a codec that this client does not have: the run is shown without its numbers.
    return undefined;
  }
}

/**
 * The name of the worker. A pinned activity is on the unique queue of its worker, which carries the name; a server that
 * does not tell the queue (before 1.28) leaves the identity of the process.
 */
function workerOf(raw: RawPending, fleet: string): string | undefined {
  const queue = raw.activityOptions?.taskQueue?.name;
  const prefix = `${fleet}-`;
  if (typeof queue === 'string' && queue.startsWith(prefix) && !queue.includes(':') && queue.includes('.')) {
    return queue.slice(prefix.length, queue.lastIndexOf('.'));
  }
  const identity = raw.lastWorkerIdentity ?? '';
  return workerOfIdentity(identity) ?? (identity === '' ? undefined : identity);
}
