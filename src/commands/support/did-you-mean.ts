/** "Did you mean", as the end of a sentence about an unknown word. */
import { nearestName } from '../../contract/nearest.js';

/** A beginning this long is a better sign than any number of wrong letters: `process` for `process-document`. */
const MIN_PREFIX_LENGTH = 3;

/** ` Did you mean X?`, or nothing. Begins with a blank so that it can follow a sentence. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const begun = word.length >= MIN_PREFIX_LENGTH ? candidates.find((name) => name.startsWith(word)) : undefined;
  const match = begun ?? nearestName(word, candidates);
  return match === undefined ? '' : ` Did you mean ${match}?`;
}
