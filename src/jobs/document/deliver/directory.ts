/**
 * Puts the artifacts into a directory of the worker, such as one on a file system that it shares with others, under a
 * directory that the operator listed.
 *
 * The path comes with the request, so it is not trusted: links are resolved before it is compared. A reader finds a
 * whole folder or none: it is written beside its place and renamed, and an attempt that repeats the work replaces the
 * folder that the earlier one left. Nothing else is ever replaced.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath, rename, rm, rmdir } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ARTIFACT_NAMES } from './artifacts.js';
import { failure, isFailure, systemCode } from '../failure.js';
import { isDiskFull } from '../files.js';
import { isUnder } from '../fetch/local-file.js';

export interface DirectoryTarget {
  /** The folder itself, which is made. What it lies in must be there. */
  readonly path: string;
  /** Directories of `document.allow_output`. */
  readonly allowed: readonly string[];
  readonly runId: string;
  /** Of the session: a later one has a higher token. */
  readonly fencingToken: number;
}

/** What a file system takes as one name. */
const MAX_NAME_BYTES = 255;
/** Another run may put its folder in the same place at the same moment. */
const SWAP_ATTEMPTS = 3;

/** Where the folder goes once links are resolved, and the names beside it that this attempt uses meanwhile. */
interface Place {
  readonly parent: string;
  readonly folder: string;
  readonly temporary: string;
  readonly replaced: string;
}

/**
 * Whether the artifacts can be put there, as far as that can be known before there are any.
 *
 * @throws ApplicationFailure `DirectoryRefused`, `OutOfDisk`.
 */
export async function checkDirectory(target: DirectoryTarget): Promise<void> {
  const place = await placeOf(target);
  try {
    // Asking for permission is not enough: a read-only file system only says no to a write.
    await clearLeftovers(place, target);
    await mkdir(place.temporary);
    await rmdir(place.temporary);
  } catch (error) {
    throw writeFailure(error, target.path);
  }
}

/**
 * Puts the artifacts of the scratch directory there.
 *
 * @throws ApplicationFailure `DirectoryRefused`, `OutOfDisk` (retryable).
 */
export async function fillDirectory(
  target: DirectoryTarget,
  { scratch, signal }: { readonly scratch: string; readonly signal: AbortSignal },
): Promise<void> {
  const place = await placeOf(target);
  try {
    await clearLeftovers(place, target);
    await mkdir(place.temporary);
    for (const name of ARTIFACT_NAMES) await copySynced(join(scratch, name), join(place.temporary, name), signal);
    await syncFolder(place.temporary);
    signal.throwIfAborted();
    await swapIn(place, target.path);
    await syncFolder(place.parent);
  } catch (error) {
    // What can not be removed now is removed by the next attempt; the reason is what matters.
    await rm(place.temporary, { recursive: true, force: true }).catch(() => undefined);
    signal.throwIfAborted();
    throw writeFailure(error, target.path);
  }
}

async function placeOf(target: DirectoryTarget): Promise<Place> {
  const { path, allowed, runId, fencingToken } = target;
  // Not under a listed directory and not there are one answer: the difference would tell what is on the disk.
  const refusal = refused(
    `The worker does not write artifacts into ${path}: ${dirname(path)} is not there, or under no directory of document.allow_output.`,
    'List a directory that exists in document.allow_output (ATLAS_DOCUMENT_ALLOW_OUTPUT) of the worker, and deliver into it.',
  );
  if (!isAbsolute(path)) throw refusal;
  const name = basename(resolve(path));
  const parent = await realpath(dirname(resolve(path))).catch(() => null);
  const roots = await Promise.all(allowed.map((directory) => realpath(directory).catch(() => null)));
  if (name === '' || parent === null) throw refusal;
  if (!roots.some((root) => root !== null && (root === parent || isUnder(root, parent)))) throw refusal;
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) {
    throw refused(`The name of the folder ${path} is too long.`, 'Choose a shorter name.');
  }
  const folder = join(parent, name);
  await checkReplaceable(folder, path);
  const temporary = join(parent, `${prefixOf(runId)}${fencingToken}`);
  return { parent, folder, temporary, replaced: `${temporary}.old` };
}

/** What is there may be what an earlier attempt left. Anything else is somebody's, and stays. */
async function checkReplaceable(folder: string, path: string): Promise<void> {
  const found = await lstat(folder).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return null;
    throw writeFailure(error, path);
  });
  if (found === null) return;
  const names: readonly string[] = ARTIFACT_NAMES;
  if (found.isDirectory() && (await readdir(folder)).every((name) => names.includes(name))) return;
  throw refused(
    `${path} is there already on this worker, and has something else than artifacts in it.`,
    'Deliver into another directory, or move away what is there.',
  );
}

function prefixOf(runId: string): string {
  return `.atlas-${runId}-`;
}

/** Removes what attempts of this run left that were killed; what a later session of it writes just now is not touched. */
async function clearLeftovers(place: Place, { runId, fencingToken }: DirectoryTarget): Promise<void> {
  const prefix = prefixOf(runId);
  for (const name of await readdir(place.parent)) {
    if (!name.startsWith(prefix) || !(Number.parseInt(name.slice(prefix.length), 10) <= fencingToken)) continue;
    await rm(join(place.parent, name), { recursive: true, force: true });
  }
}

/** A copy with the mode of a new file, which the umask of the worker decides: the original is for the worker alone. */
async function copySynced(from: string, to: string, signal: AbortSignal): Promise<void> {
  await pipeline(createReadStream(from), createWriteStream(to, { flags: 'wx', flush: true }), { signal });
}

/** Makes the names in a folder survive a power cut, on file systems that can. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } catch (error) {
    // Some network file systems have no such call for a folder.
    if (!['EINVAL', 'ENOTSUP', 'ENOSYS'].includes(systemCode(error) ?? '')) throw error;
  } finally {
    await handle.close();
  }
}

/** A folder can not be renamed over another one with files in it: that one steps aside first. */
async function swapIn({ folder, temporary, replaced }: Place, path: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    await checkReplaceable(folder, path);
    const hadOne = await rename(folder, replaced).then(
      () => true,
      (error: unknown) => {
        if (systemCode(error) === 'ENOENT') return false;
        throw error;
      },
    );
    try {
      await rename(temporary, folder);
    } catch (error) {
      if (hadOne) await rename(replaced, folder).catch(() => undefined);
      const isTaken = ['ENOTEMPTY', 'EEXIST'].includes(systemCode(error) ?? '');
      if (!isTaken || attempt >= SWAP_ATTEMPTS) throw error;
      continue;
    }
    await rm(replaced, { recursive: true, force: true });
    return;
  }
}

/** What of the errors of a disk is about this directory, and not about the scratch directory or the moment. */
const REFUSALS = ['EACCES', 'EPERM', 'EROFS', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP'];

function writeFailure(error: unknown, path: string): unknown {
  if (isFailure(error)) return error;
  const code = systemCode(error) ?? '';
  if (isDiskFull(error)) {
    return failure('OutOfDisk', `The artifacts could not be put into ${path}: its disk is full (${code}).`, {
      cause: error,
      next: `Free space where ${dirname(path)} is on the worker, and run again.`,
    });
  }
  if (!REFUSALS.includes(code)) return error;
  return refused(
    `The artifacts can not be put into ${path}: it can not be written on this worker (${code}).`,
    `Let the user that atlasd runs as write into ${dirname(path)}, or deliver into another directory.`,
    error,
  );
}

function refused(message: string, next: string, cause?: unknown): Error {
  return failure('DirectoryRefused', message, { next, cause });
}
