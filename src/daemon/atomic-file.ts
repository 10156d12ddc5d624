/**
 * Small files that are whole at any moment: after a crash there is the old content or the new one.
 *
 * Owns: the order of write, fsync and rename, and keeping what can not be read. Must not know what the files mean.
 */
import { link, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

const MAX_DAMAGED_PER_MILLISECOND = 100;

let written = 0;

/** Replaces the file at `path`; resolves once content and name are on disk. */
export async function writeFileAtomic(path: string, data: string | Uint8Array, mode: number): Promise<void> {
  written += 1;
  // Unique among the processes alive, and bounded over crashes: a later process with this pid overwrites what is left.
  const temporary = `${path}.${process.pid}-${written}.tmp`;
  try {
    const handle = await open(temporary, 'w', mode);
    try {
      await handle.writeFile(data);
      await handle.chmod(mode); // The mode of open is subject to the umask, and a leftover has its own.
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** Makes the names in a directory durable: fsync of a file does not cover the entry that leads to it. */
export async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Gives an unreadable file a second name, for people to look at, and returns it. The first name is left for the caller
 * to replace or remove. A link never overwrites, as a rename would.
 */
export async function keepDamaged(
  path: string,
  linkFile: (from: string, to: string) => Promise<void> = link,
): Promise<string> {
  const timestamp = new Date().toISOString().replace(/[:.]/g, '-');
  for (let attempt = 1; ; attempt += 1) {
    const target = `${path}.damaged-${timestamp}${attempt === 1 ? '' : `-${attempt}`}`;
    try {
      await linkFile(path, target);
      return target;
    } catch (error) {
      if (!isErrno(error, 'EEXIST') || attempt >= MAX_DAMAGED_PER_MILLISECOND) throw error;
    }
  }
}

export function isErrno(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}
