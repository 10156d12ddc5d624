/**
 * Each example as it is in `examples/`, on real workers, with the failure that it is there to survive. What happened is
 * read from the server's history.
 */
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { bundleWorkflowCode } from '@temporalio/worker';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it, onTestFinished } from 'vitest';
import { FleetClient } from '../../src/fleet/client.js';
import { startAtlasd, temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { eventually, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { activitiesOf } from '../support/history.js';
import { temporalEnvironment, useClient } from '../support/server.js';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
/**
 * So that a dead worker is given up after some seven seconds, one that dies right after its grant after some more, and one
 * that only gets no processor for three seconds not at all.
 */
const PRESENCE = ['--presence-ttl', '3s'];
const SESSION = { recoveryWindow: '4s', leaseTtl: '8s' };

describe('the example', () => {
  const client = useClient();

  /** Two workers that serve an example, the workflows bundled once. */
  async function workersOf(example: string): Promise<{ fleet: string; workers: Map<string, Atlasd> }> {
    const fleet = uniqueFleet('e');
    const bundle = join(await temporaryDirectory(), 'workflows.bundle.js');
    const logger = { log: quiet, trace: quiet, debug: quiet, info: quiet, warn: console.warn, error: console.error };
    const workflowsPath = join(EXAMPLES, example, 'workflows.js');
    await writeFile(bundle, (await bundleWorkflowCode({ workflowsPath, logger })).code);
    const args = ['--activities', join(EXAMPLES, example, 'activities.js'), '--workflows', bundle, ...PRESENCE];
    const started = await Promise.all(['a', 'b'].map((name) => startAtlasd({ fleet, name, args })));
    return { fleet, workers: new Map(started.map((worker) => [worker.name, worker])) };
  }

  /** The worker on whose queue this step waits or runs, the `nth` of its type. */
  async function workerAt(handle: WorkflowHandle, activity: string, nth = 1): Promise<string> {
    return await eventually(
      async () => {
        const step = (await activitiesOf(handle)).filter(({ type }) => type === activity)[nth - 1];
        return step?.outcome === 'open' ? /-([^-.]+)\.[^.]+$/.exec(step.queue)?.[1] : undefined;
      },
      { what: `${activity} is scheduled` },
    );
  }

  /** How often each activity of the user was scheduled. */
  async function scheduled(handle: WorkflowHandle): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { type } of await activitiesOf(handle)) {
      if (!type.startsWith('atlas:')) counts[type] = (counts[type] ?? 0) + 1;
    }
    return counts;
  }

  const other = (worker: string): string => (worker === 'a' ? 'b' : 'a');

  it('of a document is downloaded and read anew where its worker is lost', async () => {
    const { fleet, workers } = await workersOf('document');
    const pdf = await readFile(join(EXAMPLES, 'sample.pdf'));
    const stalled: ServerResponse[] = [];
    const server = createServer((_, response) => {
      response.writeHead(200, { 'content-length': pdf.length });
      if (stalled.length > 0) response.end(pdf);
      else {
        stalled.push(response);
        response.write(pdf.subarray(0, pdf.length / 2));
      }
    });
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/sample.pdf`;

    const handle = await startWorkflow(client(), fleet, 'readDocument', { url, session: SESSION });
    await eventually(() => Promise.resolve(stalled.length > 0), { what: 'the download has begun' });
    const dead = await workerAt(handle, 'download');
    await workers.get(dead)!.killAll();

    expect(await handle.result()).toMatchObject({
      bytes: pdf.length,
      pages: 5,
      summary: [{ page: 1 }, { page: 2 }, { page: 4 }],
      worker: other(dead),
      attempt: 2,
    });
    expect(await scheduled(handle)).toEqual({ download: 2, readPages: 1, summarise: 1 });
  });

  it('of a warm model loads it again when the executor that held it has ended', async () => {
    const { fleet, workers } = await workersOf('warm-model');
    const handle = await startWorkflow(client(), fleet, 'completeWords', { session: SESSION });
    await handle.signal('nextWord', 'tide');
    const first = await eventually(
      async () =>
        (await activitiesOf(handle)).find(({ type, outcome }) => type === 'complete' && outcome === 'completed'),
      { what: 'the first answer' },
    );
    const holder = [...workers.values()].find((worker) => first.queue.startsWith(`${fleet}-${worker.name}.`))!;
    const { pid } = await holder.event('executor-start');
    process.kill(pid as number, 'SIGKILL');
    // The owner knows: a word that comes before would still be asked of the session that is lost, in vain.
    await eventually(async () => (await scheduled(handle))['loadModel'] === 2, { what: 'the model is loaded again' });
    await handle.signal('nextWord', 'harbour');
    await handle.signal('finish');

    expect(await handle.result()).toMatchObject({
      answers: ['tide sets the tide sets', 'harbour master gives the tide'],
      attempt: 2,
    });
    expect(await scheduled(handle)).toEqual({ loadModel: 2, complete: 2 });
  });

  it('of a checked-out repository reports a check that fails, and checks out anew where its worker is lost', async () => {
    const repository = await temporaryDirectory();
    const git = async (...args: string[]): Promise<string> => {
      const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@localhost'];
      return (await promisify(execFile)('git', [...identity, ...args], { cwd: repository })).stdout.trim();
    };
    await git('init', '--quiet');
    await writeFile(join(repository, 'greeting.txt'), 'hello\n');
    await git('add', '.');
    await git('commit', '--quiet', '-m', 'Greet');
    const commit = await git('rev-parse', 'HEAD');

    const { fleet, workers } = await workersOf('checked-out-repository');
    const failing = await startWorkflow(client(), fleet, 'checkRepository', {
      url: repository,
      revision: commit,
      checks: [
        ['cat', 'greeting.txt'],
        ['node', '-e', 'console.error("no"); process.exit(3)'],
        ['git', 'status', '--short'],
      ],
      session: SESSION,
    });
    const worker = expect.stringMatching(/^[ab]$/) as unknown;
    const report = (await failing.result()) as { worker: string; results: { worker?: string }[] };
    expect(report).toMatchObject({
      commit,
      attempt: 1,
      worker,
      results: [
        { passed: true, output: 'hello\n', worker: report.worker },
        { passed: false, output: expect.stringContaining('node exited with 3: no') as unknown },
        { passed: true, output: '', worker: report.worker },
      ],
    });
    expect(await scheduled(failing)).toEqual({ checkOut: 1, runIn: 3 });

    const slow = await startWorkflow(client(), fleet, 'checkRepository', {
      url: repository,
      revision: commit,
      checks: [
        ['cat', 'greeting.txt'],
        ['sleep', '6'],
      ],
      session: SESSION,
    });
    const dead = await workerAt(slow, 'runIn', 2);
    await workers.get(dead)!.killAll();
    expect(await slow.result()).toMatchObject({ commit, attempt: 2, worker: other(dead) });
    expect(await scheduled(slow)).toEqual({ checkOut: 2, runIn: 4 });
  });

  it('of a graph of steps runs only the step again that was lost', async () => {
    const { fleet, workers } = await workersOf('step-graph');
    const input = { text: 'The harbour, the tide.', reportMs: 5_000, session: SESSION };
    const handle = await startWorkflow(client(), fleet, 'describeText', input);
    const dead = await workerAt(handle, 'report');
    await workers.get(dead)!.killAll();
    expect(await handle.result()).toEqual({
      text: 'the Hafen the Gezeit',
      distinct: 3,
      workers: { split: dead, translate: dead, count: dead, report: other(dead) },
    });
    expect(await scheduled(handle)).toEqual({ split: 1, translate: 1, count: 1, report: 2 });
  });

  it('of checkpoints runs only the stage again that was lost', async () => {
    const storage = await temporaryDirectory();
    const { fleet, workers } = await workersOf('checkpoints');
    const input = { storage, factors: [2, 3, 5], stageMs: 4_000, session: SESSION };
    const handle = await startWorkflow(client(), fleet, 'longSequence', input);
    const dead = await workerAt(handle, 'transform', 2);
    await workers.get(dead)!.killAll();
    const result = (await handle.result()) as { checkpoint: string; stages: { attempt: number; worker: string }[] };
    expect(result.stages.map(({ attempt }) => attempt)).toEqual([1, 2, 1]);
    expect(result.stages.slice(1).map(({ worker }) => worker)).toEqual([other(dead), other(dead)]);
    expect(JSON.parse(await readFile(join(storage, result.checkpoint), 'utf8'))).toEqual([30, 60, 90]);
    expect(await scheduled(handle)).toEqual({ fetchCheckpoint: 4, transform: 4, saveCheckpoint: 3 });
  });

  it('of a rolling drain takes every worker out of service in turn, and waits for its sessions', async () => {
    const { fleet } = await workersOf('checkpoints');
    const storage = await temporaryDirectory();
    const input = { storage, factors: [2, 3], stageMs: 1_500, session: SESSION };
    const handles = await Promise.all(
      Array.from({ length: 4 }, () => startWorkflow(client(), fleet, 'longSequence', input)),
    );
    // Of the first ones the stage may be over by the time that the last one's has begun.
    for (const handle of handles)
      await eventually(async () => (await scheduled(handle))['transform'] !== undefined, { what: 'its first stage' });
    const { stdout } = await promisify(execFile)(process.execPath, [join(EXAMPLES, 'rolling-drain/roll.js'), fleet], {
      env: temporalEnvironment(),
      timeout: 200_000,
    });
    expect(stdout).toBe('a: drained\nb: drained\n');
    for (const handle of handles)
      expect(await handle.result()).toMatchObject({ stages: [{ attempt: 1 }, { attempt: 1 }] });
    const after = await new FleetClient(client(), { fleet }).listWorkers();
    expect(after.map(({ scheduling }) => scheduling.notes.map(({ action }) => action))).toEqual([
      ['uncordon'],
      ['uncordon'],
    ]);
  });
});

function quiet(): void {
  // The bundler says how long it took.
}
