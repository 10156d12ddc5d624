/**
 * What the types of the workflow library promise. Nothing here runs: `npm run check:types` fails when a line that must
 * not compile does, or one that must does not.
 */
/* eslint-disable @typescript-eslint/no-unsafe-call -- What must not compile has no type. */
import {
  pooled,
  withSession,
  workerActivities,
  type Session,
  type SessionOptions,
} from '../../../src/workflow/index.js';

interface Activities {
  download(url: string): Promise<number>;
  summarize(text: string, sentences?: number): Promise<{ summary: string }>;
  /** Not an activity: those return promises. */
  count(text: string): number;
  readonly limit: number;
}

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Compiles only when the value has just this type. */
const exactly =
  <B>() =>
  <A>(_value: A, _same: Equal<A, B>): void =>
    undefined;

declare const session: Session;

export async function ofPinnedActivities(): Promise<void> {
  const activities = session.proxyActivities<Activities>({ startToCloseTimeout: '1 minute' });
  const bytes = await activities.download('https://example.org');
  exactly<number>()(bytes, true);
  const { summary } = await activities.summarize('text', 3);
  exactly<string>()(summary, true);

  // @ts-expect-error The argument has another type.
  await activities.download(7);
  // @ts-expect-error An argument is missing.
  await activities.download();
  // @ts-expect-error There is no such activity.
  await activities.upload('x');
  // @ts-expect-error A function that returns no promise is no activity.
  activities.count('text');
  // @ts-expect-error Neither is a value.
  activities.limit();
  // @ts-expect-error The options are those of the session's; Temporal's own proxies would take others for one call.
  await activities.download.executeWithOptions({ taskQueue: 'q' }, ['https://example.org']);

  // @ts-expect-error The session decides the queue.
  session.proxyActivities<Activities>({ startToCloseTimeout: '1 minute', taskQueue: 'q' });
  // @ts-expect-error The session decides the activity id.
  session.proxyActivities<Activities>({ startToCloseTimeout: '1 minute', activityId: 'a' });
  // @ts-expect-error A pinned activity is never dispatched eagerly.
  session.proxyActivities<Activities>({ startToCloseTimeout: '1 minute', allowEagerDispatch: true });

  const untyped = session.proxyActivities({ startToCloseTimeout: '1 minute' });
  // @ts-expect-error Without a type nothing is known to be there.
  await untyped.download('x');
}

export async function ofPooledActivities(): Promise<void> {
  const activities = pooled<Activities>({ capabilities: ['gpu'], startToCloseTimeout: '1 minute' });
  const bytes = await activities.download('https://example.org');
  exactly<number>()(bytes, true);
  exactly<{ summary: string }>()(await activities.summarize('text'), true);
  // @ts-expect-error The argument has another type.
  await activities.download(7);
  // @ts-expect-error An argument is missing.
  await activities.download();
  // @ts-expect-error There is no such activity.
  await activities.upload('x');
  // @ts-expect-error What it returns is a number.
  const _text: string = await activities.download('x');
  // @ts-expect-error A function that returns no promise is no activity.
  activities.count('text');
  pooled<Activities>({ startToCloseTimeout: '1 minute', priority: { priorityKey: 1, fairnessKey: 'tenant' } });
  // @ts-expect-error The key is a number.
  pooled<Activities>({ startToCloseTimeout: '1 minute', priority: { priorityKey: 'high' } });
  // @ts-expect-error Workflow code never writes a queue name.
  pooled<Activities>({ taskQueue: 'atlas-gpu', startToCloseTimeout: '1 minute' });
  // @ts-expect-error A list of words, not one.
  pooled<Activities>({ capabilities: 'gpu', startToCloseTimeout: '1 minute' });
}

export async function ofActivitiesOnOneWorker(): Promise<void> {
  const activities = workerActivities<Activities>(session.queue, { startToCloseTimeout: '1 minute' });
  exactly<number>()(await activities.download('https://example.org'), true);
  exactly<{ summary: string }>()(await activities.summarize('text', 3), true);
  // @ts-expect-error The argument has another type.
  await activities.download(7);
  // @ts-expect-error An argument is missing.
  await activities.download();
  // @ts-expect-error There is no such activity.
  await activities.upload('x');
  // @ts-expect-error A function that returns no promise is no activity.
  activities.count('text');
  // @ts-expect-error As with pinned ones, the options are those of the proxy.
  await activities.download.executeWithOptions({}, ['https://example.org']);
  // @ts-expect-error The queue is the first argument.
  workerActivities<Activities>(session.queue, { startToCloseTimeout: '1 minute', taskQueue: 'q' });
  // @ts-expect-error The queue has no default.
  workerActivities<Activities>({ startToCloseTimeout: '1 minute' });
}

export async function ofWithSession(): Promise<void> {
  const value = await withSession(
    { capabilities: ['gpu'], leaseTtl: '30 seconds', maxDuration: 5_000 },
    async (held) => {
      exactly<Session>()(held, true);
      return { attempt: held.attempt };
    },
  );
  exactly<{ attempt: number }>()(value, true);

  const options: SessionOptions = {};
  // @ts-expect-error The options are read once and not changed.
  options.onLost = 'fail';
  // @ts-expect-error There are three policies.
  await withSession({ onLost: 'ignore' }, async () => undefined);
  for (const onLost of ['redo', 'rediscover', 'fail'] as const) await withSession({ onLost }, async () => undefined);
  await withSession(
    {
      prefer: session.worker,
      preferFor: '2 seconds',
      priority: { priorityKey: 1, fairnessKey: 'tenant', fairnessWeight: 2 },
    },
    async () => undefined,
  );
  for (const leaseTtl of [5_000, '500ms', '30 seconds', '1.5h', '1h30m', '1h 30m', '1d2h3m'] as const)
    await withSession({ leaseTtl }, async () => undefined);
  // @ts-expect-error A duration is a number or a text.
  await withSession({ preferFor: true }, async () => undefined);
  // @ts-expect-error Nobody agrees on the unit of a text without one.
  await withSession({ preferFor: '30' }, async () => undefined);
  // @ts-expect-error There is no such unit.
  await withSession({ preferFor: '2 weeks' }, async () => undefined);
  // @ts-expect-error One worker, not several.
  await withSession({ prefer: ['worker-7'] }, async () => undefined);
  // @ts-expect-error A priority is more than its key.
  await withSession({ priority: 1 }, async () => undefined);
  // @ts-expect-error There is no such part of a priority.
  await withSession({ priority: { key: 1 } }, async () => undefined);
  // @ts-expect-error There is no such option.
  await withSession({ leaseTTL: '30 seconds' }, async () => undefined);
  // @ts-expect-error The body is asynchronous: what it returns at once, nothing pinned has made.
  await withSession({}, () => 7);
  // @ts-expect-error The worker is where the session is, and not where it shall be.
  session.worker = 'worker-7';
  // @ts-expect-error A session can not be made by hand to be another's.
  session.queue = 'q';
}
