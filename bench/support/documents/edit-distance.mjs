/** How many characters of a text are wrong, against what it should say. */

/** Most pages have a handful of errors: a narrow band around the diagonal is enough for them. */
const FIRST_BAND = 32;

/** Errors (Levenshtein) and characters of the truth, with every run of white space as one space. */
export function countErrors(text, truth) {
  const [given, wanted] = [text, truth].map((each) => each.replace(/\s+/g, ' ').trim());
  return { errors: editDistance(given, wanted), characters: wanted.length };
}

export function editDistance(left, right) {
  for (let band = Math.max(FIRST_BAND, Math.abs(left.length - right.length)); ; band *= 2) {
    const distance = withinBand(left, right, band);
    // Up to the width of the band no path outside of it can be shorter.
    if (distance <= band) return distance;
  }
}

function withinBand(left, right, band) {
  const far = left.length + right.length + 1;
  let above = new Int32Array(right.length + 1).map((_, index) => (index <= band ? index : far));
  for (let i = 1; i <= left.length; i += 1) {
    const row = new Int32Array(right.length + 1).fill(far);
    const from = Math.max(1, i - band);
    const to = Math.min(right.length, i + band);
    if (i <= band) row[0] = i;
    const character = left.charCodeAt(i - 1);
    for (let j = from; j <= to; j += 1) {
      const changed = above[j - 1] + (character === right.charCodeAt(j - 1) ? 0 : 1);
      row[j] = Math.min(changed, above[j] + 1, row[j - 1] + 1);
    }
    above = row;
  }
  return above[right.length];
}
