/**
 * Prints a list of records as table, wide table, JSON, JSON lines or names: always the same records, on stdout.
 */
import { styleFor, terminalWidth } from './style.js';
import { renderTable, type Column } from './table.js';

export type RecordFormat = 'table' | 'wide' | 'json' | 'jsonl' | 'name';

/** Of every JSON document that Atlas prints. Rises when a field is removed or changes its meaning; not for new fields. */
export const JSON_VERSION = 1;

export interface RecordView<Row> {
  /** The key of the list in the JSON document: `workers`. */
  readonly key: string;
  /** The key of the record in a line of JSON: `worker`. Records have fields of their own named `version`. */
  readonly itemKey: string;
  readonly columns: readonly Column<Row>[];
  /** What `-o name` prints: the word that other commands accept. */
  readonly name: (row: Row) => string;
}

export interface PrintOptions {
  readonly format: RecordFormat;
  readonly stdout: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
  /** Whether a table has a line that names its columns. @default true */
  readonly headers?: boolean;
}

export function printRecords<Row extends object>(
  rows: readonly Row[],
  view: RecordView<Row>,
  options: PrintOptions,
): void {
  options.stdout.write(formatRecords(rows, view, options));
}

export function formatRecords<Row extends object>(
  rows: readonly Row[],
  view: RecordView<Row>,
  { format, stdout, env, headers = true }: PrintOptions,
): string {
  switch (format) {
    case 'json':
      return `${JSON.stringify({ version: JSON_VERSION, [view.key]: rows }, null, 2)}\n`;
    case 'jsonl':
      return rows.map((row) => `${JSON.stringify({ version: JSON_VERSION, [view.itemKey]: row })}\n`).join('');
    case 'name':
      return rows.map((row) => `${view.name(row)}\n`).join('');
    case 'table':
    case 'wide':
      if (rows.length === 0) return '';
      return renderTable(rows, view.columns, {
        // A wide table is asked for to see everything; the terminal may wrap it.
        width: format === 'wide' ? undefined : terminalWidth(stdout),
        wide: format === 'wide',
        style: styleFor(stdout, env),
        headers,
      });
  }
}
