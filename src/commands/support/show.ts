/** Prints one record: as text for people, or as a JSON document. */
import { JSON_VERSION } from '../../terminal/records.js';
import type { BlockOptions } from '../../terminal/blocks.js';
import { styleFor, terminalWidth } from '../../terminal/style.js';
import type { CommandContext, ParsedCommand } from '../spec.js';

export function printShown(
  { stdout, env }: CommandContext,
  { options }: ParsedCommand,
  document: object,
  text: (options: BlockOptions) => string,
): void {
  stdout.write(
    options['format'] === 'json'
      ? `${JSON.stringify({ version: JSON_VERSION, ...document }, null, 2)}\n`
      : text({ width: terminalWidth(stdout), style: styleFor(stdout, env) }),
  );
}
