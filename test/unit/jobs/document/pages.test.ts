import { appendFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openCheckpoint, type PageRecord } from '../../../../src/jobs/document/pages/checkpoint.js';
import type { Ocr, Recognized } from '../../../../src/jobs/document/pages/ocr.js';
import {
  checkReadable,
  countPages,
  pagesJsonl,
  plainText,
  readPages,
  type ReadOptions,
} from '../../../../src/jobs/document/pages/read-pages.js';
import type { PageFacts } from '../../../../src/jobs/document/pages/pdf.js';
import type { PdfReader } from '../../../../src/jobs/document/pages/pdf-reader.js';

const IDENTITY = { sha256: 'abc', language: 'eng' };
const PROSE = 'The tide sets the working day of the harbour.';

let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-pages-'));
  path = join(directory, 'pages.checkpoint');
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

function facts(text: string): PageFacts {
  const pictures = text === '' ? 1 : 0;
  return { width: 595, height: 842, text, characters: text.length, unmapped: 0, objects: 1, pictures };
}

interface Script {
  /** The text layer of each page; an error is thrown. */
  readonly layers: readonly (string | Error)[];
  readonly recognize?: (page: number) => Recognized | Promise<Recognized>;
  readonly signal?: AbortSignal;
}

/** Reads a document that is only an array, and notes what was asked of whom. */
async function read(
  script: Script,
): Promise<{ records: PageRecord[]; asked: number[]; drawn: number[]; pictures: Uint8Array[]; most: number }> {
  const asked: number[] = [];
  const drawn: number[] = [];
  const pictures: Uint8Array[] = [];
  let now = 0;
  let most = 0;
  const reader: PdfReader = {
    pages: script.layers.length,
    needsPassword: false,
    facts: (page) => {
      asked.push(page);
      const layer = script.layers[page - 1] ?? '';
      return layer instanceof Error ? Promise.reject(layer) : Promise.resolve(facts(layer));
    },
    // The page number travels in the width.
    render: (page) => {
      drawn.push(page);
      const pgm = new Uint8Array(100_000);
      pictures.push(pgm);
      return Promise.resolve({ pgm, width: page, height: 1, dpi: 200 });
    },
    outline: () => Promise.resolve({ entries: [] }),
    close: () => Promise.resolve(),
  };
  const ocr: Ocr = {
    engine: 'npm',
    versions: {},
    recognize: async (image) => {
      now += 1;
      most = Math.max(most, now);
      try {
        return (await script.recognize?.(image.width)) ?? { text: `Scanned page ${image.width}.`, confidence: 95 };
      } finally {
        now -= 1;
      }
    },
    close: () => Promise.resolve(),
  };
  const checkpoint = await openCheckpoint(path, IDENTITY);
  const options: ReadOptions = {
    reader,
    ocr,
    lanes: 2,
    dpi: 200,
    checkpoint,
    signal: script.signal ?? new AbortController().signal,
  };
  try {
    return { records: await readPages(options), asked, drawn, pictures, most };
  } finally {
    await checkpoint.close();
  }
}

const methods = (records: readonly PageRecord[]): string[] => records.map(({ method }) => method);

describe('reading pages', () => {
  it('decides page by page, and keeps their order', async () => {
    const { records } = await read({
      layers: ['', PROSE, '', PROSE],
      recognize: (page) =>
        new Promise((resolve) => setImmediate(resolve, { text: `Scan ${page} here`, confidence: 90 })),
    });
    expect(methods(records)).toEqual(['ocr', 'text', 'ocr', 'text']);
    expect(records.map(({ page }) => page)).toEqual([1, 2, 3, 4]);
    expect(records[2]).toMatchObject({ text: 'Scan 3 here', confidence: 90, why: 'no text layer' });
  });

  it('keeps no picture of a page that is read', async () => {
    const { pictures } = await read({ layers: ['', ''] });
    expect(pictures.map(({ byteLength }) => byteLength)).toEqual([0, 0]);
  });

  it('recognizes no more pages at a time than there are lanes, and draws only a few ahead', async () => {
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const started: number[] = [];
    const reading = read({
      layers: Array.from({ length: 12 }, () => ''),
      recognize: async (page) => {
        started.push(page);
        if (started.length === 2) release();
        await held;
        return { text: `Scan ${page} here`, confidence: 90 };
      },
    });
    await held;
    const { records, most } = await reading;
    expect(most).toBe(2);
    expect(countPages(records)).toEqual({ total: 12, text: 0, ocr: 12, failed: 0, empty: 0 });
  });

  it('goes on after a page that fails, whichever way', async () => {
    const { records } = await read({
      layers: [new Error('pdfium gave no answer within 30 s'), '', PROSE, PROSE],
      recognize: () => Promise.reject(new Error('tesseract took longer than 120 s')),
    });
    expect(methods(records)).toEqual(['failed', 'failed', 'text', 'text']);
    expect(records[0]?.error).toBe('pdfium gave no answer within 30 s');
    expect(records[1]?.error).toBe('tesseract took longer than 120 s');
    expect(() => checkReadable('a.pdf', records)).not.toThrow();
  });

  it('takes what OCR sees in a photograph for nothing', async () => {
    const { records } = await read({ layers: ['', PROSE], recognize: () => ({ text: '~ | i \\ .', confidence: 31 }) });
    expect(records[0]).toMatchObject({ method: 'empty', text: '', confidence: 31 });
  });

  it('keeps a short text layer where OCR finds no more', async () => {
    const layers = ['Chapter 9'];
    const run = (text: string): Script => ({ layers, recognize: () => ({ text, confidence: 80 }) });
    expect((await read(run('Chapter g'))).records[0]).toMatchObject({ method: 'text', text: 'Chapter 9' });
  });

  it('stops at an abort with its reason, and records no page for it', async () => {
    const controller = new AbortController();
    const reason = new Error('released');
    const reading = read({
      layers: [PROSE, ''],
      signal: controller.signal,
      recognize: () => {
        controller.abort(reason);
        throw new Error('killed');
      },
    });
    await expect(reading).rejects.toBe(reason);
    expect((await readFile(path, 'utf8')).split('\n')).toHaveLength(3);
  });
});

describe('the checkpoint', () => {
  it('lets a second attempt read only the pages that are missing', async () => {
    const layers = [PROSE, '', PROSE, ''];
    const controller = new AbortController();
    const first = read({
      layers,
      signal: controller.signal,
      recognize: (page) => {
        if (page === 4) controller.abort(new Error('killed'));
        return { text: `Scan ${page} here`, confidence: 90 };
      },
    });
    await expect(first).rejects.toThrow('killed');
    const { records, asked } = await read({ layers });
    expect(asked).not.toContain(1);
    expect(asked).not.toContain(3);
    expect(methods(records)).toEqual(['text', 'ocr', 'text', 'ocr']);
  });

  it('drops a line that was being written when the process died', async () => {
    const { records } = await read({ layers: [PROSE, PROSE, PROSE] });
    const line = JSON.stringify({ ...records[2], page: 4 });
    await appendFile(path, line.slice(0, line.length / 2));
    const again = await read({ layers: [PROSE, PROSE, PROSE, PROSE] });
    expect(again.asked).toEqual([4]);
    expect(methods(again.records)).toEqual(['text', 'text', 'text', 'text']);
    // What was appended after the torn line must be readable too.
    expect((await read({ layers: [PROSE, PROSE, PROSE, PROSE] })).asked).toEqual([]);
  });

  it('is begun anew for another document', async () => {
    await read({ layers: [PROSE] });
    const other = await openCheckpoint(path, { ...IDENTITY, sha256: 'other' });
    expect(other.done.size).toBe(0);
    await other.close();
  });
});

describe('a document', () => {
  const record = (method: PageRecord['method'], page: number): PageRecord => ({
    page,
    method,
    confidence: 0,
    text: method === 'text' ? 'Words.' : '',
    why: '',
    ms: 1,
    ...(method === 'failed' ? { error: 'broken' } : {}),
  });

  it('fails when more than half of its pages failed', () => {
    const half = [record('failed', 1), record('text', 2)];
    expect(() => checkReadable('a.pdf', half)).not.toThrow();
    expect(() => checkReadable('a.pdf', [...half, record('failed', 3)])).toThrow(
      expect.objectContaining({
        type: 'PageFailed',
        message: '2 of the 3 pages of a.pdf could not be read; the first is page 1: broken.',
      }),
    );
  });

  it('fails when nothing on it can be read', () => {
    expect(() => checkReadable('a.pdf', [record('empty', 1), record('empty', 2)])).toThrow(
      expect.objectContaining({ type: 'NothingReadable' }),
    );
  });

  it('becomes one JSON object per page, and text with a form feed between pages', () => {
    const records = [record('text', 1), record('failed', 2)];
    expect(
      pagesJsonl(records)
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      { page: 1, method: 'text', confidence: 0, text: 'Words.' },
      { page: 2, method: 'failed', confidence: 0, text: '', error: 'broken' },
    ]);
    expect(plainText(records).split('\f')).toHaveLength(2);
  });
});
