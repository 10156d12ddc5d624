/** Starts the workflow and waits for its result: `node start.js [SECONDS [LEASE_TTL]]`. Any Temporal client will do. */
import { randomUUID } from 'node:crypto';
import { Client, Connection } from '@temporalio/client';

const fleet = process.env.ATLAS_FLEET ?? 'atlas';
const connection = await Connection.connect({ address: process.env.TEMPORAL_ADDRESS ?? 'localhost:7233' });
const client = new Client({ connection, namespace: process.env.TEMPORAL_NAMESPACE ?? 'default' });
const [seconds = '5', leaseTtl] = process.argv.slice(2);
const result = await client.workflow.execute('countText', {
  // atlasd runs workflows on the task queue that is named after its fleet.
  taskQueue: fleet,
  workflowId: `count-${randomUUID()}`,
  args: [{ seconds: Number(seconds), session: leaseTtl === undefined ? {} : { leaseTtl } }],
});
console.log(result);
await connection.close();
