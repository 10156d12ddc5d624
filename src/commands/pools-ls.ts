/** `atlas pools ls`: for each capability set, what waits for a session and what the fleet has for it. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { LIST_OPTIONS, listHelp } from './support/list-view.js';
import { POOL_VIEW } from './support/pool-view.js';

export const poolsLs: CommandSpec = {
  path: ['pools', 'ls'],
  summary: 'List the capability sets of a fleet: what waits for each, and what is free.',
  description: [
    'A pool is a set of capabilities that a session may ask for; every set that a known worker serves is listed, also where that worker is lost or stopped. "any" is the pool of sessions that ask for nothing, which every worker serves.',
    'BACKLOG is how many sessions wait for a slot and OLDEST WAIT for how long the first has, as the server counts them, which is some seconds behind and not exact. FREE SLOTS is how many sessions of this set could begin now; pools share the slots of their workers, so that the numbers do not add up. LIVE is how many of the workers that serve it are neither lost nor stopped. REASON says why none can begin.',
    ...listHelp(POOL_VIEW),
  ],
  arguments: [],
  options: [
    {
      flags: '--worker <name>',
      description: 'only the pools that this worker serves; a unique beginning will do',
      completes: 'worker',
    },
    ...LIST_OPTIONS,
    ...CONNECTION_OPTIONS,
  ],
  examples: [
    { command: 'atlas pools ls', explanation: 'where sessions wait, and whether anything is free for them' },
    { command: 'atlas pools ls -l cap=gpu -w', explanation: 'what waits for a GPU, kept up to date' },
    { command: 'atlas pools ls --sort-by -oldestWaitMs --limit 1', explanation: 'the pool that waits longest' },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.interrupted],
  load: async () => {
    const { listFleet } = await import('./support/list.js');
    const { pickWorker } = await import('./support/pick.js');
    return (context, parsed) =>
      listFleet(context, parsed, {
        view: POOL_VIEW,
        noun: 'pool',
        list: async (fleet) => {
          const look = await fleet.look();
          const word = parsed.options['worker'] as string | undefined;
          const worker = word === undefined ? undefined : pickWorker(word, look.workers, fleet.fleet).name;
          const pools = await fleet.listPools(look);
          return {
            rows: worker === undefined ? pools : pools.filter(({ workers }) => workers.includes(worker)),
            known: pools.length,
          };
        },
        whenEmpty: (fleet) => ({
          message: `No worker is registered in the fleet "${fleet}".`,
          next: 'Start one with `atlasd`, or a local server and worker with `atlas dev`.',
        }),
      });
  },
};
