/**
 * A host whose disk or clock fails while it holds a session. The disks are real where this process may mount one, and
 * everywhere they are made to fail at the edge of the process.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { open, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { findError } from '../../src/contract/errors.js';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { canMount, mountDisk, unmountDisk } from '../support/disks.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, spawnWorker, startWorker, startWorkflow } from '../support/fixtures.js';
import { activitiesOf, historyOf, type RunActivity } from '../support/history.js';
import { HostFaults } from '../support/host-faults.js';
import { useClient } from '../support/server.js';

const SLOW = { timeout: 120_000 };
const PATIENCE = { timeoutMs: 60_000 };
const DISK_BYTES = 4 * 1024 * 1024;

const client = useClient();

/** A disk of its own for a state directory, and ways to break it. */
interface Disk {
  readonly stateDirectory: string;
  readonly env: NodeJS.ProcessEnv;
  fill(): Promise<void>;
  makeRoom(): Promise<void>;
  setReadOnly(readOnly: boolean): Promise<void>;
  unmount(): void;
}

async function realDisk(): Promise<Disk> {
  const mountPoint = await temporaryDirectory();
  mountDisk(mountPoint, DISK_BYTES);
  const filler = join(mountPoint, 'filler');
  return {
    stateDirectory: join(mountPoint, 'state'),
    env: {},
    async fill() {
      const handle = await open(filler, 'w');
      const block = Buffer.alloc(4_096);
      try {
        for (;;) await handle.write(block);
      } catch (error) {
        expect(error).toMatchObject({ code: 'ENOSPC' });
      } finally {
        await handle.close();
      }
    },
    makeRoom: () => rm(filler),
    async setReadOnly(readOnly) {
      execFileSync('mount', ['-o', `remount,${readOnly ? 'ro' : 'rw'}`, mountPoint]);
    },
    unmount() {
      unmountDisk(mountPoint);
    },
  };
}

async function injectedDisk(): Promise<Disk> {
  const stateDirectory = await temporaryDirectory();
  const faults = await HostFaults.create(stateDirectory);
  return {
    stateDirectory,
    env: faults.env,
    fill: () => faults.set({ disk: 'full' }),
    makeRoom: () => faults.set(),
    setReadOnly: (readOnly) => faults.set(readOnly ? { disk: 'read-only' } : {}),
    unmount: () => undefined,
  };
}

interface Line {
  readonly label: string;
  readonly what: string;
}

async function linesOf(log: string): Promise<string[]> {
  const text = await readFile(log, 'utf8').catch(() => '');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
    .filter(({ what }) => what === 'begin')
    .map(({ label }) => label);
}

/**
 * A workflow that holds a session and waits to be resumed. It waits long for a worker that is not heard of: two starts of
 * atlasd, or what a disk takes on a busy machine, may last longer than the default window.
 */
async function holdSession(client: Client, fleet: string, session: object = {}) {
  const log = join(await temporaryDirectory(), 'log');
  const handle = await startWorkflow(client, fleet, 'writer', {
    log,
    wait: true,
    session: { recoveryWindow: '1 minute', ...session },
  });
  await eventually(async () => (await linesOf(log)).includes('1:first'), { what: 'the first step', ...PATIENCE });
  return { handle, log };
}

async function untilNothingIsLeft(client: Client, { fleet, stateDirectory }: Atlasd): Promise<void> {
  await eventually(async () => (await sessionsOf(client, fleet)).length === 0, { what: 'a free slot', ...PATIENCE });
  const scratch = join(stateDirectory, 'scratch');
  await eventually(async () => (await readdir(scratch)).length === 0, { what: 'empty scratch', ...PATIENCE });
}

const isDone = ({ type, outcome }: RunActivity): boolean => type === 'where' && outcome === 'completed';

async function grantsOf(client: Client, workflowId: string): Promise<number> {
  return (await historyOf(client, workflowId)).grants.length;
}

describe.skipIf(!canMount())('with a real disk', () => {
  diskTests(realDisk);

  it('refuses to start while its state directory is read-only, and then resumes its session', SLOW, async () => {
    const disk = await realDisk();
    const fleet = uniqueFleet();
    const { stateDirectory } = disk;
    const first = await startWorker({ fleet, stateDirectory });
    try {
      const { handle, log } = await holdSession(client(), fleet);
      await first.killAll();
      await disk.setReadOnly(true);
      const refused = await spawnWorker({ fleet, stateDirectory });
      expect(await refused.exited).toMatchObject({ code: 1 });
      expect(refused.plainOutput).toContain('read-only file system');
      await disk.setReadOnly(false);
      const second = await startWorker({ fleet, stateDirectory });
      await handle.signal('resume');
      expect(await handle.result()).toMatchObject({ attempt: 1 });
      expect(await linesOf(log)).toEqual(['1:first', '1:middle', '1:last']);
      await untilNothingIsLeft(client(), second);
      await second.stop();
    } finally {
      disk.unmount();
    }
  });
});

describe('with a disk that is made to fail', () => {
  diskTests(injectedDisk);

  it('lets a session go on and end while the state directory is read-only, and cleans up after it', SLOW, async () => {
    const disk = await injectedDisk();
    const worker = await startWorker({ fleet: uniqueFleet(), stateDirectory: disk.stateDirectory, env: disk.env });
    const { handle, log } = await holdSession(client(), worker.fleet);
    await disk.setReadOnly(true);
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ attempt: 1 });
    expect(await linesOf(log)).toEqual(['1:first', '1:middle', '1:last']);
    expect(await readdir(join(disk.stateDirectory, 'scratch'))).toHaveLength(1);
    await disk.setReadOnly(false);
    const healedAtMs = Date.now();
    await untilNothingIsLeft(client(), worker);
    console.log(`measured: disk writable to empty scratch: ${((Date.now() - healedAtMs) / 1_000).toFixed(1)} s`);
  });
});

describe('with a clock that is set', () => {
  it.each([
    { what: 'ahead', skewMs: 2 * 3_600_000 },
    { what: 'back', skewMs: -2 * 3_600_000 },
  ])('keeps its session, and its bounds: two hours $what', SLOW, async ({ skewMs }) => {
    const stateDirectory = await temporaryDirectory();
    const faults = await HostFaults.create(stateDirectory);
    const worker = await startWorker({ fleet: uniqueFleet(), stateDirectory, env: faults.env });
    const kept = await holdSession(client(), worker.fleet, { idleTimeout: '1 hour', maxDuration: '1 hour' });
    const expiring = await startWorkflow(client(), worker.fleet, 'idler', { session: { idleTimeout: '12s' } });
    // From then on it is idle. A list of the fleet may come when it has expired.
    await eventually(async () => (await activitiesOf(expiring)).some(isDone), { what: 'its only step', ...PATIENCE });
    await faults.set({ clockSkewMs: skewMs });
    const error: unknown = await expiring.result().catch((reason: unknown) => reason);
    expect(findError(error)?.code).toBe('SessionExpired');
    await kept.handle.signal('resume');
    expect(await kept.handle.result()).toMatchObject({ attempt: 1 });
    expect(await linesOf(kept.log)).toEqual(['1:first', '1:middle', '1:last']);
    // And it takes sessions by the new clock.
    const { handle } = await holdSession(client(), worker.fleet, { maxDuration: '1 hour' });
    await handle.signal('resume');
    expect(await handle.result()).toMatchObject({ attempt: 1 });
    await untilNothingIsLeft(client(), worker);
  });
});

function diskTests(make: () => Promise<Disk>): void {
  it('keeps a session while the disk is full, takes none, and takes them again when there is room', SLOW, async () => {
    const disk = await make();
    const worker = await startWorker({ fleet: uniqueFleet(), stateDirectory: disk.stateDirectory, env: disk.env });
    try {
      const { handle, log } = await holdSession(client(), worker.fleet);
      await disk.fill();
      const second = await startWorkflow(client(), worker.fleet, 'writer', {
        log: join(await temporaryDirectory(), 'log'),
      });
      // It was asked for a session, and asked again.
      let seen = 0;
      for (let count = 0; count < 2; count += 1) {
        await worker.event('grant-failed', ({ owner }) => owner === second.workflowId, { after: seen });
        seen = worker.events.length;
      }
      expect(await grantsOf(client(), second.workflowId)).toBe(0);
      await handle.signal('resume');
      expect(await handle.result()).toMatchObject({ attempt: 1 });
      expect(await linesOf(log)).toEqual(['1:first', '1:middle', '1:last']);
      expect(await grantsOf(client(), second.workflowId)).toBe(0);
      await disk.makeRoom();
      const roomAtMs = Date.now();
      expect(await second.result()).toMatchObject({ attempt: 1 });
      console.log(
        `measured: room on the disk to the end of the job: ${((Date.now() - roomAtMs) / 1_000).toFixed(1)} s`,
      );
      await untilNothingIsLeft(client(), worker);
      expect(existsSync(join(worker.stateDirectory, 'ledger'))).toBe(true);
      await worker.stop();
    } finally {
      disk.unmount();
    }
  });
}
