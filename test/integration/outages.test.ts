/**
 * What a session promises, under faults that are real: a Temporal server that is away. Read
 * from the server's histories and from the hosts' file systems, never from Atlas's own logs.
 */
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { temporaryDirectory } from '../support/atlasd.js';
import { eventually, startWorker, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { historyOf } from '../support/history.js';
import { labelsOf, linesOf, measured, PATIENT_MS, SLOW, untilAllFree, untilLine } from '../support/promises.js';
import { startProxy } from '../support/proxy.js';
import { connectTestClient, startPrivateServer } from '../support/server.js';

describe('an outage of Temporal', () => {
  const stops: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  async function privateServer() {
    const dbFilename = join(await temporaryDirectory(), 'temporal.db');
    let server = await startPrivateServer({ dbFilename });
    const { address } = server;
    const port = Number(address.split(':').at(-1));
    stops.push(() => server.stop());
    const connected = await connectTestClient(address);
    stops.push(() => connected.close());
    return {
      address,
      client: connected.client,
      stop: () => server.stop(),
      async start() {
        server = await startPrivateServer({ dbFilename, port });
      },
    };
  }

  it('longer than lease TTL and window redoes nothing: the session is adopted', SLOW, async () => {
    const server = await privateServer();
    const fleet = uniqueFleet();
    const proxy = await startProxy(server.address);
    const worker = await startWorker({ fleet, name: 'a', address: proxy.address });
    const log = join(await temporaryDirectory(), 'log');
    const session = { leaseTtl: '3s', recoveryWindow: '5s' };
    const handle = await startWorkflow(server.client, fleet, 'writer', { session, log, wait: true });
    await eventually(async () => labelsOf(await linesOf(log), 'end').includes('1:first'), { what: 'the first step' });
    // Its end is known to the server too, so that the outage falls into the wait.
    await eventually(
      async () =>
        (await historyOf(server.client, handle.workflowId)).activities.some(
          ({ type, outcome }) => type === 'write' && outcome === 'completed',
        ),
      { what: 'the first step in the history' },
    );
    // Its link stays cut until the server has timed the lease out: a renewal that comes first would leave nothing to adopt.
    proxy.cut();
    await server.stop();
    await new Promise((resolve) => setTimeout(resolve, 9_000));
    await server.start();
    await eventually(
      async () => (await historyOf(server.client, handle.workflowId)).activities[0]?.outcome === 'timed-out',
      { what: 'the end of the lease', timeoutMs: PATIENT_MS },
    );
    proxy.heal();
    const healedAtMs = Date.now();
    await eventually(
      async () =>
        (await historyOf(server.client, handle.workflowId)).activities.some(
          ({ type }) => type === 'atlas:adoptSession',
        ),
      { what: 'the adoption', timeoutMs: PATIENT_MS },
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${worker.transcript()}`);
    });
    measured('server back and lease timed out to the adoption', Date.now() - healedAtMs);
    await handle.signal('resume');
    expect(await handle.result()).toEqual({ attempt: 1, worker: 'a' });
    expect(labelsOf(await linesOf(log), 'begin')).toEqual(['1:first', '1:middle', '1:last']);
    const { activities } = await historyOf(server.client, handle.workflowId);
    expect(activities.filter(({ type }) => type === 'atlas:acquireWorker')).toHaveLength(1);
    await untilAllFree(server.client, fleet);
  });

  it('does not repeat a step that finishes meanwhile', SLOW, async () => {
    const server = await privateServer();
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a', address: server.address });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(server.client, fleet, 'writer', { log, ms: 4_000 });
    await untilLine(log, '1:middle');
    await server.stop();
    await eventually(async () => labelsOf(await linesOf(log), 'end').includes('1:middle'), {
      what: 'the end of the step',
    });
    // Longer than the ten seconds for which Core tries to report the result.
    await new Promise((resolve) => setTimeout(resolve, 12_000));
    expect(labelsOf(await linesOf(log), 'end')).toEqual(['1:first', '1:middle']);
    await server.start();
    expect(await handle.result()).toEqual({ attempt: 1, worker: 'a' });
    expect(labelsOf(await linesOf(log), 'begin')).toEqual(['1:first', '1:middle', '1:last']);
    await untilAllFree(server.client, fleet);
  });
});
