/**
 * The fence of an embedded worker, as a thread: user code that keeps the event loop of the process busy can not stop it.
 *
 * It hears from the main thread how long pinned attempts may go on. When that lapses it kills the process, with
 * everything in it: there is nothing smaller that is sure to end an activity.
 */
import { write } from 'node:fs';
import { parentPort } from 'node:worker_threads';

export type LeaseWatchMessage =
  /** How long pinned attempts may go on unless this is said again; null while there is none. */
  | { readonly forMs: number | null }
  /** Kill now. */
  | { readonly kill: string };

/** From the word on stderr to the kill: a reader that is slow must not hold it up. */
const WORD_MS = 50;
const STDERR = 2;

function kill(reason: string): void {
  const now = (): void => {
    process.kill(process.pid, 'SIGKILL');
  };
  // Asynchronous, so that a pipe that nobody reads does not block this thread too.
  write(STDERR, `temporal-atlas: process ${process.pid} is killed: ${reason}.\n`, now);
  setTimeout(now, WORD_MS);
}

let lapse: NodeJS.Timeout | undefined;

parentPort?.on('message', (message: LeaseWatchMessage) => {
  clearTimeout(lapse);
  if ('kill' in message) {
    kill(message.kill);
    return;
  }
  const { forMs } = message;
  if (forMs === null) return;
  lapse = setTimeout(
    () => {
      kill('an activity has not ended, and its session may soon go to another worker');
    },
    Math.max(0, forMs - WORD_MS),
  );
});
