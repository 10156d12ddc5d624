/** `atlas sessions show`: everything that is known of one session. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { SHOW_FORMAT_OPTION } from './support/formats.js';

export const sessionsShow: CommandSpec = {
  path: ['sessions', 'show'],
  summary: 'Show one session: its owner, its lease, and which worker ran each step.',
  description: [
    'ID is the id of a session that a worker holds, or a beginning that no other session’s id has. Several candidates are listed, and nothing is shown. A session that has ended is not in the fleet any more: look at the history of the workflow that owned it.',
    'STEPS are the pinned calls of the session as the history of its owner has them, over all its acquisitions: each rise of EPOCH is a lease of its own. Of a long history only the last 5,000 events are read.',
    'With -o json the document has the session as in `atlas sessions ls -o json`, under "session", and beside it "owner", "lease", "running" and "steps".',
  ],
  arguments: [
    { name: 'id', description: 'the session, or a unique beginning of its id', required: true, completes: 'session' },
  ],
  options: [SHOW_FORMAT_OPTION, ...CONNECTION_OPTIONS],
  examples: [
    { command: 'atlas sessions show 06ba', explanation: 'what this session does, and where each step of it ran' },
    {
      command: `atlas sessions show 06babd2d6284 -o json | jq -r '.steps[] | [.activity, .host, .result] | @tsv'`,
      explanation: 'step, host and result, for a script',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { lookAtFleet, SHOW_DEADLINE_MS } = await import('./support/list.js');
    const { pickSession } = await import('./support/pick.js');
    const { printShown } = await import('./support/show.js');
    const { sessionText } = await import('./support/show-session.js');
    return (context, parsed) =>
      lookAtFleet(context, parsed, (fleet, bounded) =>
        bounded(SHOW_DEADLINE_MS, async () => {
          const { workers, sessions } = await fleet.look();
          const picked = pickSession(String(parsed.args[0]), sessions, fleet.fleet, workers);
          const [[session], described] = await Promise.all([
            fleet.withOwners(picked.slice(0, 1)),
            fleet.describeSession(picked[0], workers),
          ]);
          const detail = { ...described, session: session! };
          const elsewhere = picked.slice(1);
          printShown(context, parsed, { ...detail, elsewhere }, (options) => sessionText(detail, elsewhere, options));
          return EXIT.done;
        }),
      );
  },
};
