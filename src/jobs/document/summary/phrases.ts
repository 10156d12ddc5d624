/**
 * Key phrases: what a document is about, in its own words. Pure.
 *
 * Candidates are runs of one to four content words with nothing between them. One counts by how often it comes, less how
 * often it comes as a part of longer ones, by its length, and by how many pages it is on. That is the C-value, with the
 * pages added, and with logarithms: a single word is always more frequent than a phrase, and says less. Forms of the same words count as one, and the most frequent of them is shown.
 *
 * In scripts without spaces a run of Han or Katakana words stands for a phrase; for Thai, Lao, Khmer and Burmese, whose
 * common words are not known here, there are none.
 */
import type { CleanText } from './clean.js';
import type { Sliced } from './slices.js';
import { isUnspaced, plainWord, type Lexicon } from './words.js';

const MAX_PHRASES = 10;
const MAX_PHRASE_WORDS = 4;
/** Below this nothing comes often enough to say what the text is about. */
const MIN_SENTENCES = 5;
const MIN_COUNT = 2;
const MIN_COUNT_LONG = 3;
const LONG_SENTENCES = 100;
/** The same word is in no more phrases than this, or all would be about the most frequent one. */
const MAX_PHRASES_WITH_WORD = 3;
/** A part of a chosen phrase is a phrase of its own when it comes so many times as often. */
const MAINLY_ALONE = 5;
/** Of a longer document every second, third ... sentence is counted. */
const MAX_SENTENCES = 20_000;
/** In a language whose common words are not known, only a word this long stands alone. */
const LONG_WORD = 6;
/** So many sentences are counted between two chances to do something else. */
const SLICE = 64;

const TOKEN = /([\p{L}\p{M}\p{N}]+(?:['’‑-][\p{L}\p{M}\p{N}]+)*)|[^\s\p{L}\p{M}\p{N}]+/gu;
const segmenter = new Intl.Segmenter('en', { granularity: 'word' });

interface Word {
  readonly term: string;
  readonly start: number;
  readonly end: number;
}

interface Candidate {
  readonly terms: readonly string[];
  count: number;
  pages: number;
  lastPage: number;
  /** How often the candidates that are this one and one word more come in all, and how many those are. */
  within: number;
  longer: number;
}

/** The best phrases of the document, best first. */
export function* keyPhrases({ sentences, lexicon }: CleanText): Sliced<string[]> {
  if (sentences.length < MIN_SENTENCES) return [];
  const step = Math.ceil(sentences.length / MAX_SENTENCES);
  const counted = sentences.filter((_, index) => index % step === 0);
  const candidates = new Map<string, Candidate>();
  const runs: Word[][][] = [];
  for (const [index, { text, page }] of counted.entries()) {
    if (index % SLICE === 0) yield;
    const found = runsOf(text, lexicon);
    runs.push(found);
    for (const words of phrasesIn(found)) {
      const key = keyOf(words);
      let candidate = candidates.get(key);
      if (candidate === undefined) {
        candidate = { terms: words.map(({ term }) => term), count: 0, pages: 0, lastPage: 0, within: 0, longer: 0 };
        candidates.set(key, candidate);
      }
      candidate.count += 1;
      if (candidate.lastPage !== page) candidate.pages += 1;
      candidate.lastPage = page;
    }
  }
  yield;
  const chosen = choose(candidates, counted.length, lexicon);
  const forms = new Map<string, Map<string, number>>(chosen.map((key) => [key, new Map<string, number>()]));
  for (const [index, { text }] of counted.entries()) {
    if (index % SLICE === 0) yield;
    for (const words of phrasesIn(runs[index] ?? [])) {
      const form = forms.get(keyOf(words));
      if (form === undefined) continue;
      const shown = text.slice(words[0]?.start, words.at(-1)?.end);
      form.set(shown, (form.get(shown) ?? 0) + 1);
    }
  }
  return chosen.flatMap((key) => mostFrequent(forms.get(key) ?? new Map<string, number>()) ?? []);
}

function keyOf(words: readonly Word[]): string {
  return words.map(({ term }) => term).join(' ');
}

function choose(candidates: ReadonlyMap<string, Candidate>, sentences: number, lexicon: Lexicon): string[] {
  const least = sentences > LONG_SENTENCES ? MIN_COUNT_LONG : MIN_COUNT;
  const frequent = [...candidates].filter(([, { count }]) => count >= least);
  for (const [, { terms, count }] of frequent) {
    for (const part of new Set([terms.slice(1).join(' '), terms.slice(0, -1).join(' ')])) {
      const shorter = candidates.get(part);
      if (shorter === undefined) continue;
      shorter.within += count;
      shorter.longer += 1;
    }
  }
  const score = ({ terms, count, pages, within, longer }: Candidate): number => {
    const alone = Math.max(0, count - (longer === 0 ? 0 : within / longer));
    const length = terms.length === 1 ? 1 : 1 + terms.length / 2;
    return length * Math.log2(1 + alone) * (1 + Math.log(pages));
  };
  const ranked = frequent
    .filter(([, { terms }]) => terms.length > 1 || canStandAlone(terms[0] ?? '', lexicon))
    .map(([key, candidate]) => ({ key, ...candidate, score: score(candidate) }))
    .filter((candidate) => candidate.score > 0)
    .sort((a, b) => b.score - a.score || (a.key < b.key ? -1 : 1));
  const chosen: typeof ranked = [];
  const used = new Map<string, number>();
  for (const phrase of ranked) {
    if (chosen.length >= MAX_PHRASES) break;
    if (phrase.terms.some((term) => (used.get(term) ?? 0) >= MAX_PHRASES_WITH_WORD)) continue;
    if (chosen.some((other) => isSaid(phrase, other))) continue;
    for (const term of new Set(phrase.terms)) used.set(term, (used.get(term) ?? 0) + 1);
    chosen.push(phrase);
  }
  return chosen.map(({ key }) => key);
}

/** Whether a better phrase says it already: it has all of a long one but a word, or a word that mostly comes in it. */
function isSaid(phrase: Pick<Candidate, 'terms' | 'count'>, by: Pick<Candidate, 'terms' | 'count'>): boolean {
  const shared = phrase.terms.filter((term) => by.terms.includes(term)).length;
  if (phrase.terms.length > 2) return shared >= phrase.terms.length - 1;
  return shared === phrase.terms.length && phrase.count < by.count * MAINLY_ALONE;
}

function canStandAlone(term: string, lexicon: Lexicon): boolean {
  return lexicon.language !== 'other' || isUnspaced(term) || term.length >= LONG_WORD;
}

/** All sequences of up to four words. */
function* phrasesIn(runs: readonly (readonly Word[])[]): Generator<readonly Word[]> {
  for (const run of runs) {
    for (let start = 0; start < run.length; start += 1) {
      for (let length = 1; length <= MAX_PHRASE_WORDS && start + length <= run.length; length += 1) {
        yield run.slice(start, start + length);
      }
    }
  }
}

function runsOf(text: string, lexicon: Lexicon): Word[][] {
  const runs: Word[][] = [];
  let run: Word[] = [];
  const end = (): void => {
    if (run.length > 0) runs.push(run);
    run = [];
  };
  if (isUnspaced(text)) {
    for (const { segment, index } of segmenter.segment(text)) {
      // Particles and endings are written in Hiragana; a single ideograph says little.
      const isContent = segment.length > 1 && /^[\p{sc=Han}\p{scx=Kana}]+$/u.test(segment) && /\p{L}/u.test(segment);
      if (isContent) run.push({ term: segment, start: index, end: index + segment.length });
      else end();
    }
  } else {
    for (const { 0: token, 1: word, index } of text.matchAll(TOKEN)) {
      const term = word === undefined || isBland(word) ? null : lexicon.term(word);
      if (term === null) end();
      else run.push({ term, start: index, end: index + token.length });
    }
  }
  end();
  return runs;
}

function isBland(word: string): boolean {
  return !/\p{L}\p{M}*\p{L}\p{M}*\p{L}|\p{Lu}{2}/u.test(word) || BLAND.has(plainWord(word));
}

function mostFrequent(forms: ReadonlyMap<string, number>): string | undefined {
  const sorted = [...forms].sort(([a, countA], [b, countB]) => countB - countA || (a > b ? -1 : 1));
  return sorted[0]?.[0];
}

/** English words that say something in a sentence, and nothing by themselves. */
const BLAND: ReadonlySet<string> = new Set(
  (
    'according across actually allow allows already anyone anything around back become becomes become began begin best ' +
    'better big call called came case cases certain clear clearly come comes common course day days different does easy ' +
    'effect effects end even event everyone everything exactly example examples fact far fig figure find first following ' +
    'form found full gave general get gets give given gives go goes going good got great hard high however important ' +
    'including increase indeed instead keep kind knew know known large last later lead least left little long look lot low ' +
    'mean means merely new next nothing number obvious obviously old part particular parts people person place point points ' +
    'possible problem propose proposed proposes provide provided provides put question quite ran real really reason reasons require required requires result results right ' +
    'run said saw say saying says second see seems seen set several short show shown shows side sides simple simply small someone ' +
    'something soon sort sure take taken takes tell thing things think third thought three time times today told took true try ' +
    'turn unless usually want wanted wants way ways well went word words written year years yes'
  ).split(' '),
);
