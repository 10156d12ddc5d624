/**
 * Files that ask for much more than they are. Each ends soon with what can be read, or with a code; the pages beside the
 * bomb are read.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { extractPages } from '../../../../src/jobs/document/activities.js';
import { openCheckpoint, type PageRecord } from '../../../../src/jobs/document/pages/checkpoint.js';
import type { Ocr } from '../../../../src/jobs/document/pages/ocr.js';
import { checkReadable, MAX_PIXELS, readPages } from '../../../../src/jobs/document/pages/read-pages.js';
import type { PageImage } from '../../../../src/jobs/document/pages/pdf.js';
import { openPdf, PDF_LIMITS } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { openSession } from '../../../support/document-session.js';
import { GOOD_PAGE, makeBomb, type Bomb } from '../../../support/pdf.js';

/**
 * Short, so that the tests are: a page that is not done by then never is. The good pages beside it are done in time on a busy
 * machine too; they are not drawn.
 */
const LIMITS = { ...PDF_LIMITS, textMs: 5_000, renderMs: 1_000 };
const MIB = 1024 ** 2;
/** What this process may take beyond what it has: pdfium's limit of 1 GiB, and room for the rest. */
const MAX_GROWTH_BYTES = 1500 * MIB;

let directory: string;
let controller: AbortController;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-bomb-'));
  controller = new AbortController();
});

afterEach(async () => {
  controller.abort(new Error('the test is over'));
  await rm(directory, { recursive: true, force: true });
});

/** Reads a bomb with an engine that sees only the size of what was drawn. */
async function read(kind: Bomb): Promise<{ records: PageRecord[]; drawn: PageImage[]; total: number }> {
  const path = join(directory, 'bomb.pdf');
  await writeFile(path, makeBomb(kind));
  const { signal } = controller;
  const drawn: PageImage[] = [];
  const ocr: Ocr = {
    engine: 'npm',
    versions: {},
    recognize: (image) => {
      drawn.push(image);
      return Promise.resolve({ text: '', confidence: 0 });
    },
    close: () => Promise.resolve(),
  };
  const before = process.memoryUsage.rss();
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 50);
  const reader = await openPdf({ path, name: 'bomb.pdf', signal, limits: LIMITS });
  const checkpoint = await openCheckpoint(join(directory, 'pages.checkpoint'), {});
  try {
    const records = await readPages({ reader, ocr, lanes: 2, dpi: 200, checkpoint, signal });
    expect(most - before).toBeLessThan(MAX_GROWTH_BYTES);
    return { records, drawn, total: reader.pages };
  } finally {
    clearInterval(watch);
    await checkpoint.close();
    await reader.close();
  }
}

describe('a page', () => {
  it.each<[string, Bomb]>([
    ['with a picture of 100,000 x 100,000 pixels behind two filters', 'image'],
    ['whose content inflates to four gigabytes behind two filters', 'content'],
    ['whose forms draw themselves and each other', 'forms'],
    ['whose forms draw ten to the power of twelve others', 'nested'],
    ['with a million objects', 'objects'],
  ])('%s costs that page at most', async (_what, kind) => {
    const { records, drawn } = await read(kind);
    expect(records.map(({ page }) => page)).toEqual([1, 2, 3]);
    expect([records[0]?.text, records[2]?.text]).toEqual([GOOD_PAGE, GOOD_PAGE]);
    const [, bomb] = records;
    if (bomb?.method === 'failed') {
      expect(bomb.error).toMatch(/^pdfium (gave no answer within [\d.]+ s|ran out of its 1024 MiB of memory)/);
    } else {
      expect(bomb?.method).toBe('empty');
    }
    for (const { width, height } of drawn) expect(width * height).toBeLessThanOrEqual(MAX_PIXELS);
    expect(() => checkReadable('bomb.pdf', records)).not.toThrow();
  });
});

describe('a page tree', () => {
  it('that contains itself gives each page that can be loaded', async () => {
    const { records, total } = await read('loop');
    expect(total).toBe(3);
    expect(records[0]).toMatchObject({ method: 'text', text: GOOD_PAGE });
    for (const record of records) {
      if (record.method !== 'text') expect(record.error).toBe('pdfium can not load the page');
    }
  });

  it('that promises 10,000 pages ends with the reason, and not after the last of them', async () => {
    const session = await openSession();
    try {
      await writeFile(join(session.scratch, 'document.pdf'), makeBomb('pages'));
      const document = { name: 'bomb.pdf', bytes: 1, sha256: '0'.repeat(64) };
      const reading = (): Promise<unknown> => session.run(extractPages, { document, language: 'eng' });
      await expect(reading()).rejects.toMatchObject({ type: 'TooManyPages', nonRetryable: true });
      // Were so many taken: most can not be loaded.
      vi.stubEnv('ATLAS_DOCUMENT_MAX_PAGES', '10000');
      await expect(reading()).rejects.toMatchObject({
        type: 'PageFailed',
        message: expect.stringMatching(
          /^5001 of the 10000 pages of bomb.pdf could not be read; the first is page 4/,
        ) as string,
      });
    } finally {
      vi.unstubAllEnvs();
      await session.close();
    }
  });
});
