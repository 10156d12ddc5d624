/**
 * Small things that the job does with files: write one so that a reader sees all of it or none, hash one, and read a
 * file of JSON whose last line may be torn.
 */
import { createHash } from 'node:crypto';
import { open, readFile, rename, type FileHandle } from 'node:fs/promises';
import { dirname, basename, join } from 'node:path';
import { failure, messageOf, systemCode } from './failure.js';

const READ_BYTES = 256 * 1024;

/** Writes a file under a temporary name, syncs it unless it need not survive the host, and moves it into place. */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  { sync = true }: { readonly sync?: boolean } = {},
): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.tmp`);
  const handle = await open(temporary, 'w', 0o600);
  try {
    await handle.writeFile(content);
    if (sync) await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, path);
  if (sync) await syncDirectory(dirname(path));
}

/** Makes a rename inside a directory survive a power cut. */
export async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function hashFile(path: string, signal?: AbortSignal): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of readChunks(path, signal === undefined ? {} : { signal })) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}

/**
 * The bytes of a file, or of its beginning. Each chunk is valid until the next is asked for: they share one buffer, as
 * memory that is new for every chunk costs more than reading it.
 */
export async function* readChunks(
  file: string | FileHandle,
  { bytes = Number.POSITIVE_INFINITY, signal }: { readonly bytes?: number; readonly signal?: AbortSignal } = {},
): AsyncGenerator<Buffer, void, undefined> {
  const handle = typeof file === 'string' ? await open(file, 'r') : file;
  try {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    for (let position = 0; position < bytes;) {
      signal?.throwIfAborted();
      const { bytesRead } = await handle.read(buffer, 0, Math.min(READ_BYTES, bytes - position), position);
      if (bytesRead === 0) return;
      position += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    if (typeof file === 'string') await handle.close();
  }
}

/** A file of JSON, or undefined when it is not there or not JSON: then whoever wrote it did not finish. */
export async function readJson(path: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Whether a write failed since the disk, or the user's share of it, is full. */
export function isDiskFull(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(systemCode(error) ?? '');
}

/** Turns an error of the disk into a failure that says so; anything else stays as it is. */
export function diskFailure(error: unknown, doing: string): unknown {
  if (isDiskFull(error)) {
    return failure('OutOfDisk', `The disk of the worker is full: ${doing} failed (${messageOf(error)}).`, {
      cause: error,
    });
  }
  return error;
}
