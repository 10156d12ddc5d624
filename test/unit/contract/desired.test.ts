/** What an order and a state give, and what refuses an order. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  cordoned,
  describeDesired,
  drained,
  draining,
  overdue,
  refusalOf,
  released,
  uncordoned,
} from '../../../src/contract/desired.js';
import {
  type CordonOrder,
  type DesiredState,
  type DrainRequest,
  NOTES_KEPT,
  UNTOUCHED,
} from '../../../src/contract/fleet.js';

const ORDER: CordonOrder = { orderId: 'o', who: 'ops', why: 'disk swap' };
const EVE = { ...ORDER, who: 'eve', why: null };
const DRAIN: DrainRequest = { ...ORDER, deadlineMs: null, onDeadline: 'report', stop: false, replace: false };
const cordon = (desired: DesiredState) => cordoned(desired, ORDER, 1_000);

describe('an order', () => {
  it('to cordon closes an open worker, and is noted where it is closed already', () => {
    const first = cordon(UNTOUCHED);
    expect(first).toMatchObject({ scheduling: 'cordoned', revision: 1, sinceMs: 1_000 });
    const second = cordoned(first, EVE, 2_000);
    expect(second).toMatchObject({ scheduling: 'cordoned', revision: 1, sinceMs: 1_000 });
    expect(second.notes.map(({ who }) => who)).toEqual(['ops', 'eve']);
    expect(describeDesired(second)).toBe('cordoned by ops since 1970-01-01T00:00:01Z ("disk swap")');
  });

  it('to uncordon opens it, and changes nothing where it is open', () => {
    expect(uncordoned(cordon(UNTOUCHED), { ...ORDER, ofOthers: false }, 3_000)).toEqual({
      revision: 2,
      scheduling: 'open',
      sinceMs: 3_000,
      drain: null,
      notes: [{ action: 'uncordon', who: 'ops', why: 'disk swap', atMs: 3_000 }],
    });
    expect(uncordoned(UNTOUCHED, { ...ORDER, ofOthers: false }, 3_000)).toBe(UNTOUCHED);
  });

  it('to drain keeps the first reason, and its deadline counts from then', () => {
    const wanted = draining(cordon(UNTOUCHED), { ...DRAIN, who: 'eve', deadlineMs: 500, stop: true }, 'n', 2_000);
    expect(wanted).toMatchObject({
      scheduling: 'draining',
      drain: { who: 'eve', deadlineAtMs: 2_500, onDeadline: 'report', overdue: false, stopNonce: 'n' },
    });
    expect(describeDesired(wanted)).toBe(
      'draining by ops since 1970-01-01T00:00:01Z, deadline 1970-01-01T00:00:02Z ("disk swap")',
    );
    expect(describeDesired(overdue(wanted, 2_500))).toContain('deadline passed');
  });

  it('to drain without terms joins a drain that goes on, and one that is over', () => {
    const wanted = draining(UNTOUCHED, { ...DRAIN, deadlineMs: 500 }, 'n', 0);
    expect(draining(wanted, { ...DRAIN, who: 'eve' }, 'n', 1)).toMatchObject({ revision: 1, drain: wanted.drain });
    const over = drained(wanted, 2);
    expect(over).toMatchObject({ scheduling: 'drained', revision: 2 });
    expect(draining(over, DRAIN, 'n', 3)).toMatchObject({ scheduling: 'drained', revision: 2 });
    // A drained worker that is to stop drains once more, which is over at once.
    expect(draining(over, { ...DRAIN, stop: true }, 'n', 3)).toMatchObject({ scheduling: 'draining', revision: 3 });
  });

  it('to release is noted only', () => {
    expect(released(UNTOUCHED, { ...ORDER, keys: ['s1.r1', 's2.r2'], failOwner: false }, 1)).toMatchObject({
      revision: 0,
      scheduling: 'open',
      notes: [{ action: 'release', sessions: ['s1.r1', 's2.r2'] }],
    });
  });

  it('that comes too late for a drain changes nothing', () => {
    for (const desired of [UNTOUCHED, cordon(UNTOUCHED)]) {
      expect(drained(desired, 1)).toBe(desired);
      expect(overdue(desired, 1)).toBe(desired);
    }
  });
});

describe('a refusal', () => {
  it('meets who saw another state', () => {
    expect(refusalOf('w', cordon(UNTOUCHED), { kind: 'cordon', order: { ...ORDER, ifRevision: 0 } })).toBe(
      'The worker w was changed meanwhile: cordoned by ops since 1970-01-01T00:00:01Z ("disk swap").',
    );
    expect(refusalOf('w', cordon(UNTOUCHED), { kind: 'release', order: { ...ORDER, ifRevision: 1 } })).toBeUndefined();
  });

  it('meets who opens what another has closed, unless that is meant', () => {
    const desired = cordon(UNTOUCHED);
    const uncordon = (who: string, ofOthers: boolean) =>
      refusalOf('w', desired, { kind: 'uncordon', order: { ...ORDER, who, ofOthers } });
    expect(uncordon('ops', false)).toBeUndefined();
    expect(uncordon('eve', false)).toContain('taken out of service by another operator: cordoned by ops');
    expect(uncordon('eve', true)).toBeUndefined();
    expect(refusalOf('w', UNTOUCHED, { kind: 'uncordon', order: { ...EVE, ofOthers: false } })).toBeUndefined();
  });

  it('meets who drains by other terms than another, and not who joins or replaces', () => {
    const desired = draining(UNTOUCHED, { ...DRAIN, deadlineMs: 500 }, 'n', 0);
    const drain = (changes: Partial<DrainRequest>) =>
      refusalOf('w', desired, { kind: 'drain', order: { ...DRAIN, who: 'eve', ...changes }, nonce: 'n' });
    expect(drain({})).toBeUndefined();
    expect(drain({ deadlineMs: 9 })).toContain('Another operator drains the worker w by other terms: draining by ops');
    expect(drain({ stop: true })).toBeDefined();
    expect(drain({ onDeadline: 'release' })).toBeDefined();
    expect(drain({ deadlineMs: 9, replace: true })).toBeUndefined();
    expect(drain({ deadlineMs: 9, who: 'ops' })).toBeUndefined();
  });
});

describe('any orders in any sequence', () => {
  const order = fc
    .record({ who: fc.constantFrom('a', 'b'), why: fc.option(fc.string()) })
    .map((by) => ({ ...ORDER, ...by }));
  const step = fc.oneof(
    order.map((by) => (desired: DesiredState, nowMs: number) => cordoned(desired, by, nowMs)),
    order.map((by) => (desired: DesiredState, nowMs: number) => uncordoned(desired, { ...by, ofOthers: true }, nowMs)),
    fc.tuple(order, fc.option(fc.nat(100)), fc.boolean()).map(
      ([by, deadlineMs, stop]) =>
        (desired: DesiredState, nowMs: number) =>
          draining(desired, { ...DRAIN, ...by, deadlineMs, stop }, 'n', nowMs),
    ),
    fc.constant((desired: DesiredState, nowMs: number) => drained(desired, nowMs)),
    fc.constant((desired: DesiredState, nowMs: number) => overdue(desired, nowMs)),
  );

  it('keep the first reason, a bounded number of notes, and a revision that rises with every change', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let desired = UNTOUCHED;
        for (const [nowMs, next] of steps.entries()) {
          const before = desired;
          desired = next(before, nowMs);
          const isSame =
            desired.scheduling === before.scheduling && desired.drain?.deadlineAtMs === before.drain?.deadlineAtMs;
          expect(desired.revision).toBeGreaterThanOrEqual(before.revision + (isSame ? 0 : 1));
          expect(desired.notes.length).toBeLessThanOrEqual(NOTES_KEPT);
          if (desired.scheduling !== 'open' && before.scheduling !== 'open')
            expect(desired.notes[0]).toEqual(before.notes[0]);
          if (desired.scheduling === 'draining') expect(desired.drain).not.toBeNull();
          if (desired.scheduling === 'open') expect(desired.drain).toBeNull();
        }
      }),
    );
  });
});
