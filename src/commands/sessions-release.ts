/** `atlas sessions release`: ends sessions by force. */
import { EXIT } from '../contract/exit-codes.js';
import type { CommandSpec } from './spec.js';
import { confirmOption } from './support/confirm.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { OPERATOR_VARIABLE } from './support/operator.js';
import { REASON_OPTION, RESULT_FORMAT_OPTION } from './support/order-options.js';
import { durationBetween } from './support/parse.js';

const MAX_IDLE_MS = 30 * 24 * 3_600_000;

export const sessionsRelease: CommandSpec = {
  path: ['sessions', 'release'],
  summary: 'End sessions by force.',
  usage: ['ID... [options]', '[--leaked] [--idle D] [--worker W] [options]'],
  description: [
    'The activities of the session are cancelled, and killed where they ignore it for 30 seconds; then its slot and its scratch directory are free. Its workflow has lost the session: it does the sequence again on another worker, or fails, as its onLost says. With --fail-owner it fails with SessionReleased. Your name and reason are in the message.',
    'A session is named by its id, or by a beginning that no other session has. Several of the options that choose must all hold.',
    'Where the worker does not answer, its owner is told instead, after as long as the worker may still be running something for it; what the worker has of it ends when it returns. Exit code 0 means that slot and scratch are free or, on such a worker, that its owner no longer holds on to the session: it was told, has ended, or had moved on by itself. The output says which.',
    'You are asked first, with a list; off a terminal --yes is needed.',
  ],
  arguments: [
    {
      name: 'id',
      description: 'ids of sessions, or their beginnings',
      required: false,
      variadic: true,
      completes: 'session',
    },
  ],
  options: [
    { flags: '--leaked', description: 'sessions that hold a slot with nothing using it: their owner has ended' },
    {
      flags: '--idle <duration>',
      description: 'sessions of which no step has run for at least this long',
      parse: durationBetween(0, MAX_IDLE_MS),
    },
    { flags: '--worker <name>', description: 'sessions on this worker', completes: 'worker' },
    { flags: '--fail-owner', description: 'the workflows fail instead of doing it again' },
    REASON_OPTION,
    { flags: '--dry-run', description: 'list what would be released, and change nothing' },
    confirmOption,
    RESULT_FORMAT_OPTION,
    ...CONNECTION_OPTIONS,
  ],
  environment: [OPERATOR_VARIABLE],
  examples: [
    {
      command: 'atlas sessions release 06ba --reason "hangs in OCR"',
      explanation: 'one session, by the beginning of its id',
    },
    { command: 'atlas sessions release --leaked --dry-run', explanation: 'which slots are held for nothing' },
    {
      command: 'atlas sessions release --worker worker-7 --idle 30m --yes',
      explanation: 'in a script, without a question',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.conflict],
  load: async () => (await import('./support/release-sessions.js')).runRelease,
};
