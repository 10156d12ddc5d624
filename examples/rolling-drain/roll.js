/**
 * Drains the workers of a fleet one after the other, as a deploy does that replaces their hosts: `node roll.js [FLEET]`.
 * A session that does not end in time is released, so that its owner redoes it elsewhere. Exits with 1 if a worker could
 * not be drained; the others are still done.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { FleetClient } from 'temporal-atlas/client';

const DRAIN_MS = 10 * 60_000;
const RELEASE_MS = 2 * 60_000;
const by = { who: `${process.env.USER ?? 'deploy'}@${process.env.HOSTNAME ?? 'ci'}`, why: 'a new image' };

const connection = await Connection.connect({ address: process.env.TEMPORAL_ADDRESS ?? 'localhost:7233' });
const client = new Client({ connection, namespace: process.env.TEMPORAL_NAMESPACE ?? 'default' });
const fleet = new FleetClient(client, { fleet: process.argv[2] ?? 'atlas' });

for (const { name, state } of await fleet.listWorkers()) {
  if (state === 'lost' || state === 'stopped') {
    console.log(`${name}: is ${state}, passed over`);
    continue;
  }
  if (await drain(name)) {
    console.log(`${name}: drained`);
    // Here the host is replaced. What comes back under the same name is cordoned until somebody says otherwise.
    await fleet.uncordon(name, by);
  } else {
    console.log(`${name}: sessions remain`);
    process.exitCode = 1;
  }
}
await connection.close();

/** Resolves to whether the worker holds no session any more. */
async function drain(name) {
  await fleet.drain(name, by);
  if (await untilEmpty(name, DRAIN_MS)) return true;
  const remaining = (await fleet.listSessions()).filter(({ worker }) => worker === name);
  for (const { session, outcome } of await fleet.release(remaining, by)) {
    console.log(`${name}: ${session.session} of ${session.workflowId}: ${outcome}`);
  }
  return untilEmpty(name, RELEASE_MS);
}

async function untilEmpty(name, timeoutMs) {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const worker = (await fleet.listWorkers()).find((each) => each.name === name);
    if (worker === undefined || worker.state === 'drained' || worker.state === 'stopped') return true;
    if (performance.now() >= deadlineMs) return false;
    await sleep(1_000);
  }
}
