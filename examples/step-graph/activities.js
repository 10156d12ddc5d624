/**
 * The steps of a graph. Each takes the results of the steps before it as arguments, so that it can run anywhere; what
 * makes it quicker on the worker that ran the others is the worker's cache, here a dictionary that takes long to unpack.
 */
import { mkdir, readFile, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { currentWorker } from 'temporal-atlas/activity';

const WORDS = { harbour: 'Hafen', tide: 'Gezeit', berth: 'Liegeplatz', book: 'Buch' };

/** The dictionary, from the cache of this worker, or unpacked into it. Any entry of the cache may be gone at any time. */
async function dictionary(unpackMs) {
  const { cacheDirectory } = currentWorker();
  const path = join(cacheDirectory, 'dictionary.json');
  try {
    const words = JSON.parse(await readFile(path, 'utf8'));
    // The daemon deletes what was not used for long.
    await utimes(path, new Date(), new Date());
    return { words, cached: true };
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  await new Promise((resolve) => setTimeout(resolve, unpackMs));
  await mkdir(cacheDirectory, { recursive: true });
  // Complete or not there at all: another step may read it at the same time.
  await writeFile(`${path}.${process.pid}`, JSON.stringify(WORDS));
  await rename(`${path}.${process.pid}`, path);
  return { words: WORDS, cached: false };
}

export async function split(text) {
  return { words: text.toLowerCase().match(/[a-z]+/g) ?? [], worker: currentWorker().name };
}

export async function translate(words, unpackMs) {
  const { words: known, cached } = await dictionary(unpackMs);
  return { words: words.map((word) => known[word] ?? word), cached, worker: currentWorker().name };
}

export async function count(words) {
  const counts = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return { counts, worker: currentWorker().name };
}

/** Takes `ms`, so that there is time to lose a worker. */
export async function report(translation, counts, ms) {
  await new Promise((resolve) => setTimeout(resolve, ms));
  return { text: translation.join(' '), distinct: Object.keys(counts).length, worker: currentWorker().name };
}
