/**
 * Where the executor puts the session and the worker of a running activity.
 *
 * The store hangs on `globalThis`: a user's activity module may load another copy of this package than the executor
 * did, and both must see the same value.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { CurrentSession, CurrentWorker } from './index.js';

export interface Provided {
  readonly worker: CurrentWorker;
  /** Absent for pooled activities. */
  readonly session?: CurrentSession;
}

const KEY = Symbol.for('temporal-atlas.activity.v1');

function store(): AsyncLocalStorage<Provided> {
  const holder = globalThis as { [KEY]?: AsyncLocalStorage<Provided> };
  holder[KEY] ??= new AsyncLocalStorage<Provided>();
  return holder[KEY];
}

/** What was provided to the running activity. */
export function provided(): Provided | undefined {
  return store().getStore();
}

/** Runs a function as an activity to which these values are provided. */
export function provide<T>(values: Provided, run: () => T): T {
  return store().run(values, run);
}
