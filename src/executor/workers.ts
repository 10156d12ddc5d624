/**
 * The executor's Temporal Workers: user workflows and pooled activities on the fleet's queue, pooled activities on the
 * queue of every capability set, and pinned activities on the worker's unique queue.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import {
  type ActivityInterceptorsFactory,
  bundleWorkflowCode,
  type NativeConnection,
  Runtime,
  Worker,
  type WorkerOptions,
} from '@temporalio/worker';
import type { CurrentWorker } from '../activity/index.js';
import { AtlasError } from '../contract/errors.js';
import type { ExecutorSettings } from '../contract/local.js';
import { capabilitySubsets, pooledQueue } from '../contract/names.js';
import { VERSION } from '../contract/version.js';
import type { AttemptGuard } from './attempts.js';
import type { PinnedPolls } from './pinned-polls.js';
import type { WithdrawnCapabilities } from './withdrawn.js';
import { pinnedWorkerOptions, providingWorker } from './worker-options.js';

/** See the supervisor's Workers: what a dead process had cached must be free again soon. */
const STICKY_TIMEOUT = '2s';
const PINNED_POLLS = 2;
/** Over the grace of a stop, for an activity that never returns: Core would wait for it for ever. */
const FORCE_STOP_EXTRA_MS = 5_000;
const MAX_CACHED_WORKFLOWS = 200;
/**
 * Which build of the workflows ran a task is in two events of each; the SDK's own id has 90 characters, a fifth of the
 * history of a session.
 */
const BUILD_HASH_CHARS = 8;

export interface ExecutorWorkersOptions {
  readonly settings: ExecutorSettings;
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly guard: AttemptGuard;
  /** Of the unique queue. */
  readonly polls: PinnedPolls;
  readonly worker: CurrentWorker;
  readonly withdrawn: WithdrawnCapabilities;
  readonly graceMs: number;
}

/** Creates the Workers, that of the unique queue as the last; they poll once they are run. */
export async function createWorkers(options: ExecutorWorkersOptions): Promise<Worker[]> {
  const { settings, connection, namespace, guard, polls, worker, withdrawn, graceMs } = options;
  const activities = await loadActivities(settings.activitiesPath);
  const common = {
    connection,
    namespace,
    activities,
    identity: `${settings.name}@${settings.fleet} executor ${process.pid}`,
    buildId: `atlas@${VERSION}`,
    shutdownGraceTime: graceMs,
    shutdownForceTime: graceMs + FORCE_STOP_EXTRA_MS,
  } as const satisfies Partial<WorkerOptions>;
  const pooled = {
    maxConcurrentActivityTaskExecutions: settings.maxActivities,
    interceptors: { activity: [providingWorker(worker)] },
  };
  const code = await workflowCode(settings.workflows);
  // Side by side: the one for workflows waits for a thread that loads the SDK again.
  return await Promise.all([
    ...capabilitySubsets(settings.capabilities).map((capabilities) => {
      const runsWorkflows = capabilities.length === 0;
      const isChecked = capabilities.some((capability) => settings.checkedCapabilities.includes(capability));
      return Worker.create({
        ...common,
        ...(isChecked
          ? withdrawable(capabilities, withdrawn, settings.maxActivities, providingWorker(worker))
          : pooled),
        taskQueue: pooledQueue(settings.fleet, capabilities),
        ...(runsWorkflows
          ? {
              workflowBundle: { code },
              buildId: `atlas@${VERSION}+${createHash('sha256').update(code).digest('hex').slice(0, BUILD_HASH_CHARS)}`,
              stickyQueueScheduleToStartTimeout: STICKY_TIMEOUT,
              maxCachedWorkflows: MAX_CACHED_WORKFLOWS,
            }
          : {}),
      });
    }),
    Worker.create({
      ...common,
      taskQueue: settings.queue,
      // Beside the user's: whoever probes the worker wants to know whether pinned activities run here.
      ...pinnedWorkerOptions(activities, guard),
      // Few polls, so that the last one comes back soon where this executor retires.
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: PINNED_POLLS },
      tuner: {
        activityTaskSlotSupplier: polls.supplier,
        workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
      },
    }),
  ]);
}

/** A Worker that takes nothing while one of the capabilities of its queue is withdrawn. */
function withdrawable(
  capabilities: readonly string[],
  withdrawn: WithdrawnCapabilities,
  maxActivities: number,
  providing: ActivityInterceptorsFactory,
): Partial<WorkerOptions> {
  const refusing: ActivityInterceptorsFactory = () => ({
    inbound: {
      execute: async (input, next) => {
        withdrawn.refuse(capabilities);
        return await next(input);
      },
    },
  });
  return {
    interceptors: { activity: [refusing, providing] },
    // Each poll that is out when a capability is withdrawn takes a task, which costs that an attempt.
    activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
    tuner: {
      activityTaskSlotSupplier: withdrawn.supplier(capabilities, maxActivities),
      workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
      localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
      nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
    },
  };
}

async function workflowCode({ kind, path }: ExecutorSettings['workflows']): Promise<string> {
  if (kind === 'bundle') return await readFile(path, 'utf8');
  return (await bundleWorkflowCode({ workflowsPath: path, logger: Runtime.instance().logger })).code;
}

/** Every exported function of the module is an activity. */
export async function loadActivities(path: string): Promise<Record<string, (...args: never[]) => unknown>> {
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (error) {
    throw new AtlasError(
      'ModuleLoadFailed',
      `The activities of ${path} could not be loaded: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  const found = Object.entries(module).filter(([name, value]) => name !== 'default' && typeof value === 'function');
  // A CommonJS module has its exports behind `default` when Node can not see their names.
  const fallback = module['default'];
  const all =
    found.length > 0 || typeof fallback !== 'object' || fallback === null
      ? found
      : Object.entries(fallback).filter(([, value]) => typeof value === 'function');
  if (all.length === 0)
    throw new AtlasError('ModuleLoadFailed', `The module ${path} exports no function, so it has no activities.`);
  return Object.fromEntries(all) as Record<string, (...args: never[]) => unknown>;
}
