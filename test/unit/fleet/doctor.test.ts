/** Every check of the doctor as a function of what was seen. */
import { describe, expect, it } from 'vitest';
import type { QueuesAnswer, ProbeOutcome } from '../../../src/contract/probe.js';
import { CHECK_NAMES, CHECKS, type Finding, listed } from '../../../src/fleet/doctor/findings.js';
import {
  checkClocks,
  checkDisks,
  checkNames,
  checkReserves,
  checkSessions,
  checkVersions,
  checkWorkers,
} from '../../../src/fleet/doctor/look.js';
import { findingsOfAcquire, findingsOfQueues, notTried } from '../../../src/fleet/doctor/probes.js';
import { checkServer, type ServerFacts } from '../../../src/fleet/doctor/server.js';
import {
  checkStranded,
  checkWaiting,
  type WaitingActivity,
  type WaitingWork,
} from '../../../src/fleet/doctor/waiting.js';
import type { PoolRecord, WorkerRecord } from '../../../src/fleet/client.js';
import { sessionRecord, workerRecord } from '../../support/records.js';

const atlas = (command: string): string => `${command} --fleet atlas`;
const NOW_MS = Date.parse('2026-01-01T12:00:00Z');
const levels = (findings: readonly Finding[]): string[] => findings.map(({ level, subject }) => `${level} ${subject}`);

/** What holds for every finding: a word on what to do where, and only where, something is wrong. */
function wellFormed(findings: readonly Finding[]): readonly Finding[] {
  expect(findings.length).toBeGreaterThan(0);
  for (const { level, message, next } of findings) {
    expect(next === null).toBe(level === 'ok');
    expect(`${message}${next ?? ''}`).not.toMatch(/undefined|null|NaN|\[object/);
  }
  return findings;
}

describe('workers', () => {
  const check = (workers: readonly WorkerRecord[]): readonly Finding[] =>
    wellFormed(checkWorkers({ workers, sessions: [] }, 'atlas', atlas, NOW_MS));

  it('is one line where all is well, those that were stopped counted', () => {
    expect(check([workerRecord('a'), workerRecord('b', { state: 'stopped' })])).toEqual([
      { check: 'workers', level: 'ok', subject: 'atlas', message: '1 live, 1 stopped', next: null },
    ]);
  });

  it.each([
    ['lost', 'fail', 'atlas workers forget a --with-sessions --fleet atlas'],
    ['stale', 'warn', 'atlas doctor --check workers --fleet atlas'],
    ['degraded', 'fail', 'journalctl -u atlasd'],
    ['registering', 'warn', 'atlas doctor --fleet atlas'],
  ] as const)('says what to do about one that is %s', (state, level, command) => {
    const found = check([workerRecord('a', { state, reason: 'why' }), workerRecord('b')]);
    expect(levels(found)).toEqual([`${level} a`]);
    expect(found[0]?.next).toContain(command);
  });

  it('warns of a capability that is withdrawn, unless the worker is gone', () => {
    const withdrawn = [
      { capability: 'gpu', reason: 'its check ended with exit code 9', since: '2026-01-01T11:57:00.000Z' },
    ];
    const found = check([workerRecord('a', { withdrawn }), workerRecord('b', { state: 'stopped', withdrawn })]);
    expect(levels(found)).toEqual(['warn a']);
    expect(found[0]).toMatchObject({
      message:
        'it has withdrawn gpu for 3m, so that nothing which asks for it runs there: its check ended with exit code 9',
      next: expect.stringContaining('atlasd --check') as string,
    });
  });

  it('fails where none is live, or none was ever there', () => {
    expect(levels(check([workerRecord('a', { state: 'stopped' })]))).toEqual(['fail atlas']);
    expect(check([])[0]?.next).toContain('`atlasd --fleet atlas`');
  });

  it('has one forgotten with its sessions only where it held some', () => {
    const [found] = check([workerRecord('a', { state: 'lost', sessions: 0 }), workerRecord('b')]);
    expect(found?.next).toContain('`atlas workers forget a --fleet atlas`');
  });

  it('warns of a ready worker whose executor is not up', () => {
    expect(check([workerRecord('a', { reason: 'its executor is starting' })])[0]).toMatchObject({
      level: 'warn',
      message: 'takes no sessions: its executor is starting',
    });
  });

  it('warns of a drain that is overdue, and of an order that is not confirmed', () => {
    const { scheduling } = workerRecord('a');
    const drain = {
      who: 'ops@bastion',
      startedAt: '2026-01-01T11:00:00.000Z',
      deadlineAt: '2026-01-01T11:30:00.000Z',
      onDeadline: 'report',
      overdue: true,
      stop: false,
    } as const;
    const draining = { ...scheduling, scheduling: 'draining', drain, since: '2026-01-01T11:00:00.000Z' } as const;
    expect(check([workerRecord('a', { state: 'draining', scheduling: draining })])[0]).toMatchObject({
      level: 'warn',
      message: 'its drain by ops@bastion is overdue since 2026-01-01T11:30:00.000Z; 1 session left',
      next: expect.stringContaining('`atlas sessions release --worker a --fleet atlas`') as string,
    });
    const late = { ...scheduling, scheduling: 'cordoned', applied: false, since: '2026-01-01T11:59:00.000Z' } as const;
    expect(levels(check([workerRecord('a', { state: 'cordoned', scheduling: late })]))).toEqual(['warn a']);
    // On its way, or for a worker that gets it when it returns.
    const young = { ...late, since: '2026-01-01T11:59:58.000Z' } as const;
    expect(levels(check([workerRecord('a', { state: 'cordoned', scheduling: young })]))).toEqual(['ok atlas']);
    expect(levels(check([workerRecord('a', { state: 'lost', scheduling: late }), workerRecord('b')]))).toEqual([
      'fail a',
    ]);
  });
});

describe('clocks, versions and disks', () => {
  it.each([
    [2_000, 'ok atlas'],
    [-2_001, 'warn a'],
    [30_000, 'warn a'],
    [-30_001, 'fail a'],
  ])('a clock that is off by %i ms is %s', (clockSkewMs, level) => {
    expect(levels(wellFormed(checkClocks([workerRecord('a', { clockSkewMs })], 'atlas')))).toEqual([level]);
  });

  it('a clock is ahead or behind', () => {
    expect(checkClocks([workerRecord('a', { clockSkewMs: 61_234 })], 'atlas')[0]?.message).toContain('1m1s ahead of');
    expect(checkClocks([workerRecord('a', { clockSkewMs: -5_000 })], 'atlas')[0]?.message).toContain('5s behind');
    expect(levels(checkClocks([workerRecord('a', { clockSkewMs: 1e6, state: 'lost' })], 'atlas'))).toEqual([
      'ok atlas',
    ]);
  });

  it('versions differ between workers, and from this command', () => {
    const [a, b] = [workerRecord('a', { version: '1.9.0' }), workerRecord('b', { version: '1.10.0' })];
    expect(wellFormed(checkVersions([a, b], 'atlas', '1.9.0')).map(({ message }) => message)).toEqual([
      'workers run several versions: 1.9.0 on a; 1.10.0 on b',
    ]);
    expect(checkVersions([a, b], 'atlas', '1.9.0')[0]?.next).toContain('temporal-atlas@1.10.0');
    expect(levels(wellFormed(checkVersions([a], 'atlas', '2.0.0')))).toEqual(['warn atlas']);
    expect(levels(wellFormed(checkVersions([a], 'atlas', '1.9.0')))).toEqual(['ok atlas']);
  });

  it.each([
    [{ freeBytes: 0.9e9, totalBytes: 1e9 }, 'warn a'],
    [{ freeBytes: 9e9, totalBytes: 100e9 }, 'warn a'],
    [{ freeBytes: 10e9, totalBytes: 100e9 }, 'ok atlas'],
    [null, 'ok atlas'],
  ])('a disk with %j is %s', (disk, level) => {
    expect(levels(wellFormed(checkDisks([workerRecord('a', { disk })], 'atlas')))).toEqual([level]);
  });
});

describe('names and reserves', () => {
  const [a, b] = [
    workerRecord('a', { instance: 'one', host: 'h1' }),
    workerRecord('b', { instance: 'two', host: 'h2' }),
  ];
  const same = [
    { worker: 'a', machineId: 'm' },
    { worker: 'b', machineId: 'm' },
  ];

  it('one machine id on two hosts is a cloned image; on one host it is as it should be', () => {
    expect(levels(wellFormed(checkNames([a, b], same, 'atlas')))).toEqual(['warn a and b']);
    expect(levels(checkNames([a, { ...b, host: 'h1' }], same, 'atlas'))).toEqual(['ok atlas']);
    expect(levels(checkNames([a, { ...b, state: 'lost' }], same, 'atlas'))).toEqual(['ok atlas']);
    // A host without one.
    expect(
      levels(
        checkNames(
          [a, b],
          same.map((each) => ({ ...each, machineId: '' })),
          'atlas',
        ),
      ),
    ).toEqual(['ok atlas']);
  });

  it('one instance id of two live workers is a copied directory', () => {
    expect(levels(wellFormed(checkNames([a, { ...b, instance: 'one' }], [], 'atlas')))).toEqual(['fail a and b']);
    expect(levels(wellFormed(checkNames([a, { ...b, name: 'gpu' }], [], 'atlas')))).toEqual(['warn gpu']);
  });

  it('a reserve must be for a capability of the worker, and leave room somewhere', () => {
    const keeps = (reserve: Readonly<Record<string, number>>, over: Partial<WorkerRecord> = {}) =>
      levels(wellFormed(checkReserves([workerRecord('a', { reserve, ...over })], 'atlas')));
    expect(keeps({ gpu: 2 })).toEqual(['ok atlas']);
    expect(keeps({ tpu: 1 })).toEqual(['warn a']);
    expect(keeps({ gpu: 5 })).toEqual(['warn a', 'warn atlas']);
    expect(keeps({ gpu: 2, ocr: 2 })).toEqual(['warn atlas']);
  });
});

describe('sessions', () => {
  it('that are leaked fail, those of a lost worker only warn', () => {
    const leaked = sessionRecord('s1', { leaked: true, ownerStatus: 'TERMINATED' });
    const findings = wellFormed(
      checkSessions(
        [leaked, sessionRecord('s2'), { ...leaked, session: 's3', workerState: 'lost', ownerStatus: 'RUNNING' }],
        'atlas',
        atlas,
      ),
    );
    expect(levels(findings)).toEqual(['fail s1', 'warn s3']);
    expect(findings[0]?.message).toContain(`${leaked.workflowId} is TERMINATED`);
    expect(findings[0]?.next).toBe('`atlas sessions release s1 --fleet atlas`');
    expect(levels(checkSessions([sessionRecord('s2')], 'atlas', atlas))).toEqual(['ok atlas']);
  });
});

describe('server', () => {
  const facts: ServerFacts = {
    address: '127.0.0.1:7233',
    namespace: 'default',
    version: '1.29.1',
    namespaceIsRegistered: true,
    updates: true,
    updateWithStartRefusal: null,
    listsWorkers: false,
  };
  it.each([
    [{}, ['ok']],
    // Optional: whichever way it is, it decides nothing.
    [{ listsWorkers: true, version: '1.32.0' }, ['ok']],
    [{ version: '' }, ['ok']],
    [{ version: '1.28.4' }, ['warn', 'ok']],
    [{ namespaceIsRegistered: false }, ['fail']],
    [{ updates: false }, ['fail']],
    [{ updateWithStartRefusal: 'disabled' }, ['fail']],
  ] as const)('%j is %j', (over, expected) => {
    expect(wellFormed(checkServer({ ...facts, ...over })).map(({ level }) => level)).toEqual(expected);
  });
});

describe('queues', () => {
  const good: ProbeOutcome = { answered: true, tookMs: 120, reason: null };
  const none: ProbeOutcome = { answered: false, tookMs: 5_000, reason: 'nobody took the question within 5 s' };
  const target = (worker: string) => ({ worker, queue: `atlas-${worker}.k3f9` });
  const answered = (worker: string, control: ProbeOutcome, pinned: ProbeOutcome) => {
    const answer: QueuesAnswer = { worker, control, pinned };
    return { target: target(worker), probed: { kind: 'answered' as const, answer } };
  };
  const workers = [workerRecord('a', { host: 'h1' }), workerRecord('b', { host: 'h2' })];

  it('counts those that answer, and says which half of the others does not', () => {
    const findings = wellFormed(
      findingsOfQueues([answered('a', good, good), answered('b', good, none)], workers, 'atlas', atlas),
    );
    expect(findings.map(({ level, subject, message }) => `${level} ${subject}: ${message}`)).toEqual([
      'fail b: its executor does not run pinned activities on atlas-b.k3f9: nobody took the question within 5 s',
      'ok atlas: 1 of 2 live workers answered on both queues, within 0.1 s',
    ]);
    expect(findings[0]?.next).toContain('on h2:');
    expect(levels(findingsOfQueues([answered('a', none, none)], workers, 'atlas', atlas))).toEqual([
      'fail a',
      'fail a',
    ]);
  });

  it('says that nothing is known where no supervisor ran the probe', () => {
    const notRun = {
      kind: 'not-run',
      reason: 'no supervisor of the fleet ran the probe to its end within 27 s',
      hadTime: true,
    } as const;
    const findings = wellFormed(
      findingsOfQueues(
        [
          { target: target('a'), probed: notRun },
          { target: target('b'), probed: notRun },
        ],
        workers,
        'atlas',
        atlas,
      ),
    );
    expect(findings.map(({ message }) => message)).toEqual([`${notRun.reason}; nothing is known of a and b`]);
    expect(findings[0]?.next).toBe('on the hosts of a and b: `systemctl restart atlasd`');
    const short = { ...notRun, hadTime: false };
    expect(findingsOfQueues([{ target: target('a'), probed: short }], workers, 'atlas', atlas)[0]?.next).toBe(
      '`atlas doctor --check queues --timeout 60s --fleet atlas`',
    );
    expect(levels(findingsOfQueues([], workers, 'atlas', atlas))).toEqual(['ok atlas']);
  });
});

const pool = (over: Partial<PoolRecord> = {}): PoolRecord => ({
  pool: 'gpu',
  capabilities: ['gpu'],
  queue: 'atlas-gpu:acquire',
  backlog: 0,
  oldestWaitMs: null,
  freeSlots: 2,
  liveWorkers: 1,
  workers: ['a'],
  reason: null,
  ...over,
});

describe('acquire', () => {
  const refused = {
    kind: 'answered',
    answer: { outcome: { answered: false, tookMs: 6_000, reason: 'No worker granted it.' }, worker: null },
  } as const;

  it('fails where a slot is free and nobody grants it, unless it was taken meanwhile', () => {
    const failed = findingsOfAcquire(pool(), refused, pool(), 'atlas', atlas);
    wellFormed([failed]);
    expect(failed).toMatchObject({ level: 'fail', subject: 'gpu' });
    expect(failed.next).toContain('--task-queue atlas-gpu:acquire');
    const full = pool({ freeSlots: 0, reason: 'every slot is taken or reserved' });
    expect(findingsOfAcquire(pool(), refused, full, 'atlas', atlas)).toEqual(notTried(full));
    expect(notTried(full)).toMatchObject({ level: 'ok', message: 'not tried: every slot is taken or reserved' });
  });

  it('names who granted it', () => {
    const granted = { outcome: { answered: true, tookMs: 80, reason: null }, worker: 'a' };
    expect(findingsOfAcquire(pool(), { kind: 'answered', answer: granted }, undefined, 'atlas', atlas).message).toBe(
      'a granted a session within 0.1 s',
    );
    expect(
      findingsOfAcquire(pool(), { kind: 'not-run', reason: 'why', hadTime: false }, undefined, 'atlas', atlas).level,
    ).toBe('fail');
  });
});

const work = (activities: readonly WaitingActivity[], over: Partial<WaitingWork> = {}): WaitingWork => ({
  activities,
  workflows: 10,
  truncated: false,
  ...over,
});

describe('waiting', () => {
  const lease = (workflowId: string, queue: string | null, waitedMs = 12_000): WaitingActivity => ({
    workflowId,
    activityId: 'abc.1:lease',
    activityType: 'atlas:acquireWorker',
    queue,
    waitedMs,
  });
  const check = (
    given: WaitingWork,
    workers: readonly WorkerRecord[] = [workerRecord('a')],
    pools: readonly PoolRecord[] = [],
  ): readonly Finding[] => wellFormed(checkWaiting(given, pools, workers, 'atlas', atlas));

  it('is well where a live worker has the set, or the queue is of another fleet', () => {
    expect(check(work([lease('w1', 'atlas-gpu:acquire'), lease('w2', 'other-tpu:acquire')]))).toEqual([
      expect.objectContaining({
        level: 'ok',
        message: '1 session waits for a slot of live workers, in 10 open workflows',
      }),
    ]);
  });

  it('warns where all that have it have withdrawn it', () => {
    const withdrawn = [{ capability: 'gpu', reason: 'its check failed', since: '2026-01-01T11:00:00.000Z' }];
    const given = work([lease('w1', 'atlas-gpu:acquire'), lease('w2', 'atlas-ocr:acquire')]);
    const broken = workerRecord('a', { withdrawn });
    const found = check(given, [broken]);
    expect(levels(found)).toEqual(['warn gpu']);
    expect(found[0]?.message).toContain('has withdrawn a part of it: a (gpu)');
    expect(levels(check(given, [broken, workerRecord('b')]))).toEqual(['ok atlas']);
  });

  it('fails where no live worker has it, and says who would', () => {
    const given = work([
      lease('w1', 'atlas-gpu+tpu:acquire'),
      lease('w2', 'atlas-gpu+tpu:acquire', 90_000),
      // A second lease of one owner is no second session.
      lease('w2', 'atlas-gpu+tpu:acquire', 1_000),
    ]);
    expect(check(given)).toEqual([
      {
        check: 'waiting',
        level: 'fail',
        subject: 'gpu+tpu',
        message: '2 sessions wait, the first for 1m30s: w2 and w1; no live worker serves it',
        next: 'start a worker that does: `atlasd --fleet atlas --capabilities gpu,tpu`',
      },
    ]);
    const lost = workerRecord('z', { state: 'lost', capabilities: ['gpu', 'tpu'], host: 'h9' });
    const [found] = check(given, [workerRecord('a'), lost]);
    expect(found?.message).toContain('z (lost) did');
    expect(found?.next).toContain('on h9: `systemctl start atlasd`');
  });

  it('warns where operators have taken every worker of the set out of service', () => {
    const { scheduling } = workerRecord('a');
    const cordoned = workerRecord('a', {
      state: 'cordoned',
      scheduling: { ...scheduling, scheduling: 'cordoned', who: 'ops@bastion' },
    });
    expect(check(work([lease('w1', 'atlas:acquire')]), [cordoned])[0]).toMatchObject({
      level: 'warn',
      subject: 'any',
      next: '`atlas uncordon a --fleet atlas`, which ops@bastion took out of service',
    });
  });

  it('counts the backlog of known queues where the server does not tell the queue of a lease', () => {
    const gone = workerRecord('z', { state: 'lost', capabilities: ['tpu'] });
    const pools = [pool({ pool: 'tpu', capabilities: ['tpu'], backlog: 3, oldestWaitMs: 5_000 }), pool()];
    expect(check(work([lease('w1', null)]), [workerRecord('a'), gone], pools)[0]).toMatchObject({
      level: 'fail',
      subject: 'tpu',
      message: '3 sessions wait, the first for 5s; no live worker serves it, z (lost) did',
    });
  });

  it('says that there is more than it has looked at, whatever it has found', () => {
    const found = check(work([lease('w1', 'atlas-tpu:acquire')], { workflows: 500, truncated: true }));
    expect(levels(found)).toEqual(['fail tpu', 'ok atlas']);
    expect(found[1]?.message).toContain('the newest 500 open workflows; there are more');
  });
});

describe('stranded', () => {
  const step = (queue: string | null, over: Partial<WaitingActivity> = {}): WaitingActivity => ({
    workflowId: 'w1',
    activityId: 'abc.1:1-grant',
    activityType: 'extractPages',
    queue,
    waitedMs: 45_000,
    ...over,
  });
  const check = (activities: readonly WaitingActivity[], workers: readonly WorkerRecord[]): readonly Finding[] =>
    wellFormed(checkStranded(work(activities), workers, 'atlas', atlas));
  const a = workerRecord('a');
  const lost = { ...a, state: 'lost' } as const;

  it('is well where a live worker polls the queue, or the activity is none of a session', () => {
    expect(levels(check([step('atlas-a.k3f9'), step('atlas-a.k3f9:control')], [a]))).toEqual(['ok atlas']);
    // A capability with a dot.
    expect(levels(check([step('atlas-gpu.a100', { activityId: '7' })], [a]))).toEqual(['ok atlas']);
    expect(levels(check([step('other-z.k3f9')], [a]))).toEqual(['ok atlas']);
  });

  it.each([
    ['a worker that is lost', 'atlas-a.k3f9', [lost], 'which is lost'],
    [
      'one that is stopped, on its control queue',
      'atlas-a.k3f9:control',
      [{ ...a, state: 'stopped' }],
      'which is stopped',
    ],
    ['an earlier instance', 'atlas-a.zzzz', [a], 'an earlier a, whose directory is gone'],
    ['a worker that nobody knows', 'atlas-b.c.k3f9', [a], 'which nobody knows'],
  ] as const)('fails for %s', (_, queue, workers, state) => {
    const [found] = check([step(queue)], workers);
    expect(found).toMatchObject({ level: 'fail', subject: 'w1' });
    expect(found?.message).toContain(`${state}, for 45s`);
    expect(found?.next).toContain('`temporal workflow cancel --workflow-id w1`');
  });

  it('only warns while the owner of a session may still notice by itself', () => {
    expect(levels(check([step('atlas-a.k3f9', { waitedMs: 3_000 })], [lost]))).toEqual(['warn w1']);
    // A call without a session has an owner that waits.
    expect(levels(check([step('atlas-a.k3f9', { waitedMs: 3_000, activityId: 'worker:1' })], [lost]))).toEqual([
      'fail w1',
    ]);
  });

  it('says where it is blind', () => {
    expect(check([step(null)], [a])[0]?.message).toContain(
      'the server does not tell the queues of one waiting activity',
    );
  });
});

describe('findings', () => {
  it('have a check for every question', () => {
    for (const name of CHECK_NAMES) expect(CHECKS[name]).toMatch(/\?$/);
    expect([listed([]), listed(['a']), listed(['a', 'b']), listed(['a', 'b', 'c', 'd', 'e'])]).toEqual([
      '',
      'a',
      'a and b',
      'a, b, c and 2 more',
    ]);
  });
});
