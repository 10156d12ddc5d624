/** The program `atlas`: its name, its commands, and its entry point. */
import { COMMANDS, GROUPS, HIDDEN_COMMANDS } from './commands/index.js';
import { runMain, type ContextOverrides } from './commands/main.js';
import type { ProgramSpec } from './commands/spec.js';
import type { ExitCode } from './contract/exit-codes.js';
import { optimizeLater } from './temporal/patient-compiler.js';

export const ATLAS: ProgramSpec = {
  name: 'atlas',
  summary: 'See and run a fleet of Temporal workers that hold sessions.',
  description: [
    'A session pins a sequence of activities to one worker of a fleet. atlas shows the workers and the sessions that they hold, and runs the document job on one of them. All it knows comes from the Temporal server; nothing is asked of the hosts.',
    'Data goes to stdout and everything else to stderr. With -o json, stdout is one JSON document and an error is JSON on stderr; every document has a version.',
  ],
  commands: COMMANDS,
  hiddenCommands: HIDDEN_COMMANDS,
  groups: GROUPS,
};

export function main(argv: readonly string[], context: ContextOverrides = {}): Promise<ExitCode> {
  optimizeLater();
  return runMain(ATLAS, argv, context);
}
