import { describe, expect, it } from 'vitest';
import {
  durationBetween,
  integerBetween,
  parseDurationMs,
  parseList,
  parseServeAddress,
  parseSha256,
  parseSummaryLength,
} from '../../../../src/commands/support/parse.js';
import { didYouMean } from '../../../../src/commands/support/did-you-mean.js';

describe('parseDurationMs', () => {
  it.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['1h30m', 5_400_000],
    ['1.5s', 1_500],
    ['2d', 172_800_000],
  ])('reads %s', (text, expected) => {
    expect(parseDurationMs(text)).toBe(expected);
  });

  it.each(['', '5 s', 's', '5x', '-5s', '5s!', '1e3s'])('refuses %j', (text) => {
    expect(() => parseDurationMs(text)).toThrow('is not a duration');
  });

  it('asks for the unit of a bare number', () => {
    expect(() => parseDurationMs('5')).toThrow('"5" has no unit; write 5s, 5m or 5h');
  });

  it('names the bounds', () => {
    expect(() => durationBetween(1_000, 3_600_000)('2h')).toThrow('"2h" is outside 1s to 1h');
    expect(durationBetween(1_000, 3_600_000)('1h')).toBe(3_600_000);
  });
});

describe('integerBetween', () => {
  it.each(['0', '10', '1.5', 'x', '', '-1', '1e1', '0x5'])('refuses %j', (text) => {
    expect(() => integerBetween(1, 9)(text)).toThrow('is not a whole number from 1 to 9');
  });
});

describe('parseSummaryLength', () => {
  it.each([
    ['short', 3],
    ['medium', 6],
    ['long', 12],
    ['1', 1],
    ['100', 100],
  ])('reads %s', (text, expected) => {
    expect(parseSummaryLength(text)).toBe(expected);
  });

  it.each(['0', '101', '1.5', 'Long', 'lang', '', '-1', '1e1', '0x5'])('refuses %j', (text) => {
    expect(() => parseSummaryLength(text)).toThrow(
      `"${text}" is neither short, medium, long nor a number of sentences from 1 to 100`,
    );
  });
});

describe('parseList', () => {
  it('splits at commas and drops empty parts', () => {
    expect(parseList(' gpu, ocr,,')).toEqual(['gpu', 'ocr']);
  });
});

describe('parseServeAddress', () => {
  it.each([
    ['127.0.0.1', { host: '127.0.0.1', port: 0 }],
    ['localhost:8080', { host: 'localhost', port: 8080 }],
    ['[::1]:80', { host: '::1', port: 80 }],
    ['[::1]', { host: '::1', port: 0 }],
  ])('reads %s', (text, expected) => {
    expect(parseServeAddress(text)).toEqual(expected);
  });

  it.each(['', ':80', '::1', 'http://localhost', 'a:70000', 'a:b'])('refuses %j', (text) => {
    expect(() => parseServeAddress(text)).toThrow('is not HOST or HOST:PORT');
  });
});

describe('didYouMean', () => {
  it('prefers the word that was only begun', () => {
    expect(didYouMean('process', ['professor', 'process-document'])).toBe(' Did you mean process-document?');
    expect(didYouMean('zzz', ['process-document'])).toBe('');
  });
});

describe('parseSha256', () => {
  it('takes 64 hexadecimal digits of either case', () => {
    expect(parseSha256('AB'.repeat(32))).toBe('ab'.repeat(32));
  });

  it.each(['', 'ab', 'ab'.repeat(33), 'g'.repeat(64), `sha256:${'a'.repeat(57)}`])('refuses %j', (text) => {
    expect(() => parseSha256(text)).toThrow('is not a SHA-256');
  });
});
