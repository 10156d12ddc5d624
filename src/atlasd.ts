/** The program `atlasd`: one command without a name, and its entry point. */
import { runMain, type ContextOverrides } from './commands/main.js';
import type { ProgramSpec } from './commands/spec.js';
import type { ExitCode } from './contract/exit-codes.js';
import { atlasdSpec } from './daemon/spec.js';

export const ATLASD: ProgramSpec = {
  name: 'atlasd',
  summary: atlasdSpec.summary,
  commands: [atlasdSpec],
};

export function main(argv: readonly string[], context: ContextOverrides = {}): Promise<ExitCode> {
  return runMain(ATLASD, argv, context);
}
