/**
 * Three activities around one file on one worker's disk: fetch a PDF, read its pages, say what is in it. The document job
 * that comes with atlasd does the same with everything that real documents need; this is its shape.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pipeline } from 'node:stream/promises';
import { createRequire } from 'node:module';
import { init } from '@embedpdf/pdfium';
import { ApplicationFailure } from '@temporalio/common';
import { currentSession, progress } from 'temporal-atlas/activity';

const inScratch = (name) => join(currentSession().scratchDirectory, name);

/** Streams the document into the session's directory. What is there under its final name is complete. */
export async function download(url) {
  const { signal } = currentSession();
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  let bytes = 0;
  const counted = async function* (chunks) {
    for await (const chunk of chunks) {
      bytes += chunk.length;
      progress({ done: bytes, total: Number(response.headers.get('content-length') ?? 0) || undefined, unit: 'bytes' });
      yield chunk;
    }
  };
  await pipeline(response.body, counted, createWriteStream(inScratch('document.part')), { signal });
  await rename(inScratch('document.part'), inScratch('document.pdf'));
  return { bytes };
}

/** Reads the text layer of every page; one line of JSON for each, so that nothing is held in memory as a whole. */
export async function readPages() {
  const { signal } = currentSession();
  const wasm = createRequire(import.meta.url).resolve('@embedpdf/pdfium/pdfium.wasm');
  const pdfium = await init({ wasmBinary: await readFile(wasm) });
  pdfium.PDFiumExt_Init();
  const { malloc, free } = pdfium.pdfium.wasmExports;
  const bytes = await readFile(inScratch('document.pdf'));
  const file = malloc(bytes.length);
  pdfium.pdfium.HEAPU8.set(bytes, file);
  const document = pdfium.FPDF_LoadMemDocument(file, bytes.length, '');
  // No retry would make it a PDF: the failure is final, and it is the document's, not the worker's.
  if (document === 0) throw ApplicationFailure.nonRetryable('The file is not a PDF that can be opened.', 'NotAPdf');
  try {
    const total = pdfium.FPDF_GetPageCount(document);
    const lines = async function* () {
      for (let index = 0; index < total; index += 1) {
        yield `${JSON.stringify({ page: index + 1, text: textOf(pdfium, document, index) })}\n`;
        progress({ done: index + 1, total, unit: 'pages' });
      }
    };
    await pipeline(lines, createWriteStream(inScratch('pages.jsonl')), { signal });
    return { pages: total };
  } finally {
    pdfium.FPDF_CloseDocument(document);
    free(file);
  }
}

/** The first sentence of every page. Only this small result goes through Temporal. */
export async function summarise(sentences) {
  const lines = createInterface({ input: createReadStream(inScratch('pages.jsonl')) });
  const summary = [];
  for await (const line of lines) {
    const { page, text } = JSON.parse(line);
    const sentence = /[^.!?]+[.!?](?=\s|$)/.exec(text.replaceAll(/\s+/g, ' '));
    if (sentence !== null) summary.push({ page, sentence: sentence[0].trim() });
    if (summary.length === sentences) break;
  }
  return summary;
}

function textOf(pdfium, document, index) {
  const page = pdfium.FPDF_LoadPage(document, index);
  const text = pdfium.FPDFText_LoadPage(page);
  const characters = Math.max(0, pdfium.FPDFText_CountChars(text));
  const { malloc, free } = pdfium.pdfium.wasmExports;
  const buffer = malloc((characters + 1) * 2);
  try {
    const units = characters === 0 ? 0 : pdfium.FPDFText_GetText(text, 0, characters, buffer) - 1;
    return Buffer.from(pdfium.pdfium.HEAPU8.buffer, buffer, units * 2).toString('utf16le');
  } finally {
    free(buffer);
    pdfium.FPDFText_ClosePage(text);
    pdfium.FPDF_ClosePage(page);
  }
}
