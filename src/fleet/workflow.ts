/**
 * The workflow that represents one worker: `atlas:worker/<name>`. It holds what must outlive the host (who the worker is,
 * its coarse state, and what operators want of it) and one presence activity on the worker's control queue, whose
 * heartbeat details are the live snapshot. Any supervisor of the fleet may run it.
 *
 * Owns the decision whether a daemon may register under the name, and when a worker is lost. Operators' orders are the
 * business of `desk.ts`.
 */
import {
  ActivityFailure,
  allHandlersFinished,
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  getExternalWorkflowHandle,
  log,
  proxyActivities,
  setHandler,
  TimeoutFailure,
  upsertMemo,
  workflowInfo,
} from '@temporalio/workflow';
import {
  type DesiredState,
  FORGET_UPDATE,
  type ForgetOrder,
  type HeldWorkerState,
  type OwnerList,
  PRESENCE_ACTIVITY,
  type PresenceRequest,
  type PresenceSnapshot,
  REGISTER_UPDATE,
  type RegisterAnswer,
  STOPPED_UPDATE,
  type StoppedNotice,
  UNTOUCHED,
  type WorkerIdentity,
  WORKER_MEMO_KEY,
  type WorkerMemo,
} from '../contract/fleet.js';
import { SUSPECTED_SIGNAL, type Suspicion } from '../contract/session.js';
import { Desk, type DeskRecord } from './desk.js';

/** In the same bundle, for the same Workers. */
export { atlasProbe } from './probe.js';

const registerUpdate = defineUpdate<RegisterAnswer, [WorkerIdentity, DesiredState | undefined]>(REGISTER_UPDATE);
const stoppedUpdate = defineUpdate<void, [StoppedNotice]>(STOPPED_UPDATE);
const forgetUpdate = defineUpdate<void, [ForgetOrder]>(FORGET_UPDATE);

/** The backstop of one presence activity, which is scheduled anew then. */
const PRESENCE_START_TO_CLOSE = '7 days';
/** How much longer than its TTL a live daemon may take to pick presence up, as while it starts. */
const PRESENCE_PICK_UP_MS = 10_000;
const SUSPECTED_FOR_MS = 60_000;
/** A registration, the loss of a worker and an order are a dozen events each; far below the server's limit of 50,000. */
const CONTINUE_AFTER_EVENTS = 4_000;

/** What a run hands to the next one beside the memo. */
interface Unfinished {
  readonly suspectedAtMs?: number;
  readonly leftOwners: OwnerList;
  readonly unwatchedOwners: OwnerList;
  readonly desk?: DeskRecord;
}

/** Runs for as long as the worker is known; its daemon starts it together with the first registration. */
export async function atlasWorker(carried?: WorkerMemo, unfinished?: Unfinished): Promise<void> {
  let memo: WorkerMemo | undefined;
  let presenceScope: CancellationScope | undefined;
  let presenceCount = 0;
  /** When owners were last told that the worker may be gone; they have decided long before a minute has passed. */
  let suspectedAtMs = unfinished?.suspectedAtMs ?? Number.NEGATIVE_INFINITY;
  /**
   * The list of a presence activity that ended without silence, until the next one has a list of its own: a daemon that
   * dies in between is missed by an activity that knows of no owner.
   */
  let unwatchedOwners: OwnerList = unfinished?.unwatchedOwners ?? [];
  /** The owners of what the worker holds, where this run is about to end while the worker lives. */
  let carriedOwners: OwnerList | undefined;
  /** Set by an update that makes the running presence activity obsolete. */
  let superseded = false;
  let forgotten = false;

  const desk = new Desk(
    {
      identity: () => memo?.identity,
      isReady: () => memo?.state === 'ready',
      changed: () => {
        if (memo !== undefined) note(memo);
      },
    },
    unfinished?.desk,
  );
  const note = (next: WorkerMemo): void => {
    const { desired, appliedRevision } = desk;
    memo = { ...next, ...(desired === UNTOUCHED ? {} : { desired, appliedRevision }) };
    upsertMemo({ [WORKER_MEMO_KEY]: memo });
  };
  const transition = (state: HeldWorkerState, identity: WorkerIdentity, lastSnapshot?: PresenceSnapshot): void => {
    log.info('The state of the worker changes', { worker: identity.name, from: memo?.state, to: state });
    note({ state, identity, changedAtMs: Date.now(), ...(lastSnapshot === undefined ? {} : { lastSnapshot }) });
  };
  const endPresence = (): void => {
    superseded = true;
    presenceScope?.cancel();
  };
  if (carried !== undefined) note(carried);

  setHandler(
    registerUpdate,
    (identity, known) => {
      const previous = memo?.identity;
      desk.registered(identity, previous, known);
      transition('ready', identity);
      // A daemon that comes back from a network cut goes on with the presence activity it has picked up; any other
      // life of the daemon, perhaps with another control queue, gets one of its own.
      if (previous?.nonce !== identity.nonce) {
        // What another life of the daemon holds it says itself; until then its fence does not count on being missed.
        unwatchedOwners = [];
        endPresence();
      }
      return {
        replaced: previous !== undefined && previous.instance !== identity.instance,
        suspected: Date.now() - suspectedAtMs < SUSPECTED_FOR_MS,
        desired: desk.desired,
      };
    },
    {
      validator: (identity: WorkerIdentity, _known: DesiredState | undefined) => {
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
  /** The owners of sessions that a stopped daemon has left to its next start. */
  let leftOwners: OwnerList = unfinished?.leftOwners ?? [];
  setHandler(stoppedUpdate, ({ nonce, owners = [] }) => {
    if (memo === undefined || memo.identity.nonce !== nonce) return;
    if (owners.length === 0) desk.emptied();
    transition('stopped', memo.identity);
    leftOwners = owners;
    unwatchedOwners = [];
    endPresence();
  });
  setHandler(
    forgetUpdate,
    ({ who }) => {
      log.info('The worker is forgotten', { worker: memo?.identity.name, who });
      forgotten = true;
      endPresence();
    },
    {
      validator: ({ withSessions }: ForgetOrder) => {
        const refusal = memo === undefined ? undefined : keptBecause(memo, leftOwners, withSessions);
        if (refusal !== undefined) throw ApplicationFailure.nonRetryable(refusal, 'FleetConflict');
      },
    },
  );
  desk.open();
  void condition(historyIsLong).then(async () => {
    // Its list of owners is carried over, since the presence activity of the next run has none before its first heartbeat.
    if (memo?.state === 'ready') {
      try {
        carriedOwners = await desk.owners(memo.identity);
      } catch (error) {
        log.warn('The worker did not answer; its workflow continues as new when its presence ends', {
          worker: memo.identity.name,
          reason: String(error),
        });
        return;
      }
    }
    endPresence();
  });

  await condition(() => memo !== undefined);
  for (;;) {
    const current = memo as WorkerMemo | undefined;
    if (current === undefined) throw ApplicationFailure.nonRetryable('The workflow of a worker has no registration.');
    superseded = false;
    if (current.state === 'stopped') {
      // A daemon that is restarted within its presence TTL resumes them; after that they are suspected like those of one
      // that fell silent.
      const resumed = leftOwners.length === 0 || (await condition(() => superseded, current.identity.presenceTtlMs));
      if (!resumed) {
        suspectedAtMs = Date.now();
        await suspectWorker(current.identity, leftOwners);
      }
      leftOwners = [];
      await condition(() => superseded);
    } else {
      presenceCount += 1;
      presenceScope = new CancellationScope();
      const lost = current.state === 'lost';
      const end = await presenceScope.run(() => watchPresence(current.identity, presenceCount, lost));
      const owners = end.lastSnapshot?.sessions ?? unwatchedOwners;
      unwatchedOwners = end.silent || superseded ? [] : owners.map(({ workflowId, runId }) => ({ workflowId, runId }));
      if (end.silent && owners.length > 0) {
        suspectedAtMs = Date.now();
        await suspectWorker(current.identity, owners);
      }
      if (end.silent && !superseded) {
        // One that no daemon picks up is over without a list; what the worker was last known to hold stays.
        transition('lost', current.identity, end.lastSnapshot ?? current.lastSnapshot);
      }
    }
    if (forgotten) {
      await condition(allHandlersFinished);
      return;
    }
    if (historyIsLong()) {
      await condition(allHandlersFinished);
      await continueAsNew<typeof atlasWorker>(memo, {
        ...(Number.isFinite(suspectedAtMs) ? { suspectedAtMs } : {}),
        leftOwners,
        unwatchedOwners: carriedOwners ?? unwatchedOwners,
        desk: desk.record(),
      });
    }
  }
}

function historyIsLong(): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return historyLength > CONTINUE_AFTER_EVENTS || continueAsNewSuggested;
}

/** Why a worker can not be forgotten, as a sentence. */
function keptBecause(
  { state, identity, lastSnapshot }: WorkerMemo,
  leftOwners: OwnerList,
  withSessions: boolean,
): string | undefined {
  if (state === 'ready') return `The worker ${identity.name} is alive; only one that is lost or stopped is forgotten.`;
  const held = state === 'stopped' ? leftOwners.length : (lastSnapshot?.sessions.length ?? 0);
  if (held === 0 || withSessions) return undefined;
  return `The worker ${identity.name} held ${held} session${held === 1 ? '' : 's'} when it was last heard of, which it resumes if it returns.`;
}

/** Tells every owner on the last list of the worker that it may be gone; each asks the worker itself. */
async function suspectWorker(identity: WorkerIdentity, owners: OwnerList): Promise<void> {
  const suspicion: Suspicion = { worker: identity.name, queue: identity.queue };
  await Promise.all(
    owners.map(({ workflowId, runId }) =>
      getExternalWorkflowHandle(workflowId, runId)
        .signal(SUSPECTED_SIGNAL, suspicion)
        // Not found: an owner that has closed meanwhile needs no word. Any other is left to the TTL of its lease.
        .catch((error: unknown) => {
          log.debug('An owner was not told that its worker may be gone', { workflowId, runId, reason: String(error) });
        }),
    ),
  );
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
    // A daemon that dies before it picks presence up is missed too; one that is lost may be away for long.
    ...(lost ? {} : { scheduleToStartTimeout: identity.presenceTtlMs + PRESENCE_PICK_UP_MS }),
    startToCloseTimeout: PRESENCE_START_TO_CLOSE,
    // Whatever else fails it is retried by the server, with backoff and without a history event.
    retry: { initialInterval: 1_000, nonRetryableErrorTypes: ['TemporalTimeout:Heartbeat'] },
  });
  try {
    await activities[PRESENCE_ACTIVITY]({ nonce: identity.nonce, lost });
    return { silent: false };
  } catch (error) {
    const cause = error instanceof ActivityFailure ? error.cause : error;
    if (!(cause instanceof TimeoutFailure)) return { silent: false };
    const silent = cause.timeoutType !== 'START_TO_CLOSE';
    const lastSnapshot = cause.lastHeartbeatDetails as PresenceSnapshot | undefined;
    return { silent, ...(lastSnapshot === undefined ? {} : { lastSnapshot }) };
  }
}
