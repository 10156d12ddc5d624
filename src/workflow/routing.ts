/**
 * Activities that are routed without a session: to any worker with a capability set ({@link pooled}), or to one worker
 * by its queue ({@link workerActivities}). Workflow code never writes a queue name.
 */
import { type ActivityInterfaceFor, type NotAnActivityMethod, proxyActivities } from '@temporalio/workflow';
import type { ActivityFunction, ActivityOptions } from '@temporalio/common';
import { pooledQueue, WORKER_ACTIVITY_PREFIX } from '../contract/names.js';
import { SESSION_DEFAULTS } from '../contract/session.js';
import { failingTheWorkflow } from './failures.js';
import { fleetOf } from './options.js';

/** Temporal's activity options and where the activities are to run. */
export interface PooledOptions extends Omit<ActivityOptions, 'taskQueue'> {
  /** The fleet. @default the task queue of the workflow */
  readonly fleet?: string;
  /** What the worker must advertise. @default none */
  readonly capabilities?: readonly string[];
}

/**
 * Ordinary activities that any worker of the fleet with these capabilities may run. Nothing local survives the call:
 * two calls may run on two workers.
 */
export function pooled<A = Record<string, never>>(options: PooledOptions): ActivityInterfaceFor<A> {
  const { fleet, capabilities, ...activityOptions } = options;
  return proxyActivities<A>({
    ...activityOptions,
    taskQueue: failingTheWorkflow(() => pooledQueue(fleetOf(fleet), capabilities ?? [])),
  });
}

/**
 * The activities of an interface as they are called on one worker. Unlike those of Temporal's `proxyActivities` they have
 * no `executeWithOptions`: with it a call could leave the worker.
 */
export type RoutedActivities<A> = {
  [K in keyof A]: A[K] extends ActivityFunction ? A[K] : typeof NotAnActivityMethod;
};

/** Temporal's activity options, less those that the routing decides. */
export type WorkerActivityOptions = Omit<ActivityOptions, 'taskQueue' | 'activityId' | 'allowEagerDispatch'>;

let workerCalls = 0;

/**
 * Activities that run on one worker, by its unique queue ({@link Session.queue}), without a session and without a slot:
 * for what a worker keeps after a session, such as artifacts. The worker may be gone for good, so there is a
 * schedule-to-start timeout of one minute unless another is given.
 */
export function workerActivities<A = Record<string, never>>(
  queue: string,
  options: WorkerActivityOptions,
): RoutedActivities<A> {
  return new Proxy(
    {},
    {
      get: (_, activityType) => {
        if (typeof activityType !== 'string') {
          throw new TypeError(`Only strings are supported for activity types, got: ${String(activityType)}`);
        }
        return (...args: unknown[]) => {
          workerCalls += 1;
          const activities = proxyActivities<Record<string, (...args: unknown[]) => Promise<unknown>>>({
            scheduleToStartTimeout: '1 minute',
            heartbeatTimeout: SESSION_DEFAULTS.pinnedHeartbeatTimeoutMs,
            ...options,
            taskQueue: queue,
            activityId: `${WORKER_ACTIVITY_PREFIX}${workerCalls}`,
          });
          return activities[activityType]!(...args);
        };
      },
    },
  ) as RoutedActivities<A>;
}
