/**
 * What operators order, on real workers: the workflow of a worker records it, its daemon acts on it, and it outlives
 * restarts, crashes and the absence of either. What the commands print about it is tested with the commands.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FleetClient, type WorkerRecord } from '../../src/fleet/client.js';
import { workerWorkflowId } from '../../src/contract/names.js';
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
    const shown = await eventually(stateIs(orders, 'a', 'cordoned'));
    // The first reason counts; later ones are appended.
    expect(shown.scheduling).toMatchObject({ who: 'ops@bastion', why: 'disk swap', applied: true });
    expect(shown.scheduling.notes.map(({ action, who }) => [action, who])).toEqual([
      ['cordon', 'ops@bastion'],
      ['cordon', 'eve@laptop'],
    ]);

    await expect(orders.uncordon('a', { who: 'eve@laptop', why: null })).rejects.toMatchObject({
      code: 'FleetConflict',
      message: expect.stringContaining('cordoned by ops@bastion') as string,
    });
    expect(await orders.uncordon('a', OPS)).toMatchObject({ delivery: 'applied', changed: true });
    expect(await runWorkflow(client(), fleet, 'sequence')).toMatchObject({ worker: 'a' });
  });

  it('to drain waits for the whole session, says so when it has ended, and can end the daemon then', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const worker = await startWorker({ fleet, name: 'a' });
    const owner = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await orders.listSessions()).length === 1);

    expect(await orders.drain('a', { ...OPS, stop: true })).toMatchObject({ delivery: 'applied' });
    expect((await orders.listWorkers())[0]).toMatchObject({ state: 'draining', sessions: 1 });
    await expect(
      orders.drain('a', { who: 'eve@laptop', why: null, deadlineMs: 1_000, onDeadline: 'release' }),
    ).rejects.toMatchObject({ code: 'FleetConflict' });
    await owner.signal('finish');
    // The last worker that runs workflows goes on running them until the session has ended.
    expect(await owner.result()).toMatchObject({ worker: 'a', attempt: 1 });
    expect(await worker.exited).toEqual({ code: 0, signal: null });
    await worker.event('drained-stop');
    // Nobody is left to run its workflow; the next life of the daemon stays drained and does not stop again.
    const again = await restartWorker(worker);
    await eventually(stateIs(orders, 'a', 'drained'));
    expect(again.running).toBe(true);
  });

  it('with a deadline reports what remains, or releases it by force', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    await startWorker({ fleet, name: 'a' });
    const owner = await startWorkflow(client(), fleet, 'holder', { session: { onLost: 'fail' } });
    await eventually(async () => (await orders.listSessions()).length === 1);

    await orders.drain('a', { ...OPS, deadlineMs: 300 });
    const overdue = await eventually(async () => {
      const [worker] = await orders.listWorkers();
      return worker?.scheduling.drain?.overdue === true ? worker : undefined;
    });
    expect(overdue).toMatchObject({ state: 'draining', sessions: 1 });

    await orders.drain('a', { ...OPS, deadlineMs: 0, onDeadline: 'release' });
    await eventually(stateIs(orders, 'a', 'drained'));
    await expect(owner.result()).rejects.toMatchObject({
      cause: {
        type: 'SessionLost',
        message: expect.stringContaining('the deadline of the drain was reached') as string,
      },
    });
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

  it.each([
    ['loses the session of its owner, which follows its onLost', false, 'SessionLost'],
    ['fails the owner where it is told to, whatever its onLost', true, 'SessionReleased'],
  ])('%s; slot and scratch are free when it returns', async (_, failOwner, type) => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    const worker = await startWorker({ fleet, name: 'a', args: ['--max-sessions', '1'] });
    const onLost = failOwner ? 'redo' : 'fail';
    const owner = await startWorkflow(client(), fleet, 'sequence', { session: { onLost }, holdMs: 60_000 });
    const [session] = await eventually(async () => {
      const sessions = await orders.listSessions();
      return sessions[0]?.step?.activity === 'hold' ? sessions : undefined;
    });
    const scratch = join(worker.stateDirectory, 'scratch', session!.key);
    expect(existsSync(scratch)).toBe(true);
    expect(await orders.release([session!], { ...OPS, failOwner })).toMatchObject([{ outcome: 'released' }]);
    expect(existsSync(scratch)).toBe(false);
    await expect(owner.result()).rejects.toMatchObject({
      cause: { type, message: expect.stringContaining('ops@bastion released it by force: disk swap') as string },
    });
    expect(await orders.release([session!], { ...OPS, failOwner })).toMatchObject([{ outcome: 'not-held' }]);
    expect(await runWorkflow(client(), fleet, 'sequence')).toMatchObject({ worker: 'a', attempt: 1 });
  });

  it('has an owner that redoes run its body again', async () => {
    const fleet = uniqueFleet();
    const orders = new FleetClient(client(), { fleet });
    await startWorker({ fleet, name: 'a' });
    const owner = await startWorkflow(client(), fleet, 'holder');
    const [session] = await eventually(async () => {
      const sessions = await orders.listSessions();
      return sessions.length === 1 ? sessions : undefined;
    });
    expect(await orders.release([session!], OPS)).toMatchObject([{ outcome: 'released' }]);
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
      const [a] = [await startWorker({ fleet, name: 'a', address }), await startWorker({ fleet, name: 'b', address })];
      const owner = await startWorkflow(connected.client, fleet, 'holder', { session: { leaseTtl: '100s' } });
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
      const holder = session!.worker === 'a' ? a : undefined;
      expect(holder).toBeDefined();
      await holder!.kill();
      // Suspected by the list that was carried over, long before the TTL of its lease.
      await eventually(async () => (await orders.listSessions()).some(({ worker }) => worker === 'b'));
      await owner.signal('finish');
      expect(await owner.result()).toMatchObject({ worker: 'b', attempt: 2 });
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
