/**
 * The thread in which pdfium runs. `pdf-reader.ts` starts it, asks one thing at a time, and ends it when an answer
 * takes too long: a call into WebAssembly can not be interrupted in any other way.
 */
import { parentPort, workerData } from 'node:worker_threads';
import type { Outline } from '../summary/outline.js';
import { Pdf, PdfOpenError, type PageFacts, type PageImage } from './pdf.js';

export interface PdfThreadData {
  readonly path: string;
  readonly password?: string;
}

export type PdfQuestion =
  | { readonly kind: 'facts'; readonly index: number }
  | { readonly kind: 'outline' }
  | { readonly kind: 'render'; readonly index: number; readonly dpi: number; readonly maxPixels: number };

export type PdfAnswer =
  | { readonly kind: 'opened'; readonly pages: number; readonly needsPassword: boolean }
  | { readonly kind: 'refused'; readonly code: string; readonly message: string }
  | { readonly kind: 'facts'; readonly facts: PageFacts; readonly heapBytes: number }
  | { readonly kind: 'outline'; readonly outline: Outline; readonly heapBytes: number }
  | { readonly kind: 'image'; readonly image: PageImage; readonly heapBytes: number }
  | { readonly kind: 'failed'; readonly message: string; readonly isBroken: boolean; readonly heapBytes: number };

const port = parentPort;
if (port === null) throw new Error('This module is a thread of pdf-reader.js.');

const say = (answer: PdfAnswer, transfer: ArrayBuffer[] = []): void => port.postMessage(answer, transfer);

try {
  const { path, password } = workerData as PdfThreadData;
  const pdf = await Pdf.open(path, password);
  port.on('message', (question: PdfQuestion) => {
    try {
      if (question.kind === 'facts') {
        say({ kind: 'facts', facts: pdf.facts(question.index), heapBytes: pdf.heapBytes });
      } else if (question.kind === 'outline') {
        say({ kind: 'outline', outline: pdf.outline(), heapBytes: pdf.heapBytes });
      } else {
        const image = pdf.render(question.index, question.dpi, question.maxPixels);
        // Handed over, not copied: a page is several megabytes.
        say({ kind: 'image', image, heapBytes: pdf.heapBytes }, [image.pgm.buffer as ArrayBuffer]);
      }
    } catch (error) {
      say({ kind: 'failed', ...pdf.explain(error), heapBytes: pdf.heapBytes });
    }
  });
  say({ kind: 'opened', pages: pdf.pages, needsPassword: pdf.needsPassword });
} catch (error) {
  say({
    kind: 'refused',
    code: error instanceof PdfOpenError ? error.code : 'InvalidPdf',
    message: error instanceof Error ? error.message : String(error),
  });
  port.close();
}
