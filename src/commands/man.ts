/**
 * Man pages from command specifications, in roff. Pure; `scripts/make-man.mjs` writes what it returns, and a test holds
 * the committed pages equal to it.
 *
 * The pages carry the version and no date: the same specifications always give the same bytes.
 */
import { Option } from 'commander';
import { VERSION } from '../contract/version.js';
import { EXIT_MEANINGS } from './exit-codes.js';
import { describeOption, exitCodesOf } from './program.js';
import type { CommandSpec, EnvironmentSpec, ExampleSpec, OptionSpec, ProgramSpec } from './spec.js';

export interface ManPage {
  /** `atlas.1`. */
  readonly fileName: string;
  readonly text: string;
}

export interface ManOptions {
  readonly section: 1 | 8;
  /** Other pages, such as `atlasd(8)`. */
  readonly seeAlso: readonly string[];
}

export function manPage(program: ProgramSpec, { section, seeAlso }: ManOptions): ManPage {
  const root = program.commands.find((spec) => spec.path.length === 0);
  const lines = [
    `.\\" Generated from the command specifications by scripts/make-man.mjs; edit those instead.`,
    `.TH ${program.name.toUpperCase()} ${section} "" "Atlas ${VERSION}" "Atlas manual"`,
    // Left-aligned and without hyphenation: flags and paths must stay whole.
    '.nh',
    '.ad l',
    ...heading('NAME'),
    `${program.name} \\- ${escape(withoutStop(lowerFirst(program.summary)))}`,
    ...heading('SYNOPSIS'),
    ...program.commands.flatMap((spec) => synopsis(program, spec)),
    ...(program.description === undefined && root === undefined
      ? []
      : [...heading('DESCRIPTION'), ...paragraphs(program.description ?? root?.description ?? [])]),
    ...(root === undefined
      ? commands(program)
      : [...heading('OPTIONS'), ...optionList([...root.options, HELP_OPTION, VERSION_OPTION])]),
    ...environmentSection(program),
    ...heading('EXIT STATUS'),
    ...exitStatus(program),
    ...heading('EXAMPLES'),
    ...program.commands.flatMap((spec) => exampleList(spec.examples)),
    ...heading('SEE ALSO'),
    ...seeAlso.map((page, index) => {
      const [name, number] = page.split(/[()]/);
      return `.BR ${escape(name!)} (${number})${index < seeAlso.length - 1 ? ',' : ''}`;
    }),
  ];
  return { fileName: `${program.name}.${section}`, text: `${lines.join('\n')}\n` };
}

function commands(program: ProgramSpec): string[] {
  const shared = sharedOptions(program);
  const lines = heading('COMMANDS');
  for (const spec of program.commands) {
    lines.push(`.SS "${escape([program.name, ...spec.path].join(' '))}"`);
    lines.push(text(spec.summary));
    for (const paragraph of spec.description ?? []) lines.push('.PP', text(paragraph));
    for (const argument of spec.arguments) {
      lines.push('.TP', `.I ${escape(argument.name)}`, text(sentence(argument.description)));
    }
    lines.push(...optionList(spec.options.filter((option) => !shared.includes(option))));
    if (spec.options.some((option) => shared.includes(option))) {
      lines.push('.PP', text(`The options under "${SHARED_TITLE}" apply as well.`));
    }
  }
  lines.push(`.SS "${SHARED_TITLE}"`, ...optionList([...shared, HELP_OPTION, VERSION_OPTION]));
  return lines;
}

const SHARED_TITLE = 'Common options';

/** The very same options in several commands, such as those of the connection: explained once. */
function sharedOptions(program: ProgramSpec): OptionSpec[] {
  const all = program.commands.flatMap((spec) => spec.options);
  return [...new Set(all.filter((option, index) => all.indexOf(option) !== index))];
}

const HELP_OPTION: OptionSpec = { flags: '-h, --help', description: 'show the help' };
const VERSION_OPTION: OptionSpec = { flags: '-V, --version', description: 'print the version' };

function synopsis(program: ProgramSpec, spec: CommandSpec): string[] {
  const name = [program.name, ...spec.path].join(' ');
  const forms = spec.usage ?? [
    [
      ...(spec.options.length > 0 ? ['[options]'] : []),
      ...spec.arguments.map((argument) => {
        const word = argument.variadic === true ? `${argument.name}...` : argument.name;
        return argument.required ? word : `[${word}]`;
      }),
    ].join(' '),
  ];
  return forms.flatMap((form) => [`.B ${escape(name)}`, text(form), '.br']);
}

function optionList(options: readonly OptionSpec[]): string[] {
  return options.flatMap((option) => ['.TP', `${flagsOf(option.flags)}`, text(sentence(describeOption(option)))]);
}

/** `-o, --format <format>` with the flags in bold and the value in italics. */
function flagsOf(flags: string): string {
  const { short, long } = new Option(flags);
  const value = /[<[](.+)[>\]]$/.exec(flags)?.[1];
  const names = [short, long].filter((name) => name !== undefined).map((name) => `\\fB${escape(name)}\\fR`);
  return names.join(', ') + (value === undefined ? '' : ` \\fI${escape(value)}\\fR`);
}

function environmentSection(program: ProgramSpec): string[] {
  const variables = new Map<string, string>();
  const add = ({ name, description }: EnvironmentSpec): void => {
    if (!variables.has(name)) variables.set(name, description);
  };
  for (const spec of program.commands) {
    for (const option of spec.options) {
      if (option.env !== undefined)
        add({ name: option.env, description: `${new Option(option.flags).long}: ${option.description}` });
    }
    for (const variable of spec.environment ?? []) add(variable);
  }
  for (const variable of COMMON_ENVIRONMENT) add(variable);
  return [
    ...heading('ENVIRONMENT'),
    ...[...variables].flatMap(([name, description]) => ['.TP', `.B ${escape(name)}`, text(sentence(description))]),
  ];
}

const COMMON_ENVIRONMENT: readonly EnvironmentSpec[] = [
  {
    name: 'TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_*, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE',
    description: 'the connection to Temporal, as its own command reads it',
  },
];

function exitStatus(program: ProgramSpec): string[] {
  const codes = [...new Set(program.commands.flatMap((spec) => exitCodesOf(spec)))].sort((a, b) => a - b);
  return codes.flatMap((code) => ['.TP', `.B ${code}`, text(sentence(EXIT_MEANINGS[code]))]);
}

function exampleList(examples: readonly ExampleSpec[]): string[] {
  return examples.flatMap(({ command, explanation }) => [
    '.PP',
    text(sentence(explanation)),
    '.PP',
    '.RS 4',
    '.nf',
    text(command),
    '.fi',
    '.RE',
  ]);
}

function paragraphs(texts: readonly string[]): string[] {
  return texts.flatMap((paragraph, index) => [...(index === 0 ? [] : ['.PP']), text(paragraph)]);
}

function heading(title: string): string[] {
  return [`.SH ${title}`];
}

function sentence(words: string): string {
  const first = words.charAt(0);
  // A flag or a variable keeps its case.
  const start = /^[a-z]+(?:[ ,]|$)/.test(words) ? first.toUpperCase() : first;
  return /[.!?]$/.test(words) ? start + words.slice(1) : `${start}${words.slice(1)}.`;
}

function lowerFirst(words: string): string {
  return words.charAt(0).toLowerCase() + words.slice(1);
}

function withoutStop(words: string): string {
  return words.replace(/\.$/, '');
}

/** A line of text: escaped, and never taken for a request. */
function text(words: string): string {
  const escaped = escape(words);
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped;
}

/** Characters that roff would change: the backslash, hyphens and quotes of commands, and what is not ASCII. */
function escape(words: string): string {
  return words
    .replace(/\\/g, '\\e')
    .replace(/-/g, '\\-')
    .replace(/'/g, '\\(aq')
    .replace(/`/g, '\\(ga')
    .replace(/~/g, '\\(ti')
    .replace(/\^/g, '\\(ha')
    .replace(
      /[\u0080-\u{10ffff}]/gu,
      (character) => `\\[u${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}]`,
    );
}
