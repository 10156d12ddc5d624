/** The page of `atlasd status`, at the widths of a terminal and of a pipe. */
import { describe, expect, it } from 'vitest';
import { cordoned, drained, draining, uncordoned } from '../../../src/contract/desired.js';
import {
  UNTOUCHED,
  type DesiredState,
  type DrainRequest,
  type PresenceSnapshot,
  type SessionSnapshot,
  type WorkerIdentity,
} from '../../../src/contract/fleet.js';
import type { LocalStatus } from '../../../src/contract/local.js';
import { statusPage } from '../../../src/daemon/status.js';
import { displayWidth } from '../../../src/terminal/format.js';
import { styleFor } from '../../../src/terminal/style.js';

const NOW_MS = Date.UTC(2026, 2, 1, 3, 0, 0);
const MINUTE_MS = 60_000;

const IDENTITY: WorkerIdentity = {
  name: 'worker-7',
  instance: 'abcdef',
  nonce: '0123456789abcdef',
  fleet: 'atlas',
  queue: 'atlas-worker-7-abcdef',
  controlQueue: 'atlas-worker-7-abcdef-control',
  capabilities: ['gpu', 'ocr'],
  maxSessions: 4,
  version: '1.2.3',
  host: 'host-7',
  pid: 4711,
  machineId: 'm',
  bootId: 'b',
  presenceTtlMs: 6_000,
  startedAtMs: NOW_MS - 180 * MINUTE_MS,
};

function session(overrides: Partial<SessionSnapshot> = {}): SessionSnapshot {
  return {
    session: 'd74275e22edc',
    epoch: 1,
    state: 'held',
    workflowId: 'order-17',
    runId: 'run-1',
    workflowType: 'order',
    capabilities: ['gpu'],
    grantedAtMs: NOW_MS - 12 * MINUTE_MS,
    expiresAtMs: NOW_MS + 90 * MINUTE_MS,
    attempts: [],
    scratchBytes: 1_500_000,
    ...overrides,
  };
}

interface Given {
  readonly desired?: DesiredState;
  readonly told?: boolean;
  readonly sessions?: readonly SessionSnapshot[];
  readonly executor?: Partial<PresenceSnapshot['executor']>;
  readonly stopping?: boolean;
  readonly withdrawn?: PresenceSnapshot['withdrawn'];
}

function status({
  desired = UNTOUCHED,
  told = true,
  sessions = [],
  executor,
  stopping = false,
  withdrawn,
}: Given): LocalStatus {
  return {
    identity: IDENTITY,
    snapshot: {
      v: 1,
      sentAtMs: NOW_MS,
      stopping,
      sessions,
      slots: { used: sessions.length, cap: 4, reserve: { gpu: 2 } },
      executor: { state: 'ready', pid: 4712, incarnation: 'i', restarts: 0, ...executor },
      disk: null,
      load1: 0.5,
      ...(withdrawn === undefined ? {} : { withdrawn }),
    },
    desired,
    told,
  };
}

function page(given: Given, width?: number): string {
  return statusPage(status(given), { nowMs: NOW_MS, width, style: styleFor({ isTTY: false }, {}) });
}

/** The value of a line of the page. */
function fact(given: Given, label: string): string | undefined {
  const line = page(given)
    .split('\n')
    .find((text) => text.startsWith(`${label} `));
  return line?.slice(label.length).trim();
}

const order = (who: string, why: string | null) => ({ orderId: `of-${who}`, who, why });
const drain = (over: Partial<DrainRequest> = {}): DrainRequest => ({
  ...order('ops@bastion', 'kernel update'),
  deadlineMs: null,
  onDeadline: 'report',
  stop: false,
  replace: false,
  ...over,
});
const CORDONED = cordoned(UNTOUCHED, order('ops@bastion', 'disk swap'), NOW_MS - 20 * MINUTE_MS);
const DRAINING = draining(UNTOUCHED, drain(), 'nonce', NOW_MS - 5 * MINUTE_MS);

describe('statusPage', () => {
  it('says which capability is withdrawn, why and since when', () => {
    const withdrawn = [{ capability: 'gpu', reason: 'its check failed', sinceMs: NOW_MS - 3 * MINUTE_MS }];
    expect(fact({ withdrawn }, 'withdrawn')).toBe('gpu, for 3m: its check failed');
    expect(fact({ withdrawn }, 'capabilities')).toBe('gpu, ocr');
    expect(fact({}, 'withdrawn')).toBeUndefined();
  });

  it('says who the worker is, what it holds and which step runs', () => {
    const attempts = [
      { activity: 'render', activityId: '2', attempt: 1, startedAtMs: NOW_MS - 4_000 },
      { activity: 'train', activityId: '1', attempt: 3, startedAtMs: NOW_MS - 2 * MINUTE_MS },
    ];
    expect(
      page({
        sessions: [session({ attempts }), session({ session: 's2', workflowId: 'order-18', scratchBytes: null })],
      }),
    ).toBe(`worker        worker-7
fleet         atlas
state         ready
orders        none
slots         2 of 4 taken, 2 kept for gpu
capabilities  gpu, ocr
executor      ready, process 4712, 0 restarts
process       4711, up 3h, version 1.2.3
queue         atlas-worker-7-abcdef

SESSION       STATE  STEP                            HELD   EXPIRES  SCRATCH  WORKFLOW
d74275e22edc  held   train 2m00s, attempt 3, 1 more   12m  in 1h30m   1.5 MB  order-17
s2            held   -                                12m  in 1h30m        -  order-18
`);
  });

  it.each<[string, Given, string]>([
    ['nothing is wrong', {}, 'ready'],
    ['an operator has cordoned it', { desired: CORDONED }, 'cordoned'],
    ['it drains', { desired: DRAINING, sessions: [session(), session()] }, 'draining, 2 sessions left'],
    ['its last session has ended', { desired: drained(DRAINING, NOW_MS) }, 'drained'],
    ['it stops', { stopping: true, sessions: [session()] }, 'stopping, 1 session left'],
    ['its executor starts', { executor: { state: 'starting', pid: null } }, 'its executor is starting'],
    ['its executor is down too', { desired: CORDONED, executor: { state: 'down' } }, 'cordoned; its executor is down'],
  ])('when %s', (_, given, expected) => {
    expect(fact(given, 'state')).toBe(expected);
  });

  it('says who took it out of service, why and when', () => {
    expect(fact({ desired: CORDONED }, 'reason')).toBe('"disk swap", ops@bastion, 20m ago (2026-03-01T02:40:00Z)');
    expect(fact({ desired: cordoned(UNTOUCHED, order('a', null), NOW_MS) }, 'reason')).toBe(
      'no reason given, a, 0s ago (2026-03-01T03:00:00Z)',
    );
    expect(fact({}, 'reason')).toBeUndefined();
    expect(fact({ desired: uncordoned(CORDONED, { ...order('a', null), ofOthers: true }, NOW_MS) }, 'reason')).toBe(
      undefined,
    );
  });

  it('says who drains a worker that another had cordoned', () => {
    const desired = draining(CORDONED, drain({ ...order('dev@host', null) }), 'nonce', NOW_MS - MINUTE_MS);
    expect(fact({ desired }, 'reason')).toContain('ops@bastion');
    expect(fact({ desired }, 'drain')).toBe('ordered by dev@host 60s ago');
    expect(fact({ desired: DRAINING }, 'drain')).toBeUndefined();
  });

  it('says what the deadline of a drain does, and what comes after it', () => {
    const terms = drain({ deadlineMs: 10 * MINUTE_MS, onDeadline: 'release', stop: true });
    const desired = draining(UNTOUCHED, terms, 'nonce', NOW_MS - 5 * MINUTE_MS);
    expect(fact({ desired }, 'deadline')).toBe(
      'in 5m00s (2026-03-01T03:05:00Z); sessions left then are released by force',
    );
    expect(fact({ desired }, 'then')).toBe('atlasd ends itself once drained');
    const late = draining(UNTOUCHED, drain({ deadlineMs: MINUTE_MS }), 'nonce', NOW_MS - 5 * MINUTE_MS);
    expect(fact({ desired: late }, 'deadline')).toBe('passed 4m ago (2026-03-01T02:56:00Z); it is only reported');
  });

  it('says whether the fleet knows of the orders', () => {
    expect(fact({ desired: CORDONED }, 'orders')).toBe('known to the fleet');
    const untold = 'not known to the fleet yet: atlasd tells it when Temporal answers';
    expect(fact({ desired: CORDONED, told: false }, 'orders')).toBe(untold);
    // Taken back on the host, and the fleet still has it cordoned.
    expect(fact({ told: false }, 'orders')).toBe(untold);
  });

  it('says so where it holds no session', () => {
    expect(page({})).toMatch(/\n\nIt holds no session\.\n$/);
  });

  it('fits a narrow terminal without losing a word of the facts', () => {
    const long = cordoned(UNTOUCHED, order('ops@bastion', 'word '.repeat(40).trim()), NOW_MS);
    const sessions = [session({ workflowId: 'an-order-with-a-very-long-name-'.repeat(3) })];
    const lines = page({ desired: long, sessions, told: false }, 80).split('\n');
    for (const line of lines) expect(displayWidth(line)).toBeLessThanOrEqual(80);
    expect(lines.join(' ').match(/word/g)).toHaveLength(40);
  });

  it('shows no control characters of others', () => {
    expect(page({ desired: cordoned(UNTOUCHED, order('ops', '\u001b[2Jgone'), NOW_MS) })).not.toContain('\u001b');
  });
});
