import { describe, expect, it } from 'vitest';
import { SAMPLE_PAGES } from '../../../../examples/make-sample.mjs';
import { readSentences, type PageText } from '../../../../src/jobs/document/summary/clean.js';
import { keyPhrases } from '../../../../src/jobs/document/summary/phrases.js';
import { runAtOnce } from '../../../../src/jobs/document/summary/slices.js';

const phrasesOf = (pages: readonly PageText[]): string[] => runAtOnce(keyPhrases(runAtOnce(readSentences(pages))));
const page = (...sentences: string[]): PageText[] => [{ page: 1, text: sentences.join(' ') }];

describe('key phrases', () => {
  const SAMPLE: PageText[] = SAMPLE_PAGES.map(({ paragraphs }, index) => ({
    page: index + 1,
    text: paragraphs.join('\n'),
  }));

  it('are words of the document, each phrase once, and at most ten', () => {
    const phrases = phrasesOf(SAMPLE);
    expect(phrases).toHaveLength(10);
    expect(new Set(phrases.map((phrase) => phrase.toLowerCase())).size).toBe(10);
    const text = SAMPLE.map((one) => one.text)
      .join(' ')
      .replace(/\s+/g, ' ');
    for (const phrase of phrases) expect(text).toContain(phrase);
  });

  it('say what it is about', () => {
    expect(phrasesOf(SAMPLE).join(' ')).toMatch(/harbour master/);
  });

  it('count the forms of a word as one, and show the most frequent', () => {
    const [first] = phrasesOf(
      page(
        'In the summer the tidal gates were opened by the keeper every morning at dawn.',
        'Before a storm comes the tidal gates are closed again by the same old keeper.',
        'When there is ice a tidal gate may not move at all for many a week.',
        'Nobody has ever seen all of the tidal gates stand open in the month of March.',
        'With their wheels of oak the tidal gates turn slowly and make a lot of noise.',
      ),
    );
    expect(first).toBe('tidal gates');
  });

  it('do not go over punctuation', () => {
    const phrases = phrasesOf(
      page(
        ...['mole', 'quay', 'dock', 'pier', 'wharf', 'basin'].map(
          (place) => `At the ${place} there are herring, lobster, and there is nothing else that anyone could eat.`,
        ),
      ),
    );
    expect(phrases).toContain('herring');
    for (const phrase of phrases) expect(phrase).not.toMatch(/herring.+lobster/);
  });

  it('are none where there is too little text', () => {
    expect(phrasesOf([])).toEqual([]);
    expect(phrasesOf(page('The harbour has forty berths, and each of the berths has a number of its own.'))).toEqual(
      [],
    );
  });

  it('of Japanese are runs without particles', () => {
    const phrases = phrasesOf(
      page(
        '港湾管理者は船舶の停泊場所を毎朝きちんと決めなければならない。',
        '停泊場所の料金は港湾管理者が一年に一度だけ見直すことになっている。',
        '夜に来る船舶は港湾管理者が来るまで外の防波堤で待たなければならない。',
        '冬の間は停泊場所が空いているので料金は半分になることが多い。',
        '嵐の前には港湾管理者がすべての船舶に知らせを出すことになっている。',
      ),
    );
    expect(phrases).toContain('港湾管理者');
    for (const phrase of phrases) expect(phrase).not.toMatch(/[はがのを]/);
  });
});
