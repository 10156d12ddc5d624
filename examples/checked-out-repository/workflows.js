/**
 * A session over a working copy: it is checked out once, and every check runs in it. A check that fails is reported and
 * does not move the session; a worker that is lost takes its working copy with it, so everything is done again elsewhere.
 */
import { ActivityFailure } from '@temporalio/workflow';
import { findErrorCode, withSession } from 'temporal-atlas/workflow';

export async function checkRepository({ url, revision, checks, session: options = {} }) {
  return withSession(options, async (session) => {
    const { checkOut, runIn } = session.proxyActivities({ startToCloseTimeout: '30 minutes' });
    const { commit } = await checkOut(url, revision);
    const results = [];
    for (const [program, ...args] of checks) {
      try {
        const { output, worker } = await runIn(program, args);
        results.push({ check: [program, ...args].join(' '), passed: true, output, worker });
      } catch (error) {
        // The loss of the session is an error here as well; it must get out of the body, so that this begins again.
        if (!(error instanceof ActivityFailure) || findErrorCode(error) !== undefined) throw error;
        results.push({ check: [program, ...args].join(' '), passed: false, output: error.cause?.message ?? '' });
      }
    }
    return { commit, results, worker: session.worker, attempt: session.attempt };
  });
}
