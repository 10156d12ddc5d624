import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileSelector, parseSelector } from '../../../../src/commands/support/selector.js';
import { SESSION_VIEW } from '../../../../src/commands/support/session-view.js';
import { WORKER_VIEW } from '../../../../src/commands/support/worker-view.js';
import { sessionRecord, workerRecord } from '../../../support/records.js';

const WORKERS = [
  workerRecord('worker-7', { capabilities: ['gpu'], host: 'Alpha' }),
  workerRecord('worker-8', { capabilities: ['gpu', 'ocr'], state: 'lost' }),
  workerRecord('worker-9', { capabilities: [], state: 'cordoned' }),
];
const SESSIONS = [
  sessionRecord('a', { leaked: true, ownerStatus: 'TIMED_OUT', step: null }),
  sessionRecord('b', { worker: 'worker-8' }),
];

const workers = (selector: string): string[] =>
  WORKERS.filter(compileSelector(parseSelector(selector), WORKER_VIEW.selectors)).map(({ name }) => name);
const sessions = (selector: string): string[] =>
  SESSIONS.filter(compileSelector(parseSelector(selector), SESSION_VIEW.selectors)).map(({ session }) => session);

describe('a selector', () => {
  it.each([
    ['cap=gpu', ['worker-7', 'worker-8']],
    ['cap!=gpu', ['worker-9']],
    ['cap=gpu,state!=lost', ['worker-7']],
    ['cap=gpu , cap=ocr', ['worker-8']],
    ['state=lost|cordoned', ['worker-8', 'worker-9']],
    ['state!=lost|cordoned', ['worker-7']],
    ['host=alpha', ['worker-7']],
    ['name==worker-9', ['worker-9']],
    ['scheduling=draining', []],
  ])('of workers: %s', (selector, names) => {
    expect(workers(selector)).toEqual(names);
  });

  it.each([
    ['leaked=true', ['a']],
    ['owner=timed_out', ['a']],
    ['owner=running', ['b']],
    ['step=none', ['a']],
    ['step=extractPages,worker=worker-8', ['b']],
    ['type=processDocument', ['a', 'b']],
  ])('of sessions: %s', (selector, ids) => {
    expect(sessions(selector)).toEqual(ids);
  });

  it.each([
    ['', '"" has an empty condition; write for example cap=gpu,state!=lost'],
    ['cap=gpu,', '"cap=gpu," has an empty condition; write for example cap=gpu,state!=lost'],
    ['gpu', '"gpu" is neither FIELD=VALUE nor FIELD!=VALUE'],
    ['cap>1', '"cap>1" is neither FIELD=VALUE nor FIELD!=VALUE'],
    ['cap=', '"cap=" has no value'],
    ['state=lost|', '"state=lost|" has no value'],
  ])('that can not be read says why: %j', (selector, message) => {
    expect(() => parseSelector(selector)).toThrow(message);
  });

  it('with an unknown field or value suggests the one that was meant', () => {
    expect(() => workers('sate=lost')).toThrow(
      '--selector: "sate" is not a field; there are cap, state, name, host, version, scheduling, withdrawn. Did you mean state?',
    );
    expect(() => workers('state=lots')).toThrow(/state is never "lots"; .* Did you mean lost\?$/);
    expect(() => sessions('leaked=yes')).toThrow('leaked is never "yes"; it is one of true, false.');
  });

  const word = fc.stringMatching(/^[a-z0-9][a-z0-9.-]{0,8}$/);

  it('chooses exactly what its negation leaves', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('cap', 'name', 'host', 'version'),
        fc.array(word, { minLength: 1 }),
        (field, values) => {
          const chosen = workers(`${field}=${values.join('|')}`);
          const left = workers(`${field}!=${values.join('|')}`);
          expect([...chosen, ...left].sort()).toEqual(WORKERS.map(({ name }) => name).sort());
        },
      ),
    );
  });

  it('with more conditions never chooses more', () => {
    const condition = fc
      .tuple(
        fc.constantFrom('cap', 'name', 'host'),
        fc.constantFrom('=', '!='),
        fc.constantFrom('gpu', 'ocr', 'worker-7'),
      )
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(fc.array(condition, { minLength: 1, maxLength: 4 }), condition, (conditions, another) => {
        const few = workers([...conditions, another].join(','));
        const many = workers(conditions.join(','));
        expect(many).toEqual(expect.arrayContaining(few));
        expect(few).toEqual(many.filter((name) => workers(another).includes(name)));
      }),
    );
  });

  it('is read without an exception of another kind, whatever the text', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          for (const { field, values } of parseSelector(text)) {
            expect(field).toMatch(/^[a-zA-Z]+$/);
            expect(values).not.toContain('');
          }
        } catch (error) {
          expect((error as Error).message).toMatch(/^".*(?:condition|nor FIELD!=VALUE|no value)/s);
        }
      }),
    );
  });
});
