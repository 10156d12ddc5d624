/**
 * Plays a run in the live view, for `run-view.test.ts`, which looks at it from outside through a pseudo-terminal. The
 * scenes are driven by lines on a socket and not by time: `next` shows the next one, `end` ends the view.
 */
import { createInterface } from 'node:readline';
import { connect } from 'node:net';
import { observe, observeOutage, startOfRun } from '../../dist/commands/support/run-progress.js';
import { startLiveRunView } from '../../dist/terminal/run-view-live.js';
import { wantsColour } from '../../dist/terminal/style.js';

const HINT = 'No worker of the fleet "atlas" has taken the run yet. See `atlas workers ls`; start one with `atlasd`.';

function lease(epoch) {
  return { activityId: `abc.${epoch}:lease`, activityType: 'atlas:acquireWorker', started: true, attempt: 1 };
}

function step(activityType, epoch, over = {}) {
  return { activityId: `abc.${epoch}:1`, activityType, started: true, attempt: 1, worker: `worker-${epoch}`, ...over };
}

const MEGABYTE = 1_000_000;
const SCENES = [
  { atMs: 6_000, pending: [] },
  {
    atMs: 7_000,
    pending: [
      lease(1),
      step('downloadDocument', 1, { progress: { done: 50 * MEGABYTE, total: 200 * MEGABYTE, unit: 'bytes' } }),
    ],
  },
  {
    atMs: 9_000,
    pending: [
      lease(1),
      step('extractPages', 1, {
        attempt: 2,
        lastFailure: 'tesseract died\nwith signal 9',
        progress: { done: 31, total: 352, unit: 'pages', note: 'page 32 with OCR' },
      }),
    ],
  },
  { atMs: 10_000, pending: 'outage' },
  { atMs: 12_000, pending: [lease(2), step('downloadDocument', 2)] },
];

let nowMs = 0;
let state = startOfRun({
  document: 'a-report-with-a-long-name-of-the-year-2024.pdf',
  workflowId: 'document-a',
  atMs: 0,
});
const view = startLiveRunView(state.view, {
  stream: process.stdout,
  stdin: process.stdin,
  colour: wantsColour(process.stdout, process.env),
  startedAtMs: 0,
  now: () => nowMs,
});

async function end(code) {
  await view.end();
  process.stdout.write('the terminal is free\n');
  process.exit(code);
}

process.once('SIGINT', () => void end(130));
const control = connect(Number(process.argv[2]), '127.0.0.1');
const lines = createInterface({ input: control });
let scene = 0;
lines.on('line', (line) => {
  if (line === 'end') {
    void end(0);
    return;
  }
  const { atMs, pending } = SCENES[scene];
  scene += 1;
  nowMs = atMs;
  state = pending === 'outage' ? observeOutage(state, atMs) : observe(state, { atMs, pending }, HINT);
  view.update(state.view);
});
