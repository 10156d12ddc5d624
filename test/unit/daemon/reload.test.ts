/** The steps of a reload, with executors and sessions that do what the test says. */
import { describe, expect, it } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import type { ReloadRequest, ReloadStep } from '../../../src/contract/local.js';
import { reload, type ReloadPorts } from '../../../src/daemon/reload.js';
import { deferred, FakeClock, settle } from '../../support/fake-ports.js';

const GRACE_MS = 30_000;

/** A worker with an executor `old`, whose reload starts an executor `new`. */
function worker() {
  const clock = new FakeClock();
  const journal: string[] = [];
  const loaded = deferred<AtlasError | undefined>();
  const ready = deferred<void>();
  const [oldEnded, newEnded, quiet] = [deferred<void>(), deferred<void>(), deferred<void>()];
  const state = { objection: undefined as string | undefined, memorySessions: 0, attempts: 0, promotes: true };
  const abort = new AbortController();
  const steps: ReloadStep[] = [];
  const ports: ReloadPorts = {
    objection: () => state.objection,
    current: () => ({ incarnation: 'old', pid: 1, ended: oldEnded.promise }),
    startBeside: () => {
      journal.push('start');
      return {
        incarnation: 'new',
        pid: 2,
        loaded: loaded.promise,
        ready: ready.promise,
        ended: newEnded.promise,
      };
    },
    serve: (incarnation) => journal.push(`serve ${incarnation}`),
    holdMemory: (held) => journal.push(held ? 'hold memory' : 'take memory'),
    memorySessions: () => state.memorySessions,
    loseMemory: async (incarnation, reason) => {
      journal.push(`lose memory of ${incarnation}: ${reason}`);
      state.memorySessions = 0;
    },
    promote: (incarnation) => {
      journal.push(`promote ${incarnation}`);
      return state.promotes;
    },
    retire: async (incarnation) => {
      journal.push(`retire ${incarnation}`);
      await quiet.promise;
    },
    attempts: () => state.attempts,
    kill: async (incarnation) => {
      journal.push(`kill ${incarnation}`);
      (incarnation === 'old' ? oldEnded : newEnded).resolve();
    },
    graceMs: GRACE_MS,
    nowMs: () => clock.monotonicMs(),
    sleep: (ms) => new Promise((resolve) => clock.timer(ms, resolve)),
  };
  const start = (request: Partial<ReloadRequest> = {}) => {
    const result = reload(ports, { timeoutMs: 60_000, force: false, ...request }, abort.signal, (step) =>
      steps.push(step),
    );
    // Looked at when the test comes to it.
    result.catch(() => undefined);
    return result;
  };
  return { clock, journal, loaded, ready, quiet, oldEnded, newEnded, state, abort, steps, start };
}

describe('a reload', () => {
  it('loads, has the new executor poll, makes it current, and lets the old one end', async () => {
    const { clock, journal, loaded, ready, quiet, oldEnded, state, steps, start } = worker();
    const result = start();
    await settle();
    expect(journal).toEqual(['start']);
    loaded.resolve(undefined);
    await settle();
    expect(journal).toEqual(['start', 'hold memory', 'serve new']);
    state.attempts = 2;
    ready.resolve();
    await settle();
    // No session is granted in the memory of the new one while a step of it might come to a poll of the old one.
    expect(journal.slice(3)).toEqual(['promote new', 'retire old']);
    quiet.resolve();
    await clock.advance(5_000);
    expect(journal.at(-1)).toBe('take memory');
    oldEnded.resolve();
    expect(await result).toEqual({
      executor: { pid: 2, incarnation: 'new' },
      replaced: { pid: 1, incarnation: 'old' },
      interruptedAttempts: 0,
      lostSessions: 0,
      tookMs: 5_000,
    });
    expect(steps).toEqual([
      { step: 'loading', atMostMs: 120_000 },
      { step: 'switching', atMostMs: 30_000 },
      // The last polls, and the time to report and exit after the grace.
      { step: 'retiring', attempts: 2, atMostMs: 75_000 + GRACE_MS + 10_000 },
    ]);
  });

  it('is refused while something forbids it, and starts nothing', async () => {
    const { journal, state, start } = worker();
    state.objection = 'The worker is stopping.';
    await expect(start()).rejects.toMatchObject({
      code: 'ReloadConflict',
      message: 'The worker is stopping. Nothing was changed.',
    });
    expect(journal).toEqual([]);
  });

  it.each([
    ['can not load the code', 'ModuleLoadFailed', (w) => w.loaded.resolve(new AtlasError('ModuleLoadFailed', 'bad'))],
    ['has ended before it polls', 'ExecutorFailed', (w) => w.newEnded.resolve()],
    ['takes too long to load', 'ExecutorFailed', (w) => w.clock.advance(120_000)],
  ] as [string, string, (w: ReturnType<typeof worker>) => unknown][])(
    'ends the new executor and changes nothing where it %s',
    async (_, code, happens) => {
      const made = worker();
      const result = made.start();
      await settle();
      await happens(made);
      await expect(result).rejects.toMatchObject({
        code,
        message: expect.stringContaining('The executor that runs goes on with the code that it has.') as string,
      });
      expect(made.journal).toEqual(['start', 'kill new', 'take memory']);
    },
  );

  it.each([
    ['the new executor does not poll', 'ExecutorFailed', (w) => w.clock.advance(30_000)],
    ['the current one ends', 'ReloadConflict', (w) => w.oldEnded.resolve()],
    ['whoever asked goes away', 'Interrupted', (w) => w.abort.abort()],
    [
      'the worker begins to stop',
      'ReloadConflict',
      (w) => {
        w.state.objection = 'The worker is stopping.';
        w.ready.resolve();
      },
    ],
    [
      'the current one ends in that moment',
      'ReloadConflict',
      (w) => {
        w.state.promotes = false;
        w.ready.resolve();
      },
    ],
  ] as [string, string, (w: ReturnType<typeof worker>) => unknown][])(
    'is given up at the change where %s',
    async (_, code, happens) => {
      const made = worker();
      const result = made.start();
      made.loaded.resolve(undefined);
      await settle();
      await happens(made);
      await expect(result).rejects.toMatchObject({ code });
      expect(made.journal.slice(-2)).toEqual(['kill new', 'take memory']);
      expect(made.journal).not.toContain('retire old');
    },
  );

  it('waits for sessions in memory, and says when their number changes, and how much longer it waits', async () => {
    const { clock, journal, loaded, ready, oldEnded, state, steps, start } = worker();
    state.memorySessions = 2;
    const result = start();
    loaded.resolve(undefined);
    await clock.advance(1_000);
    state.memorySessions = 1;
    await clock.advance(1_000);
    expect(journal).toEqual(['start', 'hold memory']);
    expect(steps.slice(1)).toEqual([
      { step: 'memory', sessions: 2, atMostMs: 60_000 },
      { step: 'memory', sessions: 1, atMostMs: 58_800 },
    ]);
    state.memorySessions = 0;
    await clock.advance(200);
    ready.resolve();
    await settle();
    oldEnded.resolve();
    expect(await result).toMatchObject({ lostSessions: 0 });
  });

  it('is given up where they do not end in time', async () => {
    const { clock, journal, loaded, state, start } = worker();
    state.memorySessions = 2;
    const result = start();
    loaded.resolve(undefined);
    await clock.advance(60_000);
    await expect(result).rejects.toMatchObject({
      code: 'MemorySessionsRemain',
      message: '2 sessions whose state is in memory have not ended within 1m. Nothing was changed.',
    });
    expect(journal).toEqual(['start', 'hold memory', 'kill new', 'take memory']);
  });

  it('ends them by force, once the code has loaded', async () => {
    const { journal, loaded, ready, oldEnded, state, start } = worker();
    state.memorySessions = 2;
    const result = start({ force: true });
    await settle();
    expect(journal).toEqual(['start']);
    loaded.resolve(undefined);
    ready.resolve();
    await settle();
    expect(journal.slice(1, 4)).toEqual([
      'hold memory',
      'lose memory of old: The worker was reloaded by force.',
      'serve new',
    ]);
    oldEnded.resolve();
    expect(await result).toMatchObject({ lostSessions: 2 });
  });

  it('interrupts what runs for longer than the grace, and kills what does not end then', async () => {
    const { clock, journal, loaded, ready, quiet, state, abort, start } = worker();
    const result = start();
    loaded.resolve(undefined);
    ready.resolve();
    // The grace begins when it takes nothing any more.
    await clock.advance(60_000);
    quiet.resolve();
    await settle();
    // Nobody stops it any more by going away.
    abort.abort();
    state.attempts = 3;
    await clock.advance(GRACE_MS);
    expect(journal).not.toContain('kill old');
    await clock.advance(10_000);
    expect(journal.at(-1)).toBe('kill old');
    expect(await result).toMatchObject({ interruptedAttempts: 3 });
  });
});
