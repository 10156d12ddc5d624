/**
 * A PDF as the job sees it: pages can be asked for, each answer comes within a limit or is an error, and a page that
 * hangs or breaks pdfium costs that page only.
 *
 * Owns the thread: starts it, replaces it after a hang, a crash or when its memory has grown (WebAssembly never gives
 * memory back), and ends it on abort.
 */
import { Worker } from 'node:worker_threads';
import { failure, messageOf } from '../failure.js';
import type { Outline } from '../summary/outline.js';
import type { PageFacts, PageImage } from './pdf.js';
import type { PdfAnswer, PdfQuestion, PdfThreadData } from './pdf-thread.js';
import { threadScript } from './thread.js';

export interface PdfLimits {
  readonly openMs: number;
  readonly textMs: number;
  readonly renderMs: number;
  readonly outlineMs: number;
  /** The thread is replaced after an answer that leaves it with more. */
  readonly heapBytes: number;
}

export const PDF_LIMITS: PdfLimits = {
  openMs: 60_000,
  textMs: 30_000,
  renderMs: 60_000,
  outlineMs: 30_000,
  // A page of 25 MP with its images takes up to 300 MB; an ordinary scan about 60.
  heapBytes: 256 * 1024 * 1024,
};

export interface PdfReader {
  readonly pages: number;
  /** Whether the document opens with a password only. */
  readonly needsPassword: boolean;
  /** @param page From 1. */
  facts(page: number): Promise<PageFacts>;
  /** @param page From 1. */
  render(page: number, dpi: number, maxPixels: number): Promise<PageImage>;
  /** The bookmarks of the document. */
  outline(): Promise<Outline>;
  close(): Promise<void>;
}

export interface OpenPdfOptions {
  readonly path: string;
  /** What the document is called in messages. */
  readonly name: string;
  readonly password?: string | undefined;
  readonly signal: AbortSignal;
  readonly limits?: PdfLimits;
}

/**
 * @throws ApplicationFailure `PasswordRequired`, `PasswordWrong`, `UnsupportedEncryption`, `InvalidPdf`.
 */
export async function openPdf(options: OpenPdfOptions): Promise<PdfReader> {
  const reader = new ThreadReader(options);
  try {
    await reader.start();
  } catch (error) {
    await reader.close();
    throw error;
  }
  return reader;
}

/** The bookmarks. That they can not be read costs the outline and not the document; the report says why. */
export async function readOutline(reader: Pick<PdfReader, 'outline'>, signal: AbortSignal): Promise<Outline> {
  try {
    return await reader.outline();
  } catch (error) {
    signal.throwIfAborted();
    return { entries: [], error: messageOf(error) };
  }
}

class ThreadReader implements PdfReader {
  pages = 0;
  needsPassword = false;
  private thread: Worker | undefined;
  private closed = false;
  /** pdfium answers one question at a time; asking in turn lets each have its own limit. */
  private turn: Promise<unknown> = Promise.resolve();
  private readonly onAbort = (): void => void this.stop();

  private readonly name: string;
  private readonly signal: AbortSignal;
  private readonly limits: PdfLimits;

  constructor(private readonly options: OpenPdfOptions) {
    this.name = options.name;
    this.signal = options.signal;
    this.limits = options.limits ?? PDF_LIMITS;
    this.signal.addEventListener('abort', this.onAbort, { once: true });
  }

  async start(): Promise<void> {
    this.signal.throwIfAborted();
    const { path, password } = this.options;
    const workerData: PdfThreadData = { path, ...(password === undefined ? {} : { password }) };
    const thread = new Worker(threadScript('pdf-thread'), { workerData, stderr: false, stdout: false });
    this.thread = thread;
    let answer: PdfAnswer;
    try {
      answer = await this.answer(thread, this.limits.openMs);
    } catch (error) {
      this.signal.throwIfAborted();
      throw failure('InvalidPdf', `${this.name} could not be opened: ${messageOf(error)}.`, { cause: error });
    }
    if (answer.kind === 'refused') {
      throw refusal(answer.code, this.name, answer.message, password !== undefined);
    }
    if (answer.kind !== 'opened') throw new Error(`The thread answered ${answer.kind} before it had opened the file.`);
    this.pages = answer.pages;
    this.needsPassword = answer.needsPassword;
  }

  async facts(page: number): Promise<PageFacts> {
    const answer = await this.ask({ kind: 'facts', index: page - 1 }, this.limits.textMs);
    if (answer.kind !== 'facts') throw new Error(`The thread answered ${answer.kind} to a question for facts.`);
    return answer.facts;
  }

  async render(page: number, dpi: number, maxPixels: number): Promise<PageImage> {
    const answer = await this.ask({ kind: 'render', index: page - 1, dpi, maxPixels }, this.limits.renderMs);
    if (answer.kind !== 'image') throw new Error(`The thread answered ${answer.kind} to a question for a picture.`);
    return answer.image;
  }

  async outline(): Promise<Outline> {
    const answer = await this.ask({ kind: 'outline' }, this.limits.outlineMs);
    if (answer.kind !== 'outline') throw new Error(`The thread answered ${answer.kind} to a question for the outline.`);
    return answer.outline;
  }

  async close(): Promise<void> {
    this.closed = true;
    this.signal.removeEventListener('abort', this.onAbort);
    await this.stop();
  }

  private async ask(question: PdfQuestion, limitMs: number): Promise<PdfAnswer> {
    const mine = this.turn.then(() => this.askNow(question, limitMs));
    this.turn = mine.catch(() => undefined);
    return await mine;
  }

  private async askNow(question: PdfQuestion, limitMs: number): Promise<PdfAnswer> {
    this.signal.throwIfAborted();
    if (this.closed) throw new Error('The PDF is closed.');
    if (this.thread === undefined) await this.start();
    const thread = this.thread;
    if (thread === undefined) throw new Error('The PDF is closed.');
    const answered = this.answer(thread, limitMs);
    thread.postMessage(question);
    let answer: PdfAnswer;
    try {
      answer = await answered;
    } catch (error) {
      await this.stop();
      this.signal.throwIfAborted();
      throw error;
    }
    const isBroken = answer.kind === 'failed' && answer.isBroken;
    if (isBroken || ('heapBytes' in answer && answer.heapBytes > this.limits.heapBytes)) await this.stop();
    if (answer.kind === 'failed') throw new Error(answer.message);
    return answer;
  }

  private async answer(thread: Worker, limitMs: number): Promise<PdfAnswer> {
    return await new Promise<PdfAnswer>((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        thread.off('message', onMessage).off('error', onError).off('exit', onExit);
        // An error that comes after the answer must not end the process.
        thread.on('error', () => undefined);
        act();
      };
      const onMessage = (answer: PdfAnswer): void => settle(() => resolve(answer));
      const onError = (error: Error): void => settle(() => reject(new Error(`pdfium failed: ${error.message}`)));
      const onExit = (): void => settle(() => reject(new Error('pdfium ended without an answer')));
      const timer = setTimeout(
        () => settle(() => reject(new Error(`pdfium gave no answer within ${limitMs / 1000} s`))),
        limitMs,
      );
      thread.removeAllListeners('error');
      thread.on('message', onMessage).on('error', onError).on('exit', onExit);
    });
  }

  private async stop(): Promise<void> {
    const { thread } = this;
    this.thread = undefined;
    await thread?.terminate();
  }
}

function refusal(code: string, name: string, message: string, withPassword: boolean): Error {
  if (code === 'PasswordRequired' && withPassword) {
    return failure('PasswordWrong', `The given password does not open ${name}.`);
  }
  if (code === 'PasswordRequired') return failure(code, `${name} is protected by a password.`);
  if (code === 'UnsupportedEncryption')
    return failure(code, `${name} is encrypted in a way that pdfium does not support.`);
  const why = message === 'InvalidPdf' ? 'pdfium finds no PDF structure in it' : message;
  return failure('InvalidPdf', `${name} can not be read as a PDF: ${why}.`);
}
