/** `atlasd status`: what the atlasd of this host says of itself over its socket, as a page or as JSON. */
import type { RunCommand } from '../commands/spec.js';
import { firstNote } from '../contract/desired.js';
import { EXIT } from '../contract/exit-codes.js';
import type { DesiredState, SessionSnapshot } from '../contract/fleet.js';
import type { LocalStatus } from '../contract/local.js';
import { localCall } from '../local/client.js';
import { count, formatAge, formatBytes, formatDuration, plainText, wrapLines } from '../terminal/format.js';
import { JSON_VERSION } from '../terminal/records.js';
import { styleFor, terminalWidth, type Style } from '../terminal/style.js';
import { renderTable, type Column } from '../terminal/table.js';
import { socketPathOf } from './inputs.js';

export const run: RunCommand = async (context, parsed) => {
  const status = await localCall(socketPathOf(context, parsed), 'GET', '/status');
  if (parsed.options['format'] === 'json') {
    context.stdout.write(`${JSON.stringify({ version: JSON_VERSION, status }, null, 2)}\n`);
  } else {
    context.stdout.write(
      statusPage(status, {
        nowMs: Date.now(),
        width: terminalWidth(context.stdout),
        style: styleFor(context.stdout, context.env),
      }),
    );
  }
  return EXIT.done;
};

export interface PageOptions {
  readonly nowMs: number;
  /** Undefined where nothing must be cut. */
  readonly width: number | undefined;
  readonly style: Style;
}

/** Pure: the page, with a line break at its end. */
export function statusPage(status: LocalStatus, options: PageOptions): string {
  const { identity, snapshot, desired } = status;
  const { nowMs, style } = options;
  const { sessions, executor } = snapshot;
  const state = workerState(status);
  const facts: Fact[] = [
    ['worker', identity.name],
    ['fleet', identity.fleet],
    ['state', state.text, style[state.colour]],
    ...reasonFacts(desired, nowMs),
    ['orders', ordersText(status), status.told ? undefined : style.yellow],
    ['slots', slotsText(status)],
    ['capabilities', identity.capabilities.join(', ') || 'none'],
    ...(snapshot.withdrawn ?? []).map(({ capability, reason, sinceMs }): Fact => [
      'withdrawn',
      `${capability}, for ${formatAge(nowMs - sinceMs)}: ${reason}`,
      style.yellow,
    ]),
    [
      'executor',
      `${executor.state}${executor.pid === null ? '' : `, process ${executor.pid}`}, ${count(executor.restarts, 'restart')}`,
    ],
    ['process', `${identity.pid}, up ${formatAge(nowMs - identity.startedAtMs)}, version ${identity.version}`],
    ['queue', identity.queue],
  ];
  const table =
    sessions.length === 0
      ? 'It holds no session.\n'
      : renderTable(sessions, sessionColumns(nowMs), { width: options.width, wide: false, style });
  return `${factLines(facts, options)}\n${table}`;
}

type Fact = readonly [label: string, value: string, paint?: ((text: string) => string) | undefined];

function factLines(facts: readonly Fact[], { width, style }: PageOptions): string {
  const gap = Math.max(...facts.map(([label]) => label.length)) + 2;
  return facts
    .map(([label, value, paint = (text: string) => text]) => {
      const text = plainText(value);
      const lines = width === undefined ? [text] : wrapLines(text, Math.max(20, width - gap)).split('\n');
      return `${style.bold(label.padEnd(gap))}${lines.map(paint).join(`\n${' '.repeat(gap)}`)}\n`;
    })
    .join('');
}

/** Ready, or why it takes no session: the reason that ends last is told first. */
export function workerState({ snapshot, desired }: LocalStatus): { text: string; colour: 'green' | 'yellow' | 'red' } {
  const { sessions, executor } = snapshot;
  const left = sessions.length === 0 ? 'no session left' : `${count(sessions.length, 'session')} left`;
  const orders = {
    open: [],
    cordoned: ['cordoned'],
    draining: [`draining, ${left}`],
    drained: ['drained'],
  }[desired.scheduling];
  const reasons = [
    ...(snapshot.stopping ? [`stopping, ${left}`] : []),
    ...orders,
    ...(executor.state === 'ready' || snapshot.stopping ? [] : [`its executor is ${executor.state}`]),
  ];
  if (reasons.length === 0) return { text: 'ready', colour: 'green' };
  const isBroken = executor.state === 'down' || executor.state === 'degraded';
  return { text: reasons.join('; '), colour: isBroken && !snapshot.stopping ? 'red' : 'yellow' };
}

function reasonFacts(desired: DesiredState, nowMs: number): Fact[] {
  const note = firstNote(desired);
  if (note === undefined) return [];
  const why = note.why === null ? 'no reason given' : `"${note.why}"`;
  const facts: Fact[] = [['reason', `${why}, ${note.who}, ${formatAge(nowMs - note.atMs)} ago (${iso(note.atMs)})`]];
  const { drain } = desired;
  if (drain === null) return facts;
  const isOrdered = drain.who !== note.who || drain.startedAtMs !== note.atMs;
  if (isOrdered) facts.push(['drain', `ordered by ${drain.who} ${formatAge(nowMs - drain.startedAtMs)} ago`]);
  if (drain.deadlineAtMs !== null && desired.scheduling === 'draining') {
    const leftMs = drain.deadlineAtMs - nowMs;
    const when = leftMs > 0 ? `in ${formatDuration(leftMs)}` : `passed ${formatAge(-leftMs)} ago`;
    const then = drain.onDeadline === 'release' ? 'sessions left then are released by force' : 'it is only reported';
    facts.push(['deadline', `${when} (${iso(drain.deadlineAtMs)}); ${then}`]);
  }
  if (drain.stopNonce !== null && desired.scheduling === 'draining')
    facts.push(['then', 'atlasd ends itself once drained']);
  return facts;
}

function ordersText({ desired, told }: LocalStatus): string {
  if (!told) return 'not known to the fleet yet: atlasd tells it when Temporal answers';
  return desired.scheduling === 'open' ? 'none' : 'known to the fleet';
}

function slotsText({ snapshot: { slots } }: LocalStatus): string {
  const kept = Object.entries(slots.reserve ?? {}).map(([capability, kept]) => `${kept} kept for ${capability}`);
  return [`${slots.used} of ${slots.cap} taken`, ...kept].join(', ');
}

function sessionColumns(nowMs: number): Column<SessionSnapshot>[] {
  return [
    { header: 'SESSION', value: ({ session }) => session, shrinkTo: 10 },
    {
      header: 'STATE',
      value: ({ state, localState }) => (localState === 'memory' ? `${state}, in memory` : state),
      colour: ({ state }) => (state === 'held' ? 'green' : 'yellow'),
    },
    { header: 'STEP', value: (session) => stepText(session, nowMs), shrinkTo: 12 },
    { header: 'HELD', value: ({ grantedAtMs }) => formatAge(nowMs - grantedAtMs), align: 'right' },
    {
      header: 'EXPIRES',
      value: ({ expiresAtMs }) => (expiresAtMs > nowMs ? `in ${formatDuration(expiresAtMs - nowMs)}` : 'now'),
      align: 'right',
    },
    {
      header: 'SCRATCH',
      value: ({ scratchBytes }) => (scratchBytes == null ? '-' : formatBytes(scratchBytes)),
      align: 'right',
    },
    { header: 'WORKFLOW', value: ({ workflowId }) => workflowId, shrinkTo: 12 },
  ];
}

/** The step that has run for longest: it is the one that may be stuck. */
function stepText({ attempts }: SessionSnapshot, nowMs: number): string {
  const [first, ...others] = [...attempts].sort((left, right) => left.startedAtMs - right.startedAtMs);
  if (first === undefined) return '-';
  const attempt = first.attempt > 1 ? `, attempt ${first.attempt}` : '';
  const more = others.length === 0 ? '' : `, ${others.length} more`;
  return `${first.activity} ${formatDuration(nowMs - first.startedAtMs)}${attempt}${more}`;
}

function iso(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 19)}Z`;
}
