/**
 * What the commands that list a fleet have in common: connect, list, print, and a word on what to do when there is
 * nothing to list.
 */
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { printRecords, type RecordFormat, type RecordView } from '../../terminal/records.js';
import { FleetClient } from '../../fleet/client.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { fleetOf, openConnection } from './connection.js';

export interface FleetList<Row extends object> {
  readonly view: RecordView<Row>;
  readonly list: (fleet: FleetClient) => Promise<readonly Row[]>;
  /** Said on stderr when the list is empty. */
  readonly whenEmpty: (fleet: string) => { readonly message: string; readonly next: string };
}

/** Lists with a connection of its own. */
export async function listFleet<Row extends object>(
  context: CommandContext,
  parsed: ParsedCommand,
  list: FleetList<Row>,
): Promise<ExitCode> {
  const connection = await openConnection(context.env, parsed);
  try {
    return await printList(context, parsed, list, new FleetClient(connection.client, { fleet: fleetOf(parsed) }));
  } finally {
    await connection.close();
  }
}

/** Lists from a given client. */
export async function printList<Row extends object>(
  context: CommandContext,
  parsed: ParsedCommand,
  { view, list, whenEmpty }: FleetList<Row>,
  client: FleetClient,
): Promise<ExitCode> {
  const rows = await list(client);
  printRecords(rows, view, {
    format: parsed.options['format'] as RecordFormat,
    stdout: context.stdout,
    env: context.env,
  });
  if (rows.length === 0) {
    const { message, next } = whenEmpty(fleetOf(parsed));
    context.stderr.write(`${message}\n next: ${next}\n`);
  }
  return EXIT.done;
}
