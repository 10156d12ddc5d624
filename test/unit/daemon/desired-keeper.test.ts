/** What the daemon acts on: the fleet's word, and orders of its host until the fleet has taken them. */
import { describe, expect, it } from 'vitest';
import { cordoned } from '../../../src/contract/desired.js';
import { AtlasError } from '../../../src/contract/errors.js';
import {
  type DesiredState,
  type DrainRequest,
  type ForceReleaseRequest,
  UNTOUCHED,
} from '../../../src/contract/fleet.js';
import type { LocalOrder } from '../../../src/contract/local.js';
import { type DesiredEntry, DesiredKeeper } from '../../../src/daemon/desired-keeper.js';
import { DesiredTender } from '../../../src/daemon/desired-tender.js';
import { fakeLog, type LogLine } from '../../support/fake-ports.js';

const BY = { orderId: 'o1', who: 'ops', why: 'deploy' };
const TERMS: DrainRequest = { ...BY, deadlineMs: null, onDeadline: 'report', stop: false, replace: false };
const drainOrder = (terms: Partial<DrainRequest> = {}): LocalOrder => ({
  kind: 'drain',
  order: { ...TERMS, ...terms },
});
const CORDONED = cordoned(UNTOUCHED, BY, 5);

function daemon({ saved = null as DesiredEntry | null, sessions = 0 } = {}) {
  const log: LogLine[] = [];
  const state = {
    saved: [] as DesiredEntry[],
    changes: 0,
    nowMs: 1_000,
    sessions,
    stops: 0,
    told: [] as unknown[],
    releases: [] as ForceReleaseRequest[],
    answer: (): DesiredState | AtlasError | Error => CORDONED,
  };
  const desired = new DesiredKeeper(
    {
      worker: 'w',
      nonce: 'n1',
      save: async (entry) => void state.saved.push(entry),
      now: () => state.nowMs,
      log: fakeLog(log),
      onChange: () => (state.changes += 1),
    },
    saved,
  );
  const answer = <T>(given: T | Error): Promise<T> =>
    given instanceof Error && !(given instanceof AtlasError) ? Promise.reject(given) : Promise.resolve(given as T);
  const tender = new DesiredTender(desired, {
    nonce: 'n1',
    sessionCount: () => state.sessions,
    forceRelease: async (request) => void state.releases.push(request),
    tellOrder: (order) => {
      state.told.push(order);
      return answer<DesiredState | AtlasError>(state.answer());
    },
    tellDrained: async (revision) => void state.told.push(revision),
    stop: () => (state.stops += 1),
    now: () => state.nowMs,
    monotonicMs: () => state.nowMs,
    log: fakeLog(log),
  });
  return { desired, tender, state, log };
}

describe('the desired state', () => {
  it('is the word of the fleet, of which an older one is ignored', async () => {
    const { desired, state } = daemon();
    await desired.fromFleet(CORDONED);
    await desired.fromFleet(UNTOUCHED);
    expect([desired.scheduling(), state.saved]).toEqual(['cordoned', [{ fleet: CORDONED, local: [] }]]);
    // Said again at every registration: nothing to write.
    await desired.fromFleet(CORDONED);
    expect([state.saved.length, state.changes]).toEqual([1, 1]);
  });

  it('takes effect before it is on disk, and outlives a restart', async () => {
    const { desired, state } = daemon();
    const ordered = desired.order(drainOrder());
    expect(desired.scheduling()).toBe('draining');
    await ordered;
    const again = daemon({ saved: state.saved.at(-1)! });
    expect(again.desired.scheduling()).toBe('draining');
    expect(again.desired.untold()?.given).toEqual(drainOrder());
  });

  it('refuses an order of the host that conflicts with another operator', async () => {
    const { desired } = daemon({ saved: { fleet: CORDONED, local: [] } });
    const order: LocalOrder = { kind: 'uncordon', order: { ...BY, who: 'eve', ofOthers: false } };
    await expect(desired.order(order)).rejects.toMatchObject({ code: 'FleetConflict' });
    expect(desired.scheduling()).toBe('cordoned');
  });
});

describe('the tender', () => {
  it('tells the fleet of an order, again after a pause where there is no answer, with what is left of its deadline', async () => {
    const { desired, tender, state } = daemon({ sessions: 1 });
    await desired.order(drainOrder({ deadlineMs: 10_000 }));
    state.answer = () => new Error('unavailable');
    await tender.tick();
    await tender.tick();
    expect(state.told).toHaveLength(1);
    state.nowMs += 4_000;
    state.answer = () => CORDONED;
    await tender.tick();
    expect(state.told[1]).toEqual(drainOrder({ deadlineMs: 6_000 }));
    // The fleet's answer is what counts from now on.
    expect([desired.untold(), desired.scheduling()]).toEqual([undefined, 'cordoned']);
  });

  it('drops an order that the fleet refuses, and says so', async () => {
    const { desired, tender, state, log } = daemon({ saved: { fleet: UNTOUCHED, local: [] } });
    await desired.order({ kind: 'cordon', order: BY });
    state.answer = () => new AtlasError('FleetConflict', 'eve drains it');
    await tender.tick();
    expect(desired.scheduling()).toBe('open');
    expect(log.map(({ fields }) => fields.event)).toContain('order-refused');
  });

  it('tells that a drain is over once no session is left, until the fleet says so too', async () => {
    const { desired, tender, state } = daemon({ sessions: 1 });
    const draining = { ...CORDONED, scheduling: 'draining' as const, revision: 2 };
    await desired.fromFleet(draining);
    await tender.tick();
    expect(state.told).toEqual([]);
    state.sessions = 0;
    await tender.tick();
    await tender.tick();
    expect(state.told).toEqual([2]);
    state.nowMs += 2_000;
    await tender.tick();
    expect(state.told).toEqual([2, 2]);
    await desired.fromFleet({ ...draining, scheduling: 'drained', revision: 3 });
    state.nowMs += 2_000;
    await tender.tick();
    expect([state.told.length, state.stops]).toEqual([2, 0]);
  });

  it.each([
    ['this life of the daemon', 'n1', 1],
    ['an earlier one', 'n0', 0],
  ])('stops the daemon when it is drained, where that was meant for %s', async (_, stopNonce, stops) => {
    const { desired, tender, state } = daemon();
    const drain = {
      who: 'ops',
      startedAtMs: 0,
      deadlineAtMs: null,
      onDeadline: 'report',
      overdue: false,
      stopNonce,
    } as const;
    await desired.fromFleet({ ...CORDONED, scheduling: 'drained', revision: 3, drain });
    await tender.tick();
    await tender.tick();
    expect(state.stops).toBe(stops);
  });

  it('stops and releases by an order of the host also while Temporal is away', async () => {
    const { desired, tender, state } = daemon({ sessions: 1 });
    state.answer = () => new Error('unavailable');
    await desired.order(drainOrder({ deadlineMs: 3_000, onDeadline: 'release', stop: true }));
    await tender.tick();
    expect([state.releases, state.stops]).toEqual([[], 0]);
    state.nowMs += 3_000;
    await tender.tick();
    await tender.tick();
    expect(state.releases).toEqual([
      { keys: null, who: 'ops', why: 'the deadline of the drain was reached', failOwner: false },
    ]);
    state.sessions = 0;
    await tender.tick();
    expect(state.stops).toBe(1);
  });
});
