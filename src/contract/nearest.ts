/** The name that was probably meant, for messages about unknown names. Imports nothing. */

/** A third of the letters may be wrong, and two in a short name; more is another word. */
const MAX_WRONG_SHARE = 1 / 3;
const MAX_WRONG_SHORT = 2;

/** The candidate nearest to a name, or `undefined` when none is near. The first wins a tie. */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  let nearest: string | undefined;
  let nearestDistance = Math.max(MAX_WRONG_SHORT, Math.floor(name.length * MAX_WRONG_SHARE)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    // A short candidate of which every letter is wrong is not near.
    if (distance < nearestDistance && distance < candidate.length) {
      nearest = candidate;
      nearestDistance = distance;
    }
  }
  return nearest;
}

/** Levenshtein: how many letters must be inserted, removed or changed. */
function editDistance(from: string, to: string): number {
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 1; row <= from.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const changed = previous[column - 1]! + (from[row - 1] === to[column - 1] ? 0 : 1);
      current.push(Math.min(changed, previous[column]! + 1, current[column - 1]! + 1));
    }
    previous = current;
  }
  return previous[to.length]!;
}
