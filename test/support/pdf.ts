/**
 * Little PDFs for tests, written by hand: of each kind that the document job has to tell apart. Only what a reader needs
 * is in them.
 */
import { createCipheriv, createHash } from 'node:crypto';
import { constants, deflateRawSync, deflateSync } from 'node:zlib';

type PdfObject = string | { readonly dictionary: string; readonly stream: Buffer };

/** What the streams of a file go through, by the number of their object. */
type Cipher = (object: number, bytes: Buffer) => Buffer;

/** Puts objects together as a file with a cross-reference table. */
function assemble(objects: readonly PdfObject[], trailer = '', cipher: Cipher = (_, bytes) => bytes): Buffer {
  const parts: Buffer[] = [Buffer.from('%PDF-1.4\n', 'latin1')];
  const offsets: number[] = [];
  const length = (): number => parts.reduce((total, part) => total + part.length, 0);
  objects.forEach((object, index) => {
    offsets.push(length());
    parts.push(Buffer.from(`${index + 1} 0 obj\n`));
    if (typeof object === 'string') {
      parts.push(Buffer.from(object, 'latin1'));
    } else {
      const stream = cipher(index + 1, object.stream);
      parts.push(Buffer.from(`<< ${object.dictionary} /Length ${stream.length} >>\nstream\n`));
      parts.push(stream, Buffer.from('\nendstream'));
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

function pagesOf(
  pages: readonly TestPage[],
  more: {
    readonly trailer?: string;
    readonly extra?: readonly PdfObject[];
    readonly catalog?: string;
    readonly cipher?: Cipher;
  } = {},
): Buffer {
  const { trailer, extra = [], catalog = '', cipher } = more;
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
  return assemble(objects, trailer, cipher);
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
  return pagesOf(pages, { extra: [outline, ...entries], catalog: '/Outlines 4 0 R' });
}

/** Pages of lines that only OCR can read: they are stamped on, and what annotations show is in no text layer. */
export function makeStampedPdf(pages: readonly (readonly string[])[]): Buffer {
  const objects: PdfObject[] = ['<< /Type /Catalog /Pages 2 0 R >>', '', FONT];
  const kids: string[] = [];
  for (const lines of pages) {
    const first = objects.length + 1;
    kids.push(`${first} 0 R`);
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Annots [${first + 1} 0 R] >>`,
      `<< /Type /Annot /Subtype /Stamp /Rect [0 0 595 842] /F 4 /AP << /N ${first + 2} 0 R >> >>`,
      {
        dictionary: '/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >>',
        stream: Buffer.from(drawText(lines), 'latin1'),
      },
    );
  }
  objects[1] = `<< /Type /Pages /Kids [${kids.join(' ')}] /Count ${pages.length} >>`;
  return assemble(objects);
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

export interface Encryption {
  /** RC4 with 128 bits, as of 2001, whose passwords are Latin-1; or AES with 256 bits, as of 2008, where they are UTF-8. */
  readonly method: 'rc4-128' | 'aes-256';
  /** What opens the document. Empty: anyone may. */
  readonly user: string;
  /** What opens it with all rights. Default: the same. */
  readonly owner?: string;
}

/** A PDF whose pages can only be read with a password. */
export function makeEncryptedPdf(
  encryption: Encryption,
  pages: readonly TestPage[] = [['Nobody reads this.']],
): Buffer {
  const { dictionary, cipher } = encryption.method === 'aes-256' ? aes256(encryption) : rc4With128Bits(encryption);
  const trailer = `/Encrypt 4 0 R /ID [${hex(FILE_ID)} ${hex(FILE_ID)}]`;
  return pagesOf(pages, { trailer, extra: [dictionary], cipher });
}

const FILE_ID = Buffer.alloc(16, 7);
const PERMISSIONS = -4;

function hex(bytes: Buffer): string {
  return `<${bytes.toString('hex')}>`;
}

function littleEndian(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

interface Encrypted {
  readonly dictionary: string;
  readonly cipher: Cipher;
}

/** The standard handler's revision 3 (ISO 32000-1, 7.6.3). */
function rc4With128Bits({ user, owner = user }: Encryption): Encrypted {
  const md5 = (...parts: Buffer[]): Buffer => createHash('md5').update(Buffer.concat(parts)).digest();
  const padded = (password: string): Buffer =>
    Buffer.concat([Buffer.from(password, 'latin1'), PASSWORD_PADDING]).subarray(0, 32);
  const often = (bytes: Buffer): Buffer => Array.from({ length: 50 }).reduce<Buffer>((last) => md5(last), bytes);
  const twentyTimes = (key: Buffer, bytes: Buffer): Buffer =>
    Array.from({ length: 20 }, (_, index) => Buffer.from(key.map((byte) => byte ^ index))).reduce(
      (last, turned) => rc4(turned, last),
      bytes,
    );
  const ownerEntry = twentyTimes(often(md5(padded(owner))), padded(user));
  const key = often(md5(padded(user), ownerEntry, littleEndian(PERMISSIONS), FILE_ID));
  const userEntry = Buffer.concat([twentyTimes(key, md5(PASSWORD_PADDING, FILE_ID)), Buffer.alloc(16)]);
  return {
    dictionary: `<< /Filter /Standard /V 2 /R 3 /Length 128 /O ${hex(ownerEntry)} /U ${hex(userEntry)} /P ${PERMISSIONS} >>`,
    // The number of the object in three bytes, then its generation, which is 0, in two.
    cipher: (object, bytes) => rc4(md5(key, littleEndian(object).subarray(0, 3), Buffer.alloc(2)), bytes),
  };
}

/** The standard handler's revision 6 (ISO 32000-2, 7.6.4). */
function aes256({ user, owner = user }: Encryption): Encrypted {
  const key = Buffer.alloc(32, 9);
  const validation = Buffer.alloc(8, 1);
  const salt = Buffer.alloc(8, 2);
  const cbc = (secret: Buffer, iv: Buffer, bytes: Buffer, padding: boolean): Buffer => {
    const cipher = createCipheriv(secret.length === 16 ? 'aes-128-cbc' : 'aes-256-cbc', secret, iv);
    cipher.setAutoPadding(padding);
    return Buffer.concat([cipher.update(bytes), cipher.final()]);
  };
  const hash = (password: Buffer, salted: Buffer, userEntry: Buffer): Buffer => {
    let last = createHash('sha256').update(password).update(salted).update(userEntry).digest();
    for (let round = 1; ; round += 1) {
      const repeated = Buffer.concat(Array.from({ length: 64 }, () => Buffer.concat([password, last, userEntry])));
      const bytes = cbc(last.subarray(0, 16), last.subarray(16, 32), repeated, false);
      const sum = bytes.subarray(0, 16).reduce((total, byte) => total + byte, 0);
      last = createHash(['sha256', 'sha384', 'sha512'][sum % 3] ?? 'sha256')
        .update(bytes)
        .digest();
      if (round >= 64 && (bytes.at(-1) ?? 0) <= round - 32) return last.subarray(0, 32);
    }
  };
  const entries = (text: string, userEntry: Buffer): { entry: Buffer; wrapped: Buffer } => {
    const password = Buffer.from(text, 'utf8');
    return {
      entry: Buffer.concat([hash(password, validation, userEntry), validation, salt]),
      wrapped: cbc(hash(password, salt, userEntry), Buffer.alloc(16), key, false),
    };
  };
  const forUser = entries(user, Buffer.alloc(0));
  const forOwner = entries(owner, forUser.entry);
  const rights = createCipheriv('aes-256-ecb', key, null);
  rights.setAutoPadding(false);
  const permissions = rights.update(
    Buffer.concat([littleEndian(PERMISSIONS), littleEndian(-1), Buffer.from('Tadb'), Buffer.alloc(4)]),
  );
  return {
    dictionary:
      `<< /Filter /Standard /V 5 /R 6 /Length 256 /O ${hex(forOwner.entry)} /U ${hex(forUser.entry)} ` +
      `/OE ${hex(forOwner.wrapped)} /UE ${hex(forUser.wrapped)} /P ${PERMISSIONS} /Perms ${hex(permissions)} ` +
      '/StmF /StdCF /StrF /StdCF /CF << /StdCF << /AuthEvent /DocOpen /CFM /AESV3 /Length 32 >> >> >>',
    cipher: (_, bytes) => Buffer.concat([FILE_ID, cbc(key, FILE_ID, bytes, true)]),
  };
}

/** A PDF that says it is encrypted by a handler that nobody has. */
export function makeUnknownEncryptionPdf(): Buffer {
  return pagesOf([['Nobody reads this.']], {
    trailer: '/Encrypt 4 0 R',
    extra: ['<< /Filter /Acme.Vault /V 9 /R 9 >>'],
  });
}

/** A PDF of which only the first page can be loaded. */
export function makeDamagedPdf(pages: readonly TestPage[]): Buffer {
  let index = 0;
  const damaged = makePdf(pages)
    .toString('latin1')
    .replace(/<< \/Type \/Page \/Parent/g, (start) => (index++ === 0 ? start : '('.repeat(start.length)));
  return Buffer.from(damaged, 'latin1');
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

/** A scan: each page is a picture of its own, a grey square that is not compressed. */
export function makePicturesPdf(count: number, side: number): Buffer {
  const first = 3;
  const numbers = Array.from({ length: count }, (_, index) => first + index * 3);
  const draw = Buffer.from('612 0 0 612 0 90 cm /I Do', 'latin1');
  const objects = numbers.flatMap((number, index): PdfObject[] => [
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${number + 1} 0 R ` +
      `/Resources << /XObject << /I ${number + 2} 0 R >> >> >>`,
    { dictionary: '', stream: draw },
    {
      dictionary: `/Type /XObject /Subtype /Image /Width ${side} /Height ${side} /ColorSpace /DeviceGray /BitsPerComponent 8`,
      stream: Buffer.alloc(side ** 2, 64 + index),
    },
  ]);
  const kids = numbers.map((number) => `${number} 0 R`).join(' ');
  return assemble([
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Kids [${kids}] /Count ${count} >>`,
    ...objects,
  ]);
}
