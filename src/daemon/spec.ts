/**
 * The command line of atlasd, from which its help and man page are made.
 *
 * Owns: summary, examples, exit codes. The options are those of `config.ts`; the daemon itself is loaded only when it runs.
 */
import type { CommandSpec } from '../commands/spec.js';
import { EXIT } from '../contract/exit-codes.js';
import { configOptionSpecs } from './config.js';

export const atlasdSpec: CommandSpec = {
  path: [],
  summary: 'Run a worker that holds sessions.',
  description: [
    'atlasd serves the queues of a fleet on this host: it grants sessions as far as it has slots, pins their activities to itself, and runs the activities and workflows of the given modules in a process of their own. Without modules it serves the document job.',
    'Every option can be given as a flag, as an environment variable and in the configuration file, and counts in this order. In the file --max-sessions is max_sessions, and --document-allow-files is allow_files in the table [document]. A key or an ATLAS_ variable that does not exist is refused. Durations have a unit: 500ms, 30s, 10m, 1h30m.',
    'The connection to Temporal comes from the profiles and TEMPORAL_ variables that the temporal command uses too.',
    'SIGTERM stops granting, waits up to --grace for the sessions to end, and exits; sessions that remain are resumed by the next start. A second SIGTERM exits at once.',
  ],
  arguments: [],
  options: configOptionSpecs(),
  examples: [
    { command: 'atlasd', explanation: 'a worker named after the host, with four slots, for the document job' },
    { command: 'atlasd --capabilities gpu', explanation: 'also takes sessions that ask for gpu' },
    {
      command: 'atlasd --capabilities gpu,ocr --max-sessions 4 --reserve gpu=2',
      explanation: 'keeps two of its four slots for sessions that ask for gpu',
    },
    {
      command: 'atlasd --name worker-7 --activities ./dist/activities.js --workflows ./dist/workflows.js',
      explanation: 'serves your own modules',
    },
  ],
  exitCodes: [EXIT.unreachable, EXIT.conflict],
  handlesSignals: true,
  load: async () => (await import('./main.js')).run,
};
