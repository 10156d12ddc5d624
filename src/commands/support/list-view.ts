/** What a list of records is: its columns, and what may be selected, sorted by and watched. Types and options only. */
import type { RecordView } from '../../terminal/records.js';
import type { OptionSpec } from '../spec.js';
import { RECORD_FORMAT_OPTION } from './formats.js';
import { durationBetween, integerBetween } from './parse.js';
import { type Condition, parseSelector, type SelectorField } from './selector.js';
import { parseSortKey } from './sort.js';

export interface ListView<Row> extends RecordView<Row> {
  /** Tells a record from the others, also between two looks. */
  readonly id: (row: Row) => string;
  readonly selectors: readonly SelectorField<Row>[];
  /** Paths into the record, of everything that is a column. */
  readonly sortFields: readonly string[];
  /** Fields that change by themselves all the time: a record is not another one because of them. */
  readonly volatile: readonly string[];
}

const MIN_INTERVAL_MS = 500;
const MAX_INTERVAL_MS = 3_600_000;
const DEFAULT_INTERVAL_MS = 2_000;

export const SELECTOR_OPTION: OptionSpec = {
  flags: '-l, --selector <conditions>',
  description: 'only the records that meet all conditions, such as cap=gpu; the fields are below',
  repeatable: true,
  parse: parseSelector,
};

/** The conditions of every `--selector`. */
export function conditionsOf(option: unknown): readonly Condition[] {
  return ((option ?? []) as readonly (readonly Condition[])[]).flat();
}

/** The options of every list, after those of its own. */
export const LIST_OPTIONS: readonly OptionSpec[] = [
  SELECTOR_OPTION,
  {
    flags: '--sort-by <field>',
    description: 'sort by a field of the JSON record; -FIELD for descending',
    parse: parseSortKey,
  },
  {
    flags: '--limit <count>',
    description: 'at most so many records, after selecting and sorting',
    parse: integerBetween(1, 1_000_000),
  },
  RECORD_FORMAT_OPTION,
  { flags: '--no-headers', description: 'leave out the line that names the columns' },
  { flags: '-w, --watch', description: 'look again and again, until Ctrl-C' },
  {
    flags: '--interval <duration>',
    description: 'how often --watch looks',
    default: DEFAULT_INTERVAL_MS,
    defaultText: '2s',
    parse: durationBetween(MIN_INTERVAL_MS, MAX_INTERVAL_MS),
  },
];

/** The paragraphs of the help text that say what --selector, --sort-by and --watch take. */
export function listHelp<Row>({ selectors, sortFields }: ListView<Row>): string[] {
  return [
    `Fields of --selector: ${selectors.map(({ name, help }) => `${name} (${help})`).join(', ')}. FIELD=VALUE and FIELD!=VALUE, joined by commas: all must hold. VALUE may name alternatives, as in 'cap=gpu|ocr', which needs the quotes in a shell.`,
    `Fields of --sort-by: ${sortFields.join(', ')}. Records without a value come last.`,
    'With --watch a terminal shows one table that is kept up to date; elsewhere each look prints a new one, and -o jsonl one line for each record that was added, changed or removed since the last look, as "change" says. A server that does not answer is waited for.',
  ];
}
