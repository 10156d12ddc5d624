/** What a daemon finds in its ledger at the start, on the real disk: its own sessions and nobody else's. */
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openSessionLedger } from '../../../src/daemon/session-ledger.js';
import type { SessionTable } from '../../../src/daemon/session-table.js';
import { type LedgerRecord } from '../../../src/daemon/session-table.js';
import { openStateDirectory, type StateDirectory } from '../../../src/daemon/state-directory.js';
import { FakeWorker, fakeLog, leaseTask, pinnedAttempt, type LogLine } from '../../support/fake-ports.js';

const EXECUTOR = { pid: 12_345, startedAt: 'then' };

let root: string;
let path: string;
let log: LogLine[];

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atlas-session-ledger-'));
  path = join(root, 'state');
  log = [];
});

afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

async function withDirectory<T>(name: string, use: (directory: StateDirectory) => Promise<T>, at = path): Promise<T> {
  const directory = await openStateDirectory(at, { fleet: 'atlas', name });
  try {
    return await use(directory);
  } finally {
    await directory.release();
  }
}

async function start(name = 'a', at = path): Promise<SessionTable> {
  return await withDirectory(
    name,
    async (directory) => {
      const { ledger, table } = await openSessionLedger(directory, fakeLog(log));
      await ledger.close();
      return table;
    },
    at,
  );
}

/** A first life of worker `a`, which holds a session with an attempt when it is killed. */
async function firstLife(): Promise<SessionTable> {
  const worker = new FakeWorker();
  await worker.keeper.acquire(leaseTask('s'));
  await worker.keeper.beginAttempt(pinnedAttempt('s'));
  return await withDirectory('a', async (directory) => {
    const { ledger, table } = await openSessionLedger(directory, fakeLog(log));
    const records: LedgerRecord[] = [{ type: 'executor', process: EXECUTOR }, ...worker.ledger.records];
    for (const record of records) {
      table.apply(record);
      await ledger.append(record, { durable: true });
    }
    await ledger.close();
    return table;
  });
}

describe('the ledger at a start', () => {
  it('is empty in a new directory, and nothing is said about it', async () => {
    const table = await start();
    expect([table.sessionCount, table.executors(), log]).toEqual([0, [], []]);
  });

  it('has what the life before held', async () => {
    const before = await firstLife();
    for (const start_ of [start, start]) {
      const table = await start_();
      expect(table.records()).toEqual(before.records());
      expect(table.sessionCount).toBe(1);
    }
    expect(log).toEqual([]);
  });

  it('drops the sessions of a worker that had another name, and still knows its executor', async () => {
    await firstLife();
    const table = await start('b');
    expect([table.sessionCount, table.attempts(), table.executors()]).toEqual([0, [], [EXECUTOR]]);
    expect(log).toMatchObject([{ level: 'warn', fields: { event: 'sessions-dropped', count: 1 } }]);
    expect((await start('b')).sessionCount).toBe(0);
  });

  it('drops them too when a crash came between the new queue file and the ledger', async () => {
    await firstLife();
    // The queue file is settled, and then the process dies.
    await withDirectory('b', (directory) => {
      expect(directory.renamed).toBe(true);
      return Promise.resolve();
    });
    const table = await withDirectory('b', async (directory) => {
      expect(directory.renamed).toBe(false);
      const opened = await openSessionLedger(directory, fakeLog(log));
      await opened.ledger.close();
      return opened.table;
    });
    expect([table.sessionCount, table.attempts()]).toEqual([0, []]);
    expect(log).toMatchObject([{ fields: { event: 'sessions-dropped', count: 1 } }]);
  });

  it('drops them when the queue file was unreadable: the queue is another one', async () => {
    await firstLife();
    await writeFile(join(path, 'queue'), 'not json');
    const table = await start();
    expect(table.sessionCount).toBe(0);
    expect(log.map(({ fields }) => fields.event)).toEqual(['queue-file-damaged', 'sessions-dropped']);
  });

  it.each([false, true])(
    'leaves sessions and executor of a copied directory to the original (after a crash: %s)',
    async (crash) => {
      await firstLife();
      const copy = join(root, 'copy');
      await cp(path, copy, { recursive: true });
      if (crash) await withDirectory('a', () => Promise.resolve(), copy);
      const table = await start('a', copy);
      expect([table.sessionCount, table.attempts(), table.executors()]).toEqual([0, [], []]);
      const original = await start();
      expect([original.sessionCount, original.executors()]).toEqual([1, [EXECUTOR]]);
    },
  );

  it('uses what is readable of a damaged ledger', async () => {
    await firstLife();
    await writeFile(join(path, 'ledger'), 'damaged\n', { flag: 'a' });
    expect((await start()).sessionCount).toBe(1);
    expect(log).toMatchObject([{ level: 'error', fields: { event: 'ledger-damaged' } }]);
  });
});
