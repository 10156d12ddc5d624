/** A session that is rediscovered, with a scripted outside: what a loss does to the calls of a body that goes on. */
import { describe, expect, it } from 'vitest';
import type { SessionHandle } from '../../../src/contract/session.js';
import { type Affinity, ownAffinity } from '../../../src/workflow/affinity.js';
import type { BodyEnd, HeldSession, SessionContract } from '../../../src/workflow/owner.js';
import { CONTRACT, FakeRuntime, grantOf, leaseEnd } from '../../support/fake-owner.js';

interface Run {
  readonly held: HeldSession;
  readonly finish: (value: string) => void;
  readonly fail: (error: Error) => void;
}

/** A pinned call under test, each run of which ends as the test says, or by the loss of its acquisition. */
class Call {
  readonly runs: Run[] = [];
  outcome: unknown = 'pending';

  constructor(affinity: Affinity) {
    affinity
      .call(
        (held) =>
          new Promise<string>((finish, fail) => {
            held.onLoss(({ failure }) => {
              fail(failure);
            });
            this.runs.push({ held, finish, fail });
          }),
      )
      .then(
        (value) => (this.outcome = value),
        (error: unknown) => (this.outcome = error),
      );
  }

  /** The grants it ran under. */
  get grants(): string[] {
    return this.runs.map(({ held }) => held.grant.grantId);
  }
}

/** A rediscovered session, granted by the worker `w` under `g1`; its body ends when the test says so. */
async function begun(changes: Partial<SessionContract> = {}, handle?: SessionHandle) {
  const runtime = new FakeRuntime();
  const state: { outcome: unknown; affinity: Affinity | undefined; ended: number } = {
    outcome: 'pending',
    affinity: undefined,
    ended: 0,
  };
  let endBody: (end: BodyEnd<string>) => void = () => undefined;
  ownAffinity<string>(
    runtime,
    { ...CONTRACT, onLost: 'rediscover', ...changes },
    (affinity) => {
      state.affinity = affinity;
      affinity.onEnd(() => {
        state.ended += 1;
      });
      return new Promise((resolve) => {
        endBody = resolve;
      });
    },
    handle,
  ).then(
    (value) => (state.outcome = value),
    (error: unknown) => (state.outcome = error),
  );
  await runtime.turn();
  if (handle === undefined) {
    expect(await runtime.grant('g1')).toBe(true);
    runtime.journal.splice(0);
  }
  return {
    runtime,
    state,
    affinity: () => state.affinity!,
    call: () => new Call(state.affinity!),
    end: async (end: BodyEnd<string> = { kind: 'returned', value: 'done' }) => {
      endBody(end);
      await runtime.turn();
    },
    /** The worker is silent: it is suspected and does not answer. */
    lose: async () => {
      runtime.confirmations.push('no-answer');
      await runtime.suspect(state.affinity!.held.grant.queue);
    },
  };
}

describe('a session that is rediscovered', () => {
  it('runs the calls that a loss hit again under one new acquisition, and those that had returned not', async () => {
    const { runtime, affinity, call, lose, end, state } = await begun();
    const done = call();
    done.runs[0]!.finish('first');
    await runtime.turn();
    const hit = [call(), call(), call()];
    await lose();
    expect(runtime.journal).toEqual(['confirm g1 5000', 'cancel 1', 'acquire 2']);
    expect(await runtime.grant('g2', { worker: 'v', queue: 'queue-v' })).toBe(true);
    expect(hit.map(({ grants }) => grants)).toEqual([
      ['g1', 'g2'],
      ['g1', 'g2'],
      ['g1', 'g2'],
    ]);
    expect([affinity().attempt, affinity().held.grant.worker]).toEqual([2, 'v']);
    for (const each of hit) each.runs[1]!.finish('again');
    const next = call();
    next.runs[0]!.finish('next');
    await runtime.turn();
    expect([done.grants, done.outcome, next.grants]).toEqual([['g1'], 'first', ['g2']]);
    expect(hit.map(({ outcome }) => outcome)).toEqual(['again', 'again', 'again']);
    await end();
    expect([state.outcome, state.ended, runtime.waiterCount, runtime.inbox]).toEqual(['done', 0, 0, undefined]);
    expect(runtime.journal.slice(3)).toEqual(['release g2']);
  });

  it('leaves a business error where it is', async () => {
    const { runtime, call, end, state } = await begun();
    const failing = call();
    failing.runs[0]!.fail(new Error('not today'));
    await runtime.turn();
    expect(failing.outcome).toMatchObject({ message: 'not today' });
    const next = call();
    expect(next.grants).toEqual(['g1']);
    next.runs[0]!.finish('next');
    await end();
    expect([state.outcome, runtime.journal]).toEqual(['done', ['release g1']]);
  });

  it('lets go of what is lost at once, and acquires nothing before a call needs it', async () => {
    const { runtime, lose, call, end, state } = await begun();
    await lose();
    await runtime.advance(600_000);
    expect(runtime.journal).toEqual(['confirm g1 5000', 'cancel 1']);
    // A grant that comes late finds nobody who takes it, and is released.
    expect(runtime.inbox).toBeUndefined();
    const late = call();
    await runtime.turn();
    expect(runtime.journal.slice(2)).toEqual(['acquire 2']);
    await runtime.grant('g2');
    late.runs[0]!.finish('late');
    await end();
    expect([late.grants, late.outcome, state.outcome]).toEqual([['g2'], 'late', 'done']);
  });

  it('that is lost and needed no more ends without another acquisition', async () => {
    const { runtime, lose, end, state } = await begun();
    await lose();
    await end();
    expect([state.outcome, runtime.waiterCount]).toEqual(['done', 0]);
    expect(runtime.journal).toEqual(['confirm g1 5000', 'cancel 1']);
  });

  it('waits for the fence of a worker whose silence was only seen at its lease, before it asks another', async () => {
    const { runtime, call, affinity } = await begun();
    call();
    affinity().held.loseBy('It said so.');
    await runtime.advance(64_999);
    expect(runtime.journal).toEqual(['cancel 1']);
    await runtime.advance(1);
    expect(runtime.journal).toEqual(['cancel 1', 'acquire 2']);
  });

  it('gives an acquisition up that is under way when the body ends, and releases what was granted too late', async () => {
    const { runtime, call, lose, end, state } = await begun();
    const hit = call();
    await lose();
    expect(runtime.journal.at(-1)).toBe('acquire 2');
    await end();
    expect([state.outcome, runtime.waiterCount, runtime.inbox]).toEqual(['done', 0, undefined]);
    expect(runtime.journal.slice(3)).toEqual(['cancel 2']);
    expect(hit.outcome).toMatchObject({ code: 'SessionLost', message: 'The session s has ended with its body.' });
  });

  it('releases an acquisition that is granted in the moment in which the body ends', async () => {
    const { runtime, call, lose, end, state } = await begun();
    call();
    await lose();
    expect(runtime.inbox!.granted(grantOf('g2', { epoch: 2 }))).toBe(true);
    await end();
    expect([state.outcome, runtime.waiterCount, runtime.inbox]).toEqual(['done', 0, undefined]);
    expect(runtime.journal.slice(3)).toEqual(['release g2']);
  });

  it('is acquired at most so many times, and rejects every call from then on', async () => {
    const { runtime, call, lose, end, state } = await begun({ maxReacquisitions: 1 });
    const hit = call();
    await lose();
    await runtime.grant('g2');
    await lose();
    const exhausted = { code: 'SessionReacquisitionsExhausted' };
    expect(hit.outcome).toMatchObject(exhausted);
    const later = call();
    await runtime.turn();
    expect([later.grants, later.outcome]).toEqual([[], expect.objectContaining(exhausted)]);
    expect(runtime.leases).toHaveLength(2);
    // The body has been told, and may have an answer to it.
    await end();
    expect([state.outcome, state.ended, runtime.waiterCount]).toEqual(['done', 0, 0]);
  });

  it('that finds no worker in time rejects the calls that wait, and every later one', async () => {
    const { runtime, call, lose, end, state } = await begun({ acquireTimeoutMs: 5_000 });
    const hit = [call(), call()];
    await lose();
    await runtime.advance(5_000);
    const later = call();
    await runtime.turn();
    for (const { outcome } of [...hit, later]) expect(outcome).toMatchObject({ code: 'AcquireTimeout' });
    await end({ kind: 'threw', error: hit[0]!.outcome, continuesAsNew: false });
    expect([state.outcome, runtime.waiterCount]).toEqual([hit[0]!.outcome, 0]);
  });

  it.each([
    ['expired', 'SessionExpired', 'release g1'],
    ['released', 'SessionReleased', 'cancel 1'],
  ] as const)('that has %s is not acquired again: its body ends by it', async (kind, code, last) => {
    const { runtime, call, end, state } = await begun();
    const hit = call();
    await runtime.endLease(kind);
    expect([hit.outcome, state.ended]).toEqual([expect.objectContaining({ code }), 1]);
    const later = call();
    await runtime.turn();
    expect(later.outcome).toBe(hit.outcome);
    // A body that swallows it is not believed.
    await end();
    expect(state.outcome).toBe(hit.outcome);
    await runtime.advance(70_000);
    expect(runtime.journal.filter((line) => line.startsWith('acquire'))).toEqual([]);
    expect(runtime.journal.at(-1)).toBe(last);
  });

  it('that was ended by an operator while no call was in flight keeps the value of its body', async () => {
    const { runtime, end, state } = await begun();
    await runtime.endLease('released');
    await end();
    await runtime.advance(70_000);
    expect(state.outcome).toBe('done');
  });

  it('lets a call be cancelled alone while it waits: the acquisition goes on for the others', async () => {
    const { runtime, call, affinity, lose, end, state } = await begun();
    const others = [call(), call()];
    await lose();
    // What the runtime does in the scope of that call, which is cancelled.
    const { until } = runtime;
    runtime.until = () => Promise.reject(new Error('the scope of the call is cancelled'));
    const alone = call();
    await runtime.turn();
    runtime.until = until;
    expect(alone.outcome).toMatchObject({ message: 'the scope of the call is cancelled' });
    await runtime.grant('g2');
    expect(others.map(({ grants }) => grants)).toEqual([
      ['g1', 'g2'],
      ['g1', 'g2'],
    ]);
    expect(affinity().attempt).toBe(2);
    await end();
    expect(state.outcome).toBe('done');
  });

  it.each(['while it is lost', 'while it is acquired'])(
    'that is cancelled %s takes no slot and hangs nowhere',
    async (when) => {
      const { runtime, call, lose, end, state } = await begun();
      const hit = when === 'while it is lost' ? undefined : call();
      await lose();
      await runtime.cancel();
      const later = call();
      await runtime.turn();
      for (const each of hit === undefined ? [later] : [hit, later])
        expect(each.outcome).toMatchObject({ code: 'Cancelled' });
      await end({ kind: 'threw', error: new Error('cancelled'), continuesAsNew: false });
      expect([state.outcome, runtime.waiterCount, runtime.inbox]).toMatchObject([
        { message: 'cancelled' },
        0,
        undefined,
      ]);
      expect(runtime.journal.filter((line) => line.startsWith('release'))).toEqual([]);
    },
  );

  it('is released when its owner is cancelled while it is held', async () => {
    const { runtime, end, state } = await begun();
    await runtime.cancel();
    await end({ kind: 'threw', error: new Error('cancelled'), continuesAsNew: false });
    expect([runtime.journal, runtime.waiterCount]).toEqual([['release g1'], 0]);
    expect(state.outcome).toMatchObject({ message: 'cancelled' });
  });

  it('hands over what it holds now to the next run, and nothing of what it had before', async () => {
    const { runtime, affinity, call, lose, end, state } = await begun();
    affinity().handle();
    const hit = call();
    await lose();
    await runtime.grant('g2');
    hit.runs[1]!.finish('again');
    expect(affinity().handle()).toMatchObject({ attempt: 2, epoch: 2, grant: { grantId: 'g2' } });
    await end({ kind: 'threw', error: new Error('continue'), continuesAsNew: true });
    expect(runtime.journal.filter((line) => line.startsWith('release'))).toEqual([]);
    expect(state.outcome).toMatchObject({ message: 'continue' });
  });

  it('that another run handed over is adopted, and acquired anew where it is lost', async () => {
    const handle: SessionHandle = {
      version: 1,
      grant: grantOf('g1'),
      epoch: 1,
      attempt: 1,
      expiresAtMs: 3_600_000,
    };
    const adopted = await begun({}, handle);
    await adopted.runtime.grant('g1');
    expect([adopted.affinity().attempt, adopted.call().grants]).toEqual([1, ['g1']]);
    const lost = await begun({}, handle);
    await lost.runtime.endLease(leaseEnd('not-taken'));
    await lost.runtime.turn();
    expect(lost.runtime.journal.at(-1)).toBe('acquire 3');
    await lost.runtime.grant('g2');
    expect([lost.affinity().attempt, lost.call().grants]).toEqual([2, ['g2']]);
  });
});
