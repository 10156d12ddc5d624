/**
 * What `atlas top` lists: the columns of its three panels, what a record is found by and how it sorts. Pure; knows neither
 * keys nor screens.
 */
import type { PoolRecord, SessionRecord, WorkerRecord, WorkerState } from '../fleet/records.js';
import { capabilitiesText } from './capabilities.js';
import { formatAge, formatBytes, formatDuration } from './format.js';

/** One look at a fleet. */
export interface TopData {
  readonly workers: readonly WorkerRecord[];
  readonly sessions: readonly SessionRecord[];
  readonly pools: readonly PoolRecord[];
}

export interface RecordOf {
  readonly workers: WorkerRecord;
  readonly sessions: SessionRecord;
  readonly pools: PoolRecord;
}
export type Tab = keyof RecordOf;
export const TABS: readonly Tab[] = ['workers', 'sessions', 'pools'];

export type Tone = 'red' | 'green' | 'yellow' | 'cyan';

/** The time now, and the time at which the records were read: their ages are of that time. */
export interface Clock {
  readonly nowMs: number;
  readonly readAtMs: number;
}

export interface TopColumn<Item> {
  readonly header: string;
  readonly text: (item: Item, clock: Clock) => string;
  /** Null sorts last, whatever the direction: what is not known is not an answer to "which is the most". */
  readonly sort: (item: Item) => string | number | null;
  readonly align?: 'right';
  /** Narrower than this it is left out rather than cut. */
  readonly min: number;
  /** Columns with a higher rank go first where the screen is narrow. */
  readonly rank: number;
  /** Repeats what the text says. */
  readonly tone?: (item: Item) => Tone | undefined;
}

export interface Panel<Item> {
  readonly key: (item: Item) => string;
  /** Everything that the filter looks at. */
  readonly search: (item: Item) => readonly (string | null)[];
  readonly columns: readonly TopColumn<Item>[];
}

/** What wants attention comes first when workers are sorted by state. */
const SEVERITY: Readonly<Record<WorkerState, number>> = {
  lost: 0,
  degraded: 1,
  stale: 2,
  stopped: 3,
  draining: 4,
  drained: 5,
  cordoned: 6,
  registering: 7,
  ready: 8,
};
export const WORKER_STATES = (Object.keys(SEVERITY) as WorkerState[]).sort((a, b) => SEVERITY[a] - SEVERITY[b]);

export function toneOfWorker(state: WorkerState): Tone {
  if (state === 'ready') return 'green';
  return state === 'lost' || state === 'degraded' ? 'red' : 'yellow';
}

/** `held`, `held, worker lost`, `held, leaked`. */
export function sessionState({ state, workerState, leaked }: SessionRecord): string {
  const worker = workerState === 'ready' ? '' : `, worker ${workerState}`;
  return `${state}${leaked === true ? ', leaked' : ''}${worker}`;
}

export function sessionStep({ step }: SessionRecord, nowMs: number): string {
  if (step === null) return '-';
  const attempt = step.attempt > 1 ? `, attempt ${step.attempt}` : '';
  return `${step.activity} ${formatDuration(nowMs - Date.parse(step.startedAt))}${attempt}`;
}

/** A number that was taken when the records were read and has grown since. */
function grown(valueMs: number, { nowMs, readAtMs }: Clock): number {
  return valueMs + Math.max(0, nowMs - readAtMs);
}

const workers: Panel<WorkerRecord> = {
  key: (worker) => worker.name,
  search: (worker) => [
    worker.name,
    worker.host,
    worker.state,
    ...worker.capabilities,
    worker.reason,
    worker.scheduling.who,
    worker.version,
  ],
  columns: [
    { header: 'NAME', text: (worker) => worker.name, sort: (worker) => worker.name, min: 12, rank: 0 },
    {
      header: 'STATE',
      text: (worker) => worker.state,
      sort: (worker) => SEVERITY[worker.state],
      min: 8,
      rank: 1,
      tone: (worker) => toneOfWorker(worker.state),
    },
    {
      header: 'SESSIONS',
      text: (worker) => `${worker.sessions}/${worker.cap}`,
      sort: (worker) => worker.sessions,
      align: 'right',
      min: 8,
      rank: 2,
    },
    {
      header: 'BEAT',
      text: (worker, clock) => (worker.heartbeatAgeMs === null ? '-' : formatAge(grown(worker.heartbeatAgeMs, clock))),
      sort: (worker) => worker.heartbeatAgeMs,
      align: 'right',
      min: 5,
      rank: 4,
    },
    {
      header: 'CAPS',
      text: capabilitiesText,
      sort: (worker) => worker.capabilities.join(','),
      min: 6,
      rank: 5,
    },
    { header: 'HOST', text: (worker) => worker.host, sort: (worker) => worker.host, min: 8, rank: 6 },
    {
      header: 'LOAD',
      text: ({ load1 }) => (load1 === null ? '-' : load1.toFixed(1)),
      sort: (worker) => worker.load1,
      align: 'right',
      min: 5,
      rank: 7,
    },
    {
      header: 'DISK',
      text: ({ disk }) => (disk === null ? '-' : formatBytes(disk.freeBytes)),
      sort: ({ disk }) => disk?.freeBytes ?? null,
      align: 'right',
      min: 8,
      rank: 8,
    },
    {
      header: 'AGE',
      text: (worker, { nowMs }) => formatAge(nowMs - Date.parse(worker.startedAt)),
      // An age is the higher the earlier it began.
      sort: (worker) => -Date.parse(worker.startedAt),
      align: 'right',
      min: 4,
      rank: 9,
    },
    { header: 'REASON', text: (worker) => worker.reason ?? '-', sort: (worker) => worker.reason, min: 8, rank: 3 },
  ],
};

const sessions: Panel<SessionRecord> = {
  // A session that was lost with its worker and goes on with another is on both for a while.
  key: (session) => `${session.worker}/${session.key}`,
  search: (session) => [
    session.session,
    session.worker,
    sessionState(session),
    ...session.capabilities,
    session.workflowId,
    session.workflowType,
    session.runId,
    session.step?.activity ?? null,
    session.ownerStatus,
  ],
  columns: [
    { header: 'WORKER', text: (session) => session.worker, sort: (session) => session.worker, min: 10, rank: 2 },
    { header: 'SESSION', text: (session) => session.session, sort: (session) => session.session, min: 8, rank: 0 },
    {
      header: 'STATE',
      text: sessionState,
      sort: sessionState,
      min: 8,
      rank: 1,
      tone: (session) => {
        if (session.workerState === 'lost' || session.leaked === true) return 'red';
        return session.state === 'held' && session.workerState === 'ready' ? 'green' : 'yellow';
      },
    },
    {
      header: 'STEP',
      text: (session, { nowMs }) => sessionStep(session, nowMs),
      sort: ({ step }) => (step === null ? null : -Date.parse(step.startedAt)),
      min: 12,
      rank: 3,
    },
    {
      header: 'HELD',
      text: (session, clock) => formatAge(grown(session.heldForMs, clock)),
      sort: (session) => session.heldForMs,
      align: 'right',
      min: 5,
      rank: 5,
    },
    {
      header: 'EXPIRES',
      text: (session, { nowMs, readAtMs }) => formatDuration(session.expiresInMs - (nowMs - readAtMs)),
      sort: (session) => session.expiresInMs,
      align: 'right',
      min: 7,
      rank: 6,
    },
    {
      header: 'IDLE',
      text: (session, clock) => (session.idleForMs === null ? '-' : formatAge(grown(session.idleForMs, clock))),
      sort: (session) => session.idleForMs,
      align: 'right',
      min: 5,
      rank: 7,
    },
    {
      header: 'SCRATCH',
      text: ({ scratchBytes }) => (scratchBytes === null ? '-' : formatBytes(scratchBytes)),
      sort: (session) => session.scratchBytes,
      align: 'right',
      min: 8,
      rank: 8,
    },
    { header: 'OWNER', text: (session) => session.workflowId, sort: (session) => session.workflowId, min: 10, rank: 4 },
  ],
};

const pools: Panel<PoolRecord> = {
  key: (pool) => pool.pool,
  search: (pool) => [pool.pool, ...pool.capabilities, ...pool.workers, pool.reason],
  columns: [
    { header: 'POOL', text: (pool) => pool.pool, sort: (pool) => pool.pool, min: 10, rank: 0 },
    {
      header: 'WAITING',
      text: ({ backlog }) => (backlog === null ? '-' : String(backlog)),
      sort: (pool) => pool.backlog,
      align: 'right',
      min: 7,
      rank: 1,
      tone: ({ backlog }) => (backlog !== null && backlog > 0 ? 'yellow' : undefined),
    },
    {
      header: 'OLDEST',
      text: (pool, clock) => (pool.oldestWaitMs === null ? '-' : formatAge(grown(pool.oldestWaitMs, clock))),
      sort: (pool) => pool.oldestWaitMs,
      align: 'right',
      min: 6,
      rank: 3,
    },
    {
      header: 'FREE',
      text: (pool) => String(pool.freeSlots),
      sort: (pool) => pool.freeSlots,
      align: 'right',
      min: 4,
      rank: 2,
    },
    {
      header: 'WORKERS',
      text: (pool) => `${pool.liveWorkers}/${pool.workers.length}`,
      sort: (pool) => pool.liveWorkers,
      align: 'right',
      min: 7,
      rank: 5,
    },
    { header: 'REASON', text: (pool) => pool.reason ?? '-', sort: (pool) => pool.reason, min: 8, rank: 4 },
  ],
};

export const PANELS: { readonly [T in Tab]: Panel<RecordOf[T]> } = { workers, sessions, pools };

/** A record with what is needed at every key: worked out once for each look at the fleet. */
export interface Row<Item> {
  readonly key: string;
  readonly item: Item;
  readonly search: string;
}

export function rowsOf<T extends Tab>(tab: T, items: readonly RecordOf[T][]): Row<RecordOf[T]>[] {
  const panel: Panel<RecordOf[T]> = PANELS[tab];
  return items.map((item) => ({
    key: panel.key(item),
    item,
    search: panel
      .search(item)
      .filter((part) => part !== null)
      .join('\n')
      .toLowerCase(),
  }));
}

/** Rows in which every word of the filter is found. */
export function filterRows<Item>(rows: readonly Row<Item>[], filter: string): readonly Row<Item>[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? rows : rows.filter(({ search }) => words.every((word) => search.includes(word)));
}

const collator = new Intl.Collator('en', { numeric: true });

/** By a column, and by key where that says nothing, so that equal rows do not swap places between two looks. */
export function sortRows<Item>(
  rows: readonly Row<Item>[],
  column: TopColumn<Item>,
  reversed: boolean,
): readonly Row<Item>[] {
  const direction = reversed ? -1 : 1;
  const keyed = rows.map((row) => ({ row, value: column.sort(row.item) }));
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) {
      if (a.value !== b.value) return a.value === null ? 1 : -1;
    } else if (a.value !== b.value) {
      const order =
        typeof a.value === 'number' && typeof b.value === 'number'
          ? a.value - b.value
          : collator.compare(String(a.value), String(b.value));
      if (order !== 0) return direction * order;
    }
    return collator.compare(a.row.key, b.row.key);
  });
  return keyed.map(({ row }) => row);
}
