/**
 * Takes a document from the worker's own disk, under a directory that the operator listed.
 *
 * The path comes with the request, so it is not trusted: links are resolved before it is compared, and the file that is
 * opened is the one that was compared.
 */
import { constants } from 'node:fs';
import { open, realpath, type FileHandle } from 'node:fs/promises';
import { isAbsolute, relative, sep } from 'node:path';
import { requireRoom, type Disk } from './disk.js';
import type { Downloaded } from './download.js';
import { failure, isFailure, messageOf, systemCode, tooLarge } from '../failure.js';
import { readChunks } from '../files.js';
import { discardPart, finishPart, PartWriter } from './part-file.js';

export interface CopyRequest {
  readonly path: string;
  readonly target: string;
  readonly expected: { readonly bytes: number; readonly sha256: string };
  /** Directories of `document.allow_files`. */
  readonly allowed: readonly string[];
  readonly maxBytes: number;
  readonly disk: Disk;
  readonly signal: AbortSignal;
  readonly onProgress?: (done: number, total: number | undefined) => void;
}

/** @throws ApplicationFailure `FileRefused`, `FileUnreadable`, `SourceChanged`, `TooLarge`, `OutOfDisk`. */
export async function copyLocalFile(request: CopyRequest): Promise<Downloaded> {
  const { path, expected } = request;
  const source = await openAllowed(path, request.allowed);
  try {
    const { size } = await source.stat();
    if (size !== expected.bytes) {
      throw failure('SourceChanged', `${path} has ${size} bytes on this worker, but ${expected.bytes} were announced.`);
    }
    if (size > request.maxBytes) {
      throw tooLarge(`${path} has ${size} bytes`, request.maxBytes);
    }
    await requireRoom(request.disk, size);
    const { bytes, sha256 } = await copyInto(request, source, size);
    if (bytes !== expected.bytes || sha256 !== expected.sha256) {
      await discardPart(request.target);
      throw failure(
        'SourceChanged',
        `${path} has sha256 ${sha256} on this worker, but ${expected.sha256} was announced.`,
      );
    }
    await finishPart(request.target);
    return { bytes, sha256, resumedBytes: 0 };
  } finally {
    await source.close();
  }
}

async function copyInto(
  { path, target, disk, signal, onProgress }: CopyRequest,
  source: FileHandle,
  size: number,
): Promise<{ bytes: number; sha256: string }> {
  await discardPart(target);
  const writer = await PartWriter.open({ target, disk, startsAt: 0, total: size, signal });
  try {
    for await (const chunk of readChunks(source, { bytes: size + 1, signal })) {
      // One more than announced tells a file that grows. The chunk is overwritten by the next; the writer keeps it until it is on the disk.
      await writer.add(Buffer.from(chunk));
      onProgress?.(writer.bytes, size);
    }
    const { bytes } = writer;
    return { bytes, sha256: await writer.end() };
  } catch (error) {
    await discardPart(target);
    signal.throwIfAborted();
    throw isFailure(error) ? error : unreadable(path, error);
  } finally {
    await writer.close();
  }
}

/** Opens a file that lies under a listed directory once every link in its path is resolved. */
async function openAllowed(path: string, allowed: readonly string[]): Promise<FileHandle> {
  // Not under a listed directory and not there are one answer: the difference would tell what is on the disk.
  const refusal = failure(
    'FileRefused',
    `The worker does not read ${path}: it is under no directory of document.allow_files.`,
    {
      next: 'Let `atlas run` serve the file, or list its directory in document.allow_files (ATLAS_DOCUMENT_ALLOW_FILES) of the worker.',
    },
  );
  if (!isAbsolute(path)) throw refusal;
  const real = await realpath(path).catch(() => null);
  const roots = await Promise.all(allowed.map((directory) => realpath(directory).catch(() => null)));
  const permitted = (file: string): boolean => roots.some((root) => root !== null && isUnder(root, file));
  if (real === null) {
    if (permitted(path) || allowed.some((root) => isUnder(root, path))) {
      throw failure('FileUnreadable', `There is no file ${path} on this worker.`);
    }
    throw refusal;
  }
  if (!permitted(real)) throw refusal;
  let handle: FileHandle;
  try {
    // NOFOLLOW and NONBLOCK: neither a link that was put there meanwhile, nor a pipe that would wait for ever.
    handle = await open(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    throw unreadable(path, error);
  }
  if (!(await handle.stat()).isFile()) {
    await handle.close();
    throw failure('FileUnreadable', `${path} is not a file.`);
  }
  return handle;
}

export function isUnder(root: string, file: string): boolean {
  const path = relative(root, file);
  return path !== '' && path !== '..' && !path.startsWith(`..${sep}`) && !isAbsolute(path);
}

function unreadable(path: string, error: unknown): Error {
  return failure(
    'FileUnreadable',
    `${path} can not be read on this worker (${systemCode(error) ?? messageOf(error)}).`,
    {
      cause: error,
    },
  );
}
