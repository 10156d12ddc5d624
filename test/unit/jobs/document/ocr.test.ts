/**
 * Both engines on the scanned pages of the sample, against what those pages say; and what is left when an engine is
 * stopped.
 */
import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { makeSample, SAMPLE_PAGES } from '../../../../examples/make-sample.mjs';
import { openOcr, recognizePage, type Ocr } from '../../../../src/jobs/document/pages/ocr.js';
import { readTsv } from '../../../../src/jobs/document/pages/ocr-native.js';
import { pixelSize, type PageImage } from '../../../../src/jobs/document/pages/pdf.js';
import { openPdf, type PdfReader } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { halve, turn } from '../../../../src/jobs/document/pages/picture.js';

const SAMPLE = fileURLToPath(new URL('../../../../examples/sample.pdf', import.meta.url));
const DPI = 200;
const MAX_PIXELS = 25_000_000;

function installed(command: string, ...args: string[]): boolean {
  try {
    execFileSync(command, args, { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const hasTesseract = installed('tesseract', '--version');
const hasPdftoppm = installed('pdftoppm', '-v');
const canUnshare = installed('unshare', '--map-root-user', '--net', 'true');

let directory: string;
let controller: AbortController;
let reader: PdfReader;
let ocr: Ocr | undefined;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-ocr-'));
  controller = new AbortController();
  reader = await openPdf({ path: SAMPLE, name: 'sample.pdf', signal: controller.signal });
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await ocr?.close();
  ocr = undefined;
  await reader.close();
  await rm(directory, { recursive: true, force: true });
});

async function open(engine: 'auto' | 'native' | 'npm', language = 'eng'): Promise<Ocr> {
  ocr = await openOcr({
    engine,
    language,
    path: SAMPLE,
    lanes: 2,
    memoryBytes: 2 ** 30,
    directory,
    signal: controller.signal,
  });
  return ocr;
}

/** The share of characters that are wrong, white space aside: the edit distance by the length of the truth. */
function errorRate(text: string, truth: string): number {
  const [a, b] = [text, truth].map((value) => value.replace(/\s+/g, '')) as [string, string];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return (row[b.length] ?? 0) / b.length;
}

function truthOf(page: number): string {
  return ['Port Ellery: notes on a harbour', ...(SAMPLE_PAGES[page - 1]?.paragraphs ?? []), String(page)].join('\n');
}

/** Of the sample at 200 dpi both engines make about 2 errors in 1000 characters. */
const MAX_ERROR_RATE = 0.01;

describe('the npm engine', () => {
  it('reads a scanned page without a network, and leaves nothing in the working directory', async () => {
    const before = await readdir('.');
    const engine = await open('npm');
    const page = await engine.recognize(await reader.render(3, DPI, MAX_PIXELS));
    expect(errorRate(page.text, truthOf(3))).toBeLessThan(MAX_ERROR_RATE);
    expect(page.confidence).toBeGreaterThan(85);
    expect(await readdir('.')).toEqual(before);
    expect(await readdir(directory)).toEqual([]);
  });

  it.skipIf(!canUnshare)(
    `reads where there is no network at all${canUnshare ? '' : ' (unshare is not permitted here)'}`,
    async () => {
      const picture = join(directory, 'page.pgm');
      await writeFile(picture, (await reader.render(5, 100, MAX_PIXELS)).pgm);
      const module = new URL('../../../../dist/jobs/document/pages/ocr-npm.js', import.meta.url).href;
      const script = `
        const { openNpm } = await import(${JSON.stringify(module)});
        const { readFileSync } = await import('node:fs');
        const { networkInterfaces } = await import('node:os');
        const ocr = await openNpm({ language: 'eng', directory: '.', signal: new AbortController().signal });
        const { text } = await ocr.recognize({ pgm: readFileSync('page.pgm') });
        await ocr.close();
        console.log(JSON.stringify({ text, networks: Object.keys(networkInterfaces()) }));`;
      // A file: threads inherit `--input-type`, and then run none.
      await writeFile(join(directory, 'read.mjs'), script);
      const run = promisify(execFile);
      const { stdout } = await run('unshare', ['--map-root-user', '--net', process.execPath, 'read.mjs'], {
        cwd: directory,
        timeout: 100_000,
      });
      const { text, networks } = JSON.parse(stdout) as { text: string; networks: string[] };
      expect(networks).toEqual([]);
      expect(errorRate(text, truthOf(5))).toBeLessThan(0.1);
    },
  );

  it('gives the picture up when it is stopped', async () => {
    const engine = await open('npm');
    const image = await reader.render(3, DPI, MAX_PIXELS);
    const reason = new Error('released');
    const running = engine.recognize(image);
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
  });

  it('survives a picture that is none', async () => {
    const engine = await open('npm');
    const broken = { pgm: new Uint8Array([1, 2, 3]), width: 1, height: 1, dpi: DPI };
    await expect(engine.recognize(broken)).rejects.toThrow();
    const page = await engine.recognize(await reader.render(5, DPI, MAX_PIXELS));
    expect(errorRate(page.text, truthOf(5))).toBeLessThan(MAX_ERROR_RATE);
  });
});

describe.skipIf(!hasTesseract)(`the native engine${hasTesseract ? '' : ' (tesseract is not installed)'}`, () => {
  it('reads a scanned page', async () => {
    const engine = await open('native');
    const page = await engine.recognize(await reader.render(3, DPI, MAX_PIXELS));
    expect(errorRate(page.text, truthOf(3))).toBeLessThan(MAX_ERROR_RATE);
    expect(page.confidence).toBeGreaterThan(85);
    expect(engine.versions['tesseract']).toMatch(/^\d/);
  });

  it.skipIf(!hasPdftoppm)(`draws with pdftoppm${hasPdftoppm ? '' : ' (which is not installed)'}`, async () => {
    const engine = await open('native');
    const wanted = pixelSize(await reader.facts(5), DPI, MAX_PIXELS);
    const image = await engine.render?.(5, wanted);
    expect(image).toMatchObject(wanted);
    expect(errorRate((await engine.recognize(image as PageImage)).text, truthOf(5))).toBeLessThan(MAX_ERROR_RATE);
  });

  it('is the one that "auto" takes', async () => {
    expect((await open('auto')).engine).toBe('native');
  });

  it('leaves no process behind when it is stopped', async () => {
    const engine = await open('native');
    const image = await reader.render(3, DPI, MAX_PIXELS);
    const running = engine.recognize(image);
    running.catch(() => undefined);
    await vi.waitUntil(async () => (await children()).some((name) => name.includes('tesseract')), { timeout: 30_000 });
    const reason = new Error('released');
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    expect(await children()).toEqual([]);
  });
});

describe('a page that the engine is not sure of', () => {
  /** Sees only a picture of the wanted size, and is surer of what it is asked for first the less it sees. */
  function fake(sure: (image: PageImage) => number): { ocr: Ocr; seen: string[] } {
    const seen: string[] = [];
    return {
      seen,
      ocr: {
        engine: 'npm',
        versions: {},
        recognize: (image) => {
          seen.push(`${image.width}x${image.height}`);
          return Promise.resolve({ text: [...image.pgm.subarray(-6)].join(','), confidence: sure(image) });
        },
        close: () => Promise.resolve(),
      },
    };
  }
  const pgm = (pixels: readonly number[], width: number): PageImage => ({
    pgm: Buffer.concat([Buffer.from(`P5\n${width} ${pixels.length / width}\n255\n`), Buffer.from(pixels)]),
    width,
    height: pixels.length / width,
    dpi: DPI,
  });
  const page = pgm([1, 2, 3, 4, 5, 6], 3);

  it('is turned until it is, and the surest way up counts', async () => {
    const { ocr: engine, seen } = fake((image) => (image.pgm.at(-6) === 3 ? 80 : 30));
    expect(await recognizePage(engine, page, false)).toEqual({ text: '3,6,2,5,1,4', confidence: 80 });
    expect(seen).toEqual(['3x2', '2x3', '2x3']);
    const lost = fake((image) => (image.pgm.at(-6) === 6 ? 40 : 30));
    expect(await recognizePage(lost.ocr, page, false)).toEqual({ text: '6,5,4,3,2,1', confidence: 40 });
    expect(lost.seen).toHaveLength(4);
  });

  it('is looked at once when the engine is sure', async () => {
    const { ocr: engine, seen } = fake(() => 89);
    await recognizePage(engine, page, false);
    expect(seen).toEqual(['3x2']);
  });

  it('is made smaller when it is a large one', async () => {
    const { ocr: engine, seen } = fake((image) => (image.width === 2 ? 95 : 80));
    const large = pgm([10, 20, 30, 40, 20, 30, 40, 50, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 9, 9], 4);
    expect(await recognizePage(engine, large, true)).toEqual({ text: '20,40,1,1,9,9', confidence: 95 });
    expect(seen).toEqual(['4x6', '2x3']);
  });

  it('keeps its pixels, whichever way it is turned', () => {
    const pixels = (image: PageImage): number[] => [...image.pgm.subarray(-image.width * image.height)];
    expect(pixels(turn(page, 1))).toEqual([4, 1, 5, 2, 6, 3]);
    expect(pixels(turn(page, 2))).toEqual([6, 5, 4, 3, 2, 1]);
    expect(pixels(turn(turn(page, 1), 3))).toEqual(pixels(page));
    expect(Buffer.from(turn(page, 1).pgm).toString('latin1')).toMatch(/^P5\n2 3\n255\n/);
    expect(halve(pgm([7], 1))).toMatchObject({ width: 1, height: 1 });
  });

  it.each(hasTesseract ? (['native', 'npm'] as const) : (['npm'] as const))('lies on its side: %s', async (name) => {
    const engine = await open(name);
    const seen = await recognizePage(engine, turn(await reader.render(5, DPI, MAX_PIXELS), 3), false);
    expect(errorRate(seen.text, truthOf(5))).toBeLessThan(MAX_ERROR_RATE);
  });
});

describe('the choice of an engine', () => {
  it('falls back to the npm packages where tesseract is not on the PATH', async () => {
    vi.stubEnv('PATH', directory);
    expect((await open('auto')).engine).toBe('npm');
  });

  it('fails with the reason when tesseract is asked for and is not there', async () => {
    vi.stubEnv('PATH', directory);
    await expect(open('native')).rejects.toMatchObject({
      type: 'ToolMissing',
      details: [{ next: expect.stringContaining('tesseract-ocr') as string }],
    });
  });

  it('names both ways to a language that neither engine has', async () => {
    await expect(open('auto', 'tlh')).rejects.toMatchObject({
      type: 'ToolMissing',
      details: [{ next: expect.stringContaining('@tesseract.js-data/tlh') as string }],
    });
  });
});

describe('the output of tesseract', () => {
  it('becomes lines and paragraphs, with the mean confidence of the words', () => {
    const row = (block: number, paragraph: number, line: number, confidence: number, text: string): string =>
      ['5', '1', block, paragraph, line, '1', '0', '0', '0', '0', confidence, text].join('\t');
    const tsv = [
      'level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext',
      '4\t1\t1\t1\t1\t0\t0\t0\t0\t0\t-1\t',
      row(1, 1, 1, 90, 'The'),
      row(1, 1, 1, 80, 'har-'),
      row(1, 1, 2, 100, 'bour'),
      row(1, 2, 1, 90, 'Next'),
      '',
    ].join('\n');
    expect(readTsv(tsv)).toEqual({ text: 'The harbour\n\nNext', confidence: 90 });
    expect(readTsv('')).toEqual({ text: '', confidence: 0 });
  });
});

it('the sample is what its script makes', async () => {
  const [made, committed] = await Promise.all([makeSample(), readFile(SAMPLE)]);
  // Another version of zlib may pack the same pages into other bytes.
  expect(Math.abs(made.length - committed.length)).toBeLessThan(committed.length * 0.05);
  expect(made.subarray(0, 8)).toEqual(committed.subarray(0, 8));
});

/** The command lines of this process's children that have not ended. */
async function children(): Promise<string[]> {
  const names: string[] = [];
  for (const task of await readdir('/proc/self/task')) {
    const list = await readFile(`/proc/self/task/${task}/children`, 'utf8').catch(() => '');
    for (const pid of list.split(' ').filter((entry) => entry !== '')) {
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      // A zombie has none, and neither has one that ended meanwhile. The builder that vitest keeps is none of ours.
      if (command !== '' && !command.includes('esbuild')) names.push(command.replaceAll('\0', ' '));
    }
  }
  return names;
}
