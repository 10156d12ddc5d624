/** The polls of the unique queue, with a Core that takes and gives permits as the test says. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PinnedPolls } from '../../../src/executor/pinned-polls.js';
import { settle } from '../../support/fake-ports.js';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

function core(maxTasks: number) {
  const polls = new PinnedPolls(maxTasks);
  const { supplier } = polls;
  const poll = (signal = new AbortController().signal) => supplier.reserveSlot({} as never, signal);
  const take = (permit: object) => supplier.markSlotUsed({ permit } as never);
  const release = (permit: object) => supplier.releaseSlot({ permit } as never);
  return { polls, poll, take, release };
}

const forGood = new AbortController().signal;

describe('the polls of an executor that retires', () => {
  it('are over when each has come back with a task or empty, and none follows', async () => {
    const { polls, poll, take, release } = core(10);
    const [first, second] = [await poll(), await poll()];
    let over = false;
    const closing = polls.close(forGood).then(() => (over = true));
    take(first);
    await settle();
    expect(over).toBe(false);
    release(second);
    await closing;
    let polled = false;
    void poll().then(() => (polled = true));
    release(first);
    await settle();
    expect(polled).toBe(false);
  });

  it('are over at once where none is out, although tasks run', async () => {
    const { polls, poll, take } = core(10);
    take(await poll());
    await polls.close(forGood);
  });

  it('are not awaited any more once the worker stops', async () => {
    const { polls, poll } = core(10);
    await poll();
    const hurry = new AbortController();
    const closing = polls.close(hurry.signal);
    hurry.abort(new Error('it stops'));
    await expect(closing).rejects.toThrow('it stops');
  });

  it('are as many as tasks may run, and a poll that waits for that ends with its signal', async () => {
    const { poll, take, release } = core(1);
    const permit = await poll();
    take(permit);
    const abort = new AbortController();
    const waiting = poll(abort.signal);
    abort.abort(new Error('the Worker stops'));
    await expect(waiting).rejects.toThrow('the Worker stops');
    const next = poll();
    release(permit);
    expect(await next).toEqual({ used: false });
  });
});
