/** `atlas workers forget`: takes workers that are gone off the list. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { confirmOption } from './support/confirm.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { OPERATOR_VARIABLE } from './support/operator.js';
import { REASON_OPTION, RESULT_FORMAT_OPTION, WORKERS_ARGUMENT } from './support/order-options.js';

export const workersForget: CommandSpec = {
  path: ['workers', 'forget'],
  summary: 'Take workers that are lost or stopped off the list.',
  description: [
    'For hosts that are gone for good. A worker that lives is refused. One that is forgotten by mistake is listed again as soon as its daemon starts, and what it knows of orders comes with it.',
    'You are asked first; off a terminal --yes is needed.',
  ],
  arguments: [{ ...WORKERS_ARGUMENT, required: true }],
  options: [
    { flags: '--with-sessions', description: 'also a worker that held sessions when it was last heard of' },
    REASON_OPTION,
    confirmOption,
    RESULT_FORMAT_OPTION,
    ...CONNECTION_OPTIONS,
  ],
  environment: [OPERATOR_VARIABLE],
  examples: [{ command: 'atlas workers forget worker-7', explanation: 'worker-7 was scrapped' }],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.conflict],
  load: async () => (await import('./support/forget-workers.js')).runForget,
};
