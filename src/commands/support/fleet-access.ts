/** A fleet to look at and to change, with a connection of its own and every call bounded. */
import type { Client } from '@temporalio/client';
import { AtlasError } from '../../contract/errors.js';
import { checkName } from '../../contract/names.js';
import { FleetClient, type WorkerRecord } from '../../fleet/client.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { fleetOf, openConnection } from './connection.js';
import { didYouMean } from './did-you-mean.js';

/** What the commands that change a fleet need of it; tests give one of their own. */
export type Fleet = Pick<
  FleetClient,
  'fleet' | 'look' | 'listWorkers' | 'listSessions' | 'cordon' | 'uncordon' | 'drain' | 'release' | 'forget'
>;

/** Calls that set no deadline of their own, such as those of a look. */
const LOOK_DEADLINE_MS = 15_000;

export interface FleetAccess {
  readonly fleet: FleetClient;
  readonly client: Client;
}

export async function withFleet<T>(
  context: CommandContext,
  parsed: ParsedCommand,
  use: (access: FleetAccess) => Promise<T>,
): Promise<T> {
  const connection = await openConnection(context.env, parsed);
  try {
    const { client } = connection;
    return await use({ client, fleet: new FleetClient(client, { fleet: fleetOf(parsed) }) });
  } finally {
    await connection.close();
  }
}

/** Bounds the calls of a task. */
export function bounded<T>(client: Client, task: () => Promise<T>): Promise<T> {
  return client.withDeadline(Date.now() + LOOK_DEADLINE_MS, task);
}

/** The words of a variadic argument, each once. */
export function wordsOf({ args }: ParsedCommand, index = 0): string[] {
  const words = args[index];
  return [...new Set(Array.isArray(words) ? (words as string[]) : [])];
}

/**
 * The workers that were named, in that order. By their whole names only: a beginning that fits another worker by chance
 * must not take that one out of service.
 */
export function namedWorkers(
  names: readonly string[],
  workers: readonly WorkerRecord[],
  fleet: string,
): WorkerRecord[] {
  const found = names.map((name) => workers.find((worker) => worker.name === checkName('worker', name)));
  const unknown = names.filter((_, index) => found[index] === undefined);
  if (unknown.length > 0) {
    const known = workers.map(({ name }) => name);
    const hint = unknown.length === 1 ? didYouMean(unknown[0]!, known) : '';
    throw new AtlasError(
      'NotFound',
      `The fleet "${fleet}" has no worker ${unknown.join(', ')}.${hint}${names.length > 1 ? ' Nothing was changed.' : ''}`,
      { next: 'See `atlas workers ls`.' },
    );
  }
  return found.filter((worker) => worker !== undefined);
}
