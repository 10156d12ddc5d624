/** The program `atlasd`: the daemon, the commands that ask it, and its entry point. */
import { runMain, type ContextOverrides } from './commands/main.js';
import type { ProgramSpec } from './commands/spec.js';
import type { ExitCode } from './contract/exit-codes.js';
import { atlasdSpec, reloadSpec, statusSpec } from './daemon/spec.js';
import { optimizeLater } from './temporal/patient-compiler.js';

export const ATLASD: ProgramSpec = {
  name: 'atlasd',
  summary: atlasdSpec.summary,
  // What the program does without a command's word is the first.
  commands: [atlasdSpec, reloadSpec, statusSpec],
};

export function main(argv: readonly string[], context: ContextOverrides = {}): Promise<ExitCode> {
  optimizeLater();
  return runMain(ATLASD, argv, context);
}
