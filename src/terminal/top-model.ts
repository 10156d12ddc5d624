/**
 * The state of `atlas top` and how it changes: a key, a look at the fleet or the answer to an order give the next state,
 * and what is to be done about it. Pure; time comes with the events.
 */
import type { SessionRecord, WorkerRecord } from '../fleet/records.js';
import { count } from './format.js';
import { helpLines, type Line, sessionLines, workerLines, wrapped } from './top-details.js';
import {
  filterRows,
  PANELS,
  type RecordOf,
  type Row,
  rowsOf,
  sortRows,
  type Tab,
  TABS,
  type TopData,
} from './top-panels.js';

export type TopKey =
  | { readonly name: 'text'; readonly text: string }
  | {
      readonly name:
        | 'up'
        | 'down'
        | 'pageUp'
        | 'pageDown'
        | 'home'
        | 'end'
        | 'enter'
        | 'escape'
        | 'tab'
        | 'backTab'
        | 'backspace'
        | 'clearLine'
        | 'redraw'
        | 'interrupt';
    };

/** What an operator may order here; each names the record that was seen when it was chosen. */
export type TopAction =
  | { readonly kind: 'cordon' | 'uncordon' | 'drain'; readonly worker: WorkerRecord }
  | {
      readonly kind: 'release';
      readonly session: SessionRecord;
      /** Of its worker; null where the worker was not listed. */
      readonly revision: number | null;
    };

export type TopOverlay =
  | { readonly kind: 'help'; readonly top: number }
  /** `before` comes back with Esc. */
  | { readonly kind: 'filter'; readonly before: string }
  | { readonly kind: 'reason'; readonly action: TopAction; readonly text: string }
  /** `typed`: the `y` that a release by force wants to have typed, before Enter. */
  | { readonly kind: 'confirm'; readonly action: TopAction; readonly why: string | null; readonly typed: boolean };

/** The record is the latest that was seen of it. */
export type Drill =
  | { readonly kind: 'worker'; readonly worker: WorkerRecord; readonly gone: boolean; readonly top: number }
  | { readonly kind: 'session'; readonly session: SessionRecord; readonly gone: boolean; readonly top: number };

export interface ListState<Item> {
  /** Everything, in the order of the last look. */
  readonly all: readonly Row<Item>[];
  /** What the filter lets through, sorted. */
  readonly rows: readonly Row<Item>[];
  /** Index of the column. */
  readonly sort: number;
  readonly reversed: boolean;
  readonly filter: string;
  /** Of the selected row, which follows its record when the order changes. 0 where there is none. */
  readonly index: number;
  /** The first row on the screen. */
  readonly top: number;
}
export type Lists = { readonly [T in Tab]: ListState<RecordOf[T]> };

export interface PendingOrder {
  readonly id: number;
  readonly action: TopAction;
}

export interface TopStatus {
  readonly text: string;
  readonly kind: 'note' | 'good' | 'bad';
}

/** How the looks at the fleet go. */
export interface Reading {
  /** When the records were read; null before the first look has ended. */
  readonly readAtMs: number | null;
  /** How long that took. */
  readonly tookMs: number;
  readonly underWaySinceMs: number | null;
  /** The start of the first of the looks that failed since; null while they succeed. */
  readonly failingSinceMs: number | null;
  readonly failure: string | null;
}

export interface TopState {
  readonly fleet: string;
  readonly address: string;
  /** Who gives the orders. */
  readonly operator: string;
  readonly columns: number;
  readonly rows: number;
  readonly data: TopData;
  readonly reading: Reading;
  readonly tab: Tab;
  readonly lists: Lists;
  readonly drill: Drill | null;
  readonly overlay: TopOverlay | null;
  readonly pending: readonly PendingOrder[];
  readonly nextOrder: number;
  readonly status: TopStatus | null;
  /** `q` was pressed while an order was under way. */
  readonly leaving: boolean;
}

export type OrderOutcome = { readonly kind: 'done' | 'conflict' | 'failed'; readonly text: string };

export type TopEvent =
  | { readonly kind: 'key'; readonly key: TopKey }
  | { readonly kind: 'resize'; readonly columns: number; readonly rows: number }
  | { readonly kind: 'reading'; readonly atMs: number }
  | { readonly kind: 'read'; readonly data: TopData; readonly atMs: number }
  | { readonly kind: 'unread'; readonly failure: string }
  | { readonly kind: 'answered'; readonly id: number; readonly outcome: OrderOutcome };

/** What an order says beside its action. */
export interface TopOrder {
  readonly action: TopAction;
  readonly who: string;
  readonly why: string | null;
  readonly ifRevision?: number;
  /** The operator has been told that another one took the worker out of service. */
  readonly ofOthers: boolean;
}

export type TopEffect =
  | { readonly kind: 'leave'; readonly how: 'quit' | 'interrupted' }
  | { readonly kind: 'order'; readonly id: number; readonly order: TopOrder }
  | { readonly kind: 'read' }
  | { readonly kind: 'redraw' };

export interface Next {
  readonly state: TopState;
  readonly effects: readonly TopEffect[];
}

const NO_EFFECTS: readonly TopEffect[] = [];
/** A reason is kept in the memo of the worker and shown in one column. */
export const REASON_MAX = 200;
/** How long a look may take before it is worth a word that the server is silent: three times what the last one took. */
const PATIENCE_MS = 5_000;
const PATIENCE_FACTOR = 3;

export function startOfTop(start: {
  readonly fleet: string;
  readonly address: string;
  readonly operator: string;
  readonly columns: number;
  readonly rows: number;
}): TopState {
  const empty = { all: [], rows: [], sort: 0, reversed: false, filter: '', index: 0, top: 0 };
  return {
    ...start,
    data: { workers: [], sessions: [], pools: [] },
    reading: { readAtMs: null, tookMs: 0, underWaySinceMs: null, failingSinceMs: null, failure: null },
    tab: 'workers',
    lists: { workers: empty, sessions: empty, pools: empty },
    drill: null,
    overlay: null,
    pending: [],
    nextOrder: 1,
    status: null,
    leaving: false,
  };
}

// Layout ----------------------------------------------------------------------------------------------------------------

/** Which lines there is room for; the list has the rest, and never less than one. */
export interface Layout {
  readonly title: boolean;
  readonly counts: boolean;
  readonly tabs: boolean;
  readonly headers: boolean;
  /** Lines for the status: a long one, such as a conflict, is to be read to its end where there is room. */
  readonly status: number;
  readonly keys: boolean;
  readonly body: number;
}

const STATUS_LINES_MAX = 3;
const STATUS_GROWS_FROM_ROWS = 14;

export function layoutOf(state: Pick<TopState, 'rows' | 'columns' | 'status' | 'overlay'>): Layout {
  const { rows } = state;
  const parts = {
    title: rows >= 2,
    headers: rows >= 5,
    tabs: rows >= 6,
    counts: rows >= 7,
    keys: rows >= 9,
  };
  const status = rows >= 3 ? statusLinesOf(state) : 0;
  const used = Object.values(parts).filter(Boolean).length + status;
  return { ...parts, status, body: Math.max(1, rows - used) };
}

function statusLinesOf({
  rows,
  columns,
  status,
  overlay,
}: Pick<TopState, 'rows' | 'columns' | 'status' | 'overlay'>): number {
  if (rows < STATUS_GROWS_FROM_ROWS || status === null || overlay?.kind === 'filter') return 1;
  return Math.min(STATUS_LINES_MAX, wrapped(status.text, textWidth(columns)).length);
}

/** Since when the server has been silent, if it is. */
export function silentSinceMs({ reading }: TopState, nowMs: number): number | null {
  if (reading.failingSinceMs !== null) return reading.failingSinceMs;
  const { underWaySinceMs, tookMs } = reading;
  if (underWaySinceMs === null) return null;
  return nowMs - underWaySinceMs > Math.max(PATIENCE_MS, PATIENCE_FACTOR * tookMs) ? underWaySinceMs : null;
}

// Events ----------------------------------------------------------------------------------------------------------------

export function step(state: TopState, event: TopEvent): Next {
  const next = react(state, event);
  return { ...next, state: scrolled(next.state) };
}

function react(state: TopState, event: TopEvent): Next {
  switch (event.kind) {
    case 'key':
      return onKey(state, event.key);
    case 'resize':
      return unchanged({ ...state, columns: event.columns, rows: event.rows });
    case 'reading':
      return unchanged({ ...state, reading: { ...state.reading, underWaySinceMs: event.atMs } });
    case 'read':
      return unchanged(onRead(state, event.data, event.atMs));
    case 'unread': {
      const { failingSinceMs, underWaySinceMs } = state.reading;
      return unchanged({
        ...state,
        reading: {
          ...state.reading,
          underWaySinceMs: null,
          failingSinceMs: failingSinceMs ?? underWaySinceMs,
          failure: event.failure,
        },
      });
    }
    case 'answered':
      return {
        state: {
          ...state,
          pending: state.pending.filter(({ id }) => id !== event.id),
          status: { text: event.outcome.text, kind: event.outcome.kind === 'done' ? 'good' : 'bad' },
          leaving: false,
        },
        // What the order has changed is what the operator wants to see next.
        effects: [{ kind: 'read' }],
      };
  }
}

function unchanged(state: TopState): Next {
  return { state, effects: NO_EFFECTS };
}

function onRead(state: TopState, data: TopData, atMs: number): TopState {
  const { underWaySinceMs } = state.reading;
  const lists: Lists = {
    workers: reread(state, 'workers', data.workers),
    sessions: reread(state, 'sessions', data.sessions),
    pools: reread(state, 'pools', data.pools),
  };
  return {
    ...state,
    data,
    lists,
    drill: state.drill === null ? null : followed(state.drill, data),
    reading: {
      readAtMs: atMs,
      tookMs: underWaySinceMs === null ? 0 : Math.max(0, atMs - underWaySinceMs),
      underWaySinceMs: null,
      failingSinceMs: null,
      failure: null,
    },
  };
}

function followed(drill: Drill, data: TopData): Drill {
  if (drill.kind === 'worker') {
    const worker = data.workers.find(({ name }) => name === drill.worker.name);
    return worker === undefined ? { ...drill, gone: true } : { ...drill, worker, gone: false };
  }
  const key = PANELS.sessions.key(drill.session);
  const session = data.sessions.find((each) => PANELS.sessions.key(each) === key);
  return session === undefined ? { ...drill, gone: true } : { ...drill, session, gone: false };
}

// Lists -----------------------------------------------------------------------------------------------------------------

function reread<T extends Tab>(state: TopState, tab: T, items: readonly RecordOf[T][]): ListState<RecordOf[T]> {
  const list: ListState<RecordOf[T]> = state.lists[tab];
  return arranged(tab, { ...list, all: rowsOf(tab, items) }, list.rows[list.index]?.key);
}

/** Filters and sorts anew; the selection stays with its record, or else where it is. */
function arranged<T extends Tab>(
  tab: T,
  list: ListState<RecordOf[T]>,
  selected: string | undefined,
): ListState<RecordOf[T]> {
  const column = PANELS[tab].columns[list.sort] ?? PANELS[tab].columns[0]!;
  const rows = sortRows(filterRows(list.all, list.filter), column, list.reversed);
  const found = selected === undefined ? -1 : rows.findIndex(({ key }) => key === selected);
  const index = found >= 0 ? found : Math.max(0, Math.min(list.index, rows.length - 1));
  // The selected row stays at the same height of the screen, as far as there are rows above it.
  return { ...list, rows, index, top: list.top + index - list.index };
}

/** Every list scrolled so that its selection is on the screen and no room is wasted below the last row. */
function scrolled(state: TopState): TopState {
  const { body } = layoutOf(state);
  const scroll = <Item>(list: ListState<Item>): ListState<Item> => {
    const lowest = Math.max(0, list.rows.length - body);
    const top = Math.max(0, Math.min(list.top, list.index, lowest));
    return { ...list, top: Math.max(top, list.index - body + 1) };
  };
  const { workers, sessions, pools } = state.lists;
  return { ...state, lists: { workers: scroll(workers), sessions: scroll(sessions), pools: scroll(pools) } };
}

/** Changes the list of the tab that is shown, and arranges it anew. */
function rearranged(
  state: TopState,
  change: (
    list: ListState<unknown>,
    columns: number,
  ) => Partial<Pick<ListState<unknown>, 'sort' | 'reversed' | 'filter'>>,
): TopState {
  const rearrange = <T extends Tab>(tab: T): Lists => {
    const list: ListState<RecordOf[T]> = state.lists[tab];
    const next = { ...list, ...change(list, PANELS[tab].columns.length) };
    return { ...state.lists, [tab]: arranged(tab, next, list.rows[list.index]?.key) };
  };
  return { ...state, lists: rearrange(state.tab) };
}

function moved(state: TopState, to: Travel): TopState {
  const { body } = layoutOf(state);
  const move = <T extends Tab>(tab: T): Lists => {
    const list: ListState<RecordOf[T]> = state.lists[tab];
    const index = Math.max(0, Math.min(to(list.index, body, list.rows.length), list.rows.length - 1));
    return { ...state.lists, [tab]: { ...list, index } };
  };
  return { ...state, lists: move(state.tab) };
}

export function selectedOf<T extends Tab>(state: TopState, tab: T): RecordOf[T] | undefined {
  const list: ListState<RecordOf[T]> = state.lists[tab];
  return list.rows[list.index]?.item;
}

// Keys ------------------------------------------------------------------------------------------------------------------

function onKey(state: TopState, key: TopKey): Next {
  if (key.name === 'interrupt') return { state, effects: [{ kind: 'leave', how: 'interrupted' }] };
  if (key.name === 'redraw') return { state, effects: [{ kind: 'redraw' }] };
  const { overlay } = state;
  if (overlay === null) return onPlainKey(state, key);
  switch (overlay.kind) {
    case 'help':
      return unchanged(onHelpKey(state, overlay, key));
    case 'filter':
      return unchanged(onFilterKey(state, overlay, key));
    case 'reason':
      return unchanged(onReasonKey(state, overlay, key));
    case 'confirm':
      return onConfirmKey(state, overlay, key);
  }
}

/** Where a key leads to. The result may be out of bounds. */
type Travel = (index: number, room: number, rows: number) => number;

function travel(key: TopKey): Travel | undefined {
  switch (key.name === 'text' ? key.text : key.name) {
    case 'up':
    case 'k':
      return (index) => index - 1;
    case 'down':
    case 'j':
      return (index) => index + 1;
    case 'pageUp':
      return (index, body) => index - body;
    case 'pageDown':
      return (index, body) => index + body;
    case 'home':
      return () => 0;
    case 'end':
      return (_index, _body, rows) => rows - 1;
    default:
      return undefined;
  }
}

function onPlainKey(before: TopState, key: TopKey): Next {
  const state = before.leaving && key.name === 'text' && key.text !== 'q' ? { ...before, leaving: false } : before;
  const to = travel(key);
  if (to !== undefined)
    return unchanged(state.drill === null ? moved(state, to) : drillScrolled(state, state.drill, to));
  switch (key.name) {
    case 'tab':
    case 'backTab': {
      const forward = key.name === 'tab' ? 1 : TABS.length - 1;
      return unchanged(shown(state, TABS[(TABS.indexOf(state.tab) + forward) % TABS.length]!));
    }
    case 'enter':
      return unchanged(state.drill === null ? drilled(state) : state);
    case 'backspace':
      return unchanged({ ...state, drill: null });
    case 'escape':
      return unchanged(escaped(state));
    case 'text':
      return onText(state, key.text);
    default:
      return unchanged(state);
  }
}

function onText(state: TopState, text: string): Next {
  switch (text) {
    case '1':
    case '2':
    case '3':
      return unchanged(shown(state, TABS[Number(text) - 1]!));
    case 'q':
      if (state.pending.length > 0 && !state.leaving) {
        const status = 'An order is under way; press q again to leave without its answer.';
        return unchanged({ ...state, leaving: true, status: { text: status, kind: 'bad' } });
      }
      return { state, effects: [{ kind: 'leave', how: 'quit' }] };
    case '?':
      return unchanged({ ...state, overlay: { kind: 'help', top: 0 } });
    case '/':
      if (state.drill !== null) return unchanged(state);
      return unchanged({ ...state, overlay: { kind: 'filter', before: state.lists[state.tab].filter } });
    case 's':
      if (state.drill !== null) return unchanged(state);
      return unchanged(rearranged(state, ({ sort }, columns) => ({ sort: (sort + 1) % columns, reversed: false })));
    case 'S':
      if (state.drill !== null) return unchanged(state);
      return unchanged(rearranged(state, ({ reversed }) => ({ reversed: !reversed })));
    case 'c':
      return unchanged(asked(state, 'cordon'));
    case 'u':
      return unchanged(asked(state, 'uncordon'));
    case 'd':
      return unchanged(asked(state, 'drain'));
    case 'r':
      return unchanged(askedToRelease(state));
    default:
      return unchanged(state);
  }
}

function shown(state: TopState, tab: Tab): TopState {
  return { ...state, tab, drill: null };
}

function drilled(state: TopState): TopState {
  if (state.tab === 'workers') {
    const worker = selectedOf(state, 'workers');
    return worker === undefined ? state : { ...state, drill: { kind: 'worker', worker, gone: false, top: 0 } };
  }
  if (state.tab === 'sessions') {
    const session = selectedOf(state, 'sessions');
    return session === undefined ? state : { ...state, drill: { kind: 'session', session, gone: false, top: 0 } };
  }
  return state;
}

/** The lines of what is looked at. */
export function drillLines({ data, reading, columns }: TopState, drill: Drill, nowMs?: number): Line[] {
  const readAtMs = reading.readAtMs ?? 0;
  const clock = { readAtMs, nowMs: nowMs ?? readAtMs };
  const width = textWidth(columns);
  const lines =
    drill.kind === 'worker' ? workerLines(drill.worker, data, width, clock) : sessionLines(drill.session, width, clock);
  const name = drill.kind === 'worker' ? `worker ${drill.worker.name}` : `session ${drill.session.session}`;
  const gone = drill.gone ? ', no longer listed: this is what was last known' : '';
  return [...wrapped(name + gone, width).map((text): Line => [{ text, bold: true }]), ...lines];
}

/** One column stays free: a character in the last one makes some terminals wrap. */
export function textWidth(columns: number): number {
  return Math.max(1, columns - 1);
}

function drillScrolled(state: TopState, drill: Drill, to: Travel): TopState {
  const top = scrolledBy(to, drill.top, drillLines(state, drill).length, drillRoom(state));
  return { ...state, drill: { ...drill, top } };
}

/** What is looked at has the line of the column headers, too. */
export function drillRoom(state: TopState): number {
  const { body, headers } = layoutOf(state);
  return body + (headers ? 1 : 0);
}

/** The first line of a text, for which up and down move the text and not a selection. */
function scrolledBy(to: Travel, top: number, lines: number, room: number): number {
  const lowest = Math.max(0, lines - room);
  return Math.max(0, Math.min(to(Math.min(top, lowest), room, lowest + 1), lowest));
}

/** The innermost thing first. */
function escaped(state: TopState): TopState {
  if (state.drill !== null) return { ...state, drill: null };
  if (state.lists[state.tab].filter !== '') return rearranged(state, () => ({ filter: '' }));
  return { ...state, status: null, leaving: false };
}

function onHelpKey(state: TopState, overlay: TopOverlay & { kind: 'help' }, key: TopKey): TopState {
  const to = travel(key);
  if (to === undefined) {
    const closes = key.name !== 'text' || ['?', 'q', ' '].includes(key.text);
    return closes ? { ...state, overlay: null } : state;
  }
  const lines = helpLines(textWidth(state.columns)).length;
  return { ...state, overlay: { kind: 'help', top: scrolledBy(to, overlay.top, lines, drillRoom(state)) } };
}

function onFilterKey(state: TopState, overlay: TopOverlay & { kind: 'filter' }, key: TopKey): TopState {
  const { filter } = state.lists[state.tab];
  switch (key.name) {
    case 'enter':
      return { ...state, overlay: null };
    case 'escape':
      return rearranged({ ...state, overlay: null }, () => ({ filter: '' }));
    case 'backspace':
      if (filter === '') return rearranged({ ...state, overlay: null }, () => ({ filter: overlay.before }));
      return rearranged(state, () => ({ filter: edited(filter, key) }));
    case 'text':
    case 'clearLine':
      return rearranged(state, () => ({ filter: edited(filter, key) }));
    default: {
      const to = travel(key);
      return to === undefined ? state : moved(state, to);
    }
  }
}

function edited(text: string, key: TopKey): string {
  if (key.name === 'backspace') return [...text].slice(0, -1).join('');
  if (key.name === 'clearLine') return '';
  return key.name === 'text' ? [...(text + key.text)].slice(0, REASON_MAX).join('') : text;
}

// Orders ----------------------------------------------------------------------------------------------------------------

function noted(state: TopState, text: string): TopState {
  return { ...state, status: { text, kind: 'note' } };
}

/** The worker that a key is about: the one that is looked at, or the selected one. */
function workerInView(state: TopState): WorkerRecord | undefined {
  if (state.drill !== null) return state.drill.kind === 'worker' && !state.drill.gone ? state.drill.worker : undefined;
  return state.tab === 'workers' ? selectedOf(state, 'workers') : undefined;
}

function asked(state: TopState, kind: 'cordon' | 'uncordon' | 'drain'): TopState {
  const worker = workerInView(state);
  if (worker === undefined) return noted(state, `Select a worker to ${kind}: they are on panel 1.`);
  const refusal = needless(kind, worker);
  if (refusal !== undefined) return noted(state, refusal);
  return { ...state, overlay: { kind: 'reason', action: { kind, worker }, text: '' } };
}

/** Why there is nothing to order, if so. */
function needless(kind: 'cordon' | 'uncordon' | 'drain', { name, scheduling: by }: WorkerRecord): string | undefined {
  const { scheduling } = by;
  if (kind === 'uncordon') {
    return scheduling === 'open' ? `${name} is neither cordoned nor drained; there is nothing to undo.` : undefined;
  }
  const already = `${name} is ${scheduling} already${by.who === null ? '' : `, by ${by.who}`}.`;
  if (kind === 'cordon') return scheduling === 'open' ? undefined : already;
  return scheduling === 'draining' || scheduling === 'drained' ? already : undefined;
}

function askedToRelease(state: TopState): TopState {
  const { drill } = state;
  const session =
    drill !== null
      ? drill.kind === 'session' && !drill.gone
        ? drill.session
        : undefined
      : state.tab === 'sessions'
        ? selectedOf(state, 'sessions')
        : undefined;
  if (session === undefined) return noted(state, 'Select a session to release: they are on panel 2.');
  const worker = state.data.workers.find(({ name }) => name === session.worker);
  const action: TopAction = { kind: 'release', session, revision: worker?.scheduling.revision ?? null };
  return { ...state, overlay: { kind: 'reason', action, text: '' } };
}

function onReasonKey(state: TopState, overlay: TopOverlay & { kind: 'reason' }, key: TopKey): TopState {
  if (key.name === 'escape') return cancelled(state, overlay.action);
  if (key.name === 'enter') {
    const why = overlay.text.trim();
    return {
      ...state,
      overlay: { kind: 'confirm', action: overlay.action, why: why === '' ? null : why, typed: false },
    };
  }
  return { ...state, overlay: { ...overlay, text: edited(overlay.text, key) } };
}

function onConfirmKey(state: TopState, overlay: TopOverlay & { kind: 'confirm' }, key: TopKey): Next {
  const { action, why, typed } = overlay;
  if (key.name === 'text' && key.text.toLowerCase() === 'y') {
    // What ends work by force wants one more key than what can be undone.
    if (action.kind === 'release') return unchanged({ ...state, overlay: { ...overlay, typed: true } });
    return ordered(state, action, why);
  }
  if (key.name === 'enter' && typed) return ordered(state, action, why);
  if (key.name === 'backspace' && typed) return unchanged({ ...state, overlay: { ...overlay, typed: false } });
  const says = key.name === 'text' ? key.text.toLowerCase() : key.name;
  return ['n', 'q', 'enter', 'escape'].includes(says) ? unchanged(cancelled(state, action)) : unchanged(state);
}

function cancelled(state: TopState, action: TopAction): TopState {
  return noted({ ...state, overlay: null }, `Nothing was ordered: ${describeAction(action)} was given up.`);
}

function ordered(state: TopState, action: TopAction, why: string | null): Next {
  const id = state.nextOrder;
  const revision = action.kind === 'release' ? action.revision : action.worker.scheduling.revision;
  const order: TopOrder = {
    action,
    who: state.operator,
    why,
    ...(revision === null ? {} : { ifRevision: revision }),
    ofOthers: action.kind === 'uncordon' && action.worker.scheduling.who !== state.operator,
  };
  return {
    state: {
      ...state,
      overlay: null,
      nextOrder: id + 1,
      pending: [...state.pending, { id, action }],
      status: { text: `Ordered: ${describeAction(action)}. Waiting for the answer.`, kind: 'note' },
    },
    effects: [{ kind: 'order', id, order }],
  };
}

/** `the drain of worker-7`. */
export function describeAction(action: TopAction): string {
  return action.kind === 'release'
    ? `the release of session ${action.session.session} on ${action.session.worker}`
    : `the ${action.kind} of ${action.worker.name}`;
}

/**
 * What is about to happen, in sentences. Says the number of sessions and the owner as they are now, where the record is
 * still listed.
 */
export function consequences({ action, data, operator }: ConsequencesOf): string[] {
  if (action.kind === 'release') {
    const key = PANELS.sessions.key(action.session);
    const listed = data.sessions.find((session) => PANELS.sessions.key(session) === key);
    const { session, worker, workflowId, workflowType, runId, step, workerState } = listed ?? action.session;
    return [
      `Release session ${session} of ${worker} by force.`,
      `Its owner ${workflowId} (${workflowType}, run ${runId}) loses it and follows its onLost.`,
      step === null ? 'No step runs.' : `The running step ${step.activity} (attempt ${step.attempt}) ends.`,
      ...(workerState === 'lost' || workerState === 'stopped'
        ? [`The worker is ${workerState}: its owner is told once nothing can run there any more.`]
        : []),
      ...(listed === undefined ? ['It is no longer listed.'] : []),
    ];
  }
  const listed = data.workers.find(({ name }) => name === action.worker.name);
  const { name, sessions, cap, state, scheduling } = listed ?? action.worker;
  const held = count(sessions, 'session');
  const away = state === 'lost' || state === 'stopped' ? [`It is ${state}: the order is applied when it returns.`] : [];
  const gone = listed === undefined ? ['It is no longer listed.'] : [];
  switch (action.kind) {
    case 'cordon':
      return [
        `Cordon ${name}.`,
        `It takes no new sessions; ${held} on it go${sessions === 1 ? 'es' : ''} on.`,
        ...away,
        ...gone,
      ];
    case 'drain':
      return [
        `Drain ${name}.`,
        sessions === 0
          ? 'It takes no new sessions; it holds none, so it is drained at once.'
          : `It takes no new sessions, and is drained once ${held} on it ${sessions === 1 ? 'has' : 'have'} ended.`,
        'There is no deadline, and nothing is ended by force.',
        ...away,
        ...gone,
      ];
    case 'uncordon': {
      const { who, why } = scheduling;
      const by = who === null ? '' : ` by ${who}${who === operator ? '' : ', another operator'}`;
      return [
        `Uncordon ${name}.`,
        `It takes sessions again; ${sessions} of ${cap} slots are taken.`,
        `It was ${scheduling.scheduling}${by}${why === null ? '' : `: ${why}`}.`,
        ...away,
        ...gone,
      ];
    }
  }
}

export type ConsequencesOf = Pick<TopState, 'data' | 'operator'> & { readonly action: TopAction };
