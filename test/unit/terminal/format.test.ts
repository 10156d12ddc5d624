import { describe, expect, it } from 'vitest';
import {
  count,
  displayWidth,
  formatAge,
  formatAmount,
  formatBytes,
  formatDuration,
  plainLines,
  plainText,
  truncate,
  wrapLines,
} from '../../../src/terminal/format.js';

describe('numbers', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1_000, '1.0 kB'],
    [999_949, '999.9 kB'],
    [999_950, '1.0 MB'],
    [209_715_200, '209.7 MB'],
    [5e15, '5000.0 TB'],
  ])('%i bytes are %s', (bytes, expected) => {
    expect(formatBytes(bytes)).toBe(expected);
  });

  it.each([
    [-5, '0.0s'],
    [440, '0.4s'],
    [9_949, '9.9s'],
    [9_950, '10s'],
    [59_499, '59s'],
    [59_500, '59s'],
    [60_000, '1m00s'],
    [3_599_999, '59m59s'],
    [7_800_000, '2h10m'],
    [270_000_000, '3d03h'],
  ])('%i ms are %s', (ms, expected) => {
    expect(formatDuration(ms)).toBe(expected);
  });

  it.each([
    [1_999, '1s'],
    [119_999, '119s'],
    [120_000, '2m'],
    [7_200_000, '2h'],
    [172_800_000, '2d'],
  ])('an age of %i ms is %s', (ms, expected) => {
    expect(formatAge(ms)).toBe(expected);
  });

  it('counts and amounts', () => {
    expect(count(1, 'page')).toBe('1 page');
    expect(count(2, 'redo', 'redos')).toBe('2 redos');
    expect(formatAmount(1_500_000, 3_000_000, 'bytes')).toBe('1.5 MB of 3.0 MB');
    expect(formatAmount(3, undefined, 'pages')).toBe('3 pages');
  });
});

describe('foreign text', () => {
  it('can not move the cursor', () => {
    expect(plainText('a\u001b[2Jb\nc')).toBe('a\ufffd[2Jb\ufffdc');
    expect(plainLines('a\r\nb\tc\u001b]0;x\u0007')).toBe('a\nb\tc\ufffd]0;x\ufffd');
  });

  it('is measured and cut by columns', () => {
    expect(displayWidth('日本')).toBe(4);
    expect(displayWidth('e\u0301')).toBe(1);
    expect(truncate('worker-77', 6)).toBe('worke…');
    expect(truncate('日本語', 4)).toBe('日…');
    expect(truncate('abc', 3)).toBe('abc');
    expect(truncate('abc', 0)).toBe('');
  });

  it('is wrapped with the indent of its list item', () => {
    expect(wrapLines('- one two three', 9)).toBe('- one two\n  three');
    expect(wrapLines('short\n\nlines', 9)).toBe('short\n\nlines');
  });
});
