/** The guard around pinned activities, with a supervisor that answers as the test says. */
import { MockActivityEnvironment } from '@temporalio/testing';
import { CompleteAsyncError, Context, type Info } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import { DefaultLogger, type ActivityExecuteInput } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { currentSession } from '../../../src/activity/index.js';
import { AtlasError } from '../../../src/contract/errors.js';
import { KEPT_RESULT_LIMIT_BYTES, type AttemptFacts, type BeginAttempt } from '../../../src/contract/local.js';
import { AttemptGuard } from '../../../src/executor/attempts.js';
import { SessionMemories } from '../../../src/executor/memories.js';
import type { SupervisorLink } from '../../../src/executor/supervisor-link.js';
import { deferred, fakeLog, settle } from '../../support/fake-ports.js';

const logger = new DefaultLogger('ERROR', () => undefined);
const WORKER = {
  name: 'w',
  fleet: 'atlas',
  queue: 'atlas-w.i',
  capabilities: [],
  keptDirectory: '/kept',
  cacheDirectory: '/cache',
  keptForMs: 86_400_000,
};
const INPUT: ActivityExecuteInput = { args: [], headers: {} };
const FACTS: AttemptFacts = {
  sessionKey: 's.run',
  scratchDirectory: '/scratch/s.run',
  capabilities: ['gpu'],
  fencingToken: 7,
};

class FakeLink {
  readonly begun: BeginAttempt[] = [];
  readonly ended: [string, unknown][] = [];
  facts: AttemptFacts = FACTS;
  beginFault: Error | undefined;
  endFault: Error | undefined;

  async beginAttempt(attempt: BeginAttempt): Promise<AttemptFacts> {
    this.begun.push(attempt);
    if (this.beginFault !== undefined) throw this.beginFault;
    const { session } = attempt;
    return { ...this.facts, sessionKey: session === undefined ? null : `${session.session}.${session.runId}` };
  }

  async endAttempt(id: string, result: unknown): Promise<void> {
    this.ended.push([id, result]);
    if (this.endFault !== undefined) throw this.endFault;
  }
}

function guarded() {
  const link = new FakeLink();
  const memories = new SessionMemories({ dropped: () => Promise.resolve(), log: fakeLog([]) });
  const guard = new AttemptGuard(link as unknown as SupervisorLink, 'life-1', WORKER, memories);
  /** Runs an activity through the guard, as an attempt of the given id. */
  const run = (activity: () => Promise<unknown>, info: Partial<Info> = {}): Promise<unknown> => {
    const { context } = new MockActivityEnvironment(
      {
        activityId: 's.1:1',
        activityType: 'work',
        attempt: 1,
        workflowExecution: { workflowId: 'owner', runId: 'run' },
        ...info,
      },
      { logger },
    );
    return guard.interceptor(context).execute!(INPUT, activity);
  };
  return { link, guard, run };
}

/** An activity that runs until its cancellation, and then for as long as the test wants. */
function cancellable() {
  const started = deferred<undefined>();
  const cancelled = deferred<undefined>();
  const end = deferred<undefined>();
  const activity = async (): Promise<string> => {
    const { cancellationSignal } = Context.current();
    started.resolve(undefined);
    await new Promise<void>((resolve) => cancellationSignal.addEventListener('abort', () => resolve()));
    cancelled.resolve(undefined);
    await end.promise;
    return 'ended by itself';
  };
  return { activity, started: started.promise, cancelled: cancelled.promise, end: () => end.resolve(undefined) };
}

describe('an attempt', () => {
  it('is asked for with its session, runs with the facts, and its end is told with its result', async () => {
    const { link, run } = guarded();
    const seen = await run(async () => {
      const { id, fencingToken, capabilities, scratchDirectory } = currentSession();
      return { id, fencingToken, capabilities, scratchDirectory };
    });
    const expected = { id: 's', fencingToken: 7, capabilities: ['gpu'], scratchDirectory: '/scratch/s.run' };
    expect(seen).toEqual(expected);
    expect(link.begun).toMatchObject([
      {
        id: 'run/s.1:1#1',
        incarnation: 'life-1',
        session: { session: 's', runId: 'run', epoch: 1 },
        activity: 'work',
        activityId: 's.1:1',
        attempt: 1,
      },
    ]);
    expect(link.ended).toEqual([['run/s.1:1#1', { json: JSON.stringify(expected) }]]);
  });

  it('has the memory of its session where the session has one, and else is told what to ask for', async () => {
    const { link, run } = guarded();
    await expect(run(async () => currentSession().memory)).rejects.toMatchObject({
      type: 'NoSessionMemory',
      message: 'currentSession().memory was read, but the session s keeps its state on disk.',
    });
    // Who copies or prints the session does not read it.
    expect(await run(async () => JSON.stringify({ ...currentSession() }), { activityId: 's.1:2' })).toContain(
      '"state":"disk"',
    );
    link.facts = { ...FACTS, state: 'memory' };
    await run(async () => currentSession().memory.set('model', 'loaded').size, { activityId: 's.1:3' });
    const again = async () => [currentSession().state, currentSession().memory.get('model')];
    expect(await run(again, { activityId: 's.1:4' })).toEqual(['memory', 'loaded']);
    link.facts = { ...FACTS, state: 'memory', fencingToken: 8 };
    expect(await run(again, { activityId: 's.2:5' })).toEqual(['memory', undefined]);
  });

  it('on the unique queue without a session is refused, unless it is meant for the worker', async () => {
    const { link, run } = guarded();
    await expect(run(async () => 1, { activityId: '7' })).rejects.toMatchObject({ type: 'SessionLost' });
    expect(link.begun).toEqual([]);
    expect(await run(async () => 1, { activityId: 'worker:7' })).toBe(1);
    expect(link.begun[0]).not.toHaveProperty('session');
    // What is in no session is not kept: nobody would forget it.
    expect(link.ended).toEqual([['run/worker:7#1', undefined]]);
  });

  it.each(['SessionLost', 'AttemptFenced', 'ExecutorDied'] as const)(
    'that is refused with %s does not run and fails with that',
    async (code) => {
      const { link, run } = guarded();
      link.beginFault = new AtlasError(code, 'as the supervisor says');
      let ran = false;
      const outcome = run(async () => (ran = true));
      await expect(outcome).rejects.toMatchObject({
        type: code,
        message: 'as the supervisor says',
        nonRetryable: code === 'SessionLost',
      });
      expect([ran, link.ended]).toEqual([false, []]);
    },
  );

  it('does not run when the supervisor can not be asked, and is tried again', async () => {
    const { link, run } = guarded();
    link.beginFault = new Error('ECONNREFUSED');
    await expect(run(async () => 1)).rejects.toMatchObject({ type: 'ExecutorDied', nonRetryable: false });
  });

  it('that fails ends without a result, and with its own error', async () => {
    const { link, run } = guarded();
    const error = ApplicationFailure.create({ type: 'Business' });
    await expect(run(() => Promise.reject(error))).rejects.toBe(error);
    expect(link.ended).toEqual([['run/s.1:1#1', undefined]]);
  });

  it('stands although its end could not be told', async () => {
    const { link, run } = guarded();
    link.endFault = new Error('ECONNREFUSED');
    expect(await run(async () => 'value')).toBe('value');
  });

  it('may not complete asynchronously: the session must know when it has ended', async () => {
    const { run } = guarded();
    await expect(run(() => Promise.reject(new CompleteAsyncError()))).rejects.toMatchObject({
      type: 'AsyncCompletionRefused',
    });
  });
});

describe('a result', () => {
  it.each([
    [{ json: '{"pages":[1,2]}' }, { pages: [1, 2] }],
    [{ json: 'null' }, null],
    [{}, undefined],
  ])('that was kept as %j is answered, and nothing runs or ends', async (result, value) => {
    const { link, run } = guarded();
    link.facts = { ...FACTS, result };
    let ran = false;
    expect(await run(async () => (ran = true))).toEqual(value);
    expect([ran, link.ended]).toEqual([false, []]);
  });

  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  it.each<[string, unknown, unknown]>([
    ['nothing', undefined, {}],
    ['null', null, { json: 'null' }],
    [
      'as much as may be',
      'x'.repeat(KEPT_RESULT_LIMIT_BYTES - 2),
      { json: `"${'x'.repeat(KEPT_RESULT_LIMIT_BYTES - 2)}"` },
    ],
    ['a byte more', 'x'.repeat(KEPT_RESULT_LIMIT_BYTES - 1), undefined],
    ['as many letters of more bytes', 'é'.repeat(KEPT_RESULT_LIMIT_BYTES - 2), undefined],
    ['bytes', new Uint8Array([1, 2]), undefined],
    ['what JSON can not say', circular, undefined],
    ['a number beyond JSON', 7n, undefined],
  ])('of %s is told as far as it can be kept', async (_, value, told) => {
    const { link, run } = guarded();
    expect(await run(async () => value)).toBe(value);
    expect(link.ended).toEqual([['run/s.1:1#1', told]]);
  });
});

describe('a newer attempt of the same activity', () => {
  it('cancels the older one and is not asked for before that has ended', async () => {
    const { link, run } = guarded();
    const first = cancellable();
    const older = run(first.activity);
    await first.started;
    const newer = run(async () => 'second', { attempt: 2 });
    await first.cancelled;
    await settle();
    expect(link.begun).toHaveLength(1);
    first.end();
    expect(await newer).toBe('second');
    // What it returned after its cancellation counts: the activity is done.
    expect(await older).toBe('ended by itself');
    expect(link.ended.map(([id]) => id)).toEqual(['run/s.1:1#1', 'run/s.1:1#2']);
  });

  it('is the only one to run where several came while an older one held out', async () => {
    const { run } = guarded();
    const first = cancellable();
    const older = run(first.activity);
    await first.started;
    const ran: number[] = [];
    const at = (attempt: number) =>
      run(
        async () => {
          ran.push(attempt);
          return attempt;
        },
        { attempt },
      );
    const outcomes = Promise.allSettled([at(3), at(2)]);
    await first.cancelled;
    first.end();
    expect(await outcomes).toMatchObject([{ value: 3 }, { reason: { type: 'AttemptSuperseded' } }]);
    expect(ran).toEqual([3]);
    expect(await older).toBe('ended by itself');
  });

  it('has the older one fail with AttemptSuperseded where that heeds its cancellation', async () => {
    const { run } = guarded();
    const started = deferred<undefined>();
    const older = run(async () => {
      started.resolve(undefined);
      await Context.current().cancelled;
    });
    const failed = expect(older).rejects.toMatchObject({ type: 'AttemptSuperseded' });
    await started.promise;
    expect(await run(async () => 'second', { attempt: 2 })).toBe('second');
    await failed;
  });

  it('leaves other activities alone, of this run and of others', async () => {
    const { run } = guarded();
    const first = cancellable();
    void run(first.activity);
    await first.started;
    await run(async () => 1, { activityId: 's.1:2' });
    await run(async () => 1, { workflowExecution: { workflowId: 'owner', runId: 'other' } });
    let cancelled = false;
    void first.cancelled.then(() => (cancelled = true));
    await settle();
    expect(cancelled).toBe(false);
    first.end();
  });
});

describe('the end of a session', () => {
  it.each(['SessionLost', 'SessionExpired', 'AttemptFenced'] as const)(
    'with %s cancels its attempts with that code, and no others',
    async (code) => {
      const { guard, run } = guarded();
      const mine = [1, 2].map((step) => {
        const started = deferred<undefined>();
        const outcome = run(
          async () => {
            started.resolve(undefined);
            await Context.current().cancelled;
          },
          // A later lease of the same session is the same session.
          { activityId: `s.${step}:${step}` },
        );
        return { started: started.promise, failed: expect(outcome).rejects.toMatchObject({ type: code }) };
      });
      const others = [
        { activityId: 't.1:1' },
        { activityId: 's.1:1', workflowExecution: { workflowId: 'owner', runId: 'other' } },
        { activityId: 'worker:1' },
      ].map((info) => {
        const started = deferred<undefined>();
        const end = deferred<string>();
        const outcome = run(async () => {
          started.resolve(undefined);
          return await Promise.race([Context.current().cancelled, end.promise]);
        }, info);
        return { started: started.promise, end, outcome };
      });
      for (const { started } of [...mine, ...others]) await started;
      guard.cancelSession({
        type: 'cancel-session',
        key: 's.run',
        session: 's',
        runId: 'run',
        code,
        reason: 'a reason',
      });
      for (const { failed } of mine) await failed;
      await settle();
      for (const { end } of others) end.resolve('untouched');
      for (const { outcome } of others) expect(await outcome).toBe('untouched');
    },
  );

  it('is what the owner sees, whatever the activity makes of its cancellation', async () => {
    const { guard, link, run } = guarded();
    const started = deferred<undefined>();
    const outcome = run(async () => {
      started.resolve(undefined);
      await Context.current().cancelled.catch(() => {
        throw ApplicationFailure.create({ type: 'Business' });
      });
    });
    const failed = expect(outcome).rejects.toMatchObject({
      type: 'SessionLost',
      message: 'The session of this activity is over: released',
    });
    await started.promise;
    guard.cancelSession({
      type: 'cancel-session',
      key: 's.run',
      session: 's',
      runId: 'run',
      code: 'SessionLost',
      reason: 'released',
    });
    await failed;
    expect(link.ended).toEqual([['run/s.1:1#1', undefined]]);
  });

  it('between the answer of the supervisor and the start keeps the activity from running', async () => {
    const { guard, link, run } = guarded();
    const asked = deferred<undefined>();
    const answer = deferred<AttemptFacts>();
    link.beginAttempt = () => {
      asked.resolve(undefined);
      return answer.promise;
    };
    let ran = false;
    const outcome = run(async () => (ran = true));
    const failed = expect(outcome).rejects.toMatchObject({ type: 'SessionLost' });
    await asked.promise;
    guard.cancelSession({
      type: 'cancel-session',
      key: 's.run',
      session: 's',
      runId: 'run',
      code: 'SessionLost',
      reason: 'released',
    });
    answer.resolve(FACTS);
    await failed;
    expect(ran).toBe(false);
    // The supervisor waits for the end of what it has let begin.
    expect(link.ended).toHaveLength(1);
  });
});
