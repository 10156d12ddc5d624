/**
 * Long computations in slices, so that the executor can heartbeat and hear of an abort meanwhile.
 *
 * A computation is a generator that yields where it can be interrupted; what it computes does not depend on who runs it.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

export type Sliced<T> = Generator<void, T>;

/** How long the event loop is kept at a time. */
const SLICE_MS = 25;

/** Runs to the end, letting others have their turn in between. Throws the signal's reason when it is aborted. */
export async function runSliced<T>(work: Sliced<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    signal.throwIfAborted();
    const untilMs = performance.now() + SLICE_MS;
    do {
      const { done, value } = work.next();
      if (done === true) return value;
    } while (performance.now() < untilMs);
    await nextTurn();
  }
}

/** Runs to the end at once. */
export function runAtOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
