import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { POOL_VIEW } from '../../../../src/commands/support/pool-view.js';
import { SESSION_VIEW } from '../../../../src/commands/support/session-view.js';
import { parseSortKey, sortRecords } from '../../../../src/commands/support/sort.js';
import { WORKER_VIEW } from '../../../../src/commands/support/worker-view.js';
import { sessionRecord, workerRecord } from '../../../support/records.js';

const FIELDS = WORKER_VIEW.sortFields;
const WORKERS = [
  workerRecord('worker-10', { heartbeatAgeMs: 3, disk: null }),
  workerRecord('worker-9', { heartbeatAgeMs: null }),
  workerRecord('worker-8', { heartbeatAgeMs: 20, disk: { freeBytes: 1, totalBytes: 2 } }),
];
const sorted = (key: string): string[] =>
  sortRecords(WORKERS, parseSortKey(key), FIELDS).map(({ name }) => name.replace('worker-', ''));

describe('sorting', () => {
  it.each([
    ['name', ['8', '9', '10']],
    ['-name', ['10', '9', '8']],
    ['heartbeatAgeMs', ['10', '8', '9']],
    ['-heartbeatAgeMs', ['8', '10', '9']],
    ['disk.freeBytes', ['8', '9', '10']],
    ['HEARTBEATAGEMS', ['10', '8', '9']],
    ['state', ['10', '9', '8']],
  ])('by %s puts numbers in names in order and missing values last', (key, names) => {
    expect(sorted(key)).toEqual(names);
  });

  it('by a field that does not exist suggests another', () => {
    expect(() => sorted('heartbeatAge')).toThrow(
      /--sort-by: "heartbeatAge" is not a field; .* Did you mean heartbeatAgeMs\?$/,
    );
    expect(() => parseSortKey('-')).toThrow('"-" names no field');
  });

  it('keeps the order of equal records, and loses none', () => {
    fc.assert(
      fc.property(fc.array(fc.option(fc.integer({ min: 0, max: 3 }))), fc.boolean(), (loads, descending) => {
        const rows = loads.map((load1, index) => workerRecord(`w${index}`, { load1 }));
        const result = sortRecords(rows, { field: 'load1', descending }, FIELDS);
        expect(new Set(result)).toEqual(new Set(rows));
        expect(result).toHaveLength(rows.length);
        for (let index = 1; index < result.length; index += 1) {
          const [a, b] = [result[index - 1]!, result[index]!];
          if (a.load1 === b.load1) expect(rows.indexOf(a)).toBeLessThan(rows.indexOf(b));
          else if (b.load1 !== null) expect(a.load1! < b.load1).toBe(!descending);
        }
      }),
    );
  });

  it('knows only fields that the records have', () => {
    const has = (row: object, path: string): boolean => {
      const [first, ...rest] = path.split('.');
      const value: unknown = (row as Record<string, unknown>)[first!];
      return first! in row && (rest.length === 0 || value === null || has(value as object, rest.join('.')));
    };
    for (const field of FIELDS) expect(has(WORKERS[2]!, field), field).toBe(true);
    for (const field of SESSION_VIEW.sortFields) expect(has(sessionRecord('a'), field), field).toBe(true);
    expect(POOL_VIEW.sortFields.length).toBeGreaterThan(5);
  });
});
