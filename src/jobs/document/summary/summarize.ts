/**
 * The summary of a document from `pages.jsonl` and its bookmarks: the best sentences, the key phrases, and the best
 * sentences of each section. Pure, and in slices: a book takes about a second.
 */
import { readSentences, type PageText } from './clean.js';
import { backMatterPages, sectionsOf, sentencesOfSections, type Outline } from './outline.js';
import { keyPhrases } from './phrases.js';
import { MAX_SECTIONS_SHOWN, type SectionSummary, type Summary } from './report.js';
import type { Sliced } from './slices.js';
import { rankSentences } from './rank.js';

/** A section with fewer sentences is represented by one of them, otherwise by two. */
const SHORT_SECTION = 10;
/** One or two sentences are chosen among fewer than for the whole: a book has dozens of sections. */
const SECTION_CANDIDATES = 100;

export interface SummaryOfPages extends Summary {
  /** How many sentences there were to choose from. */
  readonly candidates: number;
  readonly language: string;
}

export function* summarizePages(pagesJsonl: string, outline: Outline, count: number): Sliced<SummaryOfPages> {
  const pages: PageText[] = [];
  for (const line of pagesJsonl.split('\n')) {
    yield;
    if (line !== '') pages.push(JSON.parse(line) as PageText);
  }
  const sections = sectionsOf(outline, pages.length);
  const text = yield* readSentences(pages, { left: backMatterPages(sections), headings: sections });
  const sentences = yield* rankSentences(text.sentences, count);
  const phrases = yield* keyPhrases(text);
  const parts = sentencesOfSections(sections, text.sentences, text.headings);
  const summaries: SectionSummary[] = [];
  for (const [index, section] of sections.entries()) {
    yield;
    const part = index < MAX_SECTIONS_SHOWN ? (parts[index] ?? []) : [];
    const best = yield* rankSentences(part, part.length < SHORT_SECTION ? 1 : 2, SECTION_CANDIDATES);
    summaries.push({ ...section, sentences: best });
  }
  return {
    sentences,
    keyPhrases: phrases,
    sections: summaries,
    candidates: text.sentences.length,
    language: text.language,
  };
}
