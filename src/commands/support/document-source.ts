/**
 * What the user named as the document: a path that the command line serves itself, a `file:` URL that a worker reads
 * from its own disk, or an address that a worker fetches.
 *
 * Owns the cheap checks that are made before anything is started, so that a typing error costs nothing: the file exists,
 * can be read, has bytes and begins like a PDF. The real checks are the job's.
 */
import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AtlasError } from '../../contract/errors.js';

/** Where a PDF must have its header; readers accept some leading bytes. */
const HEADER_BYTES = 1_024;
/** It goes into the history of the run; servers take 8 to 16 KB. */
const MAX_URL_CHARACTERS = 16_384;
/** Of the name that is shown. A worker shortens it too. */
const MAX_NAME_CHARACTERS = 120;
const HEADER = Buffer.from('%PDF-', 'latin1');

interface LocalFile {
  readonly path: string;
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

export type PreparedSource =
  | { readonly kind: 'url'; readonly url: string; readonly name: string; readonly sha256?: string }
  | ({ readonly kind: 'file' } & LocalFile)
  /** The handle stays open until the run ends: what is served is the file that was hashed, even if another is put in its place. */
  | ({ readonly kind: 'served'; readonly handle: FileHandle } & LocalFile);

/**
 * Checks and describes the document. The caller closes the handle of a served file.
 *
 * @param sha256 What the document of an address must have; of a file it is taken here.
 */
export async function prepareSource(
  input: string,
  cwd: string,
  signal?: AbortSignal,
  sha256?: string,
): Promise<PreparedSource> {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(input)?.[1]?.toLowerCase();
  if (sha256 !== undefined && (scheme === undefined || scheme === 'file')) {
    throw new AtlasError('Usage', `--sha256 goes with an http(s) address, and ${JSON.stringify(input)} is a file.`, {
      next: 'Leave it out: the hash of a file is taken here, and the worker checks it.',
    });
  }
  switch (scheme) {
    case undefined: {
      const { file, handle } = await openChecked(resolve(cwd, input), input, signal);
      return { kind: 'served', ...file, handle };
    }
    case 'file': {
      const { file, handle } = await openChecked(pathOfUrl(input), input, signal);
      await handle.close();
      return { kind: 'file', ...file };
    }
    case 'http':
    case 'https':
      return {
        kind: 'url',
        url: checkedUrl(input).href,
        name: nameOfUrl(checkedUrl(input)),
        ...(sha256 === undefined ? {} : { sha256 }),
      };
    default:
      throw new AtlasError('Usage', `The address ${JSON.stringify(input)} is of a kind that is not supported.`, {
        next: 'Give a path, or an address that begins with http://, https:// or file://.',
      });
  }
}

function pathOfUrl(input: string): string {
  try {
    return fileURLToPath(input);
  } catch (cause) {
    throw new AtlasError('Usage', `${JSON.stringify(input)} is not a local file URL.`, {
      cause,
      next: 'Write it with three slashes and a whole path: file:///srv/documents/report.pdf.',
    });
  }
}

function checkedUrl(input: string): URL {
  if (input.length > MAX_URL_CHARACTERS) {
    throw new AtlasError(
      'Usage',
      `The address has ${input.length} characters; at most ${MAX_URL_CHARACTERS} are taken.`,
      {
        next: 'Give a shorter address: servers take no longer ones.',
      },
    );
  }
  try {
    return new URL(input);
  } catch (cause) {
    throw new AtlasError('Usage', `${JSON.stringify(input)} is not a valid address.`, {
      cause,
      next: 'Check it for blanks and missing parts; put it in quotes for the shell.',
    });
  }
}

function nameOfUrl(url: URL): string {
  let name = basename(url.pathname);
  try {
    name = decodeURIComponent(name);
  } catch {
    // A stray percent sign: the name as it stands is good enough to be shown.
  }
  return name === '' ? url.hostname : name.slice(0, MAX_NAME_CHARACTERS);
}

async function openChecked(
  path: string,
  shown: string,
  signal: AbortSignal | undefined,
): Promise<{ file: LocalFile; handle: FileHandle }> {
  const handle = await openForReading(path, shown);
  try {
    const stat = await handle.stat();
    if (stat.isDirectory()) {
      throw new AtlasError('FileUnreadable', `${shown} is a directory.`, { next: 'Give one PDF file in it.' });
    }
    if (!stat.isFile()) {
      throw new AtlasError('FileUnreadable', `${shown} is not a regular file.`, {
        next: 'Save it to a file first: its size and hash must be known before the start.',
      });
    }
    if (stat.size === 0) throw new AtlasError('EmptyFile', `${shown} has no bytes.`);
    const head = Buffer.alloc(Math.min(HEADER_BYTES, stat.size));
    await handle.read(head, 0, head.length, 0);
    if (!head.includes(HEADER)) {
      throw new AtlasError(
        'NotAPdf',
        `${shown} is not a PDF: its first ${head.length} bytes have no %PDF- header.${guess(head)}`,
      );
    }
    const { bytes, sha256 } = await hashOf(handle, signal);
    return { file: { path, name: basename(path), bytes, sha256 }, handle };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function openForReading(path: string, shown: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const reason =
      code === 'ENOENT' || code === 'ENOTDIR'
        ? 'does not exist'
        : code === 'EACCES' || code === 'EPERM'
          ? 'may not be read by this user'
          : `can not be opened (${code ?? String(cause)})`;
    throw new AtlasError('FileUnreadable', `${shown} ${reason}.`, { cause });
  }
}

/** What the file looks like instead, for the files that are most often given by mistake. */
function guess(head: Buffer): string {
  const start = head.subarray(0, 256).toString('latin1').trimStart().toLowerCase();
  if (start.startsWith('<!doctype html') || start.startsWith('<html')) return ' It looks like a web page.';
  if (start.startsWith('pk\u0003\u0004')) return ' It looks like a ZIP archive or an office document.';
  return '';
}

async function hashOf(handle: FileHandle, signal: AbortSignal | undefined): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;
  const stream = handle.createReadStream({ start: 0, autoClose: false, highWaterMark: 1 << 20 });
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    signal?.throwIfAborted();
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}
