/** `atlas sessions release`, `atlas workers forget` and `atlas wait` on real workers, at every step of a session. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { runAtlas, spawnAtlas, type AtlasOutcome } from '../support/cli.js';
import {
  eventually,
  restartWorker,
  runWorkflow,
  sessionsOf,
  startWorker,
  startWorkflow,
  untilScratchIsEmpty,
  workersOf,
} from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { useClient } from '../support/server.js';

const client = useClient();

/** A worker whose presence is late on a busy machine counts as one that does not answer. */
const PATIENT_PRESENCE = ['--presence-ttl', '15s'];

const atlas = (fleet: string, ...argv: string[]): Promise<AtlasOutcome> =>
  runAtlas([...argv, '--fleet', fleet], { env: { ATLAS_OPERATOR: 'ops@bastion' } });

const sessionOf = async (fleet: string, { workflowId }: { readonly workflowId: string }) =>
  await eventually(
    async () => (await sessionsOf(client(), fleet)).find((session) => session.workflowId === workflowId),
    { what: 'the session' },
  );

/** The directories of sessions; those that were given up have another name, and are deleted a moment later. */
const scratchOf = async ({ stateDirectory }: Atlasd): Promise<string[]> =>
  (await readdir(join(stateDirectory, 'scratch'))).filter((name) => !name.startsWith('.'));

describe('atlas sessions release', () => {
  it('frees slot and scratch before the first step, during one and between two, and the owner follows its onLost', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a', args: ['--max-sessions', '1', ...PATIENT_PRESENCE] });
    const log = join(await temporaryDirectory(), 'log');
    const fails = { onLost: 'fail' };
    const stages = [
      // Before the first step.
      { type: 'holder', input: { session: fails }, at: () => Promise.resolve(true) },
      // During a step.
      {
        type: 'one',
        input: { session: fails, activity: 'hold', args: [60_000, log], options: { heartbeatTimeout: '3s' } },
        at: async () => (await readFile(log, 'utf8').catch(() => '')).includes('begin'),
      },
      // Between two steps.
      {
        type: 'idler',
        input: { session: fails },
        at: async ({ workflowId }: { workflowId: string }) =>
          (await sessionsOf(client(), fleet)).some(
            (session) => session.workflowId === workflowId && session.lastStep?.activity === 'where',
          ),
      },
    ];
    for (const { type, input, at } of stages) {
      const owner = await startWorkflow(client(), fleet, type, input);
      const { session } = await sessionOf(fleet, owner);
      await eventually(() => at(owner), { what: `${type} is where it is to be released` });
      const unasked = await atlas(fleet, 'sessions', 'release', session);
      expect(unasked, unasked.stderr).toMatchObject({ exit: 2, stdout: '' });
      expect(unasked.stderr).toContain(`${session}  on a`);
      expect((await owner.describe()).status.name).toBe('RUNNING');

      const released = await atlas(fleet, 'sessions', 'release', session.slice(0, 6), '--reason', 'hangs', '--yes');
      expect(released, released.stderr).toMatchObject({
        exit: 0,
        stdout: `${session}  released: slot and scratch on a are free\n`,
      });
      expect(await scratchOf(a)).toEqual([]);
      await untilScratchIsEmpty(a);
      await expect(owner.result()).rejects.toMatchObject({
        cause: { type: 'SessionLost', message: expect.stringContaining('ops@bastion') as string },
      });
      // The only slot is free at once.
      expect(await runWorkflow(client(), fleet, 'sequence')).toMatchObject({ attempt: 1 });
    }
  });

  it('fails the owner where that is wanted, and knows no session by an id that nobody has', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a', args: PATIENT_PRESENCE });
    const owner = await startWorkflow(client(), fleet, 'holder');
    await sessionOf(fleet, owner);
    const failed = await atlas(fleet, 'sessions', 'release', '--worker', 'a', '--fail-owner', '--yes', '-o', 'json');
    expect(failed, failed.stderr).toMatchObject({ exit: 0 });
    expect(JSON.parse(failed.stdout)).toMatchObject({
      version: 1,
      released: [{ worker: 'a', workflowId: owner.workflowId, outcome: 'released', freed: true, error: null }],
    });
    await expect(owner.result()).rejects.toMatchObject({ cause: { type: 'SessionReleased' } });
    const unknown = await atlas(fleet, 'sessions', 'release', 'ffff', '--yes');
    expect(unknown, unknown.stderr).toMatchObject({ exit: 4, stdout: '' });
  });

  it('on a dead worker tells the owner, which goes on elsewhere', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a' });
    // A lease and a window that would keep the owner waiting for longer than the test.
    const owner = await startWorkflow(client(), fleet, 'idler', {
      session: { leaseTtl: '10m', recoveryWindow: '8s', onLost: 'fail' },
    });
    const { session } = await sessionOf(fleet, owner);
    await startWorker({ fleet, name: 'b' });
    await a.killAll();
    await eventually(
      async () => (await workersOf(client(), fleet)).some(({ name, state }) => name === 'a' && state === 'lost'),
      { what: 'a is lost' },
    );
    const released = await atlas(fleet, 'sessions', 'release', session, '--reason', 'scrapped', '--yes');
    expect(released.stderr).toContain('a does not answer: the owners are told instead');
    // The owner may have found out by itself just before.
    expect([
      `${session}  a does not answer; ${owner.workflowId} was told that its session is gone. What the worker still has of it ends when it returns\n`,
      `${session}  a does not answer, and ${owner.workflowId} has ended. Nobody was told; what the worker still has of it ends when it returns\n`,
    ]).toContain(released.stdout);
    expect(released.exit).toBe(0);
    await expect(owner.result()).rejects.toMatchObject({ cause: { type: 'SessionLost' } });
  });

  it('of an owner that was terminated frees the slot, whoever is first to notice', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    const owner = await client().workflow.start('holder', {
      taskQueue: fleet,
      workflowId: `${fleet}-terminated`,
      args: [{ session: {} }],
      workflowExecutionTimeout: '2 minutes',
    });
    const { session } = await sessionOf(fleet, owner);
    await owner.terminate('by a test');
    const ended = await atlas(fleet, 'sessions', 'release', session, '--yes');
    // The worker finds out by itself within seconds; both are as good.
    expect([0, 4], ended.stderr).toContain(ended.exit);
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 0, { what: 'the slot is free' });
  });
});

describe('atlas wait and atlas workers forget', () => {
  it('follow a worker from its start to its end on the list', async () => {
    const fleet = uniqueFleet();
    const waiting = await spawnAtlas(['wait', 'worker', 'a', '--for', 'ready', '--timeout', '60s', '--fleet', fleet]);
    await waiting.line(/a: not known to the fleet yet/);
    const a = await startWorker({ fleet, name: 'a' });
    await startWorker({ fleet, name: 'b' });
    expect(await waiting.exited).toMatchObject({ exit: 0 });
    const late = await atlas(fleet, 'wait', 'worker', 'a', '--for', 'lost', '--timeout', '1s');
    expect(late, late.stderr).toMatchObject({ exit: 124, stdout: '' });
    expect(late.stderr).toContain('The worker a is not lost after 1.0s: ready.');
    expect(await atlas(fleet, 'wait', 'worker', 'x', '--for', 'lost')).toMatchObject({ exit: 4 });
    expect(await atlas(fleet, 'workers', 'forget', 'a', '--yes')).toMatchObject({ exit: 6, stdout: '' });
    await a.stop();
    expect(await atlas(fleet, 'wait', 'worker', 'a', '--for', 'stopped')).toMatchObject({ exit: 0 });
    expect(await atlas(fleet, 'workers', 'forget', 'a')).toMatchObject({ exit: 2, stdout: '' });
    const forgotten = await atlas(fleet, 'workers', 'forget', 'a', '--yes');
    expect(forgotten, forgotten.stderr).toMatchObject({ exit: 0 });
    await eventually(async () => (await workersOf(client(), fleet)).every(({ name }) => name !== 'a'), {
      what: 'a is off the list',
    });
    await restartWorker(a);
    await eventually(async () => (await workersOf(client(), fleet)).some(({ name }) => name === 'a'), {
      what: 'a is back on the list',
    });
  });
});
