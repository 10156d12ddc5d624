/** Records of a fleet that is made up, for views of it. */
import type { PoolRecord, SessionRecord, WorkerRecord } from '../../src/fleet/records.js';
import { sessionRecord as anySession, workerRecord as anyWorker } from './records.js';
import type { TopData } from '../../src/terminal/top-panels.js';

const START = '2026-03-01T08:00:00.000Z';

export function workerRecord(name: string, over: Partial<WorkerRecord> = {}): WorkerRecord {
  return anyWorker(name, {
    capabilities: [],
    sessions: 0,
    reserve: {},
    host: 'host-a',
    startedAt: START,
    heartbeatAgeMs: 900,
    disk: { freeBytes: 80e9, totalBytes: 100e9 },
    ...over,
  });
}

/** A worker that an operator has taken out of service. */
export function heldBack(
  name: string,
  scheduling: 'cordoned' | 'draining' | 'drained',
  by: { readonly who: string; readonly why: string | null; readonly revision?: number },
  over: Partial<WorkerRecord> = {},
): WorkerRecord {
  const at = '2026-03-01T09:00:00.000Z';
  const drain = {
    who: by.who,
    startedAt: at,
    deadlineAt: null,
    onDeadline: 'report',
    overdue: false,
    stop: false,
  } as const;
  const action = scheduling === 'cordoned' ? 'cordon' : 'drain';
  return workerRecord(name, {
    state: scheduling,
    reason: `${scheduling} by ${by.who}`,
    scheduling: {
      scheduling,
      revision: by.revision ?? 1,
      applied: true,
      who: by.who,
      why: by.why,
      since: at,
      drain: scheduling === 'cordoned' ? null : drain,
      notes: [{ action, who: by.who, why: by.why, at }],
    },
    ...over,
  });
}

export function sessionRecord(session: string, worker: string, over: Partial<SessionRecord> = {}): SessionRecord {
  return anySession(session, {
    worker,
    workflowId: `document-${session}`,
    runId: `run-${session}`,
    step: { activity: 'extractPages', attempt: 1, startedAt: '2026-03-01T09:59:00.000Z' },
    expiresInMs: 3_600_000,
    scratchBytes: 1_500_000,
    lastStep: { activity: 'downloadDocument', endedAt: '2026-03-01T09:59:00.000Z' },
    ...over,
  });
}

export function poolRecord(pool: string, over: Partial<PoolRecord> = {}): PoolRecord {
  return {
    pool,
    capabilities: pool === 'any' ? [] : pool.split('+'),
    queue: `atlas:acquire:${pool}`,
    backlog: 0,
    oldestWaitMs: null,
    freeSlots: 2,
    liveWorkers: 1,
    workers: ['worker-1'],
    reason: null,
    ...over,
  };
}

/** Twelve workers of every kind with some sessions. */
export function smallFleet(): TopData {
  const workers = [
    ...Array.from({ length: 7 }, (_, index) => workerRecord(`worker-${index + 1}`, { sessions: index % 3 })),
    workerRecord('gpu-1', { capabilities: ['gpu', 'ocr'], host: 'rack-9', sessions: 2 }),
    workerRecord('gpu-2', { state: 'lost', reason: 'its presence timed out', host: 'rack-9', heartbeatAgeMs: 75_000 }),
    heldBack('worker-8', 'draining', { who: 'bob@there', why: 'disk swap', revision: 3 }, { sessions: 1 }),
    heldBack('worker-9', 'cordoned', { who: 'me@here', why: null }),
    workerRecord('worker-10', { state: 'stopped', heartbeatAgeMs: null, executor: null, disk: null, load1: null }),
  ];
  const sessions = [
    sessionRecord('aa11', 'gpu-1', { capabilities: ['gpu'] }),
    sessionRecord('bb22', 'gpu-1', { step: null, idleForMs: 4_000, leaked: true, ownerStatus: 'TERMINATED' }),
    sessionRecord('cc33', 'worker-2', {
      step: { activity: 'summarizeDocument', attempt: 3, startedAt: '2026-03-01T09:50:00.000Z' },
    }),
    sessionRecord('dd44', 'worker-8', { workerState: 'draining' }),
  ];
  return { workers, sessions, pools: [poolRecord('any'), poolRecord('gpu', { backlog: 7, oldestWaitMs: 42_000 })] };
}

/** As many as a large fleet has. */
export function largeFleet(workerCount: number, sessionsOfEach: number): TopData {
  const names = Array.from({ length: workerCount }, (_, index) => `worker-${index + 1}`);
  return {
    workers: names.map((name, index) => workerRecord(name, { sessions: sessionsOfEach, load1: (index * 7) % 11 })),
    sessions: names.flatMap((name, index) =>
      Array.from({ length: sessionsOfEach }, (_, each) => sessionRecord(`s${index + 1}x${each + 1}`, name)),
    ),
    pools: [poolRecord('any')],
  };
}
