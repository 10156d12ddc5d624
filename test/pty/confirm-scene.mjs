/** A command that asks before it goes on, for `confirm.test.ts`, which answers through a pseudo-terminal. */
import { runMain } from '../../dist/commands/main.js';
import { confirm, confirmOption } from '../../dist/commands/support/confirm.js';

const destroy = {
  path: [],
  summary: 'Destroy.',
  arguments: [],
  options: [confirmOption],
  examples: [],
  exitCodes: [],
  load: async () => async (context, parsed) => {
    await confirm(context, parsed, { question: 'Destroy it?', detailLines: ['destroy the one thing'] });
    context.stdout.write('destroyed\n');
    return 0;
  },
};

process.exit(await runMain({ name: 'scene', summary: 'Scene.', commands: [destroy] }, process.argv.slice(2)));
