/** `atlas __complete`: what the completion scripts call for the names of workers and sessions. Hidden. */
import type { CommandSpec } from './spec.js';

export const COMPLETE_WORD = '__complete';

export const complete: CommandSpec = {
  path: [COMPLETE_WORD],
  summary: 'Print what the fleet has, for completion scripts.',
  arguments: [
    { name: 'kind', description: 'worker or session', required: false },
    { name: 'word', description: 'the words that stand on the line', required: false, variadic: true },
  ],
  options: [],
  examples: [],
  exitCodes: [],
  load: async () => (await import('./support/completion/live.js')).printLiveCandidates,
};
