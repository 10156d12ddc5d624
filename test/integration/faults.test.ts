/**
 * What happens when processes die: a restart within the lease TTL is invisible, a worker that does not come back means
 * redo elsewhere, a dead executor's attempts go on at once. Read from histories and from the hosts' file systems.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Atlasd } from '../support/atlasd.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import {
  eventually,
  restartWorker,
  runWorkflow,
  sessionsOf,
  spawnWorker,
  startWorker,
  startWorkflow,
  workersOf,
} from '../support/fixtures.js';
import { activitiesOf } from '../support/history.js';
import { useClient } from '../support/server.js';

interface Sequence {
  readonly before: { readonly worker: string; readonly pid: number; readonly scratch: string };
  readonly after: { readonly worker: string; readonly pid: number };
  readonly state: string;
  readonly attempt: number;
}

const lines = async (path: string): Promise<string[]> =>
  (await readFile(path, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');

describe('kill -9', () => {
  const client = useClient();

  it('of atlasd is invisible to the workflow when it is restarted within the lease TTL', async () => {
    const fleet = uniqueFleet();
    // A start on a busy machine takes longer than the default, and a worker that was missed may refuse an attempt.
    const args = ['--presence-ttl', '30s'];
    const worker = await startWorker({ fleet, args });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      session: { leaseTtl: '40s' },
      holdMs: 2_000,
      log,
      activity: { heartbeatTimeout: '100s' },
    });
    await eventually(async () => (await lines(log)).length === 1, { what: 'the pinned step' });
    await worker.kill();
    await restartWorker(worker, { args });

    const result = (await handle.result()) as Sequence;
    expect(result.attempt).toBe(1);
    // The state of the first step was still there: nothing before the interrupted step was repeated.
    expect(result.state).toBe('by attempt 1');
    const activities = await activitiesOf(handle);
    expect(activities.filter(({ type }) => type === 'atlas:acquireWorker')).toHaveLength(1);
    expect(activities.filter(({ type }) => type === 'put')).toHaveLength(1);
    // The interrupted attempt was failed at once, not after its heartbeat timeout of 100 s, and a second one ran.
    expect(activities.find(({ type }) => type === 'hold')).toMatchObject({ outcome: 'completed', attempt: 2 });
    expect(await lines(log)).toEqual(['begin worker-1', 'begin worker-1', 'end worker-1']);
  });

  it('of a worker that never comes back redoes the whole sequence on another', async () => {
    const fleet = uniqueFleet();
    const workers = new Map<string, Atlasd>();
    for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name }));
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      session: { leaseTtl: '2s' },
      holdMs: 1_500,
      log,
      activity: { heartbeatTimeout: '100s' },
    });
    const [first] = await eventually(async () => {
      const sessions = await sessionsOf(client(), fleet);
      return (await lines(log)).length === 1 && sessions.length === 1 ? sessions : undefined;
    });
    const dead = first!.worker;
    await workers.get(dead)!.killAll();

    const result = (await handle.result()) as Sequence;
    const other = dead === 'a' ? 'b' : 'a';
    expect(result).toMatchObject({
      attempt: 2,
      state: 'by attempt 2',
      before: { worker: other },
      after: { worker: other },
    });
    const activities = await activitiesOf(handle);
    expect(activities.filter(({ type }) => type === 'put').map(({ queue }) => queue.split('.')[0])).toEqual([
      `${fleet}-${dead}`,
      `${fleet}-${other}`,
    ]);
    const leases = activities.filter(({ type }) => type === 'atlas:acquireWorker');
    expect(leases.map(({ outcome }) => outcome)).toEqual(['timed-out', 'open']);
  });

  it('of the executor fails its attempts at once and kills what they had started', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'one', {
      activity: 'withChild',
      args: [log, 1_000],
      options: { heartbeatTimeout: '100s' },
    });
    const [child] = await eventually(async () => {
      const started = await lines(log);
      return started.length === 1 ? started : undefined;
    });
    const { pid } = await worker.event('executor-start');
    process.kill(pid as number, 'SIGKILL');
    await worker.event('executor-end');
    await handle.result();

    expect((await activitiesOf(handle)).find(({ type }) => type === 'withChild')).toMatchObject({ attempt: 2 });
    expect(() => process.kill(Number(child), 0)).toThrow(/ESRCH/);
    expect((await lines(log)).length).toBe(2);
  });

  it('with the scratch directory wiped while it was down loses the session, with a redo in an empty directory', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      session: { leaseTtl: '40s' },
      holdMs: 1_000,
      log,
      activity: { heartbeatTimeout: '100s' },
    });
    await eventually(async () => (await lines(log)).length === 1, { what: 'the pinned step' });
    await worker.killAll();
    const scratch = join(worker.stateDirectory, 'scratch');
    for (const entry of await readdir(scratch)) await rm(join(scratch, entry), { recursive: true });
    const restarted = await restartWorker(worker);
    expect(await restarted.event('loss')).toMatchObject({
      reason: 'The scratch directory of the session is gone from the worker, or from before its host was restarted.',
    });
    expect(await handle.result()).toMatchObject({ attempt: 2, state: 'by attempt 2' });
  });
});

describe('a session that is lost', () => {
  const client = useClient();

  it('rejects the pinned activity in flight with SessionLost, not with a bare cancellation', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'doomed' });
    // The workflow runs on the survivor, which takes no session of this capability set.
    const holder = await startWorkflow(client(), fleet, 'observeLoss', { session: { leaseTtl: '1s' }, holdMs: 60_000 });
    await eventually(async () => (await sessionsOf(client(), fleet)).some(({ step }) => step?.activity === 'hold'), {
      what: 'the pinned activity',
    });
    await startWorker({ fleet, name: 'survivor' });
    await worker.killAll();
    const seen = (await holder.result()) as { seen: unknown[]; thrown: string; message: string };
    expect(seen.seen).toEqual([{ type: 'SessionLost', cancellation: false }]);
    expect(seen.thrown).toBe('SessionLost');
    expect(seen.message).toMatch(
      /^The session [0-9a-f]{12} on doomed was lost\. The worker was suspected, and did not answer within 11s\.$/,
    );
  });
});

describe('the release of a session', () => {
  const client = useClient();

  it('waits for an activity that ignores its cancellation before the slot is given away', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const log = join(await temporaryDirectory(), 'log');
    const stubborn = await startWorkflow(client(), fleet, 'one', { activity: 'stubborn', args: [3_000, log] });
    await eventually(async () => (await sessionsOf(client(), fleet)).some(({ step }) => step !== null), {
      what: 'the stubborn activity',
    });
    await stubborn.cancel();
    await runWorkflow(client(), fleet, 'sequence', { log });
    // The next session's first line comes after the old one's last activity had really ended.
    expect(await lines(log)).toEqual(['stubborn ended', 'begin worker-1', 'end worker-1']);
  });
});

describe('a worker', () => {
  const client = useClient();

  it('that merely idles is listed, is lost when it dies, and is ready again when it returns', async () => {
    const fleet = uniqueFleet();
    const idle = await startWorker({ fleet, name: 'idle', args: ['--presence-ttl', '1s'] });
    await startWorker({ fleet, name: 'other' });
    const stateOf = async (name: string) => (await workersOf(client(), fleet)).find((worker) => worker.name === name);
    await eventually(async () => (await stateOf('idle'))?.state === 'ready', { what: 'idle is ready' });
    await idle.killAll();
    const lost = await eventually(async () => {
      const worker = await stateOf('idle');
      return worker?.state === 'lost' && worker.reason === 'its presence timed out' ? worker : undefined;
    });
    expect(lost).toMatchObject({ name: 'idle', cap: 4 });
    await restartWorker(idle, { args: ['--presence-ttl', '1s'] });
    await eventually(async () => (await stateOf('idle'))?.state === 'ready', { what: 'idle is back' });
  });

  it('that was frozen longer than its presence TTL registers again by itself', async () => {
    const fleet = uniqueFleet();
    const frozen = await startWorker({ fleet, name: 'frozen', args: ['--presence-ttl', '1s'] });
    await startWorker({ fleet, name: 'other' });
    const worker = async () => (await workersOf(client(), fleet)).find(({ name }) => name === 'frozen');
    frozen.signal('SIGSTOP');
    // Not merely overdue: the workflow of the worker has noted it.
    await eventually(async () => (await worker())?.reason === 'its presence timed out', { what: 'it is lost' });
    const before = frozen.events.length;
    frozen.signal('SIGCONT');
    await frozen.event('returned', () => true, { after: before });
    await eventually(async () => (await worker())?.state === 'ready', { what: 'it is ready again' });
  });

  it('that stops lets its sessions end first, takes none meanwhile, and shows as stopped', async () => {
    const fleet = uniqueFleet();
    const stopping = await startWorker({ fleet, name: 'stopping' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', { holdMs: 3_000, log });
    await eventually(async () => (await lines(log)).length === 1, { what: 'the pinned step' });
    await startWorker({ fleet, name: 'other' });
    stopping.signal('SIGTERM');
    await stopping.event('stop');
    const meanwhile = await runWorkflow<Sequence>(client(), fleet, 'sequence');
    expect(meanwhile.before.worker).toBe('other');
    expect(await handle.result()).toMatchObject({ attempt: 1, after: { worker: 'stopping' } });
    expect(await stopping.exited).toMatchObject({ code: 0 });
    const states = (await workersOf(client(), fleet)).map(({ name, state }) => `${name} ${state}`);
    expect(states).toEqual(['other ready', 'stopping stopped']);
  });

  it('that stops with a session over its grace leaves it to the next start', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, args: ['--grace', '500ms'] });
    await startWorker({ fleet, name: 'runs-workflows', args: ['--max-sessions', '1'] });
    // The survivor is full, so that the sessions of this test are held by the worker that stops.
    const filler = await eventually(async () => {
      const handle = await startWorkflow(client(), fleet, 'holder');
      const session = await eventually(
        async () => (await sessionsOf(client(), fleet)).find(({ workflowId }) => workflowId === handle.workflowId),
        { what: 'a session' },
      );
      if (session.worker === 'runs-workflows') return handle;
      await handle.signal('finish');
      await handle.result();
      return undefined;
    });
    const kept = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 2, { what: 'both sessions' });
    worker.signal('SIGTERM');
    await worker.event('sessions-remain');
    await worker.exited;
    const again = await restartWorker(worker);
    await again.event('resume');
    await kept.signal('finish');
    expect(await kept.result()).toMatchObject({ worker: 'worker-1', attempt: 1 });
    await filler.signal('finish');
    await filler.result();
  });

  it('is refused while another live one has its name, and takes the name over once that one is lost', async () => {
    const fleet = uniqueFleet();
    const args = ['--presence-ttl', '1s'];
    const first = await startWorker({ fleet, name: 'twin', args });
    const refused = await spawnWorker({ fleet, name: 'twin', args });
    const { code } = await refused.exited;
    expect(code).toBe(6);
    expect(refused.plainOutput).toContain('The name twin is held by another live worker of the fleet');
    await first.killAll();
    const second = await startWorker({ fleet, name: 'twin', args });
    expect(await second.event('take-over')).toMatchObject({ name: 'twin' });
    await eventually(
      async () => {
        const workers = await workersOf(client(), fleet);
        return workers.length === 1 && workers[0]?.state === 'ready' && workers[0].pid === second.pid;
      },
      { what: 'the second is the only one' },
    );
    expect(await runWorkflow<Sequence>(client(), fleet, 'sequence')).toMatchObject({ attempt: 1 });
  });

  it('does not share its state directory with a second atlasd', async () => {
    const fleet = uniqueFleet();
    const first = await startWorker({ fleet });
    const second = await spawnWorker({ fleet, stateDirectory: first.stateDirectory });
    const { code } = await second.exited;
    expect(code).toBe(6);
    expect(second.plainOutput).toContain(String(first.pid));
    expect(second.plainOutput).toContain(first.stateDirectory);
    expect(await runWorkflow<Sequence>(client(), fleet, 'sequence')).toMatchObject({ attempt: 1 });
  });

  it('sweeps scratch directories without a session at its start', async () => {
    const stateDirectory = await temporaryDirectory();
    const first = await startWorker({ stateDirectory });
    await first.stop();
    const orphan = join(stateDirectory, 'scratch', 'aaaa.bbbb');
    await mkdir(orphan, { recursive: true });
    await writeFile(join(orphan, 'left'), 'over');
    const again = await restartWorker(first);
    expect(await again.event('sweep')).toMatchObject({ orphans: ['aaaa.bbbb'] });
    expect(existsSync(orphan)).toBe(false);
  });

  it('ends with a clear error and leaves no process when a module can not be loaded', async () => {
    const worker = await spawnWorker({ args: ['--activities', '/nonexistent/activities.js'] });
    const { code } = await worker.exited;
    expect(code).toBe(1);
    expect(await lines(join(worker.stateDirectory, 'ledger'))).not.toEqual([]);
    expect(worker.transcript()).toContain('/nonexistent/activities.js');
    expect(worker.processes()).toEqual([]);
  });
});
