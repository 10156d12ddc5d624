/** The options that choose how records are printed; apart from the printing, which loads the table library. */
import type { RecordFormat } from '../../terminal/records.js';
import type { OptionSpec } from '../spec.js';

const FORMATS: readonly RecordFormat[] = ['table', 'wide', 'json', 'jsonl', 'name'];

export const RECORD_FORMAT_OPTION: OptionSpec = {
  flags: '-o, --format <format>',
  description: 'how to print the records',
  choices: FORMATS,
  default: 'table',
};

export const SHOW_FORMAT_OPTION: OptionSpec = {
  flags: '-o, --format <format>',
  description: 'how to print the record',
  choices: ['text', 'json'],
  default: 'text',
};
