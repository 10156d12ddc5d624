/** `atlasd reload` on real workers: new code under load, and what is not changed where it does not go well. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { ReloadResult } from '../../src/contract/local.js';
import { type Atlasd, startAtlasd, temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, startWorkflow, workersOf } from '../support/fixtures.js';
import { activitiesOf, historyOf } from '../support/history.js';
import { connectTestClient, startPrivateServer, temporalEnvironment } from '../support/server.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));
const FIXTURES = new URL('../fixtures/user/activities.js', import.meta.url).href;

interface Versions {
  readonly seen: readonly string[];
  readonly attempt: number;
  readonly worker: string;
}

interface Outcome {
  readonly exit: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A worker whose activities are in a file of its own, which can be changed. */
class Deployed {
  private constructor(
    readonly atlasd: Atlasd,
    private readonly path: string,
  ) {}

  static async start(address: string, fleet: string, name: string, args: readonly string[] = []): Promise<Deployed> {
    const path = join(await temporaryDirectory(), 'activities.mjs');
    await writeFile(path, moduleOf(1));
    const modules = ['--activities', path, '--workflows', inject('fixtureWorkflows')];
    return new Deployed(await startAtlasd({ address, fleet, name, args: [...modules, ...args] }), path);
  }

  async deploy(code: string): Promise<void> {
    await writeFile(this.path, code);
  }

  /** `atlasd reload`, with a server that is not there: it must not be asked. */
  async reload(args: readonly string[] = []): Promise<Outcome> {
    const argv = [ATLASD, 'reload', '--state-dir', this.atlasd.stateDirectory, ...args];
    return await new Promise((resolve) => {
      execFile(process.execPath, argv, { env: temporalEnvironment('127.0.0.1:1') }, (error, stdout, stderr) => {
        resolve({ exit: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
  }

  async reloaded(args: readonly string[] = []): Promise<ReloadResult> {
    const outcome = await this.reload([...args, '-o', 'json']);
    expect(outcome, `${outcome.stderr}\n${this.atlasd.transcript()}`).toMatchObject({ exit: 0 });
    return (JSON.parse(outcome.stdout) as { reload: ReloadResult }).reload;
  }
}

function moduleOf(version: number): string {
  return `
export * from ${JSON.stringify(FIXTURES)};
export async function version(ms) {
  await new Promise((resolve) => setTimeout(resolve, ms));
  return 'v${version}';
}
`;
}

describe('atlasd reload', () => {
  // An executor that retires waits for its last polls, which are a minute long where they get nothing.
  let server: Awaited<ReturnType<typeof startPrivateServer>>;
  let connected: Awaited<ReturnType<typeof connectTestClient>>;
  beforeAll(async () => {
    server = await startPrivateServer({ dynamicConfig: ['matching.longPollExpirationInterval="4s"'] });
    connected = await connectTestClient(server.address);
  });
  afterAll(async () => {
    await connected.close();
    await server.stop();
  });
  const client = (): Client => connected.client;

  async function untilStep(handle: WorkflowHandle, count: number): Promise<void> {
    await eventually(
      async () => {
        const steps = (await activitiesOf(handle)).filter(({ type }) => type === 'version');
        return steps.filter(({ outcome }) => outcome === 'completed').length >= count;
      },
      { what: `${count} steps of ${handle.workflowId}` },
    );
  }

  it('loses no session and interrupts no step, three times in a row under load', { timeout: 240_000 }, async () => {
    const fleet = uniqueFleet();
    const workers = await Promise.all([
      Deployed.start(server.address, fleet, 'a'),
      Deployed.start(server.address, fleet, 'b'),
    ]);
    const handles = await Promise.all(
      Array.from({ length: 6 }, (_, index) =>
        startWorkflow(client(), fleet, 'versions', { ms: 1_000 + 200 * (index % 3) }),
      ),
    );
    await Promise.all(handles.map((handle) => untilStep(handle, 1)));
    for (const version of [2, 3, 4]) {
      await Promise.all(workers.map((worker) => worker.deploy(moduleOf(version))));
      const results = await Promise.all(workers.map((worker) => worker.reloaded()));
      for (const result of results) expect(result).toMatchObject({ interruptedAttempts: 0, lostSessions: 0 });
    }
    await Promise.all(handles.map((handle) => handle.signal('finish')));
    for (const handle of handles) {
      const { seen, attempt, worker } = (await handle.result()) as Versions;
      expect(attempt).toBe(1);
      expect(seen.at(0)).toBe('v1');
      expect(seen.at(-1)).toBe('v4');
      // Between these a step may come to either executor while both poll.
      const { activities, grants } = await historyOf(client(), handle.workflowId);
      expect(grants.map((grant) => grant.worker)).toEqual([worker]);
      const steps = activities.filter(({ type }) => type === 'version');
      expect(steps).toHaveLength(seen.length);
      expect(steps.map(({ attempt, outcome }) => [attempt, outcome])).toEqual(seen.map(() => [1, 'completed']));
    }
    // A reload is no restart.
    const shown = await eventually(async () => {
      const list = await workersOf(client(), fleet);
      return list.every(({ state }) => state === 'ready') ? list : undefined;
    });
    expect(shown.map(({ executor }) => executor)).toEqual(shown.map(() => ({ state: 'ready', restarts: 0 })));
  });

  it('changes nothing where the code can not be loaded, or another reload is under way', async () => {
    const fleet = uniqueFleet();
    const worker = await Deployed.start(server.address, fleet, 'a', ['--grace', '5s']);
    const handle = await startWorkflow(client(), fleet, 'versions', { ms: 500 });
    await untilStep(handle, 1);
    await worker.deploy('export async function version( {');
    const failed = await worker.reload();
    expect(failed.exit).toBe(1);
    expect(failed.stderr).toContain('The new executor can not run the code on disk: The activities of');
    expect(failed.stderr).toContain('The executor that runs goes on with the code that it has.');
    await untilStep(handle, 3);

    await worker.deploy(moduleOf(2));
    const after = worker.atlasd.events.length;
    const first = worker.reload();
    await worker.atlasd.event('reload', undefined, { after });
    const second = await worker.reload();
    expect(second).toMatchObject({ exit: 6 });
    expect(second.stderr).toContain('The worker is being reloaded already.');
    expect(await first).toMatchObject({ exit: 0 });
    await handle.signal('finish');
    const { seen, attempt } = (await handle.result()) as Versions;
    expect([seen.at(0), seen.at(-1), attempt]).toEqual(['v1', 'v2', 1]);

    // A step over the grace is attempted again by the new executor, in the same session.
    const long = await startWorkflow(client(), fleet, 'versions', {
      ms: 90_000,
      activity: { heartbeatTimeout: '100s' },
    });
    await eventually(async () =>
      (await sessionsOf(client(), fleet)).some(
        ({ workflowId, step }) => workflowId === long.workflowId && step?.activity === 'version',
      ),
    );
    await worker.deploy(moduleOf(3).replace('setTimeout(resolve, ms)', 'setTimeout(resolve, 0)'));
    expect(await worker.reloaded()).toMatchObject({ interruptedAttempts: 1, lostSessions: 0 });
    await long.signal('finish');
    const result = (await long.result()) as Versions;
    expect([result.seen.at(0), result.attempt]).toEqual(['v3', 1]);
    expect((await activitiesOf(long)).find(({ type }) => type === 'version')).toMatchObject({ attempt: 2 });
  });

  it('waits for sessions in memory, gives up where they do not end, and goes on once they have', async () => {
    const fleet = uniqueFleet();
    const worker = await Deployed.start(server.address, fleet, 'a');
    const log = join(await temporaryDirectory(), 'log');
    const remembering = () => startWorkflow(client(), fleet, 'remembering', { session: { state: 'memory' }, log });
    const held = await remembering();
    await eventually(async () =>
      (await activitiesOf(held)).some(({ type, outcome }) => type === 'remember' && outcome === 'completed'),
    );
    await worker.deploy(moduleOf(2));
    const late = await worker.reload(['--timeout', '500ms']);
    expect(late).toMatchObject({ exit: 3 });
    expect(late.stderr).toContain('One session whose state is in memory has not ended within 500ms.');

    const after = worker.atlasd.events.length;
    const reloading = worker.reloaded();
    await worker.atlasd.event('reload', ({ step }) => step === 'memory', { after });
    // One on disk is granted meanwhile, and runs on the old code; one in memory is not.
    const onDisk = await startWorkflow(client(), fleet, 'versions', { ms: 100 });
    const waiting = await remembering();
    await untilStep(onDisk, 1);
    await held.signal('resume');
    expect(await held.result()).toMatchObject({ text: 'attempt 1', attempt: 1 });
    const { executor } = await reloading;
    await waiting.signal('resume');
    expect(await waiting.result()).toMatchObject({ text: 'attempt 1', attempt: 1, pid: executor.pid });
    await onDisk.signal('finish');
    const { seen } = (await onDisk.result()) as Versions;
    expect([seen.at(0), seen.at(-1)]).toEqual(['v1', 'v2']);

    const lost = await remembering();
    await eventually(async () =>
      (await activitiesOf(lost)).some(({ type, outcome }) => type === 'remember' && outcome === 'completed'),
    );
    expect(await worker.reloaded(['--force'])).toMatchObject({ lostSessions: 1 });
    await lost.signal('resume');
    expect(await lost.result()).toMatchObject({ text: 'attempt 2', attempt: 2 });
  });
});
