/**
 * The executor's own fence, as a thread: an activity that keeps the event loop of the process busy can not stop it, and a
 * supervisor that is frozen can not fence.
 *
 * It hears from the supervisor, on a stream of its own, how long pinned attempts may go on. When that lapses, or the
 * supervisor is gone, it kills the process group: the executor and all that its activities have started.
 */
import { request as httpRequest } from 'node:http';
import { createInterface } from 'node:readline';
import { workerData } from 'node:worker_threads';
import type { ExecutorHello, FenceLine } from '../contract/local.js';

/** What the thread is started with. */
export interface FenceWatchData {
  readonly socketPath: string;
  readonly hello: ExecutorHello;
}

function killOwnGroup(): void {
  try {
    process.kill(-process.pid, 'SIGKILL');
  } catch {
    // Not the leader of a group, as when started by hand.
    process.kill(process.pid, 'SIGKILL');
  }
}

function watch({ socketPath, hello }: FenceWatchData): void {
  let lapse: NodeJS.Timeout | undefined;
  const request = httpRequest({ socketPath, method: 'POST', path: '/executor/fence' }, (response) => {
    const lines = createInterface({ input: response });
    lines.on('line', (line) => {
      const { forMs } = JSON.parse(line) as FenceLine;
      clearTimeout(lapse);
      lapse = forMs === null ? undefined : setTimeout(killOwnGroup, Math.max(0, forMs));
    });
    for (const source of [lines, response]) source.on('error', () => undefined);
    response.on('close', killOwnGroup);
  });
  request.on('error', killOwnGroup);
  request.end(JSON.stringify(hello));
}

watch(workerData as FenceWatchData);
