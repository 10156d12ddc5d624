/**
 * Plain tables: no borders, two blanks between columns, sized to the terminal, never cut where there is none.
 *
 * Owns layout only; what a record's columns are is said by the command.
 */
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
  /** Colour of the cell; what it means must be readable in the text as well. */
  readonly colour?: (row: Row) => keyof Omit<Style, 'enabled'> | undefined;
}

export interface TableOptions {
  /** Undefined where nothing must be cut. */
  readonly width: number | undefined;
  readonly wide: boolean;
  readonly style: Style;
}

const GAP = 2;

/** The table as text that ends with a line break. */
export function renderTable<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width, wide, style }: TableOptions,
): string {
  const shown = columns.filter((column) => wide || column.wide !== true);
  const cells = rows.map((row) => shown.map((column) => plainText(column.value(row))));
  const natural = shown.map((column, index) =>
    Math.max(displayWidth(column.header), ...cells.map((line) => displayWidth(line[index]!))),
  );
  const widths = fit(natural, shown, width);
  const table: string[][] = [];
  table.push(shown.map((column, index) => padded(column.header, widths[index]!, column, 'bold', style)));
  rows.forEach((row, line) => {
    table.push(
      shown.map((column, index) => padded(cells[line]![index]!, widths[index]!, column, column.colour?.(row), style)),
    );
  });
  // The last column is padded too; trailing blanks would wrap on a terminal that is exactly as wide.
  return table.map((line) => `${line.join(' '.repeat(GAP)).trimEnd()}\n`).join('');
}

/** A cell as wide as its column; colour is put on the text alone, so that it has no width and no coloured blanks. */
function padded<Row>(
  text: string,
  width: number,
  { align }: Column<Row>,
  colour: keyof Omit<Style, 'enabled'> | undefined,
  style: Style,
): string {
  const shown = truncate(text, width);
  const blanks = ' '.repeat(Math.max(0, width - displayWidth(shown)));
  const coloured = colour === undefined ? shown : style[colour](shown);
  return align === 'right' ? blanks + coloured : coloured + blanks;
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
