/** The program `atlas`: its name, its commands, and its entry point. */
import { COMMANDS, GROUPS } from './commands/index.js';
import { runMain, type ContextOverrides } from './commands/main.js';
import type { ProgramSpec } from './commands/spec.js';
import type { ExitCode } from './contract/exit-codes.js';

export const ATLAS: ProgramSpec = {
  name: 'atlas',
  summary: 'See and run a fleet of Temporal workers that hold sessions.',
  commands: COMMANDS,
  groups: GROUPS,
};

export function main(argv: readonly string[], context: ContextOverrides = {}): Promise<ExitCode> {
  return runMain(ATLAS, argv, context);
}
