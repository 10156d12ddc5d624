/** What there is to complete in a program, apart from how a shell is told. Pure. */
import { Option } from 'commander';
import type { ArgumentSpec, CommandSpec, OptionSpec, ProgramSpec } from '../../spec.js';

/** What may stand for a value. */
export type Values =
  | { readonly kind: 'none' }
  | { readonly kind: 'file' }
  | { readonly kind: 'choices'; readonly choices: readonly string[] }
  | { readonly kind: 'live'; readonly what: 'worker' | 'session' };

export interface CompletedOption {
  readonly short: string | undefined;
  readonly long: string;
  readonly description: string;
  readonly repeatable: boolean;
  /** Undefined for a switch. */
  readonly value: { readonly name: string; readonly values: Values } | undefined;
}

export interface CompletedArgument {
  readonly name: string;
  readonly variadic: boolean;
  readonly values: Values;
}

/** The program itself, a word that groups commands, or a command. */
export interface CompletedNode {
  readonly path: readonly string[];
  readonly options: readonly CompletedOption[];
  readonly arguments: readonly CompletedArgument[];
  readonly words: readonly { readonly word: string; readonly summary: string }[];
}

/** The program first, then its groups and commands, each before what is below it. */
export function completedNodes(program: ProgramSpec): CompletedNode[] {
  const paths = new Map<string, readonly string[]>([['', []]]);
  for (const { path } of program.commands) {
    for (let length = 1; length <= path.length; length += 1) {
      paths.set(path.slice(0, length).join(' '), path.slice(0, length));
    }
  }
  const all = [...paths.values()];
  return all.map((path) => {
    const spec = program.commands.find((each) => each.path.join(' ') === path.join(' '));
    const children = all.filter((other) => other.length === path.length + 1 && isBelow(other, path));
    return {
      path,
      options: [...(spec?.options ?? []).map(completedOption), HELP, ...(path.length === 0 ? [VERSION] : [])],
      arguments: (spec?.arguments ?? []).map(completedArgument),
      words: [
        ...children.map((child) => ({ word: child.at(-1)!, summary: summaryOf(program, child) })),
        ...(path.length === 0 && children.length > 0 ? [{ word: 'help', summary: 'show the help of a command' }] : []),
      ],
    };
  });
}

function isBelow(path: readonly string[], parent: readonly string[]): boolean {
  return parent.every((word, index) => path[index] === word);
}

function summaryOf(program: ProgramSpec, path: readonly string[]): string {
  const spec: CommandSpec | undefined = program.commands.find((each) => each.path.join(' ') === path.join(' '));
  return spec?.summary ?? program.groups?.[path.join(' ')] ?? '';
}

const HELP: CompletedOption = {
  ...{ short: '-h', long: '--help', description: 'show the help', repeatable: false },
  value: undefined,
};
const VERSION: CompletedOption = {
  ...{ short: '-V', long: '--version', description: 'print the version', repeatable: false },
  value: undefined,
};

function completedOption(spec: OptionSpec): CompletedOption {
  const { short, long, required, optional } = new Option(spec.flags);
  return {
    short,
    long: long!,
    description: spec.description,
    repeatable: spec.repeatable === true,
    value: required || optional ? { name: /[<[](.+)[>\]]$/.exec(spec.flags)![1]!, values: valuesOf(spec) } : undefined,
  };
}

function completedArgument(spec: ArgumentSpec): CompletedArgument {
  return { name: spec.name, variadic: spec.variadic === true, values: valuesOf(spec) };
}

function valuesOf({ choices, completes = 'none' }: ArgumentSpec | OptionSpec): Values {
  if (choices !== undefined) return { kind: 'choices', choices };
  if (completes === 'worker' || completes === 'session') return { kind: 'live', what: completes };
  return { kind: completes };
}
