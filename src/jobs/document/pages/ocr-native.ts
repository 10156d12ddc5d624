/**
 * OCR by the installed tesseract, and pictures by the installed pdftoppm where it is there.
 *
 * pdftoppm rather than pdfium, when both are there: on scans it takes 0.20 s of CPU against 0.29 s (8-megapixel JPEG at
 * 200 dpi), and as a process it renders beside the other lanes instead of in turn in the one pdfium thread. Where it
 * fails, takes too long or refuses a file that pdfium opens, pdfium renders the page.
 */
import { cleanOcr } from './layer.js';
import { OCR_PAGE_MS, type Ocr, type OcrOptions, type Recognized, type RenderWish } from './ocr.js';
import type { PageImage } from './pdf.js';
import { runTool, ToolError } from './tool.js';

const ASK_MS = 20_000;
const MAX_ANSWER_BYTES = 1024 * 1024;
/** A dense page has some 100 KB of TSV. */
const MAX_TSV_BYTES = 32 * 1024 * 1024;
/** Short: pdftoppm hangs for minutes on files that pdfium draws in a moment, and pdfium is asked then. */
const PDFTOPPM_MS = 20_000;
/** After these a document is not one for pdftoppm, and each further try would cost its time limit. */
const MAX_PDFTOPPM_FAILURES = 3;
const PGM_HEADER_BYTES = 64;
/** An upright page has a confidence of about 90, and one that is upside down of about 35. */
const UNSURE_BELOW = 60;
/** Modes of page segmentation. */
const AUTOMATIC = '3';
const AUTOMATIC_WITH_ORIENTATION = '1';

/** What each run of a program needs, besides what it runs. */
type ToolOptions = Pick<OcrOptions, 'memoryBytes' | 'signal'>;

export interface Tesseract {
  readonly version: string;
  readonly languages: readonly string[];
}

/** The tesseract on PATH, or null. */
export async function findTesseract({ memoryBytes, signal }: ToolOptions): Promise<Tesseract | null> {
  const ask = async (argument: string): Promise<string | null> => {
    try {
      const { stdout, stderr } = await runTool({
        command: 'tesseract',
        args: [argument],
        timeoutMs: ASK_MS,
        memoryBytes,
        maxOutputBytes: MAX_ANSWER_BYTES,
        signal,
      });
      // Which of the two it writes to differs between versions.
      return `${Buffer.from(stdout).toString('utf8')}\n${stderr}`;
    } catch (error) {
      if (error instanceof ToolError) return null;
      throw error;
    }
  };
  const version = await ask('--version');
  const languages = version === null ? null : await ask('--list-langs');
  if (version === null || languages === null) return null;
  return {
    version: /tesseract v?(\S+)/.exec(version)?.[1] ?? 'unknown',
    languages: languages
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => /^[A-Za-z0-9_/]+$/.test(line)),
  };
}

async function findPdftoppm({ memoryBytes, signal }: ToolOptions): Promise<string | null> {
  try {
    const { stdout, stderr } = await runTool({
      command: 'pdftoppm',
      args: ['-v'],
      timeoutMs: ASK_MS,
      memoryBytes,
      maxOutputBytes: MAX_ANSWER_BYTES,
      signal,
    });
    return /version (\S+)/.exec(`${Buffer.from(stdout).toString('utf8')}\n${stderr}`)?.[1] ?? 'unknown';
  } catch (error) {
    if (error instanceof ToolError) return null;
    throw error;
  }
}

export async function openNative(tesseract: Tesseract, options: OcrOptions): Promise<Ocr> {
  const { signal, language, path, memoryBytes } = options;
  const pdftoppm = path === undefined ? null : await findPdftoppm(options);
  let failures = 0;
  const once = async (image: PageImage, pageSegmentation: string): Promise<Recognized> => {
    const { stdout } = await runTool({
      command: 'tesseract',
      // No --dpi: PGM carries no resolution, and what tesseract estimates from the text served it a little better on
      // two of four pages than the true one, and the same on the others.
      args: ['stdin', 'stdout', '-l', language, '--psm', pageSegmentation, 'tsv'],
      input: image.pgm,
      timeoutMs: OCR_PAGE_MS,
      memoryBytes,
      maxOutputBytes: MAX_TSV_BYTES,
      signal,
    });
    return readTsv(Buffer.from(stdout).toString('utf8'));
  };
  return {
    engine: 'native',
    versions: { tesseract: tesseract.version, ...(pdftoppm === null ? {} : { pdftoppm }) },
    async render(page: number, wanted: RenderWish): Promise<PageImage | null> {
      if (pdftoppm === null || path === undefined || failures >= MAX_PDFTOPPM_FAILURES) return null;
      try {
        const { stdout } = await runTool({
          command: 'pdftoppm',
          args: [
            // The crop box is what a viewer shows, and what pdfium draws.
            ...['-gray', '-cropbox', '-f', String(page), '-l', String(page)],
            ...['-scale-to-x', String(wanted.width), '-scale-to-y', String(wanted.height), path],
          ],
          timeoutMs: PDFTOPPM_MS,
          memoryBytes,
          maxOutputBytes: wanted.width * wanted.height + PGM_HEADER_BYTES,
          signal,
        });
        // A file that it can not open may still end with exit code 0 and nothing written.
        if (stdout[0] !== 0x50 || stdout[1] !== 0x35) return null;
        return { pgm: stdout, ...wanted };
      } catch (error) {
        if (!(error instanceof ToolError)) throw error;
        failures += 1;
        return null;
      }
    },
    async recognize(image: PageImage): Promise<Recognized> {
      const seen = await once(image, AUTOMATIC);
      if (seen.text === '' || seen.confidence >= UNSURE_BELOW || !tesseract.languages.includes('osd')) return seen;
      // Asking for the orientation of every page takes 15 to 40 % more time, and an upright one does not need it.
      // Without the data for it tesseract fails when asked.
      const turned = await once(image, AUTOMATIC_WITH_ORIENTATION);
      return turned.confidence > seen.confidence ? turned : seen;
    },
    close: () => Promise.resolve(),
  };
}

/** Columns of tesseract's TSV. */
const LEVEL = 0;
const BLOCK = 2;
const PARAGRAPH = 3;
const LINE = 4;
const CONFIDENCE = 10;
const TEXT = 11;
const WORD_LEVEL = '5';

/** The text and the mean confidence from tesseract's TSV: one run gives both, where `txt` would need a second. */
export function readTsv(tsv: string): Recognized {
  let text = '';
  let last: { paragraph: string; line: string } | undefined;
  let sum = 0;
  let words = 0;
  for (const row of tsv.split('\n')) {
    const cells = row.split('\t');
    const word = cells[TEXT]?.trim();
    if (cells[LEVEL] !== WORD_LEVEL || word === undefined || word === '') continue;
    const paragraph = `${cells[BLOCK] ?? ''}.${cells[PARAGRAPH] ?? ''}`;
    const line = cells[LINE] ?? '';
    if (last !== undefined) text += last.paragraph !== paragraph ? '\n\n' : last.line !== line ? '\n' : ' ';
    text += word;
    last = { paragraph, line };
    const confidence = Number(cells[CONFIDENCE]);
    if (confidence >= 0) {
      sum += confidence;
      words += 1;
    }
  }
  return { text: cleanOcr(text), confidence: words === 0 ? 0 : Math.round((sum / words) * 10) / 10 };
}
