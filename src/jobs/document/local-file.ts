/**
 * Takes a document from the worker's own disk, under a directory that the operator listed.
 *
 * The path comes with the request, so it is not trusted: links are resolved before it is compared, and the file that is
 * opened is the one that was compared.
 */
import { createHash } from 'node:crypto';
import { constants, createWriteStream } from 'node:fs';
import { open, realpath, type FileHandle } from 'node:fs/promises';
import { isAbsolute, relative, sep } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { checkDisk, finish, partOf, type Downloaded } from './download.js';
import { failure, isFailure, messageOf, systemCode } from './failure.js';
import { diskFailure } from './files.js';

export interface CopyRequest {
  readonly path: string;
  readonly target: string;
  readonly expected: { readonly bytes: number; readonly sha256: string };
  /** Directories of `document.allow_files`. */
  readonly allowed: readonly string[];
  readonly maxBytes: number;
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
      throw failure('TooLarge', `${path} has ${size} bytes; this worker takes at most ${request.maxBytes}.`, {
        next: 'Raise document.max_bytes (ATLAS_DOCUMENT_MAX_BYTES) of the worker, or split the document.',
      });
    }
    await checkDisk(request.target, size);
    const hash = createHash('sha256');
    let bytes = 0;
    const count = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        hash.update(chunk);
        request.onProgress?.(bytes, size);
        done(null, chunk);
      },
    });
    try {
      await pipeline(
        source.createReadStream({ autoClose: false }),
        count,
        createWriteStream(partOf(request.target), { mode: 0o600 }),
        { signal: request.signal },
      );
    } catch (error) {
      request.signal.throwIfAborted();
      const disk = diskFailure(error, `writing ${partOf(request.target)}`);
      throw isFailure(disk) ? disk : unreadable(path, error);
    }
    const sha256 = hash.digest('hex');
    if (bytes !== expected.bytes || sha256 !== expected.sha256) {
      throw failure(
        'SourceChanged',
        `${path} has sha256 ${sha256} on this worker, but ${expected.sha256} was announced.`,
      );
    }
    await finish(request.target);
    return { bytes, sha256, resumedBytes: 0 };
  } finally {
    await source.close();
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
