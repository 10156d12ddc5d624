/**
 * What operators order, on real workers: the workflow of a worker records it, its daemon acts on it, and it outlives
 * restarts, crashes and the absence of either. What the commands print about it is tested with the commands.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FleetClient, type WorkerRecord } from '../../src/fleet/client.js';
import { workerWorkflowId } from '../../src/contract/names.js';
import type { Atlasd } from '../support/atlasd.js';
import { runAtlas } from '../support/cli.js';
import { connectTestClient, startPrivateServer, useClient } from '../support/server.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, restartWorker, runWorkflow, startWorker, startWorkflow } from '../support/fixtures.js';

const OPS = { who: 'ops@bastion', why: 'disk swap' } as const;

const stateIs =
  (fleet: FleetClient, name: string, state: WorkerRecord['state']) => async (): Promise<WorkerRecord | undefined> =>
    (await fleet.listWorkers()).find((worker) => worker.name === name && worker.state === state);

describe('an order', () => {
  const client = useClient();

  it('to cordon has the daemon take no session until the worker is uncordoned, over a restart too', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const [a, b] = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];

    expect(await orders.cordon('a', OPS)).toMatchObject({ delivery: 'applied', changed: true });
    expect(await orders.cordon('a', { who: 'eve@laptop', why: 'me too' })).toMatchObject({ changed: false });
    const used = await Promise.all(
      Array.from({ length: 5 }, () => runWorkflow<{ worker: string }>(client(), fleet, 'sequence')),
    );
    expect(used.map(({ worker }) => worker)).toEqual(['b', 'b', 'b', 'b', 'b']);

    await a.stop();
    await restartWorker(a);
    await b.kill();
    const held = await startWorkflow(client(), fleet, 'sequence', { session: { acquireTimeout: '1s' } });
    await expect(held.result()).rejects.toMatchObject({ cause: { type: 'AcquireTimeout' } });
    // It acts on what the registration told it; that it has confirmed the order follows a moment later.
    const shown = await eventually(async () => {
      const worker = await stateIs(orders, 'a', 'cordoned')();
      return worker?.scheduling.applied === true ? worker : undefined;
    });
    // The first reason counts; later ones are appended.
    expect(shown.scheduling).toMatchObject({ who: 'ops@bastion', why: 'disk swap' });
    expect(shown.scheduling.notes.map(({ action, who }) => [action, who])).toEqual([
      ['cordon', 'ops@bastion'],
      ['cordon', 'eve@laptop'],
    ]);

    await expect(orders.uncordon('a', { who: 'eve@laptop', why: null })).rejects.toMatchObject({
      code: 'FleetConflict',
      message: expect.stringContaining('cordoned by ops@bastion') as string,
    });
    expect(await orders.uncordon('a', OPS)).toMatchObject({ changed: true });
    expect(await runWorkflow(client(), fleet, 'sequence')).toMatchObject({ worker: 'a' });
  });

  it('for a worker that is away is recorded, and applied when it returns', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const [a] = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    await a.kill();
    await eventually(stateIs(orders, 'a', 'lost'));
    expect(await orders.cordon('a', OPS)).toMatchObject({ delivery: 'recorded', changed: true });
    expect((await orders.listWorkers())[0]).toMatchObject({
      state: 'lost',
      scheduling: { scheduling: 'cordoned', applied: false },
    });
    await restartWorker(a);
    const back = await eventually(async () => {
      const shown = await stateIs(orders, 'a', 'cordoned')();
      return shown?.scheduling.applied === true ? shown : undefined;
    });
    expect(back.scheduling.why).toBe('disk swap');
  });

  it('waits on the server while no worker of the fleet runs', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const worker = await startWorker({ fleet, name: 'a' });
    await worker.kill();
    expect(await orders.cordon('a', OPS)).toMatchObject({ delivery: 'sent', desired: null });
    await restartWorker(worker);
    await eventually(stateIs(orders, 'a', 'cordoned'));
  });

  it('on a worker that nobody knows is refused', async () => {
    const orders = new FleetClient(client(), { fleet: uniqueFleet() });
    await expect(orders.cordon('nobody', OPS)).rejects.toMatchObject({ code: 'NotFound' });
  });
});

describe('a release by force', () => {
  const client = useClient();

  it('frees the slot of an owner whose own worker is gone, and says later why the session ended', async () => {
    const fleet = uniqueFleet();
    const ownFleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const worker = await startWorker({ fleet, name: 'a', args: ['--max-sessions', '1'] });
    const runsOwner = await startWorker({ fleet: ownFleet, name: 'b' });
    const owner = await startWorkflow(client(), ownFleet, 'holder', { session: { fleet } });
    const [session] = await eventually(async () => {
      const sessions = await orders.listSessions();
      return sessions.length === 1 ? sessions : undefined;
    });
    // With its executor, which could otherwise go on with the owner for long enough to take the slot that is freed.
    await runsOwner.killAll();
    expect(await orders.release([session!], OPS)).toMatchObject([{ outcome: 'released' }]);
    expect(existsSync(join(worker.stateDirectory, 'scratch', session!.key))).toBe(false);
    const other = await startWorkflow(client(), fleet, 'sequence');
    expect(await other.result()).toMatchObject({ worker: 'a', attempt: 1 });
    const shown = await runAtlas(['sessions', 'show', session!.session, '--fleet', fleet]);
    expect(shown).toMatchObject({ exit: 4 });
    expect(shown.stderr).toContain('ops@bastion released it by force on a at ');
    // The owner learns of it when somebody runs it again.
    await restartWorker(runsOwner);
    await eventually(async () => (await orders.listSessions()).some(({ epoch }) => epoch > session!.epoch));
    await owner.signal('finish');
    expect(await owner.result()).toMatchObject({ attempt: 2 });
  });

  it('on a dead worker tells the owner, after the fence', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const [a] = [await startWorker({ fleet, name: 'a', args: ['--presence-ttl', '60s'] })];
    const owner = await startWorkflow(client(), fleet, 'holder', { session: { onLost: 'fail', recoveryWindow: '1s' } });
    const [session] = await eventually(async () => {
      const sessions = await orders.listSessions();
      return sessions.length === 1 ? sessions : undefined;
    });
    await startWorker({ fleet, name: 'b' });
    await a.kill();
    // The fleet has not missed it yet; its presence TTL is long, as far as the record goes it is over.
    const results = await orders.release([{ ...session!, workerHeartbeatAgeMs: 70_000 }], OPS);
    expect(results).toMatchObject([{ outcome: 'owner-told' }]);
    await expect(owner.result()).rejects.toMatchObject({ cause: { type: 'SessionLost' } });
  });
});

describe('a release by force on a worker that was lost', () => {
  const client = useClient();

  it('leaves the session alone that its owner has acquired again elsewhere', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const a = await startWorker({ fleet, name: 'a', args: ['--presence-ttl', '4s'] });
    // Neither is over while the other worker starts and this one gets no processor.
    const owner = await startWorkflow(client(), fleet, 'holder', { session: { recoveryWindow: '4s' } });
    const [stale] = await eventually(async () => {
      const sessions = await orders.listSessions();
      return sessions.length === 1 ? sessions : undefined;
    });
    await startWorker({ fleet, name: 'b' });
    await a.kill();
    await eventually(async () => (await orders.listSessions()).some(({ worker }) => worker === 'b'));
    expect(await orders.release([stale!], OPS)).toMatchObject([{ outcome: 'owner-moved-on' }]);
    await owner.signal('finish');
    expect(await owner.result()).toMatchObject({ worker: 'b', attempt: 2 });
  });
});

describe('the workflow of a worker', () => {
  it('continues as new with all that is wanted of the worker, and misses its death all the same', async () => {
    const server = await startPrivateServer({
      dynamicConfig: ['limit.historyCount.suggestContinueAsNew=60'],
    });
    const connected = await connectTestClient(server.address);
    try {
      const fleet = uniqueFleet();
      const orders = new FleetClient(connected.client, { fleet });
      const address = server.address;
      const workers = new Map<string, Atlasd>();
      for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name, address }));
      const owner = await startWorkflow(connected.client, fleet, 'holder', { session: { leaseTtl: '10m' } });
      const [session] = await eventually(async () => {
        const sessions = await orders.listSessions();
        return sessions.length === 1 ? sessions : undefined;
      });
      const handle = connected.client.workflow.getHandle(workerWorkflowId(fleet, session!.worker));
      const { runId } = await handle.describe();
      for (let round = 0; round < 6; round += 1) {
        await orders.cordon(session!.worker, OPS);
        await orders.uncordon(session!.worker, OPS);
      }
      await orders.cordon(session!.worker, OPS);
      await eventually(async () => (await handle.describe()).runId !== runId, { what: 'a later run' });
      await eventually(stateIs(orders, session!.worker, 'cordoned'));
      const other = session!.worker === 'a' ? 'b' : 'a';
      await workers.get(session!.worker)!.kill();
      // Suspected by the list that was carried over, long before the TTL of its lease.
      await eventually(async () => (await orders.listSessions()).some(({ worker }) => worker === other), {
        what: 'the redo',
      });
      await owner.signal('finish');
      expect(await owner.result()).toMatchObject({ worker: other, attempt: 2 });
    } finally {
      await connected.close();
      await server.stop();
    }
  });

  it('ends when a worker that is lost or stopped is forgotten, which comes back by itself', async () => {
    const server = await startPrivateServer();
    const connected = await connectTestClient(server.address);
    try {
      const fleet = uniqueFleet();
      const { address } = server;
      const orders = new FleetClient(connected.client, { fleet });
      const [a] = [await startWorker({ fleet, name: 'a', address }), await startWorker({ fleet, name: 'b', address })];
      await expect(orders.forget('a', OPS)).rejects.toMatchObject({ code: 'FleetConflict' });
      await a.stop();
      await eventually(stateIs(orders, 'a', 'stopped'), { what: 'a has stopped' });
      await orders.forget('a', OPS);
      await eventually(async () => (await orders.listWorkers()).length === 1);
      await restartWorker(a);
      await eventually(stateIs(orders, 'a', 'ready'));
    } finally {
      await connected.close();
      await server.stop();
    }
  });
});
