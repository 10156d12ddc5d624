/** `atlas cordon` and `atlas uncordon`: orders that are followed at once, or recorded. */
import { AtlasError } from '../../contract/errors.js';
import type { ExitCode } from '../../contract/exit-codes.js';
import { EXIT } from '../../contract/exit-codes.js';
import type { OrderResult, WorkerRecord } from '../../fleet/client.js';
import { plainText } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import { styleFor } from '../../terminal/style.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { checkChoice, chosenWorkers } from './choose-workers.js';
import { confirm } from './confirm.js';
import { type Fleet, withFleet } from './fleet-access.js';
import { lastReadyWarnings } from './last-ready.js';
import { operatorOf } from './operator.js';
import { cordonText, orderedText, uncordonText } from './order-words.js';
import { errorRecord, type Outcome, outcomesOf, reportFailures, worstExit } from './outcomes.js';

export async function runCordon(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  if (parsed.options['self'] === true) return (await import('./self-orders.js')).cordonSelf(context, parsed);
  checkChoice(parsed);
  return withFleet(context, parsed, ({ fleet }) => cordonWorkers(context, parsed, fleet));
}

export async function runUncordon(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  if (parsed.options['self'] === true) return (await import('./self-orders.js')).uncordonSelf(context, parsed);
  checkChoice(parsed);
  return withFleet(context, parsed, ({ fleet }) => uncordonWorkers(context, parsed, fleet));
}

export async function cordonWorkers(context: CommandContext, parsed: ParsedCommand, fleet: Fleet): Promise<ExitCode> {
  const by = { who: operatorOf(context.env), why: reasonOf(parsed) };
  const workers = await fleet.listWorkers();
  const chosen = chosenWorkers(parsed, workers, fleet.fleet);
  const style = styleFor(context.stderr, context.env);
  for (const warning of lastReadyWarnings(chosen, workers, fleet.fleet))
    context.stderr.write(`${style.bold(style.yellow('warning:'))} ${warning}\n`);
  const outcomes = await outcomesOf(namesOf(chosen), (worker) => fleet.cordon(worker, by));
  return tell(context, parsed, chosen, { order: 'cordon', outcomes, words: cordonText });
}

export async function uncordonWorkers(context: CommandContext, parsed: ParsedCommand, fleet: Fleet): Promise<ExitCode> {
  const who = operatorOf(context.env);
  const chosen = chosenWorkers(parsed, await fleet.listWorkers(), fleet.fleet);
  const foreign = chosen.filter(({ scheduling }) => scheduling.who !== null && scheduling.who !== who);
  if (foreign.length > 0 && parsed.options['yes'] !== true) await agree(context, parsed, foreign, who);
  const outcomes = await outcomesOf(namesOf(chosen), (worker) => {
    const seen = foreign.find(({ name }) => name === worker);
    const by = { who, why: reasonOf(parsed) };
    // Consent to what was seen is no consent to what somebody orders in this moment.
    return fleet.uncordon(
      worker,
      seen === undefined ? by : { ...by, ofOthers: true, ifRevision: seen.scheduling.revision },
    );
  });
  return tell(context, parsed, chosen, { order: 'uncordon', outcomes, words: uncordonText });
}

/** Asks before the order of another operator is undone; without a terminal it stands. */
async function agree(
  context: CommandContext,
  parsed: ParsedCommand,
  foreign: readonly WorkerRecord[],
  who: string,
): Promise<void> {
  const lines = foreign.map((worker) => `${worker.name}: ${orderedText(worker)}`);
  if (!isAskable(context)) {
    throw new AtlasError(
      'FleetConflict',
      `Another operator than ${plainText(who)} has taken ${foreign.length === 1 ? 'the worker' : 'these workers'} out of service:\n${lines.map((line) => `  ${line}`).join('\n')}\n  Nothing was changed.`,
      { next: 'Agree with who is named, then give --yes.' },
    );
  }
  const [first] = foreign;
  const question =
    foreign.length === 1
      ? `Put ${first!.name} back into service, against another operator's order?`
      : `Put these ${foreign.length} workers back into service, against other operators' orders?`;
  await confirm(context, parsed, { question, detailLines: lines });
}

/** Whether a question would be seen and could be answered. */
export function isAskable({ stdin, stderr }: CommandContext): boolean {
  return stdin.isTTY && stderr.isTTY;
}

interface Told {
  readonly order: 'cordon' | 'uncordon';
  readonly outcomes: readonly Outcome<OrderResult>[];
  readonly words: (result: OrderResult, before: WorkerRecord) => string;
}

function tell(
  context: CommandContext,
  parsed: ParsedCommand,
  chosen: readonly WorkerRecord[],
  { order, outcomes, words }: Told,
): ExitCode {
  if (parsed.options['format'] === 'json') {
    const orders = outcomes.map(({ name, value, report }) => ({
      order,
      worker: name,
      delivery: value?.delivery ?? null,
      changed: value?.changed ?? false,
      scheduling: value?.desired?.scheduling ?? null,
      revision: value?.desired?.revision ?? null,
      error: report === undefined ? null : errorRecord(report),
    }));
    context.stdout.write(`${JSON.stringify({ version: JSON_VERSION, orders }, null, 2)}\n`);
  } else {
    for (const [index, { name, value }] of outcomes.entries())
      if (value !== undefined) context.stdout.write(`${name}: ${words(value, chosen[index]!)}\n`);
    reportFailures(context, outcomes);
  }
  return worstExit(outcomes.map(({ report }) => report?.exitCode ?? EXIT.done));
}

export function reasonOf({ options }: ParsedCommand): string | null {
  const reason = options['reason'];
  return typeof reason === 'string' && reason.trim() !== '' ? reason.trim() : null;
}

function namesOf(workers: readonly WorkerRecord[]): string[] {
  return workers.map(({ name }) => name);
}
