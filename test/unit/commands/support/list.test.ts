import { describe, expect, it } from 'vitest';
import { idleOnly } from '../../../../src/commands/sessions-ls.js';
import { type Listed, printList } from '../../../../src/commands/support/list.js';
import { parseSelector } from '../../../../src/commands/support/selector.js';
import { parseSortKey } from '../../../../src/commands/support/sort.js';
import { WORKER_VIEW } from '../../../../src/commands/support/worker-view.js';
import type { WorkerRecord } from '../../../../src/fleet/client.js';
import { fakeContext, parsedCommand } from '../../../support/fake-context.js';
import { sessionRecord, workerRecord } from '../../../support/records.js';

const whenEmpty = (fleet: string) => ({ message: `None in ${fleet}.`, next: 'Start one.' });
const LIST = { view: WORKER_VIEW, whenEmpty, noun: 'worker' };
const WORKERS = [workerRecord('a', { state: 'lost' }), workerRecord('b'), workerRecord('c')];

async function list(
  rows: readonly WorkerRecord[],
  options: Record<string, unknown> = {},
  over: Partial<Listed<WorkerRecord>> = {},
) {
  const context = fakeContext();
  const parsed = parsedCommand({ format: 'name', fleet: 'blue', ...options });
  const exit = await printList(context, parsed, LIST, () => Promise.resolve({ rows, known: rows.length, ...over }));
  return { exit, out: context.out(), err: context.err() };
}

describe('a list', () => {
  it.each(['table', 'json'])('that is empty says on stderr what to do about it (%s)', async (format) => {
    expect(await list([], { format })).toEqual({
      exit: 0,
      out: format === 'json' ? '{\n  "version": 1,\n  "workers": []\n}\n' : '',
      err: 'None in blue.\n next: Start one.\n',
    });
  });

  it('is selected, then sorted, then limited, and says what is missing', async () => {
    const options = { selector: [parseSelector('state=ready')], sortBy: parseSortKey('-name'), limit: 1 };
    expect(await list(WORKERS, options)).toEqual({
      exit: 0,
      out: 'c\n',
      err: '1 more worker not shown, by --limit.\n',
    });
  });

  it('of which nothing matches is not called empty', async () => {
    const options = { selector: [parseSelector('state=drained')] };
    expect(await list(WORKERS, options)).toMatchObject({ out: '', err: 'None of 3 workers matches.\n' });
    expect(await list([], {}, { known: 1 })).toMatchObject({ err: 'The only worker there is does not match.\n' });
  });

  it('takes several selectors, all of which must hold', async () => {
    const options = { selector: [parseSelector('state=ready'), parseSelector('name!=b')] };
    expect((await list(WORKERS, options)).out).toBe('c\n');
  });
});

describe('--idle', () => {
  const sessions = [
    sessionRecord('a', { step: null, idleForMs: 10_000 }),
    sessionRecord('b', { step: null, idleForMs: 2_000 }),
    sessionRecord('c'),
    sessionRecord('d', { step: null, idleForMs: null }),
  ];

  it('leaves sessions that have been idle for so long, and names those of which nothing is known', () => {
    const { rows, note } = idleOnly(sessions, { options: { idle: 10_000 } });
    expect(rows.map(({ session }) => session)).toEqual(['a']);
    expect(note).toBe('Left out, as their atlasd does not say for how long they are idle: d.');
    expect(idleOnly(sessions.slice(0, 3), { options: { idle: 0 } })).toEqual({ rows: sessions.slice(0, 2) });
    expect(idleOnly(sessions, { options: {} }).rows).toBe(sessions);
  });
});
