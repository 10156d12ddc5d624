/**
 * What an author of pinned activities sees: {@link currentSession}, {@link currentWorker} and {@link progress}.
 *
 * The executor provides the values (see `provider.ts`); nothing here talks to Temporal except the heartbeat.
 *
 * @module
 */
import { heartbeat } from '@temporalio/activity';
import { AtlasError } from '../contract/errors.js';
import type { Progress } from '../contract/progress.js';
import type { LocalState } from '../contract/session.js';
import { provided } from './provider.js';

export type { Progress } from '../contract/progress.js';
export type { LocalState } from '../contract/session.js';

/** The worker that runs the activity. */
export interface CurrentWorker {
  /** Such as `worker-7`. */
  readonly name: string;
  readonly fleet: string;
  /** The worker's unique task queue, by which a workflow reaches this worker again (see `workerActivities`). */
  readonly queue: string;
  /** What the worker advertises. */
  readonly capabilities: readonly string[];
  /**
   * A directory on this worker that outlives sessions. The daemon deletes an entry of it that was not modified for
   * {@link CurrentWorker.keptForMs}.
   */
  readonly keptDirectory: string;
  /**
   * A directory on this worker for what can be made again, to have it sooner the next time: downloads, unpacked models.
   * It outlives sessions and is shared by everything that runs on the worker; any entry may be gone at any time. The
   * daemon deletes an entry of it that was not modified for {@link CurrentWorker.keptForMs}: set its time (`utimes`) at
   * each use. How large it may grow is for those to bound who write into it.
   */
  readonly cacheDirectory: string;
  /** In milliseconds; `--keep` of the daemon, a day unless set. */
  readonly keptForMs: number;
}

/** The session that the running activity is pinned to. */
export interface CurrentSession {
  /** Unique within the workflow run. */
  readonly id: string;
  readonly workflowId: string;
  readonly runId: string;
  /**
   * Rises with every acquisition of the session; the same over adoptions. An external store that refuses writes with a
   * lower token than it has seen is safe from a worker that was frozen and does not know yet that it lost the session.
   */
  readonly fencingToken: number;
  /** What the session asked for; a subset of what the worker advertises. */
  readonly capabilities: readonly string[];
  /** A directory of this session alone. It is deleted when the session ends. */
  readonly scratchDirectory: string;
  /** Where the session keeps its state, as it was asked for. */
  readonly state: LocalState;
  /**
   * What the activities of this session leave to each other in memory, with `state: 'memory'`: the same map in each of
   * them, and nobody else's. It is gone when the session ends, or its worker starts another executor, which loses the
   * session. When the session ends, each value that has `Symbol.asyncDispose` or `Symbol.dispose` is disposed, the newest
   * first, for at most 10 seconds in all; the slot is free after that.
   *
   * @throws {@link AtlasError} `NoSessionMemory` when read in a session whose state is on disk.
   */
  readonly memory: Map<string, unknown>;
  /** Aborts when the activity is cancelled or the session is released or lost. The reason is an error with a code. */
  readonly signal: AbortSignal;
  readonly worker: CurrentWorker;
}

/**
 * The session that the running activity is pinned to.
 *
 * @throws {@link AtlasError} `NotInSession` outside an activity called through `session.proxyActivities()`.
 */
export function currentSession(): CurrentSession {
  const session = provided()?.session;
  if (session === undefined) {
    throw new AtlasError(
      'NotInSession',
      'currentSession() was called outside an activity that is pinned to a session.',
    );
  }
  return session;
}

/**
 * The worker that runs the activity, for pinned and for pooled activities.
 *
 * @throws {@link AtlasError} `NotInWorker` outside an activity run by atlasd.
 */
export function currentWorker(): CurrentWorker {
  const worker = provided()?.worker;
  if (worker === undefined) {
    throw new AtlasError('NotInWorker', 'currentWorker() was called outside an activity run by atlasd.');
  }
  return worker;
}

/**
 * Reports how far the running activity is, as its heartbeat. `atlas run` and `atlas sessions ls` show it.
 * The executor heartbeats by itself between two calls, and repeats the last report.
 */
export function progress(report: Progress): void {
  heartbeat(report);
}
