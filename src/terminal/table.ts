/**
 * Plain tables: no borders, two blanks between columns, sized to the terminal, never cut where there is none.
 *
 * Owns layout only; what a record's columns are is said by the command.
 */
import Table from 'cli-table3';
import { displayWidth, plainText, truncate } from './format.js';
import type { Style } from './style.js';

export interface Column<Row> {
  readonly header: string;
  readonly value: (row: Row) => string;
  readonly align?: 'left' | 'right';
  /** Shown with `-o wide` only. */
  readonly wide?: boolean;
  /** May be cut down to this many characters when the terminal is narrow. */
  readonly shrinkTo?: number;
  /** Left out when the terminal is too narrow for all columns even so; the highest first. */
  readonly dropFirst?: number;
  /** Colour of the cell; what it means must be readable in the text as well. */
  readonly colour?: (row: Row) => keyof Omit<Style, 'enabled'> | undefined;
}

export interface TableOptions {
  /** Undefined where nothing must be cut. */
  readonly width: number | undefined;
  readonly wide: boolean;
  readonly style: Style;
  /** Whether the first line names the columns. @default true */
  readonly headers?: boolean;
}

const GAP = 2;
/**
 * The library looks at every cell of a table against every other one, and measures each with a regular expression that it
 * makes anew: a second for the sessions of a thousand workers, and minutes without the bound. Longer lists are laid out here.
 */
const ROWS_BY_LIBRARY = 50;
const NO_BORDER = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '',
} as const;

/** The table as text that ends with a line break. */
export function renderTable<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width, wide, style, headers = true }: TableOptions,
): string {
  const asked = columns.filter((column) => wide || column.wide !== true);
  const askedCells = rows.map((row) => asked.map((column) => plainText(column.value(row))));
  const askedWidths = asked.map((column, index) =>
    askedCells.reduce(
      (widest, line) => Math.max(widest, displayWidth(line[index]!)),
      headers ? displayWidth(column.header) : 1,
    ),
  );
  const kept = keep(askedWidths, asked, width);
  const shown = kept.map((index) => asked[index]!);
  const cells = askedCells.map((line) => kept.map((index) => line[index]!));
  const widths = fit(
    kept.map((index) => askedWidths[index]!),
    shown,
    width,
  );
  const header = headers ? [shown.map((column, index) => style.bold(truncate(column.header, widths[index]!)))] : [];
  const lines = rows.map((row, line) =>
    shown.map((column, index) => {
      const text = truncate(cells[line]![index]!, widths[index]!);
      const colour = column.colour?.(row);
      return colour === undefined ? text : style[colour](text);
    }),
  );
  const all = [...header, ...lines];
  const layout = { widths, alignments: shown.map(({ align = 'left' }) => align) };
  return rows.length <= ROWS_BY_LIBRARY ? laidOutByLibrary(all, layout) : laidOut(all, layout);
}

interface Layout {
  readonly widths: readonly number[];
  readonly alignments: readonly ('left' | 'right')[];
}

function laidOutByLibrary(lines: string[][], { widths, alignments }: Layout): string {
  const table = new Table({
    chars: NO_BORDER,
    style: { 'padding-left': 0, 'padding-right': GAP, head: [], border: [], compact: true },
    colWidths: widths.map((columnWidth) => columnWidth + GAP),
    colAligns: [...alignments],
  });
  table.push(...lines);
  // The last column is padded too; trailing blanks would wrap on a terminal that is exactly as wide.
  return table
    .toString()
    .split('\n')
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}

/** The same text, for long lists. */
function laidOut(lines: readonly (readonly string[])[], { widths, alignments }: Layout): string {
  const padded = (cell: string, index: number): string => {
    const blanks = ' '.repeat(Math.max(0, widths[index]! - displayWidth(withoutColour(cell))));
    return alignments[index] === 'right' ? blanks + cell : cell + blanks;
  };
  return lines.map((line) => `${line.map(padded).join(' '.repeat(GAP)).trimEnd()}\n`).join('');
}

const COLOUR = /\u001b\[\d+m/g;

function withoutColour(cell: string): string {
  return cell.includes('\u001b') ? cell.replace(COLOUR, '') : cell;
}

/** The columns that fit when each is as narrow as it may be, by index; without those that may be left out where not. */
function keep<Row>(natural: readonly number[], columns: readonly Column<Row>[], width: number | undefined): number[] {
  const kept = [...columns.keys()];
  if (width === undefined) return kept;
  const floor = (index: number): number => Math.min(natural[index]!, columns[index]!.shrinkTo ?? natural[index]!);
  const droppable = kept
    .filter((index) => columns[index]!.dropFirst !== undefined)
    .sort((a, b) => columns[b]!.dropFirst! - columns[a]!.dropFirst!);
  for (const index of droppable) {
    const needed = kept.reduce((sum, each) => sum + floor(each), 0) + GAP * (kept.length - 1);
    if (needed <= width) break;
    kept.splice(kept.indexOf(index), 1);
  }
  return kept;
}

/** Takes width from the columns that allow it, always from the widest, until the line fits or nothing is left to take. */
function fit<Row>(natural: readonly number[], columns: readonly Column<Row>[], width: number | undefined): number[] {
  const widths = [...natural];
  if (width === undefined) return widths;
  let excess = widths.reduce((sum, value) => sum + value, 0) + GAP * (widths.length - 1) - width;
  while (excess > 0) {
    let widest = -1;
    for (let index = 0; index < widths.length; index += 1) {
      const floor = columns[index]!.shrinkTo;
      if (floor === undefined || widths[index]! <= floor) continue;
      if (widest === -1 || widths[index]! > widths[widest]!) widest = index;
    }
    if (widest === -1) break;
    widths[widest]! -= 1;
    excess -= 1;
  }
  return widths;
}
