/** Which workers a command is about: those that are named, or those that a selector chooses. Pure. */
import { AtlasError } from '../../contract/errors.js';
import type { WorkerRecord } from '../../fleet/client.js';
import type { ParsedCommand } from '../spec.js';
import { namedWorkers, wordsOf } from './fleet-access.js';
import { conditionsOf } from './list-view.js';
import { compileSelector } from './selector.js';
import { WORKER_VIEW } from './worker-view.js';

/** Throws what is wrong with the choice, before a connection is made. */
export function checkChoice(parsed: ParsedCommand): void {
  const names = wordsOf(parsed);
  const selected = isSelected(parsed);
  if (names.length > 0 && selected) throw new AtlasError('Usage', 'Name workers, or choose them with -l, not both.');
  if (names.length === 0 && !selected) throw new AtlasError('Usage', 'No worker was named, and none chosen with -l.');
  selectorOf(parsed);
}

export function chosenWorkers(parsed: ParsedCommand, workers: readonly WorkerRecord[], fleet: string): WorkerRecord[] {
  if (!isSelected(parsed)) return namedWorkers(wordsOf(parsed), workers, fleet);
  const chosen = workers.filter(selectorOf(parsed));
  if (chosen.length > 0) return chosen;
  throw new AtlasError('NotFound', `No worker of the fleet "${fleet}" meets the conditions. Nothing was changed.`, {
    next: 'Try them with `atlas workers ls -l`.',
  });
}

function isSelected({ options }: ParsedCommand): boolean {
  return conditionsOf(options['selector']).length > 0;
}

function selectorOf({ options }: ParsedCommand): (worker: WorkerRecord) => boolean {
  return compileSelector(conditionsOf(options['selector']), WORKER_VIEW.selectors);
}
