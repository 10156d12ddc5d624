/** The workflow under test: three steps on one worker. It knows nothing of tests. */
import { withSession } from 'temporal-atlas/workflow';

export async function makeClip(source) {
  return withSession({ capabilities: ['gpu'], leaseTtl: '10s' }, async (session) => {
    const { download, encode, upload } = session.proxyActivities({ startToCloseTimeout: '1 hour' });
    await download(source);
    await encode();
    return { url: await upload(), worker: session.worker, attempt: session.attempt };
  });
}
