/**
 * Selectors: `cap=gpu,state!=lost` chooses records of a list. Pure.
 *
 * Every condition must hold. `field=value` holds where the record has that value, `field!=value` where it does not;
 * `a|b` stands for either.
 */
import { AtlasError } from '../../contract/errors.js';
import { didYouMean } from './did-you-mean.js';

/** What a selector may name of a record. */
export interface SelectorField<Row> {
  readonly name: string;
  /** What it means, for the help text. */
  readonly help: string;
  /** The values that the record has; several for a set. Compared without regard to case. */
  readonly of: (row: Row) => readonly string[];
  /** All values there are, where these are few: another one is a mistake. */
  readonly values?: readonly string[];
}

/** A condition as written, before the fields of the list are known. */
export interface Condition {
  readonly field: string;
  readonly negated: boolean;
  readonly values: readonly string[];
}

const CONDITION = /^([a-zA-Z]+)\s*(!=|==?)\s*(.*)$/;

/** Reads a selector. Throws an Error whose message goes on after `--selector: `. */
export function parseSelector(text: string): Condition[] {
  return text.split(',').map((part) => {
    const condition = part.trim();
    if (condition === '') throw new Error(`"${text}" has an empty condition; write for example cap=gpu,state!=lost`);
    const match = CONDITION.exec(condition);
    if (match === null) throw new Error(`"${condition}" is neither FIELD=VALUE nor FIELD!=VALUE`);
    const values = match[3]!.split('|').map((value) => value.trim());
    if (values.includes('')) throw new Error(`"${condition}" has no value`);
    return { field: match[1]!, negated: match[2] === '!=', values };
  });
}

/**
 * Whether a record meets all conditions.
 *
 * @throws {@link AtlasError} `Usage` for a field that the list does not have, or a value that the field never has.
 */
export function compileSelector<Row>(
  conditions: readonly Condition[],
  fields: readonly SelectorField<Row>[],
): (row: Row) => boolean {
  const tests = conditions.map(({ field: name, negated, values }) => {
    const field = fields.find((each) => each.name === name.toLowerCase());
    if (field === undefined) {
      const names = fields.map((each) => each.name);
      throw new AtlasError(
        'Usage',
        `--selector: "${name}" is not a field; there are ${names.join(', ')}.${didYouMean(name, names)}`,
      );
    }
    const wanted = values.map((value) => value.toLowerCase());
    const known = field.values;
    const unknown = known === undefined ? undefined : wanted.find((value) => !known.includes(value));
    if (known !== undefined && unknown !== undefined) {
      throw new AtlasError(
        'Usage',
        `--selector: ${field.name} is never "${unknown}"; it is one of ${known.join(', ')}.${didYouMean(unknown, known)}`,
      );
    }
    return (row: Row): boolean => field.of(row).some((value) => wanted.includes(value.toLowerCase())) !== negated;
  });
  return (row) => tests.every((test) => test(row));
}
