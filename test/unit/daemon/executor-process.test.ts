/** The executor as a process, as far as its hooks and its end go. The process itself need not get far for that. */
import { fileURLToPath } from 'node:url';
import { expect, it, vi } from 'vitest';
import { ExecutorProcess } from '../../../src/daemon/executor-process.js';
import { isAlive, type ProcessIdentity } from '../../../src/daemon/process-identity.js';
import { deferred, fakeLog, type LogLine } from '../../support/fake-ports.js';

/** Does nothing until it is killed; the executor itself ends at once where it has no supervisor. */
const IDLE = fileURLToPath(new URL('../../fixtures/idle.mjs', import.meta.url));

function start(hooks: Partial<ConstructorParameters<typeof ExecutorProcess>[2]>, program?: string) {
  const log: LogLine[] = [];
  const executor = new ExecutorProcess(
    '/nowhere',
    {},
    {
      onStart: () => Promise.resolve(),
      onEnd: () => Promise.resolve(),
      onCrashLoop: () => undefined,
      ...hooks,
    },
    fakeLog(log),
    program,
  );
  executor.start();
  return { executor, log };
}

it('is killed when its attempts were failed, and not before', async () => {
  const events: string[] = [];
  const failing = deferred<undefined>();
  const ending = deferred<string>();
  const started = deferred<ProcessIdentity>();
  const { executor } = start({
    onStart: async (process) => started.resolve(process),
    onEnd: async (incarnation) => {
      ending.resolve(incarnation);
      await failing.promise;
      events.push('failed');
    },
  });
  const identity = await started.promise;
  const incarnation = executor.incarnation();
  const killed = executor.kill('a test').then(() => events.push('killed'));
  expect(await ending.promise).toBe(incarnation);
  expect(isAlive(identity)).toBe(false);
  expect(executor.incarnation()).not.toBe(incarnation);
  expect(events).toEqual([]);
  failing.resolve(undefined);
  await killed;
  expect(events).toEqual(['failed', 'killed']);
  await executor.stop(0);
});

it('does not run where its start can not be recorded, and its end is told all the same', async () => {
  const ending = deferred<ProcessIdentity>();
  let identity: ProcessIdentity | undefined;
  const { executor, log } = start({
    onStart: (process) => {
      identity = process;
      return Promise.reject(new Error('ENOSPC'));
    },
    onEnd: () => {
      ending.resolve(identity!);
      return Promise.reject(new Error('ENOSPC again'));
    },
  });
  expect(isAlive(await ending.promise)).toBe(false);
  await executor.stop(0);
  expect(log.filter(({ fields }) => fields.event === 'executor-hook-failed')).toMatchObject([
    { fields: { what: 'start', reason: 'ENOSPC' } },
    { fields: { what: 'end', reason: 'ENOSPC again' } },
  ]);
});

it('has nothing to kill once it has stopped', async () => {
  const { executor } = start({});
  await executor.stop(0);
  await executor.kill('a test');
  expect(executor.pid()).toBeNull();
});

it('goes on with another one that takes its place, which is no restart, and kills whom it is told to', async () => {
  const ended: string[] = [];
  const loops: string[] = [];
  const started: ProcessIdentity[] = [];
  const hooks = {
    onStart: async (process: ProcessIdentity) => void started.push(process),
    onEnd: async (incarnation: string) => void ended.push(incarnation),
    onCrashLoop: () => loops.push('loop'),
  };
  const { executor } = start(hooks, IDLE);
  const old = executor.running()!;
  const failing = executor.startBeside();
  expect(executor.incarnation()).toBe(old.incarnation);
  await executor.kill('a test', [failing.incarnation]);
  expect(executor.promote(failing.incarnation)).toBe(false);
  expect(ended).toEqual([failing.incarnation]);

  const next = executor.startBeside();
  expect([executor.knows(old.incarnation), executor.knows(next.incarnation), executor.knows('other')]).toEqual([
    true,
    true,
    false,
  ]);
  expect(executor.promote(next.incarnation)).toBe(true);
  expect([executor.incarnation(), executor.pid()]).toEqual([next.incarnation, next.identity!.pid]);
  await executor.kill('a test', [old.incarnation]);
  await old.ended;
  expect(isAlive(next.identity!)).toBe(true);
  expect([executor.incarnation(), executor.restarts()]).toEqual([next.incarnation, 0]);
  // The one that is current now is kept started.
  await executor.kill('a test', [next.incarnation]);
  await vi.waitFor(
    () => {
      expect([executor.restarts(), executor.running() === undefined]).toEqual([1, false]);
    },
    { timeout: 30_000 },
  );
  await executor.stop(0);
  expect(started.map((each) => isAlive(each))).toEqual(started.map(() => false));
  expect(loops).toEqual([]);
});
