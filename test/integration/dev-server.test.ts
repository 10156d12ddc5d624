import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { connectClient, isUnavailable, plainProfile } from '../../src/temporal/connect.js';
import type { DevServer } from '../../src/temporal/dev-server.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { uniqueId } from '../support/fleet.js';
import { isAlive, killMarked, markEnvironment, newMark, until, untilGone } from '../support/processes.js';
import { startPrivateServer, useClient } from '../support/server.js';

async function startServer(options: Parameters<typeof startPrivateServer>[0] = {}): Promise<DevServer> {
  const server = await startPrivateServer(options);
  onTestFinished(() => server.stop());
  return server;
}

async function startWorkflow(address: string, workflowId: string, namespace = 'default'): Promise<void> {
  const { client, close } = await connectClient(plainProfile(address, namespace));
  try {
    await client.workflow.start('nobodyRunsThis', { taskQueue: 'nobody', workflowId });
  } finally {
    await close();
  }
}

describe('the shared server', () => {
  const client = useClient();

  it('starts workflows and lists them', async () => {
    const workflowId = uniqueId('shared');
    const handle = await client().workflow.start('nobodyRunsThis', { taskQueue: workflowId, workflowId });
    const description = await handle.describe();
    expect(description.status.name).toBe('RUNNING');
    await until('the workflow is listed', async () => {
      const { count } = await client().workflow.count(`WorkflowId = '${workflowId}'`);
      return count === 1;
    });
    await handle.terminate();
  });
});

describe('startDevServer', () => {
  it('is usable the moment it resolves, in a namespace of its own too', async () => {
    const server = await startServer({ namespace: 'other' });
    await startWorkflow(server.address, 'first', 'other');
    await startWorkflow(server.address, 'first', 'default');
  });

  it('runs beside another one', async () => {
    const servers = await Promise.all([startServer(), startServer()]);
    expect(new Set(servers.map(({ address }) => address)).size).toBe(2);
  });

  it('leaves alone what listens on the port asked for', async () => {
    const listener = createServer();
    await new Promise<void>((done) => listener.listen(0, '127.0.0.1', done));
    onTestFinished(() => void listener.close());
    const address = listener.address();
    if (address === null || typeof address === 'string') throw new Error('no port');

    await expect(startServer({ port: address.port })).rejects.toMatchObject({
      code: 'ServerStartFailed',
      message: expect.stringContaining(`127.0.0.1:${address.port}`) as string,
      next: expect.stringContaining('--port') as string,
    });
    expect(listener.listening).toBe(true);
  });

  it('shows the server’s own words when it does not start', async () => {
    const directory = await temporaryDirectory();
    // A directory is not a database.
    await expect(startServer({ dbFilename: directory })).rejects.toMatchObject({
      code: 'ServerStartFailed',
      message: expect.stringMatching(/ended while starting[^]*unable to open database/i) as string,
    });
  });

  it('keeps a workflow over a restart with a database file', async () => {
    const dbFilename = join(await temporaryDirectory(), 'state', 'temporal.db');
    const before = await startPrivateServer({ dbFilename });
    await startWorkflow(before.address, 'kept');
    await before.stop();
    expect(isAlive(before.pid)).toBe(false);

    const after = await startServer({ dbFilename });
    const { client, close } = await connectClient(plainProfile(after.address));
    onTestFinished(close);
    const description = await client.workflow.getHandle('kept').describe();
    expect(description.status.name).toBe('RUNNING');
  });

  it('stops twice as well as once, and after it has died', async () => {
    const server = await startPrivateServer();
    process.kill(server.pid, 'SIGKILL');
    await server.exited;
    await Promise.all([server.stop(), server.stop()]);
    expect(isAlive(server.pid)).toBe(false);
  });

  it('ends a start that is aborted, and leaves no process', async () => {
    const mark = newMark();
    const abort = new AbortController();
    const starting = startPrivateServer({
      env: markEnvironment(process.env, mark),
      signal: abort.signal,
      onStep: ({ step }) => {
        if (step === 'start') abort.abort();
      },
    });
    await expect(starting).rejects.toMatchObject({ code: 'Interrupted' });
    expect(await untilGone(mark, 0)).toEqual([]);
  });

  it('dies with a parent that is killed with -9', async () => {
    const mark = newMark();
    onTestFinished(() => killMarked(mark));
    // The build, as Node does not run TypeScript.
    const module = fileURLToPath(new URL('../../dist/temporal/dev-server.js', import.meta.url));
    const script = `
      const { startDevServer } = await import(process.argv[1]);
      const server = await startDevServer({ env: process.env, program: JSON.parse(process.argv[2]) });
      console.log(server.pid);
      setInterval(() => {}, 1000);
    `;
    const parent = spawn(
      process.execPath,
      ['--input-type=module', '-e', script, module, JSON.stringify(inject('temporalProgram'))],
      { env: markEnvironment(process.env, mark), stdio: ['ignore', 'pipe', 'inherit'] },
    );
    const serverPid = await new Promise<number>((resolve, reject) => {
      parent.stdout.once('data', (chunk: Buffer) => resolve(Number(chunk.toString())));
      parent.once('exit', () => reject(new Error('the parent ended early')));
    });
    expect(isAlive(serverPid)).toBe(true);

    parent.kill('SIGKILL');
    expect(await untilGone(mark, 30_000)).toEqual([]);
  });
});

describe('a connection', () => {
  it('tells a missing namespace from a missing server', async () => {
    const server = await startServer();
    await expect(connectClient(plainProfile(server.address, 'nope'))).rejects.toMatchObject({
      code: 'ServerRefused',
      message: expect.stringContaining('"nope"') as string,
    });
  });

  it('may be closed while a call is being tried again', async () => {
    const server = await startPrivateServer();
    const { client, close } = await connectClient(plainProfile(server.address));
    await server.stop();
    const calls = [1, 2, 3].map((number) => client.workflow.getHandle(`w${number}`).describe());
    const settled = Promise.allSettled(calls);
    // The first attempts have failed by now and the next ones wait for their timers.
    await sleep(300);
    await close();
    // An error thrown by a timer would fail the run as unhandled.
    for (const call of await settled) expect(call.status).toBe('rejected');
  });

  it('sees the end of the server as an outage, and comes back to its successor', async () => {
    const first = await startPrivateServer();
    const port = Number(first.address.split(':')[1]);
    const { connection, close } = await connectClient(plainProfile(first.address));
    onTestFinished(close);
    const call = (withinMs: number): Promise<unknown> =>
      connection.withDeadline(Date.now() + withinMs, () => connection.workflowService.getClusterInfo({}));
    await call(30_000);
    await first.stop();
    await expect(call(2_000)).rejects.toSatisfy(isUnavailable);

    await startServer({ port });
    // How soon the next attempt is made, is a setting of gRPC; it counts from the end of the last one, which is past.
    expect(connection.options.channelArgs).toMatchObject({ 'grpc.max_reconnect_backoff_ms': 1_000 });
    await until('the connection is back', () =>
      call(5_000).then(
        () => true,
        () => false,
      ),
    );
  });
});
