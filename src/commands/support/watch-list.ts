/**
 * Shows a list again and again: on a terminal one table that is redrawn in place under a line that says how old it is;
 * elsewhere every look, or with JSON lines only what has changed. Rides out a server that does not answer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { isUnavailable } from '../../temporal/connect.js';
import { displayWidth, formatAge, formatDuration, truncate } from '../../terminal/format.js';
import { formatRecords, JSON_VERSION, type RecordFormat } from '../../terminal/records.js';
import { styleFor, terminalWidth, wantsLiveView } from '../../terminal/style.js';
import type { CommandContext } from '../spec.js';
import type { ListView } from './list-view.js';

/** The age line of a terminal goes on while a look takes its time. */
const REDRAW_INTERVAL_MS = 1_000;
const DEFAULT_ROWS = 24;

/** What is printed of a list, and what is said about it. */
export interface Selected<Row> {
  readonly rows: readonly Row[];
  readonly notes: readonly string[];
}

export interface WatchListOptions<Row extends object> {
  readonly context: CommandContext;
  readonly view: ListView<Row>;
  readonly format: RecordFormat;
  readonly headers: boolean;
  /** What is watched, for the age line. */
  readonly title: string;
  readonly intervalMs: number;
  /** One bounded look. */
  readonly look: () => Promise<Selected<Row>>;
}

interface Sink<Row> {
  show(selected: Selected<Row>): void;
  /** The server does not answer; called at each look that has failed. */
  outage(): void;
  /** Called when nothing more comes. */
  close(): void;
}

/** Until Ctrl-C, whose exit code it returns. Rejects with an error that waiting can not cure. */
export async function watchList<Row extends object>(options: WatchListOptions<Row>): Promise<ExitCode> {
  const { context, format, intervalMs, look } = options;
  const { signal } = context;
  const isTable = format === 'table' || format === 'wide';
  const sink: Sink<Row> =
    isTable && wantsLiveView(context.stdout, context.env) ? liveTable(options) : streamed(options);
  try {
    while (!signal.aborted) {
      const startedMs = performance.now();
      try {
        sink.show(await look());
      } catch (error) {
        if (signal.aborted) break;
        if (!isUnavailable(error)) throw error;
        sink.outage();
      }
      const pauseMs = Math.max(0, intervalMs - (performance.now() - startedMs));
      try {
        await sleep(pauseMs, undefined, { signal });
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    }
    return EXIT.interrupted;
  } finally {
    sink.close();
  }
}

/** One table, redrawn where it is. */
function liveTable<Row extends object>({
  context: { stdout, env },
  view,
  format,
  headers,
  title,
  intervalMs,
}: WatchListOptions<Row>): Sink<Row> {
  const style = styleFor(stdout, env);
  let selected: Selected<Row> | undefined;
  let seenAtMs = Date.now();
  let outageSinceMs: number | undefined;
  let drawnRows = 0;

  const draw = (): void => {
    const width = terminalWidth(stdout) ?? 80;
    const height = stdout.rows > 0 ? stdout.rows : DEFAULT_ROWS;
    const nowMs = Date.now();
    const age =
      selected === undefined
        ? 'no answer yet'
        : `as of ${new Date(seenAtMs).toISOString().slice(11, 19)}Z, ${formatAge(nowMs - seenAtMs)} ago`;
    const outage =
      outageSinceMs === undefined ? '' : ` - THE SERVER DOES NOT ANSWER since ${formatAge(nowMs - outageSinceMs)}`;
    // The outage before the rest: on a narrow terminal the end is cut.
    const line = truncate(`${age}${outage} - ${title} - every ${formatDuration(intervalMs)} - Ctrl-C ends`, width);
    const body =
      selected === undefined
        ? ''
        : formatRecords(selected.rows, view, { format, stdout, env, headers }) +
          selected.notes.map((note) => `${note}\n`).join('');
    const lines = body.split('\n').slice(0, -1);
    const header = outageSinceMs === undefined ? style.dim(line) : style.red(line);
    const frame = [header, ...fitHeight(lines, width, height - 2)];
    // A frame that is taller than the screen could not be redrawn in place: what has scrolled off stays.
    const up = drawnRows === 0 ? '' : `\u001b[${drawnRows}A`;
    stdout.write(`\r${up}\u001b[J${frame.join('\n')}\n`);
    drawnRows = frame.reduce((sum, each) => sum + rowsOf(each, width), 0);
  };
  const ticker = setInterval(draw, REDRAW_INTERVAL_MS);
  return {
    show: (next) => {
      selected = next;
      seenAtMs = Date.now();
      outageSinceMs = undefined;
      draw();
    },
    outage: () => {
      outageSinceMs ??= Date.now();
      draw();
    },
    close: () => clearInterval(ticker),
  };
}

/** The lines that fit the screen, and how many do not. */
function fitHeight(lines: readonly string[], width: number, height: number): string[] {
  const total = lines.reduce((sum, line) => sum + rowsOf(line, width), 0);
  if (total <= height) return [...lines];
  const kept: string[] = [];
  let used = 1;
  for (const line of lines) {
    used += rowsOf(line, width);
    if (used > height) break;
    kept.push(line);
  }
  return [...kept, truncate(`... ${lines.length - kept.length} more lines: choose by --selector or --limit`, width)];
}

/** How many rows of the screen a line takes: the terminal wraps a wide table. */
function rowsOf(line: string, width: number): number {
  const shown = line.replace(/\u001b\[\d+m/g, '');
  return Math.max(1, Math.ceil(displayWidth(shown) / width));
}

/** Every look after the other, for a pipe, a file or a program. */
function streamed<Row extends object>({
  context: { stdout, stderr, env },
  view,
  format,
  headers,
  intervalMs,
}: WatchListOptions<Row>): Sink<Row> {
  let isAway = false;
  let lastNotes = '';
  let known: ReadonlyMap<string, { readonly row: Row; readonly text: string }> = new Map();

  const printChanges = (rows: readonly Row[]): void => {
    const next = new Map(rows.map((row) => [view.id(row), { row, text: stableText(row, view.volatile) }]));
    const print = (change: string, row: Row): void =>
      void stdout.write(`${JSON.stringify({ version: JSON_VERSION, change, [view.itemKey]: row })}\n`);
    for (const [id, { row, text }] of next) {
      const before = known.get(id);
      if (before === undefined) print('added', row);
      else if (before.text !== text) print('changed', row);
    }
    for (const [id, { row }] of known) if (!next.has(id)) print('removed', row);
    known = next;
  };
  return {
    show: ({ rows, notes }) => {
      if (isAway) stderr.write('The Temporal server answers again.\n');
      isAway = false;
      if (format === 'jsonl') printChanges(rows);
      else {
        const isTable = format === 'table' || format === 'wide';
        if (isTable && headers) stdout.write(`# ${new Date().toISOString().slice(0, 19)}Z\n`);
        stdout.write(formatRecords(rows, view, { format, stdout, env, headers }));
      }
      const text = notes.map((note) => `${note}\n`).join('');
      if (text !== lastNotes) stderr.write(text);
      lastNotes = text;
    },
    outage: () => {
      if (!isAway) {
        stderr.write(`The Temporal server does not answer; it is tried again every ${formatDuration(intervalMs)}.\n`);
      }
      isAway = true;
    },
    close: () => undefined,
  };
}

function stableText(row: object, volatile: readonly string[]): string {
  return JSON.stringify(row, (key, value: unknown) => (volatile.includes(key) ? undefined : value));
}
