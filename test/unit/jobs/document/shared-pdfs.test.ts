/**
 * Real files of every kind, where they are at hand: a folder of public PDFs beside the repository, with an index of what
 * is right for each. Their licences do not allow them in the project, which makes its own for the other tests.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { downloadDocument, extractPages, summarizeDocument } from '../../../../src/jobs/document/activities.js';
import { openPdf } from '../../../../src/jobs/document/pages/pdf-reader.js';
import type { DownloadedDocument } from '../../../../src/jobs/document/steps.js';
import { openSession, type TestSession } from '../../../support/document-session.js';

const FOLDER = fileURLToPath(new URL('../../../../../shared/pdfs', import.meta.url));
const isThere = existsSync(FOLDER);

interface Expectation {
  /** The method of each page, or of all of them. */
  readonly methods?: string | readonly string[];
  /** A code that the job ends with. */
  readonly fails?: string;
  readonly pages?: number;
  /** What the text has, white space aside. */
  readonly has?: readonly (string | RegExp)[];
  readonly hasNot?: readonly (string | RegExp)[];
  /** What follows one another in the text, white space aside: the order of columns. */
  readonly inOrder?: readonly string[];
  /** What each page has, white space aside. */
  readonly onEachPage?: readonly (string | RegExp)[];
  /** What no sentence of a summary has: running heads, slug lines. */
  readonly summaryHasNot?: RegExp;
  /** The resolution that the first page was drawn with, as it is too large for the wanted one. */
  readonly dpi?: number;
  /** With this password the document is read, and has this text. */
  readonly withPassword?: { readonly password: string; readonly has: string };
  /** Pages need OCR: the document is read by both engines. */
  readonly scan?: 'short' | 'long';
}

const LINN = ['LinnSequencer', '32 Track MIDI'];

/** Words of the right column of a page must not come before the left one has ended. */
const TWO_COLUMNS = [
  'Lorem ipsum dolor sit amet, consectetuer adipiscing elit. Ut purus elit, vestibulum ut, placerat ac, adipiscing',
  'Vivamus viverra fermentum felis. Donec nonummy pellentesque ante. Phasellus adipiscing semper elit.',
  'molestie nec, leo. Maecenas lacinia. Nam ipsum ligula',
  'ac pulvinar elit purus eget enim.',
];

const EXPECTED: Readonly<Record<string, Expectation>> = {
  'normal-1p.pdf': { methods: 'text', pages: 1, has: ['Lorem ipsum dolor sit amet'] },
  'normal-4p.pdf': { methods: 'text', pages: 4, onEachPage: [/\p{L}{4}/u] },
  'two-column-hyphens.pdf': {
    methods: 'text',
    pages: 3,
    inOrder: TWO_COLUMNS,
    hasNot: ['\uFFFE', '\r', /\p{L}-\n\p{Ll}/u],
  },
  'three-column-15p.pdf': {
    methods: 'text',
    pages: 15,
    has: ['contains notices to the public of the proposed issuance of rules and regulations.'],
    inOrder: [
      // The end of the first column and the beginning of the second, then the second and the third.
      'and altitude disagree alert,5 and may affect the flightcrew’s ability',
      'with assistance from the NTSB and the FAA of the United States, the French Bureau',
      'and the Ethiopian Civil Aviation Authority (ECAA). The data from the flight data recorders',
    ],
  },
  'many-pages-117.pdf': { methods: 'text', pages: 117 },
  'book-352-pages.pdf': { pages: 352, has: ['free culture'], summaryHasNot: /qxd|\d+:\d\d [AP]M|Page \d+/ },
  'scan-public-domain-1p.pdf': { methods: 'ocr', has: ['tip-toeing along a path', 'Miss Watson'], scan: 'long' },
  'scan-jbig2.pdf': { methods: 'ocr', has: LINN, scan: 'long' },
  'scan-ccitt.pdf': { methods: 'ocr', has: LINN, scan: 'long' },
  'scan-rotate90-skew.pdf': { methods: 'ocr', has: LINN, scan: 'long' },
  'scan-4-orientations.pdf': { methods: 'ocr', pages: 4, onEachPage: LINN, scan: 'long' },
  'jpx-photo-no-text.pdf': { fails: 'NothingReadable', scan: 'long' },
  'scan-with-ocr-layer.pdf': { methods: 'text', has: ['LinnSequencer'] },
  'scan-mrc-jpx-jbig2-ocr-layer.pdf': { methods: 'text', pages: 6 },
  'scan-3p-images.pdf': {
    methods: 'ocr',
    pages: 3,
    has: [1, 2, 3].map((page) => `This is a multi page document. Page ${page}.`),
    scan: 'long',
  },
  'mixed-text-and-scan-6p.pdf': {
    methods: ['ocr', 'ocr', 'ocr', 'text', 'text', 'text'],
    has: [1, 2, 3, 4, 5, 6].map((page) => `This is a multi page document. Page ${page}.`),
    scan: 'long',
  },
  'mixed-within-page.pdf': { methods: 'text', has: ['This is some normal text'] },
  'outlined-text-no-fonts.pdf': { methods: 'ocr', has: ['Sample Vector PDF for Testing'], scan: 'short' },
  'tagged-no-text.pdf': { methods: 'ocr', has: ['This is a test.'], scan: 'long' },
  'encrypted-user-pw-test.pdf': {
    fails: 'PasswordRequired',
    withPassword: { password: 'test', has: 'Password Protected PDF test.' },
  },
  'encrypted-aes256-empty-pw.pdf': { methods: 'text', has: ['pdf encryption test'] },
  'encrypted-rc4-user-pw.pdf': {
    fails: 'PasswordRequired',
    withPassword: { password: 'asdfzxcv', has: 'pdf encryption test' },
  },
  // pdfium does not open it with the right password either.
  'encrypted-poppler-silent-empty.pdf': { fails: 'PasswordRequired' },
  'broken-xref.pdf': { methods: 'text', has: ['Beautiful is better than ugly.'] },
  'malformed-invoice.pdf': { methods: 'text', pages: 2, has: ['Invoice number'] },
  'unterminated-trailer.pdf': { fails: 'InvalidPdf' },
  'zero-pages.pdf': { fails: 'EmptyDocument' },
  'header-then-eof.pdf': { fails: 'InvalidPdf' },
  'truncated-60pct.pdf': { fails: 'TruncatedFile' },
  'rotated-table.pdf': {
    methods: 'text',
    inOrder: ['Alabama 18,870 23,022 22,650', 'Alaska 209 3,062 3,209', 'Arizona'],
  },
  'rtl-arabic-rotated-4p.pdf': { methods: 'text', pages: 4, onEachPage: ['habibi', 'حَبيبي'] },
  'cjk-vertical-japanese.pdf': {
    methods: 'text',
    inOrder: [
      '序',
      'わたくしといふ現象は 假定された有機交流電燈の ひとつの青い照明です',
      'みんなのおのおの',
      '宮澤賢治',
    ],
  },
  'cjk-japanese-cmap.pdf': { methods: 'text', has: ['標準 マーケットモデルは 2 次元で説明する'] },
  'cjk-90ms-rksj.pdf': { methods: 'text', has: ['日本語テスト'] },
  'garbage-encoding-truetype.pdf': { methods: 'ocr', has: ['Phone'], scan: 'long' },
  'garbage-encoding-byteswapped.pdf': { methods: 'ocr', has: ['Multicolor Black'], scan: 'long' },
  'garbage-encoding-controls.pdf': { methods: 'ocr', has: ['Odfjell Drilling'], scan: 'long' },
  'huge-page-dims.pdf': {
    methods: 'ocr',
    has: ['9000x9000 pixels at 300', '81 megapixels'],
    dpi: 167,
    scan: 'long',
  },
  'huge-image-35000px.pdf': {
    methods: 'ocr',
    has: ['This is a very big image with a tiny amount of text'],
    dpi: 43,
    scan: 'long',
  },
  'decompression-bomb.pdf': { methods: 'text', has: ['GIANT JBIG2 BOMB'] },
  'recursive-xobjects.pdf': { methods: 'text', has: ['Hello world'] },
  'form-values.pdf': { methods: 'text', has: ['Please enter your name'] },
};

/** Every scan by tesseract.js takes a minute and a half; without this variable it reads a short one only. */
const ALL_SCANS = process.env['TEST_ALL_SCANS'] !== undefined;

/** Turned pages are recognized up to four times. */
const SCAN_MS = 300_000;

function installed(command: string): boolean {
  try {
    execFileSync(command, ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const hasTesseract = installed('tesseract');

describe.skipIf(!isThere)(`real files${isThere ? '' : ' (../shared/pdfs is not there)'}`, () => {
  let session: TestSession;

  beforeEach(async () => {
    session = await openSession();
    vi.stubEnv('ATLAS_DOCUMENT_ALLOW_FILES', FOLDER);
  });

  afterEach(async () => {
    vi.unstubAllEnvs();
    await session.close();
  });

  const read = async (name: string): Promise<DownloadedDocument> => {
    const path = join(FOLDER, name);
    const content = await readFile(path);
    const document = await session.run(downloadDocument, {
      kind: 'file',
      path,
      bytes: content.length,
      sha256: createHash('sha256').update(content).digest('hex'),
    });
    await session.run(extractPages, { document, language: 'eng' });
    return document;
  };

  const check = async (name: string, expected: Expectation): Promise<void> => {
    if (expected.fails !== undefined) {
      await expect(read(name)).rejects.toMatchObject({ type: expected.fails, nonRetryable: true });
      return;
    }
    const document = await read(name);
    const pages = (await readFile(join(session.scratch, 'pages.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { method: string; text: string });
    const { methods, pages: count, dpi } = expected;
    if (count !== undefined) expect(pages).toHaveLength(count);
    if (methods !== undefined) {
      expect(pages.map(({ method }) => method)).toEqual(
        typeof methods === 'string' ? pages.map(() => methods) : methods,
      );
    }
    const text = pages.map((page) => page.text).join('\n');
    for (const wanted of expected.has ?? []) expect(loose(text)).toMatch(asPattern(wanted));
    for (const unwanted of expected.hasNot ?? []) expect(text).not.toMatch(asPattern(unwanted));
    for (const wanted of expected.onEachPage ?? []) {
      for (const page of pages) expect(loose(page.text)).toMatch(asPattern(wanted));
    }
    let at = 0;
    for (const wanted of expected.inOrder ?? []) {
      const found = loose(text).indexOf(wanted, at);
      expect(found, wanted).toBeGreaterThanOrEqual(0);
      at = found + wanted.length;
    }
    if (expected.summaryHasNot !== undefined) {
      const { sentences } = await session.run(summarizeDocument, { document, sentences: 20 });
      expect(sentences).toBe(20);
      expect(await readFile(join(session.scratch, 'summary.md'), 'utf8')).not.toMatch(expected.summaryHasNot);
    }
    if (dpi !== undefined) {
      const notes = JSON.parse(await readFile(join(session.scratch, 'extract.json'), 'utf8')) as {
        pages: { dpi?: number }[];
      };
      expect(notes.pages[0]?.dpi).toBe(dpi);
    }
  };

  it('each have an expectation', async () => {
    const index = await readFile(join(FOLDER, 'index.tsv'), 'utf8');
    const files = index
      .trimEnd()
      .split('\n')
      .slice(1)
      .map((line) => line.split('\t')[0]);
    expect(Object.keys(EXPECTED).sort()).toEqual(files.sort());
  });

  it.each(Object.entries(EXPECTED).filter(([, { scan }]) => scan === undefined))('%s', check);

  describe.each(['native', 'npm'])('by the %s engine', (engine) => {
    const scans = Object.entries(EXPECTED).filter(([, { scan }]) => scan !== undefined);
    const isMissing = engine === 'native' && !hasTesseract;
    it.skipIf(isMissing).each(scans.filter(([, { scan }]) => scan === 'short' || engine === 'native' || ALL_SCANS))(
      `%s${isMissing ? ' (tesseract is not installed)' : ''}`,
      async (name, expected) => {
        vi.stubEnv('ATLAS_DOCUMENT_OCR_ENGINE', engine);
        await check(name, expected);
      },
      SCAN_MS,
    );
  });

  it.skipIf(ALL_SCANS)('the other scans by the npm engine (a minute and a half; set TEST_ALL_SCANS)', ({ skip }) => {
    skip();
  });

  it.each(Object.entries(EXPECTED).filter(([, { withPassword }]) => withPassword !== undefined))(
    '%s with its password',
    async (name, { withPassword }) => {
      const path = join(FOLDER, name);
      const { signal } = session.controller;
      const reader = await openPdf({ path, name, password: withPassword?.password, signal });
      try {
        expect((await reader.facts(1)).text).toContain(withPassword?.has);
      } finally {
        await reader.close();
      }
      await expect(openPdf({ path, name, password: 'wrong', signal })).rejects.toMatchObject({ type: 'PasswordWrong' });
    },
  );
});

function loose(text: string): string {
  return text.replace(/\s+/g, ' ');
}

function asPattern(wanted: string | RegExp): RegExp {
  return wanted instanceof RegExp ? wanted : new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
}
