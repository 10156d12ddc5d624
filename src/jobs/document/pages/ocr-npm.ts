/**
 * OCR by the npm packages alone: tesseract.js with the language data of `@tesseract.js-data`, and no network.
 *
 * Its defaults would fetch the data from a public server, write it into the working directory, and end the process on
 * an error; each option below closes one of these. Its threads are kept, as one takes half a second to start, and replaced
 * after a page that took too long, broke one or was very large, and after many pages.
 */
import { mkdir, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Worker as NodeWorker } from 'node:worker_threads';
import type Tesseract from 'tesseract.js';
import { inTime } from '../../../contract/in-time.js';
import { messageOf, systemCode } from '../failure.js';
import { cleanOcr } from './layer.js';
import { OCR_PAGE_MS, type Ocr, type OcrOptions, type Recognized } from './ocr.js';
import type { PageImage } from './pdf.js';
import { threadScript } from './thread.js';

const START_MS = 60_000;
/** What an engine takes of memory for a picture with more bytes, WebAssembly never gives back: another takes its place. */
const MAX_ORDINARY_BYTES = 8_000_000;
/** Of pictures, after which another takes its place in any case. A new thread takes 0.45 s: 0.2 % of the time. */
const BYTES_PER_ENGINE = 400_000_000;

/** The directory with the data of a language, or null. The package's main file points at other, larger data. */
export function findData(language: string): string | null {
  try {
    const manifest = createRequire(import.meta.url).resolve(`@tesseract.js-data/${language}/package.json`);
    return join(dirname(manifest), '4.0.0_best_int');
  } catch {
    return null;
  }
}

/** One directory with the data of all languages: tesseract.js takes one only. */
async function dataDirectory(language: string, directory: string): Promise<string> {
  const codes = language.split('+');
  const single = findData(language);
  if (codes.length === 1 && single !== null) return single;
  const joined = join(directory, 'tessdata');
  await mkdir(joined, { recursive: true });
  for (const code of codes) {
    const file = `${code}.traineddata.gz`;
    await symlink(join(findData(code) ?? '', file), join(joined, file)).catch((error: unknown) => {
      if (systemCode(error) !== 'EEXIST') throw error;
    });
  }
  return joined;
}

export async function openNpm(options: OcrOptions): Promise<Ocr> {
  const { signal } = options;
  const langPath = await dataDirectory(options.language, options.directory);
  const idle: Engine[] = [];
  const all = new Set<Engine>();
  let closed = false;

  const take = async (): Promise<Engine> => {
    const waiting = idle.pop();
    if (waiting !== undefined) return waiting;
    const engine = await startEngine(options.language, langPath);
    if (closed || signal.aborted) {
      await engine.end();
      signal.throwIfAborted();
      throw new Error('OCR is closed.');
    }
    all.add(engine);
    return engine;
  };
  const drop = async (engine: Engine): Promise<void> => {
    all.delete(engine);
    await engine.end();
  };
  const close = async (): Promise<void> => {
    closed = true;
    signal.removeEventListener('abort', onAbort);
    await Promise.all([...all].map(drop));
  };
  const onAbort = (): void => void close();
  signal.addEventListener('abort', onAbort, { once: true });

  const once = async (pgm: Uint8Array): Promise<Recognized> => {
    signal.throwIfAborted();
    const engine = await take();
    try {
      const result = await engine.recognize(pgm, signal);
      if (engine.isWorn) await drop(engine);
      else idle.push(engine);
      return result;
    } catch (error) {
      await drop(engine);
      throw error;
    }
  };

  return {
    engine: 'npm',
    versions: { 'tesseract.js': packageVersion('tesseract.js') },
    recognize: (image: PageImage) => once(image.pgm),
    close,
  };
}

interface Engine {
  /** It has read so much that another shall take its place. */
  readonly isWorn: boolean;
  recognize(pgm: Uint8Array, signal: AbortSignal): Promise<Recognized>;
  end(): Promise<void>;
}

async function startEngine(language: string, langPath: string): Promise<Engine> {
  const tesseract = (await import('tesseract.js')).default;
  let fail: (error: Error) => void = () => undefined;
  const broken = new Promise<never>((_resolve, reject) => {
    fail = reject;
  });
  broken.catch(() => undefined);
  const starting = tesseract.createWorker(language, tesseract.OEM.LSTM_ONLY, {
    langPath,
    gzip: true,
    cacheMethod: 'none',
    workerPath: fileURLToPath(threadScript('ocr-npm-thread')),
    // Without a handler any failure is thrown where nobody can catch it, and the process ends.
    errorHandler: (error: unknown) => fail(new Error(`tesseract.js failed: ${messageOf(error)}`)),
  });
  const worker = await within(Promise.race([starting, broken]), START_MS, 'tesseract.js did not start');
  const thread = (worker as Tesseract.Worker & { readonly worker: NodeWorker }).worker;
  thread.on('error', (error) => fail(new Error(`tesseract.js failed: ${error.message}`)));
  thread.on('exit', () => fail(new Error('tesseract.js ended')));
  // Its default takes a page for one block of text and reads straight across columns.
  const automatic = worker.setParameters({ tessedit_pageseg_mode: tesseract.PSM.AUTO });
  await within(Promise.race([automatic, broken]), START_MS, 'tesseract.js did not start');
  let input = new SharedArrayBuffer(0);
  let left = BYTES_PER_ENGINE;
  return {
    get isWorn() {
      return left <= 0;
    },
    async recognize(pgm, signal) {
      if (input.byteLength !== pgm.byteLength) input = new SharedArrayBuffer(pgm.byteLength);
      new Uint8Array(input).set(pgm);
      left -= pgm.byteLength > MAX_ORDINARY_BYTES ? left : pgm.byteLength;
      // A view of bytes would be copied three times on its way, and each copy wait for the garbage collector. That it
      // takes a whole buffer as it is is not in its types.
      const work = Promise.race([worker.recognize(input as unknown as Buffer), broken]);
      const { data } = await within(work, OCR_PAGE_MS, 'tesseract.js gave no answer', signal);
      const text = cleanOcr(data.text);
      return { text, confidence: text === '' ? 0 : data.confidence };
    },
    async end() {
      await thread.terminate();
    },
  };
}

async function within<T>(work: Promise<T>, ms: number, what: string, signal?: AbortSignal): Promise<T> {
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal?.reason as Error);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await inTime(Promise.race([work, aborted]), ms, () => {
      throw new Error(`${what} within ${ms / 1000} s`);
    });
  } finally {
    if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort);
  }
}

function packageVersion(name: string): string {
  const manifest = createRequire(import.meta.url)(`${name}/package.json`) as { readonly version?: unknown };
  return typeof manifest.version === 'string' ? manifest.version : 'unknown';
}
