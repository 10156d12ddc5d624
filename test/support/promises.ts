/**
 * What the tests of the session's promises read: the log that the workflow `writer` leaves on its host, and the server's
 * history.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { type Client, type WorkflowHandle, WorkflowFailedError } from '@temporalio/client';
import { expect } from 'vitest';
import { findError } from '../../src/contract/errors.js';
import { eventually, sessionsOf, workersOf } from './fixtures.js';
import { historyOf } from './history.js';

/** A guard against hanging on a busy machine; what is bounded says so itself. */
export const SLOW = { timeout: 240_000 };
export const PATIENT_MS = 90_000;

export interface Line {
  readonly label: string;
  readonly what: 'begin' | 'tick' | 'end';
  readonly worker: string;
  readonly pid: number;
  readonly session: string;
  readonly token: number;
  readonly attempt: number;
  readonly atMs: number;
}

export async function linesOf(log: string): Promise<Line[]> {
  const text = await readFile(log, 'utf8').catch(() => '');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

export const labelsOf = (lines: readonly Line[], what: Line['what']): string[] =>
  lines.filter((line) => line.what === what).map(({ label }) => label);

export async function untilLine(log: string, label: string): Promise<Line> {
  return await eventually(async () => (await linesOf(log)).find((line) => line.label === label), {
    what: `a line of ${label}`,
    timeoutMs: PATIENT_MS,
  });
}

/** Until the presence of its worker tells of the session of this workflow: from then on its death is noticed by that. */
export async function untilListed(client: Client, fleet: string, { workflowId }: WorkflowHandle): Promise<void> {
  await eventually(async () => (await sessionsOf(client, fleet)).some((session) => session.workflowId === workflowId), {
    what: `the session of ${workflowId}`,
    timeoutMs: PATIENT_MS,
  });
}

/** Has the activities that write to this log, now and later, come to their end. */
export async function letGo(log: string): Promise<void> {
  await writeFile(`${log}.enough`, '');
}

export async function codeOf(result: Promise<unknown>): Promise<string> {
  const error: unknown = await result.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WorkflowFailedError);
  return findError(error)?.code ?? `not of the catalogue: ${String((error as Error).cause)}`;
}

/**
 * Until the workers of the fleet that live, or the one of this name, say that they hold no session. One whose presence is
 * only late lives, and one that has said nothing yet is waited for.
 */
export async function untilAllFree(client: Client, fleet: string, name?: string): Promise<void> {
  await eventually(
    async () => {
      const workers = (await workersOf(client, fleet)).filter(({ state }) => state !== 'lost' && state !== 'stopped');
      const named = name === undefined ? workers : workers.filter((worker) => worker.name === name);
      return (
        named.length > 0 && named.every(({ sessions, heartbeatAgeMs }) => heartbeatAgeMs !== null && sessions === 0)
      );
    },
    { what: `all slots of ${name ?? fleet} free`, timeoutMs: PATIENT_MS },
  );
}

export function measured(what: string, ms: number): void {
  console.log(`measured: ${what}: ${(ms / 1_000).toFixed(1)} s`);
}

/** When the second grant of a run came, by the server's clock. */
export async function secondGrantAtMs(client: Client, handle: WorkflowHandle): Promise<number> {
  const { grants } = await historyOf(client, handle.workflowId);
  const ids = [...new Set(grants.map(({ grantId }) => grantId))];
  expect(ids).toHaveLength(2);
  return grants.find(({ grantId }) => grantId === ids[1])!.atMs;
}
