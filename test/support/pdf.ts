/**
 * Little PDFs for tests, written by hand: of each kind that the document job has to tell apart. Only what a reader needs
 * is in them.
 */
import { createHash } from 'node:crypto';

type PdfObject = string | { readonly dictionary: string; readonly stream: Buffer };

/** Puts objects together as a file with a cross-reference table. */
function assemble(objects: readonly PdfObject[], trailer = ''): Buffer {
  const parts: Buffer[] = [Buffer.from('%PDF-1.4\n', 'latin1')];
  const offsets: number[] = [];
  const length = (): number => parts.reduce((total, part) => total + part.length, 0);
  objects.forEach((object, index) => {
    offsets.push(length());
    parts.push(Buffer.from(`${index + 1} 0 obj\n`));
    if (typeof object === 'string') {
      parts.push(Buffer.from(object, 'latin1'));
    } else {
      parts.push(Buffer.from(`<< ${object.dictionary} /Length ${object.stream.length} >>\nstream\n`));
      parts.push(object.stream, Buffer.from('\nendstream'));
    }
    parts.push(Buffer.from('\nendobj\n'));
  });
  const xref = length();
  const rows = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  parts.push(
    Buffer.from(
      `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows}trailer\n` +
        `<< /Size ${objects.length + 1} /Root 1 0 R ${trailer} >>\nstartxref\n${xref}\n%%EOF\n`,
      'latin1',
    ),
  );
  return Buffer.concat(parts);
}

const FONT = '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>';

function drawText(lines: readonly string[]): string {
  return lines
    .map((line, index) => `BT /F1 12 Tf 50 ${780 - index * 16} Td (${line.replace(/[\\()]/g, '\\$&')}) Tj ET\n`)
    .join('');
}

/** Each page is its lines of text, or a picture when it is an object. */
export type TestPage = readonly string[] | { readonly image: 'blank' | 'stripes' };

function pagesOf(pages: readonly TestPage[], trailer = '', extra: readonly PdfObject[] = [], catalog = ''): Buffer {
  const objects: PdfObject[] = [`<< /Type /Catalog /Pages 2 0 R ${catalog} >>`, '', FONT, ...extra];
  const kids: string[] = [];
  for (const page of pages) {
    const first = objects.length + 1;
    kids.push(`${first} 0 R`);
    const picture = 'image' in page ? page.image : undefined;
    const resources = picture === undefined ? '/Font << /F1 3 0 R >>' : `/XObject << /Im ${first + 2} 0 R >>`;
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents ${first + 1} 0 R /Resources << ${resources} >> >>`,
    );
    const drawing = 'image' in page ? 'q 595 0 0 842 0 0 cm /Im Do Q' : drawText(page);
    objects.push({ dictionary: '', stream: Buffer.from(drawing, 'latin1') });
    if (picture !== undefined) {
      const bits = Buffer.from(picture === 'blank' ? [0xff, 0xff, 0xff, 0xff] : [0xff, 0x00, 0xff, 0x00]);
      objects.push({
        dictionary: '/Type /XObject /Subtype /Image /Width 8 /Height 4 /ColorSpace /DeviceGray /BitsPerComponent 1',
        stream: bits,
      });
    }
  }
  objects[1] = `<< /Type /Pages /Kids [${kids.join(' ')}] /Count ${pages.length} >>`;
  return assemble(objects, trailer);
}

/** A PDF with these pages. No page at all is allowed, and is a valid file. */
export function makePdf(pages: readonly TestPage[]): Buffer {
  return pagesOf(pages);
}

export interface TestBookmark {
  readonly title: string;
  /** 1 for the outermost; it is a child of the last one before it that has a smaller one. */
  readonly level: number;
  /** From 1; none for one that leads to an address. */
  readonly page?: number;
  /** Whether it leads there by an action, as some programs write it. */
  readonly byAction?: boolean;
  /** Whether it leads to the second page of another file. */
  readonly toFile?: boolean;
  /** The place in the list of the one that it says comes after it, whatever really does. */
  readonly next?: number;
  /** The same for its first child. */
  readonly first?: number;
}

/** A PDF with bookmarks. */
export function makePdfWithBookmarks(
  pages: readonly (readonly string[])[],
  bookmarks: readonly TestBookmark[],
): Buffer {
  // The objects 1 to 3 are the catalog, the pages and the font; 4 is the outline, its entries follow.
  const entry = (index: number): string => `${5 + index} 0 R`;
  const link = (key: string, index: number | undefined): string =>
    index === undefined || index < 0 ? '' : `/${key} ${entry(index)} `;
  const parents: number[] = [];
  const firsts = new Map<number, number>();
  const nexts = new Map<number, number>();
  const lastAt: number[] = [];
  bookmarks.forEach(({ level }, index) => {
    const parent = lastAt[level - 1] ?? -1;
    parents.push(parent);
    if (!firsts.has(parent)) firsts.set(parent, index);
    const before = lastAt[level];
    if (before !== undefined) nexts.set(before, index);
    lastAt.length = level;
    lastAt[level] = index;
  });
  const entries = bookmarks.map(({ title, page, byAction, toFile, ...links }, index) => {
    const parent = parents[index] ?? -1;
    const text = Buffer.from(`\uFEFF${title}`, 'utf16le').swap16().toString('hex');
    // Each page with text is two objects.
    const target = page === undefined ? '' : `[${5 + bookmarks.length + 2 * (page - 1)} 0 R /Fit]`;
    let leads = `/Dest ${target}`;
    if (toFile === true) leads = '/A << /S /GoToR /F (other.pdf) /D [1 /Fit] >>';
    else if (page === undefined) leads = '/A << /S /URI /URI (https://example.org/) >>';
    else if (byAction === true) leads = `/A << /S /GoTo /D ${target} >>`;
    return (
      `<< /Title <${text}> /Parent ${parent < 0 ? '4 0 R' : entry(parent)} ` +
      `${link('Next', links.next ?? nexts.get(index))}${link('First', links.first ?? firsts.get(index))}${leads} >>`
    );
  });
  const outline = `<< /Type /Outlines ${link('First', entries.length === 0 ? -1 : 0)}>>`;
  return pagesOf(pages, '', [outline, ...entries], '/Outlines 4 0 R');
}

/** A PDF that can only be opened with a password (RC4, 40 bits: the oldest kind, which every reader knows). */
export function makeEncryptedPdf(password: string): Buffer {
  const id = Buffer.alloc(16, 7);
  const permissions = Buffer.alloc(4);
  permissions.writeInt32LE(-4);
  const md5 = (...parts: Buffer[]): Buffer => createHash('md5').update(Buffer.concat(parts)).digest();
  const padded = Buffer.concat([Buffer.from(password, 'latin1'), PASSWORD_PADDING]).subarray(0, 32);
  const owner = rc4(md5(padded).subarray(0, 5), padded);
  const key = md5(padded, owner, permissions, id).subarray(0, 5);
  const user = rc4(key, PASSWORD_PADDING);
  const hex = (bytes: Buffer): string => `<${bytes.toString('hex')}>`;
  return pagesOf([['Nobody reads this.']], `/Encrypt 4 0 R /ID [${hex(id)} ${hex(id)}]`, [
    `<< /Filter /Standard /V 1 /R 2 /O ${hex(owner)} /U ${hex(user)} /P -4 >>`,
  ]);
}

/** A PDF that says it is encrypted by a handler that nobody has. */
export function makeUnknownEncryptionPdf(): Buffer {
  return pagesOf([['Nobody reads this.']], '/Encrypt 4 0 R', ['<< /Filter /Acme.Vault /V 9 /R 9 >>']);
}

/** The first part of a PDF, as a transfer that was cut leaves it. */
export function truncated(pdf: Buffer, share = 0.6): Buffer {
  return pdf.subarray(0, Math.floor(pdf.length * share));
}

const PASSWORD_PADDING = Buffer.from('28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a', 'hex');

/** By hand, since current OpenSSL leaves it out. */
function rc4(key: Buffer, data: Buffer): Buffer {
  const state = Uint8Array.from({ length: 256 }, (_, index) => index);
  const at = (index: number): number => state[index & 255] ?? 0;
  const swap = (a: number, b: number): void => {
    [state[a & 255], state[b & 255]] = [at(b), at(a)];
  };
  let j = 0;
  for (let i = 0; i < 256; i += 1) {
    j = (j + at(i) + (key[i % key.length] ?? 0)) & 255;
    swap(i, j);
  }
  let i = 0;
  j = 0;
  return Buffer.from(
    data.map((byte) => {
      i = (i + 1) & 255;
      j = (j + at(i)) & 255;
      swap(i, j);
      return byte ^ at(at(i) + at(j));
    }),
  );
}
