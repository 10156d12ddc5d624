/** Everything that Temporal stores of a run in its own bytes: arguments, results, failures' details, memo, headers. */
import type { WorkflowHandle } from '@temporalio/client';

export interface StoredPayload {
  /** Where in the history, such as `events.5.activityTaskScheduledEventAttributes.input.payloads.0`. */
  readonly place: string;
  readonly bytes: number;
  readonly text: string;
}

export interface StoredRun {
  readonly payloads: readonly StoredPayload[];
  /** The whole history as text: its plain strings, such as messages of failures, and every payload decoded. */
  readonly text: string;
}

export async function storedOf(handle: WorkflowHandle): Promise<StoredRun> {
  const history = await handle.fetchHistory();
  const { raw } = await handle.describe();
  const payloads: StoredPayload[] = [];
  const strings: string[] = [];
  const walk = (value: unknown, place: string): void => {
    if (typeof value === 'string') strings.push(value);
    if (value instanceof Uint8Array) {
      payloads.push({ place, bytes: value.length, text: Buffer.from(value).toString('utf8') });
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, inner] of Object.entries(value)) walk(inner, place === '' ? key : `${place}.${key}`);
    }
  };
  walk(history, '');
  walk(raw, 'describe');
  return { payloads, text: [...strings, ...payloads.map(({ text }) => text)].join('\n') };
}
