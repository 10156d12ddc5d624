import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SAMPLE_PAGES } from '../../../../examples/make-sample.mjs';
import { readSentences, type PageText, type Sentence } from '../../../../src/jobs/document/summary/clean.js';
import { runAtOnce } from '../../../../src/jobs/document/summary/slices.js';
import { stem } from '../../../../src/jobs/document/summary/stem.js';
import { rankSentences } from '../../../../src/jobs/document/summary/rank.js';
import { languageOf, lexiconFor, wordsOf } from '../../../../src/jobs/document/summary/words.js';

/** The sample as an extraction gives it: a running head, lines of a width, a page number. */
const PAGES: PageText[] = SAMPLE_PAGES.map(({ paragraphs }, index) => ({
  page: index + 1,
  text: ['Port Ellery: notes on a harbour', ...paragraphs.map(broken), String(index + 1)].join('\n'),
}));

function broken(paragraph: string): string {
  return paragraph.replace(/(.{60,80}) /g, '$1\n');
}

const sentencesOf = (pages: readonly PageText[]): readonly Sentence[] => runAtOnce(readSentences(pages)).sentences;
const textsOf = (...pages: string[]): string[] =>
  sentencesOf(pages.map((text, index) => ({ page: index + 1, text }))).map(({ text }) => text);
const summarize = (sentences: readonly Sentence[], count: number): Sentence[] =>
  runAtOnce(rankSentences(sentences, count));
const solid = (text: string): string => text.replace(/\s+/g, '');

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
    expect(textsOf(text, `Other words.\n${text}`)).toHaveLength(1);
  });

  it('that run over a page break are left out, whatever their rest begins with', () => {
    const whole = 'The harbour master keeps the book in which all the berths are written.';
    const second = 'A boat that comes in the night waits at the outer mole until dawn.';
    const first = `${whole} The oldest berth of them all belongs to the family of Mr`;
    expect(textsOf(first, `Anderson and has been theirs since the mole was built of stone. ${second}`)).toEqual([
      whole,
      second,
    ]);
    // A page of pictures between them changes nothing.
    expect(textsOf(first, '', `Anderson and has been theirs since the mole was built of stone. ${second}`)).toEqual([
      whole,
      second,
    ]);
  });

  it('are not put together around what was dropped from between their lines', () => {
    const line = (text: string): string => `${text} and so it was that winter`;
    expect(
      textsOf(`${line('The boats stayed in the harbour')}\n17 18 19 20 21\nbecause of the ice outside of the mole.`),
    ).toEqual([]);
  });

  it.each([
    [
      'abbreviations',
      'The toll is waived for small craft, e.g. Dinghies and tenders, as shown in Fig. 3 of the rules.',
    ],
    ['initials', 'The mole was designed by J. R. Harrow, whose plans for the U.S. Navy were never carried out at all.'],
    ['names of cases', 'In the case of Harbour Board v. Trinity House the judges held that a pilot may be refused.'],
    [
      'German abbreviations',
      'Die Liegeplätze sind im Sommer, d. h. Von Juni bis August, meist schon lange vorher vergeben.',
    ],
  ])('are not ended by %s', (_, text) => {
    expect(textsOf(text)).toEqual([text]);
  });

  it.each([
    [
      'an entry of a bibliography',
      'Harrow, J., and Finch, P., The Moles of the Northern Coast, vol. 3, pp. 12 to 19, Port Ellery 1911.',
    ],
    ['an address', 'More about the rules of the harbour can be found under https://example.org/rules?page on the web.'],
    ['a footnote', '3The rules of the harbour were changed in the year after the great storm.'],
    ['a formula', 'Then the height of the tide is given by h = a + b and the depth by d = h + c here.'],
    ['a caption', 'Figure 3: The depth of the outer basin at low water in each of the twelve months.'],
    ['a row of a table', 'Berth Number Length Width Depth Owner Of The Boat Harbour Dues Paid this year.'],
    ['a half of a bracket', 'Small boats (of less than six metres pay half of the usual dues in all of the winter.'],
    [
      'a heading before a sentence',
      'Harbour Dues and Tolls The master collects the dues on the first day of each month.',
    ],
    [
      'a column that was read across',
      'The master had a great wish to It stands on a hill above the outer basin of the harbour.',
    ],
  ])('are no such thing as %s', (_, text) => {
    expect(textsOf(text)).toEqual([]);
  });

  it('lose the mark of the point that they are', () => {
    expect(textsOf('• The master of the harbour assigns a berth to every boat that comes in.')).toEqual([
      'The master of the harbour assigns a berth to every boat that comes in.',
    ]);
  });

  it('are not taken from a list of sources at the end, but from an appendix after it', () => {
    const page = (letter: string): string =>
      `The harbour has a rule ${letter} that each of the boats has to follow at night.`;
    const source = 'Harrow wrote about the moles of the northern coast in a long and learned book.';
    expect(textsOf(page('a'), page('b'), page('c'), `References\n${source}`, 'Appendix', page('d'))).toEqual(
      ['a', 'b', 'c', 'd'].map(page),
    );
    expect(textsOf(`References\n${source}`, page('a'), page('b'), page('c'))).toContain(source);
  });

  it('of running heads that change with the chapter are free of them', () => {
    const pages = Array.from({ length: 120 }, (_, index) => {
      const letter = String.fromCharCode(97 + (index % 26), 97 + Math.floor(index / 26));
      const chapter = String.fromCharCode(97 + (Math.floor(index / 3) % 26), 97 + Math.floor(index / 78));
      const head = `The chapter of this book on the matter of ${chapter} and of boats and harbours ${index + 1}`;
      return `${head}\nThe page ${letter} of this book says what nobody has ever said about boats before it.`;
    });
    const found = textsOf(...pages);
    expect(found).toHaveLength(120);
    for (const text of found) expect(text).not.toContain('chapter');
  });

  it('of a page that is one very long line are whole', () => {
    const name = (index: number): string => String.fromCharCode(97 + (index % 26), 97 + Math.floor(index / 26));
    const all = Array.from(
      { length: 600 },
      (_, index) => `The boat ${name(index)} came into Port Ellery on a day of rain.`,
    );
    const found = textsOf(all.join(' '));
    // Where the line is cut a sentence is lost, and no part of it is taken for one.
    expect(found.length).toBeGreaterThan(595);
    expect(found.length).toBeLessThan(600);
    for (const text of found) expect(all).toContain(text);
  });

  it('of scripts without spaces are joined without them', () => {
    expect(textsOf('港の管理者だけが船に停泊場所を\n与えることができる。')).toEqual([
      '港の管理者だけが船に停泊場所を与えることができる。',
    ]);
  });

  it('of Arabic are found', () => {
    const text =
      'يمنح مدير الميناء كل سفينة رصيفا عند وصولها إلى المدينة في الليل. هل تدفع السفن الصغيرة نصف الرسوم في فصل الشتاء من كل عام؟';
    expect(textsOf(text)).toHaveLength(2);
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

describe('any document', () => {
  const word = fc.constantFrom(
    ...'The harbour boat tide and of 3 master berth berth e.g. Fig. water (old new) in 1999 “quoted” v. U.S. 港の管理者 船'.split(
      ' ',
    ),
  );
  const line = fc
    .tuple(fc.array(word, { minLength: 1, maxLength: 14 }), fc.constantFrom('', '.', '!', ',', '。', '?', '.”', ':'))
    .map(([words, end]) => words.join(' ') + end);
  const sentence = fc
    .array(word, { minLength: 8, maxLength: 20 })
    .map((words) => `The harbour master ${words.join(' ')} at night.`);
  const furniture = fc.constantFrom('Port Ellery', '14773.qxd 2/10/04 Page 3', '17', '* * *', '', 'References');
  const page = fc
    .array(
      fc.oneof({ weight: 3, arbitrary: line }, { weight: 4, arbitrary: sentence }, { weight: 1, arbitrary: furniture }),
      { maxLength: 12 },
    )
    .map((lines) => lines.join('\n'));

  it('has a summary of at most so many sentences, word for word on their pages, in order and each once', () => {
    let chosen = 0;
    fc.assert(
      fc.property(fc.array(page, { maxLength: 6 }), fc.integer({ min: 1, max: 12 }), (texts, count) => {
        const pages = texts.map((text, index) => ({ page: index + 1, text }));
        const sentences = sentencesOf(pages);
        const summary = summarize(sentences, count);
        if (sentences.length > count) chosen += 1;
        expect(summary).toHaveLength(Math.min(count, sentences.length));
        expect(new Set(summary.map(({ text }) => solid(text))).size).toBe(summary.length);
        const places = summary.map(({ position }) => position);
        expect(places).toEqual(places.toSorted((a, b) => a - b));
        const onPages = summary.map((sentence) => sentence.page);
        expect(onPages).toEqual(onPages.toSorted((a, b) => a - b));
        for (const sentence of summary) expect(solid(texts[sentence.page - 1] ?? '')).toContain(solid(sentence.text));
      }),
      { numRuns: 300, seed: 7 },
    );
    // Otherwise this would say nothing.
    expect(chosen).toBeGreaterThan(20);
  });
});

describe('words', () => {
  const terms = (text: string, language: Parameters<typeof lexiconFor>[0] = 'en'): string[] => {
    const lexicon = lexiconFor(language);
    return wordsOf(text).flatMap((word) => lexicon.term(word) ?? []);
  };

  it('of English are compared by their stems, without the common ones', () => {
    expect(terms('The boats were moored; a boat is mooring.')).toEqual(['boat', 'moor', 'boat', 'moor']);
    expect(terms('It doesn’t matter')).toEqual(['matter']);
  });

  it.each(
    // From Porter's paper.
    Object.entries({
      caresses: 'caress',
      ponies: 'poni',
      ties: 'ti',
      cats: 'cat',
      feed: 'feed',
      agreed: 'agre',
      plastered: 'plaster',
      motoring: 'motor',
      sing: 'sing',
      conflated: 'conflat',
      hopping: 'hop',
      falling: 'fall',
      hissing: 'hiss',
      filing: 'file',
      happy: 'happi',
      sky: 'sky',
      relational: 'relat',
      conditional: 'condit',
      rational: 'ration',
      digitizer: 'digit',
      vietnamization: 'vietnam',
      triplicate: 'triplic',
      hopefulness: 'hope',
      electrical: 'electr',
      revival: 'reviv',
      adjustment: 'adjust',
      adoption: 'adopt',
      effective: 'effect',
      probate: 'probat',
      cease: 'ceas',
      controlling: 'control',
      roll: 'roll',
    }),
  )('%s has the stem %s', (word, wanted) => {
    expect(stem(word)).toBe(wanted);
  });

  it('of other languages are compared as they are, without the common ones where those are known', () => {
    expect(terms('Die Schiffe liegen in den Häfen', 'de')).toEqual(['schiffe', 'liegen', 'häfen']);
    expect(terms('Te navibus portus magistri', 'other')).toEqual(['navibus', 'portus', 'magistri']);
  });

  it.each([
    ['en', 'The master of the harbour is the one who says where a boat may be moored and for how long.'],
    ['de', 'Der Hafenmeister ist derjenige, der sagt, wo ein Boot festmachen darf und für wie lange das gilt.'],
    ['fr', 'Le maître du port est celui qui dit où un bateau peut être amarré et pour combien de temps.'],
    ['es', 'El capitán del puerto es el que dice dónde puede amarrar un barco y por cuánto tiempo lo hace.'],
    ['other', 'Kapitan portu decyduje, gdzie statek zacumuje, oraz ustala jak długo pozostanie przy nabrzeżu.'],
  ])('show that a text is in %s', (language, text) => {
    expect(languageOf(wordsOf(text))).toBe(language);
  });
});
