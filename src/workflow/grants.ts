/**
 * The mailbox of grants: one signal handler per workflow run, which hands each grant to the session that waits for it
 * and answers every other one with a release, so that a worker never keeps a slot for an owner that stopped waiting.
 *
 * State of the module is state of the workflow: the sandbox gives every workflow execution its own copy.
 */
import { CancellationScope, defineSignal, log, proxyActivities, setHandler } from '@temporalio/workflow';
import { sessionActivityId } from '../contract/names.js';
import {
  GRANT_SIGNAL,
  RELEASE_ACTIVITY,
  RELEASE_SCHEDULE_TO_START_MS,
  RELEASE_START_TO_CLOSE_MS,
  type Grant,
  type ReleaseAnswer,
  type ReleaseRequest,
} from '../contract/session.js';

const grantSignal = defineSignal<[Grant]>(GRANT_SIGNAL);

/** Returns whether the grant was taken. What is not taken is released. */
type GrantTaker = (grant: Grant) => boolean;

const takers = new Map<string, GrantTaker>();
let listening = false;
let releaseCount = 0;

/** Offers every grant of this session to `take`, until {@link stopTakingGrants}. */
export function takeGrants(session: string, take: GrantTaker): void {
  takers.set(session, take);
  if (listening) return;
  listening = true;
  setHandler(grantSignal, (grant) => {
    if (takers.get(grant.session)?.(grant) === true) return;
    log.info('A grant arrived that nobody waits for; it is released', { session: grant.session, worker: grant.worker });
    void releaseGrant(grant);
  });
}

export function stopTakingGrants(session: string): void {
  takers.delete(session);
}

/**
 * Gives a slot back, also when the workflow is cancelled. Resolves to whether the worker answered: a worker that can
 * not be reached in a few seconds is left to its lease, which the caller cancels.
 */
export async function releaseGrant(grant: Grant): Promise<boolean> {
  releaseCount += 1;
  const step = `release-${releaseCount}`;
  return CancellationScope.nonCancellable(async () => {
    const control = proxyActivities<{ [RELEASE_ACTIVITY]: (request: ReleaseRequest) => Promise<ReleaseAnswer> }>({
      taskQueue: grant.controlQueue,
      activityId: sessionActivityId({ session: grant.session, epoch: grant.epoch, step }),
      scheduleToStartTimeout: RELEASE_SCHEDULE_TO_START_MS,
      startToCloseTimeout: RELEASE_START_TO_CLOSE_MS,
      // A daemon that restarts in the middle of a release answers the second attempt.
      retry: { initialInterval: 200, maximumAttempts: 3 },
    });
    try {
      await control[RELEASE_ACTIVITY]({ session: grant.session, epoch: grant.epoch });
      return true;
    } catch (error) {
      log.warn('The worker did not answer the release', {
        session: grant.session,
        worker: grant.worker,
        reason:
          error instanceof Error ? (error.cause instanceof Error ? error.cause.message : error.message) : String(error),
      });
      return false;
    }
  });
}
