/**
 * What an OCR engine is, and which one reads the pages of a session.
 */
import type { OcrEngine } from '../../../contract/document.js';
import { failure } from '../failure.js';
import type { PageImage } from './pdf.js';
import { halve, turn } from './picture.js';

export interface Recognized {
  readonly text: string;
  /** 0 to 100: the mean confidence of its words. 0 when there are none. */
  readonly confidence: number;
}

/** An engine. Each call is bounded in time, and ends with the signal that the engine was opened with. */
export interface Ocr {
  readonly engine: 'native' | 'npm';
  /** Names and versions of what it runs, for the report. */
  readonly versions: Readonly<Record<string, string>>;
  /** A picture of the page, for the caller to keep, when the engine has a better way to it than pdfium; null otherwise. */
  render?(page: number, wanted: RenderWish): Promise<PageImage | null>;
  recognize(image: PageImage): Promise<Recognized>;
  close(): Promise<void>;
}

export interface RenderWish {
  readonly width: number;
  readonly height: number;
  readonly dpi: number;
}

export interface OcrOptions {
  readonly engine: OcrEngine;
  /** Such as `eng` or `eng+fra`. */
  readonly language: string;
  /**
   * The document, for an engine that renders by itself. Absent for one that opens with a password only: a program would
   * have to be given it on its command line, which every user of the host can read.
   */
  readonly path?: string;
  /** How many pages are recognized at a time. */
  readonly lanes: number;
  /** How much memory one run of an installed program may take. */
  readonly memoryBytes: number;
  /** A directory for the engine's own files. */
  readonly directory: string;
  readonly signal: AbortSignal;
}

/** tesseract's own codes: `eng`, `chi_sim`, `script/Latin` is not among them as it is a path. */
const LANGUAGE = /^[a-z][a-z0-9_]{1,30}(\+[a-z][a-z0-9_]{1,30}){0,4}$/i;

/**
 * Opens the engine that the configuration asks for; with `auto` the installed tesseract when it is there and knows the
 * language, since it takes half the CPU of the npm packages for the same result.
 *
 * @throws ApplicationFailure `ToolMissing` that names what to install.
 */
export async function openOcr(options: OcrOptions): Promise<Ocr> {
  const { language } = options;
  if (!LANGUAGE.test(language)) {
    throw failure('ToolMissing', `"${language}" is not a language code of tesseract.`, {
      next: 'Give codes such as `eng`, or several as `eng+fra`.',
    });
  }
  const wanted = language.split('+');
  const missing: string[] = [];
  const names: string[] = [];
  if (options.engine !== 'npm') {
    const { findTesseract, openNative } = await import('./ocr-native.js');
    const found = await findTesseract(options);
    if (found === null) {
      if (options.engine === 'native') {
        throw failure(
          'ToolMissing',
          'tesseract is not on the PATH of this worker, and document.ocr_engine is "native".',
          {
            next: 'Install tesseract (Debian: `tesseract-ocr`), or set document.ocr_engine to auto.',
          },
        );
      }
    } else {
      const unknown = wanted.filter((code) => !found.languages.includes(code));
      if (unknown.length === 0) return await openNative(found, options);
      missing.push(...unknown);
      names.push(
        ...unknown.map((code) => `the data of tesseract (Debian: \`tesseract-ocr-${code.replaceAll('_', '-')}\`)`),
      );
    }
  }
  if (options.engine !== 'native') {
    const { findData, openNpm } = await import('./ocr-npm.js');
    const unknown = wanted.filter((code) => findData(code) === null);
    if (unknown.length === 0) return await openNpm(options);
    missing.push(...unknown);
    names.push(...unknown.map((code) => `the npm package \`@tesseract.js-data/${code}\``));
  }
  throw failure('ToolMissing', `This worker has no OCR data for ${[...new Set(missing)].join(', ')}.`, {
    next: `Install on the worker ${names.join(', or ')}, or choose another --language.`,
  });
}

/** The time that OCR of one page may take. A dense page takes 3 s; a hostile one would take for ever. */
export const OCR_PAGE_MS = 120_000;

/** An upright page has a confidence of about 90 and a turned one of about 30. */
const TURNED_BELOW = 60;
/** Letters of some hundred pixels, as on a poster, are read with less. */
const TOO_LARGE_BELOW = 90;
const HALVINGS = 2;

/** After this long with one page it is not tried again. */
const TRIES_MS = 60_000;

/**
 * Recognizes a page, and tries again with another picture of it where the engine is not sure of what it saw: the other
 * three ways up, as tesseract.js does not see that a page is turned, and tesseract sees it of pages with enough text
 * only; and a lower resolution where the page is so large that its letters may be, too. The surest result counts.
 */
export async function recognizePage(ocr: Ocr, image: PageImage, isLarge: boolean): Promise<Recognized> {
  const begunAt = performance.now();
  let best = await ocr.recognize(image);
  const again = async (below: number, picture: () => PageImage): Promise<void> => {
    if (best.confidence >= below || performance.now() - begunAt > TRIES_MS) return;
    const seen = await ocr.recognize(picture());
    if (seen.confidence > best.confidence) best = seen;
  };
  if (isLarge) {
    let smaller = image;
    for (let round = 0; round < HALVINGS; round += 1) await again(TOO_LARGE_BELOW, () => (smaller = halve(smaller)));
  }
  for (const quarters of [1, 3, 2] as const) await again(TURNED_BELOW, () => turn(image, quarters));
  return best;
}
