/**
 * A session: three steps that need one file, on the worker that has it. If that worker is lost the file is lost, so the
 * body runs again from its first line on another.
 */
import { withSession } from 'temporal-atlas/workflow';

export async function readDocument({ url, sentences = 3, session: options = {} }) {
  return withSession(options, async (session) => {
    const { download, readPages, summarise } = session.proxyActivities({ startToCloseTimeout: '1 hour' });
    const { bytes } = await download(url);
    const { pages } = await readPages();
    return { bytes, pages, summary: await summarise(sentences), worker: session.worker, attempt: session.attempt };
  });
}
