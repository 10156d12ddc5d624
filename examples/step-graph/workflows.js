/**
 * Affinity: the steps of a graph run on one worker because that is quicker, not because they must. If the worker is lost,
 * only the steps that were running run again, on another; what had returned is in the workflow and stays.
 */
import { withSession } from 'temporal-atlas/workflow';

export async function describeText({ text, unpackMs = 0, reportMs = 0, session: options = {} }) {
  return withSession({ ...options, onLost: 'rediscover' }, async (session) => {
    const steps = session.proxyActivities({ startToCloseTimeout: '10 minutes' });
    const first = await steps.split(text);
    // Two branches side by side, joined by the last step.
    const [translation, counts] = await Promise.all([steps.translate(first.words, unpackMs), steps.count(first.words)]);
    const last = await steps.report(translation.words, counts.counts, reportMs);
    return {
      text: last.text,
      distinct: last.distinct,
      workers: { split: first.worker, translate: translation.worker, count: counts.worker, report: last.worker },
    };
  });
}
