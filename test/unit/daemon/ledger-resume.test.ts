/** A daemon that starts with a ledger that was cut: at any byte it goes on with what it can, and leaks nothing. */
import { describe, expect, it } from 'vitest';
import { LedgerFile, type LedgerHandle, type LedgerIo } from '../../../src/daemon/ledger-file.js';
import type { LedgerRecord } from '../../../src/daemon/session-table.js';
import { adoptTask, FakeWorker, leaseTask, pinnedAttempt, releaseOf } from '../../support/fake-ports.js';

const PATH = '/state/ledger';

/** One file in memory: thousands of starts would else wait for the disk. */
class MemoryIo implements LedgerIo {
  constructor(readonly files = new Map<string, Buffer>()) {}

  readFile = async (path: string): Promise<Buffer | undefined> => this.files.get(path);
  link = async (from: string, to: string): Promise<void> => {
    this.files.set(to, this.files.get(from)!);
  };
  rename = async (from: string, to: string): Promise<void> => {
    this.files.set(to, this.files.get(from)!);
    this.files.delete(from);
  };
  remove = async (path: string): Promise<void> => {
    this.files.delete(path);
  };
  syncDirectory = async (): Promise<void> => undefined;

  async open(path: string, { truncate }: { readonly truncate: boolean }): Promise<LedgerHandle> {
    let content = truncate ? Buffer.alloc(0) : (this.files.get(path) ?? Buffer.alloc(0));
    // A handle stays with its file when that is renamed.
    const write = (next: Buffer): void => {
      const name = [...this.files].find(([, buffer]) => buffer === content)?.[0] ?? path;
      content = next;
      this.files.set(name, next);
    };
    this.files.set(path, content);
    return {
      write: async (data, position) => {
        write(Buffer.concat([content.subarray(0, position), data]));
      },
      read: async (lengthBytes) => content.subarray(0, lengthBytes),
      truncate: async (lengthBytes) => {
        write(Buffer.from(content.subarray(0, lengthBytes)));
      },
      sync: async () => undefined,
      close: async () => undefined,
    };
  }
}

/** A life in which every kind of record is written, until it is cut off: sessions `t` and `u` are held, `s` is gone. */
async function firstLife(): Promise<{ readonly worker: FakeWorker; readonly ledger: Buffer }> {
  const worker = new FakeWorker();
  const { keeper } = worker;
  await keeper.acquire(leaseTask('s'));
  await keeper.beginAttempt(pinnedAttempt('s'));
  await keeper.endAttempt(pinnedAttempt('s').id, { json: '{"pages":5}' });
  await keeper.acquire(leaseTask('t'));
  await keeper.beginAttempt(pinnedAttempt('t'));
  await keeper.adopt(adoptTask('t', { grantId: 'grant-2' }));
  await keeper.release(releaseOf('s'));
  await keeper.acquire(leaseTask('u'));
  await keeper.beginAttempt(pinnedAttempt('u'));
  const io = new MemoryIo();
  const { ledger } = await LedgerFile.open<LedgerRecord>(PATH, { io });
  for (const record of worker.ledger.records) await ledger.append(record, { durable: true });
  return { worker, ledger: io.files.get(PATH)! };
}

describe('a start with a ledger that was cut', () => {
  it('at any byte goes on with the sessions that have their files, and frees all slots and files', async () => {
    const { worker: before, ledger: whole } = await firstLife();
    const resumed = new Set<string>();
    for (let length = 0; length <= whole.length; length += 1) {
      const io = new MemoryIo(new Map([[PATH, Buffer.from(whole.subarray(0, length))]]));
      const { records, damage } = await LedgerFile.open<LedgerRecord>(PATH, { io });
      const worker = new FakeWorker({ records, directories: before.scratch.directories, firstLife: 2 });
      const { keeper, table, scratch, temporal } = worker;
      const heldBefore = table.sessions();
      const orphans = [...scratch.directories.keys()].filter((key) => table.session(key) === undefined);

      await keeper.failAttempts();
      await keeper.resume();
      const held = table.sessions();
      resumed.add(held.map(({ session }) => session).join(','));
      const lost = heldBefore.filter(({ key }) => table.session(key) === undefined);
      const state = {
        length,
        damage,
        overCap: heldBefore.length > 2,
        withoutFiles: held.filter(({ key }) => !scratch.directories.has(key)).length,
        attempts: table.attempts().length,
        untold: lost.filter(({ leaseToken, state: was }) => {
          const told = was === 'releasing' ? temporal.callsOf('completeLease') : temporal.callsOf('failLease');
          return !told.some(([token]) => token === leaseToken);
        }).length,
      };
      expect(state).toEqual({ length, damage: null, overCap: false, withoutFiles: 0, attempts: 0, untold: 0 });

      temporal.answer('describeOwner', ...held.map(() => 'closed' as const));
      await keeper.ownersClosed(held.map(({ runId }) => runId));
      // What no session claims is the sweep's.
      const left = { length, sessions: table.sessionCount, files: [...scratch.directories.keys()] };
      expect(left).toEqual({ length, sessions: 0, files: orphans });
    }
    // `s` only while nothing but its grant was begun: its directory is made again. Later its files are missed.
    expect([...resumed].sort()).toEqual(['', 's', 't', 't,u']);
  });
});
