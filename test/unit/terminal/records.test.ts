import { describe, expect, it } from 'vitest';
import { sessionsView } from '../../../src/commands/sessions-ls.js';
import { workersView } from '../../../src/commands/workers-ls.js';
import type { SessionRecord, WorkerRecord } from '../../../src/fleet/client.js';
import { printRecords, type RecordFormat, type RecordView } from '../../../src/terminal/records.js';
import { displayWidth } from '../../../src/terminal/format.js';
import { fakeContext, type FakeTerminal } from '../../support/fake-context.js';

function worker(name: string, over: Partial<WorkerRecord> = {}): WorkerRecord {
  return {
    name,
    state: 'ready',
    fleet: 'atlas',
    instance: 'k3f9',
    queue: `atlas-${name}.k3f9`,
    capabilities: ['gpu', 'ocr'],
    sessions: 1,
    cap: 4,
    reserve: null,
    version: '0.1.0',
    host: 'host-with-a-rather-long-name',
    pid: 4242,
    startedAt: new Date(Date.now() - 3_600_000).toISOString(),
    heartbeatAgeMs: 1_200,
    executor: { state: 'ready', restarts: 0 },
    disk: { freeBytes: 2e11, totalBytes: 5e11 },
    load1: 0.5,
    presenceTtlMs: 6_000,
    clockSkewMs: 0,
    scheduling: {
      scheduling: 'open',
      revision: 0,
      applied: true,
      who: null,
      why: null,
      since: null,
      drain: null,
      notes: [],
    },
    reason: null,
    ...over,
  };
}

const SESSION: SessionRecord = {
  session: 'a1b2c3d4e5f6',
  key: 'a1b2c3d4e5f6.run-1',
  worker: 'worker-7',
  workerState: 'ready',
  workerHeartbeatAgeMs: 1_200,
  workerPresenceTtlMs: 6_000,
  state: 'held',
  workflowId: 'document-quarterly-report-of-the-whole-company-3f9k2a',
  runId: 'run-1',
  workflowType: 'processDocument',
  capabilities: [],
  epoch: 1,
  step: { activity: 'extractPages', attempt: 2, startedAt: new Date(Date.now() - 65_000).toISOString() },
  heldForMs: 90_000,
  expiresInMs: 14_000_000,
  idleForMs: null,
  scratchBytes: 2e8,
  lastStep: null,
  ownerStatus: null,
  leaked: null,
  leaseTtlMs: 60_000,
  recoveryWindowMs: 5_000,
};

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
  worker('a-worker-with-a-very-long-name-indeed', {
    state: 'lost',
    reason: 'No presence for 12 s; the sessions it held are adopted or redone by their owners.',
    capabilities: [],
    heartbeatAgeMs: null,
  }),
];

describe('tables', () => {
  it('fit 80 columns, with the state in words', async () => {
    const text = print(WORKERS, await workersView(), 'table', { isTTY: true, columns: 80, env: { NO_COLOR: '1' } });
    for (const line of text.trimEnd().split('\n')) expect(displayWidth(line), line).toBeLessThanOrEqual(80);
    expect(text).toMatch(/^NAME +STATE +SESSIONS +CAPABILITIES +HEARTBEAT +AGE +REASON\n/);
    expect(text).toContain('worker-7');
    expect(text).toContain('lost');
    expect(text).toContain('…');
  });

  it('cut nothing at 200 columns or without a terminal', async () => {
    const view = await workersView();
    for (const terminal of [{ isTTY: true, columns: 200, env: { NO_COLOR: '1' } }, {}]) {
      const text = print(WORKERS, view, 'table', terminal);
      expect(text).not.toContain('…');
      expect(text).toContain('adopted or redone by their owners.');
    }
  });

  it('colour the state on a terminal only, and without changing the text', async () => {
    const view = await workersView();
    const coloured = print(WORKERS, view, 'table', { isTTY: true, columns: 200 });
    const plain = print(WORKERS, view, 'table', { isTTY: true, columns: 200, env: { NO_COLOR: '1' } });
    expect(coloured).toContain('\u001b[32mready\u001b[39m');

    expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(plain);
    expect(print(WORKERS, view, 'table', { isTTY: true, columns: 200, env: { TERM: 'dumb' } })).toBe(plain);
  });

  it('show what a session does', async () => {
    const text = print([SESSION], await sessionsView(), 'table');
    expect(text).toMatch(
      /a1b2c3d4e5f6 +worker-7 +held +extractPages 1m05s, attempt 2 +90s +in 3h53m +document-quarterly/,
    );
    const lost = print([{ ...SESSION, workerState: 'lost' as const, step: null }], await sessionsView(), 'table');
    expect(lost).toContain('held, worker lost');
  });

  it('have more columns when wide', async () => {
    const text = print(WORKERS, await workersView(), 'wide', { isTTY: true, columns: 80 });
    expect(text).toContain('host-with-a-rather-long-name');
    expect(text).toContain('200.0 GB of 500.0 GB');
  });

  it('let no escape sequence of a record through', async () => {
    const text = print([{ ...SESSION, workflowId: '\u001b[2Jgone' }], await sessionsView(), 'table');
    expect(text).not.toContain('\u001b');
  });
});

describe('machine formats', () => {
  it('print the very records, with a version', async () => {
    const view = await workersView();
    expect(JSON.parse(print(WORKERS, view, 'json'))).toEqual({ version: 1, workers: WORKERS });
    const lines = print(WORKERS, view, 'jsonl').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(
      WORKERS.map((row) => ({ version: 1, worker: row })),
    );
    expect(print(WORKERS, view, 'name')).toBe('worker-7\na-worker-with-a-very-long-name-indeed\n');
    expect(print([SESSION], await sessionsView(), 'name')).toBe('a1b2c3d4e5f6.run-1\n');
  });

  it('print an empty list as such', async () => {
    const view = await workersView();
    expect(JSON.parse(print([], view, 'json'))).toEqual({ version: 1, workers: [] });
    for (const format of ['table', 'wide', 'jsonl', 'name'] as const) expect(print([], view, format)).toBe('');
  });
});
