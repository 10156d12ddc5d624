import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { inTime } from '../../../src/contract/in-time.js';

describe('inTime', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const never = new Promise<never>(() => undefined);

  it('gives what comes in time, or its error, and leaves no timer', async () => {
    const late = vi.fn();
    expect(await inTime(Promise.resolve(1), 1_000, late)).toBe(1);
    await expect(inTime(Promise.reject(new Error('bad')), 1_000, late)).rejects.toThrow('bad');
    expect(vi.getTimerCount()).toBe(0);
    expect(late).not.toHaveBeenCalled();
  });

  it('gives what is said of what is late, which may be an error', async () => {
    const said = inTime(never, 1_000, () => 'late');
    const thrown = inTime(never, 1_000, () => {
      throw new Error('late');
    });
    const refused = expect(thrown).rejects.toThrow('late');
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await said).toBe('late');
    await refused;
  });

  it('waits not at all where no time is left', async () => {
    const said = inTime(never, -5, () => 'late');
    await vi.advanceTimersByTimeAsync(0);
    expect(await said).toBe('late');
  });
});
