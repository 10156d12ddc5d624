/**
 * Makes `examples/sample.pdf`, the document of the demo and of the tests: three pages with a text layer and two scanned
 * ones without, pages 3 and 5.
 *
 *     node examples/make-sample.mjs [OUT]
 *
 * The PDF is written by hand. A scanned page is the same kind of page, drawn by pdfium at 200 dpi and then spoilt as a
 * scanner does: set askew, blurred, on uneven paper with dust. The same versions of Node and pdfium give the same bytes.
 * The text was written for this project and is under its licence. The tests import it to know what the pages say.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';

/** What each page says, paragraph by paragraph. The first paragraph of a page is its heading. */
export const SAMPLE_PAGES = [
  {
    scanned: false,
    paragraphs: [
      'How a Small Harbour Works',
      'Port Ellery is a harbour of forty berths on a coast that has few safe places to land. It has one pier, one slipway, a fish market that opens before dawn, and a harbour office with four people in it. Nothing about it is large, and yet some nine hundred vessels call there in a year, most of them in the five months when the weather is kind. This account describes how those calls are arranged, who decides what, and why the place runs more smoothly than its size would suggest.',
      'The harbour master is the only person who may give a berth or take it away. Requests reach the office by radio, by telephone, and now and then by a person who walks in with wet boots, but each of them ends as one line in the same book. The book says which vessel lies where, since when, and for how long it may stay. Because there is a single book, two skippers are never promised the same place, and a dispute is settled by reading a line aloud.',
      'A berth is lent and not given. A vessel that takes one agrees to report to the office every twelve hours, even if only to say that nothing has changed. When a vessel has been silent for longer, the office assumes that it has left and offers the berth to the next in the queue. This rule was made after a winter in which three boats had been laid up elsewhere while their berths stood empty, and it has been kept ever since, because it asks little of those who are present and frees the place of those who are not.',
      'The tide sets the working day. At low water the inner basin has less than two metres, so deeper vessels can move only in the three hours on either side of high water. The office prints the times a month ahead and pins them to the door. A skipper who misses the tide waits for the next one, and no amount of argument has ever raised the water.',
      'Visitors are often surprised by how little is written down. Apart from the book there is a slate for the day, a drawer of receipts, and a chart on which the soundings are corrected in pencil after every storm. The harbour master holds that a record which nobody reads is a cost, and that a record which two people keep will sooner or later say two different things.',
    ],
  },
  {
    scanned: false,
    paragraphs: [
      'The Pilot and the Crane',
      'Two things in the harbour cannot be moved to where they are wanted, and both shape the order of work. The first is the crane at the end of the pier, which lifts eight tonnes and stands on rails that end where the pier ends. The second is the pilot, who knows the bar at the entrance and can be aboard only one vessel at a time. Anyone who needs either of them must come to it, in turn.',
      'A cargo that is begun at the crane is finished at the crane. Years ago the office tried to share the lift between two vessels, an hour for each, so that nobody would wait long. The result was that both holds stood open in the rain, slings were taken off and put on again, and the day ended with two half-empty ships. Since then a vessel keeps the crane from the first lift to the last, and the queue behind it, though longer on paper, moves faster.',
      'If the crane breaks down in the middle of a cargo, the work is not carried to another crane, because there is none. The crew makes the load safe, the fitter is called from his bed, and the foreman chalks on the hatch how far they had come. When the crane runs again the work goes on from that mark. What has been landed stays landed, and nobody counts it twice.',
      'The pilot works by a similar rule. He goes out to meet a vessel, brings her over the bar, and remains responsible until her lines are made fast. Should he fall ill on the way, the vessel turns back to deep water and waits for his deputy, who begins again at the outer buoy and not at the place where the first pilot stopped. The sandbank shifts from week to week, and a course that is half remembered is more dangerous than one that has not been begun.',
      'Both rules look wasteful to an accountant who sees an idle crane or a second trip to the buoy. In practice they are cheap, since interruptions are rare and confusion is dear. The harbour measures itself by vessels cleared in a week and not by hours in which something was turning.',
    ],
  },
  {
    scanned: true,
    paragraphs: [
      'The Night Watch',
      'After ten in the evening the office closes and one watchman has the harbour to himself. He makes a round every two hours, counts the vessels, feels the mooring lines, and writes the count on the slate by the stairs. The count matters more than it seems. A vessel that appears on the slate and not in the book has come in without a word, and one that is in the book and not on the slate has slipped away or sunk.',
      'The watchman does not wake the harbour master for either case until he has walked to the berth and looked. Lamps fail, fog hides a hull, and a boat behind a larger one is easily missed. Once he is sure, he rings the bell, and whoever answers first goes with him. In nineteen years the bell has been rung for a missing vessel eleven times, and on nine of those nights the vessel had only moved to the lee of the pier.',
      'When a gale is forecast the round is made every half hour. The watchman doubles the lines of vessels whose crews are ashore, and puts the cost on their account in the morning. Owners grumble about the charge, but a parted line costs the neighbour a plank and the owner a season. The office keeps forty fathoms of spare rope in the loft for this purpose, and replaces a third of it each spring.',
      'The slate is wiped at six, when the day shift arrives and both men have read it together. Nothing is handed over by message. The habit began after a morning on which a note blew off the desk, and a trawler with a fouled screw went to sea because nobody had told the crew to wait for the diver.',
    ],
  },
  {
    scanned: false,
    paragraphs: [
      'Fees, Quarrels and the Market',
      'The harbour lives on three kinds of income: berth fees, a charge for each tonne that passes under the crane, and rent from the fish market. The fees are set once a year at an open meeting, and a vessel pays by its length and the number of nights. There is no discount for regular callers. The committee once allowed one, and within a season every caller had become regular in some sense or other.',
      'Fish is sold by auction from five in the morning. Boxes are weighed, labelled with the name of the boat and the hour of landing, and set out in rows on a wet floor. The auctioneer walks backwards along the row while the buyers follow, and a box is sold in about nine seconds. A label that cannot be read sends the box to the end of the row, so crews have learnt to write clearly.',
      'Most quarrels are about time and not about money. A skipper believes that he was first in the queue, or that another stayed on the crane after his cargo was out. The harbour master hears both in front of the book and decides before they leave the room. His decisions may be appealed to the committee, which meets on the first Tuesday of the month, and by that time the tide has usually made the question pointless.',
      'The committee has seven members, of whom three must hold a berth and two must not. It sees the accounts, the list of incidents, and the condition of the pier. Every item on the list of incidents names the hour at which the trouble was noticed as well as the hour at which it began, because the distance between the two is the thing that the harbour can improve. In the last ten years the mean distance has fallen from five hours to forty minutes.',
      'Dredging is the largest single expense. The river brings down silt, and every fourth year a dredger spends six weeks in the basin while a third of the berths are closed. The closing is announced a year ahead, vessels are moved in small groups, and no vessel is ordered out before another place has been found for her.',
    ],
  },
  {
    scanned: true,
    paragraphs: [
      'What the Harbour Has Learnt',
      'New staff are told four things in their first week. Write it in the book before you do it, and not after. Never promise a berth that you cannot see. If somebody has not been heard from, go and look before you give his place away, but do give it away. And when work has been interrupted, ask what is already on the quay before you lift anything again.',
      'These rules were not drawn up by a committee. Each of them can be traced to a particular day on which something went wrong, and the older hands still know the names of the vessels. The second rule is owed to a ketch that was promised the place of a coaster which had merely shifted along the wall. The third is owed to the empty winter berths, and the fourth to a cargo of slates that was tallied twice and paid for once.',
      'The harbour has been offered a computer for its berths more than once, and has so far declined. The harbour master does not object to machines. He objects to a second book, and he has not yet met a machine that was willing to be the only one. Until then the line in ink decides, and a copy of each page is sent to the county office at the end of the week, where it is filed and, as far as anyone knows, never opened.',
      'Port Ellery will not grow, since the cliffs leave no room for it. Its people have come to see this as a kind of luck. A place that cannot add berths must learn to use the ones it has, and a harbour in which everybody knows who holds what, until when, and what happens if he falls silent, can be small and still be safe.',
    ],
  },
];

const PAGE = { width: 595, height: 842, left: 72, top: 86, measure: 451 };
const TITLE = 'Port Ellery: notes on a harbour';
const SCAN_DPI = 200;
const GREY_LEVELS = 16;

/** Advance widths of Times-Roman, in thousandths of the size, from the space to the tilde. */
const TIMES = [
  250, 333, 408, 500, 500, 833, 778, 180, 333, 333, 500, 564, 250, 333, 250, 278, 500, 500, 500, 500, 500, 500, 500,
  500, 500, 500, 278, 278, 564, 564, 564, 444, 921, 722, 667, 667, 722, 611, 556, 722, 722, 333, 389, 722, 611, 889,
  722, 722, 556, 722, 667, 556, 611, 722, 722, 944, 722, 722, 611, 333, 278, 333, 469, 500, 333, 444, 500, 444, 500,
  444, 333, 500, 500, 278, 278, 500, 278, 778, 500, 500, 500, 500, 333, 389, 278, 500, 500, 722, 500, 500, 444, 480,
  200, 480, 541,
];

function widthOf(text, size) {
  let width = 0;
  for (const character of text) width += TIMES[character.charCodeAt(0) - 32] ?? 500;
  return (width * size) / 1000;
}

function wrap(text, size) {
  const lines = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (line !== '' && widthOf(longer, size) > PAGE.measure) {
      lines.push(line);
      line = word;
    } else {
      line = longer;
    }
  }
  return [...lines, line];
}

/** The drawing of a page: a running head, a heading, paragraphs, and at its foot the page number. */
function drawPage(paragraphs, number, foot) {
  const [heading, ...body] = paragraphs;
  const size = 11.5;
  const leading = 15;
  const show = (font, points, x, y, text) =>
    `BT /${font} ${points} Tf ${x} ${y.toFixed(1)} Td (${text.replace(/[\\()]/g, '\\$&')}) Tj ET\n`;
  let y = PAGE.height - PAGE.top;
  let drawing = show('F1', 9, PAGE.left, PAGE.height - 50, TITLE);
  drawing += show('F2', 17, PAGE.left, y, heading);
  y -= 28;
  for (const paragraph of body) {
    for (const line of wrap(paragraph, size)) {
      drawing += show('F1', size, PAGE.left, y, line);
      y -= leading;
    }
    y -= 7;
  }
  if (y < 60) throw new Error(`Page ${number} has too much text.`);
  return drawing + show('F1', 9, PAGE.width / 2 - 3, 42, foot);
}

/** Puts objects together as a PDF file. An object is a string, or a dictionary with a stream. */
function pdfFile(objects) {
  const parts = [Buffer.from('%PDF-1.5\n%\xE2\xE3\xCF\xD3\n', 'latin1')];
  const offsets = [];
  let at = parts[0].length;
  const add = (bytes) => {
    parts.push(bytes);
    at += bytes.length;
  };
  objects.forEach((object, index) => {
    offsets.push(at);
    add(Buffer.from(`${index + 1} 0 obj\n`, 'latin1'));
    if (typeof object === 'string') {
      add(Buffer.from(object, 'latin1'));
    } else {
      add(Buffer.from(`<< ${object.dictionary} /Length ${object.stream.length} >>\nstream\n`, 'latin1'));
      add(object.stream);
      add(Buffer.from('\nendstream', 'latin1'));
    }
    add(Buffer.from('\nendobj\n', 'latin1'));
  });
  const xref = at;
  const rows = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  add(
    Buffer.from(
      `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows}` +
        `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`,
      'latin1',
    ),
  );
  return Buffer.concat(parts);
}

/** @param pages What each page shows: `{ drawing }`, or `{ image }` that fills it. */
function documentOf(pages) {
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '',
    '<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /Encoding /WinAnsiEncoding >>',
    '<< /Type /Font /Subtype /Type1 /BaseFont /Times-Bold /Encoding /WinAnsiEncoding >>',
  ];
  const kids = [];
  for (const page of pages) {
    const first = objects.length + 1;
    kids.push(`${first} 0 R`);
    const box = `/Type /Page /Parent 2 0 R /MediaBox [0 0 ${PAGE.width} ${PAGE.height}]`;
    const resources =
      page.image === undefined ? '/Font << /F1 3 0 R /F2 4 0 R >>' : `/XObject << /Im ${first + 2} 0 R >>`;
    objects.push(`<< ${box} /Contents ${first + 1} 0 R /Resources << ${resources} >> >>`);
    const drawing = page.drawing ?? `q ${PAGE.width} 0 0 ${PAGE.height} 0 0 cm /Im Do Q`;
    objects.push({
      dictionary: '/Filter /FlateDecode',
      stream: deflateSync(Buffer.from(drawing, 'latin1'), { level: 9 }),
    });
    if (page.image !== undefined) objects.push(imageObject(page.image));
  }
  objects[1] = `<< /Type /Pages /Kids [${kids.join(' ')}] /Count ${pages.length} >>`;
  return pdfFile(objects);
}

/** A picture in sixteen greys, two of them to a byte. */
function imageObject({ width, height, grey }) {
  const rowBytes = Math.ceil(width / 2);
  const packed = Buffer.alloc(rowBytes * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      packed[y * rowBytes + (x >> 1)] |= grey[y * width + x] << (x % 2 === 0 ? 4 : 0);
    }
  }
  return {
    dictionary:
      `/Type /XObject /Subtype /Image /Width ${width} /Height ${height} /ColorSpace /DeviceGray ` +
      '/BitsPerComponent 4 /Filter /FlateDecode',
    stream: deflateSync(packed, { level: 9 }),
  };
}

/** Draws the first page of a PDF in grey. */
async function render(pdf) {
  const { init } = await import('@embedpdf/pdfium');
  const wasm = readFileSync(createRequire(import.meta.url).resolve('@embedpdf/pdfium/pdfium.wasm'));
  const m = await init({ wasmBinary: wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength) });
  m.PDFiumExt_Init();
  const file = m.pdfium.wasmExports.malloc(pdf.length);
  m.pdfium.HEAPU8.set(pdf, file);
  const document = m.FPDF_LoadMemDocument(file, pdf.length, '');
  const page = m.FPDF_LoadPage(document, 0);
  const width = Math.round((PAGE.width * SCAN_DPI) / 72);
  const height = Math.round((PAGE.height * SCAN_DPI) / 72);
  const bitmap = m.FPDFBitmap_CreateEx(width, height, 1, 0, 0);
  m.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, 0xffffffff);
  m.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, 0x08);
  const stride = m.FPDFBitmap_GetStride(bitmap);
  const start = m.FPDFBitmap_GetBuffer(bitmap);
  const grey = new Uint8Array(width * height);
  for (let y = 0; y < height; y += 1) {
    grey.set(m.pdfium.HEAPU8.subarray(start + y * stride, start + y * stride + width), y * width);
  }
  return { width, height, grey };
}

/** What a scanner does to a clean page. */
function scan({ width, height, grey }, seed) {
  const random = generator(seed);
  const angle = ((random() - 0.5) * 1.2 * Math.PI) / 180;
  const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 255 : grey[y * width + x]);
  const askew = new Float32Array(width * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const fromX = cos * (x - width / 2) + sin * (y - height / 2) + width / 2;
      const fromY = -sin * (x - width / 2) + cos * (y - height / 2) + height / 2;
      const [x0, y0] = [Math.floor(fromX), Math.floor(fromY)];
      const [dx, dy] = [fromX - x0, fromY - y0];
      askew[y * width + x] =
        at(x0, y0) * (1 - dx) * (1 - dy) +
        at(x0 + 1, y0) * dx * (1 - dy) +
        at(x0, y0 + 1) * (1 - dx) * dy +
        at(x0 + 1, y0 + 1) * dx * dy;
    }
  }
  const out = new Uint8Array(width * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      let sum = 0;
      let weight = 0;
      for (const [ox, oy, w] of [
        [0, 0, 6],
        [1, 0, 1],
        [-1, 0, 1],
        [0, 1, 1],
        [0, -1, 1],
      ]) {
        const [nx, ny] = [x + ox, y + oy];
        if (nx < 0 || ny < 0 || nx >= width || ny >= height) continue;
        sum += askew[ny * width + nx] * w;
        weight += w;
      }
      // Ink is not black and paper not white, and the paper darkens towards the spine.
      const paper = 240 - 28 * Math.max(0, 1 - x / (width * 0.08));
      const ink = 45;
      const shade = ink + ((paper - ink) * sum) / weight / 255;
      out[y * width + x] = Math.round((Math.max(0, Math.min(255, shade)) / 255) * (GREY_LEVELS - 1));
    }
  }
  for (let speck = 0; speck < 500; speck += 1) {
    const [x, y] = [Math.floor(random() * width), Math.floor(random() * height)];
    out[y * width + x] = Math.floor(random() * 10);
  }
  return { width, height, grey: out };
}

/** A generator of numbers from 0 to 1 that gives the same ones for the same seed (mulberry32). */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export async function makeSample() {
  return await makeDocument(SAMPLE_PAGES);
}

/**
 * A document of such pages, as many as one likes. No two scanned pages are the same, even where their text is.
 *
 * @param pages What is at the foot of a page is its number, or `foot`.
 */
export async function makeDocument(pages) {
  const drawn = [];
  for (const [index, { scanned, paragraphs, foot }] of pages.entries()) {
    const drawing = drawPage(paragraphs, index + 1, foot ?? String(index + 1));
    drawn.push(scanned ? { image: scan(await render(documentOf([{ drawing }])), index + 1) } : { drawing });
  }
  return documentOf(drawn);
}

/** What a page of such a document says. Its number counts from 1. */
export function textOf({ paragraphs, foot }, number) {
  return [TITLE, ...paragraphs, foot ?? String(number)].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const out = process.argv[2] ?? fileURLToPath(new URL('sample.pdf', import.meta.url));
  const pdf = await makeSample();
  writeFileSync(out, pdf);
  process.stdout.write(`${out}: ${SAMPLE_PAGES.length} pages, ${pdf.length} bytes\n`);
}
