/**
 * What operators do to a fleet with `atlas`, on real workers: each command is a process of its own, and what it says is
 * held against what the workflows and the fleet say.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { WorkerRecord } from '../../src/fleet/client.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { runAtlas, spawnAtlas, type AtlasOutcome } from '../support/cli.js';
import {
  eventually,
  restartWorker,
  runWorkflow,
  sessionsOf,
  startWorker,
  startWorkflow,
  workersOf,
} from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { letGo } from '../support/promises.js';
import { startPrivateServer, useClient } from '../support/server.js';

interface Sequence {
  readonly before: { readonly worker: string };
  readonly after: { readonly worker: string };
  readonly attempt: number;
}

const client = useClient();
const OPERATOR = { ATLAS_OPERATOR: 'ops@bastion' };

const atlas = (fleet: string, ...argv: string[]): Promise<AtlasOutcome> =>
  runAtlas([...argv, '--fleet', fleet], { env: OPERATOR });

const worker = async (fleet: string, name: string): Promise<WorkerRecord | undefined> =>
  (await workersOf(client(), fleet)).find((each) => each.name === name);

/** Until the workers are in these states, by their names. One whose presence is late on a busy machine is stale meanwhile. */
async function untilStates(fleet: string, states: Readonly<Record<string, WorkerRecord['state']>>): Promise<void> {
  let seen = '';
  const wanted = JSON.stringify(states);
  await eventually(
    async () => {
      const workers = (await workersOf(client(), fleet)).filter(({ name }) => name in states);
      seen = JSON.stringify(Object.fromEntries(workers.map(({ name, state }) => [name, state])));
      return seen === wanted;
    },
    { what: wanted },
  ).catch((error: unknown) => {
    throw new Error(`The workers are ${seen}.`, { cause: error });
  });
}

const begun = async (log: string): Promise<boolean> =>
  (await readFile(log, 'utf8').catch(() => '')).startsWith('begin');

async function startHolder(fleet: string, session: Record<string, unknown> = {}) {
  const before = (await sessionsOf(client(), fleet)).length;
  const owner = await startWorkflow(client(), fleet, 'holder', { session });
  const [held] = await eventually(
    async () => {
      const sessions = await sessionsOf(client(), fleet);
      const own = sessions.filter(({ workflowId }) => workflowId === owner.workflowId);
      return sessions.length > before && own.length === 1 ? own : undefined;
    },
    { what: 'the session of the holder' },
  );
  return { owner, held: held! };
}

describe('atlas drain', () => {
  it('waits for the whole session, and not only for the step that runs', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    await startWorker({ fleet, name: 'b', args: ['--max-sessions', '1'] });
    const log = join(await temporaryDirectory(), 'log');
    const owner = await startWorkflow(client(), fleet, 'sequence', { holdMs: 90_000, log });
    await eventually(() => begun(log), { what: 'the second step' });
    // What a worker holds is known to the fleet with its next presence.
    const held = await eventually(async () => (await sessionsOf(client(), fleet))[0], { what: 'the session' });
    const name = held.worker;

    const command = await spawnAtlas(['drain', name, '--wait', '--reason', 'kernel update', '--fleet', fleet], {
      env: OPERATOR,
    });
    // The step goes on until it was seen.
    await command.line(/: draining, 1 of \d slots? held$/);
    await command.line(new RegExp(`${held.session}  hold `));
    await letGo(log);
    const drained = await command.exited;
    expect(drained, drained.stderr).toMatchObject({ exit: 0 });
    expect(drained.stdout).toMatch(new RegExp(`^${name}  drained in \\d+(\\.\\d)?s\\n$`));
    expect(drained.stderr).toMatch(/: draining, 1 of \d slots? held\n/);
    expect(drained.stderr).toContain(`${held.session}  hold `);
    expect(drained.stderr).toContain(`stays cordoned, also over restarts, until \`atlas uncordon ${name}\``);
    // All three steps ran there, and the one that ran was not ended.
    expect(await owner.result()).toMatchObject({ before: { worker: name }, after: { worker: name }, attempt: 1 });
    expect((await readFile(log, 'utf8')).split('\n').slice(0, 2)).toEqual([`begin ${name}`, `end ${name}`]);

    const elsewhere = await Promise.all(
      Array.from({ length: 3 }, () => runWorkflow<Sequence>(client(), fleet, 'sequence')),
    );
    expect(new Set(elsewhere.map(({ after }) => after.worker))).toEqual(new Set([name === 'a' ? 'b' : 'a']));
    await untilStates(fleet, { [name]: 'drained' });
    expect(await worker(fleet, name)).toMatchObject({ scheduling: { who: 'ops@bastion', why: 'kernel update' } });

    const back = await atlas(fleet, 'uncordon', name);
    expect(back).toMatchObject({ exit: 0, stdout: `${name}: uncordoned; confirmed by the worker\n` });
    expect(await atlas(fleet, 'uncordon', name)).toMatchObject({
      exit: 0,
      stdout: `${name}: was not cordoned; it takes sessions\n`,
    });
  });

  it('reports at the deadline and ends nothing, or releases where that was wanted', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    const { owner, held } = await startHolder(fleet, { onLost: 'fail' });

    const reported = await atlas(fleet, 'drain', 'a', '--wait', '--deadline', '2s');
    expect(reported, reported.stderr).toMatchObject({ exit: 3 });
    expect(reported.stderr).toContain('warning: a is the last ready worker of the fleet');
    expect(reported.stdout).toContain('a  deadline reached, 1 session remains; nothing was ended\n');
    expect(reported.stdout).toContain(`  ${held.session}  no step yet for`);
    expect(reported.stdout).toContain('owner waits for a timer, signal or child');
    expect(reported.stderr).toContain('`atlas drain --monitor a`');
    expect(await sessionsOf(client(), fleet)).toHaveLength(1);
    expect((await owner.describe()).status.name).toBe('RUNNING');

    const refused = await atlas(fleet, 'drain', 'a', '--wait', '--deadline', '1s', '--on-deadline', 'release');
    expect(refused, refused.stderr).toMatchObject({ exit: 2, stdout: '' });
    expect((await worker(fleet, 'a'))!.scheduling.drain).toMatchObject({ onDeadline: 'report' });

    const released = await atlas(
      fleet,
      ...['drain', 'a', '--wait', '--deadline', '1s', '--on-deadline', 'release', '--yes', '-o', 'json'],
    );
    expect(released, released.stderr).toMatchObject({ exit: 0 });
    const document = JSON.parse(released.stdout) as { drain: { workers: object[] } };
    expect(document.drain).toMatchObject({
      ended: 'finished',
      workers: [{ worker: 'a', outcome: 'drained', remaining: [], error: null }],
    });
    await expect(owner.result()).rejects.toMatchObject({ cause: { type: 'SessionLost' } });
  });

  it('by force releases at once, with the operator in the message', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    const { owner } = await startHolder(fleet, { onLost: 'fail' });
    expect(await atlas(fleet, 'drain', 'a', '--force', '--yes')).toMatchObject({ exit: 2, stdout: '' });
    await untilStates(fleet, { a: 'ready' });

    const forced = await atlas(fleet, 'drain', 'a', '--wait', '--force', '--reason', 'on fire', '--yes');
    expect(forced, forced.stderr).toMatchObject({ exit: 0 });
    await expect(owner.result()).rejects.toMatchObject({
      cause: { type: 'SessionLost', message: expect.stringContaining('ops@bastion') as string },
    });
  });

  it('goes on after Ctrl-C; those that were not begun are listed, and stay as they are', async () => {
    const fleet = uniqueFleet();
    for (const name of ['a', 'b', 'c']) await startWorker({ fleet, name, args: ['--max-sessions', '1'] });
    const owners = [await startHolder(fleet), await startHolder(fleet), await startHolder(fleet)];

    const command = await spawnAtlas(['drain', 'a', 'b', 'c', '--max-parallel', '2', '--wait', '--fleet', fleet], {
      env: OPERATOR,
    });
    await command.line(/\] b: draining, 1 of 1 slot held$/);
    await command.line(/\] c: waits: 2 being drained, --max-parallel 2$/);
    command.interrupt();
    const { exit, stderr, stdout } = await command.exited;
    expect(exit, stderr).toBe(130);
    expect(stdout).toBe('');
    expect(stderr).toMatch(/\n {2}goes on: {5}a, b\n {2}not started: c\n/);
    expect(stderr).toContain('Look again with `atlas drain --monitor a b`; undo with `atlas uncordon a b`.');
    await untilStates(fleet, { a: 'draining', b: 'draining', c: 'ready' });

    const monitor = await spawnAtlas(['drain', '--monitor', '--fleet', fleet], { env: OPERATOR });
    await monitor.line(/\] a: draining, 1 of 1 slot held$/);
    for (const { owner } of owners) await owner.signal('finish');
    const watched = await monitor.exited;
    expect(watched, watched.stderr).toMatchObject({ exit: 0 });
    expect(watched.stdout).toMatch(/^a {2}drained in .*\nb {2}drained in .*\n$/);
    await untilStates(fleet, { c: 'ready' });
  });

  it('keeps enough workers ready, says why it waits, and goes on when there is room', async () => {
    const fleet = uniqueFleet();
    for (const name of ['a', 'b']) await startWorker({ fleet, name });
    const command = await spawnAtlas(['drain', 'a', 'b', '--min-ready', '1', '--wait', '--fleet', fleet], {
      env: OPERATOR,
    });
    await command.line(/\] a: drained in /);
    await command.line(/\] b: waits for room: no other worker is ready, --min-ready 1$/);
    await untilStates(fleet, { b: 'ready' });
    // As after a deploy of the first.
    expect(await atlas(fleet, 'uncordon', 'a')).toMatchObject({ exit: 0 });
    const { exit, stderr } = await command.exited;
    expect(exit, stderr).toBe(0);
    await untilStates(fleet, { a: 'ready', b: 'drained' });
  });

  it('outlives the death of the daemon, which comes back drained', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a' });
    const { owner } = await startHolder(fleet, { leaseTtl: '60s' });
    await startWorker({ fleet, name: 'b' });
    const command = await spawnAtlas(['drain', 'a', '--wait', '--fleet', fleet], { env: OPERATOR });
    await command.line(/\] a: draining, 1 of 4 slots held$/);
    await a.kill();
    await command.line(/\] a: lost for .*; the drain goes on when it returns$/);
    const again = await restartWorker(a);
    await owner.signal('finish');
    const { exit, stderr } = await command.exited;
    expect(exit, stderr).toBe(0);
    await again.stop();
    await restartWorker(a);
    await untilStates(fleet, { a: 'drained' });
    expect(await runWorkflow(client(), fleet, 'sequence')).toMatchObject({ worker: 'b' });
  });

  it('is a conflict with the other terms of another operator, and joins without terms', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    const { owner } = await startHolder(fleet);
    expect(await atlas(fleet, 'drain', 'a', '--no-wait', '--deadline', '1h')).toMatchObject({
      exit: 0,
      stdout: 'a: draining; confirmed by the worker\n',
    });
    const eve = { env: { ATLAS_OPERATOR: 'eve@laptop' } };
    const other = await runAtlas(['drain', 'a', '--deadline', '1m', '--fleet', fleet], eve);
    expect(other, other.stderr).toMatchObject({ exit: 6, stdout: '' });
    expect(other.stderr).toContain('draining by ops@bastion since');
    const uncordon = await runAtlas(['uncordon', 'a', '--fleet', fleet], eve);
    expect(uncordon, uncordon.stderr).toMatchObject({ exit: 6, stdout: '' });
    expect(uncordon.stderr).toContain('a: draining by ops@bastion since');
    const joined = await spawnAtlas(['drain', 'a', '--wait', '--fleet', fleet], eve);
    await joined.line(/\] a: draining, 1 of 4 slots held/);
    const undone = await runAtlas(['uncordon', 'a', '--yes', '--fleet', fleet], eve);
    expect(undone, undone.stderr).toMatchObject({
      exit: 0,
      stdout: 'a: uncordoned, its drain is undone; confirmed by the worker\n',
    });
    const end = await joined.exited;
    expect(end, end.stderr).toMatchObject({ exit: 6, stdout: expect.stringContaining('no longer drains') as string });
    await owner.signal('finish');
    await owner.result();
  });

  it('changes nothing with --dry-run, and names what is in the way', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    const { owner, held } = await startHolder(fleet);
    const { exit, stdout } = await atlas(fleet, 'drain', 'a', '--dry-run', '--deadline', '10m');
    expect(exit).toBe(0);
    expect(stdout).toContain('Would drain 1 worker:\n  a  ready, 1 of 4 slots held; begins at once\n');
    expect(stdout).toContain(held.session);
    expect(stdout).toContain(
      'What is left after 10m00s would be reported; nothing would be ended. Nothing was changed.',
    );
    expect((await worker(fleet, 'a'))!.scheduling.revision).toBe(0);
    const unknown = await atlas(fleet, 'drain', 'a', 'nope');
    expect(unknown, unknown.stderr).toMatchObject({ exit: 4, stdout: '' });
    expect((await worker(fleet, 'a'))!.scheduling.revision).toBe(0);
    await owner.signal('finish');
    await owner.result();
  });

  it('of the last worker goes on while that worker runs the workflows, and its daemon can end then', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a' });
    const { owner } = await startHolder(fleet);
    const command = await spawnAtlas(['drain', 'a', '--wait', '--stop', '--fleet', fleet], { env: OPERATOR });
    await command.line(/\] a: draining, 1 of 4 slots held/);
    await owner.signal('finish');
    expect(await owner.result()).toMatchObject({ worker: 'a', attempt: 1 });
    expect(await a.exited).toEqual({ code: 0, signal: null });
    const { exit, stderr, stdout } = await command.exited;
    expect(exit, stderr + stdout).toBe(0);
  });
});

describe('--self', () => {
  it('drains the worker of the host while Temporal is away, and tells the fleet later', async () => {
    const fleet = uniqueFleet();
    const server = await startPrivateServer();
    try {
      const a = await startWorker({ fleet, name: 'a', address: server.address });
      const at = { env: OPERATOR, address: server.address };
      const self = ['--self', '--state-dir', a.stateDirectory, '--fleet', fleet];
      expect(await runAtlas(['cordon', ...self], at)).toMatchObject({ exit: 0 });
      expect(await runAtlas(['uncordon', ...self], at)).toMatchObject({ exit: 0 });
      await server.stop();
      const drained = await runAtlas(['drain', ...self, '--wait', '--deadline', '30s', '--reason', 'stop'], at);
      expect(drained, drained.stderr).toMatchObject({
        exit: 0,
        stdout: expect.stringMatching(/^a: drained in/) as string,
      });
      expect(await a.stop(60_000)).not.toBeNull();
      const gone = await runAtlas(['drain', ...self], at);
      expect(gone, gone.stderr).toMatchObject({ exit: 4, stdout: '' });
    } finally {
      await server.stop();
    }
  });

  it('reports at its deadline what is left', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a' });
    const { owner, held } = await startHolder(fleet);
    const self = ['--self', '--state-dir', a.stateDirectory];
    const late = await atlas(fleet, 'drain', ...self, '--wait', '--deadline', '1s');
    expect(late, late.stderr).toMatchObject({ exit: 3 });
    expect(late.stdout).toContain(held.session);
    await owner.signal('finish');
    expect(await atlas(fleet, 'drain', ...self, '--wait')).toMatchObject({ exit: 0 });
    await untilStates(fleet, { a: 'drained' });
    await owner.result();
  });
});

describe('atlas cordon', () => {
  it('has new sessions land elsewhere, is kept for a worker that is away, and is shown', async () => {
    const fleet = uniqueFleet();
    const [a] = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    const cordoned = await atlas(fleet, 'cordon', 'a', '--reason', 'disk swap');
    expect(cordoned).toMatchObject({ exit: 0, stdout: 'a: cordoned; confirmed by the worker.\n' });
    const used = await Promise.all(Array.from({ length: 5 }, () => runWorkflow<Sequence>(client(), fleet, 'sequence')));
    expect(used.map(({ after }) => after.worker)).toEqual(['b', 'b', 'b', 'b', 'b']);
    const again = await atlas(fleet, 'cordon', 'a', 'b', '-o', 'json');
    expect(JSON.parse(again.stdout)).toMatchObject({
      version: 1,
      orders: [
        { worker: 'a', changed: false, delivery: 'applied' },
        { worker: 'b', changed: true, delivery: 'applied' },
      ],
    });
    expect(again.stderr).toContain('warning: b is the last ready worker of the fleet');
    await a.kill();
    await untilStates(fleet, { a: 'lost' });
    expect(await atlas(fleet, 'uncordon', 'a')).toMatchObject({
      exit: 0,
      stdout: 'a: uncordoned; recorded; applied when the worker returns (it is lost)\n',
    });
  });
});
