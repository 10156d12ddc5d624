import { describe, expect, it } from 'vitest';
import { mayNeedOrder, readingOrder, type PlacedCharacter } from '../../../../src/jobs/document/pages/reading-order.js';

/** A column of characters, each 10 points below the one before. */
function column(text: string, x: number, top: number): PlacedCharacter[] {
  return [...text].map((character, index) => ({ character, x, y: top - index * 10 }));
}

function line(text: string, y: number): PlacedCharacter[] {
  return [...text].map((character, index) => ({ character, x: 50 + index * 10, y }));
}

/** What pdfium puts between two columns. */
const SPACE: PlacedCharacter = { character: ' ', x: 0, y: 0 };

describe('vertical columns', () => {
  it('are read from the right to the left', () => {
    const characters = [
      ...column('三行目です', 100, 700),
      SPACE,
      ...column('二行目', 120, 700),
      SPACE,
      ...column('一行目', 140, 700),
    ];
    expect(readingOrder(characters)).toBe('一行目\n二行目\n三行目です');
  });

  it('in two parts of a page are read part by part', () => {
    const characters = [
      ...column('下段二', 100, 400),
      ...column('上段二', 100, 700),
      ...column('下段一', 120, 400),
      ...column('上段一です', 120, 690),
    ];
    expect(readingOrder(characters)).toBe('上段一です\n上段二\n下段一\n下段二');
  });

  it('are no matter of horizontal lines, whatever their script', () => {
    const horizontal = [...line('横書きの一行目', 700), { character: '\n', x: 0, y: 0 }, ...line('二行目', 680)];
    expect(readingOrder(horizontal)).toBe('横書きの一行目\n二行目');
    const label = [...line('横書きの一行目', 700), ...column('縦書', 200, 650)];
    expect(readingOrder(label)).toBe('横書きの一行目縦書');
    const latin = [...column('abc', 100, 700), ...column('def', 120, 700)];
    expect(readingOrder(latin)).toBe('abcdef');
  });
});

describe('the letters of a right-to-left glyph', () => {
  const glyph = (letters: string, x: number): PlacedCharacter[] =>
    [...letters].map((character) => ({ character, x, y: 700 }));

  it('are turned where pdfium has turned them', () => {
    const salam = [...glyph('س', 80), ...glyph('ال', 60), ...glyph('م', 50)];
    expect(readingOrder(salam)).toBe('سلام');
    expect(readingOrder(glyph('\u064A\u0628\u064E\u062D', 80))).toBe('\u062D\u064E\u0628\u064A');
  });

  it('stay where they are a ligature that Unicode has, a letter with its mark, or letters of their own', () => {
    expect(readingOrder([...glyph('س', 80), ...glyph('لا', 60), ...glyph('م', 50)])).toBe('سلام');
    expect(readingOrder(glyph('\u062D\u064E', 80))).toBe('\u062D\u064E');
    expect(readingOrder([...glyph('ا', 80), ...glyph('ل', 60)])).toBe('ال');
    expect(readingOrder([...glyph('ا', 80), ...glyph('fi', 60)])).toBe('اfi');
  });
});

it('places are only asked for where they may matter', () => {
  expect(mayNeedOrder('The tide sets the working day. 東京')).toBe(false);
  expect(mayNeedOrder('わたくしといふ現象は')).toBe(true);
  expect(mayNeedOrder('The word سلام means peace.')).toBe(true);
});
