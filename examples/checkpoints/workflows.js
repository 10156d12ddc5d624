/**
 * Checkpoints: one session for each stage instead of one for all of them. Losing a worker costs the stage that ran on it
 * and not the hours before, and every stage goes to the worker that is free.
 */
import { withSession } from 'temporal-atlas/workflow';

export async function longSequence({ storage, factors, stageMs = 0, session: options = {} }) {
  const stages = [];
  for (const [index, factor] of factors.entries()) {
    const stage = await withSession(options, async (session) => {
      const steps = session.proxyActivities({ startToCloseTimeout: '1 hour' });
      await steps.fetchCheckpoint(storage, index);
      const { worker } = await steps.transform(factor, stageMs);
      await steps.saveCheckpoint(storage, index + 1);
      return { worker, attempt: session.attempt };
    });
    stages.push(stage);
  }
  return { checkpoint: `stage-${factors.length}.json`, stages };
}
