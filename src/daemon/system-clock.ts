/** The clock of this host for the protocol of sessions: one that is never set, and counts what the host slept. */
import { uptime } from 'node:os';
import type { Clock } from './ports.js';

/**
 * The monotonic clock stands still while the host is suspended, and the uptime does not: what the host slept is added.
 * The uptime has a coarse resolution on some systems, hence the tolerance.
 */
const SUSPEND_TOLERANCE_MS = 2_000;
const startUptimeMs = uptime() * 1_000;
const startMonotonicMs = performance.now();
/** Asking costs more than all else here, and what comes in one burst need not ask each time. */
const UPTIME_EVERY_MS = 5;
let suspendedMs = 0;
let nextUptimeMs = 0;

function monotonicMs(): number {
  const nowMs = performance.now();
  if (nowMs >= nextUptimeMs) {
    nextUptimeMs = nowMs + UPTIME_EVERY_MS;
    const missingMs = uptime() * 1_000 - startUptimeMs - (nowMs - startMonotonicMs) - suspendedMs;
    if (missingMs > SUSPEND_TOLERANCE_MS) suspendedMs += missingMs;
  }
  return nowMs + suspendedMs;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonicMs,
  timer(delayMs, callback) {
    const timer = setTimeout(callback, delayMs);
    return () => {
      clearTimeout(timer);
    };
  },
};
