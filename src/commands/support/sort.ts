/** Sorting of records by one of their JSON fields. Pure. */
import { AtlasError } from '../../contract/errors.js';
import { didYouMean } from './did-you-mean.js';

/** What `--sort-by` says. */
export interface SortKey {
  /** A path into the record, such as `disk.freeBytes`. */
  readonly field: string;
  readonly descending: boolean;
}

/** Reads `FIELD`, or `-FIELD` for descending. */
export function parseSortKey(text: string): SortKey {
  const descending = text.startsWith('-');
  const field = descending ? text.slice(1) : text;
  if (field === '') throw new Error(`"${text}" names no field`);
  return { field, descending };
}

/**
 * The records in that order; equal ones stay as they were, and those without a value come last either way.
 *
 * @throws {@link AtlasError} `Usage` for a field that is not among `fields`.
 */
export function sortRecords<Row extends object>(
  rows: readonly Row[],
  key: SortKey | undefined,
  fields: readonly string[],
): Row[] {
  if (key === undefined) return [...rows];
  const field = fields.find((each) => each.toLowerCase() === key.field.toLowerCase());
  if (field === undefined) {
    throw new AtlasError(
      'Usage',
      `--sort-by: "${key.field}" is not a field; there are ${fields.join(', ')}.${didYouMean(key.field, fields)}`,
    );
  }
  const keyed = rows.map((row) => ({ row, value: valueAt(row, field) }));
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null);
    return compare(a.value, b.value) * (key.descending ? -1 : 1);
  });
  return keyed.map(({ row }) => row);
}

function valueAt(row: object, path: string): string | number | null {
  let value: unknown = row;
  for (const part of path.split('.')) {
    if (typeof value !== 'object' || value === null) return null;
    value = (value as Record<string, unknown>)[part];
  }
  if (typeof value === 'number' || typeof value === 'string') return value;
  if (typeof value === 'boolean') return Number(value);
  return Array.isArray(value) ? value.join(',') : null;
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  // worker-10 comes after worker-9.
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}
