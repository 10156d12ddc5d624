/** The completion script for zsh, from 5.1 on: one function of `_arguments` for each command. */
import { COMPLETE_WORD } from '../../complete.js';
import type { ProgramSpec } from '../../spec.js';
import { completedNodes, type CompletedNode, type CompletedOption, type Values } from './model.js';
import { quote } from './quote.js';

export function zshCompletion(program: ProgramSpec): string {
  const { name } = program;
  const nodes = completedNodes(program);
  return `#compdef ${name}
# zsh completion for ${name}, made by \`${name} completion zsh\`.

_${name}_live() {
  local -a found
  local line
  for line in "\${(@f)$("$${name}_line[1]" ${COMPLETE_WORD} $1 -- "\${(@)${name}_line[2,-1]}" 2>/dev/null)}"; do
    [[ -n $line ]] && found+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
  done
  _describe -t $1s $1 found
}

_${name}_worker() { _${name}_live worker }
_${name}_session() { _${name}_live session }

${nodes.map((node) => nodeFunction(name, node, nodes)).join('\n\n')}

_${name}() {
  # The whole line: what is below a command sees only its own words.
  local -a ${name}_line
  ${name}_line=("\${(@Q)words[1,CURRENT-1]}")
  ${functionName(name, [])}
}

if [[ $funcstack[1] == _${name} ]]; then
  _${name} "$@"
else
  compdef _${name} ${name}
fi
`;
}

function functionName(name: string, path: readonly string[]): string {
  return ['_', name, '_at', ...path.map((word) => `_${word.replace(/[^a-zA-Z0-9]/g, '_')}`)].join('');
}

function nodeFunction(name: string, node: CompletedNode, nodes: readonly CompletedNode[]): string {
  const head = `${functionName(name, node.path)}() {`;
  const options = node.options.flatMap((option) => optionSpecs(name, option));
  if (node.words.length === 0) {
    const places = node.arguments.map(({ name: label, variadic, values }, index) => {
      const place = variadic ? '*' : String(index + 1);
      // Two colons: it may be left out, and then nothing insists on it.
      return quote(`${place}:${escapeColons(label)}:${action(name, values)}`);
    });
    return [head, `  _arguments -s -S \\`, `    ${[...options, ...places].join(' \\\n    ')}`, '}'].join('\n');
  }
  const words = node.words.map(({ word, summary }) => `    ${quote(`${escapeColons(word)}:${summary}`)}`);
  const below = nodes
    .filter((other) => other.path.length === node.path.length + 1)
    .filter((other) => node.path.every((word, index) => other.path[index] === word));
  const branches = below.map((other) => `        ${other.path.at(-1)}) ${functionName(name, other.path)} ;;`);
  // \`help\` is followed by the words of a command.
  const help = node.path.length === 0 ? [`        help) ${functionName(name, [])} ;;`] : [];
  return [
    head,
    '  local curcontext="$curcontext" state line',
    '  typeset -A opt_args',
    '  local -a commands',
    '  commands=(',
    ...words,
    '  )',
    '  _arguments -C -S \\',
    `    ${[...options, quote('1: :->command'), quote('*:: :->below')].join(' \\\n    ')} && return 0`,
    '  case $state in',
    `    command) _describe -t commands command commands ;;`,
    '    below)',
    '      case $words[1] in',
    ...branches,
    ...help,
    '      esac',
    '      ;;',
    '  esac',
    '}',
  ].join('\n');
}

function optionSpecs(name: string, { short, long, description, repeatable, value }: CompletedOption): string[] {
  const names = [short, long].filter((flag) => flag !== undefined);
  const explanation = `[${description.replace(/[[\]\\:]/g, '\\$&')}]`;
  const values = value === undefined ? '' : `:${escapeColons(value.name)}:${action(name, value.values)}`;
  return names.map((flag) => {
    // The value of -o may follow at once, that of --format after a =.
    const form = value === undefined ? flag : flag.startsWith('--') ? `${flag}=` : `${flag}+`;
    const exclusive = repeatable ? '*' : names.length > 1 ? `(${names.join(' ')})` : '';
    return quote(`${exclusive}${form}${explanation}${values}`);
  });
}

function action(name: string, values: Values): string {
  switch (values.kind) {
    case 'none':
      // A blank: nothing to offer, but the name of the value is shown.
      return ' ';
    case 'file':
      return '_files';
    case 'choices':
      return `(${values.choices.join(' ')})`;
    case 'live':
      return `_${name}_${values.what}`;
  }
}

function escapeColons(text: string): string {
  return text.replace(/:/g, '\\:');
}
