/** Long lists are laid out by other means than short ones, and look the same. */
import { describe, expect, it } from 'vitest';
import { styleFor } from '../../../src/terminal/style.js';
import { type Column, renderTable } from '../../../src/terminal/table.js';

interface Row {
  readonly name: string;
  readonly amount: string;
  readonly note: string;
}

const COLUMNS: readonly Column<Row>[] = [
  { header: 'NAME', value: ({ name }) => name, shrinkTo: 6 },
  { header: 'AMOUNT', value: ({ amount }) => amount, align: 'right', colour: () => 'red' },
  { header: 'NOTE', value: ({ note }) => note, colour: ({ note }) => (note === '-' ? undefined : 'yellow') },
];
const row = (index: number): Row => ({
  name: `worker-${index}-${'é漢'.repeat(index % 3)}`,
  amount: String(index * 7),
  note: index % 4 === 0 ? '-' : `note ${index} — ${'x'.repeat(index % 9)}`,
});

describe.each([
  ['in colour', { FORCE_COLOR: '1' }],
  ['without colour', { NO_COLOR: '1' }],
])('a table %s', (_, env) => {
  it.each([undefined, 30])('is the same however long it is, at a width of %s', (width) => {
    const options = { width, wide: false, style: styleFor({ isTTY: true }, env) };
    // The longest cells are among the first, so that the widths are those of both.
    const rows = Array.from({ length: 120 }, (__, index) => row(119 - index));
    const long = renderTable(rows, COLUMNS, options).split('\n');
    const short = renderTable(rows.slice(0, 40), COLUMNS, options).split('\n');
    expect(long).toHaveLength(122);
    expect(long.slice(0, 41)).toEqual(short.slice(0, 41));
  });
});
