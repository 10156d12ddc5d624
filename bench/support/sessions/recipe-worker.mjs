/** The worker of the recipe by hand: `node recipe-worker.mjs QUEUE`; says READY, and stops at SIGTERM. */
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';

const queue = process.argv[2];
const own = `${queue}-${randomUUID()}`;
const tickets = new Set();

Runtime.install({ logger: new DefaultLogger('WARN') });
const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS });
const shared = await Worker.create({
  connection,
  taskQueue: queue,
  workflowsPath: fileURLToPath(new URL('recipe-workflows.mjs', import.meta.url)),
  activities: {
    async acquireWorker() {
      const ticket = randomUUID();
      tickets.add(ticket);
      return { taskQueue: own, ticket };
    },
  },
});
const pinned = await Worker.create({
  connection,
  taskQueue: own,
  activities: {
    async noop() {},
    async releaseWorker(ticket) {
      tickets.delete(ticket);
    },
  },
});
console.log('READY');
await Promise.all([shared.run(), pinned.run()]);
await connection.close();
