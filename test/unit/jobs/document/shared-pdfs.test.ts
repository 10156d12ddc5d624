/**
 * Real files of every kind, where they are at hand: a folder of public PDFs beside the repository, with an index of what
 * is right for each. Their licences do not allow them in the project, which makes its own for the other tests.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { downloadDocument, extractPages } from '../../../../src/jobs/document/activities.js';
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
}

const LINN = ['LinnSequencer', '32 Track MIDI'];

const EXPECTED: Readonly<Record<string, Expectation>> = {
  'normal-1p.pdf': { methods: 'text', pages: 1, has: ['Lorem ipsum dolor sit amet'] },
  'normal-4p.pdf': { methods: 'text', pages: 4 },
  'two-column-hyphens.pdf': { methods: 'text', pages: 3, hasNot: ['\uFFFE', '\r'] },
  'three-column-15p.pdf': { methods: 'text', pages: 15, has: ['notices to the public of the proposed issuance'] },
  'many-pages-117.pdf': { methods: 'text', pages: 117 },
  'scan-public-domain-1p.pdf': { methods: 'ocr', has: ['tip-toeing along a path', 'Miss Watson'] },
  'scan-jbig2.pdf': { methods: 'ocr', has: LINN },
  'scan-ccitt.pdf': { methods: 'ocr', has: LINN },
  'scan-rotate90-skew.pdf': { methods: 'ocr', has: LINN },
  'jpx-photo-no-text.pdf': { fails: 'NothingReadable' },
  'scan-with-ocr-layer.pdf': { methods: 'text', has: ['LinnSequencer'] },
  'scan-mrc-jpx-jbig2-ocr-layer.pdf': { methods: 'text', pages: 6 },
  'mixed-text-and-scan-6p.pdf': {
    methods: ['ocr', 'ocr', 'ocr', 'text', 'text', 'text'],
    has: [1, 2, 3, 4, 5, 6].map((page) => `This is a multi page document. Page ${page}.`),
  },
  'mixed-within-page.pdf': { methods: 'text', has: ['This is some normal text'] },
  'outlined-text-no-fonts.pdf': { methods: 'ocr', has: ['Sample Vector PDF for Testing'] },
  'tagged-no-text.pdf': { methods: 'ocr', has: ['This is a test.'] },
  'encrypted-user-pw-test.pdf': { fails: 'PasswordRequired' },
  'encrypted-aes256-empty-pw.pdf': { methods: 'text', has: ['pdf encryption test'] },
  'encrypted-rc4-user-pw.pdf': { fails: 'PasswordRequired' },
  'encrypted-poppler-silent-empty.pdf': { fails: 'PasswordRequired' },
  'broken-xref.pdf': { methods: 'text', has: ['Beautiful is better than ugly.'] },
  'malformed-invoice.pdf': { methods: 'text', pages: 2, has: ['Invoice number'] },
  'unterminated-trailer.pdf': { fails: 'InvalidPdf' },
  'zero-pages.pdf': { fails: 'EmptyDocument' },
  'header-then-eof.pdf': { fails: 'InvalidPdf' },
  'truncated-60pct.pdf': { fails: 'TruncatedFile' },
  'rotated-table.pdf': { methods: 'text' },
  'rtl-arabic-rotated-4p.pdf': { methods: 'text', pages: 4, has: ['habibi', /\p{Script=Arabic}/u] },
  'cjk-vertical-japanese.pdf': { methods: 'text', has: ['みんなのおのおの'] },
  'cjk-japanese-cmap.pdf': { methods: 'text', has: ['マーケットモデル'] },
  'cjk-90ms-rksj.pdf': { methods: 'text', has: ['日本語テスト'] },
  'garbage-encoding-truetype.pdf': { methods: 'ocr', has: ['Phone'] },
  'garbage-encoding-byteswapped.pdf': { methods: 'ocr', has: ['Multicolor Black'] },
  'garbage-encoding-controls.pdf': { methods: 'ocr', has: ['Odfjell Drilling'] },
  'huge-image-35000px.pdf': { methods: 'ocr' },
  'decompression-bomb.pdf': { methods: 'text', has: ['GIANT JBIG2 BOMB'] },
  'recursive-xobjects.pdf': { methods: 'text', has: ['Hello world'] },
  'form-values.pdf': { methods: 'text', has: ['Please enter your name'] },
};

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

  it.each(Object.entries(EXPECTED))('%s', async (name, expected) => {
    const path = join(FOLDER, name);
    const content = await readFile(path);
    const run = async (): Promise<void> => {
      const document = await session.run(downloadDocument, {
        kind: 'file',
        path,
        bytes: content.length,
        sha256: createHash('sha256').update(content).digest('hex'),
      });
      await session.run(extractPages, { document, language: 'eng' });
    };
    if (expected.fails !== undefined) {
      await expect(run()).rejects.toMatchObject({ type: expected.fails, nonRetryable: true });
      return;
    }
    await run();
    const pages = (await readFile(join(session.scratch, 'pages.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { method: string; text: string });
    const { methods, pages: count } = expected;
    if (count !== undefined) expect(pages).toHaveLength(count);
    expect(pages.map(({ method }) => method)).toEqual(typeof methods === 'string' ? pages.map(() => methods) : methods);
    const text = pages.map((page) => page.text).join('\n');
    const loose = text.replace(/\s+/g, ' ');
    for (const wanted of expected.has ?? []) expect(loose).toMatch(asPattern(wanted));
    for (const unwanted of expected.hasNot ?? []) expect(text).not.toMatch(asPattern(unwanted));
  });
});

function asPattern(wanted: string | RegExp): RegExp {
  return wanted instanceof RegExp ? wanted : new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
}
