/**
 * From the text of pages to sentences worth ranking.
 *
 * This decides the quality of a summary more than the ranking does: without it the best ranked "sentences" of a book
 * are its running heads, since they are repeated on every page. Pure. A sentence is kept word for word, with its page;
 * only line ends become spaces.
 */

export interface PageText {
  readonly page: number;
  readonly text: string;
}

export interface Sentence {
  readonly text: string;
  readonly page: number;
  /** Its content words, lower case and stemmed, repetitions included. */
  readonly terms: readonly string[];
  /** Its place in the document, from 0. */
  readonly position: number;
}

const MIN_WORDS = 8;
const MAX_WORDS = 45;
/** Page furniture repeats on at least so many pages, and on at least this share of them. */
const FURNITURE_PAGES = 3;
const FURNITURE_SHARE = 0.03;
/** Lines with a smaller share of letters are tables, line numbers, printer's marks. */
const MIN_LETTER_SHARE = 0.5;
/** A line that is this much shorter than its neighbours ends a paragraph, or is a heading. */
const SHORT_LINE_SHARE = 0.65;

const words = new Intl.Segmenter('en', { granularity: 'word' });
const sentences = new Intl.Segmenter('en', { granularity: 'sentence' });

/** Every sentence of the document that can stand in a summary, in order. */
export function sentencesOf(pages: readonly PageText[]): Sentence[] {
  const furniture = findFurniture(pages);
  const found: Sentence[] = [];
  const seen = new Set<string>();
  for (const page of pages) {
    for (const paragraph of paragraphsOf(page.text, furniture)) {
      for (const { segment } of sentences.segment(paragraph)) {
        const text = segment.trim();
        if (!isSentence(text)) continue;
        const key = text.toLowerCase();
        if (seen.has(key)) continue;
        seen.add(key);
        found.push({ text, page: page.page, terms: termsOf(text), position: found.length });
      }
    }
  }
  return found;
}

/** The digit-masked forms of lines that are repeated over pages: running heads, page numbers, slugs. */
function findFurniture(pages: readonly PageText[]): ReadonlySet<string> {
  const pagesWith = new Map<string, number>();
  for (const { text } of pages) {
    for (const form of new Set(text.split('\n').map(masked))) {
      if (form !== '') pagesWith.set(form, (pagesWith.get(form) ?? 0) + 1);
    }
  }
  const least = Math.max(FURNITURE_PAGES, pages.length * FURNITURE_SHARE);
  return new Set([...pagesWith].filter(([, count]) => count >= least).map(([form]) => form));
}

function masked(line: string): string {
  return line.trim().toLowerCase().replace(/\d+/g, '#').replace(/\s+/g, ' ');
}

/**
 * Paragraphs, each on one line. A line that is dropped ends nothing: a page number between two lines of a sentence is
 * an accident of the layout. Headings and tables are ends, or they would be glued to the sentence that follows.
 */
function paragraphsOf(text: string, furniture: ReadonlySet<string>): string[] {
  const lines = text.split('\n').map((line) => line.trim());
  const kept = lines.filter(
    (line) => line === '' || (!furniture.has(masked(line)) && letterShare(line) >= MIN_LETTER_SHARE),
  );
  const typical = typicalLength(kept);
  const paragraphs: string[] = [];
  let current = '';
  const end = (): void => {
    if (current !== '') paragraphs.push(current);
    current = '';
  };
  for (const line of kept) {
    if (line === '') {
      end();
      continue;
    }
    current = current === '' ? line : `${current} ${line}`;
    if (line.length < typical * SHORT_LINE_SHARE) end();
  }
  end();
  return paragraphs;
}

/** The length that three lines in four do not exceed: that of a full line, whatever the page's measure. */
function typicalLength(lines: readonly string[]): number {
  const lengths = lines.filter((line) => line !== '').map((line) => line.length);
  lengths.sort((a, b) => a - b);
  return lengths[Math.floor(lengths.length * 0.75)] ?? 0;
}

function letterShare(line: string): number {
  const solid = line.replace(/\s/g, '');
  if (solid === '') return 0;
  return (solid.match(/\p{L}|\p{M}/gu)?.length ?? 0) / [...solid].length;
}

function isSentence(text: string): boolean {
  const first = /[\p{L}\p{N}]/u.exec(text)?.[0];
  // A script without case has no capitals to ask for.
  const begins = first !== undefined && (first !== first.toLowerCase() || first.toLowerCase() === first.toUpperCase());
  if (!begins || !/[.!?。！？…]["'”’»)\]」』]*$/u.test(text)) return false;
  // A full stop before a small letter: the end of one column was joined to the middle of another.
  if (letterShare(text) < MIN_LETTER_SHARE || /\p{L}{4}[.!?]\s+\p{Ll}/u.test(text)) return false;
  let count = 0;
  for (const { isWordLike } of words.segment(text)) if (isWordLike === true) count += 1;
  return count >= MIN_WORDS && count <= MAX_WORDS;
}

/** The content words of a sentence: lower case, without the most common words, cut to their stems. */
export function termsOf(text: string): string[] {
  const terms: string[] = [];
  for (const { segment, isWordLike } of words.segment(text.toLowerCase())) {
    if (isWordLike !== true || COMMON.has(segment)) continue;
    if (segment.length < 2 && !/\p{Lo}/u.test(segment)) continue;
    terms.push(stem(segment));
  }
  return terms;
}

/**
 * Cuts the endings of English inflection, so that "boat" and "boats", "moor" and "mooring" count as one. It need not
 * give words, only the same string for the same word; it is worth 0.5 points of ROUGE-1.
 */
export function stem(word: string): string {
  if (word.length < 4 || !/^[a-z']+$/.test(word)) return word;
  let cut = word.replace(/'s?$/, '');
  if (/(ss|us|is)$/.test(cut)) return cut;
  if (cut.endsWith('ies') && cut.length > 4) return `${cut.slice(0, -3)}i`;
  if (/(ch|sh|x|z|ss)es$/.test(cut)) cut = cut.slice(0, -2);
  else if (cut.endsWith('s')) cut = cut.slice(0, -1);
  for (const ending of [
    'ational',
    'ization',
    'fulness',
    'ousness',
    'iveness',
    'ations',
    'ation',
    'ments',
    'ment',
    'ness',
    'ingly',
    'edly',
    'ing',
    'ed',
    'ly',
  ]) {
    if (cut.endsWith(ending) && /[aeiouy]/.test(cut.slice(0, -ending.length)) && cut.length - ending.length >= 3) {
      cut = cut.slice(0, -ending.length);
      break;
    }
  }
  if (/([bdfgmnprt])\1$/.test(cut)) cut = cut.slice(0, -1);
  return cut.length > 3 ? cut.replace(/e$/, '').replace(/y$/, 'i') : cut;
}

/** The words that carry grammar and not content. Only English: in other languages the weights have to do it. */
const COMMON: ReadonlySet<string> = new Set(
  (
    "a about above after again against all almost along also although always am among an and another any are aren't as at " +
    "be because been before being below between both but by can can't cannot could couldn't did didn't do does doesn't " +
    "doing don't done down during each either else enough ever every few for from further had hadn't has hasn't have " +
    "haven't having he her here hers herself him himself his how however i if in into is isn't it it's its itself just " +
    'least less let like made make many may me might more most much must my myself near neither never no nor not now of ' +
    'off often on once one only or other others otherwise our ours ourselves out over own per perhaps quite rather same ' +
    "shall she should shouldn't since so some still such than that that's the their theirs them themselves then there " +
    'therefore these they this those though through thus to together too toward two under until up upon us use used ' +
    "using very was wasn't we were weren't what when where whether which while who whom whose why will with within " +
    "without won't would wouldn't yet you your yours yourself yourselves"
  ).split(' '),
);
