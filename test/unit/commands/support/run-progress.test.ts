import { describe, expect, it } from 'vitest';
import {
  closeRun,
  observe,
  observeOutage,
  startOfRun,
  WAIT_HINT_AFTER_MS,
  workerHasDocument,
  type PendingActivity,
  type RunState,
} from '../../../../src/commands/support/run-progress.js';
import { RunLines } from '../../../../src/terminal/run-view.js';

const START = startOfRun({ document: 'a.pdf', workflowId: 'document-a', atMs: 0 });
const HINT = 'No worker has taken it.';

function lease(epoch = 1, over: Partial<PendingActivity> = {}): PendingActivity {
  return { activityId: `abc.${epoch}:lease`, activityType: 'atlas:acquireWorker', started: true, attempt: 1, ...over };
}

function step(activityType: string, epoch = 1, over: Partial<PendingActivity> = {}): PendingActivity {
  return { activityId: `abc.${epoch}:1`, activityType, started: true, attempt: 1, worker: 'worker-7', ...over };
}

function see(state: RunState, atMs: number, ...pending: PendingActivity[]): RunState {
  return observe(state, { atMs, pending }, HINT);
}

function states(state: RunState): string {
  return state.view.stages.map((stage) => stage.state).join(' ');
}

describe('observe', () => {
  it('waits for a worker, and says after a while what may be missing', () => {
    expect(states(see(START, 100, lease()))).toBe('running waiting waiting waiting waiting');
    expect(see(START, WAIT_HINT_AFTER_MS - 1, lease()).view.hint).toBeNull();
    expect(see(START, WAIT_HINT_AFTER_MS).view.hint).toBe(HINT);
    const full = lease(1, { started: false, lastFailure: 'Every slot of worker-1 is taken.' });
    expect(see(START, WAIT_HINT_AFTER_MS, full).view.hint).toBe(
      'Waiting for a free slot: Every slot of worker-1 is taken.',
    );
  });

  it('takes a step for running and those before it for done', () => {
    const state = see(START, 500, lease(), step('extractPages', 1, { progress: { done: 2, total: 9, unit: 'pages' } }));
    expect(states(state)).toBe('done done running waiting waiting');
    expect(state.view).toMatchObject({ worker: 'worker-7', redos: 0, hint: null });
    expect(state.view.stages[2]).toMatchObject({ progress: { done: 2 }, startedAtMs: 500 });
  });

  it('keeps what it knows between two steps, when only the lease is pending', () => {
    const running = see(START, 500, lease(), step('downloadDocument'));
    expect(states(see(running, 600, lease()))).toBe('done running waiting waiting waiting');
  });

  it('counts a redo when another lease runs steps again', () => {
    const running = see(START, 500, lease(), step('extractPages'));
    const lost = see(running, 900, lease(2));
    expect(states(lost)).toBe('running waiting waiting waiting waiting');
    expect(lost.view).toMatchObject({ redos: 1, worker: null });
    const again = see(lost, 1_200, lease(2), step('downloadDocument', 2, { worker: 'worker-8' }));
    expect(again.view).toMatchObject({ redos: 1, worker: 'worker-8' });
  });

  it('does not take another try to find a worker for a redo', () => {
    expect(see(see(START, 100, lease(1)), 200, lease(2)).view.redos).toBe(0);
  });

  it('ignores what is left of an older lease', () => {
    const running = see(START, 500, lease(), step('extractPages'));
    const both = see(running, 900, lease(2), step('extractPages', 1), step('downloadDocument', 2));
    expect(states(both)).toBe('done running waiting waiting waiting');
    expect(see(both, 950, lease(2), step('downloadDocument', 2)).view.redos).toBe(1);
  });

  it('remembers since when Temporal is away', () => {
    const away = observeOutage(observeOutage(START, 100), 200);
    expect(away.view.outageSinceMs).toBe(100);
    expect(see(away, 300, lease()).view.outageSinceMs).toBeNull();
  });
});

describe('workerHasDocument', () => {
  it('is true from the step after the download', () => {
    expect(workerHasDocument(START)).toBe(false);
    const downloading = see(START, 1, lease(), step('downloadDocument'));
    expect(workerHasDocument(downloading)).toBe(false);
    expect(workerHasDocument(see(downloading, 2, lease(), step('extractPages')))).toBe(true);
  });
});

describe('closeRun', () => {
  const reading = see(START, 500, lease(), step('extractPages'));

  it('marks everything done', () => {
    const state = closeRun(reading, 900, { failed: false, delivered: true, worker: 'worker-7', redos: 2 });
    expect(states(state)).toBe('done done done done done');
    expect(state.view).toMatchObject({ redos: 2, worker: 'worker-7' });
  });

  it('marks the delivery as skipped when it did not succeed', () => {
    expect(states(closeRun(reading, 900, { failed: false, delivered: false }))).toBe('done done done done skipped');
  });

  it('marks the step that failed', () => {
    expect(states(closeRun(reading, 900, { failed: true, failedStep: 'extractPages' }))).toBe(
      'done done failed waiting waiting',
    );
    expect(states(closeRun(START, 900, { failed: true }))).toBe('failed waiting waiting waiting waiting');
  });
});

describe('RunLines', () => {
  it('tells each change once, and progress at most every two seconds', () => {
    const lines = new RunLines(0);
    const told: string[] = [];
    let state = START;
    const tell = (next: RunState, atMs: number): void => {
      state = next;
      told.push(...lines.next(state.view, atMs));
    };
    const reading = (done: number, atMs: number, over: Partial<PendingActivity> = {}): void =>
      tell(
        see(state, atMs, lease(), step('extractPages', 1, { progress: { done, total: 9, unit: 'pages' }, ...over })),
        atMs,
      );
    tell(state, 0);
    tell(see(state, 900, lease(), step('downloadDocument')), 900);
    for (let done = 1; done <= 6; done += 1) reading(done, 1_000 + done * 500);
    tell(observeOutage(state, 5_000), 5_000);
    tell(observeOutage(state, 6_000), 6_000);
    reading(7, 7_000, { attempt: 2, lastFailure: 'tesseract\ndied' });
    tell(see(state, 8_000, lease(2)), 8_000);
    tell(closeRun(state, 9_000, { failed: false, delivered: true, redos: 1 }), 9_000);
    expect(told).toEqual([
      '[  0.0s] Find a worker: waiting · 0.0s',
      '[  0.9s] Find a worker: worker-7 · 0.9s',
      '[  0.9s] Download: running · 0.0s',
      '[  1.5s] Download: done · 0.6s',
      '[  1.5s] Read pages: running · 1 of 9 pages (11%) · 0.0s',
      '[  3.5s] Read pages: running · 5 of 9 pages (55%) · 2.0s',
      '[  5.0s] Temporal does not answer; waiting for it to come back. The run is not affected by this.',
      '[  7.0s] Temporal answers again after 2.0s.',
      '[  7.0s] Read pages: running · 7 of 9 pages (77%) · attempt 2 after: tesseract died · 5.5s',
      '[  8.0s] The worker was lost; the sequence is done again from its start (1 redo so far).',
      '[  8.0s] Find a worker: waiting · 0.0s',
      '[  9.0s] Find a worker: done · 1.0s',
      '[  9.0s] Download: done',
      '[  9.0s] Read pages: done',
      '[  9.0s] Summarise: done',
      '[  9.0s] Deliver: done',
    ]);
  });
});
