/** Sessions whose state is in the memory of the executor, on real workers: lost with it, and given back at their end. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { findError } from '../../src/contract/errors.js';
import { type Atlasd, temporaryDirectory } from '../support/atlasd.js';
import { runAtlas } from '../support/cli.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, restartWorker, runWorkflow, sessionsOf, startWorker, startWorkflow } from '../support/fixtures.js';
import { activitiesOf } from '../support/history.js';
import { useClient } from '../support/server.js';

/** The activities of the user that the server has seen, with the number of the attempt that ended each. */
async function stepsOf(handle: WorkflowHandle): Promise<[type: string, attempt: number | undefined][]> {
  const activities = await activitiesOf(handle);
  return activities.filter(({ type }) => !type.startsWith('atlas:')).map(({ type, attempt }) => [type, attempt]);
}

async function untilFirstStepIsDone(handle: WorkflowHandle): Promise<void> {
  await eventually(
    async () =>
      (await activitiesOf(handle)).some(({ type, outcome }) => type === 'remember' && outcome === 'completed'),
    { what: 'the end of the first step' },
  );
}

/** The newest executor that a worker has said it started. */
function executorOf(worker: Atlasd): { pid: number; incarnation: string } {
  return worker.events.filter(({ event }) => event === 'executor-start').at(-1) as unknown as {
    pid: number;
    incarnation: string;
  };
}

async function linesOf(path: string): Promise<string[]> {
  return existsSync(path) ? (await readFile(path, 'utf8')).trimEnd().split('\n') : [];
}

describe('a session in memory', () => {
  const client = useClient();

  it('is redone after the end of its executor between two steps, and one whose state is on disk is not', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a' });
    const log = join(await temporaryDirectory(), 'log');
    const [inMemory, onDisk] = await Promise.all(
      (['memory', 'disk'] as const).map((state) =>
        startWorkflow(client(), fleet, 'remembering', { session: { state }, log }),
      ),
    );
    await Promise.all([untilFirstStepIsDone(inMemory!), untilFirstStepIsDone(onDisk!)]);
    const before = executorOf(worker);
    const after = worker.events.length;
    process.kill(before.pid, 'SIGKILL');
    await worker.event('executor-start', undefined, { after });
    await Promise.all([inMemory!.signal('resume'), onDisk!.signal('resume')]);
    const now = executorOf(worker);
    expect(now.incarnation).not.toBe(before.incarnation);
    expect(await onDisk!.result()).toMatchObject({ text: 'attempt 1', attempt: 1, pid: now.pid });
    expect(await inMemory!.result()).toMatchObject({ text: 'attempt 2', attempt: 2, pid: now.pid });
    expect(await stepsOf(onDisk!)).toEqual([
      ['remember', 1],
      ['recall', 1],
    ]);
    const steps = await stepsOf(inMemory!);
    // The second step may have been asked for in the session that was lost.
    expect(steps.filter(([type]) => type === 'remember')).toEqual([
      ['remember', 1],
      ['remember', 1],
    ]);
    expect(steps.at(-1)).toEqual(['recall', 1]);
    // What was in the memory that is gone could not be disposed; what came after it was, before the release was answered.
    expect(await linesOf(log)).toEqual(['remembered attempt 1', 'remembered attempt 2', 'disposed attempt 2']);
  });

  it('fails with what has happened where it is not to be redone, and with a restart of atlasd as well', async () => {
    const fleet = uniqueFleet();
    // The next start takes longer than the default on a busy machine: a worker that was missed is asked by its owners.
    const args = ['--presence-ttl', '1m'];
    const worker = await startWorker({ fleet, name: 'a', args });
    const log = join(await temporaryDirectory(), 'log');
    const lost = await startWorkflow(client(), fleet, 'remembering', {
      session: { state: 'memory', onLost: 'fail' },
      log,
    });
    const kept = await startWorkflow(client(), fleet, 'remembering', { log });
    await Promise.all([untilFirstStepIsDone(lost), untilFirstStepIsDone(kept)]);
    await worker.kill();
    await restartWorker(worker, { args });
    const error: unknown = await lost.result().catch((reason: unknown) => reason);
    expect(findError(error)).toMatchObject({
      code: 'SessionLost',
      message: expect.stringContaining('The executor of the worker was restarted, and the state') as string,
    });
    await kept.signal('resume');
    expect(await kept.result()).toMatchObject({ text: 'attempt 1', attempt: 1 });
  });

  it('is redone at once when its worker stops, which one on disk would wait for', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a', args: ['--grace', '1s'] });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'remembering', { session: { state: 'memory' }, log });
    await untilFirstStepIsDone(handle);
    await startWorker({ fleet, name: 'b' });
    await a.stop();
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ text: 'attempt 2', attempt: 2, worker: 'b' });
    const [lease] = await activitiesOf(handle);
    expect(lease).toMatchObject({ type: 'atlas:acquireWorker', outcome: 'failed' });
  });

  it('keeps its memory over runs of its workflow, is shown to operators, and gives it back at its end', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'remembering', {
      session: { state: 'memory' },
      log,
      runs: 3,
    });
    await untilFirstStepIsDone(handle);
    const session = await eventually(
      async () => (await sessionsOf(client(), fleet)).find(({ workflowId }) => workflowId === handle.workflowId),
      { what: 'the session' },
    );
    expect(session.localState).toBe('memory');
    const shown = await runAtlas(['sessions', 'show', session.session, '--fleet', fleet]);
    expect(shown.stdout).toContain('in the memory of the executor: the session is lost when that ends');
    const listed = await runAtlas(['sessions', 'ls', '-o', 'wide', '--fleet', fleet]);
    expect(listed.stdout).toMatch(/LOCAL STATE[\s\S]* memory /);
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ text: 'attempt 1', attempt: 1, pid: executorOf(worker).pid });
    expect(await linesOf(log)).toEqual(['remembered attempt 1', 'disposed attempt 1']);

    // One whose state is on disk has none, and is told what to ask for.
    const error: unknown = await runWorkflow(client(), fleet, 'one', { activity: 'readMemory' }).catch(
      (reason: unknown) => reason,
    );
    expect(findError(error)).toMatchObject({
      code: 'NoSessionMemory',
      next: expect.stringContaining("`state: 'memory'`") as string,
    });
  });
});
