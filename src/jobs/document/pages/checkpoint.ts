/**
 * The pages that are done, one line each, on the session's scratch disk: an attempt that follows a killed one goes on
 * at the first page that is missing.
 *
 * The first line says what the pages belong to; a file of another document, language or engine is begun anew. A line
 * that was being written when the process died is cut off. Lines are not synced one by one: what was written outlives
 * the process, and a host that loses power loses its session anyway.
 */
import { open, readFile, truncate, type FileHandle } from 'node:fs/promises';
import { systemCode } from '../failure.js';
import { diskFailure } from '../files.js';

export type PageMethod = 'text' | 'ocr' | 'failed' | 'empty';

/** One page of the result. */
export interface PageRecord {
  /** From 1. */
  readonly page: number;
  readonly method: PageMethod;
  /** 0 to 100 as the OCR engine sees it; 100 for a text layer. */
  readonly confidence: number;
  readonly text: string;
  /** Why this method, in a few words. */
  readonly why: string;
  /** What went wrong, with the method `failed`. */
  readonly error?: string;
  /** How long the page took, in milliseconds, and what drew it. */
  readonly ms: number;
  readonly renderer?: string;
  /** The resolution of the picture, when the page was too large for the wanted one. */
  readonly dpi?: number;
}

export interface Checkpoint {
  readonly done: ReadonlyMap<number, PageRecord>;
  add(record: PageRecord): Promise<void>;
  close(): Promise<void>;
}

/** @param identity What the pages depend on: the document's hash, the language, the engine. */
export async function openCheckpoint(path: string, identity: Readonly<Record<string, string>>): Promise<Checkpoint> {
  const header = JSON.stringify({ checkpoint: 1, ...identity });
  const done = new Map<number, PageRecord>();
  const existing = await readExisting(path);
  const lines = existing.split('\n');
  // What follows the last line end is torn, and empty when nothing is.
  lines.pop();
  let handle: FileHandle;
  if (lines[0] === header) {
    let keep = Buffer.byteLength(header) + 1;
    for (const line of lines.slice(1)) {
      const record = parse(line);
      if (record === null) break;
      done.set(record.page, record);
      keep += Buffer.byteLength(line) + 1;
    }
    await truncate(path, keep);
    handle = await open(path, 'a', 0o600);
  } else {
    handle = await open(path, 'w', 0o600);
    await handle.writeFile(`${header}\n`);
  }
  // Two appends at once could be interleaved when one is cut short; each waits for the one before.
  let last: Promise<void> = Promise.resolve();
  return {
    done,
    add(record) {
      const mine = last.then(async () => {
        try {
          await handle.writeFile(`${JSON.stringify(record)}\n`);
        } catch (error) {
          throw diskFailure(error, `writing ${path}`);
        }
        done.set(record.page, record);
      });
      last = mine.catch(() => undefined);
      return mine;
    },
    async close() {
      await last;
      await handle.close();
    },
  };
}

async function readExisting(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return '';
    throw error;
  }
}

function parse(line: string): PageRecord | null {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || !('page' in value) || !('method' in value)) return null;
  return typeof value.page === 'number' && 'text' in value && typeof value.text === 'string'
    ? (value as PageRecord)
    : null;
}
