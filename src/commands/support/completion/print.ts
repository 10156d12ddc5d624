/** What `atlas completion` does. */
import { EXIT } from '../../../contract/exit-codes.js';
import type { ProgramSpec, RunCommand } from '../../spec.js';
import { bashCompletion } from './bash.js';
import { fishCompletion } from './fish.js';
import { zshCompletion } from './zsh.js';

const SCRIPTS: Readonly<Record<string, (program: ProgramSpec) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

export const printCompletion: RunCommand = async (context, parsed) => {
  // The list of commands has this one in it.
  const { COMMANDS, GROUPS } = await import('../../index.js');
  const program: ProgramSpec = { name: 'atlas', summary: '', commands: COMMANDS, groups: GROUPS };
  context.stdout.write(SCRIPTS[String(parsed.args[0])]!(program));
  return EXIT.done;
};
