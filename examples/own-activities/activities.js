/**
 * Three activities that share a file on one worker's disk. Every exported function is an activity.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { currentSession, currentWorker, progress } from 'temporal-atlas/activity';

const WORDS = ['harbour', 'crane', 'berth', 'tide', 'pilot', 'lantern', 'anchor'];

/** The scratch directory belongs to this session alone, and is deleted when the session ends. */
const inScratch = (name) => join(currentSession().scratchDirectory, name);

/** Stands for the download of something large: the file stays on this worker. */
export async function fetchText(lineCount) {
  const lines = Array.from({ length: lineCount }, (_, line) =>
    WORDS.map((_word, place) => WORDS[(line * (place + 1)) % WORDS.length]).join(' '),
  );
  await writeFile(inScratch('text.txt'), `${lines.join('\n')}\n`);
  return { lines: lines.length };
}

/** Reads the file that fetchText left here. Takes `seconds`, so that there is something to watch. */
export async function countWords(seconds) {
  const { signal } = currentSession();
  const text = await readFile(inScratch('text.txt'), 'utf8');
  for (let second = 0; second < seconds; second += 1) {
    progress({ done: second, total: seconds, unit: 'seconds' });
    // The signal aborts when the workflow is cancelled or the session is lost.
    await sleep(1_000, undefined, { signal });
  }
  const counts = {};
  for (const word of text.split(/\s+/).filter(Boolean)) counts[word] = (counts[word] ?? 0) + 1;
  await writeFile(inScratch('counts.json'), JSON.stringify(counts));
}

/** Only the small result goes through Temporal. */
export async function topWords(count) {
  const counts = JSON.parse(await readFile(inScratch('counts.json'), 'utf8'));
  const words = Object.entries(counts)
    .sort(([wordA, a], [wordB, b]) => b - a || wordA.localeCompare(wordB))
    .slice(0, count)
    .map(([word, times]) => `${word} ${times}`);
  return { words, worker: currentWorker().name };
}
