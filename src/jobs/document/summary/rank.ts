/**
 * The extractive summary: which sentences of a document say most of it. Needs no network and no model. Pure.
 *
 * The candidates nearest the centroid of the document are ranked by LexRank (a sentence counts as much as the sentences
 * that resemble it), by their nearness to the centroid, and a little by how early they stand; then they are taken one by
 * one, each weighed against its likeness to those taken already (MMR). On the SciTLDR abstracts this order of things
 * beat every summariser that could be had as a package.
 */
import type { Sentence } from './clean.js';
import type { Sliced } from './slices.js';

/** LexRank compares each candidate with each other: 300 of them cost 0.1 s, the 5,600 of a book 27 s. */
const MAX_CANDIDATES = 300;
const LEXRANK_DAMPING = 0.85;
const LEXRANK_ROUNDS = 50;
const LEXRANK_DONE = 1e-6;
/** Below this likeness two sentences share only chance words. */
const MIN_SIMILARITY = 0.05;
const WEIGHTS = { lexrank: 0.4, centroid: 0.45, position: 0.2, leaning: 0.2 };
/** In an abstract what stands first says most. In a text much longer than this the place of a sentence says little. */
const POSITION_SENTENCES = 20;
/** How much the score counts against novelty when a sentence is taken. */
const MMR_LAMBDA = 0.7;
/** So many sentences are weighed between two chances to do something else. */
const SLICE = 256;

/** A sparse vector of length 1: the numbers of its terms, and their weights. */
interface Vector {
  readonly terms: Int32Array;
  readonly weights: Float64Array;
}

/** The best sentences, in the order in which they stand in the document; all there are when there are fewer. */
export function* rankSentences(
  sentences: readonly Sentence[],
  count: number,
  maxCandidates = MAX_CANDIDATES,
): Sliced<Sentence[]> {
  if (sentences.length <= count) return [...sentences];
  const { vectors, size } = yield* weigh(sentences);
  const nearness = yield* nearnessToCentroid(vectors, size);
  const candidates = [...nearness.keys()]
    .sort((a, b) => (nearness[b] ?? 0) - (nearness[a] ?? 0) || a - b)
    .slice(0, maxCandidates)
    .sort((a, b) => a - b);
  yield;
  const similarity = yield* similarities(
    candidates.flatMap((index) => vectors[index] ?? []),
    size,
  );
  const central = normalized(yield* lexRank(similarity));
  const near = normalized(candidates.map((index) => nearness[index] ?? 0));
  const position = WEIGHTS.position * Math.min(1, POSITION_SENTENCES / sentences.length);
  const scores = candidates.map((index, candidate) => {
    const early = 1 - index / sentences.length;
    const leaning = sentences[index]?.leans === true ? WEIGHTS.leaning : 0;
    const rank = WEIGHTS.lexrank * (central[candidate] ?? 0) + WEIGHTS.centroid * (near[candidate] ?? 0);
    return rank + position * early - leaning;
  });
  yield;
  return choose(scores, similarity, count)
    .map((candidate) => candidates[candidate] ?? 0)
    .sort((a, b) => a - b)
    .flatMap((index) => sentences[index] ?? []);
}

/** TF-IDF, with a sentence as the unit: a word that is in every sentence distinguishes none. */
function* weigh(sentences: readonly Sentence[]): Sliced<{ vectors: Vector[]; size: number }> {
  const numbers = new Map<string, number>();
  const inSentences: number[] = [];
  const counts: Map<number, number>[] = [];
  for (const [index, { terms }] of sentences.entries()) {
    if (index % SLICE === 0) yield;
    const count = new Map<number, number>();
    for (const term of terms) {
      let number = numbers.get(term);
      if (number === undefined) {
        number = numbers.size;
        numbers.set(term, number);
      }
      count.set(number, (count.get(number) ?? 0) + 1);
    }
    for (const number of count.keys()) inSentences[number] = (inSentences[number] ?? 0) + 1;
    counts.push(count);
  }
  const vectors: Vector[] = [];
  for (const [index, count] of counts.entries()) {
    if (index % SLICE === 0) yield;
    const terms = Int32Array.from(count.keys());
    const weights = Float64Array.from(count, ([number, frequency]) => {
      const rarity = Math.log((1 + sentences.length) / (1 + (inSentences[number] ?? 0))) + 1;
      return (1 + Math.log(frequency)) * rarity;
    });
    const length = Math.hypot(...weights);
    vectors.push({ terms, weights: length === 0 ? weights : weights.map((weight) => weight / length) });
  }
  return { vectors, size: numbers.size };
}

function* nearnessToCentroid(vectors: readonly Vector[], size: number): Sliced<Float64Array> {
  const centroid = new Float64Array(size);
  for (const [index, vector] of vectors.entries()) {
    if (index % SLICE === 0) yield;
    vector.terms.forEach((term, i) => (centroid[term] = (centroid[term] ?? 0) + (vector.weights[i] ?? 0)));
  }
  const length = Math.sqrt(centroid.reduce((total, weight) => total + weight * weight, 0));
  const nearness = new Float64Array(vectors.length);
  if (length === 0) return nearness;
  for (const [index, vector] of vectors.entries()) {
    if (index % SLICE === 0) yield;
    nearness[index] = dot(vector, centroid) / length;
  }
  return nearness;
}

function dot({ terms, weights }: Vector, dense: Float64Array): number {
  let total = 0;
  for (let i = 0; i < terms.length; i += 1) total += (weights[i] ?? 0) * (dense[terms[i] ?? 0] ?? 0);
  return total;
}

function* similarities(vectors: readonly Vector[], size: number): Sliced<Float64Array[]> {
  const rows = vectors.map(() => new Float64Array(vectors.length));
  const dense = new Float64Array(size);
  for (const [i, vector] of vectors.entries()) {
    yield;
    vector.terms.forEach((term, k) => (dense[term] = vector.weights[k] ?? 0));
    for (let j = i + 1; j < vectors.length; j += 1) {
      const other = vectors[j];
      const row = rows[i];
      const mirror = rows[j];
      if (other === undefined || row === undefined || mirror === undefined) continue;
      row[j] = dot(other, dense);
      mirror[i] = row[j] ?? 0;
    }
    for (const term of vector.terms) dense[term] = 0;
  }
  return rows;
}

/** The stationary weight of each sentence when a reader keeps going from one to another that resembles it. */
function* lexRank(similarity: readonly Float64Array[]): Sliced<number[]> {
  const n = similarity.length;
  const links = similarity.map((row) => {
    const kept = row.map((value) => (value >= MIN_SIMILARITY ? value : 0));
    const total = kept.reduce((all, value) => all + value, 0);
    return total === 0 ? null : kept.map((value) => value / total);
  });
  let rank = new Float64Array(n).fill(1 / n);
  for (let round = 0; round < LEXRANK_ROUNDS; round += 1) {
    yield;
    const next = new Float64Array(n).fill((1 - LEXRANK_DAMPING) / n);
    links.forEach((row, i) => {
      const weight = LEXRANK_DAMPING * (rank[i] ?? 0);
      for (let j = 0; j < n; j += 1) next[j] = (next[j] ?? 0) + weight * (row === null ? 1 / n : (row[j] ?? 0));
    });
    const moved = next.reduce((all, value, i) => all + Math.abs(value - (rank[i] ?? 0)), 0);
    rank = next;
    if (moved < LEXRANK_DONE) break;
  }
  return [...rank];
}

function normalized(values: readonly number[]): number[] {
  const most = values.reduce((top, value) => Math.max(top, value), 0);
  return values.map((value) => (most === 0 ? 0 : value / most));
}

/** Maximal marginal relevance. The likeness to what is taken is kept up to date, not computed anew at each step. */
function choose(scores: readonly number[], similarity: readonly Float64Array[], count: number): number[] {
  const taken: number[] = [];
  const likeness = new Float64Array(scores.length);
  const open = new Set(scores.keys());
  while (taken.length < count && open.size > 0) {
    let best = -1;
    let bestValue = Number.NEGATIVE_INFINITY;
    for (const candidate of open) {
      const value = MMR_LAMBDA * (scores[candidate] ?? 0) - (1 - MMR_LAMBDA) * (likeness[candidate] ?? 0);
      if (value > bestValue) {
        best = candidate;
        bestValue = value;
      }
    }
    taken.push(best);
    open.delete(best);
    for (const candidate of open) {
      likeness[candidate] = Math.max(likeness[candidate] ?? 0, similarity[best]?.[candidate] ?? 0);
    }
  }
  return taken;
}
