import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readSentences } from '../../../../src/jobs/document/summary/clean.js';
import {
  backMatterPages,
  cleanTitle,
  sectionsOf,
  sentencesOfSections,
  type Outline,
} from '../../../../src/jobs/document/summary/outline.js';
import { openPdf, PDF_LIMITS, readOutline, type PdfReader } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { runAtOnce } from '../../../../src/jobs/document/summary/slices.js';
import { makePdf, makePdfWithBookmarks, type TestBookmark } from '../../../support/pdf.js';

const PAGES = ['one', 'two', 'three'].map((number) => [`This is the page with the number ${number}.`]);

describe('the bookmarks of a PDF', () => {
  let directory: string;
  let reader: PdfReader | undefined;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'atlas-outline-'));
  });

  afterEach(async () => {
    await reader?.close();
    reader = undefined;
    await rm(directory, { recursive: true });
  });

  async function open(pdf: Buffer, outlineMs = PDF_LIMITS.outlineMs): Promise<PdfReader> {
    const path = join(directory, 'a.pdf');
    await writeFile(path, pdf);
    reader = await openPdf({
      path,
      name: 'a.pdf',
      signal: new AbortController().signal,
      limits: { ...PDF_LIMITS, outlineMs },
    });
    return reader;
  }

  const outlineOf = async (...bookmarks: TestBookmark[]): Promise<Outline> =>
    await (await open(makePdfWithBookmarks(PAGES, bookmarks))).outline();

  it('are read in order, with their levels and pages', async () => {
    const outline = await outlineOf(
      { title: 'Das Häfchen 港', level: 1, page: 1 },
      { title: 'The mole', level: 2, page: 2 },
      { title: 'Its light', level: 3, page: 2, byAction: true },
      { title: 'The master', level: 2, page: 3 },
      { title: 'Address', level: 1 },
      { title: 'Other file', level: 1, toFile: true },
      { title: 'Index', level: 1, page: 3 },
    );
    expect(outline).toEqual({
      entries: [
        { title: 'Das Häfchen 港', level: 1, page: 1 },
        { title: 'The mole', level: 2, page: 2 },
        { title: 'Its light', level: 3, page: 2 },
        { title: 'The master', level: 2, page: 3 },
        { title: 'Address', level: 1, page: null },
        { title: 'Other file', level: 1, page: null },
        { title: 'Index', level: 1, page: 3 },
      ],
    });
  });

  it('are none where there are none', async () => {
    expect(await (await open(makePdf(PAGES))).outline()).toEqual({ entries: [] });
  });

  it('have titles without what acts on a terminal, on one line, of bounded length', async () => {
    const { entries } = await outlineOf(
      { title: 'Red \u009b[31m\u0007 \u202Eand\r\n back', level: 1, page: 1 },
      { title: '\u0000\u0001', level: 1, page: 1 },
      { title: 'long '.repeat(200), level: 1, page: 1 },
      { title: 'x'.repeat(100_000), level: 1, page: 1 },
    );
    expect(entries.map(({ title }) => title)).toEqual([
      'Red [31m and back',
      expect.stringMatching(/^long (?:long )+.*…$/),
    ]);
    expect(entries[1]?.title).toHaveLength(200);
  });

  it.each([
    ['itself', { next: 0 }],
    ['an earlier one', { first: 0 }],
  ])('that lead to %s end', async (_, loop) => {
    const { entries } = await outlineOf(
      { title: 'A', level: 1, page: 1, ...('next' in loop ? loop : {}) },
      { title: 'B', level: 1, page: 2, ...('first' in loop ? loop : {}) },
    );
    expect(entries.length).toBeLessThanOrEqual(2);
    expect(entries[0]).toEqual({ title: 'A', level: 1, page: 1 });
  });

  it('are at most 500, and at most 8 deep', async () => {
    const many = Array.from({ length: 600 }, (_, index) => ({ title: `Part ${index}`, level: 1, page: 1 }));
    const outline = await outlineOf(...many);
    expect(outline.entries).toHaveLength(500);
    expect(outline.truncated).toBe(true);
    await reader?.close();
    const deep = Array.from({ length: 12 }, (_, index) => ({ title: `Level ${index}`, level: index + 1, page: 1 }));
    expect((await outlineOf(...deep)).entries).toHaveLength(8);
  });

  it('that take too long are an error, and the pages are read all the same', async () => {
    const many = Array.from({ length: 2000 }, (_, index) => ({ title: `Part ${index}`, level: 1, page: 1 }));
    const pdf = await open(makePdfWithBookmarks(PAGES, many), 1);
    await expect(pdf.outline()).rejects.toThrow('pdfium gave no answer within 0.001 s');
    expect((await pdf.facts(2)).text).toContain('number two');
    const { signal } = new AbortController();
    expect(await readOutline(pdf, signal)).toEqual({ entries: [], error: 'pdfium gave no answer within 0.001 s' });
    const reason = new Error('released');
    await expect(readOutline(pdf, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});

describe('the sections', () => {
  const entry = (title: string, level: number, page: number | null): Outline['entries'][number] => ({
    title,
    level,
    page,
  });

  it('are those of the outermost level that has two', () => {
    const entries = [
      entry('The book', 1, 1),
      entry('First', 2, 2),
      entry('Detail', 3, 3),
      entry('Second', 2, 5),
      entry('Link', 1, null),
    ];
    expect(sectionsOf({ entries }, 9)).toEqual([
      { title: 'First', firstPage: 2, lastPage: 4 },
      { title: 'Second', firstPage: 5, lastPage: 9 },
    ]);
    expect(sectionsOf({ entries: entries.slice(0, 2) }, 9)).toEqual([]);
  });

  it('have a page each, also where two begin on one or they are out of order', () => {
    expect(sectionsOf({ entries: [entry('C', 1, 4), entry('A', 1, 1), entry('B', 1, 1)] }, 4)).toEqual([
      { title: 'A', firstPage: 1, lastPage: 1 },
      { title: 'B', firstPage: 1, lastPage: 3 },
      { title: 'C', firstPage: 4, lastPage: 4 },
    ]);
  });

  it('of sources and registers are told by their titles', () => {
    const sections = sectionsOf(
      { entries: [entry('Text', 1, 1), entry('7 References', 1, 3), entry('INDEX', 1, 4)] },
      5,
    );
    expect([...backMatterPages(sections)]).toEqual([3, 4, 5]);
  });

  it('begin at their titles, in the middle of a page', () => {
    const says = (what: string): string => `The ${what} of the harbour is described in this part of the book.`;
    const pages = [
      { page: 1, text: `1. The Mole\n${says('mole')}\n${says('light')}` },
      { page: 2, text: `${says('stone')}\n2. The Master\n${says('master')}` },
      { page: 3, text: says('book') },
    ];
    const sections = sectionsOf({ entries: [entry('The Mole', 1, 1), entry('2 The Master', 1, 2)] }, 3);
    const { sentences, headings } = runAtOnce(readSentences(pages, { headings: sections }));
    const parts = sentencesOfSections(sections, sentences, headings);
    expect(parts.map((part) => part.map(({ text }) => /^The (\w+)/.exec(text)?.[1]))).toEqual([
      ['mole', 'light', 'stone'],
      ['master', 'book'],
    ]);
  });
});

it('a title has no half of a character at its end', () => {
  const title = cleanTitle('𝒜'.repeat(300));
  expect([...title]).toHaveLength(200);
  expect(Buffer.from(title).toString()).toBe(title);
});
