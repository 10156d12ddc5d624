/**
 * The session keeper when something went wrong between it and the owner: confirmation, adoption, leases that the server
 * has timed out, expiry, the fence, and results that the server may not have got.
 */
import { describe, expect, it } from 'vitest';
import type { LeaseTask } from '../../../src/daemon/session-keeper.js';
import {
  adoptTask,
  confirmTask,
  deferred,
  FakeWorker,
  leaseTask,
  pinnedAttempt,
  releaseOf,
  settle,
  type FakeWorkerOptions,
} from '../../support/fake-ports.js';

const KEY = 's.run';

/** A worker that holds the session `s`. */
async function holding(changes: Partial<LeaseTask['request']> = {}, options: FakeWorkerOptions = {}) {
  const worker = new FakeWorker(options);
  await worker.keeper.acquire(leaseTask('s', changes));
  worker.journal.splice(0);
  return worker;
}

/** The same, after the server has timed the lease out and the owner was described. */
async function withoutLease(owner: 'running' | 'continued', options: FakeWorkerOptions = {}) {
  const worker = await holding({}, options);
  worker.temporal.answer('heartbeat', 'not-found');
  worker.temporal.answer('describeOwner', owner);
  await worker.run(20_000);
  worker.temporal.calls.splice(0);
  return worker;
}

/** What a promise has come to so far. */
function watch(promise: Promise<unknown>): { outcome: unknown } {
  const seen: { outcome: unknown } = { outcome: 'pending' };
  promise.then(
    () => (seen.outcome = 'done'),
    (error: { code?: string }) => (seen.outcome = error.code ?? error),
  );
  return seen;
}

describe('a confirmation', () => {
  it('is given while the session is held, by the token of the question', async () => {
    const worker = await holding();
    worker.temporal.calls.splice(0);
    const task = confirmTask('s');
    await worker.keeper.confirm(task);
    expect(worker.temporal.calls).toEqual([{ method: 'answerConfirm', args: [task.leaseToken] }]);
    expect(worker.table.session(KEY)).toMatchObject({ state: 'held', epoch: 1 });
  });

  it('is refused for a session that is not held, or was acquired again since', async () => {
    const worker = await holding();
    await expect(worker.keeper.confirm(confirmTask('s', 'older'))).rejects.toMatchObject({ code: 'SessionLost' });
    await expect(worker.keeper.confirm(confirmTask('t', 'other'))).rejects.toMatchObject({ code: 'SessionLost' });
  });

  it('of a session that is being released is refused only once its attempts have ended', async () => {
    const worker = await holding();
    const attempt = pinnedAttempt('s');
    await worker.keeper.beginAttempt(attempt);
    const released = worker.keeper.release(releaseOf('s'));
    const answer = watch(worker.keeper.confirm(confirmTask('s')));
    await worker.clock.advance(10_000);
    expect(answer.outcome).toBe('pending');
    await worker.keeper.endAttempt(attempt.id);
    await settle();
    expect(answer.outcome).toBe('SessionLost');
    expect(await released).toBe(true);
  });

  it('lifts a suspicion, so that attempts may start again', async () => {
    const worker = await holding();
    worker.keeper.presenceGone();
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({ code: 'AttemptFenced' });
    await worker.keeper.confirm(confirmTask('s'));
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
  });
});

describe('an adoption', () => {
  it('attaches the new lease, tells the owner by the same grant, and renews it from then on', async () => {
    const worker = await withoutLease('running');
    worker.journal.splice(0);
    await worker.keeper.adopt(adoptTask('s', { epoch: 2 }));
    expect(worker.journal).toEqual([
      `ledger buffered granting ${KEY}`,
      'heartbeat',
      'signalGrant',
      `ledger buffered held ${KEY}`,
    ]);
    expect(worker.temporal.callsOf('heartbeat')).toEqual([['token-s-2']]);
    expect(worker.temporal.callsOf('signalGrant')[0]?.[1]).toMatchObject({ grantId: 'grant-1', epoch: 2 });
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, acquiredEpoch: 1, leaseToken: 'token-s-2' });
    await worker.run(120_000);
    expect(worker.table.session(KEY)?.state).toBe('held');
    expect(worker.temporal.callsOf('askOwner')).toEqual([]);
    expect(new Set(worker.temporal.callsOf('heartbeat').map(([token]) => token))).toEqual(new Set(['token-s-2']));
  });

  it('keeps scratch space and what it was granted for, and lets attempts of both leases run', async () => {
    const worker = await withoutLease('running');
    const before = worker.table.session(KEY)!;
    await worker.keeper.adopt(adoptTask('s'));
    const { fencingToken, expiresAtMs, grantedAtMs } = before;
    expect(worker.table.session(KEY)).toMatchObject({ fencingToken, expiresAtMs, grantedAtMs });
    expect(worker.scratch.directories.get(KEY)).toBe(1);
    for (const epoch of [1, 2]) await worker.keeper.beginAttempt(pinnedAttempt('s', { epoch }));
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s', { epoch: 3 }))).rejects.toMatchObject({
      code: 'SessionLost',
    });
  });

  it('outlives the answer that the old lease is not known any more', async () => {
    const worker = await holding();
    const old = deferred<'not-found'>();
    worker.temporal.answer('heartbeat', old.promise);
    await worker.clock.advance(20_000);
    const tick = worker.keeper.tick();
    await settle();
    await worker.keeper.adopt(adoptTask('s'));
    old.resolve('not-found');
    await tick;
    expect(worker.temporal.callsOf('describeOwner')).toEqual([]);
    expect(worker.table.session(KEY)).toMatchObject({ leaseToken: 'token-s-2', state: 'held' });
  });

  it('by an older lease than the newest is refused', async () => {
    const worker = await withoutLease('running');
    await worker.keeper.adopt(adoptTask('s', { epoch: 3 }));
    await expect(worker.keeper.adopt(adoptTask('s', { epoch: 2 }))).rejects.toMatchObject({ code: 'SessionLost' });
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 3, leaseToken: 'token-s-3', state: 'held' });
  });

  it('by a run that was reset to before the newest lease is refused once the attempts have ended', async () => {
    const worker = await withoutLease('running');
    await worker.keeper.adopt(adoptTask('s', { epoch: 3 }));
    const attempt = pinnedAttempt('s', { epoch: 3 });
    await worker.keeper.beginAttempt(attempt);
    const answer = watch(worker.keeper.adopt(adoptTask('s', { epoch: 2, runId: 'reset' })));
    await settle();
    expect(answer.outcome).toBe('pending');
    await worker.keeper.endAttempt(attempt.id);
    await settle();
    expect(answer.outcome).toBe('SessionLost');
    expect(worker.table.sessionCount).toBe(0);
  });

  it('by a run that has closed changes nothing for the one that came after it', async () => {
    const worker = await withoutLease('continued');
    await worker.keeper.adopt(adoptTask('s', { epoch: 3, runId: 'next' }));
    worker.temporal.answer('heartbeat', 'not-found');
    await expect(worker.keeper.adopt(adoptTask('s', { epoch: 2 }))).rejects.toMatchObject({ code: 'SessionLost' });
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 3, runId: 'next', state: 'held' });
  });

  it('that the server hands out again goes on under the new token', async () => {
    const worker = await withoutLease('running');
    await worker.keeper.adopt(adoptTask('s', { token: 'first' }));
    await worker.keeper.adopt(adoptTask('s', { token: 'second' }));
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, leaseToken: 'second', state: 'held' });
  });

  it('by a later run makes that the owner', async () => {
    const worker = await withoutLease('continued');
    await worker.keeper.adopt(adoptTask('s', { epoch: 5, runId: 'next' }));
    expect(worker.temporal.callsOf('signalGrant')[0]?.[0]).toMatchObject({ runId: 'next' });
    expect(worker.keeper.snapshot()).toMatchObject([{ runId: 'next', epoch: 5 }]);
    await worker.keeper.beginAttempt(pinnedAttempt('s', { epoch: 5, runId: 'next' }));
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s', { epoch: 1 }))).rejects.toMatchObject({
      code: 'SessionLost',
    });
    await worker.keeper.endAttempt(pinnedAttempt('s', { epoch: 5, runId: 'next' }).id);
    // The run that is gone does not end it any more.
    await worker.keeper.ownersClosed(['run']);
    expect(worker.temporal.callsOf('describeOwner')).toEqual([]);
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
  });

  it('of a session that ends meanwhile is refused once its attempts have ended', async () => {
    const worker = await withoutLease('running');
    const heartbeat = deferred<'renewed'>();
    worker.temporal.answer('heartbeat', heartbeat.promise);
    const answer = watch(worker.keeper.adopt(adoptTask('s')));
    await settle();
    const ending = worker.keeper.giveUpAll('The worker stops.');
    heartbeat.resolve('renewed');
    await ending;
    await settle();
    expect(answer.outcome).toBe('SessionLost');
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
  });

  it('whose first renewal is not answered is told by a later one, and its attempt does not fail', async () => {
    const worker = await withoutLease('running');
    worker.temporal.answer('heartbeat', new Error('Unavailable'));
    await worker.keeper.adopt(adoptTask('s', { epoch: 2 }));
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
    await worker.run(200);
    expect(worker.temporal.callsOf('heartbeat')).toEqual([['token-s-2'], ['token-s-2']]);
    expect(worker.temporal.callsOf('signalGrant')[0]?.[1]).toMatchObject({ grantId: 'grant-1', epoch: 2 });
    expect(worker.table.session(KEY)).toMatchObject({ leaseToken: 'token-s-2', state: 'held' });
  });

  it.each(['not-found', 'cancel-requested'] as const)(
    'whose own lease is %s leaves the session to its next lease',
    async (answer) => {
      const worker = await withoutLease('running');
      worker.temporal.answer('heartbeat', answer);
      await worker.keeper.adopt(adoptTask('s', { epoch: 2 }));
      expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
      await worker.keeper.adopt(adoptTask('s', { epoch: 3 }));
      expect(worker.table.session(KEY)).toMatchObject({ epoch: 3, state: 'held' });
    },
  );
});

describe('a lease that the server has timed out', () => {
  it('is looked into again within a second or so when its owner can not be described', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', 'not-found', 'not-found');
    worker.temporal.answer('describeOwner', new Error('Unavailable'), 'closed');
    await worker.run(20_000);
    expect(worker.table.sessionCount).toBe(1);
    await worker.run(1_200);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('of an owner that has closed ends the session', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', 'not-found');
    worker.temporal.answer('describeOwner', 'closed');
    await worker.run(20_000);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('describeOwner')).toMatchObject([[{ workflowId: 'workflow-s', runId: 'run' }]]);
  });

  it('of an owner that has continued as new keeps the slot for a while and asks nobody', async () => {
    const worker = await withoutLease('continued');
    await worker.run(14_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(200);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.calls).toEqual([]);
    expect(worker.events('release')).toMatchObject([{ fields: { reason: 'no later run of its owner adopted it' } }]);
  });

  it('of an owner that runs is asked about every 2 s, for a minute', async () => {
    const worker = await withoutLease('running');
    await worker.run(2_000);
    expect(worker.temporal.callsOf('askOwner')).toHaveLength(1);
    await worker.run(2_000);
    expect(worker.temporal.callsOf('askOwner')).toHaveLength(2);
    expect(worker.temporal.callsOf('askOwner')[0]).toMatchObject([{ runId: 'run' }, { grantId: 'grant-1', epoch: 1 }]);
    await worker.run(55_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(200);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('askOwner')).toHaveLength(30);
    expect(worker.events('release')).toMatchObject([{ fields: { reason: 'its owner did not answer' } }]);
  });

  it('is asked about again though a question is not answered', async () => {
    const worker = await withoutLease('running');
    worker.temporal.answer('askOwner', new Error('Unavailable'));
    await worker.run(4_000);
    expect(worker.temporal.callsOf('askOwner')).toHaveLength(2);
  });

  it('of an owner that is gone when asked is described again', async () => {
    const worker = await withoutLease('running');
    worker.temporal.answer('askOwner', 'gone');
    worker.temporal.answer('describeOwner', 'continued');
    await worker.run(200);
    expect(worker.temporal.calls.map(({ method }) => method)).toEqual(['askOwner', 'describeOwner']);
    await worker.run(14_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(400);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('is looked into again when its owner could not be described', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', 'not-found', 'not-found');
    worker.temporal.answer('describeOwner', new Error('Unavailable'), 'closed');
    await worker.run(20_000);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(20_000);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('starts no attempt until it is adopted', async () => {
    const worker = await withoutLease('running');
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({ code: 'AttemptFenced' });
    await worker.keeper.adopt(adoptTask('s'));
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
  });
});

describe('owners that have closed by the owner check', () => {
  it('are described, and their sessions ended or kept by that', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('t'));
    worker.temporal.answer('describeOwner', 'closed', 'continued');
    await worker.keeper.ownersClosed(['run']);
    expect(worker.table.sessions().map(({ session }) => session)).toEqual(['t']);
    await worker.run(15_200);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('are not taken at the word of a visibility store that is behind', async () => {
    const worker = await holding();
    await worker.keeper.ownersClosed(['another-run']);
    expect(worker.temporal.callsOf('describeOwner')).toEqual([]);
    expect(worker.table.session(KEY)?.state).toBe('held');
  });
});

describe('an expiry', () => {
  it('by the maximum duration ends the session with its code, and says so in the lease', async () => {
    const worker = await holding({ maxDurationMs: 5_000 });
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.run(4_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    const ticks = worker.run(200);
    await settle();
    expect(worker.executor.cancelled).toEqual([
      { key: KEY, code: 'SessionExpired', reason: 'It reached its maximum duration.' },
    ]);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await ticks;
    await worker.keeper.tick();
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('failLease')).toEqual([
      ['token-s-1', 'SessionExpired', 'It reached its maximum duration.'],
    ]);
  });

  it('by idleness counts from the grant, and from the end of the last attempt', async () => {
    const worker = await holding({ idleTimeoutMs: 10_000 });
    await worker.run(8_000);
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    // An attempt that runs is no idleness, however long it is.
    await worker.run(40_000);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await worker.run(9_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(400);
    expect(worker.temporal.callsOf('failLease')).toEqual([
      ['token-s-1', 'SessionExpired', 'No pinned activity ran for 10s.'],
    ]);
  });

  it('by idleness counts the death of the executor as the end of the attempt', async () => {
    const worker = await holding({ idleTimeoutMs: 10_000 });
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.run(40_000);
    await worker.executor.die();
    await worker.run(9_800);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.run(400);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('does not come by idleness where none was asked for', async () => {
    const worker = await holding();
    await worker.run(600_000, 10_000);
    expect(worker.table.session(KEY)?.state).toBe('held');
  });
});

describe('the fence', () => {
  /** A worker with an attempt of a session, whose presence is watched and which nobody answers from then on. */
  async function cutOff(changes: Partial<LeaseTask['request']> = {}) {
    const worker = await holding(changes);
    worker.keeper.presenceAnswered(0);
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.temporal.unavailable = true;
    return worker;
  }

  it('cancels attempts before the owner may move on, once', async () => {
    const worker = await cutOff();
    // Presence of 6 s, a window of 5 s, less 3 s.
    await worker.run(7_800);
    expect(worker.executor.cancelled).toEqual([]);
    await worker.run(200);
    expect(worker.executor.cancelled).toEqual([
      { key: KEY, code: 'AttemptFenced', reason: 'the worker can not reach Temporal' },
    ]);
    await worker.run(1_800);
    expect(worker.executor.cancelled).toHaveLength(1);
    expect(worker.table.session(KEY)?.state).toBe('held');
  });

  it('kills the executor whose attempt has not ended by then, once, and keeps the session', async () => {
    const worker = await cutOff();
    await worker.run(9_800);
    expect(worker.executor.kills).toEqual([]);
    await worker.run(200);
    expect(worker.executor.kills).toEqual(['an activity did not end before the fence of its session']);
    expect(worker.table.attempts()).toEqual([]);
    await worker.run(10_000);
    expect(worker.executor.kills).toHaveLength(1);
    expect(worker.table.session(KEY)?.state).toBe('held');
  });

  it('does not kill twice while a kill is under way, and tries again when it failed', async () => {
    const worker = await cutOff();
    worker.executor.killFault = new Error('EPERM');
    await worker.run(10_400);
    expect(worker.executor.kills).toHaveLength(3);
    expect(worker.events('executor-kill-failed')).toHaveLength(3);
    const slow = deferred<undefined>();
    worker.executor.kill = (reason) => {
      worker.executor.kills.push(reason);
      return slow.promise;
    };
    await worker.run(1_000);
    expect(worker.executor.kills).toHaveLength(4);
    slow.resolve(undefined);
  });

  it('lets an attempt go that has ended in time', async () => {
    const worker = await cutOff();
    await worker.run(8_000);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await worker.run(20_000);
    expect(worker.executor.kills).toEqual([]);
  });

  it('tells the executor with every tick how long its attempts may go on, by the session that is nearest', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('t', { leaseTtlMs: 30_000, recoveryWindowMs: 2_000 }));
    await worker.keeper.tick();
    expect(worker.executor.localLeaseMs).toBeNull();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    expect(worker.executor.localLeaseMs).toBe(64_000);
    await worker.keeper.beginAttempt(pinnedAttempt('t'));
    // A window of 2 s leaves 400 ms from the kill to the fence.
    expect(worker.executor.localLeaseMs).toBe(31_600);
    worker.temporal.unavailable = true;
    await worker.run(5_000);
    expect(worker.executor.localLeaseMs).toBe(26_600);
    await worker.keeper.endAttempt(pinnedAttempt('t').id);
    await worker.keeper.tick();
    expect(worker.executor.localLeaseMs).toBe(59_000);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await worker.keeper.tick();
    expect(worker.executor.localLeaseMs).toBeNull();
  });

  it('moves away with each answer', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    for (let second = 0; second < 120; second += 2) {
      worker.keeper.presenceAnswered(worker.clock.monotonicMs());
      await worker.run(2_000);
    }
    expect([worker.executor.cancelled, worker.executor.kills]).toEqual([[], []]);
  });

  it('ends attempts of a session that is being released too: its owner may not know', async () => {
    const worker = await cutOff();
    void worker.keeper.giveUpAll('The worker stops.');
    await worker.run(9_800);
    expect(worker.executor.kills).toEqual([]);
    await worker.run(200);
    expect(worker.executor.kills).toHaveLength(1);
    await settle();
    expect(worker.table.sessionCount).toBe(0);
  });

  it('stays away from a session whose activity takes long to end, while its lease is renewed', async () => {
    const worker = await holding({ leaseTtlMs: 3_000, recoveryWindowMs: 1_000 });
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const released = worker.keeper.release(releaseOf('s'));
    await worker.run(20_000);
    expect(worker.executor.kills).toEqual([]);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    expect(await released).toBe(true);
    await worker.run(60_000);
    // As before: completed when the next renewal would have been due, and renewed no more.
    expect(worker.temporal.calls.at(-1)).toEqual({ method: 'completeLease', args: ['token-s-1'] });
  });

  it('lets no attempt start that was fetched after a silence before one answer has come', async () => {
    const worker = await holding();
    worker.keeper.presenceAnswered(0);
    await worker.clock.advance(4_501);
    const slow = deferred<'renewed'>();
    worker.temporal.answer('heartbeat', slow.promise);
    const answer = watch(worker.keeper.beginAttempt(pinnedAttempt('s')));
    await settle();
    expect(answer.outcome).toBe('pending');
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(2);
    slow.resolve('renewed');
    await settle();
    expect(answer.outcome).toBe('done');
  });

  it('refuses it, retryably, when no answer comes', async () => {
    const worker = await holding();
    worker.keeper.presenceAnswered(0);
    await worker.clock.advance(4_501);
    worker.temporal.unavailable = true;
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({ code: 'AttemptFenced' });
    expect(worker.table.attempts()).toEqual([]);
    worker.temporal.unavailable = false;
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
  });

  it('refuses it for good when the answer is that the session is over', async () => {
    const worker = await holding();
    worker.keeper.presenceAnswered(0);
    await worker.clock.advance(4_501);
    worker.temporal.answer('heartbeat', 'not-found');
    worker.temporal.answer('describeOwner', 'closed');
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({ code: 'SessionLost' });
  });

  it('lets no attempt start while this worker is suspected, and has the owner ask when it does not by itself', async () => {
    const worker = await holding({ leaseTtlMs: 6_000 });
    worker.keeper.presenceAnswered(0);
    worker.keeper.presenceGone();
    await worker.run(2_800);
    expect(worker.temporal.callsOf('askOwner')).toEqual([]);
    worker.temporal.answer('askOwner', new Error('Unavailable'));
    await worker.run(5_200);
    // Every 2 s until it has asked, and no renewal stands in for that.
    expect(worker.temporal.callsOf('askOwner')).toMatchObject(
      Array(3).fill([{ runId: 'run' }, { grantId: 'grant-1' }]),
    );
    expect(worker.temporal.callsOf('heartbeat').length).toBeGreaterThan(3);
    await worker.run(60_000);
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({ code: 'AttemptFenced' });
    await worker.keeper.confirm(confirmTask('s'));
    worker.temporal.calls.splice(0);
    await worker.run(4_000);
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    expect(worker.temporal.callsOf('askOwner')).toEqual([]);
  });

  it('ends the session when the owner that is to give its word has closed', async () => {
    const worker = await holding();
    worker.keeper.presenceGone();
    worker.temporal.answer('askOwner', 'gone');
    worker.temporal.answer('describeOwner', 'closed');
    await worker.run(3_200);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('leaves an owner alone that does not know of its grant yet: it would release it', async () => {
    const worker = new FakeWorker();
    worker.temporal.answer('signalGrant', new Error('Unavailable'));
    await worker.keeper.acquire(leaseTask('s'));
    worker.keeper.presenceGone();
    await worker.run(10_000);
    expect(worker.temporal.callsOf('askOwner')).toEqual([]);
  });

  it('lets no attempt start after a restart before the fleet says that it was not missed', async () => {
    const before = await holding();
    const worker = new FakeWorker({ records: before.ledger.records, directories: before.scratch.directories });
    worker.temporal.unavailable = true;
    await worker.keeper.resume();
    const first = watch(worker.keeper.beginAttempt(pinnedAttempt('s')));
    await worker.run(4_800);
    expect(first.outcome).toBe('pending');
    await worker.run(400);
    expect(first.outcome).toBe('AttemptFenced');
  });

  it('lets an attempt after a restart wait for the answer to the registration, which costs it nothing', async () => {
    const before = await holding();
    const worker = new FakeWorker({ records: before.ledger.records, directories: before.scratch.directories });
    await worker.keeper.resume();
    const attempt = watch(worker.keeper.beginAttempt(pinnedAttempt('s')));
    await worker.run(2_000);
    expect(attempt.outcome).toBe('pending');
    worker.keeper.notMissed(worker.clock.monotonicMs());
    await settle();
    expect(attempt.outcome).toBe('done');
  });
});

describe('a result', () => {
  const attempt = pinnedAttempt('s');
  const activity = 'run/s.1:1';
  const result = { json: '{"pages":5}' };

  async function withResult(failing = false) {
    const worker = await holding();
    await worker.keeper.beginAttempt(attempt);
    if (failing) worker.keeper.callFailed();
    await worker.keeper.endAttempt(attempt.id, result);
    return worker;
  }

  it('is in the ledger before the end of its attempt', async () => {
    const worker = await withResult();
    expect(worker.journal).toEqual([
      `ledger buffered attempt ${attempt.id}`,
      `ledger buffered result ${activity}`,
      `ledger buffered attempt-ended ${attempt.id}`,
    ]);
  });

  it.each([{ json: '{"pages":5}' }, {}])(
    '%j is answered to an attempt that comes again, and nothing runs',
    async (each) => {
      const worker = await holding();
      await worker.keeper.beginAttempt(attempt);
      await worker.keeper.endAttempt(attempt.id, each);
      expect(await worker.keeper.beginAttempt(pinnedAttempt('s', { attempt: 2 }))).toMatchObject({ result: each });
      expect(worker.table.attempts()).toEqual([]);
      expect(await worker.keeper.beginAttempt(pinnedAttempt('s', { step: 2 }))).not.toHaveProperty('result');
    },
  );

  it('is not there where the activity failed, or belongs to no session', async () => {
    const worker = await holding();
    const { session: _, ...unpinned } = pinnedAttempt('s', { step: 2 });
    await worker.keeper.beginAttempt(attempt);
    await worker.keeper.endAttempt(attempt.id);
    await worker.keeper.beginAttempt(unpinned);
    await worker.keeper.endAttempt(unpinned.id, result);
    expect(worker.table.results()).toEqual([]);
  });

  it('that is safe is not reported, and forgotten after 20 s', async () => {
    const worker = await withResult();
    await worker.run(19_800);
    expect(worker.table.result(activity)).toBeDefined();
    await worker.run(400);
    expect(worker.table.result(activity)).toBeUndefined();
    expect(worker.temporal.callsOf('completeAttempt')).toEqual([]);
  });

  it.each(['before', 'after'])(
    'is reported until it is answered when a call failed shortly %s its end',
    async (when) => {
      const worker = await withResult(when === 'before');
      if (when === 'after') {
        await worker.run(19_800);
        worker.keeper.callFailed();
      }
      worker.temporal.answer('completeAttempt', new Error('Unavailable'), new Error('Unavailable'));
      await worker.run(2_200);
      expect(worker.temporal.callsOf('completeAttempt')).toEqual(Array(3).fill([attempt.taskToken, result]));
      await worker.run(10_000);
      expect(worker.temporal.callsOf('completeAttempt')).toHaveLength(3);
    },
  );

  it('is not at risk from a call that failed long before or after', async () => {
    const worker = await holding();
    worker.keeper.callFailed();
    await worker.clock.advance(20_000);
    await worker.keeper.beginAttempt(attempt);
    await worker.keeper.endAttempt(attempt.id, result);
    await worker.clock.advance(20_000);
    worker.keeper.callFailed();
    await worker.run(400);
    expect(worker.temporal.callsOf('completeAttempt')).toEqual([]);
  });

  it('is reported by one call at a time', async () => {
    const worker = await withResult(true);
    const slow = deferred<undefined>();
    worker.temporal.answer('completeAttempt', slow.promise);
    const ticks = [worker.keeper.tick(), worker.keeper.tick()];
    await settle();
    await worker.clock.advance(3_000);
    ticks.push(worker.keeper.tick());
    await settle();
    expect(worker.temporal.callsOf('completeAttempt')).toHaveLength(1);
    slow.resolve(undefined);
    await Promise.all(ticks);
  });

  it('that was at risk outlasts its report, since the server may hand the activity out as long as the session lives', async () => {
    const worker = await withResult(true);
    await worker.run(120_000, 1_000);
    expect(await worker.keeper.beginAttempt(pinnedAttempt('s', { attempt: 2 }))).toMatchObject({ result });
    await worker.run(600_000, 1_000);
    expect(worker.table.results()).toHaveLength(1);
    await worker.keeper.release(releaseOf('s'));
    expect(worker.table.results()).toEqual([]);
  });

  it('survives a restart, is reported by the next life and answered there', async () => {
    const before = await withResult();
    const worker = new FakeWorker({ records: before.ledger.records, directories: before.scratch.directories });
    await worker.keeper.resume();
    expect(worker.temporal.callsOf('completeAttempt')).toEqual([[attempt.taskToken, result]]);
    worker.keeper.notMissed(worker.clock.monotonicMs());
    expect(await worker.keeper.beginAttempt(pinnedAttempt('s', { attempt: 2 }))).toMatchObject({ result });
  });

  it('goes with its session', async () => {
    const worker = await withResult(true);
    worker.temporal.answer('completeAttempt', new Error('Unavailable'));
    await worker.keeper.release(releaseOf('s'));
    await worker.run(60_000);
    expect(worker.table.results()).toEqual([]);
    expect(worker.temporal.callsOf('completeAttempt')).toEqual([]);
  });
});

describe('an ending', () => {
  it('of a session whose executor can not be killed is tried again, and the slot is kept', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.executor.killFault = new Error('EPERM');
    const released = watch(worker.keeper.release(releaseOf('s')));
    await worker.clock.advance(30_000);
    expect(worker.executor.kills).toHaveLength(1);
    expect([released.outcome, worker.table.session(KEY)?.state]).toEqual(['pending', 'releasing']);
    worker.executor.killFault = undefined;
    await worker.clock.advance(30_000);
    expect([released.outcome, worker.table.sessionCount]).toEqual(['done', 0]);
    expect(worker.clock.timerCount).toBe(0);
  });
});

describe('a tick', () => {
  it('does not throw and leaves nothing out when a part of it fails', async () => {
    const worker = await holding();
    worker.executor.renewLocalLease = () => {
      throw new Error('a bug');
    };
    await worker.run(20_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(2);
    expect(worker.events('tick-failed').at(-1)).toMatchObject({ level: 'error', fields: { reason: 'a bug' } });
  });
});
