/**
 * What one writes by hand without Atlas: an activity on the shared queue tells the queue of the worker that took it, and
 * a last one gives it back. No slots, no lease, no redo: it is here for the price of the round trips alone.
 */
import { CancellationScope, proxyActivities } from '@temporalio/workflow';

const { acquireWorker } = proxyActivities({ startToCloseTimeout: '30 seconds' });

export async function noops() {
  const { taskQueue, ticket } = await acquireWorker();
  const pinned = proxyActivities({ taskQueue, startToCloseTimeout: '10 minutes', heartbeatTimeout: '30 seconds' });
  try {
    await pinned.noop();
    await pinned.noop();
    await pinned.noop();
  } finally {
    await CancellationScope.nonCancellable(() => pinned.releaseWorker(ticket));
  }
}
