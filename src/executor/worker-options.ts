/** What a Worker on the unique queue, and one with pooled activities, has in common wherever it runs. */
import type { ActivityInterceptorsFactory, WorkerOptions } from '@temporalio/worker';
import type { CurrentWorker } from '../activity/index.js';
import { provide } from '../activity/provider.js';
import { PING_ACTIVITY } from '../contract/probe.js';
import type { AttemptGuard } from './attempts.js';
import { throwingFailures } from './failures.js';

/** Pinned activities at once; their number is bounded by the sessions, so this only guards against runaway fan-out. */
export const MAX_PINNED = 200;
/** How often the progress of a pinned activity reaches the server at most; a heartbeat costs it some milliseconds. */
const PROGRESS_INTERVAL = '1s';

/** Of the Worker on the unique queue. Interceptors of the user come after the guard, and see its session. */
export function pinnedWorkerOptions(activities: object, guard: AttemptGuard) {
  return {
    // Beside the user's: whoever probes the worker wants to know whether pinned activities run here.
    activities: { ...activities, [PING_ACTIVITY]: () => Promise.resolve() },
    // Core would hold reports back for most of the heartbeat timeout, and whoever watches would see nothing move.
    maxHeartbeatThrottleInterval: PROGRESS_INTERVAL,
    defaultHeartbeatThrottleInterval: PROGRESS_INTERVAL,
    interceptors: { activity: [(context) => ({ inbound: guard.interceptor(context) })] },
  } satisfies Partial<WorkerOptions>;
}

/** Lets pooled activities ask which worker runs them, as soon as that is known. */
export function providingWorker(worker: CurrentWorker | Promise<CurrentWorker>): ActivityInterceptorsFactory {
  return () => ({
    inbound: {
      async execute(input, next) {
        const known = worker instanceof Promise ? await worker : worker;
        return await throwingFailures(() => provide({ worker: known }, () => next(input)));
      },
    },
  });
}
