/**
 * pdfium, as far as the job needs it: open a file without reading it whole, the facts and text of a page, a picture of it.
 *
 * Everything here is synchronous and may run for long or not come back, so it runs in `pdf-thread.ts` only. pdfium
 * knows no exceptions and no garbage collection: every pointer is freed in a `finally`.
 */
import { closeSync, fstatSync, openSync, readFileSync, readSync } from 'node:fs';
import { createRequire } from 'node:module';
import { init, type WrappedPdfiumModule } from '@embedpdf/pdfium';
import { cleanTitle, type Outline, type OutlineEntry } from '../summary/outline.js';
import { mayNeedOrder, readingOrder, type PlacedCharacter } from './reading-order.js';

/** The `FPDF_GetLastError` codes that tell the user something. */
const OPEN_ERRORS: Readonly<Record<number, PdfOpenErrorCode>> = {
  4: 'PasswordRequired',
  5: 'UnsupportedEncryption',
};

export type PdfOpenErrorCode = 'PasswordRequired' | 'UnsupportedEncryption' | 'InvalidPdf';

export class PdfOpenError extends Error {
  override readonly name = 'PdfOpenError';
  constructor(readonly code: PdfOpenErrorCode) {
    super(code);
  }
}

/** pdfium has no document any more, so that no page can be read. */
class PdfGoneError extends Error {
  override readonly name = 'PdfGoneError';
}

/** What a page holds, as far as the choice between its text layer and OCR needs to know. */
export interface PageFacts {
  /** In points of 1/72 inch, as the page is shown (its /Rotate is honoured). */
  readonly width: number;
  readonly height: number;
  /** The raw text layer; see `layer.ts` for what is done to it. */
  readonly text: string;
  readonly characters: number;
  /** Characters for which the font has no mapping to Unicode. */
  readonly unmapped: number;
  /** Text, paths, images, forms, shadings, annotations. */
  readonly objects: number;
  /**
   * Those of them that are not text: they may show letters that the text layer does not have. Counted only where
   * there is little text.
   */
  readonly pictures: number;
}

/** A page in grey, as the bytes of a PGM file: both OCR engines read it, and nothing has to be compressed. */
export interface PageImage {
  readonly pgm: Uint8Array;
  readonly width: number;
  readonly height: number;
  readonly dpi: number;
}

/** pdfium's memory. The package's types leave it out, as they build on types that it does not bring. */
function heap(pdfium: object): Uint8Array {
  return (pdfium as { readonly HEAPU8: Uint8Array }).HEAPU8;
}

/** What the WebAssembly of pdfium imports, as far as it matters here. */
interface PdfiumImports {
  readonly env: { emscripten_resize_heap: (bytes: number) => number };
}

/** Typed here, as its types come with those of browsers only. */
const { WebAssembly } = globalThis as unknown as {
  readonly WebAssembly: {
    readonly Module: new (bytes: Uint8Array) => object;
    readonly Instance: new (module: object, imports: object) => { readonly exports: object };
  };
};

/**
 * The memory that pdfium may take, for which it asks by this import. Its own limit is 2 GiB; a page of 36 megapixels
 * needs 580 MB. Where it gets none it ends, and the thread with it: the page is an error.
 */
const MAX_HEAP_BYTES = 1024 ** 3;

const OBJECT_TEXT = 1;
/** Above this many characters, white space included, a text layer is not little. */
const FEW_CHARACTERS = 200;
/** A page can have millions of objects; whether there is one that is not text shows within these. */
const MAX_OBJECTS_LOOKED_AT = 2_000;
/**
 * So many characters of a page are asked whether the font maps them to Unicode; all of them where one of these is not.
 * A call for each was a quarter of the time of a page.
 */
const MAP_SAMPLES = 200;
/** Beyond this a page is no page of a document but an attack on memory. */
const MAX_PAGE_CHARACTERS = 2_000_000;

/** An outline with more is a list of everything and no outline. */
const MAX_OUTLINE_ENTRIES = 500;
const MAX_OUTLINE_LEVEL = 8;
/** Bookmarks without a title or too deep are passed over, but not without end. */
const MAX_BOOKMARKS_LOOKED_AT = 10_000;
const MAX_TITLE_BYTES = 16_384;
/** An action that leads to a page of this document. */
const ACTION_GOTO = 1;

/**
 * pdfium keeps each picture and font that it has read, as it is in the file, until the document is closed: in the end a
 * scan would be in memory whole. So the document is closed and opened again after this much.
 */
const KEPT_BYTES = 16 * 1024 * 1024;
/**
 * A file without a usable table of its objects is read whole when it is opened, and one with damaged pages again and again
 * on the way to the next page: it is opened again less often.
 */
const MIN_READ_PER_OPENING = 8;

const BITMAP_GRAY = 1;
const RENDER_ANNOTATIONS = 0x01;
const WHITE = 0xffffffff;
const MIN_DPI = 20;

/** The document as pdfium reads it. */
interface PdfFile {
  /** 0 where it can not be opened, and `FPDF_GetLastError` says why. */
  load(password: string): number;
  readonly size: number;
  /** How much of it was read since it was opened last, and how much that took, with the way to the page that was wanted. */
  readonly read: { bytes: number; openingBytes: number };
  close(): void;
}

export class Pdf {
  readonly pages: number;

  private constructor(
    private readonly module: WrappedPdfiumModule,
    private readonly file: PdfFile,
    private document: number,
    private readonly password: string,
    private readonly memory: { refused: boolean },
  ) {
    this.pages = module.FPDF_GetPageCount(document);
  }

  /** Whether the document opens with a password only. */
  get needsPassword(): boolean {
    return this.password !== '';
  }

  /** @throws {@link PdfOpenError} */
  static async open(path: string, password?: string): Promise<Pdf> {
    const wasm = createRequire(import.meta.url).resolve('@embedpdf/pdfium/pdfium.wasm');
    const compiled = new WebAssembly.Module(readFileSync(wasm));
    const memory = { refused: false };
    const overrides = {
      instantiateWasm(imports: PdfiumImports, receive: (instance: object) => void): object {
        const { emscripten_resize_heap: grow } = imports.env;
        imports.env.emscripten_resize_heap = (bytes) => {
          if (bytes >>> 0 <= MAX_HEAP_BYTES) return grow(bytes);
          memory.refused = true;
          return 0;
        };
        const instance = new WebAssembly.Instance(compiled, imports);
        receive(instance);
        return instance.exports;
      },
      // What it has to say about its memory is in the error as well.
      printErr: () => undefined,
    };
    const module = await init(overrides);
    module.PDFiumExt_Init();
    const file = openFile(module, path);
    let code: PdfOpenErrorCode | undefined;
    // First without: a document that opens so does not need the password, and pdfium would refuse a wrong one for it.
    for (const tried of ['', ...(password === undefined ? [] : spellingsOf(password))]) {
      const document = file.load(tried);
      if (document !== 0) return new Pdf(module, file, document, tried, memory);
      code = OPEN_ERRORS[module.FPDF_GetLastError()] ?? 'InvalidPdf';
      if (code !== 'PasswordRequired') break;
    }
    file.close();
    throw new PdfOpenError(code ?? 'InvalidPdf');
  }

  close(): void {
    this.module.FPDF_CloseDocument(this.document);
    this.file.close();
  }

  /** Why the last question has failed, and whether pdfium can be asked another one. */
  explain(error: unknown): { readonly message: string; readonly isBroken: boolean } {
    // A trap in WebAssembly, or the end that pdfium makes by itself: its memory may be in any state.
    const isBroken = !(error instanceof Error) || error.name === 'RuntimeError' || error instanceof PdfGoneError;
    const mebibytes = MAX_HEAP_BYTES / 1024 ** 2;
    if (this.memory.refused) return { message: `pdfium ran out of its ${mebibytes} MiB of memory`, isBroken: true };
    return { message: error instanceof Error ? error.message : String(error), isBroken };
  }

  /** How much memory pdfium has taken. WebAssembly never gives it back. */
  get heapBytes(): number {
    return heap(this.module.pdfium).length;
  }

  /** @param index From 0. */
  facts(index: number): PageFacts {
    const m = this.module;
    return this.withPage(index, (page) => {
      const width = m.FPDF_GetPageWidthF(page);
      const height = m.FPDF_GetPageHeightF(page);
      const layer = this.text(page);
      const annotations = Math.max(0, m.FPDFPage_GetAnnotCount(page));
      const count = Math.max(0, m.FPDFPage_CountObjects(page));
      let pictures = annotations;
      // The kinds matter only to a page with next to no text, and a page may have thousands of objects.
      const looked = layer.characters < FEW_CHARACTERS ? Math.min(count, MAX_OBJECTS_LOOKED_AT) : 0;
      for (let i = 0; i < looked; i += 1) {
        const object = m.FPDFPage_GetObject(page, i);
        if (object !== 0 && m.FPDFPageObj_GetType(object) !== OBJECT_TEXT) pictures += 1;
      }
      return { width, height, objects: count + annotations, pictures, ...layer };
    });
  }

  private text(page: number): { text: string; characters: number; unmapped: number } {
    const m = this.module;
    const { pdfium } = m;
    const textPage = m.FPDFText_LoadPage(page);
    if (textPage === 0) return { text: '', characters: 0, unmapped: 0 };
    try {
      const characters = Math.min(m.FPDFText_CountChars(textPage), MAX_PAGE_CHARACTERS);
      // With no characters pdfium leaves the buffer as it was: it must not be read.
      if (characters <= 0) return { text: '', characters: 0, unmapped: 0 };
      const buffer = pdfium.wasmExports.malloc((characters + 1) * 2);
      if (buffer === 0) throw new Error('pdfium has no memory for the text of the page');
      try {
        const written = m.FPDFText_GetText(textPage, 0, characters, buffer);
        // The count that it returns includes the terminating zero.
        const units = Math.max(0, written - 1);
        const given = Buffer.from(heap(pdfium).buffer, buffer, units * 2).toString('utf16le');
        const text = mayNeedOrder(given) ? this.inOrder(textPage, given, characters) : given;
        const isUnmapped = (i: number): boolean => m.FPDFText_HasUnicodeMapError(textPage, i) === 1;
        let unmapped = 0;
        const step = Math.max(1, Math.floor(characters / MAP_SAMPLES));
        for (let i = 0; i < characters; i += step) if (isUnmapped(i)) unmapped += 1;
        if (unmapped > 0 && step > 1) {
          unmapped = 0;
          for (let i = 0; i < characters; i += 1) if (isUnmapped(i)) unmapped += 1;
        }
        return { text, characters, unmapped };
      } finally {
        pdfium.wasmExports.free(buffer);
      }
    } finally {
      m.FPDFText_ClosePage(textPage);
    }
  }

  /** The text in reading order, which takes the places of its characters. */
  private inOrder(textPage: number, text: string, characters: number): string {
    const m = this.module;
    const { pdfium } = m;
    const placed: PlacedCharacter[] = [];
    const codePoints = [...text];
    const buffer = pdfium.wasmExports.malloc(16);
    if (buffer === 0) throw new Error('pdfium has no memory for the places of characters');
    try {
      for (let i = 0; i < characters; i += 1) {
        // Some characters are not in the text, such as those without a code.
        const character = codePoints[m.FPDFText_GetTextIndexFromCharIndex(textPage, i)];
        if (character === undefined) continue;
        m.FPDFText_GetCharOrigin(textPage, i, buffer, buffer + 8);
        placed.push({ character, x: pdfium.getValue(buffer, 'double'), y: pdfium.getValue(buffer + 8, 'double') });
      }
    } finally {
      pdfium.wasmExports.free(buffer);
    }
    // Rather the order of pdfium than a text that has lost something.
    return placed.length === codePoints.length ? readingOrder(placed) : text;
  }

  /** @param index From 0. @param maxPixels The resolution is lowered until the picture has no more. */
  render(index: number, wantedDpi: number, maxPixels: number): PageImage {
    const m = this.module;
    const { pdfium } = m;
    return this.withPage(index, (page) => {
      const { width, height, dpi } = pixelSize(
        { width: m.FPDF_GetPageWidthF(page), height: m.FPDF_GetPageHeightF(page) },
        wantedDpi,
        maxPixels,
      );
      const bitmap = m.FPDFBitmap_CreateEx(width, height, BITMAP_GRAY, 0, 0);
      if (bitmap === 0) throw new Error(`pdfium has no memory for a picture of ${width} x ${height}`);
      try {
        m.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, WHITE);
        // Not FPDF_GRAYSCALE: what is drawn on a grey bitmap is grey, and each picture would be made so in its full size
        // before it is drawn smaller; with 25 MB more and a quarter more time for a scan of 8 megapixels.
        m.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, RENDER_ANNOTATIONS);
        const stride = m.FPDFBitmap_GetStride(bitmap);
        const start = m.FPDFBitmap_GetBuffer(bitmap);
        const header = Buffer.from(`P5\n${width} ${height}\n255\n`, 'latin1');
        const pgm = new Uint8Array(header.length + width * height);
        pgm.set(header);
        for (let y = 0; y < height; y += 1) {
          const row = start + y * stride;
          pgm.set(heap(pdfium).subarray(row, row + width), header.length + y * width);
        }
        return { pgm, width, height, dpi };
      } finally {
        m.FPDFBitmap_Destroy(bitmap);
      }
    });
  }

  /**
   * The bookmarks, in the order in which a reader shows them. Their links are what the file says: one that leads back
   * to where it came from is followed once.
   */
  outline(): Outline {
    const m = this.module;
    const entries: OutlineEntry[] = [];
    const seen = new Set<number>();
    // What is still to be looked at, the next one last. A child comes before the sibling of its parent.
    const open: { readonly bookmark: number; readonly level: number }[] = [];
    const add = (bookmark: number, level: number): void => {
      if (bookmark !== 0 && !seen.has(bookmark)) open.push({ bookmark, level });
    };
    add(m.FPDFBookmark_GetFirstChild(this.document, 0), 1);
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { bookmark, level } = next;
      if (seen.has(bookmark)) continue;
      if (entries.length >= MAX_OUTLINE_ENTRIES || seen.size >= MAX_BOOKMARKS_LOOKED_AT) {
        return { entries, truncated: true };
      }
      seen.add(bookmark);
      const title = this.titleOf(bookmark);
      if (title !== '') entries.push({ title, level, page: this.pageOf(bookmark) });
      add(m.FPDFBookmark_GetNextSibling(this.document, bookmark), level);
      if (level < MAX_OUTLINE_LEVEL) add(m.FPDFBookmark_GetFirstChild(this.document, bookmark), level + 1);
    }
    return { entries };
  }

  private titleOf(bookmark: number): string {
    const { pdfium, FPDFBookmark_GetTitle: getTitle } = this.module;
    // The count includes the terminating zero of two bytes.
    const bytes = getTitle(bookmark, 0, 0);
    if (bytes <= 2 || bytes > MAX_TITLE_BYTES) return '';
    const buffer = pdfium.wasmExports.malloc(bytes);
    if (buffer === 0) throw new Error('pdfium has no memory for the title of a bookmark');
    try {
      getTitle(bookmark, buffer, bytes);
      return cleanTitle(Buffer.from(heap(pdfium).buffer, buffer, bytes - 2).toString('utf16le'));
    } finally {
      pdfium.wasmExports.free(buffer);
    }
  }

  /** From 1; null when it leads to an address, another file, or nowhere. */
  private pageOf(bookmark: number): number | null {
    const m = this.module;
    // pdfium finds the destination of an action by itself, also that of one which leads into another file.
    const action = m.FPDFBookmark_GetAction(bookmark);
    if (action !== 0 && m.FPDFAction_GetType(action) !== ACTION_GOTO) return null;
    const destination = m.FPDFBookmark_GetDest(this.document, bookmark);
    if (destination === 0) return null;
    const index = m.FPDFDest_GetDestPageIndex(this.document, destination);
    return index >= 0 && index < this.pages ? index + 1 : null;
  }

  private withPage<T>(index: number, use: (page: number) => T): T {
    const isOpenedAgain = this.forgetWhatWasRead();
    const page = this.module.FPDF_LoadPage(this.document, index);
    if (isOpenedAgain) {
      const { read } = this.file;
      read.openingBytes += read.bytes;
      read.bytes = 0;
    }
    if (page === 0) throw new Error('pdfium can not load the page');
    try {
      return use(page);
    } finally {
      this.module.FPDF_ClosePage(page);
    }
  }

  /** Whether the document was opened again for it. */
  private forgetWhatWasRead(): boolean {
    const { size, read } = this.file;
    if (size <= KEPT_BYTES || read.bytes < Math.max(KEPT_BYTES, read.openingBytes * MIN_READ_PER_OPENING)) return false;
    this.module.FPDF_CloseDocument(this.document);
    this.document = this.file.load(this.password);
    if (this.document === 0) throw new PdfGoneError('pdfium can not open the document again');
    return true;
  }
}

/** pdfium asks for the ranges that it needs: a document of hundreds of megabytes costs a few in memory. */
function openFile(module: WrappedPdfiumModule, path: string): PdfFile {
  const { pdfium } = module;
  const fd = openSync(path, 'r');
  const { size } = fstatSync(fd);
  const read = { bytes: 0, openingBytes: 0 };
  const readInto = pdfium.addFunction((_context: number, position: number, into: number, length: number): number => {
    try {
      read.bytes += length;
      // The heap is another array whenever the memory has grown, hence it is looked up at each call.
      return readSync(fd, heap(pdfium), into, length, position >>> 0) === length ? 1 : 0;
    } catch {
      return 0;
    }
  }, 'iiiii');
  const access = pdfium.wasmExports.malloc(12);
  pdfium.setValue(access, size, 'i32');
  pdfium.setValue(access + 4, readInto, 'i32');
  pdfium.setValue(access + 8, 0, 'i32');
  return {
    size,
    read,
    load(password) {
      read.bytes = 0;
      const document = module.FPDF_LoadCustomDocument(access, password);
      read.openingBytes = read.bytes;
      read.bytes = 0;
      return document;
    },
    close() {
      pdfium.wasmExports.free(access);
      pdfium.removeFunction(readInto);
      closeSync(fd);
    },
  };
}

/** The size of a page in pixels, at the wanted resolution or the highest one that keeps within the budget. */
export function pixelSize(
  points: { readonly width: number; readonly height: number },
  wantedDpi: number,
  maxPixels: number,
): { width: number; height: number; dpi: number } {
  const width = Math.max(1, points.width);
  const height = Math.max(1, points.height);
  const most = Math.sqrt((maxPixels * 72 * 72) / (width * height));
  const dpi = Math.max(Math.min(wantedDpi, most), Math.min(MIN_DPI, most));
  return {
    width: Math.max(1, Math.floor((width * dpi) / 72)),
    height: Math.max(1, Math.floor((height * dpi) / 72)),
    dpi,
  };
}

/**
 * How a password may have been spelled when the document was protected: an accent can be part of its letter or a
 * character of its own, which look the same to whoever types them. pdfium itself tries Latin-1 as well as UTF-8.
 */
function spellingsOf(password: string): string[] {
  return [...new Set([password, password.normalize('NFC'), password.normalize('NFKC'), password.normalize('NFD')])];
}
