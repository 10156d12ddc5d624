/** `atlas doctor`: finds what is wrong with a fleet, and says what to run about it. */
import { EXIT } from '../contract/exit-codes.js';
import { CHECK_NAMES, CHECKS } from '../fleet/doctor/findings.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { durationBetween } from './support/parse.js';

const DEFAULT_TIMEOUT_MS = 30_000;

export const doctor: CommandSpec = {
  path: ['doctor'],
  summary: 'Find what is wrong with a fleet, and what to run about it.',
  description: [
    'Every finding is one line: ok, warn or fail, what it is about, and what was found. Below each warn and fail there is what to run next. The exit code is 0 when nothing fails, and 1 when something does or could not be checked in time.',
    `The checks: ${CHECK_NAMES.map((name) => `${name} (${CHECKS[name].replace(/\?$/, '').replace(/^[A-Z]/, (letter) => letter.toLowerCase())})`).join('; ')}.`,
    'Nothing is changed. Live workers are asked on both of their queues by a short workflow that the supervisors of the fleet run, and where a slot is free a session is acquired and given back at once; full and cordoned workers are not asked for one. Of open workflows the newest 500 are looked at.',
  ],
  arguments: [],
  options: [
    {
      flags: '--check <name>',
      description: 'run this check only',
      choices: CHECK_NAMES,
      repeatable: true,
    },
    {
      flags: '--timeout <duration>',
      description: 'say what is known after this long',
      default: DEFAULT_TIMEOUT_MS,
      defaultText: '30s',
      parse: durationBetween(5_000, 600_000),
    },
    {
      flags: '-o, --format <format>',
      description: 'how to print the findings',
      choices: ['table', 'json', 'jsonl'],
      default: 'table',
    },
    ...CONNECTION_OPTIONS,
  ],
  examples: [
    { command: 'atlas doctor', explanation: 'everything, within 30 seconds' },
    {
      command: 'atlas doctor --check queues --check acquire',
      explanation: 'only whether the workers answer and grant sessions',
    },
    {
      command: `atlas doctor -o json | jq -r '.findings[] | select(.level=="fail") | .next'`,
      explanation: 'what to run about everything that fails',
    },
  ],
  exitCodes: [EXIT.unreachable],
  load: async () => (await import('./support/run-doctor.js')).runDoctor,
};
