/** What the commands of atlasd are given, resolved in the one way that the daemon itself resolves it. */
import { readFileSync } from 'node:fs';
import type { CommandContext, ParsedCommand } from '../commands/spec.js';
import { defaultStateDirectory } from '../local/paths.js';
import { loadConfig, type Config } from './config.js';

/** @throws as {@link loadConfig} */
export function configOf(context: CommandContext, parsed: ParsedCommand): Config {
  return loadConfig({
    flags: parsed.options,
    env: context.env,
    cwd: context.cwd,
    readFile: (path) => readFileSync(path, 'utf8'),
  });
}

export function stateDirectoryOf(context: CommandContext, config: Config): string {
  return config.stateDirectory ?? defaultStateDirectory(context.env, config.fleet);
}
