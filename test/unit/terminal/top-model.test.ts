import { describe, expect, it } from 'vitest';
import { frameOf } from '../../../src/terminal/top-frame.js';
import {
  consequences,
  layoutOf,
  selectedOf,
  silentSinceMs,
  startOfTop,
  step,
  type TopEffect,
  type TopEvent,
  type TopKey,
  type TopState,
} from '../../../src/terminal/top-model.js';
import { filterRows, PANELS, rowsOf, sortRows, type TopData } from '../../../src/terminal/top-panels.js';
import { heldBack, sessionRecord, smallFleet, workerRecord } from '../../support/fleet-records.js';

const NOW_MS = Date.parse('2026-03-01T10:00:00.000Z');

function started(data: TopData = smallFleet(), rows = 24): TopState {
  const first = startOfTop({ fleet: 'atlas', address: '127.0.0.1:7233', operator: 'me@here', columns: 80, rows });
  return after(first, { kind: 'reading', atMs: NOW_MS - 100 }, { kind: 'read', data, atMs: NOW_MS });
}

function after(state: TopState, ...events: readonly TopEvent[]): TopState {
  return events.reduce((now, event) => step(now, event).state, state);
}

/** Named keys in angle brackets, everything else as it is typed. */
function keys(text: string): TopEvent[] {
  return [...text.matchAll(/<(\w+)>|([^<])/g)].map(([, name, character]) => ({
    kind: 'key',
    key: (name === undefined ? { name: 'text', text: character! } : { name }) as TopKey,
  }));
}

function pressed(state: TopState, text: string): { state: TopState; effects: TopEffect[] } {
  const effects: TopEffect[] = [];
  let now = state;
  for (const event of keys(text)) {
    const next = step(now, event);
    now = next.state;
    effects.push(...next.effects);
  }
  return { state: now, effects };
}

const nameOf = (state: TopState): string | undefined => selectedOf(state, 'workers')?.name;
const shownText = (state: TopState, nowMs = NOW_MS): string[] =>
  frameOf(state, nowMs).map((line) => line.map(({ text }) => text).join(''));

describe('the selection', () => {
  it('follows its record when the order changes', () => {
    const { state } = pressed(started(), '<down><down>');
    expect(nameOf(state)).toBe('worker-1');
    const data = smallFleet();
    const more = { ...data, workers: [workerRecord('a-0'), workerRecord('b-0'), ...data.workers] };
    expect(nameOf(after(state, { kind: 'read', data: more, atMs: NOW_MS }))).toBe('worker-1');
    expect(nameOf(pressed(state, 's').state)).toBe('worker-1');
  });

  it('stays where it is when its record is gone, and never leaves the list', () => {
    const { state } = pressed(started(), '<end>');
    expect(nameOf(state)).toBe('worker-10');
    const data = smallFleet();
    const fewer = { ...data, workers: data.workers.slice(0, 3) };
    expect(nameOf(after(state, { kind: 'read', data: fewer, atMs: NOW_MS }))).toBe('worker-3');
    const none = after(state, { kind: 'read', data: { workers: [], sessions: [], pools: [] }, atMs: NOW_MS });
    expect(nameOf(none)).toBeUndefined();
    expect(pressed(none, '<enter>jk<pageDown>c').state.overlay).toBeNull();
  });

  it('goes by pages and to both ends', () => {
    const many = {
      workers: Array.from({ length: 100 }, (_, index) => workerRecord(`w${index}`)),
      sessions: [],
      pools: [],
    };
    const state = started(many);
    const { body } = layoutOf(state);
    expect(pressed(state, '<pageDown>').state.lists.workers.index).toBe(body);
    expect(pressed(state, '<end>').state.lists.workers).toMatchObject({ index: 99, top: 100 - body });
    expect(pressed(state, '<end><home>').state.lists.workers).toMatchObject({ index: 0, top: 0 });
  });
});

describe('sorting', () => {
  const names = (column: string, reversed = false): string[] => {
    const { columns } = PANELS.workers;
    const found = columns.find(({ header }) => header === column)!;
    return sortRows(rowsOf('workers', smallFleet().workers), found, reversed).map(({ key }) => key);
  };

  it('orders names by their numbers, and states by what wants attention', () => {
    expect(names('NAME').slice(-3)).toEqual(['worker-8', 'worker-9', 'worker-10']);
    expect(names('STATE').slice(0, 3)).toEqual(['gpu-2', 'worker-10', 'worker-8']);
  });

  it('puts what is not known last in both directions', () => {
    expect(names('BEAT').at(-1)).toBe('worker-10');
    expect(names('BEAT', true).at(-1)).toBe('worker-10');
    expect(names('BEAT', true)[0]).toBe('gpu-2');
  });

  it('comes back to the first column', () => {
    const { state } = pressed(started(), 's'.repeat(PANELS.workers.columns.length));
    expect(state.lists.workers.sort).toBe(0);
  });
});

describe('the filter', () => {
  it.each([
    ['rack-9', 2],
    ['RACK lost', 1],
    ['bob@there', 1],
    ['gpu', 2],
    ['   ', 12],
    ['rack-9 cordoned', 0],
  ])('%s finds %i workers', (filter, amount) => {
    expect(filterRows(rowsOf('workers', smallFleet().workers), filter)).toHaveLength(amount);
  });

  it('finds a session by its owner, its worker and what has become of it', () => {
    const rows = rowsOf('sessions', smallFleet().sessions);
    for (const filter of ['document-bb22', 'gpu-1 leaked', 'terminated'])
      expect(filterRows(rows, filter).map(({ item }) => item.session)).toEqual(['bb22']);
  });

  it('goes with Esc, and first the innermost thing does', () => {
    const { state } = pressed(started(), '/worker-8<enter><enter>');
    expect(state.drill).not.toBeNull();
    const back = pressed(state, '<escape>').state;
    expect([back.drill, back.lists.workers.filter]).toEqual([null, 'worker-8']);
    expect(pressed(back, '<escape>').state.lists.workers.filter).toBe('');
  });

  it('takes letters that are keys elsewhere', () => {
    const { state, effects } = pressed(started(), '/qsdS?<backspace><clearLine>jk');
    expect([state.lists.workers.filter, effects]).toEqual(['jk', []]);
  });
});

describe('an order', () => {
  it('is given on the revision that was seen when it was chosen', () => {
    const data: TopData = {
      workers: [heldBack('w', 'cordoned', { who: 'bob@there', why: null, revision: 7 })],
      sessions: [],
      pools: [],
    };
    const asked = pressed(started(data), 'u').state;
    const changed = { ...data, workers: [heldBack('w', 'draining', { who: 'eve@there', why: null, revision: 8 })] };
    const { effects } = pressed(after(asked, { kind: 'read', data: changed, atMs: NOW_MS }), 'ok<enter>y');
    expect(effects).toEqual([
      {
        kind: 'order',
        id: 1,
        order: expect.objectContaining({ ifRevision: 7, ofOthers: true, who: 'me@here', why: 'ok' }),
      },
    ]);
  });

  it('overrides nobody where the operator took the worker out of service', () => {
    const data: TopData = {
      workers: [heldBack('w', 'cordoned', { who: 'me@here', why: null })],
      sessions: [],
      pools: [],
    };
    const { effects } = pressed(started(data), 'u<enter>y');
    expect(effects).toMatchObject([{ order: { ofOthers: false, why: null } }]);
  });

  it('is not asked for where there is nothing to do', () => {
    for (const [filter, key, status] of [
      ['worker-1', 'u', 'worker-1 is neither cordoned nor drained; there is nothing to undo.'],
      ['worker-8', 'd', 'worker-8 is draining already, by bob@there.'],
      ['worker-9', 'c', 'worker-9 is cordoned already, by me@here.'],
    ]) {
      const { state } = pressed(started(), `/${filter}<enter>${key}`);
      expect([state.overlay, state.status?.text]).toEqual([null, status]);
    }
    expect(pressed(started(), '2c').state.status?.text).toBe('Select a worker to cordon: they are on panel 1.');
    expect(pressed(started(), 'r').state.status?.text).toBe('Select a session to release: they are on panel 2.');
  });

  it('to release wants y and Enter', () => {
    const state = pressed(started(), '2r<enter>').state;
    expect(pressed(state, 'y').effects).toEqual([]);
    expect(pressed(state, '<enter>').state.overlay).toBeNull();
    expect(pressed(state, '<enter>').effects).toEqual([]);
    expect(pressed(state, 'y<backspace><enter>').effects).toEqual([]);
    expect(pressed(state, 'y<enter>').effects).toMatchObject([{ kind: 'order', order: { ifRevision: 0 } }]);
  });

  it('reads the fleet anew when it is answered', () => {
    const { state } = pressed(started(), 'c<enter>y');
    expect(state.pending).toHaveLength(1);
    const next = step(state, { kind: 'answered', id: 1, outcome: { kind: 'conflict', text: 'Conflict' } });
    expect(next.effects).toEqual([{ kind: 'read' }]);
    expect([next.state.pending, next.state.status]).toEqual([[], { text: 'Conflict', kind: 'bad' }]);
  });

  it('says what will happen as things are now', () => {
    const data = smallFleet();
    const action = { kind: 'drain', worker: data.workers[0]! } as const;
    const say = (workers: TopData['workers']): string =>
      consequences({ action, operator: 'me@here', data: { ...data, workers } }).join(' ');
    expect(say(data.workers)).toContain('it holds none, so it is drained at once');
    expect(say([workerRecord('worker-1', { sessions: 1 })])).toContain('once 1 session on it has ended');
    expect(say([workerRecord('worker-1', { state: 'lost' })])).toContain(
      'It is lost: the order is applied when it returns.',
    );
    expect(say([])).toContain('It is no longer listed.');
    const session = sessionRecord('s', 'w', { workerState: 'lost', step: null });
    expect(consequences({ action: { kind: 'release', session, revision: null }, operator: 'me', data }).join(' ')).toBe(
      'Release session s of w by force. Its owner document-s (processDocument, run run-s) loses it and follows its onLost. No step runs. The worker is lost: its owner is told once nothing can run there any more. It is no longer listed.',
    );
  });
});

describe('leaving', () => {
  it('is at once, except while an order is under way', () => {
    expect(pressed(started(), 'q').effects).toEqual([{ kind: 'leave', how: 'quit' }]);
    expect(pressed(started(), '/<interrupt>').effects).toEqual([{ kind: 'leave', how: 'interrupted' }]);
    const { state } = pressed(started(), 'c<enter>y');
    expect(pressed(state, 'q').effects).toEqual([]);
    expect(pressed(state, 'qsq').effects).toEqual([]);
    expect(pressed(state, 'qq').effects).toEqual([{ kind: 'leave', how: 'quit' }]);
  });
});

describe('a silent server', () => {
  it('is one that fails, or takes much longer than before', () => {
    const asked = after(started(), { kind: 'reading', atMs: NOW_MS + 2_000 });
    expect(silentSinceMs(asked, NOW_MS + 6_000)).toBeNull();
    expect(silentSinceMs(asked, NOW_MS + 8_000)).toBe(NOW_MS + 2_000);
    const failed = after(
      asked,
      { kind: 'unread', failure: 'x' },
      { kind: 'reading', atMs: NOW_MS + 9_000 },
      { kind: 'unread', failure: 'y' },
    );
    expect(silentSinceMs(failed, NOW_MS + 10_000)).toBe(NOW_MS + 2_000);
    expect(shownText(failed, NOW_MS + 12_000)[1]).toBe('! No answer for 10s; this is 12s old. Trying again. y');
    expect(silentSinceMs(after(failed, { kind: 'read', data: smallFleet(), atMs: NOW_MS }), NOW_MS)).toBeNull();
  });
});

describe('a frame', () => {
  it('has no character that moves the cursor, whatever a worker is called', () => {
    const state = started({ workers: [workerRecord('a\u001b[2J', { reason: 'b\nc' })], sessions: [], pools: [] });
    for (const view of [state, pressed(state, '<enter>').state, pressed(state, 'd').state])
      expect(shownText(view).join('')).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
  });

  it('says that the screen is too small for a question instead of hiding it, and keeps the prompt', () => {
    const small = after(pressed(started(), '2r<enter>').state, { kind: 'resize', columns: 40, rows: 5 });
    const text = shownText(small);
    expect(text[3]).toBe('… make the terminal larger to read all');
    expect(text[4]).toMatch(/^Type y and Enter/);
  });
});
