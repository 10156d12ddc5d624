/** A session in one line, for lists of what is going to be ended. Pure. */
import type { SessionRecord } from '../../fleet/client.js';
import { formatDuration, plainText } from '../../terminal/format.js';
import { isGone } from './order-words.js';

/** `06babd2d6284  on worker-7 · countWords 3.0s · held 4m · count-3f9k2a`. */
export function sessionLine(session: SessionRecord, nowMs: number): string {
  const { step, idleForMs } = session;
  const doing =
    step !== null
      ? `${plainText(step.activity)} ${formatDuration(nowMs - Date.parse(step.startedAt))}`
      : `no step running${idleForMs === null ? '' : ` for ${formatDuration(idleForMs)}`}`;
  const where = isGone(session.workerState)
    ? `on ${session.worker}, which is ${session.workerState}`
    : `on ${session.worker}`;
  const leaked = session.leaked === true ? ' · leaked' : '';
  return `${session.session}  ${where} · ${doing} · held ${formatDuration(session.heldForMs)}${leaked} · ${plainText(session.workflowId)}`;
}
