import { describe, expect, it } from 'vitest';
import { sessionText } from '../../../src/commands/support/show-session.js';
import { workerText } from '../../../src/commands/support/show-worker.js';
import type { SessionDetail, StepRecord } from '../../../src/fleet/client.js';
import { renderFacts } from '../../../src/terminal/blocks.js';
import { displayWidth } from '../../../src/terminal/format.js';
import { styleFor } from '../../../src/terminal/style.js';
import { sessionRecord, workerRecord } from '../../support/records.js';

const PLAIN = styleFor({ isTTY: true }, { NO_COLOR: '1' });
const COLOURED = styleFor({ isTTY: true }, {});
const at = (agoMs: number): string => new Date(Date.now() - agoMs).toISOString();

const STEP: StepRecord = {
  activity: 'downloadDocument',
  activityId: '06babd2d6284.1:1-g',
  epoch: 1,
  worker: 'worker-7',
  host: 'host-7',
  attempt: 1,
  scheduledAt: at(20_000),
  startedAt: at(20_000),
  endedAt: at(15_000),
  result: 'completed',
  failure: null,
};
const DETAIL: SessionDetail = {
  session: sessionRecord('06babd2d6284', { lastStep: { activity: 'downloadDocument', endedAt: at(15_000) } }),
  owner: {
    workflowId: 'document-1',
    runId: 'run-1',
    workflowType: 'processDocument',
    status: 'RUNNING',
    startedAt: at(30_000),
    closedAt: null,
  },
  lease: { activityId: '06babd2d6284.1:lease', renewedAgoMs: 4_000 },
  running: [
    {
      activity: 'ocrPages',
      activityId: '06babd2d6284.1:2-g',
      attempt: 2,
      state: 'running',
      startedAt: at(12_000),
      heartbeatAgeMs: 1_000,
      progress: { done: 3, total: 12, unit: 'pages', note: 'page 4' },
      lastFailure: 'The executor process ended while the activity was running.',
      nextAttemptAt: null,
    },
  ],
  steps: [STEP, { ...STEP, activity: 'ocrPages', attempt: 2, endedAt: null, result: 'running', startedAt: at(12_000) }],
  stepsTruncated: false,
};
const DRAINED = workerRecord('worker-7', {
  state: 'draining',
  reserve: { gpu: 2 },
  reason: 'draining by ops@bastion since 2026-03-01T10:00:00Z ("disk swap")',
  scheduling: {
    scheduling: 'draining',
    revision: 3,
    applied: false,
    who: 'ops@bastion',
    why: 'disk swap',
    since: at(60_000),
    drain: {
      who: 'ops@bastion',
      startedAt: at(60_000),
      deadlineAt: at(-252_500),
      onDeadline: 'release',
      overdue: false,
      stop: true,
    },
    notes: [
      { action: 'cordon', who: 'ops@bastion', why: 'disk swap', at: at(90_000) },
      { action: 'drain', who: 'ops@bastion', why: null, at: at(60_000) },
    ],
  },
});

describe('facts', () => {
  it('are aligned, and long values go on under themselves', () => {
    const text = renderFacts(
      [
        ['Key', 'one two three four five six'],
        ['Longer key', ['first', 'second']],
      ],
      { width: 32, style: PLAIN },
    );
    expect(text).toBe(
      'Key:         one two three four\n             five six\nLonger key:  first\n             second\n',
    );
  });

  it('let no escape sequence through', () => {
    expect(renderFacts([['Key', '\u001b[2Jgone']], { width: undefined, style: PLAIN })).not.toContain('\u001b');
  });
});

describe('one worker', () => {
  it('says who wants what of it until when, and whether that is applied', () => {
    const text = workerText(DRAINED, [sessionRecord('06babd2d6284')], { width: undefined, style: PLAIN });
    expect(text).toMatch(/^worker-7 {2}draining\nReason: +draining by ops@bastion/);
    expect(text).toMatch(/Slots: +1 of 4 taken; reserved: 2 for gpu\n/);
    expect(text).toMatch(/Wanted: +draining, NOT applied yet: it is when its atlasd answers\n/);
    expect(text).toMatch(/Deadline: +\S+Z \(in 4m1\ds, then release\)\n/);
    expect(text).toMatch(/Then: +its atlasd ends itself once drained\n/);
    expect(text).toMatch(/History: +\S+Z {2}cordon by ops@bastion: "disk swap" {2}\(90s ago\)\n +\S+Z {2}drain by ops/);
    expect(text).toMatch(/Sessions \(1\)\n {2}SESSION .*\n {2}06babd2d6284 /);
  });

  it('that nobody has touched says so', () => {
    const text = workerText(workerRecord('worker-8'), [], { width: undefined, style: PLAIN });
    expect(text).toContain('open; no operator has touched it');
    expect(text).toMatch(/Sessions\n {2}none\n$/);
  });
});

describe('one session', () => {
  it('says what runs, how far it is, and where each step ran', () => {
    const text = sessionText(DETAIL, [], { width: undefined, style: PLAIN });
    expect(text).toMatch(/^06babd2d6284 {2}held\n/);
    expect(text).toMatch(/Status: +running\n/);
    expect(text).toMatch(/Lease: +open, renewed 4s ago\n/);
    expect(text).toMatch(/Progress: +3 of 12 pages \(25%\), page 4\n/);
    expect(text).toMatch(/State: +running for 12s, attempt 2\n/);
    expect(text).toMatch(/STEP +WORKER +HOST +ATTEMPT +RESULT +TOOK +EPOCH\n/);
    expect(text).toMatch(/downloadDocument +worker-7 +host-7 +1 +completed +5\.0s +1\n/);
    expect(text).toMatch(/ocrPages +worker-7 +host-7 +2 +running +12s +1\n/);
  });

  it('that is leaked says so first, and what became of its owner', () => {
    const leaked = {
      ...DETAIL,
      session: { ...DETAIL.session, leaked: true, workerState: 'lost' as const },
      owner: { ...DETAIL.owner, status: 'TERMINATED', closedAt: at(5_000) },
      lease: null,
      running: [],
      steps: [{ ...STEP, result: 'failed' as const, failure: 'no disk' }],
    };
    const text = sessionText(leaked, [sessionRecord('06babd2d6284', { worker: 'worker-8', workerState: 'lost' })], {
      width: undefined,
      style: PLAIN,
    });
    expect(text).toMatch(/^06babd2d6284 {2}leaked, worker lost: held for nothing\n/);
    expect(text).toMatch(/Status: +terminated, closed \S+Z \(5s ago\)\n/);
    expect(text).toMatch(/Lease: +ended with the owner\n/);
    expect(text).toMatch(/Also on: +worker-8, lost: epoch 1, held, worker lost\n/);
    expect(text).toMatch(/Running now\n {2}nothing\n/);
    expect(text).toMatch(/failed +5\.0s +1 +no disk\n/);
  });
});

describe('both', () => {
  it.each([80, 200])('fit %i columns, and colour repeats only what words say', (width) => {
    const render = (style: typeof PLAIN): string[] => [
      workerText(DRAINED, [sessionRecord('06babd2d6284')], { width, style }),
      sessionText(DETAIL, [], { width, style }),
    ];
    const plain = render(PLAIN);
    for (const line of plain.join('').split('\n')) expect(displayWidth(line), line).toBeLessThanOrEqual(width);
    const coloured = render(COLOURED).map((text) => text.replace(/\u001b\[\d+m/g, ''));
    expect(coloured).toEqual(plain);
  });
});
