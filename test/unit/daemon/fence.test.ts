/** The fence as arithmetic: when attempts must have ended, and when one may start. */
import { describe, expect, it } from 'vitest';
import { Fence, type FencedSession } from '../../../src/daemon/fence.js';

const PRESENCE_TTL_MS = 6_000;
const SESSION: FencedSession = { key: 's.run', leaseTtlMs: 60_000, recoveryWindowMs: 5_000 };

/** A fence that was told at 0 that the session is held; with presence watched where that is asked for. */
function fenceOf({ watched = false, session = SESSION } = {}): Fence {
  const fence = new Fence(PRESENCE_TTL_MS);
  fence.confirmed(session.key, 0);
  if (watched) fence.presenceAnswered(0);
  return fence;
}

describe('the deadline of a session', () => {
  it('is a window after its lease while nobody watches presence', () => {
    const fence = fenceOf();
    expect(fence.deadlineMs(SESSION)).toBe(65_000);
    fence.renewed(SESSION, 20_000);
    expect(fence.deadlineMs(SESSION)).toBe(85_000);
  });

  it('is a window after presence where that ends before the lease', () => {
    const fence = fenceOf({ watched: true });
    expect(fence.deadlineMs(SESSION)).toBe(11_000);
    fence.presenceAnswered(2_000);
    expect(fence.deadlineMs(SESSION)).toBe(13_000);
  });

  it('is a window after presence from the first on that was sent, though it was not answered', () => {
    const fence = fenceOf();
    fence.presenceSent(1_000);
    fence.presenceSent(3_000);
    expect(fence.deadlineMs(SESSION)).toBe(11_000);
    const other = { ...SESSION, key: 't.run' };
    fence.granted(other.key, 4_000);
    expect(fence.deadlineMs(other)).toBe(12_000);
  });

  it('is a window after the lease where that ends before presence', () => {
    const short = { ...SESSION, leaseTtlMs: 1_500 };
    const fence = fenceOf({ watched: true, session: short });
    expect(fence.deadlineMs(short)).toBe(6_500);
    fence.presenceAnswered(2_000);
    expect(fence.deadlineMs(short)).toBe(6_500);
    fence.renewed(short, 500);
    expect(fence.deadlineMs(short)).toBe(7_000);
  });

  it('counts from the latest call that was answered, in whatever order the answers came', () => {
    const fence = fenceOf({ watched: true });
    fence.renewed(SESSION, 40_000);
    fence.renewed(SESSION, 20_000);
    fence.presenceAnswered(30_000);
    fence.presenceAnswered(28_000);
    expect(fence.deadlineMs(SESSION)).toBe(41_000);
    // Nor does a confirmation tell more of presence than presence itself.
    fence.confirmed(SESSION.key, 35_000);
    expect(fence.deadlineMs(SESSION)).toBe(41_000);
  });

  it('is not moved by a grant beyond what presence was last heard', () => {
    const fence = fenceOf({ watched: true });
    const other = { ...SESSION, key: 't.run' };
    fence.granted(other.key, 15_000);
    // Owners may be told at any moment that presence was missed.
    expect(fence.deadlineMs(other)).toBe(11_000);
    expect(fence.mayStart(other, 15_000)).toBe('ask-first');
    fence.presenceAnswered(15_100);
    expect(fence.deadlineMs(other)).toBe(26_100);
    expect(fence.mayStart(other, 15_200)).toBe('yes');
  });

  it('is kept for each session by itself', () => {
    const fence = fenceOf();
    const other = { ...SESSION, key: 't.run' };
    fence.confirmed(other.key, 7_000);
    fence.renewed(other, 20_000);
    expect([fence.deadlineMs(SESSION), fence.deadlineMs(other)]).toEqual([65_000, 85_000]);
  });

  it('has passed for a session that was forgotten, and nothing brings it back but a confirmation', () => {
    const fence = fenceOf({ watched: true });
    fence.forget(SESSION.key);
    fence.renewed(SESSION, 1_000);
    fence.presenceAnswered(1_000);
    expect(fence.deadlineMs(SESSION)).toBe(Number.NEGATIVE_INFINITY);
    expect(fence.mayStart(SESSION, 1_000)).toBe('no');
    fence.confirmed(SESSION.key, 2_000);
    expect(fence.mayStart(SESSION, 2_000)).toBe('yes');
  });
});

describe('attempts end before the deadline', () => {
  it.each([
    // Window, and how long before the deadline they are cancelled and killed.
    [60_000, 3_000, 1_000],
    [5_000, 3_000, 1_000],
    [4_000, 2_400, 800],
    [1_000, 600, 200],
  ])('with a window of %d ms by %d and %d ms', (recoveryWindowMs, cancelMs, killMs) => {
    const session = { ...SESSION, recoveryWindowMs };
    const fence = fenceOf({ session });
    const deadlineMs = fence.deadlineMs(session);
    expect(deadlineMs - fence.cancelAtMs(session)).toBe(cancelMs);
    expect(deadlineMs - fence.killAtMs(session)).toBe(killMs);
    // Not before the lease itself is over, or every renewal that is late would end what runs.
    expect(fence.cancelAtMs(session)).toBeGreaterThan(session.leaseTtlMs);
  });
});

describe('an attempt may start', () => {
  it('while something was heard within three quarters of the shorter TTL, and after that asks first', () => {
    const fence = fenceOf();
    expect(fence.mayStart(SESSION, 45_000)).toBe('yes');
    expect(fence.mayStart(SESSION, 45_001)).toBe('ask-first');
    fence.presenceAnswered(50_000);
    expect(fence.mayStart(SESSION, 54_500)).toBe('yes');
    expect(fence.mayStart(SESSION, 54_501)).toBe('ask-first');
    fence.renewed(SESSION, 54_000);
    expect(fence.mayStart(SESSION, 54_501)).toBe('yes');
  });

  it('asks first from the moment at which attempts are cancelled', () => {
    const short = { ...SESSION, leaseTtlMs: 1_500, recoveryWindowMs: 1_000 };
    const fence = fenceOf({ watched: true, session: short });
    // Presence is answered all the while; the lease is not.
    fence.presenceAnswered(1_899);
    expect(fence.mayStart(short, 1_899)).toBe('yes');
    fence.presenceAnswered(1_900);
    expect(fence.mayStart(short, 1_900)).toBe('ask-first');
  });
});

describe('a suspicion', () => {
  it('comes with the end of presence, and no answer to presence lifts it or moves the deadline', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceAnswered(1_000);
    fence.presenceGone(8_000);
    expect(fence.mayStart(SESSION, 8_000)).toBe('no');
    fence.presenceAnswered(9_000);
    expect(fence.mayStart(SESSION, 9_000)).toBe('no');
    expect(fence.deadlineMs(SESSION)).toBe(12_000);
  });

  it('is lifted by the confirmation that the owner got', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceGone(8_000);
    fence.confirmed(SESSION.key, 9_000);
    expect(fence.mayStart(SESSION, 9_000)).toBe('yes');
    expect(fence.deadlineMs(SESSION)).toBe(20_000);
  });

  it('is followed by a deadline that counts from the presence that was answered meanwhile, if any', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceGone(8_000);
    fence.presenceAnswered(8_300);
    fence.confirmed(SESSION.key, 10_000);
    expect(fence.deadlineMs(SESSION)).toBe(19_300);
  });

  it('is lifted by no renewal, however late: nobody knows how long an owner takes to decide', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceGone(8_000);
    fence.renewed(SESSION, 600_000);
    expect(fence.mayStart(SESSION, 600_000)).toBe('no');
    expect(fence.deadlineMs(SESSION)).toBe(11_000);
  });

  it('needs the word of the owner when that has not come within 3 s of its begin', () => {
    const fence = fenceOf({ watched: true });
    expect(fence.needsWord(SESSION.key, 8_000)).toBe(false);
    fence.presenceGone(8_000);
    fence.presenceGone(9_000);
    expect([10_999, 11_000].map((nowMs) => fence.needsWord(SESSION.key, nowMs))).toEqual([false, true]);
    fence.confirmed(SESSION.key, 12_000);
    expect(fence.needsWord(SESSION.key, 60_000)).toBe(false);
    fence.presenceGone(60_000);
    expect(fence.needsWord(SESSION.key, 62_000)).toBe(false);
    fence.forget(SESSION.key);
    expect(fence.needsWord(SESSION.key, 70_000)).toBe(false);
  });

  it('about which its owner was asked ends attempts a window after that, until the owner has its answer', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceAnswered(20_000);
    fence.presenceGone(20_500);
    expect(fence.deadlineMs(SESSION)).toBe(31_000);
    fence.asked(SESSION.key, 23_500);
    fence.asked(SESSION.key, 25_500);
    expect(fence.deadlineMs(SESSION)).toBe(28_500);
    // The fleet's trust does not reach an owner that is asking already.
    fence.presenceTrusted(26_000);
    expect(fence.mayStart(SESSION, 26_000)).toBe('no');
    expect(fence.needsWord(SESSION.key, 26_000)).toBe(true);
    fence.confirmed(SESSION.key, 27_000);
    expect(fence.deadlineMs(SESSION)).toBe(37_000);
    expect(fence.needsWord(SESSION.key, 27_000)).toBe(false);
  });

  it('does not touch a session that is held since', () => {
    const fence = fenceOf({ watched: true });
    fence.presenceGone(8_000);
    fence.granted('t.run', 9_000);
    fence.presenceAnswered(9_100);
    expect(fence.mayStart({ ...SESSION, key: 't.run' }, 9_200)).toBe('yes');
    expect(fence.mayStart(SESSION, 9_200)).toBe('no');
  });
});
