/**
 * A document that is on its way: `<target>.part` with its bytes, and `<target>.part.json` with what is known of them.
 *
 * Owns both files, how bytes are written and hashed, and the step that makes the part the document. Nothing here is
 * forced to the disk: a scratch directory does not outlive the run of the host, and within it nothing that was written
 * is lost.
 */
import { createHash, type Hash } from 'node:crypto';
import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { requireRoom, type Disk } from './disk.js';
import { systemCode } from '../failure.js';
import { diskFailure, readChunks, readJson, writeFileAtomic } from '../files.js';

/** Writes of this size cost little for each, and one is being made while the next is gathered. */
const BATCH_BYTES = 1024 * 1024;
/** How many bytes are written between two looks at the free room. */
const CHECK_ROOM_EVERY_BYTES = 16 * 1024 * 1024;
/** How long bytes of a slow source are only in memory, where the end of the process would lose them. */
const GATHER_MS = 1000;

export function partOf(target: string): string {
  return `${target}.part`;
}

function notesOf(target: string): string {
  return `${target}.part.json`;
}

export async function partSize(target: string): Promise<number> {
  try {
    return (await stat(partOf(target))).size;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return 0;
    throw error;
  }
}

export async function readPartNotes(target: string): Promise<unknown> {
  return await readJson(notesOf(target));
}

/** Begins a new part. The bytes of another one go first: they must never be taken for those that the notes describe. */
export async function beginPart(target: string, notes: object): Promise<void> {
  await rm(partOf(target), { force: true });
  await writeFileAtomic(notesOf(target), JSON.stringify(notes), { sync: false });
}

export async function discardPart(target: string): Promise<void> {
  await rm(partOf(target), { force: true });
  await rm(notesOf(target), { force: true });
}

/** Makes the part, which has been verified, the document. */
export async function finishPart(target: string): Promise<void> {
  await rename(partOf(target), target);
  await rm(notesOf(target), { force: true });
}

export interface PartWriterOptions {
  readonly target: string;
  readonly disk: Disk;
  /** How many bytes are there already and stay. */
  readonly startsAt: number;
  /** How many will come, where that is known. */
  readonly total?: number;
  readonly signal: AbortSignal;
}

/**
 * Appends to the part and hashes what it holds. One write runs while the next is gathered; whoever brings the bytes
 * waits when {@link add} says so, so that no more than two batches are in memory.
 */
export class PartWriter {
  readonly #file: FileHandle;
  readonly #hash: Hash;
  readonly #disk: Disk;
  readonly #path: string;
  readonly #total: number | undefined;
  #gathered: Buffer[] = [];
  #gatheredBytes = 0;
  #writtenBytes: number;
  #checkAt: number;
  #begunAt = performance.now();
  #writing: Promise<void> | undefined;
  #isClosed = false;

  private constructor(file: FileHandle, hash: Hash, options: PartWriterOptions) {
    this.#file = file;
    this.#hash = hash;
    this.#disk = options.disk;
    this.#path = partOf(options.target);
    this.#total = options.total;
    this.#writtenBytes = options.startsAt;
    this.#checkAt = options.startsAt + CHECK_ROOM_EVERY_BYTES;
  }

  static async open(options: PartWriterOptions): Promise<PartWriter> {
    const { target, startsAt } = options;
    const path = partOf(target);
    const hash = createHash('sha256');
    if (startsAt > 0) {
      for await (const chunk of readChunks(path, { bytes: startsAt, signal: options.signal })) hash.update(chunk);
    }
    let file: FileHandle;
    try {
      file = await open(path, startsAt > 0 ? 'r+' : 'w', 0o600);
    } catch (error) {
      throw diskFailure(error, `opening ${path}`);
    }
    return new PartWriter(file, hash, options);
  }

  /** Bytes of the document so far, those not yet written included. */
  get bytes(): number {
    return this.#writtenBytes + this.#gatheredBytes;
  }

  /** Takes the next bytes. A promise asks to wait for it before bringing more; it fails when the disk does. */
  add(chunk: Buffer): Promise<void> | undefined {
    this.#hash.update(chunk);
    this.#gathered.push(chunk);
    this.#gatheredBytes += chunk.length;
    const isFull = this.#gatheredBytes >= BATCH_BYTES;
    const before = this.#writing;
    if (before !== undefined) return isFull ? before.then(() => this.#begin()) : undefined;
    if (isFull || performance.now() - this.#begunAt >= GATHER_MS) this.#begin();
    return undefined;
  }

  /** Writes what is gathered, and gives the hash of all bytes. */
  async end(): Promise<string> {
    while (this.#writing !== undefined || this.#gatheredBytes > 0) {
      if (this.#writing === undefined) this.#begin();
      await this.#writing;
    }
    return this.#hash.digest('hex');
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    // Its failure was given to whoever waited for it; here only its end counts.
    await this.#writing?.catch(() => undefined);
    await this.#file.close();
  }

  #begin(): void {
    if (this.#isClosed) return;
    this.#begunAt = performance.now();
    const writing = this.#write(this.#gathered, this.#writtenBytes, this.#gatheredBytes);
    this.#writtenBytes += this.#gatheredBytes;
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#writing = writing;
    writing.then(
      () => {
        if (this.#writing === writing) this.#writing = undefined;
      },
      // It stays, so that the next who waits learns of it.
      () => undefined,
    );
  }

  async #write(chunks: readonly Buffer[], position: number, bytes: number): Promise<void> {
    if (position >= this.#checkAt) {
      this.#checkAt = position + CHECK_ROOM_EVERY_BYTES;
      await requireRoom(this.#disk, this.#total === undefined ? bytes : Math.max(this.#total - position, bytes));
    }
    try {
      await this.#writeAll(chunks, position);
    } catch (error) {
      if (systemCode(error) !== 'ENOSPC') throw diskFailure(error, `writing ${this.#path}`);
      await this.#disk.makeRoom(bytes);
      try {
        await this.#writeAll(chunks, position);
      } catch (again) {
        throw diskFailure(again, `writing ${this.#path}`);
      }
    }
  }

  async #writeAll(chunks: readonly Buffer[], position: number): Promise<void> {
    let rest = chunks;
    let at = position;
    while (rest.length > 0) {
      const { bytesWritten } = await this.#file.writev(rest, at);
      at += bytesWritten;
      rest = without(rest, bytesWritten);
    }
  }
}

/** What is left of these chunks after their first bytes: a write may be cut short, as by a disk that fills up. */
function without(chunks: readonly Buffer[], bytes: number): readonly Buffer[] {
  let skip = bytes;
  const index = chunks.findIndex((chunk) => {
    if (skip < chunk.length) return true;
    skip -= chunk.length;
    return false;
  });
  const first = chunks[index];
  return first === undefined ? [] : [first.subarray(skip), ...chunks.slice(index + 1)];
}
