/**
 * Working directories of sessions, one each, and the retention of what is kept or cached.
 *
 * Owns: making, recognising and deleting the directories. Must not know which sessions are held: callers say what stays.
 *
 * A directory is given up by a rename, which frees its name at once, and is deleted afterwards, which may take minutes.
 * What a crash leaves in between is found by `sweep`.
 */
import { randomBytes } from 'node:crypto';
import { chmod, lstat, mkdir, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isErrno } from './atomic-file.js';

const MARKER_FILE = '.atlas-session';
const TRASH_PREFIX = '.trash-';
/** No separator and no leading dot: a key is one name below the root, and never that of the trash. */
const KEY = /^[a-z0-9-][a-z0-9.-]*$/;

export interface ScratchMarker {
  readonly epoch: number;
  readonly grantedAtMs: number;
}

export class Scratch {
  readonly #root: string;
  readonly #bootId: string;

  /** `root` must exist. `bootId` names this run of the host; empty where that can not be told. */
  constructor(root: string, bootId: string) {
    this.#root = root;
    this.#bootId = bootId;
  }

  directory(key: string): string {
    if (!KEY.test(key)) throw new Error(`The session key ${JSON.stringify(key)} can not be the name of a directory.`);
    return join(this.#root, key);
  }

  /**
   * Makes the directory of a session and returns its path. One that the same lease has made already is kept as it is (a
   * grant that is resumed); one of another lease is replaced, since the sequence begins anew.
   *
   * It outlives this process, and not this run of the host: nothing here is forced to the disk, and neither is what
   * activities write into it.
   */
  async create(key: string, marker: ScratchMarker): Promise<string> {
    const directory = this.directory(key);
    try {
      await mkdir(directory, { mode: 0o700 });
    } catch (error) {
      if (!isErrno(error, 'EEXIST')) throw error;
      if ((await this.#readMarker(key))?.epoch === marker.epoch) return directory;
      await this.remove(key);
      await mkdir(directory, { mode: 0o700 });
    }
    // The marker comes last, so that a directory without it is one whose making was cut short.
    const text = `${JSON.stringify({ key, boot: this.#bootId, ...marker })}\n`;
    await writeFile(join(directory, MARKER_FILE), text, { flag: 'wx', mode: 0o600 });
    return directory;
  }

  /** Whether the directory is there and was made for this session, in this run of the host. */
  async isIntact(key: string): Promise<boolean> {
    return (await this.#readMarker(key)) !== undefined;
  }

  /** Frees the name, then deletes. Nothing happens when there is no such directory. */
  async remove(key: string): Promise<void> {
    const deleteTrash = await this.discard(key);
    await deleteTrash();
  }

  /** Frees the name and returns what deletes the files. */
  async discard(key: string): Promise<() => Promise<void>> {
    return this.#discardName(key, this.directory(key));
  }

  /**
   * Deletes everything but the directories of these sessions, leftovers of earlier deletions included. Returns the names
   * of the directories that belonged to no session. `keep` is asked just before each: deleting takes its time, and a
   * session may be granted meanwhile.
   */
  async sweep(keep: Pick<ReadonlySet<string>, 'has'>): Promise<string[]> {
    const removed: string[] = [];
    for (const name of (await readdir(this.#root)).sort()) {
      if (keep.has(name)) continue;
      const path = join(this.#root, name);
      if (name.startsWith(TRASH_PREFIX)) {
        await deleteTree(path);
      } else {
        const deleteTrash = await this.#discardName(name, path);
        removed.push(name);
        await deleteTrash();
      }
    }
    return removed;
  }

  async #readMarker(key: string): Promise<ScratchMarker | undefined> {
    let marker: unknown;
    try {
      marker = JSON.parse(await readFile(join(this.directory(key), MARKER_FILE), 'utf8'));
    } catch {
      return undefined; // Not there, or cut short: either way not intact.
    }
    if (typeof marker !== 'object' || marker === null) return undefined;
    const { key: owner, boot, epoch, grantedAtMs } = marker as Record<string, unknown>;
    if (owner !== key || boot !== this.#bootId) return undefined;
    if (typeof epoch !== 'number' || typeof grantedAtMs !== 'number') return undefined;
    return { epoch, grantedAtMs };
  }

  async #discardName(name: string, path: string): Promise<() => Promise<void>> {
    const trash = join(this.#root, `${TRASH_PREFIX}${randomBytes(8).toString('hex')}`);
    try {
      await rename(path, trash);
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return () => Promise.resolve();
      throw new Error(`The scratch directory ${name} can not be given up: ${(error as Error).message}`, {
        cause: error,
      });
    }
    return () => deleteTree(trash);
  }
}

/** Deletes the entries that were last changed more than `maxAgeMs` before `nowMs`; returns their names. */
export async function sweepByAge(root: string, maxAgeMs: number, nowMs: number): Promise<string[]> {
  const removed: string[] = [];
  for (const name of (await readdir(root)).sort()) {
    const path = join(root, name);
    try {
      if (nowMs - (await lstat(path)).mtimeMs <= maxAgeMs) continue;
    } catch (error) {
      if (isErrno(error, 'ENOENT')) continue; // Delivered and deleted in between.
      throw error;
    }
    await deleteTree(path);
    removed.push(name);
  }
  return removed;
}

async function deleteTree(path: string): Promise<void> {
  const options = { recursive: true, force: true, maxRetries: 3 };
  try {
    await rm(path, options);
  } catch (error) {
    if (!isErrno(error, 'EACCES') && !isErrno(error, 'EPERM')) throw error;
    // Some tools leave directories that not even their owner may write to: the module cache of Go, for one.
    await makeWritable(path);
    await rm(path, options);
  }
}

async function makeWritable(path: string): Promise<void> {
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await makeWritable(join(path, entry.name));
  }
}
