import { describe, expect, it } from 'vitest';
import { formatDurationMs, parseDurationMs } from '../../../src/contract/duration.js';

describe('parseDurationMs', () => {
  it.each([
    ['0s', 0],
    ['500ms', 500],
    ['10s', 10_000],
    ['5m', 300_000],
    ['1h30m', 5_400_000],
    ['2d', 172_800_000],
    ['1.5s', 1_500],
    ['1m500ms', 60_500],
    ['30 seconds', 30_000],
    ['1 hour 30 min', 5_400_000],
    ['2 days', 172_800_000],
  ])('reads %s', (text, expected) => {
    expect(parseDurationMs(text)).toBe(expected);
  });

  it.each(['30', '1.5', '0'])('refuses %s, which has no unit', (text) => {
    expect(() => parseDurationMs(text)).toThrow(`has no unit: write ${text}s, ${text}m or ${text}h`);
  });

  it.each(['', 's', '1y', '-1s', 's1', '1S', '1h30', '.5s', 'a1s', '2 months'])('refuses %j', (text) => {
    expect(() => parseDurationMs(text)).toThrow('is not a duration');
  });
});

describe('formatDurationMs', () => {
  it.each([
    [0, '0s'],
    [500, '500ms'],
    [90_000, '1m30s'],
    [86_400_000, '1d'],
    [90_061_001, '1d1h1m1s1ms'],
  ])('writes %d as %s, which reads back the same', (durationMs, expected) => {
    expect(formatDurationMs(durationMs)).toBe(expected);
    expect(parseDurationMs(expected)).toBe(durationMs);
  });
});
