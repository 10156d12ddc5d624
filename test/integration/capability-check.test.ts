/** Capabilities that a real atlasd checks: what waits while a check fails, what goes on, and what an operator sees. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { WorkflowFailedError } from '@temporalio/client';
import { findError } from '../../src/contract/errors.js';
import { FleetClient } from '../../src/fleet/client.js';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { runAtlas } from '../support/cli.js';
import { eventually, runWorkflow, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { activitiesOf } from '../support/history.js';
import { until } from '../support/processes.js';
import { useClient } from '../support/server.js';

describe('a checked capability', () => {
  const client = useClient();

  /** A worker whose gpu can be used while a file is there. */
  async function checkedWorker(): Promise<{ worker: Atlasd; path: string }> {
    const path = join(await temporaryDirectory(), 'driver');
    const check = `gpu=test -e ${path} || { echo no driver, no gpu >&2; exit 3; }`;
    const worker = await startWorker({
      capabilities: ['gpu', 'ocr'],
      args: ['--capability-check', check, '--capability-check-interval', '1s'],
    });
    return { worker, path };
  }

  const withdrawn = (worker: Atlasd, after = 0) =>
    worker.event('capability-withdrawn', ({ capability }) => capability === 'gpu', { after });

  it('is withdrawn while its check fails: sessions that ask for it wait, others and those that are held go on', async () => {
    const { worker, path } = await checkedWorker();
    const { fleet } = worker;
    expect(await withdrawn(worker)).toMatchObject({ reason: 'its check ended with exit code 3: no driver, no gpu' });

    const refused: unknown = await runWorkflow(client(), fleet, 'sequence', {
      session: { capabilities: ['gpu'], acquireTimeout: '1s' },
    }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(WorkflowFailedError);
    expect(findError(refused)).toMatchObject({
      code: 'AcquireTimeout',
      message: expect.stringContaining('with the capabilities "gpu"') as string,
    });
    for (const capabilities of [[], ['ocr']])
      expect(await runWorkflow(client(), fleet, 'sequence', { session: { capabilities } })).toMatchObject({
        attempt: 1,
      });

    // What an operator sees.
    const [record] = await eventually(
      async () => {
        const workers = await workersOf(client(), fleet);
        return workers[0]?.withdrawn.length === 1 && workers;
      },
      { what: 'the presence that says so' },
    );
    expect(record).toMatchObject({
      state: 'ready',
      capabilities: ['gpu', 'ocr'],
      withdrawn: [{ capability: 'gpu', reason: 'its check ended with exit code 3: no driver, no gpu' }],
    });
    const { stdout } = await runAtlas(['workers', 'ls', '--fleet', fleet]);
    expect(stdout).toMatch(/gpu!,ocr .*gpu: its check ended with exit code 3/);
    const view = new FleetClient(client(), { fleet });
    // The end of the sessions from before may not be in the presence yet.
    const pools = await eventually(
      async () => {
        const look = await view.look();
        return look.sessions.length === 0 && (await view.listPools(look));
      },
      { what: 'all slots free' },
    );
    expect(pools.map(({ pool, freeSlots, reason }) => [pool, freeSlots, reason])).toEqual([
      ['any', 4, null],
      ['gpu', 0, 'gpu withdrawn on every worker that takes sessions'],
      ['ocr', 4, null],
      ['gpu+ocr', 0, 'gpu withdrawn on every worker that takes sessions'],
    ]);

    const log = join(await temporaryDirectory(), 'log');
    const waiting = await startWorkflow(client(), fleet, 'writer', {
      session: { capabilities: ['gpu'] },
      log,
      wait: true,
    });
    await writeFile(path, '');
    await worker.event('capability-restored');
    await worker.event('grant', ({ owner }) => owner === waiting.workflowId);
    const after = worker.events.length;
    await rm(path);
    await withdrawn(worker, after);
    await waiting.signal('resume');
    expect(await waiting.result()).toEqual({ attempt: 1, worker: worker.name });
  });

  it('is withdrawn for pooled activities, and one whose poll was out is refused and tried again', async () => {
    const { worker, path } = await checkedWorker();
    const { fleet } = worker;
    await withdrawn(worker);
    const gpu = { capabilities: ['gpu'], timeout: '90s' };
    const waiting = await startWorkflow(client(), fleet, 'pooledCall', gpu);
    await eventually(async () => (await activitiesOf(waiting)).length === 1, { what: 'the call that waits' });
    expect(await runWorkflow(client(), fleet, 'pooledCall', { capabilities: ['ocr'] })).toBe(worker.name);
    expect(await activitiesOf(waiting)).toMatchObject([{ queue: `${fleet}-gpu`, outcome: 'open' }]);
    const restoredAtMs = Date.now();
    await writeFile(path, '');
    expect(await waiting.result()).toBe(worker.name);
    const [first] = await activitiesOf(waiting);
    expect(first!.startedAtMs).toBeGreaterThanOrEqual(restoredAtMs);
    expect(first!.attempt).toBe(1);

    // The queue is polled again; that poll takes the next task although the capability is withdrawn.
    const after = worker.events.length;
    await rm(path);
    await withdrawn(worker, after);
    const polled = await startWorkflow(client(), fleet, 'pooledCall', gpu);
    await eventually(
      async () => {
        const { raw } = await polled.describe();
        return raw.pendingActivities?.some(
          ({ lastFailure }) => lastFailure?.applicationFailureInfo?.type === 'CapabilityWithdrawn',
        );
      },
      { what: 'the refusal' },
    );
    await writeFile(path, '');
    expect(await polled.result()).toBe(worker.name);
    expect(await activitiesOf(polled)).toMatchObject([{ attempt: 2, outcome: 'completed' }]);
  });

  it('is withdrawn when its check hangs, which is killed with what it has started', async () => {
    const hanging = await startWorker({
      capabilities: ['gpu'],
      args: ['--capability-check', 'gpu=sleep 301 & sleep 302', '--capability-check-timeout', '500ms'],
    });
    expect(await withdrawn(hanging)).toMatchObject({ reason: 'its check did not end within 500ms' });
    expect(hanging.processes().filter(({ command }) => /^sleep 30/.test(command))).toEqual([]);
    expect(await runWorkflow(client(), hanging.fleet, 'sequence')).toMatchObject({ attempt: 1 });
  });

  it('is not waited for by a stop, which ends the check', async () => {
    const worker = await startWorker({
      capabilities: ['gpu'],
      args: ['--capability-check', 'gpu=sleep 303 & sleep 304', '--capability-check-timeout', '5m'],
    });
    await until('the check runs', () => {
      const sleeping = worker.processes().filter(({ command }) => /^sleep 30/.test(command));
      return sleeping.length === 2;
    });
    // Far less than the check may take.
    expect(await worker.stop(60_000)).toBe(0);
    expect(worker.processes()).toEqual([]);
  });
});
