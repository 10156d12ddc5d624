/** `atlas wait`: returns when a worker or a session is as one wants it. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { durationBetween } from './support/parse.js';

const MAX_TIMEOUT_MS = 30 * 24 * 3_600_000;

export const wait: CommandSpec = {
  path: ['wait'],
  summary: 'Wait until a worker or a session is as you want it.',
  usage: ['worker NAME --for STATE [options]', 'session ID [options]'],
  description: [
    'A worker is waited for to be ready (it takes sessions), cordoned (it takes none, by a cordon or a drain, and has confirmed it), drained, lost or stopped. For ready it need not be known yet; for any other state an unknown worker ends the command with 4.',
    'A session is waited for until no worker holds it. The beginning of its id is enough, where no other session begins so.',
    'When the time is over the command ends with 124 and says what it has seen last.',
  ],
  arguments: [
    { name: 'kind', description: 'what to wait for', required: true, choices: ['worker', 'session'] },
    { name: 'name', description: 'the name of the worker, or the id of the session', required: true },
  ],
  options: [
    {
      flags: '--for <state>',
      description: 'the state; of a session, released',
      choices: ['ready', 'cordoned', 'drained', 'lost', 'stopped', 'released'],
    },
    {
      flags: '--timeout <duration>',
      description: 'how long to wait',
      default: 300_000,
      defaultText: '5m',
      parse: durationBetween(0, MAX_TIMEOUT_MS),
    },
    { flags: '-q, --quiet', description: 'say nothing; the exit code is the answer' },
    ...CONNECTION_OPTIONS,
  ],
  examples: [
    { command: 'atlas wait worker worker-7 --for ready --timeout 2m', explanation: 'after a start, in a script' },
    { command: 'atlas wait worker worker-7 --for drained', explanation: 'until its last session has ended' },
    { command: 'atlas wait session 06babd --timeout 30m', explanation: 'until it is released' },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.waitTimeout, EXIT.interrupted],
  load: async () => (await import('./support/wait-for.js')).runWait,
};
