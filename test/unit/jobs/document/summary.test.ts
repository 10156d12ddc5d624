import { describe, expect, it } from 'vitest';
import { SAMPLE_PAGES } from '../../../../examples/make-sample.mjs';
import { sentencesOf, stem, termsOf, type PageText } from '../../../../src/jobs/document/clean.js';
import { summarize } from '../../../../src/jobs/document/summary.js';

/** The sample as an extraction gives it: a running head, lines of a width, a page number. */
const PAGES: PageText[] = SAMPLE_PAGES.map(({ paragraphs }, index) => ({
  page: index + 1,
  text: ['Port Ellery: notes on a harbour', ...paragraphs.map(broken), String(index + 1)].join('\n'),
}));

function broken(paragraph: string): string {
  return paragraph.replace(/(.{60,80}) /g, '$1\n');
}

describe('sentences', () => {
  const sentences = sentencesOf(PAGES);

  it('are word for word on their page, but for line ends', () => {
    expect(sentences.length).toBeGreaterThan(60);
    for (const { text, page } of sentences) {
      expect(PAGES[page - 1]?.text.replace(/\s+/g, ' ')).toContain(text);
    }
  });

  it('have no page furniture, headings or page numbers in them', () => {
    for (const { text } of sentences) expect(text).not.toMatch(/notes on a harbour|The Night Watch|^\d/);
    expect(sentences[0]?.text).toBe(
      'Port Ellery is a harbour of forty berths on a coast that has few safe places to land.',
    );
  });

  it('leave out line numbers, tables, slugs, fragments and what is too long', () => {
    const page = (number: number): PageText => ({
      page: number,
      text: [
        `14773_01.qxd 2/10/04 3:51 PM Page ${number}`,
        '1',
        '2',
        `Sentence ${'abcdefghij'[number] ?? ''} on this page is long enough to be one of them.`,
        '12.5 17.25 1999 44 3.1',
        'and this began on the page before, so that it is only a half.',
        'This one has no full stop although it has enough words for a sentence',
        `It ${'really '.repeat(60)}goes on.`,
      ].join('\n'),
    });
    const found = sentencesOf([1, 2, 3, 4].map(page)).map(({ text }) => text);
    expect(found).toEqual(
      ['b', 'c', 'd', 'e'].map((letter) => `Sentence ${letter} on this page is long enough to be one of them.`),
    );
  });

  it('are found in scripts without capitals', () => {
    const text = '港の管理者だけが船に停泊場所を与えることができる。潮の満ち引きがこの港の一日の仕事を決めている。';
    expect(sentencesOf([{ page: 1, text }])).toHaveLength(2);
  });

  it('come once', () => {
    const text = 'This very sentence stands on more than one page of the file.';
    expect(
      sentencesOf([
        { page: 1, text },
        { page: 2, text: `Other words.\n${text}` },
      ]),
    ).toHaveLength(1);
  });
});

describe('a summary', () => {
  const sentences = sentencesOf(PAGES);

  it('has the wanted number of different sentences, in the order of the document', () => {
    const summary = summarize(sentences, 6);
    expect(new Set(summary.map(({ text }) => text)).size).toBe(6);
    expect(summary.map(({ position }) => position)).toEqual(
      summary.map(({ position }) => position).toSorted((a, b) => a - b),
    );
  });

  it('says what the document is about', () => {
    const text = summarize(sentences, 6)
      .map((sentence) => sentence.text)
      .join(' ');
    expect(text).toMatch(/harbour/i);
    expect(text).toMatch(/berth/i);
    expect(text).toMatch(/vessel/i);
  });

  it('is the same each time', () => {
    expect(summarize(sentences, 4)).toEqual(summarize(sentencesOf(PAGES), 4));
  });

  it('has what there is when that is less', () => {
    expect(summarize(sentences.slice(0, 2), 6)).toHaveLength(2);
    expect(summarize([], 6)).toEqual([]);
  });

  it('does not say the same twice', () => {
    const same = [
      ['berth', 'book', 'line', 'pilot'],
      ['berth', 'book', 'line', 'pilot'],
      ['berth', 'crane', 'book', 'tide'],
      ['pilot', 'tide', 'line', 'crane'],
    ].map((terms, position) => ({ text: `Sentence ${position}`, page: 1, position, terms }));
    const taken = summarize(same, 2).map(({ position }) => position);
    expect(taken).not.toEqual([0, 1]);
  });
});

describe('terms', () => {
  it('are stems without common words', () => {
    expect(termsOf('The boats were moored; a boat is mooring.')).toEqual(['boat', 'moor', 'boat', 'moor']);
    expect(stem('ponies')).toBe(stem('pony'));
    expect(stem('stopped')).toBe(stem('stop'));
    expect(stem('glass')).toBe('glass');
  });
});
