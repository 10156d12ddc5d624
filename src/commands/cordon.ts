/** `atlas cordon`: has workers take no new sessions. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { OPERATOR_VARIABLE } from './support/operator.js';
import {
  REASON_OPTION,
  RESULT_FORMAT_OPTION,
  SELF_OPTIONS,
  WORKER_SELECTOR_OPTION,
  WORKERS_ARGUMENT,
} from './support/order-options.js';

export const cordon: CommandSpec = {
  path: ['cordon'],
  summary: 'Have workers take no new sessions; those that they hold go on.',
  description: [
    'A cordoned worker keeps its sessions and everything pinned to them, and its pooled activities and workflows run on. It stays cordoned, over restarts of its daemon and its host, until `atlas uncordon`. Cordoning it again changes nothing: the first reason stays, and yours is noted beside it.',
    'The order is kept by the fleet. If the worker is away it is recorded and holds from the moment it returns.',
  ],
  arguments: [WORKERS_ARGUMENT],
  options: [WORKER_SELECTOR_OPTION, REASON_OPTION, ...SELF_OPTIONS, RESULT_FORMAT_OPTION, ...CONNECTION_OPTIONS],
  environment: [OPERATOR_VARIABLE],
  examples: [
    { command: 'atlas cordon worker-7 --reason "disk swap"', explanation: 'no new session lands on worker-7' },
    { command: 'atlas cordon worker-7 worker-8 -o json', explanation: 'two workers, for a script' },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.conflict],
  load: async () => (await import('./support/cordon-workers.js')).runCordon,
};
