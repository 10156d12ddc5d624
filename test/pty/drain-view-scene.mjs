/**
 * Plays a drain in its live view, for `drain-view.test.ts`, which looks at it through a pseudo-terminal. Driven by lines on
 * a socket and not by time: `next` shows the next scene, `end` ends the view.
 */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { screenLines } from '../../dist/terminal/drain-view.js';
import { LiveLines } from '../../dist/terminal/live-lines.js';
import { styleFor } from '../../dist/terminal/style.js';

const scheduling = { scheduling: 'draining', applied: true };
const worker = (name, sessions) => [name, { name, sessions, cap: 4, state: 'draining', scheduling }];

function target(name, phase, over = {}) {
  return {
    worker: name,
    phase,
    sinceMs: 12_000,
    startedAtMs: phase === 'waiting' ? null : 0,
    deadlineAtMs: null,
    onDeadline: 'report',
    awaySinceMs: null,
    sessions: 0,
    note: null,
    ...over,
  };
}

function blocker(id, { progress = null, movedAtMs = null, step = 'extractPages' } = {}) {
  const steps =
    step === null
      ? []
      : [{ activity: step, attempt: 1, started: true, progress, lastFailure: null, nextAttemptAtMs: null }];
  return {
    session: {
      session: id,
      worker: 'worker-2',
      state: 'held',
      workflowId: `document-quarterly-report-of-the-whole-company-${id}`,
      heldForMs: 252_000,
      idleForMs: step === null ? 300_000 : null,
      lastStep: { activity: 'downloadDocument', endedAt: new Date(0).toISOString() },
      step: step === null ? null : { activity: step, attempt: 1, startedAt: new Date(-60_000).toISOString() },
    },
    owner: { status: 'RUNNING', steps, elsewhere: [], task: null },
    movedAtMs,
    watchedSinceMs: 0,
  };
}

const pages = (done) => ({ progress: { done, total: 80, unit: 'pages' } });
const base = {
  startedAtMs: 0,
  waits: new Map([['worker-3', { kind: 'parallel', going: 1, maxParallel: 1 }]]),
  workers: new Map([worker('worker-2', 2)]),
  maxParallel: 1,
  monitor: false,
  outageSinceMs: null,
};
const targets = [
  target('worker-1', 'drained'),
  target('worker-2', 'draining', { deadlineAtMs: 600_000, sessions: 2 }),
  target('worker-3', 'waiting'),
];
const SCENES = [
  { ...base, nowMs: 14_000, targets, blockers: [blocker('06babd2d6284', { ...pages(12), movedAtMs: 12_000 })] },
  {
    ...base,
    nowMs: 60_000,
    targets,
    blockers: [blocker('06babd2d6284', { ...pages(12), movedAtMs: 12_000 }), blocker('77a1c2b3d4e5', { step: null })],
  },
  { ...base, nowMs: 61_000, targets, blockers: [], outageSinceMs: 58_000 },
  {
    ...base,
    nowMs: 62_000,
    workers: new Map([worker('worker-2', 40)]),
    targets,
    blockers: Array.from({ length: 40 }, (_, index) => blocker(`session${index}`)),
  },
];

const live = new LiveLines(process.stdout);
const style = styleFor(process.stdout, process.env);

function end(code) {
  live.end();
  process.stdout.write('the terminal is free\n');
  process.exit(code);
}

process.once('SIGINT', () => end(130));
const control = connect(Number(process.argv[2]), '127.0.0.1');
let scene = 0;
createInterface({ input: control }).on('line', (line) => {
  if (line === 'end') end(0);
  live.draw(screenLines(SCENES[scene], style));
  scene += 1;
});
