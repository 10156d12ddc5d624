/** The words for a session that keeps its worker, and the lines of a drain in a log. */
import { describe, expect, it } from 'vitest';
import type { Blocker, OwnerLook, PinnedStep } from '../../../src/fleet/blockers.js';
import { accepted, advance, ordered, planWorker, startPlan } from '../../../src/fleet/drain-plan.js';
import { blockerText, DrainLines, type DrainScreen } from '../../../src/terminal/drain-view.js';
import { sessionRecord, workerRecord } from '../../support/records.js';

const NOW_MS = Date.parse('2026-03-01T10:00:00Z');
const iso = (agoMs: number): string => new Date(NOW_MS - agoMs).toISOString();

const step = (over: Partial<PinnedStep> = {}): PinnedStep => ({
  activity: 'extractPages',
  attempt: 1,
  started: true,
  progress: { done: 12, total: 80, unit: 'pages' },
  signature: '',
  nextAttemptAtMs: null,
  scheduledAtMs: NOW_MS - 5_000,
  lastFailure: null,
  ...over,
});

const owner = (over: Partial<OwnerLook> = {}): OwnerLook => ({
  status: 'RUNNING',
  steps: [],
  elsewhere: [],
  task: null,
  ...over,
});

const working = sessionRecord('s1', { step: { activity: 'extractPages', attempt: 1, startedAt: iso(120_000) } });
const idle = sessionRecord('s1', {
  step: null,
  idleForMs: 300_000,
  lastStep: { activity: 'downloadDocument', endedAt: iso(300_000) },
});

function told(blocker: Partial<Blocker>): string {
  const { verdict, doing, says } = blockerText(
    { session: working, owner: owner(), movedAtMs: null, watchedSinceMs: NOW_MS - 60_000, ...blocker },
    NOW_MS,
  );
  return `${verdict}: ${doing} | ${says}`;
}

describe('a session that keeps its worker', () => {
  it.each<[string, Partial<Blocker>]>([
    [
      'moves: extractPages 2m00s | moved 2.0s ago · 12 of 80 pages (15%)',
      { owner: owner({ steps: [step()] }), movedAtMs: NOW_MS - 2_000 },
    ],
    [
      'stuck: extractPages 2m00s | no progress for 42s · 12 of 80 pages (15%)',
      { owner: owner({ steps: [step()] }), movedAtMs: NOW_MS - 42_000 },
    ],
    // Looked at for the first time: nothing can be said yet.
    [
      'unclear: extractPages 2m00s | 12 of 80 pages (15%)',
      { owner: owner({ steps: [step()] }), watchedSinceMs: NOW_MS },
    ],
    ['unclear: extractPages 2m00s | it reports no progress', { owner: owner({ steps: [step({ progress: null })] }) }],
    [
      'unclear: extractPages | attempt 3 after: tesseract died with signal 9, in 12s',
      {
        session: idle,
        owner: owner({
          steps: [
            step({
              started: false,
              attempt: 3,
              nextAttemptAtMs: NOW_MS + 12_000,
              lastFailure: 'tesseract died\nwith signal 9',
            }),
          ],
        }),
      },
    ],
    [
      'stuck: extractPages | not begun for 1m10s',
      { session: idle, owner: owner({ steps: [step({ started: false, scheduledAtMs: NOW_MS - 70_000 })] }) },
    ],
    ['stuck: no step running for 5m00s | owner waits for a timer, signal or child', { session: idle }],
    [
      'stuck: no step running for 5m00s | owner waits for callModel elsewhere',
      { session: idle, owner: owner({ elsewhere: ['callModel', 'callModel'] }) },
    ],
    [
      'stuck: no step running for 5m00s | no worker takes the workflow task of its owner, for 40s',
      { session: idle, owner: owner({ task: { attempt: 1, started: false, sinceMs: NOW_MS - 40_000 } }) },
    ],
    [
      'stuck: no step running for 5m00s | the workflow task of its owner fails, attempt 7',
      { session: idle, owner: owner({ task: { attempt: 7, started: false, sinceMs: null } }) },
    ],
    [
      'stuck: no step running for 5m00s | its owner has ended (TERMINATED); the worker notices within seconds',
      { session: idle, owner: owner({ status: 'TERMINATED' }) },
    ],
    ['stuck: no step running for 5m00s | ', { session: idle, owner: null }],
    ['moves: is being released | ', { session: sessionRecord('s1', { state: 'releasing' }) }],
  ])('%s', (expected, blocker) => {
    expect(told(blocker)).toBe(expected);
  });

  it('can not move the cursor by what its owner chose', () => {
    const evil = owner({ steps: [step({ activity: 'a\u001b[2J', progress: null })] });
    expect(told({ owner: evil })).toContain('a\ufffd[2J');
  });
});

describe('the lines of a drain', () => {
  it('are one for each change, and what goes on every 30 s', () => {
    const lines = new DrainLines();
    let plan = startPlan(['a', 'b'], { maxParallel: 1, minReady: 0, deadlineMs: null, onDeadline: 'report' }, NOW_MS);
    const draining = { ...workerRecord('a').scheduling, scheduling: 'draining' as const, revision: 1, who: 'ops@a' };
    let a = workerRecord('a');
    const b = workerRecord('b', { sessions: 0 });
    const held = sessionRecord('s1', { worker: 'a', step: null, idleForMs: 1_000, heldForMs: 5_000 });
    const show = (atMs: number, over: Partial<DrainScreen> = {}): string[] => {
      const next = advance(plan, [a, b].map(planWorker), NOW_MS + atMs);
      plan = next.plan;
      for (const name of next.start) plan = ordered(plan, name, NOW_MS + atMs);
      const session = { ...held, idleForMs: 1_000 + atMs };
      return lines.next({
        startedAtMs: NOW_MS,
        nowMs: NOW_MS + atMs,
        targets: plan.targets,
        waits: next.waits,
        workers: new Map([a, b].map((worker) => [worker.name, worker])),
        blockers: [{ session, owner: owner(), movedAtMs: null, watchedSinceMs: NOW_MS }],
        maxParallel: 1,
        monitor: false,
        outageSinceMs: null,
        ...over,
      });
    };
    expect(show(0)).toEqual(['[  0.0s] a: is being told', '[  0.0s] b: waits: 1 being drained, --max-parallel 1']);
    a = workerRecord('a', { state: 'draining', scheduling: draining });
    plan = accepted(plan, 'a', { revision: 1, scheduling: 'draining', sinceMs: 0, drain: null, notes: [] }, NOW_MS);
    expect(show(1_000)).toEqual([
      '[  1.0s] a: draining, 1 of 4 slots held',
      expect.stringMatching(/^\[ {2}1\.0s\] a: {3}s1 {2}no step yet for 2\.0s · owner waits/),
    ]);
    expect(show(20_000)).toEqual([]);
    // It has come to a stop; then the reminder, which says it again.
    expect(show(29_500)).toEqual([expect.stringContaining('s1  STUCK? no step yet for 31s')]);
    expect(show(31_000)).toEqual([
      '[   31s] a: still draining, 1 of 4 slots held',
      expect.stringContaining('s1  STUCK?'),
      '[   31s] b: still waits: 1 being drained, --max-parallel 1',
    ]);
    expect(show(32_000, { outageSinceMs: NOW_MS + 31_500 })).toEqual([
      expect.stringContaining('Temporal has not answered for 0.5s'),
    ]);
    expect(show(33_000)).toEqual(['[   33s] Temporal answers again.']);
    a = workerRecord('a', { state: 'lost', scheduling: draining, heartbeatAgeMs: 7_000 });
    expect(show(34_000)).toEqual(['[   34s] a: lost for 7.0s; the drain goes on when it returns']);
    a = workerRecord('a', { state: 'draining', scheduling: draining });
    expect(show(35_000)).toEqual(['[   35s] a: draining, 1 of 4 slots held']);
    a = workerRecord('a', {
      state: 'drained',
      sessions: 0,
      scheduling: { ...draining, scheduling: 'drained', revision: 2 },
    });
    expect(show(36_000)).toEqual(['[   36s] a: drained in 36s', '[   36s] b: is being told']);
  });
});
