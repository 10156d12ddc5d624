/** What an order on a worker has led to, in words. Pure. */
import type { DesiredState } from '../../contract/fleet.js';
import { describeDesired } from '../../contract/desired.js';
import type { OrderResult, WorkerRecord } from '../../fleet/client.js';
import { plainText } from '../../terminal/format.js';

/** Whether the daemon has confirmed an order, and if not what will become of it. */
export function deliveryText({ delivery }: Pick<OrderResult, 'delivery'>, before: WorkerRecord | undefined): string {
  switch (delivery) {
    case 'applied':
      return 'confirmed by the worker';
    case 'recorded':
      return isAway(before)
        ? `recorded; applied when the worker returns (it is ${before!.state})`
        : 'recorded; the worker has not confirmed it yet, and applies it when it answers';
    case 'sent':
      return 'no worker of the fleet runs; the order waits on the Temporal server, and the first that returns applies it';
  }
}

export function cordonText(result: OrderResult, before: WorkerRecord): string {
  if (!result.changed && result.desired !== null) return `out of service already: ${stateText(result.desired)}`;
  const goesOn =
    before.sessions === 0 || isAway(before)
      ? ''
      : ` ${before.sessions === 1 ? 'The session that it holds goes' : `The ${before.sessions} sessions that it holds go`} on.`;
  return `cordoned; ${deliveryText(result, before)}.${goesOn}`;
}

export function uncordonText(result: OrderResult, before: WorkerRecord): string {
  if (!result.changed) return 'was not cordoned; it takes sessions';
  const undone = before.scheduling.scheduling === 'draining' ? 'uncordoned, its drain is undone' : 'uncordoned';
  return `${undone}; ${deliveryText(result, before)}`;
}

/** `cordoned by ops@bastion since ... ("disk swap")`, without what could move the cursor. */
export function stateText(desired: DesiredState): string {
  return plainText(describeDesired(desired));
}

/** The same of what was last seen of a worker. */
export function orderedText({ scheduling }: WorkerRecord): string {
  if (scheduling.scheduling === 'open') return 'takes sessions';
  const since = scheduling.since === null ? '' : ` since ${scheduling.since.slice(0, 19)}Z`;
  const why = scheduling.why === null ? '' : ` ("${scheduling.why}")`;
  return plainText(`${scheduling.scheduling} by ${scheduling.who ?? 'somebody'}${since}${why}`);
}

export function isAway(worker: WorkerRecord | undefined): boolean {
  return worker !== undefined && isGone(worker.state);
}

/** Whether a worker in this state answers nobody. */
export function isGone(state: WorkerRecord['state']): boolean {
  return state === 'lost' || state === 'stopped';
}
