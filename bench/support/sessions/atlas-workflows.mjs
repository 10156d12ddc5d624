/** The workflows of the measurement of sessions, as a user of Atlas writes them. */
import { condition, defineSignal, setHandler } from '@temporalio/workflow';
import { withSession } from 'temporal-atlas/workflow';

/** Three pinned activities that do nothing. */
export async function noops(options = {}) {
  await withSession(options, async (session) => {
    const { noop } = session.proxyActivities({ startToCloseTimeout: '10 minutes' });
    await noop();
    await noop();
    await noop();
  });
}

/** Three steps, of which the second takes `holdMs` in the first run of the body. */
export async function sequence({ holdMs, heartbeatTimeout, session: options = {} }) {
  return withSession(options, async (session) => {
    const { who, hold } = session.proxyActivities({ startToCloseTimeout: '10 minutes', heartbeatTimeout });
    const first = await who();
    await hold(session.attempt === 1 ? holdMs : 0);
    return { attempt: session.attempt, workers: [first, await who()] };
  });
}

/** Holds a session without doing anything in it. */
export async function idle() {
  let done = false;
  setHandler(defineSignal('finish'), () => {
    done = true;
  });
  await withSession({}, () => condition(() => done));
}
