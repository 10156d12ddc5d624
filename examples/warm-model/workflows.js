/**
 * A memory session: what the steps share is in the memory of the worker's executor. A restart of the executor loses it, so
 * it loses the session too, and the body loads the model again, on whichever worker then has a slot.
 */
import { condition, defineSignal, setHandler } from '@temporalio/workflow';
import { withSession } from 'temporal-atlas/workflow';

export const nextWord = defineSignal('nextWord');
export const finish = defineSignal('finish');

/** Answers words as they come in, until it is told to finish. */
export async function completeWords({ loadMs = 100, session: options = {} } = {}) {
  const asked = [];
  let finished = false;
  setHandler(nextWord, (word) => {
    asked.push(word);
  });
  setHandler(finish, () => {
    finished = true;
  });
  const answers = [];
  return withSession({ ...options, state: 'memory', idleTimeout: '10 minutes' }, async (session) => {
    const { loadModel, complete } = session.proxyActivities({ startToCloseTimeout: '10 minutes' });
    const { worker } = await loadModel(loadMs);
    for (;;) {
      await condition(() => finished || asked.length > answers.length);
      if (asked.length === answers.length) return { answers, worker, attempt: session.attempt };
      // What was answered stays answered: it is in the workflow, not on the worker.
      answers.push(await complete(asked[answers.length], 5));
    }
  });
}
