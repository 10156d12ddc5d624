/** `atlas workers show`: everything that is known of one worker. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { SHOW_FORMAT_OPTION } from './support/formats.js';

export const workersShow: CommandSpec = {
  path: ['workers', 'show'],
  summary: 'Show one worker: its state, what operators want of it, and its sessions.',
  description: [
    'NAME is the name of a worker, or a beginning that no other worker’s name has. Several candidates are listed, and nothing is shown.',
    'With -o json the document has the worker as in `atlas workers ls -o json`, under "worker", and its sessions under "sessions".',
  ],
  arguments: [
    { name: 'name', description: 'the worker, or a unique beginning of its name', required: true, completes: 'worker' },
  ],
  options: [SHOW_FORMAT_OPTION, ...CONNECTION_OPTIONS],
  examples: [
    { command: 'atlas workers show worker-7', explanation: 'why it is not ready, who has drained it, what it holds' },
    {
      command: "atlas workers show worker-7 -o json | jq '.worker.scheduling.notes'",
      explanation: 'what was done to it, by whom, when and why',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { lookAtFleet, SHOW_DEADLINE_MS } = await import('./support/list.js');
    const { pickWorker } = await import('./support/pick.js');
    const { printShown } = await import('./support/show.js');
    const { workerText } = await import('./support/show-worker.js');
    return (context, parsed) =>
      lookAtFleet(context, parsed, (fleet, bounded) =>
        bounded(SHOW_DEADLINE_MS, async () => {
          const look = await fleet.look();
          const worker = pickWorker(String(parsed.args[0]), look.workers, fleet.fleet);
          const sessions = await fleet.withOwners(look.sessions.filter((session) => session.worker === worker.name));
          printShown(context, parsed, { worker, sessions }, (options) => workerText(worker, sessions, options));
          return EXIT.done;
        }),
      );
  },
};
