import { describe, expect, it } from 'vitest';
import { isLeaked, type OwnerState } from '../../../src/fleet/owners.js';
import { openLease, type PendingActivity, stepsIn } from '../../../src/fleet/owner-run.js';
import type { RunningStepRecord } from '../../../src/fleet/client.js';
import { sessionRecord } from '../../support/records.js';

const NOW = Date.now();
const owner = (over: Partial<OwnerState> = {}): OwnerState => ({
  status: 'RUNNING',
  closedAtMs: null,
  leaseOpen: null,
  ...over,
});
const IDLE = sessionRecord('a', { step: null });

describe('a session is leaked', () => {
  it.each(['TERMINATED', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT', 'NOT_FOUND'])(
    'when its owner is %s',
    (status) => {
      expect(isLeaked(sessionRecord('a'), owner({ status, closedAtMs: NOW }), NOW)).toBe(true);
    },
  );

  it('not when it is younger than visibility lags behind, nor when it is being released', () => {
    const closed = owner({ status: 'NOT_FOUND' });
    expect(isLeaked(sessionRecord('a', { heldForMs: 4_999 }), closed, NOW)).toBe(false);
    expect(isLeaked(sessionRecord('a', { heldForMs: 5_000 }), closed, NOW)).toBe(true);
    expect(isLeaked(sessionRecord('a', { state: 'releasing' }), closed, NOW)).toBe(false);
  });

  it('when its owner runs without a lease of it, unless a step runs', () => {
    expect(isLeaked(IDLE, owner({ leaseOpen: false }), NOW)).toBe(true);
    expect(isLeaked(IDLE, owner({ leaseOpen: true }), NOW)).toBe(false);
    expect(isLeaked(IDLE, owner({ leaseOpen: null }), NOW)).toBe(false);
    expect(isLeaked(IDLE, owner({ status: 'PAUSED', leaseOpen: true }), NOW)).toBe(false);
    expect(isLeaked(sessionRecord('a'), owner({ leaseOpen: false }), NOW)).toBe(false);
    // What a lost worker last said of a step is no sign of life.
    expect(isLeaked(sessionRecord('a', { workerState: 'lost' }), owner({ leaseOpen: false }), NOW)).toBe(true);
  });

  it('not while the next run of its workflow may still adopt it', () => {
    const closed = (agoMs: number) => owner({ status: 'CONTINUED_AS_NEW', closedAtMs: NOW - agoMs });
    expect(isLeaked(sessionRecord('a'), closed(15_000), NOW)).toBe(false);
    expect(isLeaked(sessionRecord('a'), closed(15_001), NOW)).toBe(true);
  });
});

describe('the lease of a session', () => {
  const session = { session: 'a1', epoch: 2, worker: 'worker-7' };
  const activity = (activityId: string, type: string, lastWorkerIdentity = ''): PendingActivity => ({
    activityId,
    activityType: { name: type },
    lastWorkerIdentity,
  });

  it.each([
    ['of its epoch', activity('a1.2:lease', 'atlas:acquireWorker', 'other@atlas'), true],
    ['adopted on its worker', activity('a1.3:lease', 'atlas:adoptSession', 'worker-7@atlas supervisor 1'), true],
    ['whose adoption is on its way', activity('a1.3:lease', 'atlas:adoptSession'), true],
    ['redone on another worker', activity('a1.3:lease', 'atlas:acquireWorker', 'worker-8@atlas supervisor 1'), false],
    ['that waits for a worker', activity('a1.3:lease', 'atlas:acquireWorker'), false],
    ['of another session', activity('b2.2:lease', 'atlas:acquireWorker', 'worker-7@atlas'), false],
    ['and not a step', activity('a1.2:1-g', 'hold', 'worker-7@atlas'), false],
  ])('%s', (_, pending, open) => {
    expect(openLease(session, [pending]) !== undefined).toBe(open);
  });
});

describe('the steps in a history', () => {
  const time = (seconds: number) => ({ seconds: seconds as never, nanos: 0 });
  const scheduled = (eventId: number, activityId: string, type: string, queue: string) => ({
    eventId: eventId as never,
    eventTime: time(eventId),
    activityTaskScheduledEventAttributes: { activityId, activityType: { name: type }, taskQueue: { name: queue } },
  });
  const started = (eventId: number, scheduledEventId: number, attempt: number) => ({
    eventId: eventId as never,
    eventTime: time(eventId),
    activityTaskStartedEventAttributes: { scheduledEventId: scheduledEventId as never, attempt },
  });
  const running: RunningStepRecord = {
    activity: 'ocr',
    activityId: 'a1.2:1-h',
    attempt: 3,
    state: 'running',
    startedAt: '1970-01-01T00:00:40.000Z',
    heartbeatAgeMs: null,
    progress: null,
    lastFailure: 'before',
    nextAttemptAt: null,
  };
  const workers = [{ name: 'worker-8', queue: 'atlas-worker-8.k3f9', host: 'host-8' }];

  it('say which worker ran each, and how it ended', () => {
    const events = [
      scheduled(1, 'a1.1:lease', 'atlas:acquireWorker', 'atlas:acquire'),
      scheduled(2, 'b2.1:1-g', 'other', 'atlas-worker-8.k3f9'),
      scheduled(5, 'a1.1:1-g', 'download', 'atlas-worker-7.old'),
      started(6, 5, 2),
      {
        eventId: 9 as never,
        eventTime: time(9),
        activityTaskTimedOutEventAttributes: { scheduledEventId: 5 as never, failure: { message: 'heartbeat' } },
      },
      scheduled(10, 'a1.2:1-h', 'ocr', 'atlas-worker-8.k3f9'),
      scheduled(11, 'a1.2:2-h', 'summary', 'atlas-worker-8.k3f9'),
    ];
    expect(stepsIn(events, 'a1', workers, [running])).toEqual([
      {
        activity: 'download',
        activityId: 'a1.1:1-g',
        epoch: 1,
        worker: 'worker-7',
        host: null,
        attempt: 2,
        scheduledAt: '1970-01-01T00:00:05.000Z',
        startedAt: '1970-01-01T00:00:06.000Z',
        endedAt: '1970-01-01T00:00:09.000Z',
        result: 'timed out',
        failure: 'heartbeat',
      },
      expect.objectContaining({
        activity: 'ocr',
        epoch: 2,
        worker: 'worker-8',
        host: 'host-8',
        attempt: 3,
        startedAt: '1970-01-01T00:00:40.000Z',
        result: 'running',
        failure: 'before',
      }),
      expect.objectContaining({ activity: 'summary', attempt: null, result: 'waiting' }),
    ]);
  });

  it('are not guessed where the beginning of the history is missing', () => {
    expect(stepsIn([started(6, 5, 1)], 'a1', workers, [])).toEqual([]);
  });
});
