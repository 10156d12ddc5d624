/** `atlas top` under any keys, looks and sizes: what always holds of its state and its screen. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';
import { frameOf } from '../../src/terminal/top-frame.js';
import { layoutOf, startOfTop, step, type TopEvent, type TopKey, type TopState } from '../../src/terminal/top-model.js';
import { PANELS, TABS, type TopData } from '../../src/terminal/top-panels.js';
import { heldBack, poolRecord, sessionRecord, workerRecord } from '../support/fleet-records.js';

const NAMED = [
  'up',
  'down',
  'pageUp',
  'pageDown',
  'home',
  'end',
  'enter',
  'escape',
  'tab',
  'backTab',
  'backspace',
  'clearLine',
  'redraw',
] as const;

const key: fc.Arbitrary<TopKey> = fc.oneof(
  fc.constantFrom(...NAMED).map((name) => ({ name })),
  fc.constantFrom(...'123/sScudryn?qjk0w日').map((text): TopKey => ({ name: 'text', text })),
);

const data: fc.Arbitrary<TopData> = fc
  .uniqueArray(fc.integer({ min: 0, max: 40 }), { maxLength: 30 })
  .chain((ids) => fc.tuple(fc.constant(ids), fc.array(fc.nat(3), { minLength: ids.length, maxLength: ids.length })))
  .map(([ids, kinds]) => {
    const workers = ids.map((id, index) =>
      kinds[index] === 0
        ? heldBack(`worker-${id}`, 'draining', { who: 'bob@there', why: 'a reason with many words', revision: id })
        : workerRecord(`worker-${id}`, { sessions: kinds[index]!, state: kinds[index] === 3 ? 'lost' : 'ready' }),
    );
    const sessions = workers.flatMap(({ name }, index) =>
      Array.from({ length: kinds[index]! }, (_, each) => sessionRecord(`s${each}`, name, { step: null })),
    );
    return { workers, sessions, pools: [poolRecord('any')] };
  });

const event: fc.Arbitrary<TopEvent> = fc.oneof(
  { weight: 12, arbitrary: key.map((pressed): TopEvent => ({ kind: 'key', key: pressed })) },
  { weight: 3, arbitrary: data.map((read): TopEvent => ({ kind: 'read', data: read, atMs: 1_000 })) },
  { weight: 1, arbitrary: fc.constant<TopEvent>({ kind: 'reading', atMs: 500 }) },
  { weight: 1, arbitrary: fc.constant<TopEvent>({ kind: 'unread', failure: 'the server is away' }) },
  {
    weight: 2,
    arbitrary: fc
      .record({ columns: fc.integer({ min: 1, max: 220 }), rows: fc.integer({ min: 1, max: 60 }) })
      .map((size): TopEvent => ({ kind: 'resize', ...size })),
  },
  {
    weight: 1,
    arbitrary: fc.nat(3).map((id): TopEvent => ({ kind: 'answered', id, outcome: { kind: 'done', text: 'Applied' } })),
  },
);

const first = startOfTop({ fleet: 'atlas', address: '127.0.0.1:7233', operator: 'me@here', columns: 80, rows: 24 });

function expectSound(state: TopState): void {
  const { body } = layoutOf(state);
  for (const tab of TABS) {
    const { rows, all, index, top } = state.lists[tab];
    expect(index).toBeGreaterThanOrEqual(0);
    expect(index).toBeLessThan(Math.max(1, rows.length));
    // The selection is on the screen, and the screen is full while there are rows to fill it.
    expect(top).toBeGreaterThanOrEqual(0);
    expect(index - top).toBeGreaterThanOrEqual(0);
    expect(index - top).toBeLessThan(body);
    expect(top).toBeLessThanOrEqual(Math.max(0, rows.length - body));
    const known = new Set<unknown>(all);
    for (const row of rows) expect(known.has(row)).toBe(true);
    expect(new Set(rows.map((row) => row.key)).size).toBe(rows.length);
  }
  const frame = frameOf(state, 60_000);
  expect(frame).toHaveLength(state.rows);
  for (const line of frame) {
    const text = line.map((segment) => segment.text).join('');
    expect(displayWidth(text)).toBeLessThanOrEqual(Math.max(1, state.columns - 1));
  }
}

describe('atlas top', () => {
  it('keeps its selection on a screen of the right size', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), (events) => {
        let state = first;
        for (const each of events) {
          state = step(state, each).state;
          expectSound(state);
        }
      }),
      { numRuns: 150 },
    );
  });

  it('keeps the selected record selected over a look that still has it, in any order and under any filter', () => {
    fc.assert(
      fc.property(data, data, fc.array(key, { maxLength: 20 }), (before, later, pressed) => {
        let state = step(first, { kind: 'read', data: before, atMs: 1 }).state;
        for (const each of pressed) state = step(state, { kind: 'key', key: each }).state;
        const { tab } = state;
        const { rows, index } = state.lists[tab];
        const selected = rows[index]?.key;
        const next = step(state, { kind: 'read', data: later, atMs: 2 }).state.lists[tab];
        const isThere = next.rows.some((row) => row.key === selected);
        if (isThere) expect(next.rows[next.index]?.key).toBe(selected);
      }),
    );
  });

  it('gives no order without a y that was typed at its question', () => {
    // The whole way to an order comes up by itself now and then only.
    const typed = (text: string): TopKey[] => [...text].map((character) => ({ name: 'text', text: character }));
    const way = fc
      .tuple(fc.constantFrom('1c', '1u', '1d', '2r'), fc.constantFrom('y', 'n', 'yy'))
      .map(([ask, answer]): TopKey[] => [...typed(ask), { name: 'enter' }, ...typed(answer), { name: 'enter' }]);
    const presses = fc.array(
      fc.oneof({ weight: 4, arbitrary: key.map((one) => [one]) }, { weight: 1, arbitrary: way }),
      {
        maxLength: 40,
      },
    );
    const given = new Set<string>();
    fc.assert(
      fc.property(data, presses, (fleet, pressed) => {
        let state = step(first, { kind: 'read', data: fleet, atMs: 1 }).state;
        for (const each of pressed.flat()) {
          const before = state.overlay;
          const next = step(state, { kind: 'key', key: each });
          for (const effect of next.effects) {
            if (effect.kind !== 'order') continue;
            expect(before?.kind).toBe('confirm');
            const { action } = effect.order;
            given.add(action.kind);
            if (action.kind === 'release') {
              expect(before).toMatchObject({ typed: true });
              expect(each.name).toBe('enter');
            } else expect(each).toEqual({ name: 'text', text: 'y' });
            expect(before).toMatchObject({ action });
          }
          state = next.state;
        }
      }),
      { numRuns: 300 },
    );
    expect([...given].sort()).toEqual(['cordon', 'drain', 'release', 'uncordon']);
  });

  it('sorts by every column without losing a row', () => {
    fc.assert(
      fc.property(data, fc.nat(30), fc.boolean(), (fleet, presses, reversed) => {
        let state = step(first, { kind: 'read', data: fleet, atMs: 1 }).state;
        for (let press = 0; press < presses; press += 1)
          state = step(state, { kind: 'key', key: { name: 'text', text: 's' } }).state;
        if (reversed) state = step(state, { kind: 'key', key: { name: 'text', text: 'S' } }).state;
        const { rows, sort } = state.lists.workers;
        expect(sort).toBe(presses % PANELS.workers.columns.length);
        expect(rows.map((row) => row.key).sort()).toEqual(fleet.workers.map(({ name }) => name).sort());
      }),
    );
  });
});
