/** `atlasd reload` on real workers: new code under load, and what is not changed where it does not go well. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { ReloadResult } from '../../src/contract/local.js';
import { type Atlasd, restartAtlasd, startAtlasd, temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, startWorkflow, workersOf } from '../support/fixtures.js';
import { activitiesOf, historyOf } from '../support/history.js';
import { labelsOf, linesOf, untilAllFree, untilLine } from '../support/promises.js';
import { connectTestClient, startPrivateServer, temporalEnvironment } from '../support/server.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));
const FIXTURES = new URL('../fixtures/user/activities.js', import.meta.url).href;

const ENDED_MEANWHILE = expect.stringMatching(/ended during the reload\..*goes on with its sessions/s) as string;

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
    public atlasd: Atlasd,
    private readonly path: string,
    private readonly args: readonly string[],
  ) {}

  static async start(
    address: string,
    fleet: string,
    name: string,
    args: readonly string[] = [],
    code = moduleOf(1),
  ): Promise<Deployed> {
    const path = join(await temporaryDirectory(), 'activities.mjs');
    await writeFile(path, code);
    const all = ['--activities', path, '--workflows', inject('fixtureWorkflows'), ...args];
    return new Deployed(await startAtlasd({ address, fleet, name, args: all }), path, all);
  }

  /** After a kill: the same worker, with the code that is deployed now. */
  async restart(): Promise<void> {
    this.atlasd = await restartAtlasd(this.atlasd, { args: this.args });
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

/** With this code a step that writes for long takes no time where an attempt of it has begun before. */
const HASTY_MODULE = `${moduleOf(1)}
import { readFileSync } from 'node:fs';
import { write as writeFor } from ${JSON.stringify(FIXTURES)};
export async function write(log, label, ms, mode) {
  const isRetried = label.endsWith('middle') && readFileSync(log, 'utf8').includes(label);
  await writeFor(log, label, isRetried ? 0 : ms, mode);
}
`;

/** The executors that this atlasd has started, in that order. */
function executorsOf({ events }: Atlasd): number[] {
  return events.filter(({ event }) => event === 'executor-start').map(({ pid }) => Number(pid));
}

/** The executors of an atlasd that are there, stopped or not. */
function livingOf(atlasd: Atlasd): number[] {
  const living = new Set(atlasd.processes().map(({ pid }) => pid));
  return executorsOf(atlasd).filter((pid) => living.has(pid));
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

  it('is taken up by a restart where it is killed with two executors at work', { timeout: 240_000 }, async () => {
    const fleet = uniqueFleet();
    const worker = await Deployed.start(server.address, fleet, 'a', [], HASTY_MODULE);
    const directory = await temporaryDirectory();
    const logs = (name: string) => join(directory, name);
    const writing = (name: string, wait: boolean) =>
      startWorkflow(client(), fleet, 'writer', { log: logs(name), ms: 90_000, wait });
    const remembered = async (): Promise<string[]> =>
      (await readFile(logs('memory'), 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');

    const idle = await startWorkflow(client(), fleet, 'holder');
    const old = await writing('old', false);
    await untilLine(logs('old'), '1:middle');
    const reloading = worker.reload();
    await worker.atlasd.event('reload', ({ step, attempts }) => step === 'retiring' && attempts === 1);
    // Granted in the memory of the new one once the last polls of the old one have come back.
    const inMemory = await startWorkflow(client(), fleet, 'remembering', {
      session: { state: 'memory' },
      log: logs('memory'),
    });
    const young = await writing('young', true);
    await eventually(async () => (await remembered()).length === 1);
    await young.signal('resume');
    await untilLine(logs('young'), '1:middle');
    const { atlasd } = worker;
    const executors = executorsOf(atlasd);
    const pids = await Promise.all(['old', 'young'].map(async (name) => (await linesOf(logs(name))).at(-1)?.pid));
    expect(pids).toEqual(executors);

    // They would end themselves, so they stand still while their supervisor dies.
    for (const pid of executors) process.kill(-pid, 'SIGSTOP');
    atlasd.killed = true;
    const gone = once(atlasd.child, 'exit');
    atlasd.signal('SIGKILL');
    // Not `exited`, for which its children must have closed their output.
    await gone;
    expect(livingOf(atlasd)).toEqual(executors);
    expect(await reloading).toMatchObject({ exit: 4, stderr: ENDED_MEANWHILE });
    await worker.restart();
    expect(livingOf(atlasd)).toEqual([]);

    await inMemory.signal('resume');
    expect(await inMemory.result()).toMatchObject({ text: 'attempt 2', attempt: 2 });
    expect(await remembered()).toEqual(['remembered attempt 1', 'remembered attempt 2', 'disposed attempt 2']);
    await idle.signal('finish');
    for (const handle of [idle, old, young]) {
      expect(await handle.result()).toMatchObject({ attempt: 1 });
      expect((await historyOf(client(), handle.workflowId)).grants).toHaveLength(1);
    }
    expect((await historyOf(client(), inMemory.workflowId)).grants).toHaveLength(2);
    for (const name of ['old', 'young']) {
      const lines = await linesOf(logs(name));
      expect(labelsOf(lines, 'begin')).toEqual(['1:first', '1:middle', '1:middle', '1:last']);
      // Nothing of the first attempt comes after the second has begun.
      const attempts = lines.filter(({ label }) => label === '1:middle').map(({ attempt }) => attempt);
      expect(attempts).toEqual(attempts.toSorted((one, other) => one - other));
    }
    await untilAllFree(client(), fleet);
    await eventually(async () => (await readdir(join(worker.atlasd.stateDirectory, 'scratch'))).length === 0);
    expect(livingOf(worker.atlasd)).toHaveLength(1);
  });
});
