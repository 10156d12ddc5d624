/** `atlas drain`: takes workers out of service once their last session has ended. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { confirmOption } from './support/confirm.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { OPERATOR_VARIABLE } from './support/operator.js';
import {
  REASON_OPTION,
  RESULT_FORMAT_OPTION,
  SELF_OPTIONS,
  WORKER_SELECTOR_OPTION,
  WORKERS_ARGUMENT,
} from './support/order-options.js';
import { durationBetween, integerBetween } from './support/parse.js';

const MAX_DEADLINE_MS = 30 * 24 * 3_600_000;
const MAX_WORKERS = 10_000;

export const drain: CommandSpec = {
  path: ['drain'],
  summary: 'Cordon workers and wait until their last session has ended.',
  usage: [
    'WORKER...|-l SELECTOR [options]',
    'WORKER... --force --reason WHY [options]',
    '--monitor [WORKER...]',
    '--self [--deadline D] [--stop]',
  ],
  description: [
    'The unit of a drain is the session, not the activity: a session that is between two steps, or waits for its workflow, keeps its worker until it has ended. Nothing is ended by a plain drain. With --deadline what is left then is reported, with exit code 3, and the drain goes on; --on-deadline release ends it by force instead. --force is that at once.',
    'Sessions that are released by force are lost to their workflows, which do them again on another worker, or fail, as their onLost says.',
    'Several workers are drained one after another unless --max-parallel says otherwise, so that a mistake costs one worker. --min-ready N begins none that would leave fewer than N other workers of the fleet ready, and waits for room; with a --deadline for no longer than that. A worker that has reached its deadline counts no longer for --max-parallel. A drained worker that you uncordon counts as ready again, which is how a fleet is rolled.',
    'The order is kept by the fleet: Ctrl-C stops watching and not the drain, restarts do not end it, and a drained worker stays cordoned until `atlas uncordon`. With --max-parallel those that were not begun yet stay as they are; they are listed.',
    'Off a terminal the command does not wait unless --wait is given, and then writes a line for each change and every 30 seconds.',
    'STUCK? marks a session that shows no progress for 30 seconds: the step reports the same amount, or no step runs. The rest of the line says what its workflow waits for, as far as the Temporal server knows.',
  ],
  arguments: [WORKERS_ARGUMENT],
  options: [
    WORKER_SELECTOR_OPTION,
    {
      flags: '--deadline <duration>',
      description: 'how long each worker may take',
      defaultText: 'none',
      parse: durationBetween(0, MAX_DEADLINE_MS),
    },
    {
      flags: '--on-deadline <what>',
      description: 'what happens to sessions that are left then',
      choices: ['report', 'release'],
      default: 'report',
    },
    { flags: '--force', description: 'release what they hold by force at once; needs --reason, and asks' },
    REASON_OPTION,
    { flags: '--wait', description: 'wait for the end', defaultText: 'on a terminal' },
    { flags: '--no-wait', description: 'give the order and return' },
    { flags: '--monitor', description: 'only watch drains that go on: those of the workers named, or all' },
    { flags: '--dry-run', description: 'say what would be done and what is in the way, and change nothing' },
    {
      flags: '--max-parallel <n>',
      description: 'how many workers are drained at once',
      defaultText: '1',
      parse: integerBetween(1, MAX_WORKERS),
    },
    {
      flags: '--min-ready <n>',
      description: 'never fewer than this many other workers ready',
      defaultText: '0',
      parse: integerBetween(0, MAX_WORKERS),
    },
    { flags: '--stop', description: 'the daemon ends itself once drained' },
    { flags: '--replace', description: 'replace the drain of another operator that goes on by other terms' },
    confirmOption,
    ...SELF_OPTIONS,
    RESULT_FORMAT_OPTION,
    ...CONNECTION_OPTIONS,
  ],
  environment: [OPERATOR_VARIABLE, { name: 'NO_COLOR', description: 'no colour' }],
  examples: [
    { command: 'atlas drain worker-7 --reason "kernel update"', explanation: 'wait until it holds nothing any more' },
    {
      command: 'atlas drain worker-7 --deadline 10m --wait',
      explanation: 'in a script: exit code 3 when something is left after ten minutes, and nothing is ended',
    },
    {
      command: 'atlas drain worker-1 worker-2 worker-3 --min-ready 2',
      explanation: 'one after another, and only while two others are ready',
    },
    { command: 'atlas drain worker-7 --dry-run', explanation: 'what is in the way' },
    {
      command: 'atlas drain --self --wait --deadline 5m',
      explanation: 'in the unit file of atlasd, as ExecStop: the worker of this host',
    },
  ],
  exitCodes: [EXIT.deadline, EXIT.notFound, EXIT.unreachable, EXIT.conflict, EXIT.interrupted],
  load: async () => (await import('./support/run-drain.js')).runDrain,
};
