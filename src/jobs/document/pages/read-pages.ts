/**
 * Reads every page of a document: from its text layer where that can be used, by OCR where it can not.
 *
 * The text layer is read in page order as fast as pdfium gives it; pages for OCR go through a short queue to one lane per
 * core, drawn ahead of the lanes by a little. A page that fails is recorded with its error and the document goes on;
 * too many of them fail the document.
 */
import { availableParallelism } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Checkpoint, PageRecord } from './checkpoint.js';
import { failure, isFailure, messageOf } from '../failure.js';
import { cleanLayer, judgeLayer } from './layer.js';
import { recognizePage, type Ocr, type Recognized } from './ocr.js';
import { pixelSize, type PageFacts, type PageImage } from './pdf.js';
import type { PdfReader } from './pdf-reader.js';
import { giveBack } from './thread.js';

/** The most pixels that a page is drawn with: A1 at 150 dpi. One page of 36 MP took 580 MB. */
export const MAX_PIXELS = 25_000_000;
/** Pages drawn ahead of the OCR lanes: each is some megabytes, and one ahead per lane keeps them busy. */
const AHEAD = 1;
const MAX_LANES = 4;
/** The share of pages that may fail before the document does. */
export const MAX_FAILED_SHARE = 0.5;
/** Below this confidence, and with this few words, what OCR saw is texture and not text: a photograph, say. */
const NOISE_CONFIDENCE = 50;
/** Between the texts of two pages in text.txt; a reader can split there, and so does every pager. */
const PAGE_BREAK = '\n\f\n';

export interface ReadOptions {
  readonly reader: PdfReader;
  readonly ocr: Ocr;
  readonly lanes: number;
  readonly dpi: number;
  readonly checkpoint: Checkpoint;
  readonly signal: AbortSignal;
  readonly onPage?: (done: number, record: PageRecord) => void;
}

export interface PageCounts {
  readonly total: number;
  readonly text: number;
  readonly ocr: number;
  readonly failed: number;
  readonly empty: number;
}

/** One lane per core, within reason: OCR is bound by the CPU. */
export function ocrLanes(): number {
  return Math.max(1, Math.min(availableParallelism(), MAX_LANES));
}

/**
 * Reads the pages that the checkpoint does not have, and returns all of them in order; fewer when so many have failed
 * that the document does, whatever the others hold.
 */
export async function readPages(options: ReadOptions): Promise<PageRecord[]> {
  const { reader, checkpoint, signal } = options;
  const lanes = limiter(options.lanes);
  const queue = limiter(options.lanes * (1 + AHEAD));
  const running = new Set<Promise<void>>();
  let broken: { readonly error: unknown } | undefined;

  let failed = 0;

  const record = async (page: PageRecord): Promise<void> => {
    if (page.method === 'failed') failed += 1;
    await checkpoint.add(page);
    options.onPage?.(checkpoint.done.size, page);
  };

  const missing: number[] = [];
  for (let page = 1; page <= reader.pages; page += 1) if (!checkpoint.done.has(page)) missing.push(page);
  // One page ahead: pdfium reads the next one while this one is judged and recorded.
  let ahead = askForFacts(reader, missing[0]);
  for (const [index, page] of missing.entries()) {
    if (broken !== undefined || failed > reader.pages * MAX_FAILED_SHARE) break;
    signal.throwIfAborted();
    const { facts, error, ms } = await ahead;
    ahead = askForFacts(reader, missing[index + 1]);
    if (facts === undefined) {
      signal.throwIfAborted();
      await record(failedPage(page, 'the page can not be read', error, ms));
      continue;
    }
    const text = cleanLayer(facts.text);
    const verdict = judgeLayer(facts, text);
    if (verdict.use === 'text') {
      await record({ page, method: 'text', confidence: 100, text, why: verdict.why, ms });
      continue;
    }
    if (verdict.use === 'nothing') {
      await record({ page, method: 'empty', confidence: 0, text: '', why: verdict.why, ms });
      continue;
    }
    await queue.enter();
    const task = readByOcr(options, lanes, { page, facts, layer: text, why: verdict.why })
      .then(record)
      .catch((error: unknown) => {
        broken ??= { error };
      })
      .finally(() => {
        queue.leave();
        running.delete(task);
      });
    running.add(task);
  }
  await Promise.all(running);
  signal.throwIfAborted();
  if (broken !== undefined) throw broken.error;
  await nextTurn();
  return [...checkpoint.done.values()].sort((a, b) => a.page - b.page);
}

interface FactsAnswer {
  readonly facts?: PageFacts;
  /** Why there are none. */
  readonly error?: unknown;
  readonly ms: number;
}

/** Never rejects: nobody may be waiting yet when the answer comes. */
async function askForFacts(reader: PdfReader, page: number | undefined): Promise<FactsAnswer> {
  const begunAt = performance.now();
  const ms = (): number => Math.round(performance.now() - begunAt);
  if (page === undefined) return { ms: 0 };
  try {
    const facts = await reader.facts(page);
    return { facts, ms: ms() };
  } catch (error) {
    return { error, ms: ms() };
  }
}

interface OcrTask {
  readonly page: number;
  readonly facts: PageFacts;
  /** What the text layer has, little as it is. */
  readonly layer: string;
  readonly why: string;
}

async function readByOcr(options: ReadOptions, lanes: Limiter, task: OcrTask): Promise<PageRecord> {
  const { ocr, reader, signal } = options;
  const { page, facts, why } = task;
  // The time spent on the page, without the time it waited for a lane.
  let spentMs = 0;
  const timed = async <T>(work: () => Promise<T>): Promise<T> => {
    const begunAt = performance.now();
    try {
      return await work();
    } finally {
      spentMs += performance.now() - begunAt;
    }
  };
  const wanted = pixelSize(facts, options.dpi, MAX_PIXELS);
  const drawn: PageImage[] = [];
  const draw = async (): Promise<PageImage> => {
    const image = await timed(() => reader.render(page, options.dpi, MAX_PIXELS));
    drawn.push(image);
    return image;
  };
  try {
    let renderer = 'engine';
    // An engine draws by a program, which takes a core as recognizing does: with more of them than cores each is slower.
    const drawnByEngine =
      ocr.render === undefined ? null : await lanes.run(() => timed(async () => await ocr.render?.(page, wanted)));
    let image: PageImage | null = drawnByEngine ?? null;
    if (image !== null) {
      drawn.push(image);
    } else {
      renderer = 'pdfium';
      image = await draw();
    }
    const isLarge = wanted.dpi < options.dpi;
    let seen = await lanes.run(() => timed(() => recognizePage(ocr, image, isLarge)));
    if (seen.text === '' && renderer !== 'pdfium') {
      // Other programs draw nothing, without an error, where they do not support what the page uses.
      renderer = 'pdfium';
      const again = await draw();
      seen = await lanes.run(() => timed(() => recognizePage(ocr, again, isLarge)));
    }
    // Not after a failure: what was to be given to a program that was killed may still be on its way.
    for (const { pgm } of drawn) giveBack(pgm);
    const ms = Math.round(spentMs);
    const reduced = isLarge ? { dpi: Math.round(wanted.dpi) } : {};
    return { page, ...chooseText(task, seen), ms, renderer: rendererName(ocr, renderer), ...reduced };
  } catch (error) {
    signal.throwIfAborted();
    // A failure of the catalogue is not about this page.
    if (isFailure(error)) throw error;
    return failedPage(page, why, error, Math.round(spentMs));
  }
}

function rendererName(ocr: Ocr, renderer: string): string {
  return renderer === 'engine' && 'pdftoppm' in ocr.versions ? 'pdftoppm' : 'pdfium';
}

/** What a page says after OCR: what the engine saw, the little that the text layer had, or nothing. */
function chooseText(task: OcrTask, seen: Recognized): Pick<PageRecord, 'method' | 'confidence' | 'text' | 'why'> {
  const { confidence } = seen;
  const readable = isReadable(seen);
  const layerIsPlausible = task.layer !== '' && judgeLayer({ ...task.facts, pictures: 0 }, task.layer).use === 'text';
  if (layerIsPlausible && (!readable || seen.text.length < task.layer.length * 2)) {
    return { method: 'text', confidence: 100, text: task.layer, why: 'OCR found no more than the text layer' };
  }
  if (!readable) {
    const found = seen.text === '' ? 'OCR found nothing' : `OCR found nothing readable (confidence ${confidence})`;
    return { method: 'empty', confidence, text: '', why: `${task.why}; ${found}` };
  }
  return { method: 'ocr', confidence, text: seen.text, why: task.why };
}

function isReadable({ text, confidence }: Recognized): boolean {
  const words = text.split(/\s+/).filter((word) => /\p{L}{2,}|\p{N}/u.test(word));
  if (words.length === 0) return false;
  return confidence >= NOISE_CONFIDENCE;
}

function failedPage(page: number, why: string, error: unknown, ms: number): PageRecord {
  return { page, method: 'failed', confidence: 0, text: '', why, error: messageOf(error), ms };
}

export function countPages(records: readonly PageRecord[]): PageCounts {
  const count = (method: PageRecord['method']): number => records.filter((record) => record.method === method).length;
  return {
    total: records.length,
    text: count('text'),
    ocr: count('ocr'),
    failed: count('failed'),
    empty: count('empty'),
  };
}

/**
 * @param total The pages of the document, of which the records may be the first.
 * @throws ApplicationFailure `PageFailed`, `NothingReadable`.
 */
export function checkReadable(name: string, records: readonly PageRecord[], total = records.length): void {
  const counts = countPages(records);
  if (counts.failed > total * MAX_FAILED_SHARE) {
    const first = records.find((record) => record.method === 'failed');
    throw failure(
      'PageFailed',
      `${counts.failed} of the ${total} pages of ${name} could not be read; the first is page ${first?.page ?? 0}: ` +
        `${first?.error ?? 'unknown'}.`,
      { next: 'Look whether a viewer shows those pages, and repair the file, for example with `qpdf IN OUT`.' },
    );
  }
  if (counts.text + counts.ocr === 0) {
    throw failure('NothingReadable', `None of the ${total} pages of ${name} has readable text.`);
  }
}

/** The artifacts with the text: one JSON object per page, and plain text with a form feed between pages. */
export function pagesJsonl(records: readonly PageRecord[]): string {
  return records
    .map(
      ({ page, method, confidence, text, error }) =>
        `${JSON.stringify({ page, method, confidence, text, ...(error === undefined ? {} : { error }) })}\n`,
    )
    .join('');
}

export function plainText(records: readonly PageRecord[]): string {
  return `${records.map((record) => record.text).join(PAGE_BREAK)}\n`;
}

interface Limiter {
  enter(): Promise<void>;
  leave(): void;
  run<T>(work: () => Promise<T>): Promise<T>;
}

/** Lets so many in at a time, the others in the order in which they came. */
function limiter(room: number): Limiter {
  const waiting: (() => void)[] = [];
  let free = room;
  const enter = async (): Promise<void> => {
    if (free > 0) {
      free -= 1;
      return;
    }
    await new Promise<void>((resolve) => waiting.push(resolve));
  };
  const leave = (): void => {
    const next = waiting.shift();
    if (next === undefined) free += 1;
    else next();
  };
  return {
    enter,
    leave,
    async run(work) {
      await enter();
      try {
        return await work();
      } finally {
        leave();
      }
    },
  };
}
