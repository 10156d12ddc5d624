import { describe, expect, it } from 'vitest';
import {
  acquireQueue,
  acquireQueueOf,
  capabilityLabel,
  capabilitySet,
  capabilitySubsets,
  checkName,
  fleetControlQueue,
  MAX_NAME_LENGTH,
  parseAcquireQueue,
  parseSessionActivityId,
  parseWorkerQueue,
  pooledQueue,
  sessionActivityId,
  sessionKey,
  WORKER_ACTIVITY_PREFIX,
  workerControlQueue,
  workerOfIdentity,
  workerQueue,
  workerWorkflowId,
} from '../../../src/contract/names.js';

const LONGEST = 'a'.repeat(MAX_NAME_LENGTH);

describe('checkName', () => {
  it.each(['a', '7', 'worker-7', 'gpu.a100', 'a-', 'a.', LONGEST])('takes %s for a worker and a capability', (name) => {
    expect(checkName('worker', name)).toBe(name);
    expect(checkName('capability', name)).toBe(name);
  });

  it.each(['', '-a', '.a', 'A', 'a_b', 'a b', 'a/b', 'a:b', 'a+b', 'ä', 'a\n', `${LONGEST}a`])(
    'refuses %j everywhere and says what is allowed',
    (name) => {
      for (const kind of ['worker', 'capability', 'fleet'] as const) {
        expect(() => checkName(kind, name)).toThrow(
          expect.objectContaining({
            code: 'NameInvalid',
            message: expect.stringContaining(`The ${kind} name ${JSON.stringify(name)} is not valid`) as string,
          }),
        );
      }
    },
  );

  it('refuses a hyphen in the name of a fleet only', () => {
    expect(checkName('fleet', 'atlas.eu1')).toBe('atlas.eu1');
    expect(() => checkName('fleet', 'atlas-eu')).toThrow('only lower-case letters, digits and dots, at most 63');
  });
});

describe('capability sets', () => {
  it('are sorted and have no duplicates', () => {
    expect(capabilitySet(['ocr', 'gpu', 'ocr'])).toEqual(['gpu', 'ocr']);
    expect(capabilitySet([])).toEqual([]);
  });

  it('have at most three members, duplicates not counted', () => {
    expect(capabilitySet(['a', 'b', 'c', 'a'])).toEqual(['a', 'b', 'c']);
    expect(() => capabilitySet(['d', 'b', 'c', 'a'])).toThrow(
      expect.objectContaining({
        code: 'TooManyCapabilities',
        message: expect.stringMatching(/^4 capabilities \(a, b, c, d\) are more than the 3 allowed/) as string,
      }),
    );
  });

  it('refuse a member that is no name', () => {
    expect(() => capabilitySet(['gpu', 'GPU'])).toThrow('capability name "GPU"');
  });

  it('have every subset once, the empty one first', () => {
    expect(capabilitySubsets([])).toEqual([[]]);
    expect(capabilitySubsets(['ocr', 'gpu'])).toEqual([[], ['gpu'], ['ocr'], ['gpu', 'ocr']]);
    const eight = capabilitySubsets(['a', 'b', 'c']).map((subset) => subset.join('+'));
    expect(eight).toHaveLength(8);
    expect(new Set(eight).size).toBe(8);
  });

  it('are shown sorted, and as "any" when empty', () => {
    expect(capabilityLabel(['ocr', 'gpu'])).toBe('gpu+ocr');
    expect(capabilityLabel([])).toBe('any');
  });
});

describe('queues', () => {
  it('are named by fleet, capabilities, worker and instance', () => {
    expect(pooledQueue('atlas')).toBe('atlas');
    expect(pooledQueue('atlas', ['ocr', 'gpu'])).toBe('atlas-gpu+ocr');
    expect(acquireQueue('atlas', [])).toBe('atlas:acquire');
    expect(acquireQueue('atlas', ['ocr', 'gpu'])).toBe('atlas-gpu+ocr:acquire');
    expect(acquireQueueOf('atlas', 'worker-7')).toBe('atlas-worker-7:prefer');
    expect(workerQueue('atlas', 'worker-7', 'k3f9')).toBe('atlas-worker-7.k3f9');
    expect(workerControlQueue('atlas', 'worker-7', 'k3f9')).toBe('atlas-worker-7.k3f9:control');
    expect(fleetControlQueue('atlas')).toBe('atlas:control');
    expect(workerWorkflowId('atlas', 'worker-7')).toBe('atlas:worker/worker-7');
  });

  it.each<[string, () => string]>([
    ['pooledQueue', () => pooledQueue('a-b')],
    ['pooledQueue with capabilities', () => pooledQueue('a-b', ['gpu'])],
    ['acquireQueue', () => acquireQueue('atlas', ['G'])],
    ['acquireQueueOf, fleet', () => acquireQueueOf('a-b', 'w')],
    ['acquireQueueOf, worker', () => acquireQueueOf('a', 'W')],
    ['workerQueue, fleet', () => workerQueue('a-b', 'w', 'i')],
    ['workerQueue, name', () => workerQueue('a', 'W', 'i')],
    ['workerQueue, instance', () => workerQueue('a', 'w', 'I')],
    ['workerControlQueue', () => workerControlQueue('a', 'W', 'i')],
    ['fleetControlQueue', () => fleetControlQueue('a-b')],
    ['workerWorkflowId, fleet', () => workerWorkflowId('a-b', 'w')],
    ['workerWorkflowId, name', () => workerWorkflowId('a', 'w:w')],
  ])('are not built from names that break the rules: %s', (_, build) => {
    expect(build).toThrow(expect.objectContaining({ code: 'NameInvalid' }));
  });
});

describe('activity ids of a session', () => {
  it.each([
    { session: 'a1b2', epoch: 1, step: 'lease' },
    { session: 'a1b2', epoch: 12, step: 'release-3' },
    { session: '0', epoch: 0, step: '42' },
  ])('are read back as they were built: %o', (id) => {
    expect(parseSessionActivityId(sessionActivityId(id))).toEqual(id);
  });

  it('have one shape', () => {
    expect(sessionActivityId({ session: 'a1b2', epoch: 3, step: 'lease' })).toBe('a1b2.3:lease');
  });

  it.each([
    '',
    '1',
    'a1b2',
    'a1b2.3',
    'a1b2:1',
    'a1b2.x:1',
    'a1b2.3:',
    '.3:1',
    'a1b2.3:1\n',
    `${WORKER_ACTIVITY_PREFIX}1`,
  ])('are not seen in %j', (activityId) => {
    expect(parseSessionActivityId(activityId)).toBeUndefined();
  });
});

describe('sessionKey', () => {
  it('tells the same session in two runs apart', () => {
    expect(sessionKey('s', 'run-1')).toBe('s.run-1');
    expect(sessionKey('s', 'run-2')).not.toBe(sessionKey('s', 'run-1'));
  });
});

describe('workerOfIdentity', () => {
  it('finds the name of the worker, and none in the identity of another program', () => {
    expect(workerOfIdentity('worker-7.rack-2@atlas executor 4711')).toBe('worker-7.rack-2');
    expect(workerOfIdentity('worker-7@atlas supervisor')).toBe('worker-7');
    expect(workerOfIdentity('4711')).toBeUndefined();
    expect(workerOfIdentity('')).toBeUndefined();
  });
});

describe('queues read back', () => {
  it.each([[[]], [['gpu']], [['gpu.a100', 'o-cr']]])('gives the capability set %j of an acquire queue', (set) => {
    expect(parseAcquireQueue('atlas', acquireQueue('atlas', set))).toEqual(set);
    expect(parseAcquireQueue('other', acquireQueue('atlas', set))).toBeUndefined();
    expect(parseAcquireQueue('atlas', pooledQueue('atlas', set))).toBeUndefined();
  });

  it.each(['worker-7', 'w.x-1'])('gives the worker %s of its unique and its control queue', (name) => {
    const worker = { name, instance: 'k3f9' };
    expect(parseWorkerQueue('atlas', workerQueue('atlas', name, 'k3f9'))).toEqual(worker);
    expect(parseWorkerQueue('atlas', workerControlQueue('atlas', name, 'k3f9'))).toEqual(worker);
    expect(parseWorkerQueue('other', workerQueue('atlas', name, 'k3f9'))).toBeUndefined();
    expect(parseWorkerQueue('atlas', acquireQueue('atlas', ['gpu']))).toBeUndefined();
  });

  it('takes the queues of fleets and of acquisitions for no worker', () => {
    const preferred = acquireQueueOf('atlas', 'worker.7');
    for (const queue of [
      fleetControlQueue('atlas'),
      pooledQueue('atlas'),
      acquireQueue('atlas', ['gpu.a100']),
      preferred,
    ])
      expect(parseWorkerQueue('atlas', queue)).toBeUndefined();
    expect(parseAcquireQueue('atlas', preferred)).toBeUndefined();
  });
});
