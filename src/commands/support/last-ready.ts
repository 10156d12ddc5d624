/** Whether taking workers out of service leaves sessions and workflows with nobody. Pure. */
import { planWorker } from '../../fleet/drain-plan.js';
import type { WorkerRecord } from '../../fleet/client.js';

/** Sentences for whoever is about to do it; none where enough other workers are ready. */
export function lastReadyWarnings(
  chosen: readonly WorkerRecord[],
  workers: readonly WorkerRecord[],
  fleet: string,
): string[] {
  const names = new Set(chosen.map(({ name }) => name));
  const isReady = (worker: WorkerRecord): boolean => planWorker(worker).ready;
  const leaving = chosen.filter(isReady);
  const staying = workers.filter((worker) => isReady(worker) && !names.has(worker.name));
  if (leaving.length === 0) return [];
  const last = leaving.map(({ name }) => name).join(', ');
  const are = leaving.length === 1 ? `${last} is the last ready worker` : `${last} are the last ready workers`;
  if (staying.length === 0) {
    return [
      `${are} of the fleet "${fleet}": new sessions wait, and fail when their acquire timeout is over, until another is ready.`,
    ];
  }
  const capabilities = new Set(leaving.flatMap((worker) => worker.capabilities));
  return [...capabilities]
    .filter((capability) => !staying.some((worker) => worker.capabilities.includes(capability)))
    .sort()
    .map((capability) => {
      const having = leaving.filter((worker) => worker.capabilities.includes(capability)).map(({ name }) => name);
      const verb = having.length === 1 ? 'is the last ready worker' : 'are the last ready workers';
      return `${having.join(', ')} ${verb} with the capability "${capability}": sessions that ask for it wait until another is ready.`;
    });
}
