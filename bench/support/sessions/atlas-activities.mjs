/** The pinned activities of the measurement of sessions, as a user of Atlas writes them. */
import { sleep } from '@temporalio/activity';
import { currentWorker } from 'temporal-atlas/activity';

export async function noop() {}

/** The name of the worker that it runs on. */
export async function who() {
  return currentWorker().name;
}

export async function hold(ms) {
  await sleep(ms);
}
