/** The columns of a session, and by what its list is selected and sorted. */
import type { SessionRecord } from '../../fleet/client.js';
import { formatAge, formatBytes, formatDuration } from '../../terminal/format.js';
import type { Style } from '../../terminal/style.js';
import type { ListView } from './list-view.js';
import { ageText } from './worker-view.js';

export const SESSION_VIEW: ListView<SessionRecord> = {
  key: 'sessions',
  itemKey: 'session',
  name: (session) => session.key,
  // A lost worker may still have an entry of a session that was redone on another.
  id: (session) => `${session.key}@${session.worker}`,
  columns: [
    { header: 'SESSION', value: (session) => session.session, shrinkTo: 8 },
    { header: 'WORKER', value: (session) => session.worker, shrinkTo: 10 },
    { header: 'STATE', value: sessionStateText, colour: stateColour },
    { header: 'STEP', value: stepText, shrinkTo: 12 },
    { header: 'HELD', value: (session) => formatAge(session.heldForMs), align: 'right' },
    { header: 'IDLE', value: (session) => ageText(session.idleForMs), align: 'right', dropFirst: 2 },
    { header: 'EXPIRES', value: expiryText, align: 'right', dropFirst: 1 },
    { header: 'SCRATCH', value: scratchText, align: 'right', dropFirst: 4 },
    { header: 'OWNER', value: ownerStatusText, dropFirst: 3 },
    { header: 'WORKFLOW', value: (session) => session.workflowId, shrinkTo: 12 },
    { header: 'TYPE', value: (session) => session.workflowType, wide: true },
    { header: 'RUN', value: (session) => session.runId, wide: true },
    { header: 'LAST STEP', value: lastStepText, wide: true },
    { header: 'EPOCH', value: (session) => String(session.epoch), align: 'right', wide: true },
    { header: 'CAPABILITIES', value: (session) => session.capabilities.join(',') || '-', wide: true },
    { header: 'LOCAL STATE', value: ({ localState }) => localState, wide: true },
    { header: 'LEASE TTL', value: ({ leaseTtlMs }) => spanText(leaseTtlMs), align: 'right', wide: true },
    {
      header: 'WORKER SEEN',
      value: ({ workerHeartbeatAgeMs }) => ageText(workerHeartbeatAgeMs),
      align: 'right',
      wide: true,
    },
  ],
  selectors: [
    { name: 'worker', help: 'the name of its worker', of: ({ worker }) => [worker] },
    {
      name: 'state',
      help: 'granting, held or releasing',
      of: ({ state }) => [state],
      values: ['granting', 'held', 'releasing'],
    },
    {
      name: 'owner',
      help: 'the status of its owner, such as running, terminated or not_found',
      of: ({ ownerStatus }) => (ownerStatus === null ? [] : [ownerStatus]),
    },
    { name: 'workflow', help: 'the workflow id of its owner', of: ({ workflowId }) => [workflowId] },
    { name: 'type', help: 'the workflow type of its owner', of: ({ workflowType }) => [workflowType] },
    { name: 'step', help: 'the activity that runs now, or none', of: ({ step }) => [step?.activity ?? 'none'] },
    { name: 'cap', help: 'a capability that it asked for', of: ({ capabilities }) => capabilities },
    {
      name: 'local',
      help: 'where its state is: disk or memory',
      of: ({ localState }) => [localState],
      values: ['disk', 'memory'],
    },
    {
      name: 'leaked',
      help: 'true or false',
      of: ({ leaked }) => (leaked === null ? [] : [String(leaked)]),
      values: ['true', 'false'],
    },
  ],
  sortFields: [
    'session',
    'worker',
    'workerState',
    'workerHeartbeatAgeMs',
    'state',
    'leaked',
    'ownerStatus',
    'step.activity',
    'step.attempt',
    'step.startedAt',
    'lastStep.endedAt',
    'heldForMs',
    'idleForMs',
    'expiresInMs',
    'scratchBytes',
    'workflowId',
    'workflowType',
    'runId',
    'epoch',
    'capabilities',
    'leaseTtlMs',
    'localState',
  ],
  volatile: ['workerHeartbeatAgeMs', 'heldForMs', 'expiresInMs', 'idleForMs', 'scratchBytes'],
};

/** Of a worker that goes on a session needs no word: it is not touched by a cordon or a drain. */
const UNTROUBLED: ReadonlySet<string> = new Set(['ready', 'cordoned', 'draining', 'drained']);

/** `held`, `leaked`, `held, worker lost`: what is wrong is said here, since this column is never left out. */
export function sessionStateText({ state, leaked, workerState }: SessionRecord): string {
  const own = leaked === true ? 'leaked' : state;
  return UNTROUBLED.has(workerState) ? own : `${own}, worker ${workerState}`;
}

function stateColour({ state, leaked, workerState }: SessionRecord): keyof Omit<Style, 'enabled'> {
  if (leaked === true || workerState === 'lost') return 'red';
  return state === 'held' && UNTROUBLED.has(workerState) ? 'green' : 'yellow';
}

export function stepText({ step }: SessionRecord): string {
  if (step === null) return '-';
  const attempt = step.attempt > 1 ? `, attempt ${step.attempt}` : '';
  return `${step.activity} ${formatDuration(Date.now() - Date.parse(step.startedAt))}${attempt}`;
}

export function lastStepText({ lastStep }: SessionRecord): string {
  return lastStep === null ? '-' : `${lastStep.activity}, ${formatAge(Date.now() - Date.parse(lastStep.endedAt))} ago`;
}

export function expiryText({ expiresInMs }: SessionRecord): string {
  return expiresInMs > 0 ? formatDuration(expiresInMs) : 'overdue';
}

export function scratchText({ scratchBytes }: SessionRecord): string {
  return scratchBytes === null ? '-' : formatBytes(scratchBytes);
}

/** `running`, `timed out`, `not found`. */
export function ownerStatusText({ ownerStatus }: Pick<SessionRecord, 'ownerStatus'>): string {
  return ownerStatus === null ? '-' : ownerStatus.toLowerCase().replaceAll('_', ' ');
}

export function spanText(durationMs: number | null): string {
  return durationMs === null ? '-' : formatDuration(durationMs);
}
