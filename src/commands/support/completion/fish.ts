/** The completion script for fish, from 3.0 on. */
import { COMPLETE_WORD } from '../../complete.js';
import type { ProgramSpec } from '../../spec.js';
import { completedNodes, type CompletedNode, type CompletedOption, type Values } from './model.js';

export function fishCompletion(program: ProgramSpec): string {
  const { name } = program;
  const nodes = completedNodes(program);
  const paths = nodes.map((node) => node.path.join('/')).filter((path) => path !== '');
  return `# fish completion for ${name}, made by \`${name} completion fish\`.

# The command that the line has so far, such as workers/ls, and how many arguments stand after it.
function __${name}_parse
  set -l tokens (commandline -opc)
  set -l path ''
  set -l position 0
  set -l pending 0
  set -l plain 0
  set -l first 1
  for token in $tokens[2..-1]
    set -l is_first $first
    set first 0
    if test $pending = 1
      set pending 0
    else if test $plain = 1
      set position (math $position + 1)
    else if test "$token" = --
      set plain 1
    else if string match -q -- '-*=*' $token
      continue
    else if string match -q -- '-*' $token
      if contains -- $token (__${name}_value_flags $path)
        set pending 1
      end
    else if test $is_first = 1 -a "$token" = help
      continue
    else
      set -l below $token
      test -n "$path"; and set below $path/$token
      if contains -- $below ${paths.map(quoteFish).join(' ')}
        set path $below
      else
        set position (math $position + 1)
      end
    end
  end
  printf '%s\\n' "$path" $position
end

function __${name}_value_flags
  switch "$argv[1]"
${nodes
  .filter((node) => valueFlags(node).length > 0)
  .map((node) => `    case ${quoteFish(node.path.join('/'))}\n      printf '%s\\n' ${valueFlags(node).join(' ')}`)
  .join('\n')}
  end
end

# __${name}_at COMMAND [POSITION [more]]: more stands for every position from that one on.
function __${name}_at
  set -l state (__${name}_parse)
  test "$state[1]" = "$argv[1]"; or return 1
  switch (count $argv)
    case 1
      return 0
    case 2
      test $state[2] -eq $argv[2]
    case '*'
      test $state[2] -ge $argv[2]
  end
end

function __${name}_live
  set -l tokens (commandline -opc)
  $tokens[1] ${COMPLETE_WORD} $argv[1] -- $tokens[2..-1] 2>/dev/null
end

complete -c ${name} -f
${nodes.flatMap((node) => nodeLines(name, node)).join('\n')}
`;
}

function valueFlags(node: CompletedNode): string[] {
  return node.options
    .filter(({ value }) => value !== undefined)
    .flatMap(({ short, long }) => (short === undefined ? [long] : [short, long]));
}

function nodeLines(name: string, node: CompletedNode): string[] {
  const path = node.path.join('/');
  const at = (...more: string[]): string =>
    `complete -c ${name} -n ${quoteFish([`__${name}_at`, quoteFish(path), ...more].join(' '))}`;
  return [
    ...node.words.map(({ word, summary }) => `${at()} -a ${quoteFish(word)} -d ${quoteFish(summary)}`),
    ...node.options.map((option) => `${at()} ${optionFlags(name, option)}`),
    ...node.arguments.flatMap(({ values, variadic }, position) => {
      const offered = offer(name, values);
      return offered === undefined ? [] : [`${at(String(position), ...(variadic ? ['more'] : []))} ${offered}`];
    }),
  ];
}

function optionFlags(name: string, { short, long, description, value }: CompletedOption): string {
  const words = [
    ...(short === undefined ? [] : [`-s ${short.slice(1)}`]),
    `-l ${long.slice(2)}`,
    `-d ${quoteFish(description)}`,
  ];
  if (value !== undefined) words.push('-r', offer(name, value.values) ?? '-f');
  return words.join(' ');
}

function offer(name: string, values: Values): string | undefined {
  switch (values.kind) {
    case 'none':
      return undefined;
    case 'file':
      return '-F';
    case 'choices':
      return `-f -a ${quoteFish(values.choices.join(' '))}`;
    case 'live':
      return `-f -a ${quoteFish(`(__${name}_live ${values.what})`)}`;
  }
}

function quoteFish(word: string): string {
  return `'${word.replace(/[\\']/g, '\\$&')}'`;
}
