/**
 * What the commands that list a fleet have in common: connect, list, select, sort, print once or watch, and a word on
 * what to do when there is nothing to list.
 */
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import type { FleetClient } from '../../fleet/client.js';
import { printRecords, type RecordFormat } from '../../terminal/records.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { fleetOf } from './connection.js';
import { withFleet } from './fleet-access.js';
import { conditionsOf, type ListView } from './list-view.js';
import { compileSelector } from './selector.js';
import { type SortKey, sortRecords } from './sort.js';
import { type Selected, watchList } from './watch-list.js';

/** A look at a large fleet takes seconds; one that takes longer than this has no answer. */
const LOOK_DEADLINE_MS = 30_000;
/** Of one record with everything about it. */
export const SHOW_DEADLINE_MS = 30_000;
/** Of a list that is watched: it is looked at again anyway. */
const WATCH_DEADLINE_MS = 10_000;

export interface Listed<Row> {
  readonly rows: readonly Row[];
  /** How many there are in all, before any option of the command has left some out. */
  readonly known: number;
  /** Something about the list that its rows do not say. For stderr. */
  readonly note?: string;
}

export interface FleetList<Row extends object> {
  readonly view: ListView<Row>;
  readonly list: (fleet: FleetClient, parsed: ParsedCommand) => Promise<Listed<Row>>;
  /** Said on stderr when there is nothing. */
  readonly whenEmpty: (fleet: string) => { readonly message: string; readonly next: string };
  /** What a record is called: `worker`. */
  readonly noun: string;
}

/** A call of the server with a bound, which Ctrl-C ends too. */
export type Bounded = <T>(deadlineMs: number, task: () => Promise<T>) => Promise<T>;

/** Looks at a fleet, with a connection of its own. */
export async function lookAtFleet<T>(
  context: CommandContext,
  parsed: ParsedCommand,
  look: (fleet: FleetClient, bounded: Bounded) => Promise<T>,
): Promise<T> {
  return await withFleet(context, parsed, async ({ client, fleet }) =>
    look(fleet, async (deadlineMs, task) => {
      try {
        // A signal for each call: the client adds a listener for every call and never removes it.
        return await client.withDeadline(Date.now() + deadlineMs, () =>
          client.withAbortSignal(AbortSignal.any([context.signal]), task),
        );
      } catch (error) {
        context.signal.throwIfAborted();
        throw error;
      }
    }),
  );
}

/** Lists with a connection of its own. */
export async function listFleet<Row extends object>(
  context: CommandContext,
  parsed: ParsedCommand,
  list: FleetList<Row>,
): Promise<ExitCode> {
  checkOptions(parsed, list.view);
  return await lookAtFleet(context, parsed, async (fleet, bounded) =>
    printList(context, parsed, list, (deadlineMs) => bounded(deadlineMs, () => list.list(fleet, parsed))),
  );
}

/** Before the connection is made: a mistake on the command line is told at once. */
function checkOptions<Row extends object>({ options, given }: ParsedCommand, view: ListView<Row>): void {
  compileSelector(conditionsOf(options['selector']), view.selectors);
  sortRecords([], options['sortBy'] as SortKey | undefined, view.sortFields);
  if (given.has('interval') && options['watch'] !== true) {
    throw new AtlasError('Usage', '--interval says how often --watch looks; it has no meaning without --watch.');
  }
}

/** Prints what `look` gives, once or again and again. */
export async function printList<Row extends object>(
  context: CommandContext,
  parsed: ParsedCommand,
  { view, whenEmpty, noun }: Omit<FleetList<Row>, 'list'>,
  look: (deadlineMs: number) => Promise<Listed<Row>>,
): Promise<ExitCode> {
  const { options } = parsed;
  const matches = compileSelector(conditionsOf(options['selector']), view.selectors);
  const select = ({ rows, known, note }: Listed<Row>): Selected<Row> => {
    const matching = sortRecords(rows.filter(matches), options['sortBy'] as SortKey | undefined, view.sortFields);
    const shown = matching.slice(0, (options['limit'] as number | undefined) ?? matching.length);
    const cut = matching.length - shown.length;
    return {
      rows: shown,
      notes: [
        ...(note === undefined ? [] : [note]),
        ...(cut > 0 ? [`${cut} more ${plural(noun, cut)} not shown, by --limit.`] : []),
        ...(shown.length > 0 ? [] : [known > 0 ? noMatch(noun, known) : emptyText(whenEmpty(fleetOf(parsed)))]),
      ],
    };
  };
  const format = options['format'] as RecordFormat;
  const headers = options['headers'] !== false;
  if (options['watch'] === true) {
    return await watchList({
      context,
      view,
      format,
      headers,
      title: `fleet ${fleetOf(parsed)}`,
      intervalMs: options['interval'] as number,
      look: async () => select(await look(WATCH_DEADLINE_MS)),
    });
  }
  const { rows, notes } = select(await look(LOOK_DEADLINE_MS));
  printRecords(rows, view, { format, stdout: context.stdout, env: context.env, headers });
  for (const note of notes) context.stderr.write(`${note}\n`);
  return EXIT.done;
}

function noMatch(noun: string, known: number): string {
  return known === 1 ? `The only ${noun} there is does not match.` : `None of ${known} ${plural(noun, known)} matches.`;
}

function plural(noun: string, amount: number): string {
  return amount === 1 ? noun : `${noun}s`;
}

function emptyText({ message, next }: { readonly message: string; readonly next: string }): string {
  return `${message}\n next: ${next}`;
}
