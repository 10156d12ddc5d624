import { describe, expect, it } from 'vitest';
import type { WorkerRecord } from '../../../src/fleet/client.js';
import { poolOf } from '../../../src/fleet/pools.js';
import { sessionRecord, workerRecord } from '../../support/records.js';

const NO_BACKLOG = { backlog: 0, oldestWaitMs: null };
const pool = (capabilities: string[], workers: WorkerRecord[], sessions = [sessionRecord('a')]) =>
  poolOf(capabilities, 'queue', { workers, sessions }, NO_BACKLOG);

describe('a pool', () => {
  const free = workerRecord('free', { capabilities: ['gpu'], sessions: 1, cap: 4 });
  const full = workerRecord('full', { capabilities: ['gpu', 'ocr'], sessions: 4, cap: 4 });
  const lost = workerRecord('lost', { capabilities: ['ocr'], state: 'lost' });

  it('counts the free slots of the live workers that serve it', () => {
    expect(pool([], [free, full, lost])).toEqual({
      pool: 'any',
      capabilities: [],
      queue: 'queue',
      backlog: 0,
      oldestWaitMs: null,
      freeSlots: 3,
      liveWorkers: 2,
      workers: ['free', 'full', 'lost'],
      reason: null,
    });
    expect(pool(['gpu'], [free, full, lost])).toMatchObject({ freeSlots: 3, workers: ['free', 'full'] });
  });

  it('does not count workers that have withdrawn a capability of it', () => {
    const withdrawn = [{ capability: 'gpu', reason: 'its check failed', since: '2026-01-01T00:00:00.000Z' }];
    const broken = workerRecord('broken', { capabilities: ['gpu', 'ocr'], sessions: 0, withdrawn });
    expect(pool(['gpu'], [free, broken])).toMatchObject({ freeSlots: 3, liveWorkers: 2, reason: null });
    expect(pool(['ocr'], [broken])).toMatchObject({ freeSlots: 4, reason: null });
    expect(pool(['gpu', 'ocr'], [broken])).toMatchObject({
      freeSlots: 0,
      reason: 'gpu withdrawn on every worker that takes sessions',
    });
    // One that offers it is full: more of these would help.
    const busy = { ...free, sessions: 4 };
    expect(pool(['gpu'], [busy, broken])).toMatchObject({ reason: 'every slot is taken or reserved' });
  });

  it('says why nothing can begin', () => {
    expect(pool(['ocr'], [free, full, lost])).toMatchObject({
      freeSlots: 0,
      reason: 'every slot is taken or reserved',
    });
    expect(pool(['ocr'], [free, lost])).toMatchObject({ liveWorkers: 0, reason: 'no live worker serves it' });
    const cordoned = workerRecord('c', { state: 'cordoned', reason: 'cordoned by ops' });
    const starting = workerRecord('s', { reason: 'its executor is starting' });
    expect(pool(['ocr'], [cordoned, starting, lost])).toMatchObject({
      liveWorkers: 2,
      freeSlots: 0,
      reason: 'no live worker takes sessions: cordoned, its executor is starting',
    });
  });

  it('keeps reserved slots for those who ask for them', () => {
    const worker = workerRecord('w', { capabilities: ['gpu'], sessions: 1, cap: 4, reserve: { gpu: 2 } });
    const plain = sessionRecord('a', { worker: 'w' });
    const gpu = sessionRecord('b', { worker: 'w', capabilities: ['gpu'] });
    expect(pool([], [worker], [plain])).toMatchObject({ freeSlots: 1 });
    // One of the two reserved slots is taken by whom it is reserved for.
    expect(pool([], [worker], [gpu])).toMatchObject({ freeSlots: 2 });
    expect(pool(['gpu'], [worker], [plain])).toMatchObject({ freeSlots: 3 });
    expect(pool([], [{ ...worker, reserve: null }], [plain])).toMatchObject({ freeSlots: 3 });
    expect(pool([], [{ ...worker, sessions: 4 }], [plain])).toMatchObject({ freeSlots: 0 });
  });
});
