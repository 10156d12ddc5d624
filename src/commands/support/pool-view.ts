/** The columns of a pool, and by what its list is selected and sorted. */
import type { PoolRecord } from '../../fleet/client.js';
import { formatAge } from '../../terminal/format.js';
import type { ListView } from './list-view.js';

export const POOL_VIEW: ListView<PoolRecord> = {
  key: 'pools',
  itemKey: 'pool',
  name: ({ pool }) => pool,
  id: ({ pool }) => pool,
  columns: [
    { header: 'POOL', value: ({ pool }) => pool, shrinkTo: 12 },
    {
      header: 'BACKLOG',
      value: ({ backlog }) => (backlog === null ? '?' : String(backlog)),
      align: 'right',
      colour: ({ backlog, liveWorkers }) =>
        backlog === null || backlog === 0 ? undefined : liveWorkers === 0 ? 'red' : 'yellow',
    },
    {
      header: 'OLDEST WAIT',
      value: ({ oldestWaitMs }) => (oldestWaitMs === null ? '-' : formatAge(oldestWaitMs)),
      align: 'right',
    },
    { header: 'FREE SLOTS', value: ({ freeSlots }) => String(freeSlots), align: 'right' },
    { header: 'LIVE', value: ({ liveWorkers, workers }) => `${liveWorkers}/${workers.length}`, align: 'right' },
    { header: 'WORKERS', value: ({ workers }) => workers.join(','), shrinkTo: 10 },
    { header: 'QUEUE', value: ({ queue }) => queue, wide: true },
    {
      header: 'REASON',
      value: ({ reason }) => reason ?? '-',
      shrinkTo: 16,
      colour: ({ liveWorkers }) => (liveWorkers === 0 ? 'red' : undefined),
    },
  ],
  selectors: [
    { name: 'cap', help: 'a capability of the set', of: ({ capabilities }) => capabilities },
    { name: 'pool', help: 'the set as in the column POOL', of: ({ pool }) => [pool] },
    { name: 'worker', help: 'a worker that serves it', of: ({ workers }) => workers },
  ],
  sortFields: ['pool', 'backlog', 'oldestWaitMs', 'freeSlots', 'liveWorkers', 'workers', 'queue', 'reason'],
  volatile: ['oldestWaitMs'],
};
