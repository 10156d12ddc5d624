/** `atlas top`: a live view of a fleet, for whoever is on call. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { OPERATOR_VARIABLE } from './support/operator.js';
import { durationBetween } from './support/parse.js';

const MIN_INTERVAL_MS = 500;
const MAX_INTERVAL_MS = 3_600_000;

export const top: CommandSpec = {
  path: ['top'],
  summary: 'Watch a fleet, and cordon, drain and release from there.',
  description: [
    'Shows workers, sessions and pools on three panels, each sorted and filtered by itself. Enter looks at one worker or session. ? lists the keys.',
    'Cordon, uncordon, drain and release each say what will happen, ask for a reason and for a y. An order is given only on the state that was on the screen: if somebody else has changed it meanwhile, it is a conflict and nothing happens.',
    'Each refresh reads the whole fleet. It never overlaps with the one before, and the pause is at least four times what the last one took. Where the server does not answer, the last state stays on the screen with its age.',
    'It needs a terminal; for scripts there is `atlas workers ls -o json`.',
  ],
  arguments: [],
  options: [
    {
      flags: '--interval <duration>',
      description: 'how long to pause between two refreshes',
      default: 2_000,
      defaultText: '2s',
      parse: durationBetween(MIN_INTERVAL_MS, MAX_INTERVAL_MS),
    },
    ...CONNECTION_OPTIONS,
  ],
  environment: [OPERATOR_VARIABLE, { name: 'NO_COLOR', description: 'no colour' }],
  examples: [
    { command: 'atlas top', explanation: 'the fleet "atlas"; q leaves' },
    { command: 'atlas top --fleet gpu --interval 10s', explanation: 'another fleet, read every ten seconds at most' },
  ],
  exitCodes: [EXIT.unreachable, EXIT.interrupted],
  load: async () => (await import('./support/run-top.js')).runTop,
};
