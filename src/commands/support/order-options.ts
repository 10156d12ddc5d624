/** Options that the commands which change a fleet have in common. Help shows them, so nothing heavy is imported here. */
import type { ArgumentSpec, OptionSpec } from '../spec.js';
import { SELECTOR_OPTION } from './list-view.js';

/** Fields as in the help of `atlas workers ls`. */
export const WORKER_SELECTOR_OPTION: OptionSpec = {
  ...SELECTOR_OPTION,
  description: 'the workers that meet all conditions, such as cap=gpu,host=rack3; see `atlas workers ls --help`',
};

export const WORKERS_ARGUMENT: ArgumentSpec = {
  name: 'worker',
  description: 'names of workers',
  required: false,
  variadic: true,
  completes: 'worker',
};

export const REASON_OPTION: OptionSpec = {
  flags: '--reason <text>',
  description: 'why, for other operators; kept with the worker and shown by `atlas workers ls`',
};

export const RESULT_FORMAT_OPTION: OptionSpec = {
  flags: '-o, --format <format>',
  description: 'how to print what was done',
  choices: ['text', 'json'],
  default: 'text',
};

export const SELF_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--self',
    description: 'the worker of this host, over its local socket, also while Temporal is away',
  },
  {
    flags: '--state-dir <path>',
    description: 'with --self: the state directory of its atlasd',
    env: 'ATLAS_STATE_DIR',
    completes: 'file',
    defaultText: '/var/lib/atlas/FLEET for root, else ~/.local/state/atlas/FLEET',
  },
];
