import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Pacer } from '../../../../src/commands/support/pacer.js';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** Turns that take a given time; how many run at once, and when each began. */
function turns(tookMs: number): { turn: () => Promise<void>; startedMs: number[]; most: () => number } {
  const startedMs: number[] = [];
  let running = 0;
  let most = 0;
  const turn = async (): Promise<void> => {
    startedMs.push(Date.now());
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, tookMs));
    running -= 1;
  };
  return { turn, startedMs, most: () => most };
}

const gaps = (times: readonly number[]): number[] => times.slice(1).map((time, index) => time - times[index]!);

describe('a pacer', () => {
  it('pauses for its interval after a short turn', async () => {
    const { turn, startedMs } = turns(100);
    const pacer = new Pacer(turn, 2_000, Date.now);
    pacer.soon();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(gaps(startedMs)).toEqual([2_100, 2_100, 2_100, 2_100]);
    const stopped = pacer.stop();
    await vi.advanceTimersByTimeAsync(10_000);
    await stopped;
    expect(startedMs).toHaveLength(5);
  });

  it('pauses four times as long as a long turn took', async () => {
    const { turn, startedMs } = turns(3_000);
    const pacer = new Pacer(turn, 2_000, Date.now);
    pacer.soon();
    await vi.advanceTimersByTimeAsync(31_000);
    expect(gaps(startedMs)).toEqual([15_000, 15_000]);
    const stopped = pacer.stop();
    await vi.advanceTimersByTimeAsync(3_000);
    await stopped;
  });

  it('never turns twice at once, and once more after a turn in which it was asked to', async () => {
    const { turn, startedMs, most } = turns(1_000);
    const pacer = new Pacer(turn, 60_000, Date.now);
    pacer.soon();
    await vi.advanceTimersByTimeAsync(500);
    pacer.soon();
    pacer.soon();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(gaps(startedMs)).toEqual([1_000]);
    expect(most()).toBe(1);
    pacer.soon();
    await vi.advanceTimersByTimeAsync(0);
    expect(startedMs).toHaveLength(3);
    const stopped = pacer.stop();
    pacer.soon();
    await vi.advanceTimersByTimeAsync(120_000);
    await stopped;
    expect(startedMs).toHaveLength(3);
  });
});
