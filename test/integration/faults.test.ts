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
import { untilGone } from '../support/processes.js';
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
    const args = ['--presence-ttl', '1m'];
    const worker = await startWorker({ fleet, args });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      session: { leaseTtl: '2m' },
      holdMs: 4_000,
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
    // The interrupted attempt was failed at once, not after its heartbeat timeout of 100 s, and a second one ran; one that
    // comes while the restarted worker still registers may be put off.
    const hold = activities.find(({ type }) => type === 'hold')!;
    expect(hold.outcome).toBe('completed');
    expect(hold.attempt).toBeGreaterThanOrEqual(2);
    expect(hold.closedAtMs! - hold.scheduledAtMs).toBeLessThan(100_000);
    expect(await lines(log)).toEqual(['begin worker-1', 'begin worker-1', 'end worker-1']);
  });

  it('of a worker that never comes back redoes the whole sequence on another', async () => {
    const fleet = uniqueFleet();
    const workers = new Map<string, Atlasd>();
    for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name }));
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      // Not over while the worker only gets no processor.
      session: { leaseTtl: '5s' },
      holdMs: 4_000,
      log,
      activity: { heartbeatTimeout: '100s' },
    });
    // Of the activity itself: the list of sessions is too old to show every step.
    const [begun] = await eventually(async () => (await lines(log)).length > 0 && (await lines(log)), {
      what: 'the pinned step',
    });
    const dead = begun === 'begin a' ? 'a' : 'b';
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
    // The second is completed with a renewal that falls between the release and the end of the workflow.
    expect(leases.map(({ outcome }) => outcome)).toEqual(['timed-out', expect.stringMatching(/^(open|completed)$/)]);
  });

  it('of the executor fails its attempts at once and kills what they had started', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'one', {
      activity: 'withChild',
      args: [log, 4_000],
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
      session: { leaseTtl: '2m' },
      holdMs: 5_000,
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
    // Not over while the survivor starts and this worker gets no processor.
    const session = { leaseTtl: '4s' };
    const holder = await startWorkflow(client(), fleet, 'observeLoss', { session, holdMs: 600_000 });
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
    await eventually(async () => (await lines(log)).length > 0, { what: 'the stubborn activity' });
    await stubborn.cancel();
    await runWorkflow(client(), fleet, 'sequence', { log });
    // The next session's first line comes after the old one's last activity had really ended.
    expect(await lines(log)).toEqual(['stubborn begun', 'stubborn ended', 'begin worker-1', 'end worker-1']);
  });
});

describe('a worker', () => {
  const client = useClient();

  it('that merely idles is listed, is lost when it dies, and is ready again when it returns', async () => {
    const fleet = uniqueFleet();
    const args = ['--presence-ttl', '2s'];
    const idle = await startWorker({ fleet, name: 'idle', args });
    await startWorker({ fleet, name: 'other' });
    const stateOf = async (name: string) => (await workersOf(client(), fleet)).find((worker) => worker.name === name);
    await eventually(async () => (await stateOf('idle'))?.state === 'ready', { what: 'idle is ready' });
    await idle.killAll();
    const lost = await eventually(async () => {
      const worker = await stateOf('idle');
      return worker?.state === 'lost' && worker.reason === 'its presence timed out' ? worker : undefined;
    });
    expect(lost).toMatchObject({ name: 'idle', cap: 4 });
    await restartWorker(idle, { args });
    await eventually(async () => (await stateOf('idle'))?.state === 'ready', { what: 'idle is back' });
  });

  it('that was frozen longer than its presence TTL registers again by itself', async () => {
    const fleet = uniqueFleet();
    const frozen = await startWorker({ fleet, name: 'frozen', args: ['--presence-ttl', '2s'] });
    await startWorker({ fleet, name: 'other' });
    const worker = async () => (await workersOf(client(), fleet)).find(({ name }) => name === 'frozen');
    // It may have been missed, and have returned, while the other one started.
    await eventually(async () => (await worker())?.state === 'ready', { what: 'it is ready' });
    frozen.signal('SIGSTOP');
    // Not merely overdue: the workflow of the worker has noted it.
    await eventually(async () => (await worker())?.reason === 'its presence timed out', {
      what: 'it is lost',
      timeoutMs: 90_000,
    });
    const before = frozen.events.length;
    frozen.signal('SIGCONT');
    await frozen.event('returned', () => true, { after: before });
    await eventually(async () => (await worker())?.state === 'ready', { what: 'it is ready again' });
  });

  it('that stops lets its sessions end first, takes none meanwhile, and shows as stopped', async () => {
    const fleet = uniqueFleet();
    const stopping = await startWorker({ fleet, name: 'stopping' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'remembering', { log });
    await eventually(
      async () =>
        (await activitiesOf(handle)).some(({ type, outcome }) => type === 'remember' && outcome === 'completed'),
      { what: 'the first step' },
    );
    await startWorker({ fleet, name: 'other' });
    stopping.signal('SIGTERM');
    expect(await stopping.event('stop')).toMatchObject({ sessions: 1 });
    const meanwhile = await runWorkflow<Sequence>(client(), fleet, 'sequence');
    expect(meanwhile.before.worker).toBe('other');
    expect(stopping.running).toBe(true);
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ text: 'attempt 1', attempt: 1, worker: 'stopping' });
    expect(await stopping.exited).toMatchObject({ code: 0 });
    const states = async () => (await workersOf(client(), fleet)).map(({ name, state }) => `${name} ${state}`);
    await eventually(async () => (await states()).join() === 'other ready,stopping stopped', {
      what: 'one is ready, and the other has stopped',
    });
  });

  it('that stops with a session over its grace leaves it to the next start', async () => {
    const fleet = uniqueFleet();
    // The next start on a busy machine takes longer than the default, and one that was missed is asked by its owners.
    const presence = ['--presence-ttl', '1m'];
    const worker = await startWorker({ fleet, args: ['--grace', '500ms', ...presence] });
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
    const isKept = ({ workflowId }: { workflowId: string }) => workflowId === kept.workflowId;
    await eventually(async () => (await sessionsOf(client(), fleet)).some(isKept), { what: 'the session' });
    worker.signal('SIGTERM');
    await worker.event('sessions-remain');
    await worker.exited;
    const again = await restartWorker(worker, { args: presence });
    await again.event('resume');
    await kept.signal('finish');
    expect(await kept.result()).toMatchObject({ worker: 'worker-1', attempt: 1 });
    await filler.signal('finish');
    await filler.result();
  });

  it('is refused while another live one has its name, and takes the name over once that one is lost', async () => {
    const fleet = uniqueFleet();
    // Not lost, and its name free, while the second one starts.
    const args = ['--presence-ttl', '5s'];
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
    expect(await untilGone(worker.mark, 30_000)).toEqual([]);
  });
});
