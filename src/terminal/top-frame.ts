/**
 * The screen of `atlas top` as lines: exactly as many as the terminal has, none wider than it. Pure; how lines get onto the
 * terminal is in `top-live.tsx` and `screen.ts`.
 *
 * Only the rows that are on the screen are looked at, so that a frame costs the same for any fleet.
 */
import { count, displayWidth, formatDuration, plainText, truncate } from './format.js';
import { helpLines, type Line, type Segment, wrapped } from './top-details.js';
import {
  consequences,
  drillLines,
  drillRoom,
  layoutOf,
  type ListState,
  selectedOf,
  silentSinceMs,
  textWidth,
  type TopOverlay,
  type TopState,
} from './top-model.js';
import {
  type Clock,
  PANELS,
  type RecordOf,
  type Row,
  type Tab,
  TABS,
  type TopColumn,
  toneOfWorker,
  WORKER_STATES,
} from './top-panels.js';

const GAP = 2;
/** `> ` before the selected row, so that it is told from the others without colour too. */
const MARK_WIDTH = 2;

export function frameOf(state: TopState, nowMs: number): Line[] {
  const width = textWidth(state.columns);
  const layout = layoutOf(state);
  const { overlay } = state;
  const clock: Clock = { nowMs, readAtMs: state.reading.readAtMs ?? nowMs };
  const lines: Line[] = [];
  // What does not fit is shown nowhere: that nothing answers must be seen at any size.
  if (layout.title)
    lines.push(
      layout.counts ? titleLine(state, width, nowMs) : (outage(state, nowMs) ?? titleLine(state, width, nowMs)),
    );
  if (overlay?.kind === 'reason' || overlay?.kind === 'confirm') {
    return filled([...lines, ...questionLines(state, overlay, width, state.rows - lines.length)], state.rows, width);
  }
  if (layout.counts) lines.push(outage(state, nowMs) ?? countsLine(state));
  if (layout.tabs) lines.push(tabsLine(state, width));
  if (overlay?.kind === 'help') lines.push(...windowOf(helpLines(width), overlay.top, drillRoom(state)));
  else if (state.drill !== null)
    lines.push(...windowOf(drillLines(state, state.drill, nowMs), state.drill.top, drillRoom(state)));
  else lines.push(...listLines(state, state.tab, width, clock, layout.headers, layout.body));
  lines.push(...statusLines(state, layout.status, width));
  if (layout.keys) lines.push([{ text: keysText(state), dim: true }]);
  return filled(lines, state.rows, width);
}

/** Cuts and fills up to the size of the screen. */
function filled(lines: readonly Line[], rows: number, width: number): Line[] {
  const cut = lines.slice(0, rows).map((line) => cutLine(line, width));
  return [...cut, ...Array.from({ length: rows - cut.length }, () => [])];
}

function cutLine(line: Line, width: number): Line {
  let room = width;
  const segments: Segment[] = [];
  for (const segment of line) {
    if (room <= 0) break;
    const text = truncate(plainText(segment.text), room);
    room -= displayWidth(text);
    segments.push({ ...segment, text });
  }
  return segments;
}

/** `left` and `right` at the two ends of a line; what is on the right goes first where both have no room. */
function twoEnds(left: readonly Segment[], right: string, width: number): Line {
  const leftWidth = left.reduce((sum, { text }) => sum + displayWidth(text), 0);
  const gap = width - leftWidth - displayWidth(right);
  return gap < 1 ? left : [...left, { text: ' '.repeat(gap) }, { text: right }];
}

function windowOf(lines: readonly Line[], top: number, room: number): Line[] {
  const first = Math.max(0, Math.min(top, lines.length - room));
  const shown = lines.slice(first, first + room);
  const more = lines.length - first - room;
  if (more > 0) shown[room - 1] = [{ text: `… ${count(more + 1, 'more line')}`, dim: true }];
  return [...shown, ...Array.from({ length: room - shown.length }, () => [])];
}

// The head --------------------------------------------------------------------------------------------------------------

function titleLine(state: TopState, width: number, nowMs: number): Line {
  const { readAtMs } = state.reading;
  const age = readAtMs === null ? 'reading the fleet' : `updated ${formatDuration(nowMs - readAtMs)} ago`;
  const left: Segment[] = [{ text: 'atlas top', bold: true }, { text: `  fleet ${state.fleet}` }];
  const withAddress = [...left, { text: `  ${state.address}` }];
  const full = twoEnds(withAddress, age, width);
  return full === withAddress ? twoEnds(left, age, width) : full;
}

/** Said in place of the numbers, which are old then. */
function outage(state: TopState, nowMs: number): Line | undefined {
  const since = silentSinceMs(state, nowMs);
  if (since === null) return undefined;
  const { readAtMs, failure } = state.reading;
  const old = readAtMs === null ? 'nothing is known yet' : `this is ${formatDuration(nowMs - readAtMs)} old`;
  const text = `! No answer for ${formatDuration(nowMs - since)}; ${old}. Trying again.${failure === null ? '' : ` ${failure}`}`;
  return [{ text, tone: 'yellow', bold: true }];
}

function countsLine({ data: { workers, sessions }, reading }: TopState): Line {
  if (reading.readAtMs === null) return [];
  const states = WORKER_STATES.map((state) => ({
    state,
    amount: workers.filter((worker) => worker.state === state).length,
  })).filter(({ amount }) => amount > 0);
  const slots = workers.reduce((sum, { cap }) => sum + cap, 0);
  const leaked = sessions.filter((session) => session.leaked === true).length;
  const told = sessions.some((session) => session.leaked !== null) || sessions.length === 0;
  // On a narrow screen the end is cut: the states come in the order of their severity, and "ready" is the last.
  return [
    { text: `sessions ${sessions.length}/${slots}  ` },
    { text: `leaked ${told ? leaked : '?'}`, tone: leaked > 0 ? 'red' : undefined },
    { text: `  ${count(workers.length, 'worker')}${states.length === 0 ? '' : ': '}` },
    ...states.flatMap(({ state, amount }, index): Segment[] => [
      { text: index === 0 ? '' : ', ' },
      { text: `${amount} ${state}`, tone: toneOfWorker(state) },
    ]),
  ];
}

function tabsLine(state: TopState, width: number): Line {
  const list: ListState<RecordOf[Tab]> = state.lists[state.tab];
  const tabs = TABS.flatMap((tab, index): Segment[] => {
    const isShown = tab === state.tab;
    const text = `${index + 1} ${tab} ${state.lists[tab].all.length}`;
    return [{ text: isShown ? `[${text}]` : ` ${text} `, bold: isShown }];
  });
  const isTyped = state.overlay?.kind === 'filter';
  const filter =
    isTyped || list.filter === '' ? '' : `filter "${list.filter}": ${list.rows.length} of ${list.all.length}`;
  if (filter === '') return twoEnds(tabs, `by ${sortName(state)}`, width);
  const line = twoEnds(tabs, filter, width);
  // An active filter hides things: it is shown before the names of the tabs are.
  return line === tabs ? [{ text: filter, tone: 'yellow' }] : line;
}

function sortName(state: TopState): string {
  const { sort, reversed } = state.lists[state.tab];
  return `${PANELS[state.tab].columns[sort]?.header ?? ''}${reversed ? '↓' : '↑'}`;
}

// The list --------------------------------------------------------------------------------------------------------------

function listLines<T extends Tab>(
  state: TopState,
  tab: T,
  width: number,
  clock: Clock,
  headers: boolean,
  body: number,
): Line[] {
  const list: ListState<RecordOf[T]> = state.lists[tab];
  const shown = list.rows.slice(list.top, list.top + body);
  const columns = fitColumns(PANELS[tab].columns, shown, width - MARK_WIDTH, clock);
  const lines: Line[] = [];
  if (headers) {
    const text = columns
      .map(({ column, width: room }) => cell(headerOf(column, tab, list), room, column.align))
      .join(' '.repeat(GAP));
    lines.push([{ text: ' '.repeat(MARK_WIDTH) }, { text, bold: true }]);
  }
  if (shown.length === 0) lines.push([{ text: `  ${emptyText(state, tab)}` }]);
  shown.forEach((row, line) => {
    const selected = list.top + line === list.index;
    lines.push(rowLine(row, columns, selected, clock));
  });
  const blank = Array.from({ length: body - Math.max(1, shown.length) }, (): Line => []);
  return [...lines, ...blank];
}

function headerOf<T extends Tab>(column: TopColumn<RecordOf[T]>, tab: T, list: ListState<RecordOf[T]>): string {
  const panel: { readonly columns: readonly TopColumn<RecordOf[T]>[] } = PANELS[tab];
  return panel.columns[list.sort] === column ? `${column.header}${list.reversed ? '↓' : '↑'}` : column.header;
}

function emptyText(state: TopState, tab: Tab): string {
  if (state.reading.readAtMs === null) return 'Reading the fleet…';
  if (state.lists[tab].filter !== '') return 'Nothing matches the filter; Esc clears it.';
  switch (tab) {
    case 'workers':
      return `No worker is registered in the fleet ${state.fleet}.`;
    case 'sessions':
      return 'No worker holds a session.';
    case 'pools':
      return 'There are no pools.';
  }
}

interface FittedColumn<Item> {
  readonly column: TopColumn<Item>;
  readonly width: number;
}

/** Leaves out columns by rank until the rest has its least width, and gives what is left to those that want more. */
function fitColumns<Item>(
  columns: readonly TopColumn<Item>[],
  rows: readonly Row<Item>[],
  width: number,
  clock: Clock,
): FittedColumn<Item>[] {
  // One more for the arrow of the sorted column, so that the columns do not jump when another is chosen.
  const least = (column: TopColumn<Item>): number => Math.max(column.min, column.header.length + 1);
  const total = (some: readonly TopColumn<Item>[]): number =>
    some.reduce((sum, column) => sum + least(column), 0) + GAP * (some.length - 1);
  let shown = [...columns];
  while (shown.length > 1 && total(shown) > width) {
    const worst = shown.reduce((a, b) => (b.rank > a.rank ? b : a));
    shown = shown.filter((column) => column !== worst);
  }
  let spare = width - total(shown);
  const wanted = shown.map((column) => {
    const natural = Math.max(0, ...rows.map(({ item }) => displayWidth(plainText(column.text(item, clock)))));
    return Math.max(0, natural - least(column));
  });
  const given = wanted.map(() => 0);
  // A little to each in turn, so that one long text does not take all.
  for (let progress = true; spare > 0 && progress;) {
    progress = false;
    wanted.forEach((wish, index) => {
      if (spare === 0 || given[index]! >= wish) return;
      given[index]! += 1;
      spare -= 1;
      progress = true;
    });
  }
  return shown.map((column, index) => ({ column, width: Math.min(width, least(column) + given[index]!) }));
}

function cell(text: string, width: number, align: 'right' | undefined): string {
  const cut = truncate(plainText(text), width);
  const blanks = ' '.repeat(Math.max(0, width - displayWidth(cut)));
  return align === 'right' ? blanks + cut : cut + blanks;
}

function rowLine<Item>(row: Row<Item>, columns: readonly FittedColumn<Item>[], selected: boolean, clock: Clock): Line {
  const inverse = selected ? { inverse: true } : {};
  return [
    { text: selected ? '> ' : '  ', ...inverse },
    ...columns.flatMap(({ column, width }, index): Segment[] => [
      { text: index === 0 ? '' : ' '.repeat(GAP), ...inverse },
      { text: cell(column.text(row.item, clock), width, column.align), tone: column.tone?.(row.item), ...inverse },
    ]),
  ];
}

// The foot and the questions --------------------------------------------------------------------------------------------

function statusLines(state: TopState, room: number, width: number): Line[] {
  if (room === 0) return [];
  if (state.overlay?.kind === 'filter') {
    const { filter, rows, all } = state.lists[state.tab];
    return [[{ text: `/${filter}_`, bold: true }, { text: `  ${rows.length} of ${all.length}` }]];
  }
  const { status, pending } = state;
  if (status === null) {
    const waiting = pending.length > 0 ? `${count(pending.length, 'order')} under way` : '';
    return [[{ text: waiting, tone: 'yellow' }]];
  }
  const tone = status.kind === 'good' ? 'green' : status.kind === 'bad' ? 'red' : undefined;
  // What does not fit is cut with a mark at the end of the last line.
  const lines = wrapped(status.text, width);
  const shown = [...lines.slice(0, room - 1), lines.slice(room - 1).join(' ')];
  return shown.map((text): Line => [{ text, tone, bold: status.kind === 'bad' }]);
}

function keysText(state: TopState): string {
  if (state.overlay?.kind === 'filter') return 'Enter keep  Esc clear  arrows select';
  if (state.overlay?.kind === 'help') return 'Esc close  arrows scroll';
  const order =
    state.drill?.kind === 'session' || (state.drill === null && state.tab === 'sessions')
      ? 'r release  '
      : state.drill !== null || state.tab === 'workers'
        ? 'c cordon  u uncordon  d drain  '
        : '';
  if (state.drill !== null) return `Esc back  ${order}? help  q quit`;
  const look = state.tab === 'pools' || selectedOf(state, state.tab) === undefined ? '' : 'Enter look  ';
  return `${look}/ filter  s S sort  ${order}? help  q quit`;
}

/** The question has the whole screen: what is about to happen must be readable on a small one. The prompt is always shown. */
function questionLines(
  state: TopState,
  overlay: TopOverlay & { kind: 'reason' | 'confirm' },
  width: number,
  rows: number,
): Line[] {
  const { action } = overlay;
  const [headline, ...rest] = consequences({ action, data: state.data, operator: state.operator });
  const asks = promptLines(overlay, width);
  const why = overlay.kind === 'confirm' ? [`Reason: ${overlay.why ?? 'none given'}`] : [];
  const told: Line[] = [
    ...wrapped(headline!, width).map((text): Line => [{ text, bold: true }]),
    ...[...rest, ...why, `Ordered by ${state.operator}.`].flatMap((text) =>
      wrapped(text, width).map((line): Line => [{ text: line }]),
    ),
  ];
  const room = Math.max(0, rows - asks.length);
  // Blank lines are the first to go.
  const spaced = told.length + 2 <= room ? [[], ...told, []] : told;
  const shown =
    spaced.length <= room
      ? spaced
      : [...spaced.slice(0, Math.max(0, room - 1)), [{ text: '… make the terminal larger to read all', bold: true }]];
  return [...shown.slice(0, room), ...asks];
}

function promptLines(overlay: TopOverlay & { kind: 'reason' | 'confirm' }, width: number): Line[] {
  if (overlay.kind === 'reason') {
    const label = 'Reason (may be empty): ';
    // The end of a long reason is where it is being typed.
    const room = Math.max(1, width - label.length - 1);
    const text = [...overlay.text];
    const visible = text.length > room ? text.slice(text.length - room) : text;
    return [
      [{ text: label, bold: true }, { text: `${visible.join('')}_` }],
      [{ text: 'Enter go on  Esc give up', dim: true }],
    ];
  }
  if (overlay.action.kind === 'release') {
    return [[{ text: `Type y and Enter to release by force, n to give up: ${overlay.typed ? 'y' : ''}_`, bold: true }]];
  }
  const verb = overlay.action.kind[0]!.toUpperCase() + overlay.action.kind.slice(1);
  return [[{ text: `${verb} ${overlay.action.worker.name}? y/N _`, bold: true }]];
}
