/**
 * Where sessions go and what a loss moves: `onLost: 'rediscover'`, `prefer`, `priority`, and several sessions in one
 * workflow. What happened is read from the server's history and from what the activities left on their host.
 */
import { describe, expect, it } from 'vitest';
import type { WorkflowHandle } from '@temporalio/client';
import { join } from 'node:path';
import { FleetClient } from '../../src/fleet/client.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, runWorkflow, sessionsOf, startWorker, startWorkflow } from '../support/fixtures.js';
import { activitiesOf, historyOf, type RunActivity } from '../support/history.js';
import {
  labelsOf,
  letGo,
  linesOf,
  measured,
  PATIENT_MS,
  SLOW,
  untilAllFree,
  untilLine,
  untilListed,
} from '../support/promises.js';
import { connectTestClient, startPrivateServer, useClient } from '../support/server.js';

/**
 * For the workers that die here: their deaths are noticed sooner than by default. One that gets no processor for some
 * seconds must not look dead, nor have its calls cancelled by its fence.
 */
const PRESENCE = ['--presence-ttl', '3s'];
/** A lease that is cancelled on a dead worker ends with its TTL; the owner is to hear of the death by presence first. */
const QUICK = { recoveryWindow: '5s', leaseTtl: '14s' };
/** What runs until it is let go of: far longer than a kill may be away. */
const LONG_MS = 90_000;
/** A preferred worker that lives is waited for, however busy its machine is. */
const PATIENTLY = { preferFor: '1m' };

const ofType = (activities: readonly RunActivity[], type: string): RunActivity[] =>
  activities.filter((activity) => activity.type === type);
const leasesOf = (activities: readonly RunActivity[]) => ofType(activities, 'atlas:acquireWorker');

const ONE_PARTITION = ['matching.numTaskqueueReadPartitions=1', 'matching.numTaskqueueWritePartitions=1'];
/** Temporal's PendingActivityState. */
const PENDING_SCHEDULED = 1;

interface Place {
  readonly worker: string;
  readonly session: string;
}

describe('a session that is rediscovered', () => {
  const client = useClient();

  it('keeps what had returned, runs the call again that a kill -9 hit, and goes on there', SLOW, async () => {
    const fleet = uniqueFleet();
    const [worker] = await Promise.all([
      startWorker({ fleet, name: 'a', args: PRESENCE }),
      startWorker({ fleet, name: 'b' }),
    ]);
    const log = join(await temporaryDirectory(), 'log');
    const session = { ...QUICK, ...PATIENTLY, onLost: 'rediscover', prefer: 'a' };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: LONG_MS });
    await untilLine(log, '1:middle');
    await untilListed(client(), fleet, handle);
    const killedAtMs = Date.now();
    await worker.killAll();
    await letGo(log);
    expect(await handle.result()).toEqual({ attempt: 2, worker: 'b' });

    const { activities, grants } = await historyOf(client(), handle.workflowId);
    const queues = [...new Set(grants.map(({ queue }) => queue))];
    expect(queues).toHaveLength(2);
    const steps = ofType(activities, 'write');
    // The first step, the second, the second once more, the third.
    expect(steps.map(({ queue }) => queues.indexOf(queue))).toEqual([0, 0, 1, 1]);
    expect(steps.map(({ outcome }) => outcome === 'completed')).toEqual([true, false, true, true]);
    expect(leasesOf(activities)).toHaveLength(2);
    expect(labelsOf(await linesOf(log), 'begin')).toEqual(['1:first', '1:middle', '1:middle', '2:last']);
    expect(activities.at(-1)).toMatchObject({ type: 'atlas:releaseSession', outcome: 'completed' });
    measured('kill -9 to the call that runs again', steps[2]!.scheduledAtMs - killedAtMs);
    await untilAllFree(client(), fleet);
  });

  it('leaves a business error on its worker, and rejects with it in the body', SLOW, async () => {
    const fleet = uniqueFleet();
    await Promise.all(['a', 'b'].map((name) => startWorker({ fleet, name })));
    const handle = await startWorkflow(client(), fleet, 'affineError');
    const result = (await handle.result()) as { before: Place; after: Place; failure: string; attempt: number };
    expect(result).toMatchObject({ failure: 'Business', attempt: 1 });
    expect(result.after).toEqual(result.before);
    const activities = await activitiesOf(handle);
    expect(leasesOf(activities)).toHaveLength(1);
    const failed = ofType(activities, 'failFirst');
    expect(failed).toMatchObject([{ outcome: 'failed', attempt: 2 }]);
    expect(
      new Set(['where', 'failFirst'].flatMap((type) => ofType(activities, type)).map(({ queue }) => queue)).size,
    ).toBe(1);
  });

  it('is acquired again once for all calls that need it, and not where none does', SLOW, async () => {
    const fleet = uniqueFleet();
    const [worker] = await Promise.all([
      startWorker({ fleet, name: 'a', args: PRESENCE }),
      startWorker({ fleet, name: 'b' }),
    ]);
    const directory = await temporaryDirectory();
    const session = { ...QUICK, ...PATIENTLY, onLost: 'rediscover', prefer: 'a' };
    const start = (name: string, type: string, input: object) =>
      startWorkflow(client(), fleet, type, { session, log: join(directory, name), ...input });
    const idle = await start('idle', 'writer', { wait: true });
    await eventually(async () => ofType(await activitiesOf(idle), 'write')[0]?.outcome === 'completed', {
      what: 'the first step',
    });
    const calls = await start('calls', 'affineCalls', { ms: LONG_MS });
    for (const label of ['one', 'two', 'three']) await untilLine(join(directory, 'calls'), label);
    await untilListed(client(), fleet, calls);
    await worker.killAll();
    await letGo(join(directory, 'calls'));

    expect(await calls.result()).toEqual({ attempt: 2, worker: 'b' });
    expect(leasesOf(await activitiesOf(calls))).toHaveLength(2);
    const begun = labelsOf(await linesOf(join(directory, 'calls')), 'begin');
    for (const three of [begun.slice(0, 3), begun.slice(3, 6)]) expect(three.sort()).toEqual(['one', 'three', 'two']);
    expect(begun.slice(6)).toEqual(['last']);

    // What is left of the lost session is let go of at once; nothing has needed another yet.
    await eventually(async () => leasesOf(await activitiesOf(idle))[0]?.outcome !== 'open', {
      what: 'the end of the lease',
      timeoutMs: PATIENT_MS,
    });
    expect(leasesOf(await activitiesOf(idle))).toHaveLength(1);
    await idle.signal('resume');
    expect(await idle.result()).toEqual({ attempt: 2, worker: 'b' });
    expect(labelsOf(await linesOf(join(directory, 'idle')), 'begin')).toEqual(['1:first', '1:middle', '2:last']);
    await untilAllFree(client(), fleet);
  });

  it('is handed over to the next run like any other', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const runs = await runWorkflow<Place[]>(client(), fleet, 'relay', { session: { onLost: 'rediscover' }, runs: 2 });
    expect(runs).toHaveLength(2);
    expect(runs[1]).toMatchObject({ session: runs[0]!.session, worker: runs[0]!.worker, state: 'by the first run' });
    await untilAllFree(client(), fleet);
  });
});

describe('a session that prefers a worker', () => {
  const client = useClient();

  const run = async (fleet: string, session: object) => {
    const handle = await startWorkflow(client(), fleet, 'sequence', { session });
    const { worker } = (await handle.result()) as { worker: string };
    const { activities, grants } = await historyOf(client(), handle.workflowId);
    const leases = leasesOf(activities);
    const events = (await handle.fetchHistory()).events ?? [];
    const timeouts = [
      events.find((event) => event.timerStartedEventAttributes != null)?.timerStartedEventAttributes
        ?.startToFireTimeout,
      events.find((event) => event.activityTaskScheduledEventAttributes != null)?.activityTaskScheduledEventAttributes
        ?.scheduleToStartTimeout,
    ];
    return {
      worker,
      /** Of the timer and of the schedule to start of the first lease. */
      preferredForMs: timeouts.map((timeout) => Number(timeout?.seconds ?? 0) * 1_000 + (timeout?.nanos ?? 0) / 1e6),
      leases,
      queues: leases.map(({ queue }) => queue),
      waitedMs: grants[0]!.atMs - leases[0]!.scheduledAtMs,
    };
  };

  it('goes there, whatever it asks for, and elsewhere at once where the worker lacks a capability', SLOW, async () => {
    const fleet = uniqueFleet();
    await Promise.all([
      startWorker({ fleet, name: 'a', capabilities: ['gpu', 'ocr'] }),
      startWorker({ fleet, name: 'b', capabilities: ['gpu', 'big'] }),
    ]);
    const asked = [
      ['a', []],
      ['a', ['ocr', 'gpu']],
      ['b', ['big']],
    ] as const;
    for (const [prefer, capabilities] of asked) {
      const { worker, queues } = await run(fleet, { prefer, ...PATIENTLY, capabilities });
      expect([worker, queues]).toEqual([prefer, [`${fleet}-${prefer}:prefer`]]);
    }
    const lacking = { prefer: 'a', ...PATIENTLY, capabilities: ['big'] };
    const { worker, leases, queues, waitedMs } = await run(fleet, lacking);
    expect([worker, queues]).toEqual(['b', [`${fleet}-a:prefer`, `${fleet}-big:acquire`]]);
    expect(leases[0]).toMatchObject({ outcome: 'failed', identity: expect.stringMatching(/^a@/) as string });
    expect(waitedMs).toBeLessThan(20_000);
    await untilAllFree(client(), fleet);
  });

  it(
    'takes any other where the worker is full, cordoned, dead or unknown, and waits no longer than it said',
    SLOW,
    async () => {
      const fleet = uniqueFleet();
      const [full] = await Promise.all([
        startWorker({ fleet, name: 'a', args: ['--max-sessions', '1', ...PRESENCE] }),
        startWorker({ fleet, name: 'b' }),
      ]);
      const fallsBack = async (prefer: string, how: string): Promise<void> => {
        const { worker, leases, queues, preferredForMs, waitedMs } = await run(fleet, { prefer, preferFor: '500ms' });
        if (prefer === 'a') expect(worker).toBe('b');
        // A poll of the full worker that was out may take one of the leases that follow, and gives it back.
        expect([...new Set(queues)]).toEqual([`${fleet}-${prefer}:prefer`, `${fleet}:acquire`]);
        expect(queues.lastIndexOf(queues[0]!)).toBe(0);
        // What the owner waits for, and what it has asked the server for: by default it would be five seconds.
        expect(preferredForMs).toEqual([500, 500]);
        expect(leases[1]!.scheduledAtMs - leases[0]!.scheduledAtMs).toBeLessThan(PATIENT_MS);
        measured(`a preferred worker that is ${how}: to the grant elsewhere`, waitedMs);
      };
      await fallsBack('nobody', 'unknown');
      const holder = await startWorkflow(client(), fleet, 'holder', { session: { prefer: 'a' } });
      // Not any session on a: the list may still have one of before.
      await eventually(
        async () =>
          (await sessionsOf(client(), fleet)).some(
            ({ worker, workflowId }) => worker === 'a' && workflowId === holder.workflowId,
          ),
        { what: 'the session on a' },
      );
      await fallsBack('a', 'full');
      await holder.signal('finish');
      expect(await holder.result()).toMatchObject({ worker: 'a' });
      await untilAllFree(client(), fleet);
      const orders = new FleetClient(client(), { fleet });
      await orders.cordon('a', { who: 'test', why: 'placement' });
      await fallsBack('a', 'cordoned');
      await orders.uncordon('a', { who: 'test', why: 'placement' });
      await full.killAll();
      await fallsBack('a', 'dead');
      await untilAllFree(client(), fleet);
    },
  );
});

describe('the priority of a session', () => {
  const client = useClient();

  it('is that of its lease and of its pinned calls, unless they have one of their own', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const priority = { priorityKey: 2, fairnessKey: 'tenant-1', fairnessWeight: 2.5 };
    const prioritiesOf = async (options: object): Promise<unknown[]> => {
      const handle = await startWorkflow(client(), fleet, 'one', { session: { priority }, activity: 'where', options });
      await handle.result();
      const { events } = await handle.fetchHistory();
      return (events ?? []).flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
        scheduled == null ? [] : [[scheduled.activityType!.name!, scheduled.priority ?? null]],
      );
    };
    expect(await prioritiesOf({})).toMatchObject([['atlas:acquireWorker', priority], ['where', priority], {}]);
    expect(await prioritiesOf({ priority: { priorityKey: 4 } })).toMatchObject([
      ['atlas:acquireWorker', priority],
      ['where', { priorityKey: 4, fairnessKey: '' }],
      {},
    ]);
  });

  it('has a more urgent one served before others that wait for longer', SLOW, async () => {
    // Each partition of a task queue has its own order; of one session to place, the order of all shows only in one.
    const server = await startPrivateServer({ dynamicConfig: ONE_PARTITION });
    const connected = await connectTestClient(server.address);
    try {
      const fleet = uniqueFleet();
      await startWorker({ fleet, address: server.address, args: ['--max-sessions', '1'] });
      const holder = await startWorkflow(connected.client, fleet, 'holder');
      await eventually(async () => (await sessionsOf(connected.client, fleet)).length === 1, { what: 'a session' });
      const start = (priorityKey: number): Promise<WorkflowHandle> =>
        startWorkflow(connected.client, fleet, 'sequence', { session: { priority: { priorityKey } } });
      // On the queue, and not in the hands of the worker: a poll that was out takes one, and gives it back two seconds
      // later.
      const waits = async (handle: WorkflowHandle): Promise<boolean> => {
        const { pendingActivities } = (await handle.describe()).raw;
        return pendingActivities?.length === 1 && pendingActivities[0]?.state === PENDING_SCHEDULED;
      };
      const untilAllWait = (handles: readonly WorkflowHandle[]) =>
        eventually(async () => !(await Promise.all(handles.map(waits))).includes(false), { what: 'all wait' });
      const patient = [await start(5), await start(5), await start(5)];
      await untilAllWait(patient);
      const urgent = await start(1);
      await untilAllWait([...patient, urgent]);
      const pools = new FleetClient(connected.client, { fleet });
      await eventually(async () => (await pools.listPools(await pools.look()))[0]?.backlog === 4, {
        what: 'four on the queue',
      });
      await holder.signal('finish');
      const grantedAtMs = async (handle: WorkflowHandle) => {
        await handle.result();
        return (await historyOf(connected.client, handle.workflowId)).grants[0]!.atMs;
      };
      const urgentAtMs = await grantedAtMs(urgent);
      for (const handle of patient) expect(await grantedAtMs(handle)).toBeGreaterThan(urgentAtMs);
    } finally {
      await connected.close();
      await server.stop();
    }
  });
});

describe('several sessions in one workflow', () => {
  const client = useClient();

  it('are refused with a word on what to do; allowed, they take a slot each', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '2'] });
    const refused = {
      cause: {
        type: 'SessionNested',
        message: expect.stringContaining('one after the other, or set allowConcurrentSessions') as string,
      },
    };
    for (const type of ['nested', 'sideBySide'])
      await expect(runWorkflow(client(), fleet, type)).rejects.toMatchObject(refused);
    const allowed = { allowConcurrentSessions: true, onLost: 'rediscover' };
    const pairs = [
      await runWorkflow<Place[]>(client(), fleet, 'nested', { inner: allowed }),
      await runWorkflow<Place[]>(client(), fleet, 'sideBySide', { session: allowed }),
      await runWorkflow<Place[]>(client(), fleet, 'twice'),
    ];
    for (const pair of pairs) expect(new Set(pair.map(({ session }) => session)).size).toBe(2);
    await untilAllFree(client(), fleet);
  });

  it('that nest on a full pool end with AcquireTimeout, which names what they asked for', SLOW, async () => {
    const fleet = uniqueFleet();
    const capabilities = ['gpu'];
    await startWorker({ fleet, capabilities, args: ['--max-sessions', '2'] });
    const inner = { capabilities, allowConcurrentSessions: true, acquireTimeout: '1s' };
    const start = () => startWorkflow(client(), fleet, 'nested', { outer: { capabilities }, inner, wait: true });
    const handles = [await start(), await start()];
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 2, { what: 'two sessions' });
    await Promise.all(handles.map((handle) => handle.signal('resume')));
    const ends = await Promise.allSettled(handles.map((handle) => handle.result()));
    // The one that times out first makes room for the other, which may come in time.
    const failed = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as Error] : []));
    expect(failed.length).toBeGreaterThan(0);
    for (const error of failed) {
      expect(error).toMatchObject({
        cause: { type: 'AcquireTimeout', message: expect.stringContaining('capabilities "gpu"') as string },
      });
    }
    await untilAllFree(client(), fleet);
  });
});
