/**
 * From the text of pages to sentences worth ranking.
 *
 * This decides the quality of a summary more than the ranking does: without it the best ranked "sentences" of a book
 * are its running heads, since they are repeated on every page. Pure. A sentence is kept word for word, with the page
 * on which it stands whole: white space is all that may differ. One that runs over a page break, or around something
 * that was dropped, is left out, since nobody could find it again.
 */
import type { Sliced } from './slices.js';
import { isUnspaced, languageOf, lexiconFor, wordsOf, type Language, type Lexicon } from './words.js';

export interface PageText {
  readonly page: number;
  readonly text: string;
}

export interface Sentence {
  readonly text: string;
  readonly page: number;
  /** Its content words as they are compared, repetitions included. */
  readonly terms: readonly string[];
  /** Its place in the document, from 0. */
  readonly position: number;
  /** Whether it refers to what stands before it: "But this was not so." */
  readonly leans?: boolean;
}

export interface CleanText {
  readonly language: Language;
  readonly lexicon: Lexicon;
  readonly sentences: readonly Sentence[];
  /** How many sentences stand before each of the wanted headings that was found. */
  readonly headings: ReadonlyMap<Heading, number>;
}

/** A heading that is looked for. */
export interface Heading {
  readonly title: string;
  readonly firstPage: number;
}

export interface ReadingOptions {
  /** Pages that are left out, such as those of the index. */
  readonly left?: ReadonlySet<number>;
  readonly headings?: readonly Heading[];
}

const MIN_WORDS = 8;
const MAX_WORDS = 45;
/** Before anything is counted: a page may have two million characters. */
const MAX_CHARACTERS = 1_000;
/** Scripts without spaces are cut into more and shorter words. */
const MAX_UNSPACED_WORDS = 80;
/** What is no longer than this and has no end is a heading or a label, and not the first half of a sentence. */
const MAX_LABEL_WORDS = 3;
/** Of the parts between spaces, so many have to be words of two letters or more: formulas and tables are not. */
const MIN_WORD_SHARE = 0.7;
/** Above this share of words with a capital it is a row of a table, a title or a list of names. */
const MAX_CAPITAL_SHARE = 0.6;
/** Page furniture repeats on at least so many pages, and on at least this share of them; at the edges on so many. */
const FURNITURE_PAGES = 3;
const FURNITURE_SHARE = 0.03;
const EDGE_LINES = 3;
/** Lines with a smaller share of letters are tables, line numbers, printer's marks. */
const MIN_LETTER_SHARE = 0.5;
/** A line that is this much shorter than its neighbours ends a paragraph, or is a heading. */
const SHORT_LINE_SHARE = 0.65;
/** The language shows in so many words. */
const LANGUAGE_SAMPLE = 20_000;
/** Beyond this the first part of the document has to do: it is longer than 30 books, and memory is bounded. */
const MAX_SENTENCES = 150_000;
const MAX_PARAGRAPH = 20_000;
/** So many lines or sentences are read between two chances to do something else. */
const SLICE = 100;
/** Lists of sources and registers come this late in a document that has so many pages. */
const BACK_MATTER_SHARE = 0.6;
const BACK_MATTER_PAGES = 5;

/** Stands for what was dropped from the middle of a paragraph. The text of pages has no control characters. */
const GAP = '\u0000';
const TERMINAL = /[.!?。！？．…؟۔।]["'”’»)\]」』]*$/u;
/** Lines that begin like this are points of a list. A hyphen is not among them, as it may be a dash. */
const POINT = /^(?:[•‣▪●■□◦*·–—]\s|\(?(?:\d{1,2}|[ivx]{1,4}|[a-z])[.)]\s)/u;
/** The mark of a point of a list or of a footnote; OCR sees bullets as 0, o or e. */
const LEADING_MARK =
  /^(?:[•‣▪●■□◦*·–—]\s*|\(?(?:\d{1,2}|[ivx]{1,4}|[a-z])[.)]\s+|\p{Lu}\.\s+(?=(?:The|There|This|These|In|An?|If|It|For|To|When|While|As|We|On) )|[0oe©]\s+(?=\p{Lu}))/u;
/** The longest abbreviation and what may be around it. */
const MAX_END = 12;
const ABBREVIATION =
  /(?:^|[\s([“"'])(?:\p{Lu}|e\.\s?g|i\.\s?e|cf|ca|al|approx|art|bzw|ch|co|corp|d\.\s?h|dr|ed|eds|eq|eqs|etc|fig|figs|inc|jr|ltd|mr|mrs|ms|no|nos|nr|op|p|pp|prof|rev|sec|sect|sr|st|tab|u\.\s?a|usw|v|vgl|viz|vol|vols|vs|z\.\s?B|abb|bd|hrsg|mme|\p{Lu}(?:\.\p{Lu})+)\.\s*$/iu;
/** A heading that stands before the sentence without anything between: words with capitals, then one that begins. */
const HEADED =
  /^(?:\p{Lu}[\p{L}\p{N}’'-]* |(?:of|and|the|for|in|on|to|a|\p{N}+) ){2,}(?:The|To|This|These|In|An?|We|It|There|For|If|When|As|On) /u;
/** "Figure 3: What is shown", which says nothing without the picture. */
const CAPTION =
  /^(?:fig(?:ure|ura)?|tab(?:le|elle|leau|la)?|abb(?:ildung)?|exhibit|chart|図|表)\.?\s*\d+(?:[.-]\d+)*\s*[.:]/iu;
const FORMULA = /[=<>≤≥±×÷∈∉⊂⊆∪∩∀∃∑∏∫√∞≈≡∼⇒⇔→←↦∘∅]/gu;
/** A sentence with more of these is a formula with words in it. */
const MAX_FORMULA_SIGNS = 1;
/** A word that begins a sentence, after one that does not end one: a column was read across a picture. */
const MISJOINED = /\p{Ll} (?:The|This|These|That|It|They|He|She|We|An?|When|While|However|But|And|If)(?: \p{Ll}|$)/u;
const REFERENCE =
  /\b(?:pp?\.\s?\d|vol\.\s?\d|ibid|et al\.,|doi:|arxiv|isbn|issn|supra|infra|F\.\s?(?:2d|3d|Supp)|U\.S\.C?\.?\s§?\s?\d)|§|https?:|www\.|@/iu;
const LEANING =
  /^["“'‘(]?(?:and|but|so|or|yet|nor|then|thus|hence|this|these|those|that|such|it|its|he|she|they|his|her|their|here|there|however|therefore|moreover|furthermore|instead|indeed|likewise|similarly|otherwise|still|also|again|for example|for instance|in addition|in contrast|as a result|of course)\b(?! (?:paper|article|work|book|report|study|chapter|thesis|document|survey|guide|manual|essay)\b)/i;
const BACK_MATTER =
  /^(?:[\divx]+[.:]?\s+)?(?:references|bibliography|works cited|literature cited|notes|endnotes|index|glossary|(?:table of )?contents|list of (?:figures|tables)|literatur(?:verzeichnis)?|stichwortverzeichnis|symbolverzeichnis|abkürzungsverzeichnis|abbildungsverzeichnis|inhaltsverzeichnis|bildquellen|sachregister|bibliographie|références|sommaire|table des matières|bibliograf[íi]a|referencias|índice|bibliografia|indice|参考文献|目次|目录|索引)$/iu;
const MAIN_MATTER = /^(?:appendix|appendices|anhang|annexe?|anexo|appendice|附录|付録)\b/iu;

const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' });

/** Whether a section of this title lists things and says nothing: sources, notes, an index, the contents. */
export function isBackMatter(title: string): boolean {
  return BACK_MATTER.test(title.trim());
}

/** Every sentence of the document that can stand in a summary, in order. */
export function* readSentences(pages: readonly PageText[], options: ReadingOptions = {}): Sliced<CleanText> {
  const lines: Line[][] = [];
  for (const { text } of pages) {
    lines.push(yield* linesOf(text));
  }
  const furniture = yield* findFurniture(lines);
  const lexicon = lexiconFor(languageOf(sampleWords(pages)));
  const found: Sentence[] = [];
  const headings = new Map<Heading, number>();
  const seen = new Set<string>();
  let inBackMatter = false;
  // Whether the last paragraph goes on after the page: then the next page begins with the rest of a sentence.
  let isOpen = false;
  for (const [index, { page }] of pages.entries()) {
    yield;
    const wanted = options.headings?.filter((heading) => heading.firstPage === page) ?? [];
    const isLate = pages.length >= BACK_MATTER_PAGES && index + 1 > pages.length * BACK_MATTER_SHARE;
    const paragraphs = paragraphsOf(lines[index] ?? [], furniture);
    for (const [place, paragraph] of paragraphs.entries()) {
      if (isLate && isBackMatter(paragraph)) inBackMatter = true;
      else if (MAIN_MATTER.test(paragraph)) inBackMatter = false;
      for (const heading of wanted) {
        if (!headings.has(heading) && isHeading(paragraph, heading.title)) headings.set(heading, found.length);
      }
      const sentences = yield* sentencesIn(paragraph);
      if (place === 0 && isOpen) sentences.shift();
      if (inBackMatter || options.left?.has(page) === true) continue;
      for (const [number, raw] of sentences.entries()) {
        if (number % SLICE === 0) yield;
        const sentence = raw.replace(LEADING_MARK, '');
        if (!isSentence(sentence)) continue;
        const key = sentence.toLowerCase().replace(/\s+/g, '');
        if (seen.has(key) || found.length >= MAX_SENTENCES) continue;
        seen.add(key);
        const terms = wordsOf(sentence).flatMap((word) => lexicon.term(word) ?? []);
        const leans = lexicon.language === 'en' && LEANING.test(sentence);
        found.push({ text: sentence, page, terms, position: found.length, ...(leans ? { leans } : {}) });
      }
    }
    const last = paragraphs.at(-1);
    if (last !== undefined) isOpen = !TERMINAL.test(last) && wordsOf(last.slice(0, 200)).length > MAX_LABEL_WORDS;
  }
  return { language: lexicon.language, lexicon, sentences: found, headings };
}

/** Whether a paragraph is, or begins with, the title of a section; numbers and marks aside. */
function isHeading(paragraph: string, title: string): boolean {
  const wanted = lettersOf(title);
  return wanted.length > 2 && lettersOf(paragraph.slice(0, title.length * 2 + 20)).startsWith(wanted);
}

function lettersOf(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{M}]+/gu, '');
}

/** A line of a page, and what tells whether it is text. */
interface Line {
  readonly text: string;
  /** Its digit-masked form, which is the same on each page for a running head or a page number. */
  readonly form: string;
  readonly hasLetters: boolean;
}

function* linesOf(text: string): Sliced<Line[]> {
  const lines: Line[] = [];
  for (const raw of text.split('\n')) {
    if (lines.length % SLICE === 0) yield;
    const line = raw.trim();
    lines.push({ text: line, form: masked(line), hasLetters: letterShare(line) >= MIN_LETTER_SHARE });
  }
  return lines;
}

/** The forms of lines that are repeated over pages: running heads, page numbers, slugs. */
function* findFurniture(pages: readonly (readonly Line[])[]): Sliced<ReadonlySet<string>> {
  const pagesWith = new Map<string, number>();
  const pagesWithAtEdge = new Map<string, number>();
  const count = (counts: Map<string, number>, lines: readonly Line[]): void => {
    for (const form of new Set(lines.map((line) => line.form))) counts.set(form, (counts.get(form) ?? 0) + 1);
  };
  for (const lines of pages) {
    yield;
    const there = lines.filter((line) => line.text !== '');
    count(pagesWith, there);
    // Line numbers and marks that stand outside of everything do not make what they surround less of an edge.
    const solid = there.filter((line) => line.hasLetters);
    count(pagesWithAtEdge, [...solid.slice(0, EDGE_LINES), ...solid.slice(-EDGE_LINES)]);
  }
  const least = Math.max(FURNITURE_PAGES, pages.length * FURNITURE_SHARE);
  const found = new Set<string>();
  for (const [form, times] of pagesWith) if (times >= least) found.add(form);
  for (const [form, times] of pagesWithAtEdge) if (times >= FURNITURE_PAGES) found.add(form);
  return found;
}

/** A line without what changes from page to page: white space and numbers, also the Roman ones of a preface. */
function masked(line: string): string {
  return line
    .trim()
    .toLowerCase()
    .replace(/\d+|^[ivxlc]+(?=\s|$)|(?<=\s)[ivxlc]+$/g, '#')
    .replace(/\s+/g, ' ');
}

/** Words from all over the document. */
function sampleWords(pages: readonly PageText[]): string[] {
  const step = Math.max(1, Math.floor(pages.length / 40));
  const sample: string[] = [];
  for (let i = 0; i < pages.length && sample.length < LANGUAGE_SAMPLE; i += step) {
    for (const word of wordsOf((pages[i]?.text ?? '').slice(0, 5_000))) if (/\p{L}/u.test(word)) sample.push(word);
  }
  return sample;
}

/** Paragraphs, each on one line. Headings and tables are ends, or they would be glued to the sentence that follows. */
function paragraphsOf(lines: readonly Line[], furniture: ReadonlySet<string>): string[] {
  const isKept = (line: Line): boolean => line.hasLetters && !furniture.has(line.form);
  const typical = typicalLength(lines.filter(isKept).map((line) => line.text));
  const paragraphs: string[] = [];
  let current = '';
  const end = (): void => {
    const paragraph = current.endsWith(GAP) ? current.slice(0, -1) : current;
    if (paragraph !== '') paragraphs.push(paragraph);
    current = '';
  };
  for (const { text: line, ...about } of lines) {
    if (line === '') {
      end();
      continue;
    }
    if (!about.hasLetters || furniture.has(about.form)) {
      if (current !== '' && !current.endsWith(GAP)) current += GAP;
      continue;
    }
    // "(2)" in the middle of a sentence may come first on a line; a point of a list follows an end.
    if (current !== '' && POINT.test(line) && /[.:;!?]$/.test(current)) end();
    current = current === '' ? line : joined(current, line);
    if (line.length < typical * SHORT_LINE_SHARE) end();
  }
  end();
  return paragraphs;
}

/** The length that three lines in four do not exceed: that of a full line, whatever the page's measure. */
function typicalLength(lines: readonly string[]): number {
  const lengths = lines.map((line) => line.length);
  lengths.sort((a, b) => a - b);
  return lengths[Math.floor(lengths.length * 0.75)] ?? 0;
}

/** Two lines as one. Between scripts without spaces there is none. */
function joined(before: string, after: string): string {
  const isTight = isUnspaced(before.slice(-1)) && isUnspaced(after.slice(0, 1));
  return isTight || before.endsWith(GAP) ? before + after : `${before} ${after}`;
}

/**
 * The sentences of a paragraph. The segmenter does not know abbreviations, and ends one inside of an address. Each of
 * its steps takes the longer the longer the text is, so a very long paragraph is cut, at the cost of a sentence.
 */
function* sentencesIn(paragraph: string): Sliced<string[]> {
  const found: string[] = [];
  for (let from = 0; from < paragraph.length; from += MAX_PARAGRAPH) {
    yield;
    const isCut = from + MAX_PARAGRAPH < paragraph.length;
    let current = from === 0 ? '' : GAP;
    for (const { segment } of segmenter.segment(paragraph.slice(from, from + MAX_PARAGRAPH))) {
      current += segment;
      const end = current.slice(-MAX_END);
      const isWhole = /\s$/.test(end) || /[。！？．]["'”’」』）)]*$/u.test(end);
      if (!isWhole || ABBREVIATION.test(end)) continue;
      found.push(current.trim());
      current = '';
    }
    if (current !== '') found.push(isCut ? current + GAP : current.trim());
  }
  return found;
}

function letterShare(line: string): number {
  const solid = line.replace(/\s+/g, '').length;
  return solid === 0 ? 0 : line.replace(/[^\p{L}\p{M}]+/gu, '').length / solid;
}

function isSentence(text: string): boolean {
  if (text.length > MAX_CHARACTERS || text.includes(GAP) || !TERMINAL.test(text)) return false;
  const first = /^["'“‘«„»‹¿¡「『]*([\p{L}\p{N}])/u.exec(text)?.[1];
  // A script without case has no capitals to ask for.
  const begins = first !== undefined && (first !== first.toLowerCase() || first.toLowerCase() === first.toUpperCase());
  // A number before a capital is the mark of a footnote.
  if (!begins || /^\d+\p{Lu}/u.test(text)) return false;
  // A full stop before a small letter: the end of one column was joined to the middle of another.
  if (letterShare(text) < MIN_LETTER_SHARE || /\p{L}{4}[.!?]\s+\p{Ll}/u.test(text) || MISJOINED.test(text))
    return false;
  if (HEADED.test(text) || CAPTION.test(text) || (text.match(FORMULA)?.length ?? 0) > MAX_FORMULA_SIGNS) return false;
  return isBalanced(text) && !REFERENCE.test(text) && hasWords(text);
}

/** What is opened is closed: otherwise a part is missing. */
function isBalanced(text: string): boolean {
  const count = (pattern: RegExp): number => text.match(pattern)?.length ?? 0;
  if (count(/[([（]/gu) !== count(/[)\]）]/gu) || count(/"/g) % 2 !== 0) return false;
  // In German the mark that opens elsewhere closes.
  return count(/[“”„]/gu) % 2 === 0 && count(/[「『]/gu) === count(/[」』]/gu);
}

function hasWords(text: string): boolean {
  const words = wordsOf(text);
  if (isUnspaced(text)) return words.length >= MIN_WORDS && words.length <= MAX_UNSPACED_WORDS;
  const real = words.filter((word) => /\p{L}\p{M}*\p{L}/u.test(word));
  if (real.length < MIN_WORDS || words.length > MAX_WORDS) return false;
  if (real.length < text.split(/\s+/).length * MIN_WORD_SHARE) return false;
  return real.filter((word) => /^\p{Lu}/u.test(word)).length <= real.length * MAX_CAPITAL_SHARE;
}
