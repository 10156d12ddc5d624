/** What operators read of a fleet, by the built `atlas` and real workers: records, owners, leaks, pools, and watching. */
import { hostname } from 'node:os';
import { describe, expect, it } from 'vitest';
import { FleetClient, type PoolRecord, type SessionDetail, type SessionRecord } from '../../src/fleet/client.js';
import { runAtlas, spawnAtlas } from '../support/cli.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { startProxy } from '../support/proxy.js';
import { temporalAddress, useClient } from '../support/server.js';

async function json<T>(argv: readonly string[]): Promise<T> {
  const { exit, stdout, stderr } = await runAtlas([...argv, '-o', 'json']);
  expect({ exit, stderr }).toEqual({ exit: 0, stderr: '' });
  return JSON.parse(stdout) as T;
}

/** A process that gets no processor for a while is late with its presence, and shows as stale or lost. */
const PATIENT_PRESENCE = ['--presence-ttl', '15s'];

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe('a session', () => {
  const client = useClient();

  it('is shown with its owner, its lease and the host of each step; and not once it has ended', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'worker-7', args: ['--max-sessions', '2', ...PATIENT_PRESENCE] });
    const handle = await startWorkflow(client(), fleet, 'sequence', { holdMs: 100_000 });
    const [session] = await eventually(
      async () => {
        const sessions = await sessionsOf(client(), fleet);
        return sessions[0]?.step?.activity === 'hold' ? sessions : undefined;
      },
      { what: 'the pinned step' },
    );
    const prefix = session!.session.slice(0, 6);
    const detail = await json<SessionDetail & { version: number }>(['sessions', 'show', prefix, '--fleet', fleet]);
    expect(detail).toMatchObject({
      version: 1,
      session: { key: session!.key, ownerStatus: 'RUNNING', leaked: false },
      owner: { workflowId: handle.workflowId, workflowType: 'sequence', status: 'RUNNING', closedAt: null },
      running: [{ activity: 'hold', attempt: 1, state: 'running' }],
      stepsTruncated: false,
    });
    expect(detail.lease?.activityId).toBe(`${session!.session}.1:lease`);
    expect(
      detail.steps.map(({ activity, worker, host, attempt, result }) => [activity, worker, host, attempt, result]),
    ).toEqual([
      ['where', 'worker-7', hostname(), 1, 'completed'],
      ['put', 'worker-7', hostname(), 1, 'completed'],
      ['hold', 'worker-7', hostname(), 1, 'running'],
    ]);

    const text = (await runAtlas(['sessions', 'show', prefix, '--fleet', fleet])).stdout;
    expect(text).toMatch(/State: +running for \S+, attempt 1\n/);
    const worker = (await runAtlas(['workers', 'show', 'work', '--fleet', fleet])).stdout;
    expect(worker).toMatch(/^worker-7 {2}ready\nSlots: +1 of 2 taken\n/);
    expect(worker).toContain(`  ${session!.session} `);
    const listed = await json<{ sessions: SessionRecord[] }>([
      'sessions',
      'ls',
      '--fleet',
      fleet,
      '-l',
      'step=hold,owner=running',
    ]);
    expect(listed.sessions.map(({ key }) => key)).toEqual([session!.key]);

    await handle.terminate();
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 0, { what: 'the slot is free' });
    const ended = await runAtlas(['sessions', 'show', prefix, '--fleet', fleet]);
    expect(ended).toMatchObject({ exit: 4, stdout: '' });
    expect(ended.stderr).toContain('A session that has ended is no longer in the fleet');
    const unknown = await runAtlas(['sessions', 'ls', '--worker', 'wroker-7', '--fleet', fleet, '-o', 'json']);
    expect(unknown).toMatchObject({ exit: 4, stdout: '' });
    expect(JSON.parse(unknown.stderr)).toMatchObject({ version: 1, error: { code: 'NotFound' } });
    expect(unknown.stderr).toContain('Did you mean worker-7?');
  });

  it('whose owner was terminated while its worker is frozen is leaked, and its worker lost', async () => {
    const fleet = uniqueFleet();
    const frozen = await startWorker({ fleet, name: 'frozen', args: ['--presence-ttl', '10s'] });
    const handle = await startWorkflow(client(), fleet, 'holder');
    const [held] = await eventually(
      async () => {
        const sessions = await sessionsOf(client(), fleet);
        return sessions.length === 1 && sessions[0]!.state === 'held' ? sessions : undefined;
      },
      { what: 'the session' },
    );
    // It does the work of the fleet while the other is frozen.
    await startWorker({ fleet, name: 'other', args: PATIENT_PRESENCE });
    const fleetClient = new FleetClient(client(), { fleet });
    expect(await fleetClient.listSessions({ owners: true })).toMatchObject([{ ownerStatus: 'RUNNING', leaked: false }]);
    frozen.signal('SIGSTOP');
    await handle.terminate();
    // Not merely overdue: what it last said is in the memo of its workflow from then on.
    await eventually(
      async () =>
        (await workersOf(client(), fleet)).some(({ reason }) => reason === 'its presence timed out') &&
        (await fleetClient.listSessions({ owners: true })).some(({ leaked }) => leaked === true),
      // The polls of the frozen worker take tasks of its own workflow with them, each of which comes again after seconds.
      { what: 'the loss, and the leak', timeoutMs: 90_000 },
    );
    const atlas = (...argv: string[]) => runAtlas([...argv, '--fleet', fleet]);
    // One after the other: four at once on a busy machine have waited for their server for longer than a command does, and
    // nothing changes any more until the worker returns.
    const leaks = await atlas('sessions', 'ls', '--worker', 'froz', '-o', 'json');
    const table = await atlas('sessions', 'ls', '--leaked', '--no-headers');
    const lost = await atlas('workers', 'ls', '-l', 'state=lost', '-o', 'name');
    const shown = await atlas('sessions', 'show', held!.session);
    for (const { exit, stderr } of [leaks, table, lost, shown])
      expect({ exit, stderr }).toEqual({ exit: 0, stderr: '' });
    expect(JSON.parse(leaks.stdout)).toMatchObject({
      version: 1,
      sessions: [{ key: held!.key, worker: 'frozen', workerState: 'lost', ownerStatus: 'TERMINATED', leaked: true }],
    });
    expect(table.stdout).toMatch(new RegExp(`^${held!.session} +frozen +leaked, worker lost .* terminated +holder-`));
    expect(lost.stdout).toBe('frozen\n');
    expect(shown.stdout).toMatch(/Status: +terminated, closed/);
    expect(shown.stdout).toMatch(/Lease: +ended with the owner\n/);
    frozen.signal('SIGCONT');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 0, { what: 'the slot is free' });
    const nothing = await runAtlas(['sessions', 'ls', '--fleet', fleet, '--leaked']);
    expect(nothing).toMatchObject({ exit: 0, stdout: '' });
    expect(nothing.stderr).toContain('holds a session');
  });

  it('that was redone elsewhere is leaked on the worker that is lost, and shown where it is now', async () => {
    const fleet = uniqueFleet();
    // A lease that nobody renews is what shows the leak; neither it nor the presence may be missed before the freeze.
    const frozen = await startWorker({ fleet, name: 'frozen', args: ['--presence-ttl', '4s'] });
    const handle = await startWorkflow(client(), fleet, 'holder', {
      session: { leaseTtl: '8s', recoveryWindow: '4s' },
    });
    await eventually(async () => (await sessionsOf(client(), fleet)).some(({ state }) => state === 'held'), {
      what: 'the session',
    });
    await startWorker({ fleet, name: 'other' });
    frozen.signal('SIGSTOP');
    const fleetClient = new FleetClient(client(), { fleet });
    const sessions = await eventually(
      async () => {
        const both = await fleetClient.listSessions({ owners: true });
        return both.length === 2 && both.some(({ leaked }) => leaked === true) ? both : undefined;
      },
      { what: 'the redo, and the leak', timeoutMs: 90_000 },
    );
    expect(sessions.map(({ worker, leaked, ownerStatus }) => [worker, leaked, ownerStatus])).toEqual([
      ['frozen', true, 'RUNNING'],
      ['other', false, 'RUNNING'],
    ]);
    const detail = await json<SessionDetail & { elsewhere: SessionRecord[] }>([
      'sessions',
      'show',
      sessions[0]!.session,
      '--fleet',
      fleet,
    ]);
    expect(detail.session.worker).toBe('other');
    expect(detail.elsewhere.map(({ worker }) => worker)).toEqual(['frozen']);
    expect(detail.lease).not.toBeNull();
    frozen.signal('SIGCONT');
    await handle.signal('finish');
    expect(await handle.result()).toMatchObject({ worker: 'other', attempt: 2 });
  });
});

describe('pools', () => {
  const client = useClient();

  it('say what waits and what is free, also of workers that have stopped', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({
      fleet,
      name: 'gpu-1',
      capabilities: ['gpu'],
      args: ['--max-sessions', '1', ...PATIENT_PRESENCE],
    });
    await startWorker({ fleet, name: 'plain', args: PATIENT_PRESENCE });
    const pools = async () => (await json<{ pools: PoolRecord[] }>(['pools', 'ls', '--fleet', fleet])).pools;
    await eventually(
      async () => (await workersOf(client(), fleet)).filter(({ state }) => state === 'ready').length === 2,
    );
    expect(await pools()).toMatchObject([
      {
        pool: 'any',
        backlog: 0,
        oldestWaitMs: null,
        freeSlots: 5,
        liveWorkers: 2,
        workers: ['gpu-1', 'plain'],
        reason: null,
      },
      { pool: 'gpu', backlog: 0, oldestWaitMs: null, freeSlots: 1, liveWorkers: 1, workers: ['gpu-1'], reason: null },
    ]);
    const input = { session: { capabilities: ['gpu'] } };
    const owners = [];
    for (let index = 0; index < 3; index += 1) owners.push(await startWorkflow(client(), fleet, 'holder', input));
    const gpu = await eventually(
      async () =>
        (await pools()).find(({ pool, backlog, freeSlots }) => pool === 'gpu' && backlog === 2 && freeSlots === 0),
      { what: 'two that wait' },
    );
    expect(gpu).toMatchObject({ reason: 'every slot is taken or reserved', queue: `${fleet}-gpu:acquire` });
    expect(gpu.oldestWaitMs).toBeGreaterThanOrEqual(0);
    expect(gpu.oldestWaitMs).toBeLessThan(60_000);

    for (const owner of owners.slice(0, 2)) await owner.terminate();
    await owners[2]!.terminate();
    await worker.stop();
    await eventually(
      async () => (await workersOf(client(), fleet)).find(({ name }) => name === 'gpu-1')?.state === 'stopped',
    );
    const table = await runAtlas(['pools', 'ls', '--fleet', fleet, '-l', 'cap=gpu', '--no-headers']);
    expect(table.stdout).toMatch(/^gpu +\d+ +\S+ +0 +0\/1 +gpu-1 +no live worker serves it\n$/);
  });
});

describe('watching', () => {
  const client = useClient();

  it('prints what changes, rides out a server that is away, and ends at Ctrl-C', async () => {
    const fleet = uniqueFleet();
    const first = await startWorker({ fleet, name: 'first', args: PATIENT_PRESENCE });
    await eventually(async () => (await workersOf(client(), fleet))[0]?.state === 'ready', { what: 'it is listed' });
    const proxy = await startProxy(temporalAddress());
    const watch = await spawnAtlas(['workers', 'ls', '-w', '-o', 'jsonl', '--interval', '500ms', '--fleet', fleet], {
      address: proxy.address,
    });
    const changes = () =>
      watch.stdout
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as { change: string; worker: { name: string; state: string } })
        .map(({ change, worker }) => `${change} ${worker.name} ${worker.state}`);
    const until = (change: string) => eventually(() => Promise.resolve(changes().includes(change)), { what: change });
    await until('added first ready');
    // Nothing but ages and loads changes meanwhile.
    await sleep(1_500);
    expect(changes()).toEqual(['added first ready']);
    proxy.cut();
    await watch.line(/^The Temporal server does not answer; it is tried again every 0\.5s\.$/);
    proxy.heal();
    await watch.line(/^The Temporal server answers again\.$/);
    await first.stop();
    await until('changed first stopped');
    watch.interrupt();
    expect(await watch.exited).toMatchObject({ exit: 130 });
    await proxy.close();
  });
});
