/**
 * What a fleet needs of a server, on the oldest one that is supported, with its default settings. The rest of the tests
 * run on the newest.
 */
import { describe, expect, it } from 'vitest';
import { findErrorCode } from '../../src/contract/errors.js';
import { FleetClient } from '../../src/fleet/client.js';
import { type DevServer, startDevServer } from '../../src/temporal/dev-server.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, restartWorker, startWorker, startWorkflow } from '../support/fixtures.js';
import { connectTestClient } from '../support/server.js';

const OPS = { who: 'ops@bastion', why: 'deploy' } as const;

/** The server, or why it can not be had here. */
async function oldest(): Promise<DevServer | string> {
  try {
    return await startDevServer({ env: process.env, version: '1.29.1' });
  } catch (error) {
    if (findErrorCode(error) !== 'ServerNotFound') throw error;
    return `Server 1.29.1 can not be had here: ${String(error)}`;
  }
}

describe('on server 1.29.1', () => {
  it('workers register, are seen, cordoned, drained, missed and forgotten, and sessions released', async ({ skip }) => {
    const server = await oldest();
    if (typeof server === 'string') return skip(server);
    const connected = await connectTestClient(server.address);
    try {
      expect(server.program.serverVersion).toBe('1.29.1');
      const fleet = uniqueFleet();
      const { address } = server;
      const orders = new FleetClient(connected.client, { fleet });
      const stateOf = async (name: string): Promise<string | undefined> =>
        (await orders.listWorkers()).find((worker) => worker.name === name)?.state;
      const [a, b] = [
        await startWorker({ fleet, name: 'a', address }),
        await startWorker({ fleet, name: 'b', address }),
      ];

      expect(await orders.cordon('b', OPS)).toMatchObject({ delivery: 'applied' });
      const released = await startWorkflow(connected.client, fleet, 'holder', { session: { onLost: 'fail' } });
      const [session] = await eventually(async () => {
        const sessions = await orders.listSessions();
        return sessions.length === 1 ? sessions : undefined;
      });
      expect(session!.worker).toBe('a');
      expect(await orders.release([session!], OPS)).toMatchObject([{ outcome: 'released' }]);
      await expect(released.result()).rejects.toMatchObject({ cause: { type: 'SessionLost' } });

      const drained = await startWorkflow(connected.client, fleet, 'holder');
      // The list is as old as the last presence: the session that was released may still be on it.
      await eventually(async () =>
        (await orders.listSessions()).some(({ workflowId }) => workflowId === drained.workflowId),
      );
      expect(await orders.drain('a', OPS)).toMatchObject({ delivery: 'applied' });
      await eventually(async () => (await stateOf('a')) === 'draining', { what: 'a drains' });
      await drained.signal('finish');
      await eventually(async () => (await stateOf('a')) === 'drained');
      expect(await drained.result()).toMatchObject({ worker: 'a', attempt: 1 });
      await a.stop();
      await restartWorker(a);
      await eventually(async () => (await stateOf('a')) === 'drained');

      await b.kill();
      await eventually(async () => (await stateOf('b')) === 'lost');
      await orders.forget('b', OPS);
      await eventually(async () => (await stateOf('b')) === undefined);
    } finally {
      await connected.close();
      await server.stop();
    }
  });
});
