import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Pdf } from '../../../../src/jobs/document/pages/pdf.js';
import { openPdf, PDF_LIMITS, type PdfLimits, type PdfReader } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { makeGlyphPdf, makePdf, makePicturesPdf } from '../../../support/pdf.js';

const SAMPLE = fileURLToPath(new URL('../../../../examples/sample.pdf', import.meta.url));
const MAX_PIXELS = 25_000_000;
/** Of a scan of 72 MB. */
const PICTURES = 18;
const PICTURE_SIDE = 2_000;

let controller: AbortController;
let reader: PdfReader | undefined;

beforeEach(() => {
  controller = new AbortController();
});

afterEach(async () => {
  await reader?.close();
  reader = undefined;
});

async function open(limits: Partial<PdfLimits> = {}, path = SAMPLE): Promise<PdfReader> {
  reader = await openPdf({
    path,
    name: 'sample.pdf',
    signal: controller.signal,
    limits: { ...PDF_LIMITS, ...limits },
  });
  return reader;
}

describe('a PDF', () => {
  it('gives the facts of each page', async () => {
    const pdf = await open();
    expect(pdf.pages).toBe(5);
    expect(await pdf.facts(1)).toMatchObject({ width: 595, height: 842, unmapped: 0 });
    expect((await pdf.facts(1)).text).toContain('How a Small Harbour Works');
    expect(await pdf.facts(3)).toMatchObject({ text: '', characters: 0, objects: 1, pictures: 1 });
  });

  it('is drawn in grey, at the wanted resolution or what the budget allows', async () => {
    const pdf = await open();
    const image = await pdf.render(3, 100, MAX_PIXELS);
    expect(image).toMatchObject({ width: 826, height: 1169, dpi: 100 });
    const header = Buffer.from('P5\n826 1169\n255\n');
    expect(Buffer.from(image.pgm.subarray(0, header.length))).toEqual(header);
    expect(image.pgm).toHaveLength(header.length + 826 * 1169);
    const small = await pdf.render(3, 100, 10_000);
    expect(small.width * small.height).toBeLessThanOrEqual(10_000);
  });

  it('is not in memory whole after its pictures were drawn, and goes on as before', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'atlas-pdf-'));
    const path = join(folder, 'scan.pdf');
    await writeFile(path, makePicturesPdf(PICTURES, PICTURE_SIDE));
    const pdf = await Pdf.open(path);
    try {
      const draw = (index: number): Buffer => Buffer.from(pdf.render(index, 18, MAX_PIXELS).pgm);
      const first = draw(0);
      for (let index = 1; index < PICTURES; index += 1) draw(index);
      const pictures = PICTURES * PICTURE_SIDE ** 2;
      // 17 MB are its own from the start.
      expect(pdf.heapBytes).toBeLessThan(pictures);
      expect(draw(0)).toEqual(first);
      expect(pdf.facts(1)).toMatchObject({ objects: 1, pictures: 1 });
    } finally {
      pdf.close();
      await rm(folder, { recursive: true });
    }
  });

  it('answers questions that are asked at the same time', async () => {
    const pdf = await open();
    const facts = await Promise.all([1, 2, 3, 4, 5].map((page) => pdf.facts(page)));
    expect(facts.map(({ characters }) => characters > 0)).toEqual([true, true, false, true, false]);
  });
});

describe('a page', () => {
  it('that takes too long costs that page only', async () => {
    const pdf = await open({ renderMs: 1 });
    await expect(pdf.render(3, 300, MAX_PIXELS)).rejects.toThrow('pdfium gave no answer within 0.001 s');
    expect((await pdf.facts(1)).characters).toBeGreaterThan(1000);
  });

  it('that does not exist is an error, and the next one is read', async () => {
    const pdf = await open();
    await expect(pdf.facts(99)).rejects.toThrow('pdfium can not load the page');
    expect((await pdf.facts(2)).characters).toBeGreaterThan(1000);
  });

  it('that left pdfium with too much memory is followed by a fresh one', async () => {
    const pdf = await open({ heapBytes: 1 });
    for (const page of [1, 2, 4]) expect((await pdf.facts(page)).characters).toBeGreaterThan(1000);
  });
});

describe('an abort', () => {
  it('ends what is running, with its reason', async () => {
    const pdf = await open();
    const reason = new Error('released');
    const drawing = pdf.render(3, 300, MAX_PIXELS);
    controller.abort(reason);
    await expect(drawing).rejects.toBe(reason);
    await expect(pdf.facts(1)).rejects.toBe(reason);
  });
});

it('the letters of a right-to-left ligature come in their order, however the font tells them', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atlas-pdf-'));
  try {
    // From left to right: meem, lam-alef, seen.
    for (const ligature of ['\u0644\u0627', '\uFEFB']) {
      const path = join(directory, 'a.pdf');
      await writeFile(path, makeGlyphPdf(['\u0645', ligature, '\u0633']));
      const pdf = await open({}, path);
      expect((await pdf.facts(1)).text).toBe('\u0633\u0644\u0627\u0645');
      await pdf.close();
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});

it('a file that is gone can not be opened, and says so', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atlas-pdf-'));
  const path = join(directory, 'a.pdf');
  await writeFile(path, makePdf([['Hello']]));
  await expect(open({}, join(directory, 'missing.pdf'))).rejects.toMatchObject({ type: 'InvalidPdf' });
  expect((await open({}, path)).pages).toBe(1);
  await rm(directory, { recursive: true });
});
