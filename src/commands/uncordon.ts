/** `atlas uncordon`: has workers take sessions again. */
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

export const uncordon: CommandSpec = {
  path: ['uncordon'],
  summary: 'Have workers take sessions again.',
  description: [
    'Undoes a cordon and a drain, whether it still goes on or is done. On a worker that takes sessions it changes nothing.',
    'What another operator has taken out of service stays so: on a terminal you are asked, elsewhere the command ends with 6, unless --yes is given. Nothing is changed then, also not on the other workers that were named.',
  ],
  arguments: [WORKERS_ARGUMENT],
  options: [
    WORKER_SELECTOR_OPTION,
    REASON_OPTION,
    confirmOption,
    ...SELF_OPTIONS,
    RESULT_FORMAT_OPTION,
    ...CONNECTION_OPTIONS,
  ],
  environment: [OPERATOR_VARIABLE],
  examples: [
    { command: 'atlas uncordon worker-7', explanation: 'worker-7 takes sessions again' },
    {
      command: 'atlas uncordon worker-7 --yes',
      explanation: 'also where another operator has cordoned it, with whom you have agreed',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.conflict],
  load: async () => (await import('./support/cordon-workers.js')).runUncordon,
};
