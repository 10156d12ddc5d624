/** The few things of roff that the man pages need. Pure; imports nothing. */

export function heading(title: string): string[] {
  return [`.SH ${title}`];
}

export function paragraphs(texts: readonly string[]): string[] {
  return texts.flatMap((paragraph, index) => [...(index === 0 ? [] : ['.PP']), prose(paragraph)]);
}

/** An item of a list of terms. `term` is roff already. */
export function item(term: string, ...lines: readonly string[]): string[] {
  return ['.TP', term, ...lines.flatMap((line, index) => [...(index === 0 ? [] : ['.br']), prose(line)])];
}

export function bold(words: string): string {
  return `\\fB${escape(words)}\\fR`;
}

export function italic(words: string): string {
  return `\\fI${escape(words)}\\fR`;
}

/** Lines as they are, indented. */
export function verbatim(lines: string): string[] {
  return ['.PP', '.RS 4', '.nf', ...lines.split('\n').map(text), '.fi', '.RE'];
}

/** References to other pages, such as `atlasd(8)`. */
export function references(pages: readonly string[]): string[] {
  return pages.map((page, index) => {
    const [name, number] = page.split(/[()]/);
    return `.BR ${escape(name!)} (${number})${index < pages.length - 1 ? ',' : ''}`;
  });
}

export function sentence(words: string): string {
  const first = words.charAt(0);
  // A flag or a variable keeps its case.
  const start = /^[a-z]+(?:[ ,]|$)/.test(words) ? first.toUpperCase() : first;
  return /[.!?]$/.test(words) ? start + words.slice(1) : `${start}${words.slice(1)}.`;
}

const MAX_SOURCE_BYTES = 80;
const MAX_WHOLE_WORD = 40;

/** Running text, in source lines of the length that roff's own checkers ask for. */
export function prose(words: string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of words.split(' ')) {
    const escaped = escape(word);
    // A list such as one of networks is longer than a line, and may be broken after its commas.
    const breakable = word.length > MAX_WHOLE_WORD ? escaped.replace(/,(?=.)/g, ',\\:') : escaped;
    if (line !== '' && Buffer.byteLength(line) + 1 + breakable.length > MAX_SOURCE_BYTES) {
      lines.push(line);
      line = breakable;
    } else {
      line += (line === '' ? '' : ' ') + breakable;
    }
  }
  return [...lines, line].map(guarded).join('\n');
}

/** A line of text: escaped, and never taken for a request. */
export function text(words: string): string {
  return guarded(escape(words));
}

function guarded(line: string): string {
  return /^[.']/.test(line) ? `\\&${line}` : line;
}

/** Characters that roff would change: the backslash, hyphens and quotes of commands, and what is not ASCII. */
export function escape(words: string): string {
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
