/** One worker as text. Pure but for the clock. */
import type { SessionRecord, WorkerRecord } from '../../fleet/client.js';
import { type BlockOptions, type Fact, renderFacts, renderSection } from '../../terminal/blocks.js';
import { formatAge } from '../../terminal/format.js';
import { renderTable } from '../../terminal/table.js';
import { SESSION_VIEW } from './session-view.js';
import { deadlineText, diskText, executorText, skewText, stateColour } from './worker-view.js';

const INDENT = 2;

export function workerText(worker: WorkerRecord, sessions: readonly SessionRecord[], options: BlockOptions): string {
  const { style } = options;
  const inner = { ...options, width: options.width === undefined ? undefined : options.width - INDENT };
  const head = `${style.bold(worker.name)}  ${style[stateColour(worker.state)](worker.state)}\n`;
  const facts: Fact[] = [
    ...(worker.reason === null ? [] : [['Reason', worker.reason] as const]),
    ['Slots', slotsText(worker)],
    ['Capabilities', worker.capabilities.join(', ') || 'none'],
    ...worker.withdrawn.map(
      ({ capability, reason, since }) =>
        ['Withdrawn', `${capability}, since ${since} (${ago(since)}): ${reason}`] as const,
    ),
    ['Last seen', seenText(worker)],
    ['Host', `${worker.host}, process ${worker.pid}${worker.embedded === true ? ', embedded in a program' : ''}`],
    ['Started', `${worker.startedAt} (${ago(worker.startedAt)})`],
    ['Version', worker.version],
    ['Executor', executorText(worker)],
    ['Load', worker.load1?.toFixed(2) ?? '-'],
    ['Disk free', diskText(worker)],
    ['Clock', clockText(worker)],
    ['Fleet', worker.fleet],
    ['Instance', worker.instance],
    ['Queue', worker.queue],
  ];
  return [
    head,
    renderFacts(facts, options),
    '\n',
    renderSection('Scheduling', renderFacts(schedulingFacts(worker), inner), options),
    '\n',
    renderSection(
      sessions.length === 0 ? 'Sessions' : `Sessions (${sessions.length})`,
      sessions.length === 0 ? noSessions(worker) : sessionTable(sessions, inner),
      options,
    ),
  ].join('');
}

function slotsText({ sessions, cap, reserve }: WorkerRecord): string {
  const reserved = Object.entries(reserve ?? {})
    .filter(([, slots]) => slots > 0)
    .map(([capability, slots]) => `${slots} for ${capability}`);
  return `${sessions} of ${cap} taken${reserved.length === 0 ? '' : `; reserved: ${reserved.join(', ')}`}`;
}

function seenText({ heartbeatAgeMs, presenceTtlMs }: WorkerRecord): string {
  if (heartbeatAgeMs === null) return 'never, or it has stopped';
  return `${formatAge(heartbeatAgeMs)} ago; it is lost after ${formatAge(presenceTtlMs)}`;
}

function clockText(worker: WorkerRecord): string {
  return worker.clockSkewMs === null ? '-' : `${skewText(worker)} from the server's`;
}

function schedulingFacts(worker: WorkerRecord): Fact[] {
  const { scheduling, applied, revision, drain, notes } = worker.scheduling;
  const done = applied ? 'applied by its atlasd' : 'NOT applied yet: it is when its atlasd answers';
  return [
    ['Wanted', revision === 0 ? `${scheduling}; no operator has touched it` : `${scheduling}, ${done}`],
    ...(drain === null
      ? []
      : ([
          ['Drain', `by ${drain.who}, since ${drain.startedAt} (${ago(drain.startedAt)})`],
          [
            'Deadline',
            drain.deadlineAt === null
              ? 'none'
              : `${drain.deadlineAt} (${deadlineText(worker)})${drain.overdue ? ', passed with work left' : ''}`,
          ],
          ['Then', drain.stop ? 'its atlasd ends itself once drained' : 'its atlasd goes on'],
        ] satisfies Fact[])),
    [
      'History',
      notes.length === 0
        ? 'none'
        : notes.map(
            ({ action, who, why, at }) => `${at}  ${action} by ${who}${why === null ? '' : `: "${why}"`}  (${ago(at)})`,
          ),
    ],
  ];
}

function noSessions({ state }: WorkerRecord): string {
  return state === 'stopped' ? 'none: it has stopped' : 'none';
}

function sessionTable(sessions: readonly SessionRecord[], { width, style }: BlockOptions): string {
  const columns = SESSION_VIEW.columns.filter(({ header }) => header !== 'WORKER');
  return renderTable(sessions, columns, { width, style, wide: false });
}

export function ago(at: string): string {
  return `${formatAge(Date.now() - Date.parse(at))} ago`;
}
