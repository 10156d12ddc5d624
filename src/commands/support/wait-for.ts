/** `atlas wait`: returns when a worker or a session is as one wants it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { checkName } from '../../contract/names.js';
import type { SessionRecord, WorkerRecord } from '../../fleet/client.js';
import { isUnavailable } from '../../temporal/connect.js';
import { formatDuration } from '../../terminal/format.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { didYouMean } from './did-you-mean.js';
import { bounded, type Fleet, withFleet } from './fleet-access.js';
import { orderedText } from './order-words.js';
import { pickSession } from './pick.js';

const LOOK_INTERVAL_MS = 1_000;
const WORKER_STATES = ['ready', 'cordoned', 'drained', 'lost', 'stopped'] as const;
const SESSION_STATES = ['released'] as const;
type WorkerGoal = (typeof WORKER_STATES)[number];

export async function runWait(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const goal = goalOf(parsed);
  return withFleet(context, parsed, ({ fleet, client }) =>
    waitFor(context, parsed, goal, fleet, (task) => bounded(client, task)),
  );
}

export type Goal =
  | { readonly kind: 'worker'; readonly name: string; readonly state: WorkerGoal }
  | { readonly kind: 'session'; readonly name: string };

export function goalOf({ args, options }: ParsedCommand): Goal {
  const [kind, name] = args as [string, string];
  const wanted = options['for'];
  if (kind === 'worker') {
    const state = WORKER_STATES.find((each) => each === wanted);
    if (state === undefined) throw unknownState('a worker', wanted, WORKER_STATES);
    return { kind, name: checkName('worker', name), state };
  }
  if (kind === 'session') {
    if (wanted !== undefined && wanted !== 'released') throw unknownState('a session', wanted, SESSION_STATES);
    return { kind, name };
  }
  throw new AtlasError('Usage', `"${kind}" is neither worker nor session.${didYouMean(kind, ['worker', 'session'])}`);
}

function unknownState(what: string, wanted: unknown, states: readonly string[]): AtlasError {
  const list = states.join(', ');
  if (typeof wanted !== 'string') return new AtlasError('Usage', `Say with --for what to wait for: ${list}.`);
  return new AtlasError('Usage', `--for: "${wanted}" is not one of ${list}, for ${what}.${didYouMean(wanted, states)}`);
}

export async function waitFor(
  context: CommandContext,
  parsed: ParsedCommand,
  goal: Goal,
  fleet: Fleet,
  look: <T>(task: () => Promise<T>) => Promise<T>,
): Promise<ExitCode> {
  const { signal, stderr } = context;
  const timeoutMs = Number(parsed.options['timeout']);
  const quiet = parsed.options['quiet'] === true;
  const startedAtMs = Date.now();
  const check = goal.kind === 'worker' ? workerCheck(goal, fleet) : sessionCheck(goal, fleet);
  let told: string | undefined;
  let outage = false;
  for (;;) {
    let seen: Seen | 'unavailable';
    try {
      seen = await look(check);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      seen = 'unavailable';
    }
    signal.throwIfAborted();
    outage = seen === 'unavailable';
    const text = seen === 'unavailable' ? 'Temporal does not answer; waiting for it' : seen.text;
    const elapsedMs = Date.now() - startedAtMs;
    if (seen !== 'unavailable' && seen.reached) {
      if (!quiet) context.stdout.write(`${goal.name}: ${text}, after ${formatDuration(elapsedMs)}\n`);
      return EXIT.done;
    }
    if (elapsedMs >= timeoutMs) {
      const wanted = goal.kind === 'worker' ? goal.state : 'released';
      throw new AtlasError(
        outage ? 'ServerUnreachable' : 'WaitTimeout',
        `The ${goal.kind} ${goal.name} is not ${wanted} after ${formatDuration(timeoutMs)}: ${text}.`,
      );
    }
    if (!quiet && text !== told) stderr.write(`[${formatDuration(elapsedMs).padStart(6)}] ${goal.name}: ${text}\n`);
    told = text;
    await sleep(Math.min(LOOK_INTERVAL_MS, Math.max(1, timeoutMs - elapsedMs)), undefined, { signal }).catch(
      (error: unknown) => {
        signal.throwIfAborted();
        throw error;
      },
    );
  }
}

interface Seen {
  readonly reached: boolean;
  readonly text: string;
}

function workerCheck(
  { name, state }: { readonly name: string; readonly state: WorkerGoal },
  fleet: Fleet,
): () => Promise<Seen> {
  return async () => {
    const workers = await fleet.listWorkers();
    const worker = workers.find((each) => each.name === name);
    if (worker !== undefined) return { reached: isReached(worker, state), text: workerText(worker) };
    // One that is just being installed is not known yet.
    if (state === 'ready') return { reached: false, text: 'not known to the fleet yet' };
    const hint = didYouMean(
      name,
      workers.map((each) => each.name),
    );
    throw new AtlasError('NotFound', `The fleet "${fleet.fleet}" has no worker ${name}.${hint}`, {
      next: 'See `atlas workers ls`.',
    });
  };
}

function isReached(worker: WorkerRecord, goal: WorkerGoal): boolean {
  const { scheduling, applied } = worker.scheduling;
  switch (goal) {
    case 'ready':
      return worker.state === 'ready' && worker.reason === null;
    case 'cordoned':
      // Also by a drain: it takes no session any more, and has said so.
      return scheduling !== 'open' && applied;
    case 'drained':
      return scheduling === 'drained';
    case 'lost':
    case 'stopped':
      return worker.state === goal;
  }
}

function workerText(worker: WorkerRecord): string {
  const { state, scheduling, reason } = worker;
  if (scheduling.scheduling !== 'open') {
    const applied = scheduling.applied ? '' : ', not confirmed by it yet';
    const lead = state === scheduling.scheduling ? '' : `${state}, `;
    return `${lead}${orderedText(worker)}${applied}`;
  }
  return reason === null ? state : `${state}, ${reason}`;
}

function sessionCheck({ name }: { readonly name: string }, fleet: Fleet): () => Promise<Seen> {
  let key: string | undefined;
  return async () => {
    const sessions = await fleet.listSessions();
    // The beginning of an id is resolved once: another session may begin so later.
    key ??= pickSession(name, sessions, fleet.fleet)[0].key;
    const session = sessions.find((each) => each.key === key);
    return session === undefined
      ? { reached: true, text: 'no worker holds it any more' }
      : { reached: false, text: sessionText(session) };
  };
}

function sessionText({ worker, workerState, state, step }: SessionRecord): string {
  const where = workerState === 'ready' ? worker : `${worker} (${workerState})`;
  return `${state} on ${where}${step === null ? '' : `, ${step.activity} runs`}`;
}
