/**
 * The supervisor's Temporal Workers: one per acquire queue, one on the control queue of this worker, and one that runs
 * the workflows that represent workers. None of them runs user code.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CompleteAsyncError, Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import type { ActivitySlotInfo, CustomSlotSupplier, NativeConnection } from '@temporalio/worker';
import { AtlasError, findError } from '../contract/errors.js';
import {
  APPLY_ACTIVITY,
  type ApplyAnswer,
  type ApplyRequest,
  FORCE_RELEASE_ACTIVITY,
  type ForceReleaseRequest,
  PRESENCE_ACTIVITY,
  type PresenceRequest,
  type ReleaseAnswer,
} from '../contract/fleet.js';
import {
  acquireQueue,
  acquireQueueOf,
  capabilityLabel,
  capabilitySubsets,
  fleetControlQueue,
  parseSessionActivityId,
} from '../contract/names.js';
import {
  ADOPT_ACTIVITY,
  type AdoptRequest,
  CONFIRM_ACTIVITY,
  type ConfirmRequest,
  LEASE_ACTIVITY,
  RELEASE_ACTIVITY,
  type LeaseArguments,
  type LeaseRequest,
  type ReleaseRequest,
} from '../contract/session.js';
import { VERSION } from '../contract/version.js';
import { failure } from '../temporal/failures.js';
import { UnsignalledWorker } from '../temporal/unsignalled-worker.js';
import type { Presence } from './presence.js';
import type { LeaseTask, OwnerTask, SessionKeeper } from './session-keeper.js';
import type { SlotGate } from './slots.js';

/** Of a release that waits for activities to end; several within its heartbeat timeout. */
const HEARTBEAT_EVERY_MS = 1_500;
const FLEET_BUNDLE = fileURLToPath(new URL('../bundles/worker-workflow.js', import.meta.url));
/** After the death of the process that ran a workflow its next task waits this long on a queue nobody polls. */
const STICKY_TIMEOUT = '2s';
/** Core waits this long for a Worker to stop before it drops it: an activity that never returns wedges it for ever. */
const FORCE_STOP_AFTER = '5s';

export interface SupervisorWorkersOptions {
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly identity: string;
  readonly fleet: string;
  /** The name of this worker. */
  readonly worker: string;
  readonly capabilities: readonly string[];
  readonly controlQueue: string;
}

export class SupervisorWorkers {
  private workers: readonly UnsignalledWorker[] = [];
  private readonly runs: Promise<void>[] = [];

  private constructor(private readonly options: SupervisorWorkersOptions) {}

  static async create(
    options: SupervisorWorkersOptions,
    keeper: SessionKeeper,
    gate: SlotGate,
    presence: () => Presence,
    apply: (request: ApplyRequest) => Promise<ApplyAnswer>,
  ): Promise<SupervisorWorkers> {
    const workers = new SupervisorWorkers(options);
    // Side by side: the first one waits for a thread that loads the SDK again.
    workers.workers = await Promise.all([
      workers.createFleetWorker(),
      workers.createControlWorker(keeper, presence, apply),
      ...capabilitySubsets(options.capabilities).map((subset) =>
        workers.createAcquireWorker(acquireQueue(options.fleet, subset), subset, () => subset, keeper, gate),
      ),
      // Whoever prefers this worker may ask for anything: it polls while there is room for any set, and the request is looked at.
      workers.createAcquireWorker(
        acquireQueueOf(options.fleet, options.worker),
        options.capabilities,
        (given) => askedOfPreferred(options.worker, options.capabilities, given),
        keeper,
        gate,
      ),
    ]);
    return workers;
  }

  /** Starts polling. Rejects when a Worker fails for good. */
  run(): Promise<void> {
    for (const worker of this.workers) this.runs.push(worker.run());
    return Promise.all(this.runs).then(() => undefined);
  }

  async stop(): Promise<void> {
    for (const worker of this.workers) worker.end();
    await Promise.allSettled(this.runs);
  }

  private common() {
    const { connection, namespace, identity } = this.options;
    return {
      connection,
      namespace,
      identity,
      buildId: `atlas@${VERSION}`,
      shutdownGraceTime: 0,
      shutdownForceTime: FORCE_STOP_AFTER,
    } as const;
  }

  private async createFleetWorker(): Promise<UnsignalledWorker> {
    if (!existsSync(FLEET_BUNDLE)) {
      throw new AtlasError('ModuleLoadFailed', `The prebuilt workflow bundle ${FLEET_BUNDLE} is missing.`, {
        next: 'Run `npm run build`.',
      });
    }
    return await UnsignalledWorker.create({
      ...this.common(),
      taskQueue: fleetControlQueue(this.options.fleet),
      workflowBundle: { codePath: FLEET_BUNDLE },
      stickyQueueScheduleToStartTimeout: STICKY_TIMEOUT,
      maxCachedWorkflows: 100,
      workflowThreadPoolSize: 1,
      maxConcurrentWorkflowTaskExecutions: 20,
    });
  }

  private createControlWorker(
    keeper: SessionKeeper,
    presence: () => Presence,
    apply: (request: ApplyRequest) => Promise<ApplyAnswer>,
  ): Promise<UnsignalledWorker> {
    const activities = {
      ...ownerActivities(() => keeper),
      [FORCE_RELEASE_ACTIVITY]: (request: ForceReleaseRequest): Promise<ReleaseAnswer> =>
        heartbeating(() => keeper.forceRelease(request)),
      [APPLY_ACTIVITY]: apply,
      [PRESENCE_ACTIVITY](request: PresenceRequest): Promise<void> {
        return throwingFailures(() => {
          presence().pickUp(Context.current().info.taskToken, request);
          return Promise.reject(new CompleteAsyncError());
        });
      },
    };
    return UnsignalledWorker.create({
      ...this.common(),
      taskQueue: this.options.controlQueue,
      activities,
      maxHeartbeatThrottleInterval: HEARTBEAT_EVERY_MS,
      // Few polls, since each of a worker that is frozen or cut off may take a question with it.
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 2 },
      maxConcurrentActivityTaskExecutions: 100,
    });
  }

  /** `polledFor`: the capability set that must have room for a task to be polled. */
  private createAcquireWorker(
    taskQueue: string,
    polledFor: readonly string[],
    asked: (given: LeaseArguments) => readonly string[],
    keeper: SessionKeeper,
    gate: SlotGate,
  ): Promise<UnsignalledWorker> {
    return UnsignalledWorker.create({
      ...this.common(),
      taskQueue,
      activities: acquireActivities(asked, (task) => keeper.acquire(task)),
      // One poll in flight, so that few tasks can be taken after the gate has closed.
      activityTaskPollerBehavior: { type: 'simple-maximum', maximum: 1 },
      tuner: {
        activityTaskSlotSupplier: gate.supplier(polledFor) satisfies CustomSlotSupplier<ActivitySlotInfo>,
        workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
      },
    });
  }
}

/** What the owners of sessions ask on the control queue of their worker. */
export function ownerActivities(keeper: () => SessionKeeper) {
  return {
    async [RELEASE_ACTIVITY](request: ReleaseRequest): Promise<void> {
      await heartbeating(() => keeper().release(request));
    },
    [CONFIRM_ACTIVITY]: (request: ConfirmRequest): Promise<void> =>
      throwingFailures(async () => {
        await keeper().confirm(ownerTask(request));
        throw new CompleteAsyncError();
      }),
    [ADOPT_ACTIVITY]: (request: AdoptRequest): Promise<void> =>
      throwingFailures(async () => {
        await keeper().adopt(ownerTask(request));
        throw new CompleteAsyncError();
      }),
  };
}

/** What a session asks for that prefers this worker. Throws `CapabilityMissing`, upon which its owner asks the others. */
export function askedOfPreferred(
  worker: string,
  own: readonly string[],
  { capabilities = [] }: LeaseArguments,
): readonly string[] {
  const missing = capabilities.filter((name) => !own.includes(name));
  if (missing.length > 0) {
    throw new AtlasError(
      'CapabilityMissing',
      `The worker ${worker} has the capabilities "${capabilityLabel(own)}", and lacks ${missing.join(', ')}.`,
    );
  }
  return capabilities;
}

/** What is served on an acquire queue. `asked` tells the capability set; `acquire` resolves once the session is granted. */
export function acquireActivities(
  asked: (given: LeaseArguments) => readonly string[],
  acquire: (task: LeaseTask) => Promise<void>,
) {
  return {
    [LEASE_ACTIVITY]: (given: LeaseArguments): Promise<void> =>
      throwingFailures(async () => {
        await acquire(leaseTask(given, asked(given)));
        throw new CompleteAsyncError();
      }),
  };
}

/** Heartbeats while it runs: an activity that is waited for to end may take long. */
async function heartbeating<T>(run: () => Promise<T>): Promise<T> {
  const context = Context.current();
  const timer = setInterval(() => {
    context.heartbeat();
  }, HEARTBEAT_EVERY_MS);
  try {
    return await run();
  } finally {
    clearInterval(timer);
  }
}

/** The running activity as the task of a lease; what its arguments leave out is in its id, queue and timeout. */
function leaseTask(given: LeaseArguments, capabilities: readonly string[]): LeaseTask {
  const { activityId, heartbeatTimeoutMs: leaseTtlMs } = Context.current().info;
  const id = parseSessionActivityId(activityId);
  if (id === undefined || leaseTtlMs === undefined) {
    throw ApplicationFailure.nonRetryable(`The activity id ${activityId} is not that of a lease.`);
  }
  const { session, epoch } = id;
  const request: LeaseRequest = {
    idleTimeoutMs: null,
    state: 'disk',
    ...given,
    session,
    epoch,
    capabilities,
    leaseTtlMs,
  };
  return ownerTask(request);
}

/** The running activity as the task of an owner. */
function ownerTask<R>(request: R): OwnerTask<R> {
  const { workflowExecution, workflowType, base64TaskToken, currentAttemptScheduledTimestampMs } =
    Context.current().info;
  return {
    request,
    workflowId: workflowExecution!.workflowId,
    runId: workflowExecution!.runId,
    workflowType: workflowType ?? '',
    leaseToken: base64TaskToken,
    scheduledAtMs: currentAttemptScheduledTimestampMs,
  };
}

/** Errors of the catalogue travel as failures whose type is the code. */
async function throwingFailures<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    const found =
      error instanceof ApplicationFailure || error instanceof CompleteAsyncError ? undefined : findError(error);
    throw found === undefined ? error : failure(found.code, found.message, found.error);
  }
}
