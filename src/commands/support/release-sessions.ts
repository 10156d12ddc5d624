/** `atlas sessions release`: ends sessions by force, and says for each what has come of it. */
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import type { ReleaseResult, SessionRecord } from '../../fleet/client.js';
import { count } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { confirm } from './confirm.js';
import { reasonOf } from './cordon-workers.js';
import { bounded, type Fleet, withFleet, wordsOf } from './fleet-access.js';
import { operatorOf } from './operator.js';
import { isGone } from './order-words.js';
import { errorRecord, type Outcome, outcomesOf, reportFailures, worstExit } from './outcomes.js';
import { pickSession } from './pick.js';
import { sessionLine } from './session-words.js';

/** Sessions that a question lists. */
const SESSIONS_LISTED = 40;

export async function runRelease(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  checkAsked(parsed);
  return withFleet(context, parsed, ({ fleet, client }) =>
    releaseSessions(context, parsed, fleet, () =>
      bounded(client, () => fleet.listSessions({ owners: parsed.options['leaked'] === true })),
    ),
  );
}

function checkAsked(parsed: ParsedCommand): void {
  const { given } = parsed;
  if (wordsOf(parsed).length > 0) {
    const filter = (['leaked', 'idle', 'worker'] as const).find((name) => given.has(name));
    if (filter !== undefined)
      throw new AtlasError('Usage', `Name sessions, or choose them with --${filter}, not both.`);
    return;
  }
  if (given.has('leaked') || given.has('idle') || given.has('worker')) return;
  throw new AtlasError('Usage', 'No session was named. Name some, or choose with --leaked, --idle or --worker.');
}

export async function releaseSessions(
  context: CommandContext,
  parsed: ParsedCommand,
  fleet: Fleet,
  list: () => Promise<readonly SessionRecord[]>,
): Promise<ExitCode> {
  const { options } = parsed;
  const { stdout, stderr, env } = context;
  const chosen = chosenSessions(parsed, await list(), fleet.fleet);
  const json = options['format'] === 'json';
  if (chosen.length === 0) {
    if (json) stdout.write(`${JSON.stringify({ version: JSON_VERSION, released: [] }, null, 2)}\n`);
    else stderr.write('No session is such; nothing to release.\n');
    return EXIT.done;
  }
  const lines = chosen.map((session) => sessionLine(session, Date.now()));
  const failOwner = options['failOwner'] === true;
  const consequence = consequenceOf(chosen.length, failOwner);
  if (options['dryRun'] === true) {
    if (json) {
      const would = chosen.map((session) => ({ ...sessionFields(session), outcome: null, freed: false, error: null }));
      stdout.write(`${JSON.stringify({ version: JSON_VERSION, dryRun: true, released: would }, null, 2)}\n`);
      return EXIT.done;
    }
    stdout.write(`Would release ${count(chosen.length, 'session')} by force:\n`);
    for (const line of lines) stdout.write(`  ${line}\n`);
    stdout.write(`${consequence} Nothing was changed.\n`);
    return EXIT.done;
  }
  const shown = lines.slice(0, SESSIONS_LISTED);
  await confirm(context, parsed, {
    question: `Release ${chosen.length === 1 ? 'this session' : `these ${chosen.length} sessions`} by force?`,
    detailLines: [
      ...shown,
      ...(lines.length > shown.length ? [`and ${lines.length - shown.length} more`] : []),
      consequence,
    ],
  });
  tellOfWaits(context, chosen);
  const by = { who: operatorOf(env), why: reasonOf(parsed), failOwner };
  // A worker each, so that one that can not be told does not hide what has come of the others.
  const workers = [...new Set(chosen.map(({ worker }) => worker))];
  const outcomes = await outcomesOf(workers, (worker) =>
    fleet.release(
      chosen.filter((session) => session.worker === worker),
      by,
    ),
  );
  return tell(context, json, chosen, outcomes);
}

function consequenceOf(amount: number, failOwner: boolean): string {
  const one = amount === 1;
  if (failOwner) return `${one ? 'Its workflow fails' : 'Their workflows fail'} with SessionReleased.`;
  const loses = one ? 'Its workflow loses it: it' : 'Their workflows lose them: each';
  return `${loses} does the sequence again on another worker, or fails, as its onLost says.`;
}

/** Releasing on a worker that does not answer waits until what may still run there must have ended. */
function tellOfWaits({ stderr }: CommandContext, chosen: readonly SessionRecord[]): void {
  const silent = [...new Set(chosen.filter(({ workerState }) => isGone(workerState)).map(({ worker }) => worker))];
  if (silent.length === 0) return;
  stderr.write(
    `${silent.join(', ')} ${silent.length === 1 ? 'does' : 'do'} not answer: the owners are told instead, once whatever may still run there must have ended. This takes some seconds.\n`,
  );
}

function chosenSessions(parsed: ParsedCommand, sessions: readonly SessionRecord[], fleet: string): SessionRecord[] {
  const { options } = parsed;
  const words = wordsOf(parsed);
  if (words.length > 0) {
    const picked = words.map((word) => pickSession(word, sessions, fleet)[0]);
    return [...new Set(picked)];
  }
  const idleMs = typeof options['idle'] === 'number' ? options['idle'] : null;
  return sessions.filter(
    (session) =>
      (options['leaked'] !== true || session.leaked === true) &&
      (idleMs === null || (session.idleForMs !== null && session.idleForMs >= idleMs)) &&
      (options['worker'] === undefined || session.worker === options['worker']),
  );
}

function tell(
  context: CommandContext,
  json: boolean,
  chosen: readonly SessionRecord[],
  outcomes: readonly Outcome<ReleaseResult[]>[],
): ExitCode {
  const results = new Map(
    outcomes.flatMap(({ value }) => value ?? []).map((result) => [result.session, result.outcome]),
  );
  const reports = new Map(outcomes.map(({ name, report }) => [name, report]));
  if (json) {
    const released = chosen.map((session) => {
      const outcome = results.get(session) ?? null;
      const report = reports.get(session.worker);
      return {
        ...sessionFields(session),
        outcome,
        freed: outcome === 'released' || outcome === 'not-held',
        error: report === undefined ? null : errorRecord(report),
      };
    });
    context.stdout.write(`${JSON.stringify({ version: JSON_VERSION, released }, null, 2)}\n`);
  } else {
    for (const session of chosen) {
      const outcome = results.get(session);
      if (outcome !== undefined) context.stdout.write(`${session.session}  ${outcomeText(session, outcome)}\n`);
    }
    reportFailures(context, outcomes);
  }
  // Every outcome is as good as it can be: slot and scratch are free or, on a worker that does not answer, no owner holds
  // on to the session any more and the release is recorded for the worker's return.
  return worstExit(outcomes.map(({ report }) => report?.exitCode ?? EXIT.done));
}

export function outcomeText({ worker, workflowId }: SessionRecord, outcome: ReleaseResult['outcome']): string {
  switch (outcome) {
    case 'released':
      return `released: slot and scratch on ${worker} are free`;
    case 'not-held':
      return `${worker} does not hold it any more: slot and scratch are free`;
    case 'owner-told':
      return `${worker} does not answer; ${workflowId} was told that its session is gone. What the worker still has of it ends when it returns`;
    case 'owner-moved-on':
      return `${worker} does not answer, and ${workflowId} waits for this session no longer. Nobody was told; what the worker still has of it ends when it returns`;
    case 'owner-closed':
      return `${worker} does not answer, and ${workflowId} has ended. Nobody was told; what the worker still has of it ends when it returns`;
  }
}

function sessionFields({ session, key, worker, workerState, workflowId, runId, heldForMs, idleForMs }: SessionRecord) {
  return { session, key, worker, workerState, workflowId, runId, heldForMs, idleForMs };
}
