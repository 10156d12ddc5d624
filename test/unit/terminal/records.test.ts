import { describe, expect, it } from 'vitest';
import { POOL_VIEW } from '../../../src/commands/support/pool-view.js';
import { SESSION_VIEW } from '../../../src/commands/support/session-view.js';
import { WORKER_VIEW } from '../../../src/commands/support/worker-view.js';
import type { PoolRecord } from '../../../src/fleet/client.js';
import { printRecords, type RecordFormat, type RecordView } from '../../../src/terminal/records.js';
import { displayWidth } from '../../../src/terminal/format.js';
import { fakeContext, type FakeTerminal } from '../../support/fake-context.js';
import { sessionRecord, workerRecord } from '../../support/records.js';

const worker = workerRecord;
const SESSION = sessionRecord('a1b2c3d4e5f6');

function print<Row extends object>(
  rows: readonly Row[],
  view: RecordView<Row>,
  format: RecordFormat,
  terminal: FakeTerminal = {},
): string {
  const context = fakeContext(terminal);
  printRecords(rows, view, { format, stdout: context.stdout, env: context.env });
  return context.out();
}

const WORKERS = [
  worker('worker-7'),
  worker('a-worker-with-a-long-name-indeed', {
    state: 'lost',
    reason: 'No presence for 12 s; the sessions it held are adopted or redone by their owners.',
    capabilities: [],
    heartbeatAgeMs: null,
  }),
];

describe('tables', () => {
  const POOLS: PoolRecord[] = [
    {
      pool: 'gpu+ocr',
      capabilities: ['gpu', 'ocr'],
      queue: 'atlas-gpu+ocr:acquire',
      backlog: 3,
      oldestWaitMs: 95_000,
      freeSlots: 0,
      liveWorkers: 0,
      workers: WORKERS.map(({ name }) => name),
      reason: 'no live worker serves it',
    },
  ];
  const TROUBLED = sessionRecord('b1b2c3d4e5f6', { workerState: 'lost', leaked: true, ownerStatus: 'TERMINATED' });
  const NARROW = { isTTY: true, columns: 80, env: { NO_COLOR: '1' } };
  const WIDE = { ...NARROW, columns: 200 };
  const header = (text: string): string[] => text.split('\n')[0]!.split(/ {2,}/);

  it('fit 80 columns, with what is wrong in words', () => {
    const texts = [
      print(WORKERS, WORKER_VIEW, 'table', NARROW),
      print([SESSION, TROUBLED], SESSION_VIEW, 'table', NARROW),
      print(POOLS, POOL_VIEW, 'table', NARROW),
    ];
    for (const text of texts) {
      for (const line of text.trimEnd().split('\n')) expect(displayWidth(line), line).toBeLessThanOrEqual(80);
      expect(text).toContain('…');
    }
    expect(header(texts[0]!)).toEqual(['NAME', 'STATE', 'SESSIONS', 'CAPABILITIES', 'SEEN', 'AGE', 'REASON']);
    expect(texts[0]).toMatch(/worker-7 +ready/);
    // What is wrong takes room from what is merely good to know.
    expect(header(texts[1]!)).toEqual(['SESSION', 'WORKER', 'STATE', 'STEP', 'HELD', 'WORKFLOW']);
    const well = print([SESSION], SESSION_VIEW, 'table', NARROW);
    expect(header(well)).toEqual(['SESSION', 'WORKER', 'STATE', 'STEP', 'HELD', 'IDLE', 'EXPIRES', 'WORKFLOW']);
    expect(texts[1]).toContain('leaked, worker lost');
    expect(texts[2]).toMatch(/no live worker/);
  });

  it('have all columns at 200', () => {
    const texts = [
      print(WORKERS.slice(0, 1), WORKER_VIEW, 'table', WIDE),
      print([SESSION, TROUBLED], SESSION_VIEW, 'table', WIDE),
      print(POOLS, POOL_VIEW, 'table', WIDE),
    ];
    expect(header(texts[0]!)).toEqual(
      WORKER_VIEW.columns.filter(({ wide }) => wide !== true).map((column) => column.header),
    );
    expect(header(texts[1]!)).toEqual(
      SESSION_VIEW.columns.filter(({ wide }) => wide !== true).map((column) => column.header),
    );
    expect(header(texts[2]!)).toContain('OLDEST WAIT');
    for (const text of texts) expect(text).not.toContain('…');
  });

  it('have no headers where these are not wanted', () => {
    const context = fakeContext();
    printRecords(WORKERS, WORKER_VIEW, { format: 'table', stdout: context.stdout, env: {}, headers: false });
    expect(context.out().split('\n')[0]).toMatch(/^worker-7 /);
  });

  it('cut nothing at 200 columns or without a terminal', () => {
    const view = WORKER_VIEW;
    for (const terminal of [{ isTTY: true, columns: 200, env: { NO_COLOR: '1' } }, {}]) {
      const text = print(WORKERS, view, 'table', terminal);
      expect(text).not.toContain('…');
      expect(text).toContain('adopted or redone by their owners.');
    }
  });

  it('colour the state on a terminal only, and without changing the text', () => {
    const view = WORKER_VIEW;
    const coloured = print(WORKERS, view, 'table', { isTTY: true, columns: 200 });
    const plain = print(WORKERS, view, 'table', { isTTY: true, columns: 200, env: { NO_COLOR: '1' } });
    expect(coloured).toContain('\u001b[32mready\u001b[39m');

    expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(plain);
    expect(print(WORKERS, view, 'table', { isTTY: true, columns: 200, env: { TERM: 'dumb' } })).toBe(plain);
  });

  it('show what a session does', () => {
    const text = print([SESSION], SESSION_VIEW, 'table');
    expect(text).toMatch(
      /a1b2c3d4e5f6 +worker-7 +held +extractPages 1m05s, attempt 2 +90s +- +3h53m +12\.3 MB +running +document-quarterly/,
    );
    const lost = print([{ ...SESSION, workerState: 'lost' as const, step: null }], SESSION_VIEW, 'table');
    expect(lost).toContain('held, worker lost');
  });

  it('have more columns when wide', () => {
    const text = print(WORKERS, WORKER_VIEW, 'wide', { isTTY: true, columns: 80 });
    expect(text).toContain('host-with-a-rather-long-name');
    expect(text).toContain('200.0 GB of 500.0 GB');
  });

  it('let no escape sequence of a record through', () => {
    const text = print([{ ...SESSION, workflowId: '\u001b[2Jgone' }], SESSION_VIEW, 'table');
    expect(text).not.toContain('\u001b');
  });
});

describe('machine formats', () => {
  it('print the very records, with a version', () => {
    const view = WORKER_VIEW;
    expect(JSON.parse(print(WORKERS, view, 'json'))).toEqual({ version: 1, workers: WORKERS });
    const lines = print(WORKERS, view, 'jsonl').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(
      WORKERS.map((row) => ({ version: 1, worker: row })),
    );
    expect(print(WORKERS, view, 'name')).toBe('worker-7\na-worker-with-a-long-name-indeed\n');
    expect(print([SESSION], SESSION_VIEW, 'name')).toBe('a1b2c3d4e5f6.run-1\n');
  });

  it('print an empty list as such', () => {
    const view = WORKER_VIEW;
    expect(JSON.parse(print([], view, 'json'))).toEqual({ version: 1, workers: [] });
    for (const format of ['table', 'wide', 'jsonl', 'name'] as const) expect(print([], view, format)).toBe('');
  });
});
