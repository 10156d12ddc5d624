/** What the commands of atlasd are given, resolved in the one way that the daemon itself resolves it. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { CommandContext, ParsedCommand } from '../commands/spec.js';
import { defaultStateDirectory, socketPathIn } from '../local/paths.js';
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

/**
 * The socket of the atlasd that a command asks. A directory that is named is enough: a configuration that is broken must not
 * hide a worker that runs.
 */
export function socketPathOf(context: CommandContext, parsed: ParsedCommand): string {
  const given = parsed.options['stateDir'];
  return socketPathIn(
    typeof given === 'string' ? resolve(context.cwd, given) : stateDirectoryOf(context, configOf(context, parsed)),
  );
}
