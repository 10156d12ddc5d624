/** `atlas drain`: what is checked and asked before anything is changed, and how the drain is shown. */
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { type Blocker, BlockerWatch } from '../../fleet/blockers.js';
import type { FleetLook, OrderResult, SessionRecord, WorkerRecord } from '../../fleet/client.js';
import { advance, monitorPlan, planWorker, startPlan, type DrainPlan } from '../../fleet/drain-plan.js';
import { blockerLine, DrainLines, type DrainScreen, screenLines, waitText } from '../../terminal/drain-view.js';
import { count, formatDuration } from '../../terminal/format.js';
import { LiveLines } from '../../terminal/live-lines.js';
import { JSON_VERSION } from '../../terminal/records.js';
import { styleFor, wantsLiveView } from '../../terminal/style.js';
import { reportError } from '../report-error.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { chosenWorkers } from './choose-workers.js';
import { confirm } from './confirm.js';
import { isAskable } from './cordon-workers.js';
import { type DrainAsked, drainAsked } from './drain-options.js';
import {
  blockerRecord,
  closingLines,
  exitOf,
  interruption,
  orderedLine,
  resultLines,
  resultRecord,
} from './drain-report.js';
import { bounded, type Fleet, withFleet } from './fleet-access.js';
import { lastReadyWarnings } from './last-ready.js';
import { operatorOf } from './operator.js';
import { deliveryText } from './order-words.js';
import { errorRecord, outcomesOf, reportFailures, worstExit } from './outcomes.js';
import { watchDrain } from './watch-drain.js';

/** Sessions that a question lists. */
const SESSIONS_LISTED = 20;

/** What a drain needs of the world; tests give one of their own. */
export interface DrainWorld {
  readonly fleet: Fleet;
  readonly look: () => Promise<FleetLook>;
  readonly blockers: (sessions: readonly SessionRecord[]) => Promise<readonly Blocker[]>;
}

export async function runDrain(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const asked = drainAsked(parsed, context.stderr.isTTY);
  if (asked.self) return (await import('./self-orders.js')).drainSelf(context, parsed, asked);
  return withFleet(context, parsed, ({ fleet, client }) => {
    const watch = new BlockerWatch(client);
    return drainWorkers(context, parsed, asked, {
      fleet,
      look: () => bounded(client, () => fleet.look()),
      blockers: (sessions) => bounded(client, () => watch.look(sessions)),
    });
  });
}

export async function drainWorkers(
  context: CommandContext,
  parsed: ParsedCommand,
  asked: DrainAsked,
  world: DrainWorld,
): Promise<ExitCode> {
  const { fleet } = world;
  const first = await world.look();
  if (asked.mode === 'monitor') return monitor(context, parsed, asked, world, first);
  const chosen = chosenWorkers(parsed, first.workers, fleet.fleet);
  const plan = planOf(asked, chosen);
  if (asked.mode === 'dry-run') return dryRun(context, asked, world, first, chosen, plan);
  if (asked.mode === 'no-wait') checkStartsAll(plan, first);
  await warn(context, parsed, asked, { first, chosen, minReady: asked.minReady, fleet: fleet.fleet });

  const drain = (worker: string): Promise<OrderResult> =>
    fleet.drain(worker, {
      who: operatorOf(context.env),
      why: asked.reason,
      deadlineMs: asked.deadlineMs,
      onDeadline: asked.onDeadline,
      stop: asked.stop,
      replace: asked.replace,
    });
  if (asked.mode === 'no-wait') return order(context, asked, chosen, drain);
  return watch(context, asked, world, { plan, first, drain });
}

function planOf(asked: DrainAsked, chosen: readonly WorkerRecord[]): DrainPlan {
  const { minReady, deadlineMs, onDeadline } = asked;
  return startPlan(
    chosen.map(({ name }) => name),
    { maxParallel: asked.maxParallel ?? 1, minReady, deadlineMs, onDeadline },
    Date.now(),
  );
}

/** Without somebody who waits nobody starts the rest. */
function checkStartsAll(plan: DrainPlan, first: FleetLook): void {
  const { start, waits } = advance(plan, first.workers.map(planWorker), Date.now());
  if (start.length === plan.targets.length) return;
  const [[worker, wait]] = [...waits] as [[string, Parameters<typeof waitText>[0]]];
  throw new AtlasError(
    'Usage',
    `Of ${plan.targets.length} workers ${start.length} would be started now, and without waiting nobody starts the rest (${worker} ${waitText(wait)}). Nothing was changed.`,
    { next: `Give --wait, or --max-parallel ${plan.targets.length} to drain them all at once.` },
  );
}

interface Warned {
  readonly first: FleetLook;
  readonly chosen: readonly WorkerRecord[];
  readonly minReady: number;
  readonly fleet: string;
}

/** Says what is at stake, and asks where work may be ended or the fleet is left with nobody. */
async function warn(
  context: CommandContext,
  parsed: ParsedCommand,
  asked: DrainAsked,
  { first, chosen, minReady, fleet }: Warned,
): Promise<void> {
  // With --min-ready a worker is only taken while others are ready.
  const warnings = minReady > 0 ? [] : lastReadyWarnings(chosen, first.workers, fleet);
  if (asked.onDeadline === 'release') {
    const names = new Set(chosen.map(({ name }) => name));
    const held = first.sessions.filter(({ worker }) => names.has(worker));
    const on = chosen.length === 1 ? chosen[0]!.name : `these ${chosen.length} workers`;
    const question = asked.force
      ? `Release ${held.length === 0 ? 'whatever' : count(held.length, 'session', 'sessions')} ${on} ${chosen.length === 1 ? 'holds' : 'hold'} by force, now?`
      : `Release by force what ${on} still ${chosen.length === 1 ? 'holds' : 'hold'} after ${formatDuration(asked.deadlineMs!)}?`;
    await confirm(context, parsed, { question, detailLines: [...warnings, ...(await heldLines(held))] });
    return;
  }
  if (warnings.length === 0) return;
  if (parsed.options['yes'] !== true && isAskable(context)) {
    await confirm(context, parsed, { question: 'Drain all the same?', detailLines: warnings });
    return;
  }
  const style = styleFor(context.stderr, context.env);
  for (const warning of warnings) context.stderr.write(`${style.bold(style.yellow('warning:'))} ${warning}\n`);
}

async function heldLines(held: readonly SessionRecord[]): Promise<string[]> {
  const { sessionLine } = await import('./session-words.js');
  const lines = held.slice(0, SESSIONS_LISTED).map((session) => sessionLine(session, Date.now()));
  return held.length > SESSIONS_LISTED ? [...lines, `and ${held.length - SESSIONS_LISTED} more`] : lines;
}

async function order(
  context: CommandContext,
  asked: DrainAsked,
  chosen: readonly WorkerRecord[],
  drain: (worker: string) => Promise<OrderResult>,
): Promise<ExitCode> {
  const names = chosen.map(({ name }) => name);
  const outcomes = await outcomesOf(names, drain);
  const deliveries = outcomes.map(({ value }, index) =>
    value === undefined ? '' : deliveryText(value, chosen[index]!),
  );
  if (asked.json) {
    const workers = outcomes.map(({ name, value, report }) => ({
      worker: name,
      delivery: value?.delivery ?? null,
      changed: value?.changed ?? false,
      scheduling: value?.desired?.scheduling ?? null,
      revision: value?.desired?.revision ?? null,
      error: report === undefined ? null : errorRecord(report),
    }));
    context.stdout.write(
      `${JSON.stringify({ version: JSON_VERSION, drain: { ended: 'ordered', workers } }, null, 2)}\n`,
    );
  } else {
    for (const [index, { name, value }] of outcomes.entries())
      if (value !== undefined) context.stdout.write(`${orderedLine(name, value, deliveries[index]!)}\n`);
    reportFailures(context, outcomes);
    const done = outcomes.filter(({ value }) => value !== undefined).map(({ name }) => name);
    if (done.length > 0) context.stderr.write(`Watch it with \`atlas drain --monitor ${done.join(' ')}\`.\n`);
  }
  return worstExit(outcomes.map(({ report }) => report?.exitCode ?? EXIT.done));
}

async function monitor(
  context: CommandContext,
  parsed: ParsedCommand,
  asked: DrainAsked,
  world: DrainWorld,
  first: FleetLook,
): Promise<ExitCode> {
  const isDraining = ({ scheduling: { scheduling } }: WorkerRecord): boolean =>
    scheduling === 'draining' || scheduling === 'drained';
  const chosen =
    asked.names.length > 0 || parsed.given.has('selector')
      ? chosenWorkers(parsed, first.workers, world.fleet.fleet)
      : first.workers.filter(({ scheduling }) => scheduling.scheduling === 'draining');
  const idle = chosen.filter((worker) => !isDraining(worker));
  if (idle.length > 0 || chosen.length === 0) {
    const message =
      chosen.length === 0
        ? `No worker of the fleet "${world.fleet.fleet}" is being drained.`
        : `${idle.map(({ name, state }) => `${name} is not being drained (it is ${state})`).join('; ')}.`;
    throw new AtlasError('NotFound', message, { next: 'See `atlas workers ls`; drain with `atlas drain WORKER`.' });
  }
  const plan = monitorPlan(chosen.map(planWorker), Date.now());
  const drain = (): Promise<OrderResult> => Promise.reject(new Error('A drain that is only watched gives no orders.'));
  return watch(context, asked, world, { plan, first, drain });
}

interface Watched {
  readonly plan: DrainPlan;
  readonly first: FleetLook;
  readonly drain: (worker: string) => Promise<OrderResult>;
}

async function watch(
  context: CommandContext,
  asked: DrainAsked,
  world: DrainWorld,
  { plan, first, drain }: Watched,
): Promise<ExitCode> {
  const { stdout, stderr, env, signal } = context;
  const isMonitor = asked.mode === 'monitor';
  const display = openDisplay(context);
  const end = await watchDrain({
    plan,
    first,
    drain,
    signal,
    monitor: isMonitor,
    look: world.look,
    blockers: world.blockers,
    show: display.show,
  }).finally(display.end);
  if (asked.json) {
    stdout.write(`${JSON.stringify({ version: JSON_VERSION, drain: resultRecord(end) }, null, 2)}\n`);
  } else if (end.ended !== 'interrupted') {
    for (const line of resultLines(end)) stdout.write(`${line}\n`);
    for (const line of closingLines(end, asked.stop)) stderr.write(`${line}\n`);
  }
  if (end.ended === 'finished') return exitOf(end);
  const format = asked.json ? 'json' : 'text';
  if (end.ended === 'interrupted') {
    const { message, next } = interruption(end, isMonitor);
    return reportError(new AtlasError('Interrupted', message, { next }), { stderr, env, format });
  }
  return reportError(
    new AtlasError(
      'ServerUnreachable',
      'Temporal has not answered since before the deadline; what became of the drain is not known.',
      {
        next: 'Look again with `atlas drain --monitor` when it is back. What was ordered goes on.',
      },
    ),
    { stderr, env, format },
  );
}

interface Display {
  readonly show: (screen: DrainScreen) => void;
  readonly end: () => void;
}

/** On stderr, so that stdout carries the result alone. */
function openDisplay({ stderr, env }: CommandContext): Display {
  if (wantsLiveView(stderr, env)) {
    const live = new LiveLines(stderr);
    const style = styleFor(stderr, env);
    return {
      show: (screen) => live.draw(screenLines(screen, style)),
      end: () => {
        // The result says all of it again.
        live.clear();
        live.end();
      },
    };
  }
  const lines = new DrainLines();
  return {
    show: (screen) => {
      for (const line of lines.next(screen)) stderr.write(`${line}\n`);
    },
    end: () => undefined,
  };
}

async function dryRun(
  context: CommandContext,
  asked: DrainAsked,
  world: DrainWorld,
  first: FleetLook,
  chosen: readonly WorkerRecord[],
  plan: DrainPlan,
): Promise<ExitCode> {
  const nowMs = Date.now();
  const names = new Set(chosen.map(({ name }) => name));
  const blockers = await world.blockers(first.sessions.filter(({ worker }) => names.has(worker)));
  const { start, waits } = advance(plan, first.workers.map(planWorker), nowMs);
  const warnings = asked.minReady > 0 ? [] : lastReadyWarnings(chosen, first.workers, world.fleet.fleet);
  const { stdout } = context;
  if (asked.json) {
    const workers = chosen.map(({ name, state, sessions, cap }) => ({
      worker: name,
      state,
      sessions,
      cap,
      beginsAtOnce: start.includes(name),
      waits: waits.get(name) ?? null,
      blockers: blockers.filter(({ session }) => session.worker === name).map((each) => blockerRecord(each, nowMs)),
    }));
    stdout.write(
      `${JSON.stringify({ version: JSON_VERSION, drain: { ended: 'dry-run', warnings, workers } }, null, 2)}\n`,
    );
    return EXIT.done;
  }
  const parallel = chosen.length > 1 ? `, ${asked.maxParallel ?? 1} at a time` : '';
  stdout.write(`Would drain ${count(chosen.length, 'worker')}${parallel}:\n`);
  for (const { name, state, sessions, cap } of chosen) {
    const when = start.includes(name) ? 'begins at once' : waitText(waits.get(name));
    stdout.write(`  ${name}  ${state}, ${sessions} of ${count(cap, 'slot')} held; ${when}\n`);
    for (const each of blockers.filter(({ session }) => session.worker === name))
      stdout.write(`    ${blockerLine(each, nowMs)}\n`);
  }
  for (const warning of warnings) stdout.write(`${warning}\n`);
  stdout.write(`${deadlineWords(asked)} Nothing was changed.\n`);
  return EXIT.done;
}

function deadlineWords({ force, deadlineMs, onDeadline }: DrainAsked): string {
  if (force) return 'What they hold would be released by force at once.';
  if (deadlineMs === null) return 'There is no deadline: each waits for its last session to end.';
  const after = formatDuration(deadlineMs);
  return onDeadline === 'release'
    ? `What is left after ${after} would be released by force.`
    : `What is left after ${after} would be reported; nothing would be ended.`;
}
