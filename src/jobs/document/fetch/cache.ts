/**
 * Documents that this worker has fetched before, so that a redo or another run need not fetch them again.
 *
 * Entries are named by the hash of their bytes: `document-<sha256>`. For an address without a known hash,
 * `document-url-<hash of the address>.json` says which version of it was which document. Neither name nor content gives
 * an address or a token away.
 *
 * An entry is never believed: the bytes are hashed at each use, so that one that was damaged, or written to through a
 * link, is dropped. The cache never fails a job: what goes wrong is told to `onProblem`, and the document is fetched.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, copyFile, link, lstat, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { requireRoom, type Disk } from './disk.js';
import type { Version } from './download.js';
import { systemCode } from '../failure.js';
import { hashFile, readJson, writeFileAtomic } from '../files.js';

/** The directory is shared with whatever else runs on the worker. */
const PREFIX = 'document-';
/** Not writable: an activity that opens the linked file by mistake to write must not change the entry. */
const ENTRY_MODE = 0o400;

export interface CacheOptions {
  readonly directory: string;
  /** 0: there is no cache. */
  readonly maxBytes: number;
  readonly onProblem: (error: unknown) => void;
}

/** What was fetched from an address the last time. */
export interface Remembered {
  readonly version: Version;
  readonly sha256: string;
  readonly bytes: number;
}

interface Entry {
  readonly path: string;
  readonly bytes: number;
  readonly usedAtMs: number;
  /** Whether its room is freed when it is deleted: a session may have it linked. */
  readonly isOnlyHere: boolean;
}

/** What changes the whole of a directory is done one after the other: all sessions of a worker share one process. */
const queues = new Map<string, Promise<unknown>>();

export class DocumentCache {
  readonly #directory: string;
  readonly #maxBytes: number;
  readonly #onProblem: (error: unknown) => void;

  private constructor(options: CacheOptions) {
    this.#directory = options.directory;
    this.#maxBytes = options.maxBytes;
    this.#onProblem = options.onProblem;
  }

  /** Opens the cache, and brings it within its bound, which may have been lowered. */
  static async open(options: CacheOptions): Promise<DocumentCache> {
    const cache = new DocumentCache(options);
    await cache.#guarded(() => cache.#exclusively(() => cache.#evictTo(options.maxBytes)));
    return cache;
  }

  /**
   * Puts the document with this hash at `target`, verified; undefined when it is not here.
   *
   * @throws The reason of the signal.
   */
  async take(
    sha256: string,
    to: { readonly target: string; readonly disk: Disk; readonly signal: AbortSignal },
  ): Promise<{ bytes: number; sha256: string } | undefined> {
    if (this.#maxBytes === 0) return undefined;
    const entry = this.#entry(sha256);
    const copy = `${to.target}.cached`;
    const taken = await this.#guarded(async () => {
      if (!(await this.#bring(entry, copy, to.disk))) return undefined;
      const found = await hashFile(copy, to.signal);
      if (found.sha256 !== sha256) {
        await rm(entry, { force: true });
        throw new Error(`${entry} had sha256 ${found.sha256}; it was deleted.`);
      }
      await touch(entry);
      await rename(copy, to.target);
      return found;
    }, to.signal);
    await rm(copy, { force: true });
    to.signal.throwIfAborted();
    return taken;
  }

  /** Keeps the verified document at `path`, if it fits at all. What was not used for longest makes room. */
  async put(path: string, { bytes, sha256 }: { readonly bytes: number; readonly sha256: string }): Promise<void> {
    if (bytes > this.#maxBytes) return;
    await this.#guarded(() =>
      this.#exclusively(async () => {
        await mkdir(this.#directory, { recursive: true, mode: 0o700 });
        const entry = this.#entry(sha256);
        await this.#evictTo(this.#maxBytes - bytes, entry);
        const temporary = join(this.#directory, `${PREFIX}${randomBytes(8).toString('hex')}.tmp`);
        try {
          if (!(await linked(path, temporary))) await copyFile(path, temporary, constants.COPYFILE_FICLONE);
          await chmod(temporary, ENTRY_MODE);
          await touch(temporary);
          await rename(temporary, entry);
        } finally {
          // Also when it was renamed: two links of one file are left as they are.
          await rm(temporary, { force: true });
        }
      }),
    );
  }

  /** What the address had the last time, when that is still here. */
  async remembered(url: string): Promise<Remembered | undefined> {
    if (this.#maxBytes === 0) return undefined;
    return await this.#guarded(async () => {
      const index = this.#index(url);
      const known = await readJson(index);
      if (known === undefined) return undefined;
      if (isRemembered(known) && (await sizeOf(this.#entry(known.sha256))) === known.bytes) return known;
      await rm(index, { force: true });
      return undefined;
    });
  }

  /** Notes that the address has this version, which is this document. */
  async remember(url: string, known: Remembered): Promise<void> {
    if (known.bytes > this.#maxBytes) return;
    // One after the other, as two sessions may note the same address.
    await this.#guarded(() =>
      this.#exclusively(async () => {
        const { version, sha256, bytes } = known;
        await writeFileAtomic(this.#index(url), JSON.stringify({ version, sha256, bytes }), { sync: false });
      }),
    );
  }

  /** Deletes what was not used for longest until so much of the disk is free, or nothing is left that would help. */
  async makeRoom(bytes: number, disk: Pick<Disk, 'free'>): Promise<void> {
    await this.#guarded(() =>
      this.#exclusively(async () => {
        for (const entry of await this.#entries()) {
          if ((await disk.free()) >= bytes) return;
          if (entry.isOnlyHere) await rm(entry.path, { force: true });
        }
      }),
    );
  }

  #entry(sha256: string): string {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new Error('Not a sha256.');
    return join(this.#directory, `${PREFIX}${sha256}`);
  }

  #index(url: string): string {
    return join(this.#directory, `${PREFIX}url-${createHash('sha256').update(url).digest('hex')}.json`);
  }

  /** Links the entry, or copies it where a link can not be made. False when there is none. */
  async #bring(entry: string, copy: string, disk: Disk): Promise<boolean> {
    await rm(copy, { force: true });
    try {
      if (await linked(entry, copy)) return true;
      await requireRoom(disk, (await stat(entry)).size);
      await copyFile(entry, copy, constants.COPYFILE_FICLONE);
      return true;
    } catch (error) {
      if (systemCode(error) === 'ENOENT') return false;
      throw error;
    }
  }

  async #evictTo(maxBytes: number, except?: string): Promise<void> {
    const entries = (await this.#entries()).filter(({ path }) => path !== except);
    let left = entries.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { path, bytes } of entries) {
      if (left <= maxBytes) return;
      await rm(path, { force: true });
      left -= bytes;
    }
  }

  /** Those used longest ago first. */
  async #entries(): Promise<Entry[]> {
    let names: string[];
    try {
      names = await readdir(this.#directory);
    } catch (error) {
      if (systemCode(error) === 'ENOENT') return [];
      throw error;
    }
    const entries: Entry[] = [];
    for (const name of names) {
      const path = join(this.#directory, name);
      if (!name.startsWith(PREFIX)) continue;
      try {
        const { size, mtimeMs, nlink } = await lstat(path);
        entries.push({ path, bytes: size, usedAtMs: mtimeMs, isOnlyHere: nlink === 1 });
      } catch (error) {
        if (systemCode(error) !== 'ENOENT') throw error;
      }
    }
    return entries.toSorted((one, other) => one.usedAtMs - other.usedAtMs);
  }

  async #exclusively<T>(run: () => Promise<T>): Promise<T> {
    const before = queues.get(this.#directory) ?? Promise.resolve();
    const running = before.then(run, run);
    queues.set(this.#directory, running);
    return await running;
  }

  async #guarded<T>(run: () => Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
    try {
      return await run();
    } catch (error) {
      if (signal?.aborted !== true) this.#onProblem(error);
      return undefined;
    }
  }
}

/** Makes a hard link. False where the file systems or their rules do not allow one. */
async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (['EXDEV', 'EPERM', 'EMLINK', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes(systemCode(error) ?? '')) return false;
    throw error;
  }
}

/** The time of the last change is that of the last use, here and for the daemon. */
async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch((error: unknown) => {
    if (systemCode(error) !== 'ENOENT') throw error;
  });
}

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function isRemembered(value: unknown): value is Remembered {
  if (typeof value !== 'object' || value === null) return false;
  const { version, sha256, bytes } = value as Partial<Record<keyof Remembered, unknown>>;
  return (
    typeof version === 'object' &&
    version !== null &&
    'place' in version &&
    typeof sha256 === 'string' &&
    /^[0-9a-f]{64}$/.test(sha256) &&
    typeof bytes === 'number'
  );
}
