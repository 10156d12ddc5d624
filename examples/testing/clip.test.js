/** `node --test clip.test.js`. Under vitest, jest or mocha only the imports of describe, it and assert are others. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { currentSession, currentWorker } from 'temporal-atlas/activity';
import { TestFleet } from 'temporal-atlas/testing';

describe('makeClip', () => {
  let env, fleet, encoding;

  before(async () => {
    Runtime.install({ logger: new DefaultLogger('WARN') });
    // Or: env = await TestWorkflowEnvironment.createLocal(), of @temporalio/testing.
    const address = process.env.TEMPORAL_ADDRESS ?? 'localhost:7233';
    const [connection, nativeConnection] = await Promise.all([
      Connection.connect({ address }),
      NativeConnection.connect({ address }),
    ]);
    env = { connection, nativeConnection, client: new Client({ connection }) };
    fleet = await TestFleet.create({
      client: env.client,
      connection: env.nativeConnection,
      workflowsPath: fileURLToPath(new URL('./workflows.js', import.meta.url)),
      workers: [
        { name: 'w1', capabilities: ['gpu'] },
        { name: 'w2', capabilities: ['gpu'] },
      ],
      activities: {
        download: (source) => writeFile(join(currentSession().scratchDirectory, 'source'), source),
        // Stands for an hour on a GPU: it ends when the test says so, or when it is cancelled.
        encode: () => encoding(currentSession().signal),
        upload: async () => {
          const source = await readFile(join(currentSession().scratchDirectory, 'source'), 'utf8');
          return `https://clips.example/${source}/${currentWorker().name}`;
        },
      },
    });
  });

  after(async () => {
    await fleet?.close();
    await env?.nativeConnection.close();
    await env?.connection.close();
  });

  const start = (workflowId) =>
    env.client.workflow.start('makeClip', { taskQueue: fleet.taskQueue, workflowId, args: ['harbour'] });
  const callsOf = (workflowId) =>
    fleet.calls
      .filter((call) => call.workflowId === workflowId)
      .map(({ activity, worker, outcome }) => `${activity} on ${worker}: ${outcome}`);

  it('makes the clip on one worker', async () => {
    encoding = async () => {};
    const clip = await start('clip-1').then((handle) => handle.result());
    assert.deepEqual(clip, { url: 'https://clips.example/harbour/w1', worker: 'w1', attempt: 1 });
  });

  it('begins again on another worker when the first is lost while it encodes', async () => {
    let begun;
    const encodes = new Promise((resolve) => (begun = resolve));
    encoding = (signal) => {
      begun();
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
    const handle = await start('clip-2');
    const session = await fleet.session({ workflowId: 'clip-2' });
    await encodes;

    encoding = async () => {};
    await fleet.worker(session.worker).lose();
    assert.deepEqual(await handle.result(), { url: 'https://clips.example/harbour/w2', worker: 'w2', attempt: 2 });
    assert.deepEqual(callsOf('clip-2'), [
      'download on w1: completed',
      'encode on w1: lost',
      'download on w2: completed',
      'encode on w2: completed',
      'upload on w2: completed',
    ]);
    await fleet.worker('w1').restart();
  });
});
