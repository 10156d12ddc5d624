/** One session as text. Pure but for the clock. */
import type { RunningStepRecord, SessionDetail, SessionRecord, StepRecord } from '../../fleet/client.js';
import { type BlockOptions, type Fact, renderFacts, renderSection } from '../../terminal/blocks.js';
import { formatAge, formatAmount, formatDuration } from '../../terminal/format.js';
import { type Column, renderTable } from '../../terminal/table.js';
import { expiryText, lastStepText, ownerStatusText, scratchText, sessionStateText, spanText } from './session-view.js';
import { ago } from './show-worker.js';

const INDENT = 2;
const UNTOLD = '- (its atlasd does not say)';

/** `elsewhere`: what other workers still have of this session. */
export function sessionText(detail: SessionDetail, elsewhere: readonly SessionRecord[], options: BlockOptions): string {
  const { session } = detail;
  const { style } = options;
  const inner = { ...options, width: options.width === undefined ? undefined : options.width - INDENT };
  const facts: Fact[] = [
    ['Worker', `${session.worker}, ${session.workerState}${workerSeen(session)}`],
    ['Capabilities', session.capabilities.join(', ') || 'none asked for'],
    ['Held for', `${formatDuration(session.heldForMs)}; expires in ${expiryText(session)}`],
    ['Idle for', idleText(session)],
    ['Last step', lastStepText(session)],
    ['Scratch', scratchText(session)],
    ...(session.localState === 'memory'
      ? [['Local state', 'in the memory of the executor: the session is lost when that ends'] as const]
      : []),
    ['Key', session.key],
    ...elsewhere.map((other): Fact => [
      'Also on',
      `${other.worker}, ${other.workerState}: epoch ${other.epoch}, ${sessionStateText(other)}`,
    ]),
  ];
  return [
    `${style.bold(session.session)}  ${stateText(session)}\n`,
    renderFacts(facts, options),
    '\n',
    renderSection('Owner', renderFacts(ownerFacts(detail), inner), options),
    '\n',
    renderSection('Lease', renderFacts(leaseFacts(detail), inner), options),
    '\n',
    renderSection('Running now', runningText(detail, inner), options),
    '\n',
    renderSection(stepsTitle(detail), stepsText(detail, inner), options),
  ].join('');
}

function stateText(session: SessionRecord): string {
  return session.leaked === true ? `${sessionStateText(session)}: held for nothing` : sessionStateText(session);
}

function workerSeen({ workerHeartbeatAgeMs }: SessionRecord): string {
  return workerHeartbeatAgeMs === null ? '' : `, last seen ${formatAge(workerHeartbeatAgeMs)} ago`;
}

function idleText({ idleForMs, step }: SessionRecord): string {
  if (step !== null) return 'not idle: a step runs';
  return idleForMs === null ? 'no step runs; its atlasd does not say since when' : formatDuration(idleForMs);
}

function ownerFacts({ owner }: SessionDetail): Fact[] {
  const closed = owner.closedAt === null ? '' : `, closed ${owner.closedAt} (${ago(owner.closedAt)})`;
  return [
    ['Workflow', owner.workflowId],
    ['Type', owner.workflowType],
    ['Status', `${ownerStatusText({ ownerStatus: owner.status })}${closed}`],
    ['Run', owner.runId],
    ...(owner.startedAt === null ? [] : [['Started', `${owner.startedAt} (${ago(owner.startedAt)})`] as const]),
  ];
}

function leaseFacts({ session, lease, owner }: SessionDetail): Fact[] {
  const none = owner.closedAt === null ? 'none is open: the owner does not hold this session' : 'ended with the owner';
  return [
    [
      'Lease',
      lease === null
        ? none
        : `open, ${lease.renewedAgoMs === null ? 'not renewed yet' : `renewed ${formatAge(lease.renewedAgoMs)} ago`}`,
    ],
    ['Epoch', String(session.epoch)],
    ['TTL', session.leaseTtlMs === null ? UNTOLD : `lost after ${spanText(session.leaseTtlMs)} without a renewal`],
    [
      'Window',
      session.recoveryWindowMs === null
        ? UNTOLD
        : `its worker has ${spanText(session.recoveryWindowMs)} to answer, once it is missed`,
    ],
  ];
}

function runningText({ running }: SessionDetail, options: BlockOptions): string {
  if (running.length === 0) return 'nothing';
  return running.map((step) => renderFacts(runningFacts(step), options)).join('\n');
}

function runningFacts(step: RunningStepRecord): Fact[] {
  const since = step.startedAt === null ? '' : ` for ${formatDuration(Date.now() - Date.parse(step.startedAt))}`;
  const next =
    step.nextAttemptAt === null
      ? ''
      : `, tried again in ${formatDuration(Date.parse(step.nextAttemptAt) - Date.now())}`;
  return [
    ['Step', step.activity],
    ['State', `${step.state}${since}, attempt ${step.attempt}${next}`],
    ...(step.heartbeatAgeMs === null ? [] : [['Heartbeat', `${formatAge(step.heartbeatAgeMs)} ago`] as const]),
    ...(step.progress === null ? [] : [['Progress', progressText(step.progress)] as const]),
    ...(step.lastFailure === null ? [] : [['Failed before', step.lastFailure] as const]),
  ];
}

function progressText({ done, total, unit, note }: NonNullable<RunningStepRecord['progress']>): string {
  const share = total === undefined || total <= 0 ? '' : ` (${Math.floor((100 * done) / total)}%)`;
  return `${formatAmount(done, total, unit)}${share}${note === undefined ? '' : `, ${note}`}`;
}

function stepsTitle({ steps, stepsTruncated }: SessionDetail): string {
  if (steps.length === 0) return 'Steps';
  return `Steps (${steps.length}${stepsTruncated ? ', older ones are not shown: the history is too long' : ''})`;
}

const STEP_COLUMNS: readonly Column<StepRecord>[] = [
  { header: 'STEP', value: ({ activity }) => activity, shrinkTo: 12 },
  { header: 'WORKER', value: ({ worker }) => worker, shrinkTo: 10 },
  { header: 'HOST', value: ({ host }) => host ?? '-', shrinkTo: 10 },
  { header: 'ATTEMPT', value: ({ attempt }) => (attempt === null ? '-' : String(attempt)), align: 'right' },
  {
    header: 'RESULT',
    value: ({ result }) => result,
    colour: ({ result }) =>
      result === 'completed' ? 'green' : result === 'running' || result === 'waiting' ? 'yellow' : 'red',
  },
  { header: 'TOOK', value: tookText, align: 'right' },
  { header: 'EPOCH', value: ({ epoch }) => String(epoch), align: 'right', dropFirst: 1 },
];
const FAILURE_COLUMN: Column<StepRecord> = {
  header: 'FAILURE',
  value: ({ failure }) => failure ?? '-',
  shrinkTo: 10,
};

function tookText({ startedAt, endedAt }: StepRecord): string {
  if (startedAt === null) return '-';
  return formatDuration((endedAt === null ? Date.now() : Date.parse(endedAt)) - Date.parse(startedAt));
}

function stepsText({ steps, owner }: SessionDetail, { width, style }: BlockOptions): string {
  if (steps.length === 0) return owner.status === 'NOT_FOUND' ? 'unknown: the server has no such run' : 'none yet';
  const columns = steps.some(({ failure }) => failure !== null) ? [...STEP_COLUMNS, FAILURE_COLUMN] : STEP_COLUMNS;
  return renderTable(steps, columns, { width, style, wide: false });
}
