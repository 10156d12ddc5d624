import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LedgerFile, realIo, type LedgerHandle, type LedgerIo } from '../../../src/daemon/ledger-file.js';

interface Entry {
  readonly session: string;
  readonly n: number;
}

let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-ledger-'));
  path = join(directory, 'ledger');
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

function entry(n: number): Entry {
  return { session: `söss-${n}`, n };
}

async function reopen(): Promise<Entry[]> {
  const { ledger, records, damage } = await LedgerFile.open<Entry>(path);
  expect(damage).toBeNull();
  await ledger.close();
  return records;
}

async function writeLedger(count: number): Promise<Buffer> {
  const { ledger } = await LedgerFile.open<Entry>(path);
  for (let n = 0; n < count; n += 1) await ledger.append(entry(n), { durable: true });
  await ledger.close();
  return readFile(path);
}

/** The real file system, counting fsyncs, with a fault to switch on. */
function faultyIo(): LedgerIo & { syncs: number; fault: (operation: string, data?: Buffer) => Promise<void> } {
  const io = {
    ...realIo,
    syncs: 0,
    fault: async (_operation: string, _data?: Buffer): Promise<void> => undefined,
    async open(file: string, options: { readonly truncate: boolean }): Promise<LedgerHandle> {
      const handle = await realIo.open(file, options);
      return {
        ...handle,
        async write(data, position) {
          await io.fault('write', data).catch(async (error: unknown) => {
            await handle.write(data.subarray(0, data.length - 3), position); // What a full disk does.
            throw error;
          });
          await handle.write(data, position);
        },
        async sync() {
          io.syncs += 1;
          await io.fault('sync');
          await handle.sync();
        },
        async truncate(length) {
          await io.fault('truncate');
          await handle.truncate(length);
        },
      };
    },
    async rename(from: string, to: string) {
      await io.fault('rename');
      await realIo.rename(from, to);
    },
    async syncDirectory(of: string) {
      await io.fault('syncDirectory');
      await realIo.syncDirectory(of);
    },
  };
  return io;
}

function errno(code: string): Error {
  return Object.assign(new Error(`${code}: injected`), { code });
}

describe('LedgerFile', () => {
  it('gives back what was appended, durable or not, in order', async () => {
    const { ledger, records, damage } = await LedgerFile.open<Entry>(path);
    expect(records).toEqual([]);
    expect(damage).toBeNull();
    await Promise.all([0, 1, 2, 3].map((n) => ledger.append(entry(n), { durable: n % 2 === 0 })));
    expect(ledger.size).toBe((await stat(path)).size);
    await ledger.close();
    expect(await reopen()).toEqual([0, 1, 2, 3].map(entry));
  });

  it('can be read and written by its owner only', async () => {
    await writeFile(path, '', { mode: 0o644 });
    const { ledger } = await LedgerFile.open<Entry>(path);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    await ledger.compact([entry(1)]);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    await ledger.close();
  });

  it('loses at most the last record when it is cut at any byte, says nothing, and can be appended to', async () => {
    const whole = await writeLedger(3);
    const ends = [...whole.entries()].filter(([, byte]) => byte === 0x0a).map(([index]) => index + 1);
    for (let length = 0; length <= whole.length; length += 1) {
      await writeFile(path, whole.subarray(0, length));
      const { ledger, records, damage } = await LedgerFile.open<Entry>(path);
      const complete = ends.filter((end) => end <= length).length - 1;
      const expected = Array.from({ length: Math.max(complete, 0) }, (_, n) => entry(n));
      expect({ length, records, damage }).toEqual({ length, records: expected, damage: null });
      await ledger.append(entry(99), { durable: true });
      await ledger.close();
      expect(await reopen()).toEqual([...expected, entry(99)]);
    }
    expect(await readdir(directory)).toEqual(['ledger']);
  });

  it('never takes a changed byte for a record', async () => {
    const whole = await writeLedger(3);
    for (let index = 0; index < whole.length; index += 1) {
      const changed = Buffer.from(whole);
      changed[index]! ^= 0x01;
      await writeFile(path, changed);
      const { ledger, records } = await LedgerFile.open<Entry>(path);
      await ledger.close();
      expect(records).toEqual([0, 1, 2].map(entry).slice(0, records.length));
      expect(records.length).toBeLessThan(3);
      expect(await reopen()).toEqual(records);
    }
  });

  it('keeps a damaged file beside the ledger and goes on with the records before the damage', async () => {
    const whole = await writeLedger(3);
    const damaged = Buffer.from(whole);
    const second = whole.indexOf(0x0a, whole.indexOf(0x0a, whole.indexOf(0x0a) + 1) + 1) - 1;
    damaged[second]! ^= 0xff;
    await writeFile(path, damaged);
    const { ledger, records, damage } = await LedgerFile.open<Entry>(path);
    await ledger.close();
    expect(records).toEqual([entry(0)]);
    expect(damage).toMatchObject({
      recovered: 1,
      reason: expect.stringMatching(/^the checksum is wrong at byte \d+$/),
    });
    expect(damage?.movedTo.startsWith(`${path}.damaged-`)).toBe(true);
    expect(await readFile(damage!.movedTo)).toEqual(damaged);
    expect(await reopen()).toEqual([entry(0)]);
  });

  it.each([
    ['a file that is no ledger', 'hello\n', /checksum/],
    ['a file that is no ledger and has no line', 'hello', /checksum/],
    ['the header of another format', line({ format: 'other', version: 1 }), /not the header/],
    ['a newer version', line({ format: 'atlas-ledger', version: 2 }), /version 2, and this program reads version 1/],
  ])('moves %s aside', async (_, content, reason) => {
    await writeFile(path, content);
    const { ledger, records, damage } = await LedgerFile.open<Entry>(path);
    await ledger.append(entry(1), { durable: true });
    await ledger.close();
    expect(records).toEqual([]);
    expect(damage?.reason).toMatch(reason);
    expect(await readFile(damage!.movedTo, 'utf8')).toBe(content);
    expect(await reopen()).toEqual([entry(1)]);
  });

  it('never overwrites an earlier damaged file', async () => {
    for (let n = 0; n < 5; n += 1) {
      await writeFile(path, `damage ${n}\n`);
      await (await LedgerFile.open<Entry>(path)).ledger.close();
    }
    const kept = (await readdir(directory)).filter((name) => name.includes('.damaged-'));
    const contents = await Promise.all(kept.map((name) => readFile(join(directory, name), 'utf8')));
    expect(contents.sort()).toEqual([0, 1, 2, 3, 4].map((n) => `damage ${n}\n`));
  });

  it('shares one fsync between appends made at the same time, and does none for those that are not durable', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    io.syncs = 0;
    await ledger.append(entry(0), { durable: false });
    expect(io.syncs).toBe(0);
    await Promise.all(Array.from({ length: 50 }, (_, n) => ledger.append(entry(n), { durable: true })));
    expect(io.syncs).toBe(1);
    await ledger.close();
  });

  it('does not resolve a durable append before its fsync', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    const order: string[] = [];
    io.fault = async (operation) => {
      order.push(operation);
    };
    await ledger.append(entry(0), { durable: true });
    order.push('resolved');
    expect(order).toEqual(['write', 'sync', 'resolved']);
    await ledger.close();
  });

  it('rejects an append on a full disk, keeps nothing of it, and works again when there is room', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    await ledger.append(entry(0), { durable: true });
    const before = await readFile(path);
    const fault = errno('ENOSPC');
    io.fault = (operation) => (operation === 'write' ? Promise.reject(fault) : Promise.resolve());
    await expect(ledger.append(entry(1), { durable: true })).rejects.toBe(fault);
    expect(await readFile(path)).toEqual(before);
    expect(ledger.size).toBe(before.length);
    io.fault = async () => undefined;
    await ledger.append(entry(2), { durable: true });
    await ledger.close();
    expect(await reopen()).toEqual([entry(0), entry(2)]);
  });

  it('removes what a failed append left even if that can not be done at once', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    await ledger.append(entry(0), { durable: true });
    io.fault = () => Promise.reject(errno('EIO'));
    await expect(ledger.append({ session: 'a long one'.repeat(20), n: 1 }, { durable: true })).rejects.toThrow('EIO');
    await expect(ledger.append(entry(2), { durable: true })).rejects.toThrow('EIO');
    io.fault = async () => undefined;
    await ledger.append(entry(3), { durable: true });
    await ledger.close();
    expect(await reopen()).toEqual([entry(0), entry(3)]);
  });

  it('makes a new file after a failed fsync, since a second fsync would prove nothing', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    await ledger.append(entry(0), { durable: false });
    io.fault = (operation) => (operation === 'sync' ? Promise.reject(errno('EIO')) : Promise.resolve());
    await expect(ledger.append(entry(1), { durable: true })).rejects.toThrow('EIO');
    const inode = (await stat(path)).ino;
    io.fault = async () => undefined;
    await ledger.append(entry(2), { durable: true });
    expect((await stat(path)).ino).not.toBe(inode);
    await ledger.close();
    expect(await reopen()).toEqual([entry(0), entry(2)]);
  });

  it('replaces its content by compaction, between the appends before and after it', async () => {
    const { ledger } = await LedgerFile.open<Entry>(path);
    const done = [0, 1, 2].map((n) => ledger.append(entry(n), { durable: n === 1 }));
    done.push(ledger.compact([entry(2)]), ledger.append(entry(3), { durable: true }));
    done.push(ledger.compact([entry(3)]), ledger.append(entry(4), { durable: false }));
    await Promise.all(done);
    expect(ledger.size).toBe((await stat(path)).size);
    await ledger.close();
    expect(await reopen()).toEqual([entry(3), entry(4)]);
    expect(await readdir(directory)).toEqual(['ledger']);
  });

  it.each(['write', 'sync', 'rename', 'syncDirectory'])('survives a compaction whose %s fails', async (failing) => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    await ledger.append(entry(0), { durable: true });
    await ledger.append(entry(1), { durable: true });
    io.fault = (operation) => (operation === failing ? Promise.reject(errno('ENOSPC')) : Promise.resolve());
    await expect(ledger.compact([entry(1)])).rejects.toThrow('ENOSPC');
    io.fault = async () => undefined;
    await ledger.append(entry(2), { durable: true });
    await ledger.close();
    const state = new Map((await reopen()).map((record) => [record.n, record]));
    expect([...state.keys()].slice(-2)).toEqual([1, 2]);
    expect(await readdir(directory)).toEqual(['ledger']);
  });

  it('is not durable after a compaction whose new name may be lost, until the name is on disk', async () => {
    const io = faultyIo();
    const { ledger } = await LedgerFile.open<Entry>(path, { io });
    io.fault = (operation) => (operation === 'syncDirectory' ? Promise.reject(errno('EIO')) : Promise.resolve());
    await expect(ledger.compact([entry(1)])).rejects.toThrow('EIO');
    await expect(ledger.append(entry(2), { durable: true })).rejects.toThrow('EIO');
    io.fault = async () => undefined;
    await ledger.append(entry(3), { durable: true });
    await ledger.close();
    expect(await reopen()).toEqual([entry(1), entry(3)]);
  });

  it('writes what is pending before it closes, and refuses appends after that', async () => {
    const { ledger } = await LedgerFile.open<Entry>(path);
    const pending = ledger.append(entry(0), { durable: true });
    await ledger.close();
    await pending;
    await expect(ledger.append(entry(1), { durable: true })).rejects.toThrow('closed');
    expect(await reopen()).toEqual([entry(0)]);
  });

  it('rejects when the file can not be read', async () => {
    await expect(LedgerFile.open<Entry>(directory)).rejects.toMatchObject({ code: 'EISDIR' });
  });
});

function line(value: unknown): string {
  const json = JSON.stringify(value);
  return `${crc(json)} ${json}\n`;
}

function crc(text: string): string {
  let value = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  }
  return ((value ^ 0xffffffff) >>> 0).toString(16).padStart(8, '0');
}
