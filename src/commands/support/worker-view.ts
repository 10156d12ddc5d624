/** The columns of a worker, and by what its list is selected and sorted. */
import type { WorkerRecord } from '../../fleet/client.js';
import { capabilitiesText, withdrawnText } from '../../terminal/capabilities.js';
import { formatAge, formatBytes, formatDuration } from '../../terminal/format.js';
import type { Style } from '../../terminal/style.js';
import type { ListView } from './list-view.js';

const STATES = [
  'registering',
  'ready',
  'cordoned',
  'draining',
  'drained',
  'degraded',
  'stale',
  'lost',
  'stopped',
] as const satisfies readonly WorkerRecord['state'][];

export const WORKER_VIEW: ListView<WorkerRecord> = {
  key: 'workers',
  itemKey: 'worker',
  name: (worker) => worker.name,
  id: (worker) => worker.name,
  columns: [
    { header: 'NAME', value: (worker) => worker.name, shrinkTo: 12 },
    { header: 'STATE', value: (worker) => worker.state, colour: ({ state }) => stateColour(state) },
    { header: 'SESSIONS', value: (worker) => `${worker.sessions}/${worker.cap}`, align: 'right' },
    { header: 'CAPABILITIES', value: capabilitiesText, shrinkTo: 12 },
    { header: 'SEEN', value: (worker) => ageText(worker.heartbeatAgeMs), align: 'right' },
    { header: 'AGE', value: (worker) => formatAge(Date.now() - Date.parse(worker.startedAt)), align: 'right' },
    { header: 'VERSION', value: (worker) => worker.version, dropFirst: 2 },
    { header: 'HOST', value: (worker) => worker.host, shrinkTo: 10, dropFirst: 1 },
    { header: 'ORDER', value: orderText, wide: true },
    { header: 'DEADLINE', value: deadlineText, wide: true },
    { header: 'EXECUTOR', value: executorText, wide: true },
    { header: 'LOAD', value: ({ load1 }) => load1?.toFixed(1) ?? '-', align: 'right', wide: true },
    { header: 'DISK FREE', value: diskText, wide: true },
    { header: 'CLOCK', value: skewText, align: 'right', wide: true },
    { header: 'PID', value: (worker) => String(worker.pid), align: 'right', wide: true },
    { header: 'QUEUE', value: (worker) => worker.queue, wide: true },
    { header: 'REASON', value: reasonText, shrinkTo: 16 },
  ],
  selectors: [
    { name: 'cap', help: 'a capability that it has', of: ({ capabilities }) => capabilities },
    { name: 'state', help: 'as in the column STATE', of: ({ state }) => [state], values: STATES },
    { name: 'name', help: 'its name', of: ({ name }) => [name] },
    { name: 'host', help: 'the name of its host', of: ({ host }) => [host] },
    { name: 'version', help: 'the version of its atlasd', of: ({ version }) => [version] },
    {
      name: 'scheduling',
      help: 'what operators want of it, dead or alive: open, cordoned, draining or drained',
      of: ({ scheduling }) => [scheduling.scheduling],
      values: ['open', 'cordoned', 'draining', 'drained'],
    },
    {
      name: 'withdrawn',
      help: 'a capability that it has withdrawn',
      of: ({ withdrawn }) => withdrawn.map(({ capability }) => capability),
    },
  ],
  sortFields: [
    'name',
    'state',
    'sessions',
    'cap',
    'capabilities',
    'heartbeatAgeMs',
    'startedAt',
    'version',
    'host',
    'scheduling.scheduling',
    'scheduling.applied',
    'scheduling.drain.deadlineAt',
    'executor.state',
    'executor.restarts',
    'load1',
    'disk.freeBytes',
    'clockSkewMs',
    'pid',
    'queue',
    'reason',
  ],
  volatile: ['heartbeatAgeMs', 'load1', 'disk', 'clockSkewMs'],
};

/** Why it is not ready, or else why it does not offer all of its capabilities. */
function reasonText(worker: WorkerRecord): string {
  return [...(worker.reason === null ? [] : [worker.reason]), withdrawnText(worker)].filter(Boolean).join('; ') || '-';
}

export function stateColour(state: WorkerRecord['state']): keyof Omit<Style, 'enabled'> {
  return state === 'ready' ? 'green' : state === 'lost' || state === 'degraded' ? 'red' : 'yellow';
}

export function ageText(ageMs: number | null): string {
  return ageMs === null ? '-' : formatAge(ageMs);
}

/** What operators want of it, and whether its daemon acts on that. */
function orderText({ scheduling: { scheduling, applied } }: WorkerRecord): string {
  if (scheduling === 'open' && applied) return '-';
  return `${scheduling}, ${applied ? 'applied' : 'not applied yet'}`;
}

export function deadlineText({ scheduling: { drain } }: WorkerRecord): string {
  if (drain?.deadlineAt == null) return '-';
  const leftMs = Date.parse(drain.deadlineAt) - Date.now();
  const when = leftMs > 0 ? `in ${formatDuration(leftMs)}` : `${formatDuration(-leftMs)} ago`;
  return `${when}, then ${drain.onDeadline}`;
}

export function executorText({ executor }: WorkerRecord): string {
  if (executor === null) return '-';
  return executor.restarts === 0 ? executor.state : `${executor.state}, ${executor.restarts} restarts`;
}

export function diskText({ disk }: WorkerRecord): string {
  return disk === null ? '-' : `${formatBytes(disk.freeBytes)} of ${formatBytes(disk.totalBytes)}`;
}

/** How far the clock of its host is ahead of the server's. */
export function skewText({ clockSkewMs }: WorkerRecord): string {
  if (clockSkewMs === null) return '-';
  const sign = clockSkewMs < 0 ? '-' : '+';
  return `${sign}${formatDuration(Math.abs(clockSkewMs))}`;
}
