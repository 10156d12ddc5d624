import { describe, expect, it } from 'vitest';
import { runAtOnce, runSliced, type Sliced } from '../../../../src/jobs/document/summary/slices.js';

function* counted(to: number): Sliced<number> {
  let sum = 0;
  for (let i = 1; i <= to; i += 1) {
    yield;
    sum += i;
  }
  return sum;
}

function* endless(): Sliced<never> {
  for (;;) yield;
}

describe('a long computation', () => {
  const { signal } = new AbortController();

  it('gives the same in slices as at once', async () => {
    expect(await runSliced(counted(1000), signal)).toBe(500_500);
    expect(runAtOnce(counted(1000))).toBe(500_500);
  });

  it('lets others have their turn, and ends at an abort with its reason', async () => {
    const controller = new AbortController();
    const reason = new Error('released');
    // It comes while the computation runs, or never.
    setTimeout(() => controller.abort(reason), 1);
    await expect(runSliced(endless(), controller.signal)).rejects.toBe(reason);
  });

  it('that fails fails', async () => {
    function* failing(): Sliced<never> {
      yield;
      throw new Error('no such page');
    }
    await expect(runSliced(failing(), signal)).rejects.toThrow('no such page');
  });
});
