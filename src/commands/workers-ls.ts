/** `atlas workers ls`: the workers of a fleet and whether they can take sessions. */
import { EXIT } from '../contract/exit-codes.js';
import type { WorkerRecord } from '../fleet/client.js';
import type { RecordView } from '../terminal/records.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { RECORD_FORMAT_OPTION } from './support/formats.js';

export const workersLs: CommandSpec = {
  path: ['workers', 'ls'],
  summary: 'List the workers of a fleet.',
  description: [
    'STATE is the liveness of a worker: ready (it sends its presence), stale (one presence is late), lost (its presence has timed out), stopped (it ended by itself), registering (it has just started). SESSIONS is how many of its slots are taken. HEARTBEAT is the age of its last presence.',
    'Nothing is asked of the hosts: what is listed is what the workers last told the Temporal server.',
  ],
  arguments: [],
  options: [RECORD_FORMAT_OPTION, ...CONNECTION_OPTIONS],
  examples: [
    { command: 'atlas workers ls', explanation: 'the workers of the fleet "atlas"' },
    { command: 'atlas workers ls -o wide', explanation: 'with version, host, executor, disk and queue' },
    {
      command: `atlas workers ls -o json | jq -r '.workers[] | select(.state=="lost") | .name'`,
      explanation: 'the names of lost workers, for a script',
    },
  ],
  exitCodes: [EXIT.unreachable],
  load: async () => {
    const { listFleet } = await import('./support/list.js');
    const view = await workersView();
    return (context, parsed) =>
      listFleet(context, parsed, {
        view,
        list: (fleet) => fleet.listWorkers(),
        whenEmpty: (fleet) => ({
          message: `No worker is registered in the fleet "${fleet}".`,
          next: 'Start one with `atlasd`, or a local server and worker with `atlas dev`.',
        }),
      });
  },
};

/** The columns of a worker. */
export async function workersView(): Promise<RecordView<WorkerRecord>> {
  const { formatAge, formatBytes } = await import('../terminal/format.js');
  const nowMs = Date.now();
  return {
    key: 'workers',
    itemKey: 'worker',
    name: (worker) => worker.name,
    columns: [
      { header: 'NAME', value: (worker) => worker.name, shrinkTo: 12 },
      {
        header: 'STATE',
        value: (worker) => worker.state,
        colour: ({ state }) => (state === 'ready' ? 'green' : state === 'lost' ? 'red' : 'yellow'),
      },
      { header: 'SESSIONS', value: (worker) => `${worker.sessions}/${worker.cap}`, align: 'right' },
      { header: 'CAPABILITIES', value: (worker) => worker.capabilities.join(',') || '-', shrinkTo: 12 },
      {
        header: 'HEARTBEAT',
        value: (worker) => (worker.heartbeatAgeMs === null ? '-' : `${formatAge(worker.heartbeatAgeMs)} ago`),
        align: 'right',
      },
      { header: 'AGE', value: (worker) => formatAge(nowMs - Date.parse(worker.startedAt)), align: 'right' },
      { header: 'REASON', value: (worker) => worker.reason ?? '-', shrinkTo: 8 },
      { header: 'VERSION', value: (worker) => worker.version, wide: true },
      { header: 'HOST', value: (worker) => worker.host, wide: true },
      { header: 'PID', value: (worker) => String(worker.pid), align: 'right', wide: true },
      {
        header: 'EXECUTOR',
        value: ({ executor }) => (executor === null ? '-' : `${executor.state}, ${executor.restarts} restarts`),
        wide: true,
      },
      {
        header: 'DISK FREE',
        value: ({ disk }) =>
          disk === null ? '-' : `${formatBytes(disk.freeBytes)} of ${formatBytes(disk.totalBytes)}`,
        wide: true,
      },
      { header: 'QUEUE', value: (worker) => worker.queue, wide: true },
    ],
  };
}
