/** The fence of a worker inside a user's own process, which is the end of that process. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory } from '../support/atlasd.js';
import { spawnEmbedded, startEmbedded } from '../support/embedded.js';
import { eventually, sessionsOf, startWorker, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { linesOf, untilLine } from '../support/promises.js';
import { startProxy } from '../support/proxy.js';
import { temporalAddress, useClient } from '../support/server.js';

describe('a worker inside a process of its user', () => {
  const client = useClient();

  it.each([
    { what: 'ignores its cancellation while the link is cut', mode: 'stubborn', isCut: true },
    { what: 'keeps the event loop busy', mode: 'busy', isCut: false },
  ])('is killed before a session is redone whose activity $what', async ({ mode, isCut }) => {
    const fleet = uniqueFleet();
    const proxy = await startProxy(temporalAddress());
    // Short, but not over while another process starts and this one gets no processor: only the fault is to be noticed.
    const args = ['--presence-ttl', '3s'];
    const away = await startEmbedded({ fleet, name: 'away', address: proxy.address, args });
    const log = join(await temporaryDirectory(), 'log');
    const session = { recoveryWindow: '5s' };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: 100_000, mode, wait: true });
    await untilLine(log, '1:first');
    // A fleet may have workers of both kinds.
    const other = await startWorker({ fleet, name: 'other', args });
    const isOfHandle = ({ workflowId }: { workflowId: string }) => workflowId === handle.workflowId;
    await eventually(async () => (await sessionsOf(client(), fleet)).some(isOfHandle), {
      what: 'the session is listed',
    });
    await handle.signal('resume');
    await untilLine(log, '1:middle');
    if (isCut) proxy.cut();
    expect(await away.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(away.plainOutput).toContain(`process ${away.pid} is killed: an activity has not ended`);
    await untilLine(log, '2:first');
    const lines = await linesOf(log);
    const redone = lines.findIndex(({ label }) => label.startsWith('2:'));
    expect(lines.slice(redone).every(({ worker }) => worker === 'other')).toBe(true);
    await handle.terminate();
    // It would wait half a minute for an activity that ignores its cancellation.
    await other.killAll();
  });

  it('tells of an activity that outlives the stop, keeps its directory locked, and is killed at the fence', async () => {
    const fleet = uniqueFleet();
    const args = ['--presence-ttl', '3s', '--grace', '100ms'];
    const worker = await startEmbedded({ fleet, name: 'mine', args });
    const log = join(await temporaryDirectory(), 'log');
    const session = { recoveryWindow: '10s' };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: 100_000, mode: 'stubborn' });
    await untilLine(log, '1:middle');
    // Its start would take longer than the fence on a busy machine, so that it is ready to begin beforehand.
    const begin = join(await temporaryDirectory(), 'begin');
    const second = await spawnEmbedded({
      fleet,
      name: 'mine',
      stateDirectory: worker.stateDirectory,
      args: [...args, '--begin-at', begin],
    });
    await second.event('waits-to-begin');
    worker.signal('SIGTERM');
    expect(await worker.event('run-failed')).toMatchObject({
      code: 'ExecutorFailed',
      msg: 'The session worker has stopped, but 1 of its activities ignore their cancellation and still run.',
    });
    await writeFile(begin, '');
    expect(await second.event('run-failed')).toMatchObject({ code: 'StateDirLocked' });
    expect(await worker.exited).toEqual({ code: null, signal: 'SIGKILL' });
    // What it held is on disk, and goes on.
    const third = await startEmbedded({ fleet, name: 'mine', stateDirectory: worker.stateDirectory, args });
    expect(await third.event('resume')).toMatchObject({ owner: handle.workflowId });
    await handle.terminate();
    await third.killAll();
  });
});
