/** Sessions whose state is in the memory of the executor: bound to one life of it, from the grant to the end. */
import { describe, expect, it } from 'vitest';
import {
  adoptTask,
  deferred,
  FakeWorker,
  leaseTask,
  pinnedAttempt,
  releaseOf,
  restarted,
  settle,
} from '../../support/fake-ports.js';

const KEY = 's.run';
const TOKEN = 1_699_999_999_000;
const GONE = 'The executor of the worker was restarted, and the state that the session had in its memory is gone.';

/** A worker that holds the session `s` in memory, and `t` beside it with its state on disk. */
async function holding(): Promise<FakeWorker> {
  const worker = new FakeWorker();
  await worker.keeper.acquire(leaseTask('s', { state: 'memory' }));
  await worker.keeper.acquire(leaseTask('t'));
  worker.journal.splice(0);
  return worker;
}

describe('a session in memory', () => {
  it('has the executor that is current at its grant, tells its attempts, and is shown as what it is', async () => {
    const worker = await holding();
    expect(worker.table.session(KEY)).toMatchObject({ incarnation: 'life-1' });
    expect(worker.table.session('t.run')).not.toHaveProperty('incarnation');
    expect(await worker.keeper.beginAttempt(pinnedAttempt('s'))).toMatchObject({ state: 'memory' });
    expect(await worker.keeper.beginAttempt(pinnedAttempt('t'))).not.toHaveProperty('state');
    expect(worker.keeper.snapshot().map(({ localState }) => localState)).toEqual(['memory', 'disk']);
  });

  it('is not granted while no executor takes one, which keeps no other session out', async () => {
    const worker = new FakeWorker();
    worker.executor.takesMemory = false;
    await expect(worker.keeper.acquire(leaseTask('s', { state: 'memory' }))).rejects.toMatchObject({
      code: 'NoFreeSlot',
      message: 'The worker w has no executor now in whose memory a session may be.',
    });
    expect(worker.table.sessionCount).toBe(0);
    expect(worker.journal).toEqual([]);
    await worker.keeper.acquire(leaseTask('t'));
    expect(worker.table.sessionCount).toBe(1);
  });

  it('that waits for a slot has the executor that is current when it gets one', async () => {
    const worker = new FakeWorker({ rules: { cap: 1, reserve: {} } });
    await worker.keeper.acquire(leaseTask('t'));
    const acquired = worker.keeper.acquire(leaseTask('s', { state: 'memory' }));
    await settle();
    await worker.executor.die();
    await worker.keeper.release(releaseOf('t'));
    await acquired;
    expect(worker.table.session(KEY)).toMatchObject({ incarnation: 'life-2', state: 'held' });
  });

  it('is lost with its executor, and its attempts are not handed out again; one on disk goes on', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.keeper.beginAttempt(pinnedAttempt('t'));
    await worker.executor.die();
    await worker.run(200);
    expect(worker.temporal.callsOf('failAttempt')).toEqual([
      ['attempt-token-s-1-1-1', 'SessionLost', GONE],
      ['attempt-token-t-1-1-1', 'ExecutorDied', 'The executor on w ended while the activity was running.'],
    ]);
    expect(worker.temporal.callsOf('failLease')).toEqual([['token-s-1', 'SessionLost', GONE]]);
    expect(worker.table.sessions().map(({ key }) => key)).toEqual(['t.run']);
    expect(worker.events('loss')).toHaveLength(1);
    expect(worker.scratch.directories.has(KEY)).toBe(false);
  });

  it('is lost also while it is being granted', async () => {
    const worker = new FakeWorker();
    const heartbeat = deferred<'renewed'>();
    worker.temporal.answer('heartbeat', heartbeat.promise);
    const acquired = worker.keeper.acquire(leaseTask('s', { state: 'memory' }));
    await settle();
    await worker.executor.die();
    heartbeat.resolve('renewed');
    await acquired;
    await worker.run(200);
    expect(worker.temporal.callsOf('signalGrant')).toEqual([]);
    expect(worker.temporal.callsOf('failLease')).toEqual([['token-s-1', 'SessionLost', GONE]]);
  });

  it('is lost by a kill for another session, and the slot of neither stays taken', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    await worker.keeper.beginAttempt(pinnedAttempt('t'));
    const released = worker.keeper.release(releaseOf('t', { grantId: 'grant-2' }));
    await worker.clock.advance(30_000);
    expect(await released).toBe(true);
    await worker.run(200);
    expect(worker.executor.kills).toEqual(['an activity of session t ignored its cancellation']);
    expect(worker.table.sessionCount).toBe(0);
  });

  it('ends when its own activity ignores the cancellation, although its executor is killed for that', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    const released = worker.keeper.release(releaseOf('s'));
    await worker.clock.advance(30_000);
    expect(await released).toBe(true);
    expect(worker.table.sessions().map(({ key }) => key)).toEqual(['t.run']);
  });

  it('refuses an attempt that has come to another executor, which is alive too', async () => {
    const worker = await holding();
    worker.executor.others.add('life-9');
    await expect(worker.keeper.beginAttempt(pinnedAttempt('s', { incarnation: 'life-9' }))).rejects.toMatchObject({
      code: 'SessionLost',
      message: `The activity s.1:1 has come to another executor than its session. ${GONE}`,
    });
    expect(await worker.keeper.beginAttempt(pinnedAttempt('t', { incarnation: 'life-9' }))).toMatchObject({
      sessionKey: 't.run',
    });
  });

  it('stays while another executor than its own ends', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('t', { incarnation: 'life-1' }));
    await worker.keeper.failAttempts();
    await worker.run(200);
    expect(worker.table.sessionCount).toBe(2);
    expect(worker.temporal.callsOf('failAttempt')).toEqual([]);
  });

  it('keeps its memory at a fence, and has given it back before its slot is free', async () => {
    const worker = await holding();
    await worker.keeper.beginAttempt(pinnedAttempt('s'));
    worker.temporal.unavailable = true;
    // Cancelled 3 s before the fence, killed 1 s before it.
    await worker.run(60_000 + 5_000 - 2_000);
    expect(worker.executor.cancelled).toMatchObject([{ key: KEY, code: 'AttemptFenced' }]);
    await worker.keeper.endAttempt(pinnedAttempt('s').id);
    expect(worker.journal.filter((line) => line.startsWith('drop memory'))).toEqual([]);
    worker.temporal.unavailable = false;
    const dropping = deferred<undefined>();
    worker.executor.dropping = dropping.promise;
    const released = worker.keeper.release(releaseOf('s'));
    await settle();
    expect(worker.journal).toContain(`drop memory ${KEY}@${TOKEN} of life-1`);
    expect(worker.table.session(KEY)).toMatchObject({ state: 'releasing' });
    dropping.resolve(undefined);
    expect(await released).toBe(true);
    await worker.keeper.release(releaseOf('t', { grantId: 'grant-2' }));
    expect(worker.journal.filter((line) => line.startsWith('drop memory'))).toHaveLength(1);
  });

  it('does not outlive the supervisor, since its executor does not', async () => {
    const before = await holding();
    await before.keeper.beginAttempt(pinnedAttempt('s'));
    const worker = restarted(before);
    await worker.keeper.failAttempts();
    await worker.keeper.resume();
    await worker.run(200);
    expect(worker.temporal.callsOf('failAttempt')).toEqual([['attempt-token-s-1-1-1', 'SessionLost', GONE]]);
    expect(worker.temporal.callsOf('failLease')).toEqual([['token-s-1', 'SessionLost', GONE]]);
    expect(worker.table.sessions()).toMatchObject([{ key: 't.run', state: 'held' }]);
  });

  it('is adopted as what it is, and one on disk by nobody who asks for memory', async () => {
    const worker = await holding();
    const inMemory = adoptTask('s', { runId: 'next' });
    await worker.keeper.adopt({ ...inMemory, request: { ...inMemory.request, state: 'memory' } });
    expect(worker.table.session(KEY)).toMatchObject({ runId: 'next', incarnation: 'life-1', state: 'held' });
    const onDisk = adoptTask('t', { runId: 'next', grantId: 'grant-2' });
    await expect(
      worker.keeper.adopt({ ...onDisk, request: { ...onDisk.request, state: 'memory' } }),
    ).rejects.toMatchObject({
      code: 'SessionLost',
      message: 'The session t.run was acquired with its state on disk, and the run that adopts it asks for memory.',
    });
    expect(worker.table.sessions().map(({ key }) => key)).toEqual([KEY]);
  });

  it('is told to its owner before a stop is over', async () => {
    const worker = await holding();
    await worker.executor.die();
    await worker.keeper.endsTold();
    expect(worker.temporal.callsOf('failLease')).toEqual([['token-s-1', 'SessionLost', GONE]]);
  });
});
