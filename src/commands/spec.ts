/**
 * What a command is: one file in this folder exports one {@link CommandSpec}; help, man page and the README's table are
 * made from it. The heavy part is loaded by `load` when the command really runs, so that `atlas --help` loads neither
 * Temporal nor React.
 */
import type { ExitCode } from '../contract/exit-codes.js';

export interface ArgumentSpec {
  readonly name: string;
  readonly description: string;
  readonly required: boolean;
  readonly variadic?: boolean;
}

export interface OptionSpec {
  /** In commander's form: `-o, --output <format>`, `--dev`, `--no-headers`. */
  readonly flags: string;
  readonly description: string;
  readonly env?: string;
  readonly default?: string | boolean | number;
  readonly choices?: readonly string[];
  /** May be given more than once; the value is then an array. */
  readonly repeatable?: boolean;
}

export interface ExampleSpec {
  readonly command: string;
  readonly explanation: string;
}

/** Everything a command touches outside itself, so that tests can replace it. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly stdin: NodeJS.ReadStream;
  /** Aborts at the first SIGINT or SIGTERM. A command that handles it itself says so with `handlesSignals`. */
  readonly signal: AbortSignal;
}

/** Parsed arguments by position and options by camel-cased name. */
export interface ParsedCommand {
  readonly args: readonly (string | readonly string[] | undefined)[];
  readonly options: Readonly<Record<string, unknown>>;
}

export type RunCommand = (context: CommandContext, parsed: ParsedCommand) => Promise<ExitCode>;

export interface CommandSpec {
  /** `['workers', 'ls']` for `atlas workers ls`. */
  readonly path: readonly string[];
  readonly summary: string;
  /** Paragraphs for the man page and the end of the help text. */
  readonly description?: readonly string[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  readonly examples: readonly ExampleSpec[];
  /** Beside 0, 1 and 2, which every command may return. */
  readonly exitCodes: readonly ExitCode[];
  readonly load: () => Promise<RunCommand>;
}
