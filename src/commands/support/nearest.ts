/** "Did you mean": the word of a list that is closest to a mistyped one. Imports nothing. */

/** Edit distance in which two swapped neighbours count once, the commonest slip of all. */
function distance(left: string, right: string): number {
  const width = right.length + 1;
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: width }, (_, column) => column);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column < width; column += 1) {
      const substitution = previous[column - 1]! + (left[row - 1] === right[column - 1] ? 0 : 1);
      let best = Math.min(substitution, previous[column]! + 1, current[column - 1]! + 1);
      const swapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (row > 1 && column > 1 && swapped) best = Math.min(best, beforePrevious[column - 2]! + 1);
      current.push(best);
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[width - 1]!;
}

/** The nearest candidate, or undefined where none is near enough to be what was meant. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    // A beginning of at least three letters is a better sign than any edit distance: `process` for `process-document`.
    const isPrefix = word.length >= 3 && candidate.startsWith(word);
    const candidateDistance = isPrefix ? 0 : distance(word.toLowerCase(), candidate.toLowerCase());
    if (candidateDistance < bestDistance) {
      best = candidate;
      bestDistance = candidateDistance;
    }
  }
  const limit = Math.max(1, Math.floor(word.length * 0.4));
  return bestDistance <= limit ? best : undefined;
}

/** ` Did you mean X?`, or nothing. Begins with a blank so that it can follow a sentence. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const match = nearest(word, candidates);
  return match === undefined ? '' : ` Did you mean ${match}?`;
}
