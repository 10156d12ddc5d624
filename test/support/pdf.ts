/**
 * Little PDFs for tests, written by hand: of each kind that the document job has to tell apart. Only what a reader needs
 * is in them.
 */
import { createHash } from 'node:crypto';
import { constants, deflateRawSync, deflateSync } from 'node:zlib';

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

function pagesOf(pages: readonly TestPage[], trailer = '', extra: readonly PdfObject[] = []): Buffer {
  const objects: PdfObject[] = ['<< /Type /Catalog /Pages 2 0 R >>', '', FONT, ...extra];
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

/**
 * A page with these glyphs from left to right, each with the letters that the font's map gives it.
 */
export function makeGlyphPdf(glyphs: readonly string[]): Buffer {
  const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
  const codes = glyphs.map((_, index) => hex(0x41 + index, 2));
  const letters = glyphs.map((text) => [...text].map((letter) => hex(letter.codePointAt(0) ?? 0, 4)).join(''));
  const rows = codes.map((code, index) => `<${code}> <${letters[index] ?? ''}>`).join('\n');
  const map =
    '/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Test def /CMapType 2 def ' +
    `1 begincodespacerange <00> <ff> endcodespacerange ${glyphs.length} beginbfchar\n${rows}\nendbfchar ` +
    'endcmap end end';
  return assemble([
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    { dictionary: '', stream: Buffer.from(`BT /F1 20 Tf 50 700 Td <${codes.join('')}> Tj ET`) },
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>',
    { dictionary: '', stream: Buffer.from(map) },
  ]);
}

/**
 * Deflated bytes that inflate to so many repetitions of a text: blocks that end with a full flush know nothing of each
 * other, so one is made and repeated. Deflating gigabytes would take longer than the tests.
 */
function deflatedRepetition(text: string, bytes: number): Buffer {
  const blockBytes = Math.floor((4 * 1024 * 1024) / text.length) * text.length;
  const block = deflateRawSync(Buffer.alloc(blockBytes, text, 'latin1'), {
    level: 9,
    finishFlush: constants.Z_FULL_FLUSH,
  });
  const blocks = Array.from({ length: Math.ceil(bytes / blockBytes) }, () => block);
  // The header of zlib, the blocks, and an empty last one; nobody minds the missing checksum.
  return Buffer.concat([Buffer.from([0x78, 0xda]), ...blocks, Buffer.from([0x03, 0x00])]);
}

const GIB = 1024 ** 3;

/** What a hostile page consists of. */
export type Bomb = 'image' | 'content' | 'forms' | 'objects' | 'pages' | 'loop' | 'nested';

/**
 * A small file that asks for much more than it is: the second of three pages, or the page tree, is the bomb; the others
 * are {@link GOOD_PAGE}.
 */
export function makeBomb(kind: Bomb): Buffer {
  const good = (content: string): string =>
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents ${content} /Resources << /Font << /F1 3 0 R >> >> >>`;
  const bombPage = (resources: string): string =>
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 8 0 R /Resources << ${resources} >> >>`;
  const stream = (text: string): PdfObject => ({ dictionary: '', stream: Buffer.from(text, 'latin1') });
  const twice = '/Filter [/FlateDecode /FlateDecode]';
  let tree = '<< /Type /Pages /Kids [4 0 R 5 0 R 6 0 R] /Count 3 >>';
  let page = bombPage('/XObject << /X 9 0 R >>');
  let content: PdfObject = stream('q 595 0 0 842 0 0 cm /X Do Q');
  let extra: readonly PdfObject[] = [];
  const form = '/Type /XObject /Subtype /Form /BBox [0 0 595 842]';
  switch (kind) {
    case 'image':
      extra = [
        {
          dictionary:
            '/Type /XObject /Subtype /Image /Width 100000 /Height 100000 /ColorSpace /DeviceGray ' +
            `/BitsPerComponent 1 ${twice}`,
          stream: deflateSync(deflatedRepetition('\0', 1_250_000_000)),
        },
      ];
      break;
    case 'content':
      page = bombPage('/Font << /F1 3 0 R >>');
      content = { dictionary: twice, stream: deflateSync(deflatedRepetition('0 0 9 9 re f ', 4 * GIB)) };
      break;
    case 'forms':
      // Each draws itself and the other, a hundred times.
      extra = [9, 10].map((number) => ({
        dictionary: `${form} /Resources << /XObject << /X 9 0 R /Y 10 0 R >> >>`,
        stream: Buffer.from(`/X Do /Y Do ${number} w `.repeat(100)),
      }));
      break;
    case 'nested':
      // No loop, but ten to the power of twelve drawings.
      extra = Array.from({ length: 12 }, (_, level) => ({
        dictionary: `${form} /Resources << /XObject << /X ${10 + level} 0 R >> >>`,
        stream: Buffer.from(level === 11 ? '0 0 1 1 re f' : '/X Do '.repeat(10)),
      }));
      break;
    case 'objects':
      page = bombPage('');
      content = {
        dictionary: '/Filter /FlateDecode',
        stream: deflateSync(Buffer.from('0 0 9 9 re f '.repeat(1_000_000))),
      };
      break;
    case 'pages':
      tree = '<< /Type /Pages /Kids [4 0 R 5 0 R 6 0 R] /Count 10000 >>';
      page = good('7 0 R');
      break;
    case 'loop':
      tree = '<< /Type /Pages /Kids [4 0 R 2 0 R 6 0 R] /Count 3 >>';
      page = good('7 0 R');
      break;
  }
  return assemble([
    '<< /Type /Catalog /Pages 2 0 R >>',
    tree,
    FONT,
    good('7 0 R'),
    page,
    good('7 0 R'),
    stream(drawText([GOOD_PAGE])),
    content,
    ...extra,
  ]);
}

/** The text of the pages beside the bomb. */
export const GOOD_PAGE = 'The tide sets the working day of the harbour.';

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
