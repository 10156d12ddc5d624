/** A workflow whose three activities run on one worker, because each needs the file that the one before left there. */
import { withSession } from 'temporal-atlas/workflow';

export async function countText({ lines = 1_000, seconds = 5, session: options = {} } = {}) {
  return withSession(options, async (session) => {
    const { fetchText, countWords, topWords } = session.proxyActivities({ startToCloseTimeout: '5 minutes' });
    await fetchText(lines);
    await countWords(seconds);
    // 1, or more when a worker was lost and this body has run again on another.
    return { ...(await topWords(3)), attempt: session.attempt };
  });
}
