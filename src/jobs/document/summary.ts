/**
 * The extractive summary: which sentences of a document say most of it. Needs no network and no model. Pure.
 *
 * The candidates nearest the centroid of the document are ranked by LexRank (a sentence counts as much as the sentences
 * that resemble it), by their nearness to the centroid, and a little by how early they stand; then they are taken one by
 * one, each weighed against its likeness to those taken already (MMR). On the SciTLDR abstracts this order of things
 * beat every summariser that could be had as a package.
 */
import type { Sentence } from './clean.js';

/** LexRank compares each candidate with each other: 300 of them cost 0.2 s, the 5,600 of a book 27 s. */
const MAX_CANDIDATES = 300;
const LEXRANK_DAMPING = 0.85;
const LEXRANK_ROUNDS = 50;
const LEXRANK_DONE = 1e-6;
/** Below this likeness two sentences share only chance words. */
const MIN_SIMILARITY = 0.05;
const WEIGHTS = { lexrank: 0.4, centroid: 0.45, position: 0.15 };
/** How much the score counts against novelty when a sentence is taken. */
const MMR_LAMBDA = 0.7;

type Vector = ReadonlyMap<string, number>;

/** The best sentences, in the order in which they stand in the document; all there are when there are fewer. */
export function summarize(sentences: readonly Sentence[], count: number): Sentence[] {
  if (sentences.length <= count) return [...sentences];
  const vectors = weigh(sentences);
  const centroid = sum(vectors);
  const nearness = vectors.map((vector) => cosine(vector, centroid));
  const candidates = nearness
    .map((near, index) => ({ near, index }))
    .sort((a, b) => b.near - a.near || a.index - b.index)
    .slice(0, MAX_CANDIDATES)
    .map(({ index }) => index)
    .sort((a, b) => a - b);
  const similarity = similarities(candidates.map((index) => vectors[index] ?? new Map<string, number>()));
  const central = normalized(lexRank(similarity));
  const near = normalized(candidates.map((index) => nearness[index] ?? 0));
  const scores = candidates.map((index, candidate) => {
    const early = 1 / (1 + (10 * (sentences[index]?.position ?? 0)) / sentences.length);
    return (
      WEIGHTS.lexrank * (central[candidate] ?? 0) + WEIGHTS.centroid * (near[candidate] ?? 0) + WEIGHTS.position * early
    );
  });
  return choose(scores, similarity, count)
    .map((candidate) => candidates[candidate] ?? 0)
    .sort((a, b) => a - b)
    .flatMap((index) => sentences[index] ?? []);
}

/** TF-IDF, with a sentence as the unit: a word that is in every sentence distinguishes none. */
function weigh(sentences: readonly Sentence[]): Vector[] {
  const inSentences = new Map<string, number>();
  for (const { terms } of sentences) {
    for (const term of new Set(terms)) inSentences.set(term, (inSentences.get(term) ?? 0) + 1);
  }
  return sentences.map(({ terms }) => {
    const vector = new Map<string, number>();
    for (const term of terms) vector.set(term, (vector.get(term) ?? 0) + 1);
    for (const [term, frequency] of vector) {
      const rarity = Math.log((1 + sentences.length) / (1 + (inSentences.get(term) ?? 0))) + 1;
      vector.set(term, (1 + Math.log(frequency)) * rarity);
    }
    const length = Math.sqrt([...vector.values()].reduce((total, weight) => total + weight * weight, 0));
    if (length > 0) for (const [term, weight] of vector) vector.set(term, weight / length);
    return vector;
  });
}

function sum(vectors: readonly Vector[]): Vector {
  const total = new Map<string, number>();
  for (const vector of vectors) for (const [term, weight] of vector) total.set(term, (total.get(term) ?? 0) + weight);
  return total;
}

/** Of a unit vector with any other. */
function cosine(unit: Vector, other: Vector): number {
  const length = Math.sqrt([...other.values()].reduce((total, weight) => total + weight * weight, 0));
  return length === 0 ? 0 : dot(unit, other) / length;
}

function dot(a: Vector, b: Vector): number {
  let total = 0;
  for (const [term, weight] of a) total += weight * (b.get(term) ?? 0);
  return total;
}

function similarities(vectors: readonly Vector[]): Float64Array[] {
  const rows = vectors.map(() => new Float64Array(vectors.length));
  vectors.forEach((a, i) => {
    for (let j = i + 1; j < vectors.length; j += 1) {
      const value = dot(a, vectors[j] ?? new Map<string, number>());
      const row = rows[i];
      const mirror = rows[j];
      if (row !== undefined) row[j] = value;
      if (mirror !== undefined) mirror[i] = value;
    }
  });
  return rows;
}

/** The stationary weight of each sentence when a reader keeps going from one to another that resembles it. */
function lexRank(similarity: readonly Float64Array[]): number[] {
  const n = similarity.length;
  const links = similarity.map((row) => {
    const kept = row.map((value) => (value >= MIN_SIMILARITY ? value : 0));
    const total = kept.reduce((all, value) => all + value, 0);
    return total === 0 ? null : kept.map((value) => value / total);
  });
  let rank = new Float64Array(n).fill(1 / n);
  for (let round = 0; round < LEXRANK_ROUNDS; round += 1) {
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
