/** `atlas workers ls`: the workers of a fleet and whether they can take sessions. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { LIST_OPTIONS, listHelp } from './support/list-view.js';
import { WORKER_VIEW } from './support/worker-view.js';

export const workersLs: CommandSpec = {
  path: ['workers', 'ls'],
  summary: 'List the workers of a fleet.',
  description: [
    'STATE is the liveness of a worker: ready (it sends its presence), stale (one presence is late), lost (its presence has timed out), stopped (it ended by itself), registering (it has just started), degraded (its executor can not stay up); or, of a live one, what operators want of it: cordoned, draining, drained. REASON says why it is not ready, and by whom.',
    'A capability with a !, such as gpu!, is withdrawn: its check fails on that worker, or has not passed yet, so that nothing that asks for it is taken there. REASON says what the check says.',
    'SESSIONS is how many of its slots are taken. SEEN is the age of its last presence, AGE that of its atlasd. With -o wide, ORDER says whether its atlasd acts on what operators want, DEADLINE when a drain ends and what happens then, and CLOCK how far the clock of its host is ahead of the server’s. A narrow terminal gets fewer columns: VERSION and HOST go first.',
    'Nothing is asked of the hosts: what is listed is what the workers last told the Temporal server.',
    ...listHelp(WORKER_VIEW),
  ],
  arguments: [],
  options: [...LIST_OPTIONS, ...CONNECTION_OPTIONS],
  examples: [
    { command: 'atlas workers ls', explanation: 'the workers of the fleet "atlas"' },
    {
      command: "atlas workers ls -l 'cap=gpu,state!=ready' -o wide",
      explanation: 'what is wrong with the workers that have a GPU',
    },
    {
      command: 'atlas workers ls --sort-by -heartbeatAgeMs --limit 5',
      explanation: 'the five that are silent longest',
    },
    { command: 'atlas workers ls -w', explanation: 'a table that is kept up to date' },
    {
      command: 'atlas workers ls -l state=lost -o name',
      explanation: 'the names of lost workers, for a script',
    },
  ],
  exitCodes: [EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { listFleet } = await import('./support/list.js');
    return (context, parsed) =>
      listFleet(context, parsed, {
        view: WORKER_VIEW,
        noun: 'worker',
        list: async (fleet) => {
          const rows = await fleet.listWorkers();
          return { rows, known: rows.length };
        },
        whenEmpty: (fleet) => ({
          message: `No worker is registered in the fleet "${fleet}".`,
          next: 'Start one with `atlasd`, or a local server and worker with `atlas dev`.',
        }),
      });
  },
};
