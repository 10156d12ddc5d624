/**
 * The summary against summaries by people: one sentence for each of the abstracts of SciTLDR-A (test), scored as Google's
 * rouge-score does with stemming, the best of the references counting. The data is not part of the project.
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { l as rougeL, n as rougeN } from 'js-rouge';
import { beforeAll, describe, expect, it } from 'vitest';
import { readSentences } from '../../../../src/jobs/document/summary/clean.js';
import { runAtOnce } from '../../../../src/jobs/document/summary/slices.js';
import { stem } from '../../../../src/jobs/document/summary/stem.js';
import { rankSentences } from '../../../../src/jobs/document/summary/rank.js';

const FILE = fileURLToPath(new URL('../../../../../shared/data/scitldr-a-test.jsonl', import.meta.url));
const isThere = existsSync(FILE);

interface Abstract {
  readonly source: readonly string[];
  readonly target: readonly string[];
}

/** The tokens of rouge-score: js-rouge has none of its own that stem. */
function tokenize(text: string): string[] {
  const words = text.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return words.map((word) => (word.length > 3 ? stem(word) : word));
}

interface Scores {
  readonly r1: number;
  readonly r2: number;
  readonly rl: number;
}

function scoresOf(candidate: string, references: readonly string[]): Scores {
  const best = (score: (reference: string) => number): number => Math.max(...references.map(score));
  return {
    r1: best((reference) => rougeN(candidate, reference, { tokenizer: tokenize })),
    r2: best((reference) => rougeN(candidate, reference, { n: 2, tokenizer: tokenize })),
    rl: best((reference) => rougeL(candidate, reference, { tokenizer: tokenize, segmenter: (text) => [text] })),
  };
}

/** The means over all abstracts, in points. */
function evaluate(abstracts: readonly Abstract[], choose: (abstract: Abstract) => string): Scores {
  const all = abstracts.map((abstract) => scoresOf(choose(abstract), abstract.target));
  const mean = (of: (scores: Scores) => number): number =>
    (100 * all.reduce((total, scores) => total + of(scores), 0)) / all.length;
  return { r1: mean((scores) => scores.r1), r2: mean((scores) => scores.r2), rl: mean((scores) => scores.rl) };
}

/** The way of a document: from the text of a page. */
function summaryOf({ source }: Abstract): string {
  const text = source.map((sentence) => sentence.trim()).join(' ');
  const { sentences } = runAtOnce(readSentences([{ page: 1, text }]));
  const [best] = runAtOnce(rankSentences(sentences, 1));
  if (best === undefined) throw new Error(`No sentence was found in: ${text}`);
  return best.text;
}

it('the scores are those of the definition', () => {
  const { r1, r2, rl } = scoresOf('The boats moored in the harbour', ['A boat is mooring in that old harbour']);
  // boat, moor, in, harbour: of 6 and 8 words; "moor in": of 5 and 7 pairs.
  expect(r1).toBeCloseTo((2 * (4 / 6) * (4 / 8)) / (4 / 6 + 4 / 8), 10);
  expect(r2).toBeCloseTo((2 * (1 / 5) * (1 / 7)) / (1 / 5 + 1 / 7), 10);
  expect(rl).toBeCloseTo(r1, 10);
  expect(scoresOf('harbour the in boats', ['boats in the harbour']).rl).toBeCloseTo(1 / 4, 10);
});

describe.skipIf(!isThere)(
  `summaries by people${isThere ? '' : ' (../shared/data/scitldr-a-test.jsonl is not there)'}`,
  () => {
    let abstracts: Abstract[] = [];
    let lead: Scores;

    beforeAll(async () => {
      const lines = (await readFile(FILE, 'utf8')).trimEnd().split('\n');
      abstracts = lines.map((line) => JSON.parse(line) as Abstract);
      lead = evaluate(abstracts, ({ source }) => source[0] ?? '');
    });

    it('are scored as elsewhere: the first sentence has a ROUGE-1 of 31.3', () => {
      expect(abstracts.length).toBeGreaterThan(600);
      expect(Math.abs(lead.r1 - 31.3)).toBeLessThan(0.2);
    });

    it('are met with a ROUGE-1 of 35.5 at least, and 3.5 more than the first sentence', () => {
      const ours = evaluate(abstracts, summaryOf);
      expect(ours.r1).toBeGreaterThanOrEqual(35.5);
      expect(ours.r1 - lead.r1).toBeGreaterThanOrEqual(3.5);
    });
  },
);
