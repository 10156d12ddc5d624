/**
 * What a command is: one file in this folder exports one {@link CommandSpec}; help, man page and the README's table are
 * made from it. The heavy part is loaded by `load` when the command really runs, so that `atlas --help` loads neither
 * Temporal nor React.
 */
import type { ExitCode } from '../contract/exit-codes.js';

/**
 * What the shell offers for a value: the workers or sessions that the fleet has now, or files. Choices are offered in
 * any case; without either there is nothing to offer.
 */
export type Completes = 'worker' | 'session' | 'file' | 'none';

export interface ArgumentSpec {
  readonly name: string;
  readonly description: string;
  readonly required: boolean;
  readonly variadic?: boolean;
  readonly choices?: readonly string[];
  readonly completes?: Completes;
}

export interface OptionSpec {
  /** In commander's form: `-o, --format <format>`, `--dev`, `--no-headers`. */
  readonly flags: string;
  readonly description: string;
  /** Taken from this variable when the flag is absent. Ignored where the variable is empty. */
  readonly env?: string;
  readonly default?: string | boolean | number;
  /** What the help text says instead of `default`, for a default that is computed. */
  readonly defaultText?: string;
  readonly choices?: readonly string[];
  /** May be given more than once; the value is then an array. */
  readonly repeatable?: boolean;
  readonly completes?: Completes;
  /** Turns the text into a value. Throws an Error whose message ends the sentence `--flag: ...`. */
  readonly parse?: (value: string) => unknown;
}

export interface ExampleSpec {
  readonly command: string;
  readonly explanation: string;
}

/** A variable that a command reads and that is not the twin of one option. */
export interface EnvironmentSpec {
  readonly name: string;
  readonly description: string;
}

/** Everything a command touches outside itself, so that tests can replace it. */
export interface CommandContext {
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly stdin: NodeJS.ReadStream;
  /**
   * Aborts at the first SIGINT, SIGTERM or SIGHUP; its reason is an `AtlasError` with the code `Interrupted`. The
   * second signal ends the process. It never aborts for a command with `handlesSignals`.
   */
  readonly signal: AbortSignal;
}

/** Parsed arguments by position and options by camel-cased name. */
export interface ParsedCommand {
  readonly args: readonly (string | readonly string[] | undefined)[];
  readonly options: Readonly<Record<string, unknown>>;
  /** Whether an option was given on the command line or in the environment, and not just by its default. */
  readonly given: ReadonlySet<string>;
}

export type RunCommand = (context: CommandContext, parsed: ParsedCommand) => Promise<ExitCode>;

export interface CommandSpec {
  /** `['workers', 'ls']` for `atlas workers ls`; `[]` for a program that is one command, such as atlasd. */
  readonly path: readonly string[];
  readonly summary: string;
  /** Forms of the command line after the program's name, where the one made from arguments and options misleads. */
  readonly usage?: readonly string[];
  /** Paragraphs for the man page and the end of the help text. */
  readonly description?: readonly string[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  readonly environment?: readonly EnvironmentSpec[];
  readonly examples: readonly ExampleSpec[];
  /** Beside 0, 1 and 2, which every command may return. */
  readonly exitCodes: readonly ExitCode[];
  /** The command installs its own handlers for SIGINT and SIGTERM; those of the program are removed before it runs. */
  readonly handlesSignals?: boolean;
  readonly load: () => Promise<RunCommand>;
}

/** A program: `atlas` with its commands, or `atlasd` with the one at the root. */
export interface ProgramSpec {
  readonly name: string;
  readonly summary: string;
  /** Paragraphs for the man page and the end of the help text of the program itself. */
  readonly description?: readonly string[];
  readonly commands: readonly CommandSpec[];
  /** What only other programs call; in no help, man page or suggestion. */
  readonly hiddenCommands?: readonly CommandSpec[];
  /** Summaries of the words that only group commands, such as `workers`. */
  readonly groups?: Readonly<Record<string, string>>;
}
