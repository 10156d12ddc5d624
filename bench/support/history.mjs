/** Times and sizes as the server has them: of events, of runs, and its counters of calls. */

const MS_PER_S = 1_000;
const NS_PER_MS = 1_000_000;
/** Activities that belong to the machinery of a session and not to the user. */
const MACHINERY = new Set(['atlas:acquireWorker', 'acquireWorker', 'internalSessionCreationActivity']);

export async function eventsOf(handle) {
  return (await handle.fetchHistory()).events ?? [];
}

export function timeOf(event) {
  return Number(event.eventTime.seconds) * MS_PER_S + (event.eventTime.nanos ?? 0) / NS_PER_MS;
}

/** When the first activity of the user was scheduled: the session was ready. */
export function readyAtMs(events) {
  return timeOf(
    events.find((event) => {
      const type = event.activityTaskScheduledEventAttributes?.activityType?.name;
      return type !== undefined && !MACHINERY.has(type);
    }),
  );
}

/** When the owner was told that it has a worker: Atlas and the Go SDK both signal it. */
export function grantedAtMs(events) {
  return timeOf(events.find((event) => event.workflowExecutionSignaledEventAttributes != null));
}

/** When the last activity of the user ended, which is the end of a body that does nothing after it. */
export function bodyEndedAtMs(events) {
  const own = new Set(
    events
      .filter(({ activityTaskScheduledEventAttributes: scheduled }) => {
        const type = scheduled?.activityType?.name;
        return type !== undefined && !MACHINERY.has(type) && !/^(atlas:|internalSession|releaseWorker)/.test(type);
      })
      .map((event) => String(event.eventId)),
  );
  return timeOf(
    events.findLast((event) => own.has(String(event.activityTaskCompletedEventAttributes?.scheduledEventId))),
  );
}

export function closedAtMs(events) {
  return timeOf(events.at(-1));
}

/**
 * How many heartbeats of activities the server has taken, by its own counters; null where they can not be read. The dev
 * server's port of them is in its command line.
 */
export async function heartbeatCount(port) {
  if (port === undefined) return null;
  try {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const lines = text
      .split('\n')
      .filter((each) => /^service_requests\{/.test(each) && /operation="RecordActivityTaskHeartbeat"/.test(each))
      .filter((each) => /service_name="frontend"/.test(each));
    return lines.length === 0 ? 0 : lines.reduce((sum, each) => sum + Number(each.slice(each.lastIndexOf(' '))), 0);
  } catch {
    return null;
  }
}
