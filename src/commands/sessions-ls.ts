/** `atlas sessions ls`: the sessions that the workers of a fleet hold, and what each of them is doing. */
import { EXIT } from '../contract/exit-codes.js';
import type { SessionRecord } from '../fleet/client.js';
import type { RecordView } from '../terminal/records.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { RECORD_FORMAT_OPTION } from './support/formats.js';

export const sessionsLs: CommandSpec = {
  path: ['sessions', 'ls'],
  summary: 'List the sessions that the workers of a fleet hold.',
  description: [
    'STEP is the pinned activity that runs now, how long its attempt has been running, and which attempt it is after the first. HELD is how long the session has had its slot; EXPIRES is when it reaches its maximum duration. A session on a worker that is not ready shows the state of that worker.',
  ],
  arguments: [],
  options: [RECORD_FORMAT_OPTION, ...CONNECTION_OPTIONS],
  examples: [
    { command: 'atlas sessions ls', explanation: 'what runs where, now' },
    { command: 'atlas sessions ls -o wide', explanation: 'with workflow type, run, lease epoch and capabilities' },
    {
      command: `atlas sessions ls -o jsonl | jq -r '.session | select(.worker=="worker-7") | .workflowId'`,
      explanation: 'the workflows that have a session on worker-7',
    },
  ],
  exitCodes: [EXIT.unreachable],
  load: async () => {
    const { listFleet } = await import('./support/list.js');
    const view = await sessionsView();
    return (context, parsed) =>
      listFleet(context, parsed, {
        view,
        list: (fleet) => fleet.listSessions(),
        whenEmpty: (fleet) => ({
          message: `No worker of the fleet "${fleet}" holds a session.`,
          next: 'See `atlas workers ls` for the workers, or run a job: `atlas run process-document FILE`.',
        }),
      });
  },
};

/** The columns of a session. */
export async function sessionsView(): Promise<RecordView<SessionRecord>> {
  const { formatAge, formatDuration } = await import('../terminal/format.js');
  const nowMs = Date.now();
  const step = ({ step: running }: SessionRecord): string => {
    if (running === null) return '-';
    const attempt = running.attempt > 1 ? `, attempt ${running.attempt}` : '';
    return `${running.activity} ${formatDuration(nowMs - Date.parse(running.startedAt))}${attempt}`;
  };
  return {
    key: 'sessions',
    itemKey: 'session',
    name: (session) => session.key,
    columns: [
      { header: 'SESSION', value: (session) => session.session, shrinkTo: 10 },
      { header: 'WORKER', value: (session) => session.worker, shrinkTo: 10 },
      {
        header: 'STATE',
        value: ({ state, workerState }) => (workerState === 'ready' ? state : `${state}, worker ${workerState}`),
        colour: ({ state, workerState }) =>
          workerState === 'lost' ? 'red' : state === 'held' && workerState === 'ready' ? 'green' : 'yellow',
      },
      { header: 'STEP', value: step, shrinkTo: 12 },
      { header: 'HELD', value: (session) => formatAge(session.heldForMs), align: 'right' },
      { header: 'EXPIRES', value: (session) => `in ${formatDuration(session.expiresInMs)}`, align: 'right' },
      { header: 'WORKFLOW', value: (session) => session.workflowId, shrinkTo: 12 },
      { header: 'TYPE', value: (session) => session.workflowType, wide: true },
      { header: 'RUN', value: (session) => session.runId, wide: true },
      { header: 'EPOCH', value: (session) => String(session.epoch), align: 'right', wide: true },
      { header: 'CAPABILITIES', value: (session) => session.capabilities.join(',') || '-', wide: true },
    ],
  };
}
