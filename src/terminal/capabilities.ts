/** The capabilities of a worker as text, in which those that are withdrawn are told apart without colour. */
import type { WorkerRecord } from '../fleet/records.js';

/** `gpu!,ocr`: gpu is withdrawn. */
export function capabilitiesText({ capabilities, withdrawn }: WorkerRecord): string {
  const isWithdrawn = new Set(withdrawn.map(({ capability }) => capability));
  return capabilities.map((name) => (isWithdrawn.has(name) ? `${name}!` : name)).join(',') || '-';
}

/** Why the worker does not serve all that it could, though it may be ready. */
export function withdrawnText({ withdrawn }: WorkerRecord): string {
  return withdrawn.map(({ capability, reason }) => `${capability}: ${reason}`).join('; ');
}
