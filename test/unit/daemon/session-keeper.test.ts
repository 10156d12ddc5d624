/** The session keeper against scripted ports: each rule of grant, renewal, release, attempts and restart on its own. */
import { describe, expect, it } from 'vitest';
import type { SessionEntry } from '../../../src/daemon/session-table.js';
import {
  deferred,
  FakeWorker,
  leaseTask,
  pinnedAttempt,
  releaseOf,
  restarted,
  settle,
  type FakeWorkerOptions,
} from '../../support/fake-ports.js';

const KEY = 's.run';

/** A worker that holds the session `s`. */
async function holding(options: FakeWorkerOptions = {}, changes: Parameters<typeof leaseTask>[1] = {}) {
  const worker = new FakeWorker(options);
  await worker.keeper.acquire(leaseTask('s', changes));
  worker.journal.splice(0);
  return worker;
}

function entry(session: string, changes: Partial<SessionEntry> = {}): SessionEntry {
  return {
    key: `${session}.run`,
    session,
    workflowId: `workflow-${session}`,
    runId: 'run',
    workflowType: 'sequence',
    epoch: 1,
    acquiredEpoch: 1,
    grantId: `old-grant-${session}`,
    fencingToken: 1_699_999_989_000,
    capabilities: [],
    leaseToken: `token-${session}-1`,
    leaseTtlMs: 60_000,
    recoveryWindowMs: 5_000,
    idleTimeoutMs: null,
    grantedAtMs: 1_699_999_990_000,
    expiresAtMs: 1_700_003_590_000,
    state: 'held',
    ...changes,
  };
}

describe('a grant', () => {
  it('takes slot, then ledger, heartbeat and scratch side by side, then signals', async () => {
    const worker = new FakeWorker();
    const ledger = deferred<undefined>();
    worker.ledger.append = (
      (append) =>
      async (...args) => {
        await append(...args);
        if (args[1].durable) await ledger.promise;
      }
    )(worker.ledger.append.bind(worker.ledger));
    const acquired = worker.keeper.acquire(leaseTask('s', { capabilities: ['gpu'] }));
    await settle();
    // The slot is taken before the ledger has answered, and nobody has been told anything.
    expect(worker.table.session(KEY)).toMatchObject({ state: 'granting', epoch: 1, grantId: 'grant-1' });
    expect(worker.journal).toEqual([`ledger durable granting ${KEY}`, 'heartbeat', `scratch create ${KEY}`]);
    ledger.resolve(undefined);
    await acquired;
    expect(worker.journal).toEqual([
      `ledger durable granting ${KEY}`,
      'heartbeat',
      `scratch create ${KEY}`,
      'signalGrant',
      `ledger buffered held ${KEY}`,
    ]);
    expect(worker.table.session(KEY)?.state).toBe('held');
    expect(worker.temporal.callsOf('heartbeat')).toEqual([['token-s-1']]);
    expect(worker.temporal.callsOf('signalGrant')[0]).toMatchObject([
      { workflowId: 'workflow-s', runId: 'run' },
      {
        session: 's',
        epoch: 1,
        grantId: 'grant-1',
        worker: 'w',
        queue: 'atlas-w.i',
        presenceTtlMs: 6_000,
      },
    ]);
    expect(worker.changes).toBe(1);
    expect(worker.keeper.snapshot()).toMatchObject([
      { session: 's', state: 'held', capabilities: ['gpu'], attempts: [] },
    ]);
  });

  it('counts the maximum duration from its begin', async () => {
    const worker = await holding({}, { maxDurationMs: 5_000 });
    const held = worker.table.session(KEY)!;
    expect(held.grantedAtMs).toBe(worker.clock.now());
    expect(held.expiresAtMs - held.grantedAtMs).toBe(5_000);
  });

  it('fails with NoFreeSlot after the local wait, and leaves no timer and no waiter behind', async () => {
    const worker = await holding({ rules: { cap: 1, reserve: {} } });
    const second = worker.keeper.acquire(leaseTask('t'));
    const outcome = second.catch((error: unknown) => error);
    await worker.clock.advance(1_999);
    expect(worker.journal).toEqual([]);
    expect(worker.clock.timerCount).toBe(1);
    await worker.clock.advance(1);
    expect(await outcome).toMatchObject({ code: 'NoFreeSlot', message: 'The worker w has no free slot.' });
    expect(worker.clock.timerCount).toBe(0);
    await worker.keeper.release(releaseOf('s'));
    expect(worker.table.sessionCount).toBe(0);
  });

  it('takes a slot that becomes free within the local wait', async () => {
    const worker = await holding({ rules: { cap: 1, reserve: {} } });
    const second = worker.keeper.acquire(leaseTask('t'));
    await worker.clock.advance(1_000);
    await worker.keeper.release(releaseOf('s'));
    await second;
    expect(worker.table.sessions().map(({ session }) => session)).toEqual(['t']);
    expect(worker.clock.timerCount).toBe(0);
  });

  it('goes to one of several that wait for the same slot', async () => {
    const worker = await holding({ rules: { cap: 1, reserve: {} } });
    const waiting = ['t', 'u', 'v'].map((session) =>
      worker.keeper.acquire(leaseTask(session)).then(
        () => 'granted',
        (error: { code: string }) => error.code,
      ),
    );
    await settle();
    await worker.keeper.release(releaseOf('s'));
    await settle();
    expect(worker.table.sessions().map(({ session }) => session)).toEqual(['t']);
    await worker.clock.advance(2_000);
    expect(await Promise.all(waiting)).toEqual(['granted', 'NoFreeSlot', 'NoFreeSlot']);
  });

  it('is not made while the gate is closed', async () => {
    const worker = new FakeWorker();
    worker.gate.setClosed(true);
    const refused = worker.keeper.acquire(leaseTask('s')).catch((error: unknown) => error);
    await worker.clock.advance(2_000);
    expect(await refused).toMatchObject({ code: 'NoFreeSlot' });
    expect(worker.journal).toEqual([]);
  });

  it.each(['not-found', 'cancel-requested'] as const)(
    'is given up when the first heartbeat says %s',
    async (answer) => {
      const worker = new FakeWorker();
      worker.temporal.answer('heartbeat', answer);
      await worker.keeper.acquire(leaseTask('s'));
      expect(worker.table.sessionCount).toBe(0);
      expect(worker.scratch.directories.size).toBe(0);
      expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
      await worker.keeper.tick();
      expect(worker.temporal.callsOf('cancelLease')).toEqual(answer === 'cancel-requested' ? [['token-s-1']] : []);
      expect(worker.temporal.callsOf('completeLease')).toEqual([]);
    },
  );

  it('is undone when its owner has closed', async () => {
    const worker = new FakeWorker();
    worker.temporal.answer('signalGrant', 'gone');
    worker.temporal.answer('describeOwner', 'closed');
    await worker.keeper.acquire(leaseTask('s'));
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.scratch.directories.size).toBe(0);
    await worker.run(60_000);
    // Nobody is there who would want the lease to end.
    expect(worker.temporal.calls.map(({ method }) => method)).toEqual(['heartbeat', 'signalGrant', 'describeOwner']);
  });

  it('keeps its slot when the answer to the signal is unclear, and is signalled again with the renewals', async () => {
    const worker = new FakeWorker();
    worker.temporal.answer('signalGrant', new Error('Unavailable'), new Error('Unavailable'));
    await worker.keeper.acquire(leaseTask('s'));
    expect(worker.table.session(KEY)?.state).toBe('granting');
    await worker.run(20_000);
    expect(worker.table.session(KEY)?.state).toBe('granting');
    await worker.run(20_000);
    expect(worker.table.session(KEY)?.state).toBe('held');
    const grants = worker.temporal.callsOf('signalGrant').map(([, grant]) => (grant as { grantId: string }).grantId);
    expect(grants).toEqual(['grant-1', 'grant-1', 'grant-1']);
    await worker.run(60_000);
    expect(worker.temporal.callsOf('signalGrant')).toHaveLength(3);
  });

  it('renews the lease before it repeats an unclear signal, which may take longer than the TTL', async () => {
    const worker = new FakeWorker();
    const slow = deferred<'delivered'>();
    worker.temporal.answer('signalGrant', new Error('Unavailable'), slow.promise);
    await worker.keeper.acquire(leaseTask('s'));
    worker.journal.splice(0);
    await worker.clock.advance(20_000);
    const tick = worker.keeper.tick();
    await settle();
    expect(worker.journal).toEqual(['heartbeat', 'signalGrant']);
    slow.resolve('delivered');
    await tick;
    expect(worker.table.session(KEY)?.state).toBe('held');
  });

  it('frees the slot and can be tried elsewhere when the ledger can not be written', async () => {
    const worker = new FakeWorker({ rules: { cap: 1, reserve: {} } });
    const cause = new Error('ENOSPC');
    worker.ledger.fault = () => cause;
    await expect(worker.keeper.acquire(leaseTask('s'))).rejects.toMatchObject({ code: 'NoFreeSlot', cause });
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
    worker.ledger.fault = undefined;
    await worker.keeper.acquire(leaseTask('t'));
    expect(worker.table.sessionCount).toBe(1);
  });

  it.each<[string, (worker: FakeWorker) => void]>([
    ['the first heartbeat is not answered', ({ temporal }) => temporal.answer('heartbeat', new Error('Unavailable'))],
    [
      'scratch space can not be made',
      ({ scratch }) => {
        scratch.fault = (operation) => (operation === 'create' ? new Error('ENOSPC') : undefined);
      },
    ],
  ])('frees the slot and can be tried elsewhere when %s', async (_, breakIt) => {
    const worker = new FakeWorker();
    breakIt(worker);
    await expect(worker.keeper.acquire(leaseTask('s'))).rejects.toMatchObject({ code: 'NoFreeSlot' });
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.scratch.directories.size).toBe(0);
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
  });

  it('is not taken for new when the owner released it before the answer to the signal came', async () => {
    const worker = new FakeWorker();
    const slow = deferred<'delivered'>();
    worker.temporal.answer('signalGrant', slow.promise);
    const acquired = worker.keeper.acquire(leaseTask('s'));
    await settle();
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
    slow.resolve('delivered');
    await acquired;
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.events('grant')).toEqual([]);
  });
});

describe('a lease that is handed out again', () => {
  it('keeps its grant under the new token', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('s', { token: 'second' }));
    expect(worker.table.session(KEY)).toMatchObject({ grantId: 'grant-1', leaseToken: 'second', state: 'held' });
    expect(worker.temporal.callsOf('signalGrant')).toHaveLength(2);
    expect(worker.scratch.trash).toBe(0);
    await worker.run(20_000);
    expect(worker.temporal.callsOf('heartbeat').at(-1)).toEqual(['second']);
  });

  it('outlives the answer that its old token is not known any more', async () => {
    const worker = await holding();
    const old = deferred<'not-found'>();
    worker.temporal.answer('heartbeat', old.promise);
    await worker.clock.advance(20_000);
    const tick = worker.keeper.tick();
    await worker.keeper.acquire(leaseTask('s', { token: 'second' }));
    old.resolve('not-found');
    await tick;
    expect(worker.table.session(KEY)).toMatchObject({ leaseToken: 'second', state: 'held' });
  });

  it('is granted once when the first attempt still waits for its heartbeat', async () => {
    const worker = new FakeWorker();
    const old = deferred<'not-found'>();
    worker.temporal.answer('heartbeat', old.promise);
    const first = worker.keeper.acquire(leaseTask('s'));
    await settle();
    const second = worker.keeper.acquire(leaseTask('s', { token: 'second' }));
    old.resolve('not-found');
    await Promise.all([first, second]);
    expect(worker.table.session(KEY)).toMatchObject({ leaseToken: 'second', state: 'held' });
    expect(worker.scratch.directories.has(KEY)).toBe(true);
    await worker.run(20_000);
    expect(worker.temporal.callsOf('heartbeat').at(-1)).toEqual(['second']);
  });

  it('with a higher epoch ends the older one first, which its owner has cancelled', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.temporal.answer('heartbeat', 'cancel-requested');
    const second = worker.keeper.acquire(leaseTask('s', { epoch: 2 }));
    await settle();
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 1, state: 'releasing' });
    expect(worker.temporal.callsOf('signalGrant')).toHaveLength(1);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await second;
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, grantId: 'grant-2', state: 'held' });
    expect(worker.scratch.directories.get(KEY)).toBe(2);
    await worker.run(20_000);
    expect(worker.temporal.callsOf('completeLease')).toEqual([['token-s-1']]);
  });

  it('with a higher epoch is refused while the older lease is wanted, or nobody says whether it is', async () => {
    const worker = await holding();
    const taskOfSecond = leaseTask('s', { epoch: 2 });
    await expect(worker.keeper.acquire(taskOfSecond)).rejects.toMatchObject({ code: 'NoFreeSlot' });
    worker.temporal.answer('heartbeat', new Error('Unavailable'));
    await expect(worker.keeper.acquire(taskOfSecond)).rejects.toMatchObject({ code: 'NoFreeSlot' });
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 1, grantId: 'grant-1', state: 'held' });
    worker.temporal.answer('heartbeat', 'not-found');
    await worker.keeper.acquire(taskOfSecond);
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, grantId: 'grant-2', state: 'held' });
  });

  it('with a higher epoch waits for the very end of the older one, which would be taken for its own', async () => {
    const worker = await holding();
    const written = deferred<undefined>();
    const append = worker.ledger.append.bind(worker.ledger);
    worker.ledger.append = async (record, options) => {
      await append(record, options);
      if (record.type === 'session-gone') await written.promise;
    };
    const released = worker.keeper.release(releaseOf('s'));
    await settle();
    expect(worker.table.sessionCount).toBe(0);
    const second = worker.keeper.acquire(leaseTask('s', { epoch: 2 }));
    await settle();
    written.resolve(undefined);
    await Promise.all([released, second]);
    await worker.keeper.beginAttempt(pinnedAttempt('s', { epoch: 2 }));
    worker.temporal.calls.splice(0);
    await worker.run(20_000);
    expect(worker.temporal.callsOf('heartbeat')).toEqual([['token-s-2']]);
  });

  it('with a higher epoch is not ended by an answer about the older one', async () => {
    const worker = new FakeWorker();
    const old = deferred<'not-found'>();
    worker.temporal.answer('heartbeat', old.promise);
    const first = worker.keeper.acquire(leaseTask('s'));
    await settle();
    const second = worker.keeper.acquire(leaseTask('s', { epoch: 2 }));
    await settle();
    old.resolve('not-found');
    await Promise.all([first, second]);
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, state: 'held' });
    expect(worker.scratch.directories.get(KEY)).toBe(2);
  });

  it('with a lower epoch is refused', async () => {
    const worker = await holding({}, { epoch: 2 });
    await expect(worker.keeper.acquire(leaseTask('s', { epoch: 1 }))).rejects.toMatchObject({ code: 'SessionLost' });
    expect(worker.table.session(KEY)).toMatchObject({ epoch: 2, state: 'held' });
  });

  it('is taken by one of two tasks that waited for the same ending', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.temporal.answer('heartbeat', 'cancel-requested');
    const second = worker.keeper.acquire(leaseTask('s', { epoch: 2, token: 'a' }));
    const again = worker.keeper.acquire(leaseTask('s', { epoch: 2, token: 'b' }));
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await Promise.all([second, again]);
    expect(worker.table.sessions()).toMatchObject([{ epoch: 2, grantId: 'grant-2', leaseToken: 'b', state: 'held' }]);
  });
});

describe('a renewal', () => {
  it.each([1_500, 6_000, 60_000])('comes every third of a TTL of %d ms', async (leaseTtlMs) => {
    const worker = await holding({}, { leaseTtlMs });
    const at: number[] = [];
    worker.temporal.heartbeat = () => {
      at.push(worker.clock.monotonicMs());
      return Promise.resolve('renewed');
    };
    await worker.run(leaseTtlMs * 2, 100);
    expect(at).toEqual([1, 2, 3, 4, 5, 6].map((n) => (n * leaseTtlMs) / 3));
  });

  it('that is not answered is repeated after a second, and the session goes on', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', new Error('Unavailable'), new Error('Unavailable'));
    await worker.run(20_000, 1_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(2);
    await worker.run(1_000, 1_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(3);
    await worker.run(1_000, 1_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(4);
    await worker.run(19_000, 1_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(4);
    expect(worker.table.session(KEY)?.state).toBe('held');
    expect(worker.events('renewal-unanswered')).toHaveLength(2);
  });

  it('of a short lease that is not answered is repeated within a third of its TTL', async () => {
    const worker = await holding({}, { leaseTtlMs: 1_500 });
    worker.temporal.answer('heartbeat', new Error('Unavailable'));
    await worker.run(1_000, 500);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(3);
  });

  it('is in flight once, however often the timer fires', async () => {
    const worker = await holding();
    const slow = deferred<'renewed'>();
    worker.temporal.answer('heartbeat', slow.promise);
    await worker.clock.advance(20_000);
    const ticks = [worker.keeper.tick(), worker.keeper.tick(), worker.keeper.tick()];
    await settle();
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(2);
    slow.resolve('renewed');
    await Promise.all(ticks);
  });

  it('that the server does not know ends the session of a closed owner, and nobody is told', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', 'not-found');
    worker.temporal.answer('describeOwner', 'closed');
    await worker.run(20_000);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.scratch.directories.size).toBe(0);
    await worker.run(60_000);
    expect(worker.temporal.calls.map(({ method }) => method)).toEqual([
      'heartbeat',
      'signalGrant',
      'heartbeat',
      'describeOwner',
    ]);
  });

  it('that the owner has cancelled ends the session and answers the cancellation', async () => {
    const worker = await holding();
    worker.temporal.answer('heartbeat', 'cancel-requested');
    await worker.run(20_200);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('cancelLease')).toEqual([['token-s-1']]);
  });
});

describe('a release', () => {
  it('moves the scratch directory away, frees the slot, answers, and only then deletes', async () => {
    const worker = await holding();
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
    expect(worker.journal.slice(0, 4)).toEqual([
      `ledger buffered releasing ${KEY}`,
      `cancel ${KEY}`,
      `scratch discard ${KEY}`,
      `ledger buffered gone ${KEY}`,
    ]);
    await settle();
    expect(worker.journal.slice(4)).toEqual([`scratch delete ${KEY}`]);
    expect(worker.scratch).toMatchObject({ trash: 0 });
    expect(worker.table.sessionCount).toBe(0);
  });

  it('waits for running attempts and keeps the slot until the last has ended', async () => {
    const worker = await holding({ rules: { cap: 1, reserve: {} } });
    const attempts = [1, 2].map((step) => pinnedAttempt('s', { step }));
    for (const attempt of attempts) await worker.keeper.beginAttempt(attempt);
    let answered = false;
    const released = worker.keeper.release(releaseOf('s')).then((answer) => {
      answered = true;
      return answer;
    });
    await settle();
    expect(worker.executor.cancelled).toEqual([{ key: KEY, code: 'SessionLost', reason: 'its owner released it' }]);
    await worker.keeper.endAttempt(attempts[0]!.id);
    await settle();
    expect(answered).toBe(false);
    expect(worker.table.sessionCount).toBe(1);
    expect(worker.scratch.directories.has(KEY)).toBe(true);
    await worker.keeper.endAttempt(attempts[1]!.id);
    expect(await released).toBe(true);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.executor.kills).toEqual([]);
    expect(worker.clock.timerCount).toBe(0);
  });

  it('kills an executor whose activity ignores its cancellation for too long', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const released = worker.keeper.release(releaseOf('s'));
    await worker.clock.advance(29_999);
    expect(worker.executor.kills).toEqual([]);
    await worker.clock.advance(1);
    expect(await released).toBe(true);
    expect(worker.executor.kills).toEqual(['an activity of session s ignored its cancellation']);
    expect(worker.table.attempts()).toEqual([]);
    expect(worker.journal.indexOf('kill')).toBeLessThan(worker.journal.indexOf(`scratch discard ${KEY}`));
  });

  it('of a session that is not held says so', async () => {
    const worker = await holding();
    expect(await worker.keeper.release(releaseOf('s', { grantId: 'other' }))).toBe(false);
    await worker.keeper.release(releaseOf('s'));
    expect(await worker.keeper.release(releaseOf('s'))).toBe(false);
  });

  it('that is asked for twice is done once, and both are answered at its end', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const both = Promise.all([worker.keeper.release(releaseOf('s')), worker.keeper.release(releaseOf('s'))]);
    await settle();
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    expect(await both).toEqual([true, true]);
    expect(worker.executor.cancelled).toHaveLength(1);
    expect(worker.events('release')).toHaveLength(1);
  });

  it('completes the lease when its next renewal would have been due, once', async () => {
    const worker = await holding();
    await worker.run(5_000);
    await worker.keeper.release(releaseOf('s'));
    await worker.run(14_800);
    expect(worker.temporal.callsOf('completeLease')).toEqual([]);
    await worker.run(200);
    expect(worker.temporal.callsOf('completeLease')).toEqual([['token-s-1']]);
    await worker.run(60_000);
    expect(worker.temporal.callsOf('completeLease')).toHaveLength(1);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(1);
  });

  it('is not undone by a lease that can not be completed', async () => {
    const worker = await holding();
    worker.temporal.answer('completeLease', new Error('Unavailable'));
    await worker.keeper.release(releaseOf('s'));
    await worker.run(60_000);
    expect(worker.events('lease-end-unanswered')).toHaveLength(1);
    expect(worker.table.sessionCount).toBe(0);
  });

  it.each(['discard', 'delete'] as const)(
    'frees the slot though %s of the scratch directory fails',
    async (operation) => {
      const worker = await holding();
      worker.scratch.fault = (each) => (each === operation ? new Error('EIO') : undefined);
      expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
      await settle();
      expect(worker.table.sessionCount).toBe(0);
      expect(worker.events('scratch-left')).toHaveLength(1);
      // Again and again, and it is gone soon after the disk works.
      await worker.run(25_000);
      worker.scratch.fault = undefined;
      await worker.run(10_000);
      expect(worker.scratch.directories.size).toBe(0);
      expect(worker.scratch.trash).toBe(0);
      const calls = worker.journal.length;
      await worker.run(15_000);
      expect(worker.journal).toHaveLength(calls);
    },
  );

  it('leaves scratch space alone that could not be given up and is held again since', async () => {
    const worker = await holding();
    worker.scratch.fault = (each) => (each === 'discard' ? new Error('EROFS') : undefined);
    await worker.keeper.release(releaseOf('s'));
    worker.scratch.fault = undefined;
    await worker.keeper.acquire(leaseTask('s', { epoch: 2 }));
    await worker.run(15_000);
    expect(worker.scratch.directories.get(KEY)).toBe(2);
  });

  it('takes effect though the ledger can not be written', async () => {
    const worker = await holding();
    worker.ledger.fault = () => new Error('ENOSPC');
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.events('ledger-write-failed')).toHaveLength(2);
  });

  it('waits for scratch space that is being made, so that none is left behind', async () => {
    const worker = new FakeWorker();
    const making = deferred<undefined>();
    const create = worker.scratch.create.bind(worker.scratch);
    worker.scratch.create = async (...args) => {
      await making.promise;
      return await create(...args);
    };
    const acquired = worker.keeper.acquire(leaseTask('s'));
    await settle();
    const ended = worker.keeper.giveUpAll('stop');
    await settle();
    making.resolve(undefined);
    await Promise.all([acquired, ended]);
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.scratch.directories.size).toBe(0);
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
    await worker.run(60_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(1);
  });
});

describe('giving all sessions up', () => {
  it('ends them and tells every owner that its session is lost', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('t'));
    await worker.keeper.beginAttempt(pinnedAttempt('t'));
    const done = worker.keeper.giveUpAll('The worker stops.');
    await worker.keeper.endAttempt(pinnedAttempt('t').id);
    await done;
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('failLease')).toEqual([
      ['token-s-1', 'SessionLost', 'The worker stops.'],
      ['token-t-1', 'SessionLost', 'The worker stops.'],
    ]);
  });
});

describe('a release by force', () => {
  const request = { keys: [KEY, 'unknown.run'], who: 'ops', why: 'stuck', failOwner: false };

  it('waits for the attempts, frees slot and scratch, and tells the owner before it answers', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('t'));
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    let answer: unknown;
    const done = worker.keeper.forceRelease(request).then((outcomes) => (answer = outcomes));
    await settle();
    expect([answer, worker.executor.cancelled.map(({ code }) => code)]).toEqual([undefined, ['SessionLost']]);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await done;
    expect(answer).toEqual({
      outcomes: [
        { key: KEY, outcome: 'released' },
        { key: 'unknown.run', outcome: 'not-held' },
      ],
    });
    expect(worker.table.sessions().map(({ key }) => key)).toEqual(['t.run']);
    expect([...worker.scratch.directories.keys()]).toEqual(['t.run']);
    expect(worker.temporal.callsOf('failLease')).toEqual([
      ['token-s-1', 'SessionLost', 'ops released it by force: stuck.'],
    ]);
  });

  it('of all sessions ends every one, with its owner where that is meant', async () => {
    const worker = await holding();
    await worker.keeper.acquire(leaseTask('t'));
    await worker.keeper.forceRelease({ keys: null, who: 'ops', why: null, failOwner: true });
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.callsOf('failLease').map(([, code]) => code)).toEqual([
      'SessionReleased',
      'SessionReleased',
    ]);
  });
});

describe('what is granted just now', () => {
  it('is waited for by who has closed the gate', async () => {
    const worker = new FakeWorker();
    const answer = deferred<'delivered'>();
    worker.temporal.answer('signalGrant', answer.promise);
    void worker.keeper.acquire(leaseTask('s'));
    await settle();
    worker.gate.setCordoned(true);
    let settled = false;
    const done = worker.keeper.acquisitionsSettled().then(() => (settled = true));
    await settle();
    expect(settled).toBe(false);
    answer.resolve('delivered');
    await done;
    expect(worker.table.session(KEY)?.state).toBe('held');
  });
});

describe('an attempt', () => {
  it('gets the facts of its session and is in the ledger until it has ended', async () => {
    const worker = await holding({}, { capabilities: ['gpu'] });
    const attempt = pinnedAttempt('s');
    expect(await worker.keeper.beginAttempt(attempt)).toEqual({
      sessionKey: KEY,
      scratchDirectory: `/scratch/${KEY}`,
      capabilities: ['gpu'],
      fencingToken: 1_699_999_999_000,
    });
    expect(worker.keeper.snapshot()[0]?.attempts).toEqual([
      { activity: 'work', activityId: 's.1:1', attempt: 1, startedAtMs: worker.clock.now() },
    ]);
    await worker.keeper.endAttempt(attempt.id);
    expect(worker.journal).toEqual([
      `ledger buffered attempt ${attempt.id}`,
      `ledger buffered attempt-ended ${attempt.id}`,
    ]);
    expect(worker.table.attempts()).toEqual([]);
  });

  it('may run as soon as the owner may know of the grant', async () => {
    const worker = new FakeWorker();
    worker.temporal.answer('signalGrant', deferred<'delivered'>().promise);
    void worker.keeper.acquire(leaseTask('s'));
    await settle();
    expect(await worker.keeper.beginAttempt(pinnedAttempt('s'))).toMatchObject({ scratchDirectory: `/scratch/${KEY}` });
  });

  it.each<[string, Parameters<typeof pinnedAttempt>]>([
    ['a session that is not held', ['other']],
    ['an older epoch', ['s', { epoch: 1 }]],
    ['a newer epoch', ['s', { epoch: 3 }]],
  ])('of %s is refused', async (_, [session, changes]) => {
    const worker = await holding({}, { epoch: 2 });
    await expect(worker.keeper.beginAttempt(pinnedAttempt(session, changes))).rejects.toEqual(
      expect.objectContaining({ code: 'SessionLost' }),
    );
    expect(worker.table.attempts()).toEqual([]);
  });

  it('of a session that is being released is refused', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const released = worker.keeper.release(releaseOf('s'));
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s', { step: 2 }))).rejects.toEqual(
      expect.objectContaining({ code: 'SessionLost' }),
    );
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    await released;
  });

  it('of an executor that is not the current one is refused, retryably', async () => {
    const worker = await holding();
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s', { incarnation: 'life-0' }))).rejects.toEqual(
      expect.objectContaining({ code: 'ExecutorDied' }),
    );
    expect(worker.table.attempts()).toEqual([]);
  });

  it('without a session needs none', async () => {
    const worker = new FakeWorker();
    const { session: _, ...attempt } = pinnedAttempt('s');
    expect(await worker.keeper.beginAttempt(attempt)).toEqual({
      sessionKey: null,
      scratchDirectory: null,
      capabilities: [],
      fencingToken: null,
    });
  });

  it('of a dead executor is failed at once, and its session goes on', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.executor.die();
    expect(worker.temporal.callsOf('failAttempt')).toEqual([
      ['attempt-token-s-1-1-1', 'ExecutorDied', 'The executor on w ended while the activity was running.'],
    ]);
    expect(worker.table.attempts()).toEqual([]);
    expect(worker.table.session(KEY)?.state).toBe('held');
    await worker.keeper.beginAttempt(pinnedAttempt('s', { attempt: 2, incarnation: 'life-2' }));
    expect(worker.table.attempts()).toHaveLength(1);
  });

  it('of a dead executor ends for good where its session is over', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const released = worker.keeper.release(releaseOf('s'));
    await settle();
    await worker.executor.die();
    expect(await released).toBe(true);
    expect(worker.temporal.callsOf('failAttempt')).toEqual([
      ['attempt-token-s-1-1-1', 'SessionLost', 'The session is over.'],
    ]);
    expect(worker.executor.kills).toEqual([]);
  });

  it('that can not be failed keeps no session from ending', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.temporal.answer('failAttempt', new Error('Unavailable'));
    await worker.executor.die();
    expect(worker.events('attempt-fail-unanswered')).toHaveLength(1);
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
  });

  it('of the executor that lives is not failed with those of the dead', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.keeper.failAttempts();
    expect(worker.temporal.callsOf('failAttempt')).toEqual([]);
    expect(worker.table.attempts()).toHaveLength(1);
  });
});

describe('a restart', () => {
  it('goes on with a session whose scratch directory is there, and renews it at once', async () => {
    const before = await holding();
    const worker = new FakeWorker({ records: before.ledger.records, directories: before.scratch.directories });
    await worker.keeper.resume();
    expect(worker.table.session(KEY)).toMatchObject({ grantId: 'grant-1', state: 'held' });
    expect(worker.temporal.calls).toEqual([{ method: 'heartbeat', args: ['token-s-1'] }]);
    await worker.run(20_000);
    expect(worker.temporal.callsOf('heartbeat')).toHaveLength(2);
    expect(await worker.keeper.release(releaseOf('s'))).toBe(true);
  });

  it('gives a session up whose scratch directory is gone', async () => {
    const worker = new FakeWorker({ records: [{ type: 'session', entry: entry('s') }] });
    await worker.keeper.resume();
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.temporal.calls).toEqual([
      {
        method: 'failLease',
        args: [
          'token-s-1',
          'SessionLost',
          'The scratch directory of the session is gone from the worker, or from before its host was restarted.',
        ],
      },
    ]);
  });

  it.each([true, false])('signals a grant again that was not finished (scratch directory: %s)', async (hasScratch) => {
    const worker = new FakeWorker({
      records: [{ type: 'session', entry: entry('s', { state: 'granting' }) }],
      directories: new Map(hasScratch ? [[KEY, 1]] : []),
    });
    await worker.keeper.resume();
    expect(worker.table.session(KEY)?.state).toBe('held');
    expect(worker.scratch.directories.get(KEY)).toBe(1);
    expect(worker.temporal.calls.map(({ method }) => method)).toEqual(['heartbeat', 'signalGrant']);
    expect(worker.temporal.callsOf('signalGrant')[0]?.[1]).toMatchObject({ grantId: 'old-grant-s' });
  });

  it('finishes a release that was begun', async () => {
    const worker = new FakeWorker({
      records: [{ type: 'session', entry: entry('s', { state: 'releasing' }) }],
      directories: new Map([[KEY, 1]]),
    });
    await worker.keeper.resume();
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.scratch.directories.size).toBe(0);
    expect(worker.temporal.calls).toEqual([{ method: 'completeLease', args: ['token-s-1'] }]);
  });

  it.each(['create', 'intact'] as const)(
    'does without the one session whose scratch space fails at %s',
    async (broken) => {
      const worker = new FakeWorker({
        records: [
          { type: 'session', entry: entry('s', { state: 'granting' }) },
          { type: 'session', entry: entry('t') },
        ],
        directories: new Map([['t.run', 1]]),
      });
      let failures = 0;
      worker.scratch.fault = (operation) =>
        operation === broken && failures++ === 0 ? new Error('ENOSPC') : undefined;
      await worker.keeper.resume();
      expect(worker.table.sessions()).toMatchObject([{ session: 't', state: 'held' }]);
      expect(worker.temporal.callsOf('failLease')).toEqual([
        ['token-s-1', 'SessionLost', 'The scratch directory of the session can not be used: ENOSPC'],
      ]);
    },
  );

  it('fails the attempts of the executor that was left', async () => {
    const before = await holding();
    await before.keeper.beginAttempt(pinnedAttempt('s'));
    const worker = restarted(before);
    await worker.keeper.failAttempts();
    await worker.keeper.resume();
    expect(worker.temporal.calls.map(({ method }) => method)).toEqual(['failAttempt', 'heartbeat']);
    expect(worker.table.attempts()).toEqual([]);
  });

  it('keeps the sessions while Temporal is away', async () => {
    const worker = new FakeWorker({
      records: [
        { type: 'session', entry: entry('s') },
        { type: 'session', entry: entry('t', { state: 'granting' }) },
      ],
      directories: new Map([
        [KEY, 1],
        ['t.run', 1],
      ]),
    });
    worker.temporal.unavailable = true;
    await worker.keeper.resume();
    await worker.run(5_000);
    expect(worker.table.sessions().map(({ state }) => state)).toEqual(['held', 'granting']);
    worker.temporal.unavailable = false;
    await worker.run(1_000);
    expect(worker.table.sessions().map(({ state }) => state)).toEqual(['held', 'held']);
  });
});
