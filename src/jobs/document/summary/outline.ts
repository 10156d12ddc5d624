/**
 * The outline of a document: the bookmarks that its author put into the PDF, and the sections that they make. Pure.
 */
import { isBackMatter, type Heading, type Sentence } from './clean.js';

export interface OutlineEntry {
  readonly title: string;
  /** 1 for the outermost. */
  readonly level: number;
  /** From 1, or null where it leads to no page of this document. */
  readonly page: number | null;
}

export interface Outline {
  readonly entries: readonly OutlineEntry[];
  /** There are more than were read. */
  readonly truncated?: boolean;
  /** Why it could not be read. */
  readonly error?: string;
}

export interface Section extends Heading {
  readonly lastPage: number;
}

const MAX_TITLE_CHARACTERS = 200;

/** A title on one line, without what acts on a terminal, and of bounded length. */
export function cleanTitle(raw: string): string {
  const plain = raw
    .replace(/\s+/gu, ' ')
    .replace(/[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}]/gu, '')
    .trim();
  const characters = [...plain];
  if (characters.length <= MAX_TITLE_CHARACTERS) return plain;
  return `${characters.slice(0, MAX_TITLE_CHARACTERS - 1).join('')}…`;
}

/**
 * The sections of the outermost level that has two: a document whose only bookmark of the first level is its title is
 * divided by the second.
 */
export function sectionsOf({ entries }: Outline, pages: number): Section[] {
  const placed = entries.flatMap(({ title, level, page }) =>
    page === null || page > pages ? [] : [{ title, level, page }],
  );
  const levels = [...new Set(placed.map(({ level }) => level))].sort((a, b) => a - b);
  const level = levels.find((one) => placed.filter((entry) => entry.level === one).length > 1);
  if (level === undefined) return [];
  const starts = placed.filter((entry) => entry.level === level).sort((a, b) => a.page - b.page);
  return starts.map(({ title, page }, index) => {
    const next = starts[index + 1]?.page ?? pages + 1;
    return { title, firstPage: page, lastPage: Math.max(page, next - 1) };
  });
}

/** The pages of sections that list things and say nothing: sources, an index. */
export function backMatterPages(sections: readonly Section[]): Set<number> {
  const found = new Set<number>();
  for (const { title, firstPage, lastPage } of sections) {
    if (!isBackMatter(title)) continue;
    for (let page = firstPage; page <= lastPage; page += 1) found.add(page);
  }
  return found;
}

/**
 * The sentences of each section. Where one begins in the middle of a page, its title on that page divides it.
 *
 * @param headings The titles that were found, with the number of sentences before each.
 */
export function sentencesOfSections(
  sections: readonly Section[],
  sentences: readonly Sentence[],
  headings: ReadonlyMap<Heading, number>,
): Sentence[][] {
  let next = 0;
  const starts = sections.map((section) => {
    const atPage = sentences.findIndex(({ page }) => page >= section.firstPage);
    // Never before the one that comes before it, whatever was taken for a heading.
    next = Math.max(next, headings.get(section) ?? (atPage === -1 ? sentences.length : atPage));
    return next;
  });
  return sections.map(({ firstPage, lastPage }, index) => {
    const until = starts[index + 1] ?? sentences.length;
    // The end of a section may be on the page on which the next begins.
    return sentences.slice(starts[index], until).filter(({ page }) => page >= firstPage && page <= lastPage + 1);
  });
}
