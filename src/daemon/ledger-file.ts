/**
 * An append-only journal of JSON records that survives kill -9 at any byte.
 *
 * Owns: the format of the file, the order of writes, fsync and its sharing, the repair of a torn or damaged file.
 * Must not know what the records mean, nor when to compact.
 *
 * Each line is `<crc32 of the rest, 8 hex digits> <json>\n`; the first is a header with format and version. A crash in an
 * append leaves a last line without its newline, which was never acknowledged and is dropped. Anything else that can not
 * be read is damage: it is kept beside the ledger and reported.
 */
import { constants } from 'node:fs';
import { link, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';
import { isErrno, keepDamaged, syncDirectory } from './atomic-file.js';

const FORMAT = 'atlas-ledger';
const VERSION = 1;
/** The ledger holds task tokens, with which anyone could complete the activities. */
const MODE = 0o600;
const NEWLINE = 0x0a;

/** The file system as far as the ledger needs it, so that tests can make it fail. */
export interface LedgerIo {
  /** The content, or `undefined` when there is no such file. */
  readFile(path: string): Promise<Buffer | undefined>;
  /** Opens for reading and writing; creates the file with mode 0600; `truncate` empties it. */
  open(path: string, options: { readonly truncate: boolean }): Promise<LedgerHandle>;
  /** A second name for a file; fails with EEXIST rather than overwrite. */
  readonly link: (from: string, to: string) => Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  syncDirectory(path: string): Promise<void>;
}

export interface LedgerHandle {
  /** Writes all of the bytes at this offset. */
  write(data: Buffer, position: number): Promise<void>;
  read(lengthBytes: number): Promise<Buffer>;
  truncate(lengthBytes: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface LedgerDamage {
  /** Where the unreadable file is now. */
  readonly movedTo: string;
  readonly reason: string;
  /** How many records before the damage were kept. */
  readonly recovered: number;
}

export interface LedgerOptions {
  readonly io?: LedgerIo;
}

export interface OpenedLedger<R> {
  readonly ledger: LedgerFile<R>;
  readonly records: R[];
  readonly damage: LedgerDamage | null;
}

interface PendingWrite {
  readonly data: Buffer;
  readonly kind: 'append' | 'durable-append' | 'replace';
  readonly resolve: () => void;
  readonly reject: (cause: unknown) => void;
}

export class LedgerFile<R> {
  readonly path: string;
  readonly #io: LedgerIo;
  #handle: LedgerHandle;
  /** The end of the last record that was written as a whole. */
  #size: number;
  #pending: PendingWrite[] = [];
  #draining: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  /** What has to be put right before the next write, after one that failed. */
  #repair: 'nothing' | 'truncate' | 'rewrite' = 'nothing';

  private constructor(path: string, io: LedgerIo, handle: LedgerHandle, size: number) {
    this.path = path;
    this.#io = io;
    this.#handle = handle;
    this.#size = size;
  }

  /**
   * Opens or creates the ledger and reads its records. The caller must hold the lock of the state directory.
   * Rejects with the cause when the file can not be read or repaired at all.
   */
  static async open<R>(path: string, options: LedgerOptions = {}): Promise<OpenedLedger<R>> {
    const io = options.io ?? realIo;
    const content = await io.readFile(path);
    const parsed = parseLedger<R>(content ?? Buffer.alloc(0));
    let damage: LedgerDamage | null = null;
    if (parsed.damage !== undefined) {
      const movedTo = await keepDamaged(path, io.link);
      damage = { movedTo, reason: parsed.damage, recovered: parsed.records.length };
    }
    if (content === undefined || parsed.goodBytes === 0 || damage !== null) {
      const good = encodeLedger(parsed.records);
      const handle = await replaceFile(io, path, good);
      try {
        await io.syncDirectory(dirname(path));
      } catch (error) {
        await closeQuietly(handle);
        throw error;
      }
      return { ledger: new LedgerFile<R>(path, io, handle, good.length), records: parsed.records, damage };
    }
    const handle = await io.open(path, { truncate: false });
    try {
      if (parsed.goodBytes < content.length) {
        await handle.truncate(parsed.goodBytes);
        await handle.sync();
      }
    } catch (error) {
      await closeQuietly(handle);
      throw error;
    }
    return { ledger: new LedgerFile<R>(path, io, handle, parsed.goodBytes), records: parsed.records, damage };
  }

  /** The length of the file in bytes, as far as it has been written. */
  get size(): number {
    return this.#size;
  }

  /**
   * Appends a record, after all earlier ones. With `durable` it resolves once the record is on disk, else once it is
   * written: it then survives the death of this process but not of the host.
   * Appends made while others are written go out together, with one fsync, and succeed or fail together. When it rejects,
   * the record is not in the ledger, and later appends work again as soon as the disk does.
   */
  append(record: R, { durable }: { readonly durable: boolean }): Promise<void> {
    return this.#enqueue(encodeLine(record), durable ? 'durable-append' : 'append');
  }

  /**
   * Replaces the content at once: after a crash the old ledger is there or the new one. `records` must stand for
   * everything that was appended before this call; what is appended after it goes to the new file.
   * When it rejects, the old ledger or the new one goes on, and both stand for the same.
   */
  compact(records: readonly R[]): Promise<void> {
    return this.#enqueue(encodeLedger(records), 'replace');
  }

  /** Writes what is pending, makes everything durable and closes the file. */
  close(): Promise<void> {
    this.#closed ??= (async () => {
      await this.#draining;
      try {
        await this.#handle.sync();
      } finally {
        await this.#handle.close();
      }
    })();
    return this.#closed;
  }

  #enqueue(data: Buffer, kind: PendingWrite['kind']): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(new Error(`The ledger ${this.path} is closed.`));
    return new Promise((resolve, reject) => {
      this.#pending.push({ data, kind, resolve, reject });
      this.#draining ??= this.#drain();
    });
  }

  async #drain(): Promise<void> {
    // Appends made in one turn of the event loop share a write.
    await Promise.resolve();
    while (this.#pending.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#repairFile();
        const data = Buffer.concat(batch.map((write) => write.data));
        if (batch[0]!.kind === 'replace') await this.#replace(data);
        else
          await this.#append(
            data,
            batch.some((write) => write.kind === 'durable-append'),
          );
        for (const write of batch) write.resolve();
      } catch (error) {
        for (const write of batch) write.reject(error);
      }
    }
    this.#draining = undefined;
  }

  /** All appends up to the next replacement, or that replacement alone. */
  #takeBatch(): PendingWrite[] {
    const replacement = this.#pending.findIndex((write) => write.kind === 'replace');
    const count = replacement === -1 ? this.#pending.length : Math.max(replacement, 1);
    return this.#pending.splice(0, count);
  }

  async #append(data: Buffer, durable: boolean): Promise<void> {
    let written = false;
    try {
      await this.#handle.write(data, this.#size);
      written = true;
      if (durable) await this.#handle.sync();
      this.#size += data.length;
    } catch (error) {
      // After a failed fsync the kernel may have dropped pages of earlier appends too and call them clean, so that
      // another fsync proves nothing: the next write first makes a new file.
      this.#repair = written ? 'rewrite' : 'truncate';
      await this.#handle.truncate(this.#size).then(
        () => {
          if (this.#repair === 'truncate') this.#repair = 'nothing';
        },
        () => undefined, // Tried again before the next write.
      );
      throw error;
    }
  }

  async #repairFile(): Promise<void> {
    if (this.#repair === 'rewrite') {
      await this.#replace(await this.#handle.read(this.#size));
    } else if (this.#repair === 'truncate') {
      await this.#handle.truncate(this.#size);
      this.#repair = 'nothing';
    }
  }

  async #replace(content: Buffer): Promise<void> {
    const handle = await replaceFile(this.#io, this.path, content);
    const old = this.#handle;
    this.#handle = handle;
    this.#size = content.length;
    // Until the name is on disk too, a crash of the host may bring the old file back: nothing else is durable before.
    this.#repair = 'rewrite';
    await closeQuietly(old);
    await this.#io.syncDirectory(dirname(this.path));
    this.#repair = 'nothing';
  }
}

interface ParsedLedger<R> {
  readonly records: R[];
  /** Up to where the content is good; 0 when not even the header is there. */
  readonly goodBytes: number;
  readonly damage?: string;
}

function parseLedger<R>(content: Buffer): ParsedLedger<R> {
  const records: R[] = [];
  let offset = 0;
  while (offset < content.length) {
    const end = content.indexOf(NEWLINE, offset);
    // A file is born with its header, so a first line without an end is a crash only if it is the beginning of ours.
    if (end === -1 && (offset > 0 || headerLine().subarray(0, content.length).equals(content))) break;
    const line = decodeLine(content.subarray(offset, end === -1 ? content.length : end));
    if ('reason' in line) return { records, goodBytes: offset, damage: `${line.reason} at byte ${offset}` };
    if (offset === 0) {
      const reason = headerProblem(line.value);
      if (reason !== undefined) return { records, goodBytes: 0, damage: reason };
    } else {
      records.push(line.value as R);
    }
    offset = end + 1;
  }
  return { records, goodBytes: offset };
}

function headerProblem(header: unknown): string | undefined {
  if (typeof header !== 'object' || header === null || !('format' in header) || header.format !== FORMAT) {
    return 'the first line is not the header of a ledger';
  }
  if ('version' in header && header.version === VERSION) return undefined;
  const version = 'version' in header ? String(header.version) : 'none';
  return `the ledger has the version ${version}, and this program reads version ${VERSION}`;
}

function decodeLine(line: Buffer): { readonly value: unknown } | { readonly reason: string } {
  const checksum = line.subarray(0, 8).toString('latin1');
  const json = line.subarray(9);
  if (line.length < 9 || line[8] !== 0x20 || checksum !== checksumOf(json)) return { reason: 'the checksum is wrong' };
  try {
    return { value: JSON.parse(json.toString('utf8')) };
  } catch {
    return { reason: 'the record is not JSON' };
  }
}

function encodeLine(value: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(value), 'utf8');
  return Buffer.concat([Buffer.from(`${checksumOf(json)} `, 'latin1'), json, Buffer.of(NEWLINE)]);
}

function encodeLedger(records: readonly unknown[]): Buffer {
  return Buffer.concat([headerLine(), ...records.map(encodeLine)]);
}

function headerLine(): Buffer {
  return encodeLine({ format: FORMAT, version: VERSION });
}

function checksumOf(data: Buffer): string {
  return crc32(data).toString(16).padStart(8, '0');
}

/** Puts new content in place of a file, and returns it open. The name is durable only after an fsync of the directory. */
async function replaceFile(io: LedgerIo, path: string, content: Buffer): Promise<LedgerHandle> {
  // Always the same name: one process holds the lock, and what a crash left is overwritten.
  const temporary = `${path}.tmp`;
  const handle = await io.open(temporary, { truncate: true });
  try {
    await handle.write(content, 0);
    await handle.sync();
    await io.rename(temporary, path);
  } catch (error) {
    await closeQuietly(handle);
    await io.remove(temporary).catch(() => undefined);
    throw error;
  }
  return handle;
}

async function closeQuietly(handle: LedgerHandle): Promise<void> {
  await handle.close().catch(() => undefined); // Nothing that matters is in it any more.
}

export const realIo: LedgerIo = {
  async readFile(path) {
    try {
      return await readFile(path);
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return undefined;
      throw error;
    }
  },
  async open(path, { truncate }) {
    const flags = constants.O_RDWR | constants.O_CREAT | (truncate ? constants.O_TRUNC : 0);
    const handle = await open(path, flags, MODE);
    await handle.chmod(MODE);
    return {
      async write(data, position) {
        let done = 0;
        // A full disk first gives a short write, and only the next one fails.
        while (done < data.length) {
          const { bytesWritten } = await handle.write(data, done, data.length - done, position + done);
          done += bytesWritten;
        }
      },
      async read(lengthBytes) {
        const data = Buffer.alloc(lengthBytes);
        let done = 0;
        while (done < lengthBytes) {
          const { bytesRead } = await handle.read(data, done, lengthBytes - done, done);
          if (bytesRead === 0) throw new Error(`The ledger ${path} is shorter than it was written.`);
          done += bytesRead;
        }
        return data;
      },
      truncate: (lengthBytes) => handle.truncate(lengthBytes),
      sync: () => handle.datasync(), // Covers the length of the file, and spares its times.
      close: () => handle.close(),
    };
  },
  link,
  rename,
  remove: (path) => rm(path, { force: true }),
  syncDirectory,
};
