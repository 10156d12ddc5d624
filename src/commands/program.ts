/**
 * Builds a commander program from command specifications, runs it, and turns whatever goes wrong into one error report
 * and an exit code. `atlas` and `atlasd` both come from here.
 *
 * Owns parsing, help and usage errors. Must not load what a command needs to run: `spec.load()` is called only once the
 * command line was found valid, so that help stays fast.
 */
import { Argument, Command, CommanderError, Option } from 'commander';
import { AtlasError, ERRORS } from '../contract/errors.js';
import { EXIT, type ExitCode } from '../contract/exit-codes.js';
import { COMMON_EXIT_CODES, EXIT_MEANINGS } from './exit-codes.js';
import type {
  ArgumentSpec,
  CommandContext,
  CommandSpec,
  ExampleSpec,
  OptionSpec,
  ParsedCommand,
  ProgramSpec,
} from './spec.js';
import { didYouMean } from './support/did-you-mean.js';
import { VERSION } from '../contract/version.js';

/** Lines longer than this are hard to read, however wide the terminal is. */
const MAX_HELP_WIDTH = 100;
const DEFAULT_HELP_WIDTH = 80;

export interface RunProgramOptions {
  /** Called before a command with `handlesSignals` runs. */
  readonly releaseSignals?: () => void;
}

/**
 * Runs a program on a command line (without the first two elements of `process.argv`). Never rejects: errors are
 * reported on stderr and become the exit code.
 */
export async function runProgram(
  program: ProgramSpec,
  argv: readonly string[],
  context: CommandContext,
  options: RunProgramOptions = {},
): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.done;
  // `atlas help workers ls` is another way to write `atlas workers ls --help`.
  const words = argv[0] === 'help' && hasSubcommands(program) ? [...argv.slice(1), '--help'] : argv;
  const root = buildProgram(program, context, async (spec, parsed) => {
    const run = await spec.load();
    if (spec.handlesSignals === true) options.releaseSignals?.();
    exitCode = await run(context, parsed);
  });
  try {
    const [first] = words;
    const known = [...commandNames(root), ...(program.hiddenCommands ?? []).map(({ path }) => path[0])];
    if (hasSubcommands(program) && first !== undefined && !first.startsWith('-') && !known.includes(first)) {
      // Before commander sees it: with --help on the line it would show the general help as if all were well.
      throw unknownCommand(root, first);
    }
    await root.parseAsync([...words], { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.done;
    const reported = asUsageError(program, words, error);
    const { reportError } = await import('./report-error.js');
    return reportError(reported, {
      stderr: context.stderr,
      env: context.env,
      format: wantsJson(argv) ? 'json' : 'text',
    });
  }
}

type OnCommand = (spec: CommandSpec, parsed: ParsedCommand) => Promise<void>;

function buildProgram(program: ProgramSpec, context: CommandContext, onCommand: OnCommand): Command {
  const root = new Command(program.name);
  root
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void context.stdout.write(text),
      writeErr: (text) => void context.stderr.write(text),
      // Usage errors are reported by runProgram, in the same form as every other error.
      outputError: () => undefined,
      getOutHelpWidth: () => helpWidth(context.stdout),
      getErrHelpWidth: () => helpWidth(context.stderr),
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .configureHelp({
      // The longest flag of atlasd leaves 38 columns of 80; below 30 a column of words is harder to read than a long line.
      minWidthToWrap: 30,
      optionDescription: (option) => option.description,
      // The commands themselves, not the words that group them: one look shows all there is.
      visibleCommands: leafCommands,
      subcommandTerm: (command) => commandLine(command).split(' ').slice(1).join(' '),
    })
    .helpOption('-h, --help', 'show this help')
    .version(`${program.name} ${VERSION}`, '-V, --version', 'print the version')
    .summary(program.summary)
    .description(program.summary);

  for (const spec of program.commands) {
    const command = spec.path.length === 0 ? root : addCommand(root, program, spec);
    configureCommand(command, program, spec, context, onCommand);
  }
  for (const spec of program.hiddenCommands ?? []) {
    const command = addCommand(root, program, spec);
    HIDDEN.add(command);
    configureCommand(command, program, spec, context, onCommand);
  }
  if (hasSubcommands(program)) {
    root.helpCommand(false);
    if (hasRoot(program)) {
      // Else an option that root and command both have would be the root's, wherever it stands.
      root.enablePositionalOptions();
    } else {
      root.usage('COMMAND [options]');
      root.addHelpText('after', () => `\n${programEpilogue(program, helpWidth(context.stdout))}`);
      // Without arguments there is nothing to complain about yet: show what there is.
      root.action(() => root.outputHelp());
    }
  }
  return root;
}

/** Whether the program does something by itself, without a command's word. */
function hasRoot(program: ProgramSpec): boolean {
  return program.commands.some((spec) => spec.path.length === 0);
}

function hasSubcommands(program: ProgramSpec): boolean {
  return program.commands.some((spec) => spec.path.length > 0);
}

const HIDDEN = new WeakSet<Command>();

function leafCommands(command: Command): Command[] {
  return visibleChildren(command).flatMap((child) => (child.commands.length === 0 ? [child] : leafCommands(child)));
}

function visibleChildren(command: Command): Command[] {
  return command.commands.filter((child) => !HIDDEN.has(child));
}

/** Creates the command at `spec.path`, and the groups above it where they are missing. */
function addCommand(root: Command, program: ProgramSpec, spec: CommandSpec): Command {
  let parent = root;
  for (const group of spec.path.slice(0, -1)) {
    parent = parent.commands.find((command) => command.name() === group) ?? addGroup(parent, group, program);
  }
  return parent.command(spec.path.at(-1)!);
}

function addGroup(parent: Command, name: string, program: ProgramSpec): Command {
  const summary = program.groups?.[name] ?? '';
  const group = parent.command(name).summary(summary).description(summary).helpCommand(false);
  group.allowExcessArguments(true);
  group.action(() => {
    const [word] = group.args;
    if (word !== undefined) throw unknownCommand(group, word);
    const words = commandNames(group);
    throw new AtlasError('Usage', `${commandLine(group)} needs a command: ${words.join(', ')}.`, {
      next: `Run \`${commandLine(group)} ${words[0] ?? '--help'}\`, or \`${commandLine(group)} --help\`.`,
    });
  });
  return group;
}

function configureCommand(
  command: Command,
  program: ProgramSpec,
  spec: CommandSpec,
  context: CommandContext,
  onCommand: OnCommand,
): void {
  const ownsCommands = spec.path.length === 0 && hasSubcommands(program);
  // What the root does not expect is a command that was misspelt.
  command.summary(spec.summary).description(spec.summary).helpCommand(false).allowExcessArguments(ownsCommands);
  for (const argument of spec.arguments) {
    const name = argument.variadic === true ? `${argument.name}...` : argument.name;
    command.addArgument(commanderArgument(argument, argument.required ? `<${name}>` : `[${name}]`));
  }
  for (const option of spec.options) command.addOption(commanderOption(option));
  const usage = ownsCommands ? [...(spec.usage ?? ['[options]']), 'COMMAND [options]'] : spec.usage;
  if (usage !== undefined) {
    command.usage(usage.join(`\n       ${[rootOf(command).name(), ...spec.path].join(' ')} `));
  }
  command.addHelpText('after', () => {
    const width = helpWidth(context.stdout);
    return `\n${commandEpilogue(spec, width)}${ownsCommands ? `\n${programFooter(program, width)}\n` : ''}`;
  });
  command.action(async () => {
    if (ownsCommands) refuseUnknownWord(command);
    else refuseOptionsOfRoot(command, spec);
    const given = applyEnvironment(command, spec, context.env);
    await onCommand(spec, {
      args: command.processedArgs as ParsedCommand['args'],
      options: command.opts(),
      given,
    });
  });
}

function refuseUnknownWord(root: Command): void {
  const word = root.args[root.registeredArguments.length];
  if (word !== undefined) throw unknownCommand(root, word);
}

/** An option of the root before the word of a command would be heard by nobody. */
function refuseOptionsOfRoot(command: Command, spec: CommandSpec): void {
  const root = rootOf(command);
  if (root === command) return;
  const lost = root.options.find((option) => root.getOptionValueSource(option.attributeName()) === 'cli');
  if (lost === undefined) return;
  const flag = lost.long ?? lost.short!;
  const line = commandLine(command);
  const isOwn = spec.options.some(({ flags }) => new Option(flags).long === flag);
  throw new AtlasError('Usage', `${flag} stands before "${spec.path.join(' ')}" and would have no effect there.`, {
    next: isOwn
      ? `Write it after the word: \`${line} ${flag} ...\`.`
      : `Leave it out; \`${line} --help\` has the rest.`,
  });
}

function commanderArgument(spec: ArgumentSpec, form: string): Argument {
  const argument = new Argument(form, describeArgument(spec));
  const { choices } = spec;
  if (choices !== undefined) {
    argument.argParser((word: string, previous: unknown) => {
      if (!choices.includes(word)) throw notAChoice(spec.name, word, choices);
      if (spec.variadic !== true) return word;
      return Array.isArray(previous) ? [...(previous as unknown[]), word] : [word];
    });
  }
  return argument;
}

function commanderOption(spec: OptionSpec): Option {
  const option = new Option(spec.flags, describeOption(spec));
  if (spec.default !== undefined) option.default(spec.default);
  const takesValue = option.required || option.optional;
  if (takesValue) {
    const flag = option.long ?? option.short!;
    option.argParser((text: string, previous: unknown) => {
      const value = parseValue(spec, text, flag);
      if (spec.repeatable !== true) return value;
      // The default is not something the user asked for: the first value replaces it.
      return Array.isArray(previous) ? [...(previous as unknown[]), value] : [value];
    });
  }
  return option;
}

/** The description of an argument with its choices, as help and man page show it. */
export function describeArgument({ description, choices }: ArgumentSpec): string {
  return choices === undefined ? description : `${description} (one of ${choices.join(', ')})`;
}

/** The description of an option with its choices, default and variable, as help and man page show it. */
export function describeOption(spec: OptionSpec): string {
  const facts: string[] = [];
  if (spec.choices !== undefined) facts.push(`one of ${spec.choices.join(', ')}`);
  if (spec.repeatable === true) facts.push('may be repeated');
  const defaultText = spec.defaultText ?? (typeof spec.default === 'boolean' ? undefined : spec.default?.toString());
  if (defaultText !== undefined) facts.push(`default: ${defaultText}`);
  if (spec.env !== undefined) facts.push(`env: ${spec.env}`);
  return facts.length === 0 ? spec.description : `${spec.description} (${facts.join('; ')})`;
}

function notAChoice(label: string, word: string, choices: readonly string[]): AtlasError {
  return new AtlasError(
    'Usage',
    `${label}: "${word}" is not one of ${choices.join(', ')}.${didYouMean(word, choices)}`,
  );
}

function parseValue(spec: OptionSpec, text: string, label: string): unknown {
  if (spec.choices !== undefined && !spec.choices.includes(text)) {
    throw notAChoice(label, text, spec.choices);
  }
  if (spec.parse === undefined) return text;
  try {
    return spec.parse(text);
  } catch (error) {
    if (error instanceof AtlasError && error.code !== 'Usage') throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new AtlasError('Usage', `${label}: ${message.replace(/[.]?$/, '.')}`, { cause: error });
  }
}

/**
 * Fills options that were not given from their variables. Commander would read `process.env` itself; a command is given
 * its environment. Returns the names of the options that the user set either way.
 */
function applyEnvironment(command: Command, spec: CommandSpec, env: NodeJS.ProcessEnv): Set<string> {
  const given = new Set<string>();
  for (const option of spec.options) {
    const parsed = new Option(option.flags);
    const name = parsed.attributeName();
    if (command.getOptionValueSource(name) === 'cli') {
      given.add(name);
      continue;
    }
    const text = option.env === undefined ? undefined : env[option.env];
    if (option.env === undefined || text === undefined || text === '') continue;
    given.add(name);
    const takesValue = parsed.required || parsed.optional;
    const value = takesValue ? parseValue(option, text, option.env) : parseFlag(text, option.env);
    command.setOptionValueWithSource(name, takesValue && option.repeatable === true ? [value] : value, 'env');
  }
  return given;
}

function parseFlag(text: string, variable: string): boolean {
  if (['1', 'true', 'yes'].includes(text.toLowerCase())) return true;
  if (['0', 'false', 'no'].includes(text.toLowerCase())) return false;
  throw new AtlasError('Usage', `${variable}: "${text}" is neither true nor false.`);
}

function commandEpilogue(spec: CommandSpec, width: number): string {
  const sections: string[] = [];
  for (const paragraph of spec.description ?? []) sections.push(wrap(paragraph, width));
  const environment = spec.environment ?? [];
  if (environment.length > 0) {
    sections.push(
      section(
        'Environment:',
        environment.map((variable) => [variable.name, variable.description]),
        width,
      ),
    );
  }
  if (spec.examples.length > 0) sections.push(exampleSection(spec.examples, width));
  sections.push(
    section(
      'Exit codes:',
      exitCodesOf(spec).map((code) => [String(code), EXIT_MEANINGS[code]]),
      width,
    ),
  );
  return `${sections.join('\n\n')}\n`;
}

function programEpilogue(program: ProgramSpec, width: number): string {
  const examples = program.commands.flatMap((spec) => spec.examples.slice(0, 1));
  return `${exampleSection(examples, width)}\n\n${programFooter(program, width)}\n`;
}

function programFooter({ name }: ProgramSpec, width: number): string {
  const footer = `Run \`${name} COMMAND --help\` for its options, examples and exit codes. The manual: \`man ${name}\`.`;
  return wrap(footer, width);
}

function exampleSection(examples: readonly ExampleSpec[], width: number): string {
  const lines = examples.map((example) => `  ${example.command}\n${wrap(example.explanation, width, '      ')}`);
  return `Examples:\n${lines.join('\n')}`;
}

/** Every exit code of a command, the common ones included, in rising order. */
export function exitCodesOf(spec: CommandSpec): ExitCode[] {
  return [...new Set([...COMMON_EXIT_CODES, ...spec.exitCodes])].sort((left, right) => left - right);
}

function section(title: string, rows: readonly (readonly [string, string])[], width: number): string {
  const widest = Math.max(...rows.map(([name]) => name.length));
  const indent = ' '.repeat(widest + 4);
  const lines = rows.map(([name, text]) => `  ${name.padEnd(widest)}  ${wrap(text, width, indent).trimStart()}`);
  return `${title}\n${lines.join('\n')}`;
}

/** Breaks a paragraph into lines of at most `width` columns, each after `indent`. */
export function wrap(text: string, width: number, indent = ''): string {
  const lines: string[] = [];
  let line = indent;
  for (const word of text.split(' ')) {
    const separator = line === indent ? '' : ' ';
    if (line.length + separator.length + word.length > width && line !== indent) {
      lines.push(line);
      line = indent + word;
    } else {
      line += separator + word;
    }
  }
  lines.push(line);
  return lines.join('\n');
}

function helpWidth(stream: { readonly columns?: number }): number {
  const columns = stream.columns ?? DEFAULT_HELP_WIDTH;
  return Math.min(columns > 0 ? columns : DEFAULT_HELP_WIDTH, MAX_HELP_WIDTH);
}

function rootOf(command: Command): Command {
  let current = command;
  while (current.parent !== null) current = current.parent;
  return current;
}

function commandLine(command: Command): string {
  const words: string[] = [];
  for (let current: Command | null = command; current !== null; current = current.parent) words.unshift(current.name());
  return words.join(' ');
}

function commandNames(command: Command): string[] {
  return visibleChildren(command).map((child) => child.name());
}

function unknownCommand(parent: Command, word: string): AtlasError {
  return new AtlasError(
    'Usage',
    `Unknown command "${word}" of ${commandLine(parent)}.${didYouMean(word, commandNames(parent))}`,
    { next: `Run \`${commandLine(parent)} --help\` for the list of commands.` },
  );
}

/** Commander's complaint as a usage error: one line, with its suggestion. Every usage error names the help that was meant. */
function asUsageError(program: ProgramSpec, argv: readonly string[], error: unknown): unknown {
  const next = `Run \`${[program.name, ...meantCommand(program, argv), '--help'].join(' ')}\`.`;
  if (error instanceof CommanderError) {
    const [first = '', ...rest] = error.message.replace(/^error: /, '').split('\n');
    const sentence = capitalise(first.replaceAll("'", '"').replace(/[.]?$/, '.'));
    const suggestion = rest.map((line) => line.trim().replace(/^\((.*)\)$/, '$1'));
    const message = [sentence.replace(/ argument missing\.$/, ' needs a value.'), ...suggestion].join(' ');
    return new AtlasError('Usage', message, { next });
  }
  if (error instanceof AtlasError && error.code === 'Usage' && error.next === ERRORS.Usage.next) {
    return new AtlasError('Usage', error.message, { next, cause: error.cause });
  }
  return error;
}

/** The longest path of a command or group whose words the command line begins with. */
function meantCommand(program: ProgramSpec, argv: readonly string[]): readonly string[] {
  let best: readonly string[] = [];
  for (const spec of program.commands) {
    for (let length = spec.path.length; length > best.length; length -= 1) {
      const path = spec.path.slice(0, length);
      if (path.every((word, index) => argv[index] === word)) best = path;
    }
  }
  return best;
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * Whether the command line asks for JSON. Read from the raw words, because the answer is needed most when they could not
 * be parsed.
 */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--');
  const words = end === -1 ? argv : argv.slice(0, end);
  return words.some((word, index) => {
    const value = word === '-o' || word === '--format' ? words[index + 1] : /^(?:-o=?|--format=)(.+)$/.exec(word)?.[1];
    return value === 'json' || value === 'jsonl';
  });
}
