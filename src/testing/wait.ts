/** How long a test waits. */
import { parseDurationMs } from '../contract/duration.js';
import type { WaitOptions } from './types.js';

/** For a session, for a drain, or for owners to hear of a loss. */
const DEFAULT_WAIT_MS = 10_000;

export function waitMs({ timeout }: WaitOptions): number {
  if (timeout === undefined) return DEFAULT_WAIT_MS;
  return typeof timeout === 'number' ? timeout : parseDurationMs(timeout);
}
