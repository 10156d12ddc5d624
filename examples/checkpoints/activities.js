/**
 * Stages of a long sequence. Each begins by fetching what the stage before left in shared storage and ends by putting its
 * own there. The storage is a directory here; with an object store `fetchCheckpoint` and `saveCheckpoint` are all that changes.
 */
import { copyFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { currentSession, currentWorker } from 'temporal-atlas/activity';

const inScratch = (name) => join(currentSession().scratchDirectory, name);

/** Into the session's directory: local work on a local file. Before the first stage there is nothing to fetch. */
export async function fetchCheckpoint(storage, stage) {
  if (stage === 0) await writeFile(inScratch('numbers.json'), JSON.stringify([1, 2, 3]));
  else await copyFile(join(storage, `stage-${stage}.json`), inScratch('numbers.json'));
}

/** The work of a stage, on the file that is here. Takes `ms`. */
export async function transform(factor, ms) {
  const { signal } = currentSession();
  const numbers = JSON.parse(await readFile(inScratch('numbers.json'), 'utf8'));
  await sleep(ms, undefined, { signal });
  await writeFile(inScratch('result.json'), JSON.stringify(numbers.map((number) => number * factor)));
  return { worker: currentWorker().name };
}

/** Complete or not there: a stage that is run again overwrites what it had left. */
export async function saveCheckpoint(storage, stage) {
  await mkdir(storage, { recursive: true });
  const temporary = join(storage, `stage-${stage}.json.${currentSession().fencingToken}`);
  await copyFile(inScratch('result.json'), temporary);
  await rename(temporary, join(storage, `stage-${stage}.json`));
}
