/** Sessions held inside a user's own process, by the plugin: real programs, real signals, and what they left behind. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory } from '../support/atlasd.js';
import { runAtlas } from '../support/cli.js';
import { restartEmbedded, spawnEmbedded, startEmbedded } from '../support/embedded.js';
import { eventually, runWorkflow, startWorkflow, untilScratchIsEmpty, workersOf } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { activitiesOf } from '../support/history.js';
import { linesOf, untilLine } from '../support/promises.js';
import { useClient } from '../support/server.js';

interface Sequence {
  readonly before: { readonly worker: string; readonly pid: number };
  readonly after: { readonly worker: string; readonly pid: number };
  readonly attempt: number;
  readonly state: string;
}

/**
 * A start on a busy machine takes longer than the default; a worker that was missed meanwhile is asked by the owners of its
 * sessions, and may refuse an attempt.
 */
const NOT_MISSED = ['--presence-ttl', '1m'];

/** Until an activity has written that it began; the list of sessions is too old to show a step that is short. */
async function untilBegun(log: string): Promise<void> {
  await eventually(async () => (await readFile(log, 'utf8').catch(() => '')).startsWith('begin '), {
    what: 'the step has begun',
  });
}

describe('a worker inside a process of its user', () => {
  const client = useClient();

  it('runs pinned and pooled activities there, within its cap, and frees slot and scratch', async () => {
    const fleet = uniqueFleet();
    const worker = await startEmbedded({
      fleet,
      name: 'mine',
      capabilities: ['gpu'],
      args: ['--max-sessions', '1'],
    });
    const result = await runWorkflow<Sequence>(client(), fleet, 'sequence', { session: { capabilities: ['gpu'] } });
    expect(result).toMatchObject({ attempt: 1, state: 'by attempt 1', before: { worker: 'mine', pid: worker.pid } });
    expect(result.after).toEqual(result.before);
    expect(await runWorkflow(client(), fleet, 'pooledCall', {})).toBe('mine');
    expect(await runWorkflow(client(), fleet, 'pooledCall', { capabilities: ['gpu'] })).toBe('mine');
    expect(await runWorkflow(client(), fleet, 'workerCall')).toBe('mine');
    // A second holder at the same time would find the file there.
    const path = join(await temporaryDirectory(), 'file');
    const holders = await Promise.all(
      Array.from({ length: 4 }, () => startWorkflow(client(), fleet, 'exclusiveHolder', { path, ms: 300 })),
    );
    await Promise.all(holders.map((holder) => holder.result()));
    await untilScratchIsEmpty(worker);
    const isReady = async () => {
      const workers = await workersOf(client(), fleet);
      return workers.every(({ state }) => state === 'ready') && workers;
    };
    expect(await eventually(isReady, { what: 'its presence is not late' })).toMatchObject([
      { name: 'mine', state: 'ready', cap: 1, pid: worker.pid, embedded: true, executor: { state: 'ready' } },
    ]);
  });

  it('ends a running session at SIGTERM, serves it until then, and resolves run()', async () => {
    const fleet = uniqueFleet();
    const worker = await startEmbedded({ fleet, name: 'mine' });
    const log = join(await temporaryDirectory(), 'log');
    // Nobody else could run its workflow, or its last two steps.
    const handle = await startWorkflow(client(), fleet, 'sequence', { holdMs: 4_000, log });
    await untilBegun(log);
    worker.signal('SIGTERM');
    expect(await worker.exited).toEqual({ code: 0, signal: null });
    expect(worker.events.some(({ event }) => event === 'run-ended')).toBe(true);
    expect(await handle.result()).toMatchObject({ attempt: 1, after: { pid: worker.pid } });
    expect((await workersOf(client(), fleet)).map(({ state }) => state)).toEqual(['stopped']);
  });

  it('goes on with its sessions after kill -9, and redoes no step', async () => {
    const fleet = uniqueFleet();
    const worker = await startEmbedded({ fleet, name: 'mine', args: NOT_MISSED });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'writer', { log, wait: true });
    // Its end is known to the server: a step whose result was lost with the process would be attempted again.
    await eventually(
      async () => (await activitiesOf(handle)).some(({ type, outcome }) => type === 'write' && outcome === 'completed'),
      { what: 'the first step' },
    );
    await worker.kill();
    const again = await restartEmbedded(worker, { args: NOT_MISSED });
    await again.event('resume');
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ attempt: 1, worker: 'mine' });
    const begun = (await linesOf(log)).filter(({ what }) => what === 'begin');
    expect(begun.map(({ label, pid }) => `${label} ${pid}`)).toEqual([
      `1:first ${worker.pid}`,
      `1:middle ${again.pid}`,
      `1:last ${again.pid}`,
    ]);
  });

  it('has the step that a kill interrupted attempted again at once, and no other', async () => {
    const fleet = uniqueFleet();
    const worker = await startEmbedded({ fleet, name: 'mine', args: NOT_MISSED });
    const log = join(await temporaryDirectory(), 'log');
    // Its heartbeat would be missed after 100 s only.
    const handle = await startWorkflow(client(), fleet, 'writer', { log, ms: 5_000 });
    await untilLine(log, '1:middle');
    await worker.kill();
    await restartEmbedded(worker, { args: NOT_MISSED });
    expect(await handle.result()).toMatchObject({ attempt: 1, worker: 'mine' });
    const begun = (await linesOf(log)).filter(({ what }) => what === 'begin').map(({ label }) => label);
    expect(begun).toEqual(['1:first', '1:middle', '1:middle', '1:last']);
    const [first, middle, last] = (await activitiesOf(handle)).filter(({ type }) => type === 'write');
    expect([first!.attempt, last!.attempt]).toEqual([1, 1]);
    // One that comes while the restarted worker still registers may be put off, and is no more than an attempt that never began.
    expect(middle!.attempt).toBeGreaterThanOrEqual(2);
    expect(middle!.closedAtMs! - middle!.scheduledAtMs).toBeLessThan(100_000);
  });

  it('beside a Worker on another queue is drained by the command, which resolves its run()', async () => {
    const fleet = uniqueFleet();
    const taskQueue = `Own-Queue-${fleet}`;
    const worker = await startEmbedded({ fleet, name: 'mine', args: ['--task-queue', taskQueue] });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), taskQueue, 'sequence', { session: { fleet }, holdMs: 4_000, log });
    await untilBegun(log);
    const drained = await runAtlas(['drain', 'mine', '--wait', '--stop', '--fleet', fleet], {
      env: { ATLAS_OPERATOR: 'ops@bastion' },
    });
    expect(drained, drained.stderr).toMatchObject({ exit: 0 });
    expect(await handle.result()).toMatchObject({ attempt: 1, after: { pid: worker.pid } });
    expect(await worker.exited).toEqual({ code: 0, signal: null });
  });

  it('rejects run() when its directory is used, or its name is held, by another', async () => {
    const fleet = uniqueFleet();
    // Not lost, and its name free, while the two others start; a conflict is told after this and four seconds.
    const args = ['--presence-ttl', '5s'];
    const first = await startEmbedded({ fleet, name: 'twin', args });
    const [sameDirectory, sameName] = await Promise.all([
      spawnEmbedded({ fleet, name: 'twin', stateDirectory: first.stateDirectory, args }),
      spawnEmbedded({ fleet, name: 'twin', args }),
    ]);
    expect(await sameDirectory.event('run-failed')).toMatchObject({ code: 'StateDirLocked' });
    expect(await sameName.event('run-failed')).toMatchObject({ code: 'NameConflict' });
    // The connections could be closed, so nothing is left that keeps the program alive.
    expect((await Promise.all([sameDirectory.exited, sameName.exited])).map(({ code }) => code)).toEqual([3, 3]);
  });
});
