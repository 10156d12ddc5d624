import { expect, it } from 'vitest';
import { printList } from '../../../../src/commands/support/list.js';
import type { FleetClient } from '../../../../src/fleet/client.js';
import { fakeContext, parsedCommand } from '../../../support/fake-context.js';

const view = { key: 'workers', itemKey: 'worker', columns: [], name: () => '' };
const whenEmpty = (fleet: string) => ({ message: `None in ${fleet}.`, next: 'Start one.' });
const client = {} as FleetClient;

it.each(['table', 'json'])('says on stderr what to do about an empty list (%s)', async (format) => {
  const context = fakeContext();
  const list = { view, whenEmpty, list: () => Promise.resolve([]) };
  expect(await printList(context, parsedCommand({ format, fleet: 'blue' }), list, client)).toBe(0);
  expect(context.err()).toBe('None in blue.\n next: Start one.\n');
  expect(context.out()).toBe(format === 'json' ? '{\n  "version": 1,\n  "workers": []\n}\n' : '');
});
