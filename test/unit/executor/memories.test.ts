/** What sessions keep in the memory of an executor: whose it is, and that it is given back. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SessionMemories } from '../../../src/executor/memories.js';
import type { SessionMemoryName } from '../../../src/contract/local.js';
import { fakeLog, type LogLine } from '../../support/fake-ports.js';

const FIRST: SessionMemoryName = { key: 's.run', fencingToken: 1 };

function memories() {
  const log: LogLine[] = [];
  const dropped: SessionMemoryName[] = [];
  const order: string[] = [];
  const kept = new SessionMemories({
    dropped: async (name) => {
      order.push('told');
      dropped.push(name);
    },
    log: fakeLog(log),
  });
  return { kept, log, dropped, order };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('the memory of a session', () => {
  it('is one map over its activities, and another for each session and acquisition', () => {
    const { kept } = memories();
    kept.of(FIRST).set('model', 1);
    expect(kept.of({ ...FIRST }).get('model')).toBe(1);
    expect(kept.of({ ...FIRST, fencingToken: 2 }).size).toBe(0);
    expect(kept.of({ key: 't.run', fencingToken: 1 }).size).toBe(0);
  });

  it('is disposed when it is dropped, the newest value first, and then the supervisor is told', async () => {
    const { kept, order, dropped, log } = memories();
    const map = kept.of(FIRST);
    map.set('first', { [Symbol.dispose]: () => order.push('first') });
    map.set('both', {
      [Symbol.dispose]: () => order.push('both, at once'),
      [Symbol.asyncDispose]: async () => {
        await Promise.resolve();
        order.push('both, later');
      },
    });
    map.set('plain', { size: 1 });
    map.set('null', null);
    await kept.drop(FIRST);
    expect(order).toEqual(['both, later', 'first', 'told']);
    expect(dropped).toEqual([FIRST]);
    expect(log).toEqual([]);
    expect(kept.of(FIRST).size).toBe(0);
  });

  it('is dropped as far as it goes where a value fails or hangs, and says so', async () => {
    const { kept, order, dropped, log } = memories();
    const map = kept.of(FIRST);
    map.set('sound', { [Symbol.dispose]: () => order.push('sound') });
    map.set('hangs', { [Symbol.asyncDispose]: () => new Promise(() => undefined) });
    map.set('fails', {
      [Symbol.dispose]: () => {
        throw new Error('the device is gone');
      },
    });
    const dropping = kept.drop(FIRST);
    await vi.advanceTimersByTimeAsync(9_999);
    expect(dropped).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    await dropping;
    expect(order).toEqual(['sound', 'told']);
    expect(log.map(({ fields }) => [fields.event, fields['key'], fields['reason']])).toEqual([
      ['memory-dispose-failed', 'fails', 'the device is gone'],
      ['memory-dispose-failed', 'hangs', 'The values of a session may take 10000 ms in all, and it has not ended.'],
    ]);
  });

  it('is told of also where nothing was in it, and a supervisor that does not hear it is logged', async () => {
    const log: LogLine[] = [];
    const kept = new SessionMemories({ dropped: () => Promise.reject(new Error('no answer')), log: fakeLog(log) });
    await kept.drop(FIRST);
    expect(log.map(({ fields }) => fields.event)).toEqual(['memory-drop-untold']);
  });
});
