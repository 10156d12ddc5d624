/** The completion script for bash, from 3.2 on. It needs nothing else installed, not even the package bash-completion. */
import { COMPLETE_WORD } from '../../complete.js';
import type { ProgramSpec } from '../../spec.js';
import { completedNodes, type CompletedNode, type Values } from './model.js';
import { quote } from './quote.js';

export function bashCompletion(program: ProgramSpec): string {
  const { name } = program;
  const nodes = completedNodes(program);
  return `# bash completion for ${name}, made by \`${name} completion bash\`.

# The words before the cursor, with its own as the last: bash has cut them at : and = as well. Sets words, cur and cut,
# the length of what bash keeps of the word at the cursor.
_${name}_split() {
  local line=\${COMP_LINE:0:COMP_POINT} piece index
  words=()
  for ((index = 0; index <= COMP_CWORD; index++)); do
    piece=\${COMP_WORDS[index]}
    if [[ $index == 0 || $line == [[:space:]]* ]]; then
      line=\${line#"\${line%%[![:space:]]*}"}
      words+=('')
    fi
    if ((index == COMP_CWORD)); then piece=$line; fi
    words[\${#words[@]}-1]+=$piece
    line=\${line#"$piece"}
  done
  cur=\${words[\${#words[@]}-1]}
  [[ $piece == [:=]* ]] && piece=\${piece:1}
  cut=$((\${#cur} - \${#piece}))
}

# Offers the lines of stdin that begin with the word at the cursor; what follows a tab is not for bash.
_${name}_offer() {
  local candidate
  while IFS= read -r candidate; do
    candidate=\${candidate%%$'\\t'*}
    if [[ -n $candidate && $candidate == "$cur"* ]]; then COMPREPLY+=("$before\${candidate:cut}"); fi
  done
}

_${name}_live() {
  _${name}_offer < <("\${words[0]}" ${COMPLETE_WORD} "$1" -- "\${words[@]:1:\${#words[@]}-2}" 2>/dev/null)
}

_${name}_files() {
  # Readline completes files itself where there is no reply.
  compopt -o default 2>/dev/null
}

_${name}_is_command() {
  case $1 in
    ${alternatives(nodes.map((node) => node.path.join('/')).filter((path) => path !== ''))}) return 0 ;;
  esac
  return 1
}

_${name}_takes_value() {
  case $1:$2 in
${cases(nodes.flatMap((node) => valueFlags(node).map(({ flag }) => `${pathOf(node)}:${flag}`)))}
  esac
  return 1
}

_${name}_value() {
  case $1:$2 in
${nodes
  .flatMap((node) => valueFlags(node).map(({ flag, values }) => ({ pattern: `${pathOf(node)}:${flag}`, values })))
  .flatMap(({ pattern, values }) => branch(name, pattern, values))
  .join('\n')}
  esac
}

_${name}_argument() {
  case $1:$2 in
${nodes.flatMap((node) => argumentBranches(name, node)).join('\n')}
  esac
}

_${name}_flags() {
  case $1 in
${nodes.map((node) => `    ${quote(pathOf(node))}) ${offer(name, flagsOf(node))} ;;`).join('\n')}
  esac
}

_${name}_words() {
  case $1 in
${nodes
  .filter((node) => node.words.length > 0)
  .map(
    (node) =>
      `    ${quote(pathOf(node))}) ${offer(
        name,
        node.words.map(({ word }) => word),
      )} ;;`,
  )
  .join('\n')}
  esac
}

_${name}() {
  local cur='' cut=0 before='' command='' position=0 pending='' plain='' word index
  local -a words
  COMPREPLY=()
  _${name}_split
  for ((index = 1; index < \${#words[@]} - 1; index++)); do
    word=\${words[index]}
    if [[ -n $pending ]]; then
      pending=''
    elif [[ -n $plain ]]; then
      position=$((position + 1))
    elif [[ $word == -- ]]; then
      plain=1
    elif [[ $word == -*=* ]]; then
      :
    elif [[ $word == -* ]]; then
      if _${name}_takes_value "$command" "$word"; then pending=$word; fi
    elif [[ $word == help && $index == 1 ]]; then
      :
    elif _${name}_is_command "\${command:+$command/}$word"; then
      command=\${command:+$command/}$word
    else
      position=$((position + 1))
    fi
  done
  if [[ -n $pending ]]; then
    _${name}_value "$command" "$pending"
  elif [[ -z $plain && $cur == --*=* ]]; then
    word=\${cur%%=*}
    cur=\${cur#*=}
    cut=$((cut - \${#word} - 1))
    # = may have been taken out of COMP_WORDBREAKS; bash then wants the whole word back.
    if ((cut < 0)); then
      cut=0
      before=$word=
    fi
    _${name}_value "$command" "$word"
  elif [[ -z $plain && $cur == -* ]]; then
    _${name}_flags "$command"
  else
    _${name}_words "$command"
    _${name}_argument "$command" "$position"
  fi
}

complete -F _${name} ${name}
`;
}

function pathOf(node: CompletedNode): string {
  return node.path.join('/');
}

function flagsOf(node: CompletedNode): string[] {
  return node.options.flatMap(({ short, long }) => (short === undefined ? [long] : [short, long]));
}

function valueFlags(node: CompletedNode): { readonly flag: string; readonly values: Values }[] {
  return node.options.flatMap(({ short, long, value }) =>
    value === undefined
      ? []
      : [short, long].filter((flag) => flag !== undefined).map((flag) => ({ flag, values: value.values })),
  );
}

function argumentBranches(name: string, node: CompletedNode): string[] {
  return node.arguments.flatMap(({ values, variadic }, position) => {
    // A pattern: every position from this one on; those before it have a branch of their own above.
    const place = variadic ? '*' : quote(String(position));
    return branch(name, quote(`${pathOf(node)}:`) + place, values, true);
  });
}

function branch(name: string, pattern: string, values: Values, isPattern = false): string[] {
  const head = `    ${isPattern ? pattern : quote(pattern)})`;
  switch (values.kind) {
    case 'none':
      // For an argument this also keeps a later pattern from taking its place.
      return [`${head} ;;`];
    case 'file':
      return [`${head} _${name}_files ;;`];
    case 'choices':
      return [`${head} ${offer(name, values.choices)} ;;`];
    case 'live':
      return [`${head} _${name}_live ${values.what} ;;`];
  }
}

function offer(name: string, words: readonly string[]): string {
  return `_${name}_offer <<<${quoteLines(words)}`;
}

/** Lines in the form $'...', which bash reads as they are. */
function quoteLines(words: readonly string[]): string {
  return `$'${words.map((word) => word.replace(/[\\']/g, '\\$&')).join('\\n')}'`;
}

function alternatives(words: readonly string[]): string {
  return words.map(quote).join(' | ');
}

function cases(words: readonly string[]): string {
  return words.map((word) => `    ${quote(word)}) return 0 ;;`).join('\n');
}
