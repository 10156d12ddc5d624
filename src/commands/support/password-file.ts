/**
 * The password of a document, from a file or from stdin: never from the command line, which every user of the host can
 * read. It is not put into any message here.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { resolve } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { AtlasError } from '../../contract/errors.js';

/** As much as a worker takes. */
const MAX_BYTES = 1_024;
const LINE_FEED = 10;
/** Readable by the group or by others. */
const OTHERS_MAY_READ = 0o044;

export interface PasswordFile {
  readonly password: string;
  /** What is unsafe about the file. */
  readonly warning?: string;
}

export interface PasswordOrigin {
  /** A path, or `-` for stdin. */
  readonly file: string;
  readonly cwd: string;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  /** Ends the wait for stdin. */
  readonly signal: AbortSignal;
}

/**
 * The first line, without its end.
 *
 * @throws {@link AtlasError} `FileUnreadable`, `Usage`.
 */
export async function readPasswordFile({ file, cwd, stdin, signal }: PasswordOrigin): Promise<PasswordFile> {
  if (file === '-') {
    if (stdin.isTTY === true) {
      throw new AtlasError('Usage', '--password-file - reads the password from stdin, which is a terminal.', {
        next: 'Pipe the password in, or give a file.',
      });
    }
    return { password: passwordIn(await firstLineOfStdin(stdin, signal), 'stdin') };
  }
  const handle = await openForReading(resolve(cwd, file), file);
  try {
    const stat = await handle.stat();
    if (stat.isDirectory()) throw unreadable(file, 'is a directory');
    const password = passwordIn(await firstLine(chunksOf(handle)), file);
    // A pipe, such as the shell makes for <(...), is gone with the command.
    const isOpenToOthers = stat.isFile() && (stat.mode & OTHERS_MAY_READ) !== 0;
    return isOpenToOthers
      ? { password, warning: `Other users of this host can read ${file}; \`chmod 600 ${file}\` ends that.` }
      : { password };
  } catch (error) {
    throw error instanceof AtlasError ? error : unreadable(file, reasonOf(error), error);
  } finally {
    await handle.close();
  }
}

async function firstLineOfStdin(stdin: Readable, signal: AbortSignal): Promise<Buffer> {
  try {
    return await firstLine(addAbortSignal(signal, stdin));
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

async function openForReading(path: string, shown: string): Promise<FileHandle> {
  try {
    return await open(path, 'r');
  } catch (error) {
    throw unreadable(shown, reasonOf(error), error);
  }
}

function reasonOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'does not exist';
  if (code === 'EACCES' || code === 'EPERM') return 'may not be read by this user';
  return `can not be read (${code ?? String(error)})`;
}

function unreadable(file: string, reason: string, cause?: unknown): AtlasError {
  return new AtlasError('FileUnreadable', `The password file ${file} ${reason}.`, {
    cause,
    next: 'Give --password-file a file whose first line is the password.',
  });
}

async function* chunksOf(handle: FileHandle): AsyncGenerator<Buffer> {
  const buffer = Buffer.alloc(MAX_BYTES + 2);
  for (;;) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
    if (bytesRead === 0) return;
    yield Buffer.from(buffer.subarray(0, bytesRead));
  }
}

/** The bytes before the first line end, or a few more than are allowed. */
async function firstLine(chunks: AsyncIterable<Buffer | string>): Promise<Buffer> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of chunks) {
    bytes = Buffer.concat([bytes, Buffer.from(chunk)]);
    if (bytes.includes(LINE_FEED) || bytes.length > MAX_BYTES + 1) break;
  }
  const end = bytes.indexOf(LINE_FEED);
  const line = end === -1 ? bytes : bytes.subarray(0, end);
  return line.at(-1) === 13 ? line.subarray(0, -1) : line;
}

function passwordIn(line: Buffer, shown: string): string {
  const wrong = (what: string): AtlasError =>
    new AtlasError('Usage', `${shown === 'stdin' ? 'Stdin' : `The password file ${shown}`} ${what}.`, {
      next: 'Put the password into the first line, as plain text.',
    });
  if (line.length > MAX_BYTES) throw wrong(`has a first line of more than ${MAX_BYTES} bytes`);
  if (line.includes(0)) throw wrong('is not plain text');
  const password = decoded(line);
  if (password === '') throw wrong('has no password in its first line');
  return password;
}

/** UTF-8, with or without a mark at its beginning; a file that is none was saved in Latin-1. */
function decoded(line: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(line);
  } catch {
    return line.toString('latin1');
  }
}
