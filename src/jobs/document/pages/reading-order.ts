/**
 * Puts characters into the order in which they are read, where pdfium's is another one. Pure.
 *
 * pdfium takes every text for one of lines from left to right. The columns of vertical Japanese or Chinese therefore come
 * in reverse, and one glyph that stands for several Arabic letters (lam and alef, say) has them in reverse, as pdfium
 * turns what stands from right to left letter by letter.
 */

/** A character of a page, with where it is drawn: points from the lower left corner. */
export interface PlacedCharacter {
  readonly character: string;
  readonly x: number;
  readonly y: number;
}

const VERTICAL_SCRIPT = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;
const RIGHT_TO_LEFT = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFC]/u;
const MARK = /^\p{M}/u;
/** The share of ideographs and kana that makes a page one that may be written vertically. */
const MIN_VERTICAL_SHARE = 0.5;
/** How far two characters of a column may be apart, measured by the typical distance. */
const MAX_STEP = 2.5;
/** How far a character may be beside the one above it, measured the same way. */
const MAX_DRIFT = 0.3;
/** An empty band of this height, measured the same way, divides a page into an upper and a lower part. */
const MIN_BAND = 1.5;

/** Whether the order of this text may be wrong, so that it is worth asking for the places of its characters. */
export function mayNeedOrder(text: string): boolean {
  return RIGHT_TO_LEFT.test(text) || isMostlyIdeographs(text);
}

function isMostlyIdeographs(text: string): boolean {
  const solid = [...text.replace(/\s+/gu, '')];
  return solid.filter((character) => VERTICAL_SCRIPT.test(character)).length > solid.length * MIN_VERTICAL_SHARE;
}

/** The text of a page in reading order. */
export function readingOrder(characters: readonly PlacedCharacter[]): string {
  const text = characters.map(({ character }) => character).join('');
  if (RIGHT_TO_LEFT.test(text)) return withLettersOfGlyphs(characters);
  return (isMostlyIdeographs(text) ? verticalText(characters) : null) ?? text;
}

interface Column {
  text: string;
  readonly x: number;
  readonly top: number;
  bottom: number;
}

/** The text of vertical columns: the upper part of the page first, and in it from right to left. Null where it has none. */
function verticalText(characters: readonly PlacedCharacter[]): string | null {
  const step = typicalStep(characters);
  if (step === null) return null;
  const columns: Column[] = [];
  let current: Column | undefined;
  for (const { character, x, y } of characters) {
    // What pdfium puts between two columns, a space or a line end, belongs to neither.
    if (/[ \r\n\t]/.test(character)) continue;
    const below: boolean =
      current !== undefined &&
      Math.abs(x - current.x) <= step * MAX_DRIFT &&
      y < current.bottom &&
      current.bottom - y <= step * MAX_STEP;
    if (current === undefined || !below) {
      current = { text: '', x, top: y, bottom: y };
      columns.push(current);
    }
    current.text += character;
    current.bottom = y;
  }
  return bands(columns, step)
    .map((band) => band.sort((a, b) => b.x - a.x || b.top - a.top).map((column) => column.text))
    .map((lines) => lines.join('\n'))
    .join('\n');
}

/** The usual distance from a character to the one below it, or null where most characters have none below. */
function typicalStep(characters: readonly PlacedCharacter[]): number | null {
  const solid = characters.filter(({ character }) => !/[ \r\n\t]/.test(character));
  const steps: number[] = [];
  solid.forEach(({ x, y }, index) => {
    const next = solid[index + 1];
    if (next === undefined) return;
    const down = y - next.y;
    if (down > 0 && Math.abs(next.x - x) <= down * MAX_DRIFT) steps.push(down);
  });
  if (steps.length < solid.length * MIN_VERTICAL_SHARE) return null;
  steps.sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? null;
}

/** Columns by the parts of the page that an empty band divides, from the top. */
function bands(columns: readonly Column[], step: number): Column[][] {
  const found: Column[][] = [];
  let bottom = Number.NEGATIVE_INFINITY;
  for (const column of [...columns].sort((a, b) => b.top - a.top)) {
    const band = found.at(-1);
    if (band === undefined || bottom - column.top > step * MIN_BAND) {
      found.push([column]);
      bottom = column.bottom;
    } else {
      band.push(column);
      bottom = Math.min(bottom, column.bottom);
    }
  }
  return found;
}

/** The text with the letters of each right-to-left glyph in their order: those at the very same place are one glyph's. */
function withLettersOfGlyphs(characters: readonly PlacedCharacter[]): string {
  let text = '';
  for (let i = 0; i < characters.length;) {
    const first = characters[i];
    if (first === undefined) break;
    let end = i + 1;
    if (RIGHT_TO_LEFT.test(first.character)) {
      for (; end < characters.length; end += 1) {
        const next = characters[end];
        if (next === undefined || next.x !== first.x || next.y !== first.y) break;
        if (!RIGHT_TO_LEFT.test(next.character)) break;
      }
    }
    const glyph = characters.slice(i, end).map(({ character }) => character);
    text += (isReversed(glyph) ? glyph.reverse() : glyph).join('');
    i = end;
  }
  return text;
}

/**
 * Whether pdfium has turned the letters of this glyph. It has where the font's map gives several letters, and has not
 * where the map gives one ligature that pdfium takes apart itself. Turned letters do not end with a mark, as a word
 * does not begin with one.
 */
function isReversed(glyph: readonly string[]): boolean {
  if (glyph.length < 2) return false;
  return !MARK.test(glyph.at(-1) ?? '') && !ligatures().has(glyph.join(''));
}

let knownLigatures: ReadonlySet<string> | undefined;

/** The letters of each ligature that Unicode has as one character. */
function ligatures(): ReadonlySet<string> {
  if (knownLigatures === undefined) {
    const found = new Set<string>();
    for (let code = 0xfb1d; code <= 0xfefc; code += 1) {
      const letters = String.fromCharCode(code).normalize('NFKC');
      if (letters.length > 1) found.add(letters);
    }
    knownLigatures = found;
  }
  return knownLigatures;
}
