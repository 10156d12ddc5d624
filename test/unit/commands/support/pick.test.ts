import { describe, expect, it } from 'vitest';
import type { AtlasError } from '../../../../src/contract/errors.js';
import { pickSession, pickWorker } from '../../../../src/commands/support/pick.js';
import { sessionRecord, workerRecord } from '../../../support/records.js';

const WORKERS = ['worker-7', 'worker-70', 'gpu-1'].map((name) => workerRecord(name, { host: `${name}.example` }));

function errorOf(act: () => unknown): AtlasError {
  try {
    act();
  } catch (error) {
    return error as AtlasError;
  }
  throw new Error('It did not throw.');
}

describe('a worker', () => {
  it.each([
    ['worker-7', 'worker-7'],
    ['worker-70', 'worker-70'],
    ['g', 'gpu-1'],
  ])('%s means %s', (word, name) => {
    expect(pickWorker(word, WORKERS, 'atlas').name).toBe(name);
  });

  it('that is ambiguous is refused, with the candidates', () => {
    const error = errorOf(() => pickWorker('work', WORKERS, 'atlas'));
    expect(error.code).toBe('Usage');
    expect(error.message).toBe(
      '"work" is the beginning of 2 workers:\n  worker-7  ready, on worker-7.example\n  worker-70  ready, on worker-70.example',
    );
  });

  it('that does not exist is not found, with the one that was meant', () => {
    const error = errorOf(() => pickWorker('wroker-7', WORKERS, 'atlas'));
    expect([error.code, error.message]).toEqual([
      'NotFound',
      'The fleet "atlas" has no worker "wroker-7". Did you mean worker-7?',
    ]);
  });

  it('is looked for among many with a list that stays short', () => {
    const many = Array.from({ length: 14 }, (_, index) => workerRecord(`w-${index}`));
    expect(errorOf(() => pickWorker('w', many, 'atlas')).message.split('\n')).toHaveLength(12);
    expect(errorOf(() => pickWorker('w', many, 'atlas')).message).toMatch(/\n {2}and 4 more$/);
  });
});

describe('a session', () => {
  const SESSIONS = [
    sessionRecord('06babd2d6284'),
    sessionRecord('06b000000000', { worker: 'worker-8' }),
    sessionRecord('77aabbccddee', { runId: 'run-1' }),
    sessionRecord('77aabbccddee', { runId: 'run-2' }),
  ];
  const picked = (word: string) => pickSession(word, SESSIONS, 'atlas').map(({ key }) => key);

  it('is known by its id, its key, or a beginning of either', () => {
    expect(picked('06babd2d6284')).toEqual(['06babd2d6284.run-1']);
    expect(picked('06ba')).toEqual(['06babd2d6284.run-1']);
    expect(picked('77aabbccddee.run-2')).toEqual(['77aabbccddee.run-2']);
  });

  it('that is ambiguous is refused, with what tells the candidates apart', () => {
    expect(errorOf(() => picked('06b')).message).toMatch(
      /^"06b" is the beginning of 2 sessions:\n {2}06babd2d6284 {2}on worker-7, owner document-.*\n {2}06b000000000 {2}on worker-8/,
    );
    expect(errorOf(() => picked('77aabbccddee')).message).toContain('\n  77aabbccddee.run-2  on worker-7');
  });

  it('that a lost worker still names is the one of the worker that has it now', () => {
    const stale = sessionRecord('aa', { worker: 'dead', workerState: 'lost', epoch: 1 });
    const live = sessionRecord('aa', { worker: 'alive', epoch: 2 });
    expect(pickSession('aa', [stale, live], 'atlas').map(({ worker }) => worker)).toEqual(['alive', 'dead']);
  });

  it('that has ended is not found, and the error says where to look', () => {
    const error = errorOf(() => picked('ffff'));
    expect([error.code, error.message]).toEqual(['NotFound', 'No worker of the fleet "atlas" holds a session "ffff".']);
    expect(error.next).toMatch(/has ended .* history of the workflow that owned it/);
  });
});
