/** `atlas workers forget`: takes workers that are gone off the list. */
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import type { SessionRecord, WorkerRecord } from '../../fleet/client.js';
import { count, formatAge, formatDuration } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { confirm } from './confirm.js';
import { reasonOf } from './cordon-workers.js';
import { type Fleet, namedWorkers, withFleet, wordsOf } from './fleet-access.js';
import { operatorOf } from './operator.js';
import { isAway, orderedText } from './order-words.js';
import { errorRecord, outcomesOf, reportFailures, worstExit } from './outcomes.js';

export async function runForget(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  return withFleet(context, parsed, ({ fleet }) => forgetWorkers(context, parsed, fleet));
}

export async function forgetWorkers(context: CommandContext, parsed: ParsedCommand, fleet: Fleet): Promise<ExitCode> {
  const { workers, sessions } = await fleet.look();
  const chosen = namedWorkers(wordsOf(parsed), workers, fleet.fleet);
  const withSessions = parsed.options['withSessions'] === true;
  refuseAlive(chosen);
  if (!withSessions) refuseHolding(chosen, sessions);
  await confirm(context, parsed, {
    question: `Take ${chosen.length === 1 ? chosen[0]!.name : `these ${chosen.length} workers`} off the list?`,
    detailLines: chosen.map((worker) => workerLine(worker, sessions)),
  });
  const by = { who: operatorOf(context.env), why: reasonOf(parsed), withSessions };
  const names = chosen.map(({ name }) => name);
  const outcomes = await outcomesOf(names, (worker) => fleet.forget(worker, by));
  if (parsed.options['format'] === 'json') {
    const forgotten = outcomes.map(({ name, report }) => ({
      worker: name,
      forgotten: report === undefined,
      error: report === undefined ? null : errorRecord(report),
    }));
    context.stdout.write(`${JSON.stringify({ version: JSON_VERSION, forgotten }, null, 2)}\n`);
  } else {
    for (const { name, report } of outcomes)
      if (report === undefined) context.stdout.write(`${name}: forgotten; it is listed again when its daemon starts\n`);
    reportFailures(context, outcomes);
  }
  return worstExit(outcomes.map(({ report }) => report?.exitCode ?? EXIT.done));
}

function refuseAlive(chosen: readonly WorkerRecord[]): void {
  const alive = chosen.filter((worker) => !isAway(worker));
  if (alive.length === 0) return;
  const are = alive.map(({ name, state }) => `${name} is ${state}`).join(', ');
  throw new AtlasError(
    'FleetConflict',
    `Only a worker that is lost or stopped can be forgotten: ${are}. Nothing was changed.`,
    { next: `Stop its daemon first; drain it with \`atlas drain ${alive.map(({ name }) => name).join(' ')} --stop\`.` },
  );
}

/** Whoever forgets such a worker forgets that its sessions may come back with it. */
function refuseHolding(chosen: readonly WorkerRecord[], sessions: readonly SessionRecord[]): void {
  const holding = chosen.filter(({ name }) => sessions.some(({ worker }) => worker === name));
  if (holding.length === 0) return;
  const are = holding.map(({ name }) => `${name} (${heldText(name, sessions)})`).join(', ');
  throw new AtlasError(
    'FleetConflict',
    `Sessions were on ${are} when last heard of; they are redone elsewhere. Nothing was changed.`,
    { next: 'See `atlas sessions ls`; give --with-sessions to forget the worker all the same.' },
  );
}

function workerLine(worker: WorkerRecord, sessions: readonly SessionRecord[]): string {
  const { name, state, host, heartbeatAgeMs, scheduling } = worker;
  const seen = heartbeatAgeMs === null ? '' : `, last seen ${formatAge(heartbeatAgeMs)} ago`;
  const held = sessions.some((session) => session.worker === name) ? `, ${heldText(name, sessions)}` : '';
  const order = scheduling.scheduling === 'open' ? '' : `; ${orderedText(worker)}, which is forgotten too`;
  return `${name}  ${state} on ${host}${seen}${held}${order}`;
}

function heldText(name: string, sessions: readonly SessionRecord[]): string {
  const held = sessions.filter(({ worker }) => worker === name);
  const oldest = Math.max(...held.map(({ heldForMs }) => heldForMs));
  return `${count(held.length, 'session')}, the oldest held for ${formatDuration(oldest)}`;
}
