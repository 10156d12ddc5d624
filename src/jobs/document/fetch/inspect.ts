/**
 * Whether the file that came is a whole PDF that can be opened, so that a later step need not blame the document for the
 * transfer, and what is wrong with it shows while whoever gave it still waits.
 */
import { open } from 'node:fs/promises';
import { failure, isFailure } from '../failure.js';
import { openPdf } from '../pages/pdf-reader.js';

/** Where readers look for the header and the end mark. */
const HEADER_BYTES = 1024;
const TRAILER_BYTES = 2048;
/** As much of a file that is no PDF as a message quotes. */
const QUOTED_BYTES = 24;

export interface Inspection {
  readonly path: string;
  readonly name: string;
  readonly password?: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * @throws ApplicationFailure `EmptyFile`, `NotAPdf`, `TruncatedFile`, `InvalidPdf`, `PasswordRequired`, `PasswordWrong`,
 * `UnsupportedEncryption`.
 */
export async function inspectPdf({ path, name, password, signal }: Inspection): Promise<void> {
  const handle = await open(path, 'r');
  let head: Buffer;
  let tail: Buffer;
  let size: number;
  try {
    ({ size } = await handle.stat());
    head = Buffer.alloc(Math.min(HEADER_BYTES, size));
    await handle.read(head, 0, head.length, 0);
    tail = Buffer.alloc(Math.min(TRAILER_BYTES, size));
    await handle.read(tail, 0, tail.length, size - tail.length);
  } finally {
    await handle.close();
  }
  if (size === 0) throw failure('EmptyFile', `${name} has no bytes.`);
  if (!head.includes('%PDF-')) throw failure('NotAPdf', `${name} is not a PDF: it begins with ${quoted(head)}.`);
  // Some programs write no end mark, so a file without one has a say: what opens is whole enough. Any other file is
  // opened as well, since its password may be needed, and whoever gave the document still waits.
  try {
    await (await openPdf({ path, name, password, signal })).close();
  } catch (error) {
    if (!isFailure(error, 'InvalidPdf') || tail.includes('%%EOF')) throw error;
    throw failure(
      'TruncatedFile',
      `${name} ends before the PDF does: its ${size} bytes have no end mark and no readable structure.`,
    );
  }
}

function quoted(head: Buffer): string {
  const text = head.subarray(0, QUOTED_BYTES).toString('latin1');
  return JSON.stringify(text.replace(/[^\x20-\x7E]/g, '.'));
}
