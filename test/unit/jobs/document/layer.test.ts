import { describe, expect, it } from 'vitest';
import { cleanLayer, cleanOcr, judgeLayer } from '../../../../src/jobs/document/pages/layer.js';
import type { PageFacts } from '../../../../src/jobs/document/pages/pdf.js';
import { pixelSize } from '../../../../src/jobs/document/pages/pdf.js';

function judge(text: string, facts: Partial<PageFacts> = {}): { use: string; why: string } {
  const clean = cleanLayer(text);
  return judgeLayer(
    { width: 595, height: 842, text, characters: text.length, unmapped: 0, objects: 1, pictures: 0, ...facts },
    clean,
  );
}

const PROSE = 'The harbour master is the only person who may give a berth or take it away.';

describe('the choice between text layer and OCR', () => {
  it.each([
    ['a page of prose', PROSE, { pictures: 3 }, 'text'],
    ['a few words without pictures', 'Hello', {}, 'text'],
    ['a number beside a picture', '12', { pictures: 1 }, 'ocr'],
    ['no text beside pictures', '', { pictures: 1 }, 'ocr'],
    ['text objects that gave no text', ' \r\n', { pictures: 0, objects: 3 }, 'ocr'],
    ['nothing at all', '', { objects: 0 }, 'nothing'],
    ['a third of the characters without a mapping', PROSE, { characters: 90, unmapped: 28 }, 'ocr'],
    ['some characters without a mapping', PROSE, { characters: 100, unmapped: 20 }, 'text'],
    ['symbols', '"7+%-@#$%&*()!?<>', {}, 'ocr'],
    ['private use characters', '\uE000\uE001\uE002\uE003\uE004 abc', {}, 'ocr'],
    ['Latin letters with their bytes swapped', '䴀甀氀琀椀挀漀氀漀爀 䈀氀愀挀欀', {}, 'ocr'],
    ['Japanese', '標準マーケットモデルは二次元で説明する。取引できない商品がある。', {}, 'text'],
    ['Arabic', 'هذا مستند قصير جدا مكتوب باللغة العربية', {}, 'text'],
    ['a table of figures', '12 345 1.7 88 9 10 443 12.5 17 18 20 21 22', {}, 'text'],
  ])('%s', (_what, text, facts, use) => {
    expect(judge(text, facts).use).toBe(use);
  });

  it('says why', () => {
    expect(judge(PROSE, { characters: 109, unmapped: 104 }).why).toBe('104 of 109 characters have no Unicode mapping');
  });
});

describe('cleaning', () => {
  it('joins what was hyphenated at the end of a line', () => {
    expect(cleanLayer('dan\uFFFEgerous and conve\uFFFE\r\nnient')).toBe('dangerous and convenient');
    expect(cleanOcr('conve-\nnient, North-\nSouth')).toBe('convenient, North-\nSouth');
  });

  it('ends lines with \\n and drops control characters', () => {
    expect(cleanLayer('one\r\ntwo\u0007\u001B[31m \r\n\r\n\r\n\r\nthree')).toBe('one\ntwo[31m\n\nthree');
  });
});

describe('the size of a picture', () => {
  it('keeps the resolution where the budget allows', () => {
    expect(pixelSize({ width: 595, height: 842 }, 200, 25e6)).toEqual({ width: 1652, height: 2338, dpi: 200 });
  });

  it.each([
    [2160, 2160],
    [8400, 8400],
    [1_000_000, 1_000_000],
    [14_400, 1],
  ])('keeps %i x %i points within the budget', (width, height) => {
    const size = pixelSize({ width, height }, 200, 25e6);
    expect(size.width * size.height).toBeLessThanOrEqual(25e6);
    expect(size.width).toBeGreaterThan(0);
    expect(size.height).toBeGreaterThan(0);
  });
});
