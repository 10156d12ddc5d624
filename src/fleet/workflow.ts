/**
 * The workflow that represents one worker: `atlas:worker/<name>`. It holds what must outlive the host (who the worker is
 * and its coarse state) and one presence activity on the worker's control queue, whose heartbeat details are the live
 * snapshot. Any supervisor of the fleet may run it.
 *
 * Owns the decision whether a daemon may register under the name, and when a worker is lost.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  log,
  proxyActivities,
  setHandler,
  TimeoutFailure,
  upsertMemo,
  workflowInfo,
} from '@temporalio/workflow';
import {
  PRESENCE_ACTIVITY,
  type PresenceRequest,
  type PresenceSnapshot,
  REGISTER_UPDATE,
  type RegisterAnswer,
  STOPPED_UPDATE,
  type WorkerIdentity,
  WORKER_MEMO_KEY,
  type WorkerMemo,
} from '../contract/fleet.js';

const registerUpdate = defineUpdate<RegisterAnswer, [WorkerIdentity]>(REGISTER_UPDATE);
const stoppedUpdate = defineUpdate<void, [{ nonce: string }]>(STOPPED_UPDATE);

/** The backstop of one presence activity, which is scheduled anew then. */
const PRESENCE_START_TO_CLOSE = '7 days';
/** A registration and the loss of a worker are a dozen events each; far below the server's limit of 50,000. */
const CONTINUE_AFTER_EVENTS = 4_000;

/** Runs for as long as the worker is known; its daemon starts it together with the first registration. */
export async function atlasWorker(carried?: WorkerMemo): Promise<void> {
  let memo: WorkerMemo | undefined;
  let presenceScope: CancellationScope | undefined;
  let presenceCount = 0;
  /** Set by an update that makes the running presence activity obsolete. */
  let superseded = false;

  const transition = (next: WorkerMemo): void => {
    log.info('The state of the worker changes', { worker: next.identity.name, from: memo?.state, to: next.state });
    memo = next;
    upsertMemo({ [WORKER_MEMO_KEY]: next });
  };
  const endPresence = (): void => {
    superseded = true;
    presenceScope?.cancel();
  };
  if (carried !== undefined) transition(carried);

  setHandler(
    registerUpdate,
    (identity) => {
      const previous = memo?.identity;
      transition({ state: 'ready', identity, changedAtMs: Date.now() });
      // A daemon that comes back from a network cut goes on with the presence activity it has picked up; any other
      // life of the daemon, perhaps with another control queue, gets one of its own.
      if (previous?.nonce !== identity.nonce) endPresence();
      return { replaced: previous !== undefined && previous.instance !== identity.instance };
    },
    {
      validator: (identity: WorkerIdentity) => {
        if (memo === undefined || memo.state !== 'ready') return;
        const holder = memo.identity;
        if (holder.instance === identity.instance && holder.machineId === identity.machineId) return;
        throw ApplicationFailure.nonRetryable(
          `The name ${identity.name} is held by another live worker of the fleet ${identity.fleet}: instance ${holder.instance} on ${holder.host} (pid ${holder.pid}).`,
          'NameConflict',
        );
      },
    },
  );
  setHandler(stoppedUpdate, ({ nonce }) => {
    if (memo === undefined || memo.identity.nonce !== nonce) return;
    transition({ state: 'stopped', identity: memo.identity, changedAtMs: Date.now() });
    endPresence();
  });

  await condition(() => memo !== undefined);
  for (;;) {
    const current = memo as WorkerMemo | undefined;
    if (current === undefined) throw ApplicationFailure.nonRetryable('The workflow of a worker has no registration.');
    superseded = false;
    if (current.state === 'stopped') {
      await condition(() => superseded);
    } else {
      presenceCount += 1;
      presenceScope = new CancellationScope();
      const lost = current.state === 'lost';
      const end = await presenceScope.run(() => watchPresence(current.identity, presenceCount, lost));
      if (end.silent && !superseded) {
        transition({
          state: 'lost',
          identity: current.identity,
          changedAtMs: Date.now(),
          ...(end.lastSnapshot === undefined ? {} : { lastSnapshot: end.lastSnapshot }),
        });
      }
    }
    if (workflowInfo().historyLength > CONTINUE_AFTER_EVENTS) await continueAsNew<typeof atlasWorker>(memo);
  }
}

interface PresenceEnd {
  readonly silent: boolean;
  readonly lastSnapshot?: PresenceSnapshot;
}

/** Resolves when the presence activity ends: by silence, or because it was cancelled or reached its backstop. */
async function watchPresence(identity: WorkerIdentity, count: number, lost: boolean): Promise<PresenceEnd> {
  const activities = proxyActivities<{ [PRESENCE_ACTIVITY]: (request: PresenceRequest) => Promise<void> }>({
    taskQueue: identity.controlQueue,
    activityId: `presence-${count}`,
    heartbeatTimeout: identity.presenceTtlMs,
    startToCloseTimeout: PRESENCE_START_TO_CLOSE,
    // Whatever else fails it is retried by the server, with backoff and without a history event.
    retry: { initialInterval: 1_000, nonRetryableErrorTypes: ['TemporalTimeout:Heartbeat'] },
  });
  try {
    await activities[PRESENCE_ACTIVITY]({ nonce: identity.nonce, lost });
    return { silent: false };
  } catch (error) {
    const cause = error instanceof ActivityFailure ? error.cause : error;
    if (!(cause instanceof TimeoutFailure) || cause.timeoutType !== 'HEARTBEAT') return { silent: false };
    const lastSnapshot = cause.lastHeartbeatDetails as PresenceSnapshot | undefined;
    return { silent: true, ...(lastSnapshot === undefined ? {} : { lastSnapshot }) };
  }
}
