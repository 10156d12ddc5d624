import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { AtlasError, ERRORS, findError, findErrorCode, isErrorCode } from '../../../src/contract/errors.js';

/** A chain of causes as Temporal builds them, the innermost last. */
function chain(length: number, innermost: Error): Error {
  let error = innermost;
  for (let depth = 1; depth < length; depth += 1) error = new Error(`wrapper ${depth}`, { cause: error });
  return error;
}

describe('the catalogue', () => {
  it.each(Object.entries(ERRORS))('has whole sentences for %s', (_, { summary, next }) => {
    expect(summary).toMatch(/^([A-Z]|current(Session|Worker)\(\)).*\.$/);
    expect(next).toMatch(/^[A-Z`].*\.$/);
  });

  it('knows its own codes and nothing that every object inherits', () => {
    expect(isErrorCode('SessionLost')).toBe(true);
    for (const other of ['sessionlost', '', 'toString', '__proto__', undefined, 7])
      expect(isErrorCode(other)).toBe(false);
  });
});

describe('AtlasError', () => {
  it('takes the next step of the catalogue unless it is given a better one', () => {
    expect(new AtlasError('NoFreeSlot', 'full').next).toBe(ERRORS.NoFreeSlot.next);
    expect(new AtlasError('NoFreeSlot', 'full', { next: 'Wait.' }).next).toBe('Wait.');
  });

  it('has a cause only where there is one', () => {
    expect('cause' in new AtlasError('NoFreeSlot', 'full')).toBe(false);
    const cause = new Error('why');
    expect(new AtlasError('NoFreeSlot', 'full', { cause }).cause).toBe(cause);
  });
});

describe('findError', () => {
  it('finds an AtlasError at any depth that a real chain has, and gives its message and next step', () => {
    const error = new AtlasError('NotAPdf', 'it is a picture', { next: 'Convert it.' });
    for (const length of [1, 2, 16]) {
      expect(findError(chain(length, error))).toEqual({
        code: 'NotAPdf',
        message: 'it is a picture',
        next: 'Convert it.',
        error,
      });
    }
  });

  it('stops at sixteen causes', () => {
    expect(findError(chain(17, new AtlasError('NotAPdf', 'deep')))).toBeUndefined();
  });

  it('ends on a chain of causes that is a cycle', () => {
    const first: Error & { cause?: unknown } = new Error('first');
    first.cause = new Error('second', { cause: first });
    expect(findError(first)).toBeUndefined();
    const itself: Error & { cause?: unknown } = new Error('itself');
    itself.cause = itself;
    expect(findError(itself)).toBeUndefined();
  });

  it('recognises a failure of Temporal by its type, and the next step in its details', () => {
    const failure = ApplicationFailure.create({
      type: 'TooLarge',
      message: '3 GB',
      details: [{ next: 'Split the document.' }],
    });
    expect(findError(new Error('activity failed', { cause: failure }))).toMatchObject({
      code: 'TooLarge',
      message: '3 GB',
      next: 'Split the document.',
    });
  });

  it.each<[string, unknown]>([
    ['no details', undefined],
    ['empty details', []],
    ['details that are no list', { next: 'x' }],
    ['details of another shape', ['text']],
    ['null in the details', [null]],
    ['a next step that is no text', [{ next: 7 }]],
  ])('takes the next step of the catalogue with %s', (_, details) => {
    const failure = Object.assign(new Error('3 GB'), { type: 'TooLarge', details });
    expect(findError(failure)?.next).toBe(ERRORS.TooLarge.next);
  });

  it('takes the outermost code: the last who knew more than the one below', () => {
    const inner = new AtlasError('NoFreeSlot', 'inner');
    expect(findError(new AtlasError('AcquireTimeout', 'outer', { cause: inner }))?.message).toBe('outer');
  });

  it('passes over codes and types that are not of the catalogue', () => {
    const inner = new AtlasError('FileUnreadable', 'inner');
    const system = Object.assign(new Error('ENOENT', { cause: inner }), { code: 'ENOENT', type: 'system' });
    expect(findErrorCode(system)).toBe('FileUnreadable');
  });

  it.each([undefined, null, 'SessionLost', { code: 'SessionLost' }, 7])(
    'finds nothing in %j, which is no error',
    (value) => {
      expect(findError(value)).toBeUndefined();
      expect(findErrorCode(value)).toBeUndefined();
    },
  );

  it('stops at a cause that is no error', () => {
    expect(findError(new Error('outer', { cause: { code: 'SessionLost' } }))).toBeUndefined();
  });
});
