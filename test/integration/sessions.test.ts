/** Sessions on real workers: pinned, released, capped, and the errors an owner sees. Read from histories and file systems. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { WorkflowFailedError } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { findError } from '../../src/contract/errors.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import {
  eventually,
  runWorkflow,
  sessionsOf,
  startWorker,
  startWorkflow,
  untilScratchIsEmpty,
  workersOf,
} from '../support/fixtures.js';
import { activitiesOf } from '../support/history.js';
import { useClient } from '../support/server.js';

interface Place {
  readonly worker: string;
  readonly pid: number;
  readonly session: string;
  readonly scratch: string;
}

interface Sequence {
  readonly before: Place;
  readonly after: Place;
  readonly state: string;
  readonly attempt: number;
  readonly worker: string;
}

/** The failure of a workflow, as an error of the catalogue. */
async function failureOf(result: Promise<unknown>): Promise<{ code: string; message: string; next: string }> {
  const error: unknown = await result.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WorkflowFailedError);
  const found = findError(error);
  if (found === undefined) throw new Error(`Not an error of the catalogue: ${String(error)}`, { cause: error });
  return found;
}

describe('a session', () => {
  const client = useClient();

  it('runs every pinned activity on the worker that granted it, and frees slot and scratch at its end', async () => {
    const fleet = uniqueFleet();
    const workers = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    const handle = await startWorkflow(client(), fleet, 'sequence');
    const result = (await handle.result()) as Sequence;

    expect(result).toMatchObject({ attempt: 1, state: 'by attempt 1' });
    expect(result.after).toEqual(result.before);
    const activities = await activitiesOf(handle);
    const grant = activities[0]!;
    expect(grant).toMatchObject({ type: 'atlas:acquireWorker', queue: `${fleet}:acquire` });
    const pinned = activities.slice(1, -1);
    expect(pinned.map(({ type }) => type)).toEqual(['where', 'put', 'hold', 'where', 'get']);
    const queues = new Set(pinned.map(({ queue }) => queue));
    expect(queues.size).toBe(1);
    expect([...queues][0]).toMatch(new RegExp(`^${fleet}-${result.worker}\\.[a-z0-9]+$`));
    expect(activities.at(-1)).toMatchObject({ type: 'atlas:releaseSession', outcome: 'completed' });
    expect(new Set(activities.map(({ activityId }) => activityId)).size).toBe(activities.length);

    expect(existsSync(result.before.scratch)).toBe(false);
    await eventually(async () => (await workersOf(client(), fleet)).every(({ sessions }) => sessions === 0), {
      what: 'all slots free',
    });
    for (const worker of workers) await untilScratchIsEmpty(worker);
  });

  it('never holds more sessions on a worker than its cap, however many wait', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const path = join(await temporaryDirectory(), 'exclusive');
    const runs = Array.from({ length: 12 }, () => runWorkflow(client(), fleet, 'exclusiveHolder', { path, ms: 150 }));
    // A second holder of the file fails its workflow with "Overlap".
    await Promise.all(runs);
    expect(existsSync(path)).toBe(false);
  });

  it('shares its cap over all acquire queues of the worker', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, capabilities: ['gpu', 'ocr'], args: ['--max-sessions', '1'] });
    const path = join(await temporaryDirectory(), 'exclusive');
    const asks = [[], ['gpu'], ['ocr'], ['gpu', 'ocr']];
    const runs = Array.from({ length: 8 }, (_, index) =>
      runWorkflow(client(), fleet, 'exclusiveHolder', { path, ms: 100, session: { capabilities: asks[index % 4] } }),
    );
    await Promise.all(runs);
  });

  it('goes only to a worker that has the capabilities', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'plain' });
    await startWorker({ fleet, name: 'with-gpu', capabilities: ['gpu'] });
    const runs = Array.from({ length: 4 }, () =>
      runWorkflow<Sequence>(client(), fleet, 'sequence', { session: { capabilities: ['gpu'] } }),
    );
    for (const result of await Promise.all(runs)) expect(result.worker).toBe('with-gpu');
  });

  it('keeps reserved slots for sessions that ask for the capability', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, capabilities: ['gpu'], args: ['--max-sessions', '2', '--reserve', 'gpu=1'] });
    const first = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the first session' });
    // The other slot is reserved: a second plain session must time out, one for gpu is granted.
    const refused = await failureOf(runWorkflow(client(), fleet, 'sequence', { session: { acquireTimeout: '1s' } }));
    expect(refused.code).toBe('AcquireTimeout');
    const granted = await runWorkflow<Sequence>(client(), fleet, 'sequence', { session: { capabilities: ['gpu'] } });
    expect(granted.attempt).toBe(1);
    await first.signal('finish');
    await first.result();
  });

  it('fails with a typed error that names the capabilities when no worker grants it in time', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const failure = await failureOf(
      runWorkflow(client(), fleet, 'sequence', { session: { capabilities: ['ocr', 'gpu'], acquireTimeout: '1s' } }),
    );
    expect(failure.code).toBe('AcquireTimeout');
    expect(failure.message).toBe(
      `No worker of the fleet ${fleet} with the capabilities "gpu+ocr" granted a session within 1s (queue ${fleet}-gpu+ocr:acquire).`,
    );
    expect(failure.next).toContain('atlas workers ls');
  });

  it('retries a business error in place and never takes it for a lost worker', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a' });
    await startWorker({ fleet, name: 'b' });
    const handle = await startWorkflow(client(), fleet, 'one', {
      activity: 'failFirst',
      args: [3],
      options: { retry: { initialInterval: 50, backoffCoefficient: 1 } },
    });
    expect(await handle.result()).toMatchObject({ attempt: 4 });
    const leases = (await activitiesOf(handle)).filter(({ type }) => type === 'atlas:acquireWorker');
    expect(leases).toHaveLength(1);
  });

  it('is released when the body fails, and the body’s own error is what the workflow fails with', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'failingBody');
    const error: unknown = await handle.result().catch((reason: unknown) => reason);
    expect((error as WorkflowFailedError).cause).toMatchObject({ type: 'Business', message: 'the body failed' });
    expect((await activitiesOf(handle)).at(-1)).toMatchObject({ type: 'atlas:releaseSession', outcome: 'completed' });
  });

  it('is released when its owner is cancelled while a pinned activity runs', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', { holdMs: 60_000, log });
    await eventually(async () => existsSync(log), { what: 'the pinned activity' });
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow();
    expect((await activitiesOf(handle)).at(-1)).toMatchObject({ type: 'atlas:releaseSession', outcome: 'completed' });
    await eventually(async () => (await workersOf(client(), fleet))[0]?.sessions === 0, { what: 'the slot free' });
    await untilScratchIsEmpty(worker);
    expect(await readFile(log, 'utf8')).toBe('begin worker-1\n');
  });

  it('takes no slot when its owner is cancelled while it waits for a worker', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const holder = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the first session' });
    const waiting = await startWorkflow(client(), fleet, 'sequence');
    await eventually(async () => (await activitiesOf(waiting)).length === 1, { what: 'the acquisition' });
    await waiting.cancel();
    await expect(waiting.result()).rejects.toThrow();
    await holder.signal('finish');
    await holder.result();
    expect(await runWorkflow<Sequence>(client(), fleet, 'sequence')).toMatchObject({ attempt: 1 });
  });

  it('frees the slot of an owner that was terminated at the next renewal of its lease', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'holder', { session: { leaseTtl: '5s' } });
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session' });
    await handle.terminate();
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 0, { what: 'the slot free' });
  });

  it('expires at its maximum duration with a typed error', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const failure = await failureOf(
      runWorkflow(client(), fleet, 'sequence', { holdMs: 60_000, session: { maxDuration: '2s' } }),
    );
    expect(failure.code).toBe('SessionExpired');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 0, { what: 'the slot free' });
  });

  it('can be followed by another in the same workflow', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const [first, second] = await runWorkflow<[Place, Place]>(client(), fleet, 'twice');
    expect(second.session).not.toBe(first.session);
    expect(second.scratch).not.toBe(first.scratch);
  });

  it('refuses options that make no sense, without retrying for ever', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const cases: [unknown, RegExp][] = [
      [{ leaseTtl: 'soon' }, /leaseTtl is "soon", but must be a duration/],
      [{ leaseTtl: '1ms' }, /leaseTtl is "1ms", but must be from 1s to 1d/],
      [{ maxReacquisitions: -1 }, /maxReacquisitions is -1/],
      [{ onLost: 'explode' }, /onLost is "explode", but must be "redo", "rediscover" or "fail"/],
      [{ prefer: 'Worker 7' }, /worker name "Worker 7" is not valid/],
      [{ prefer: 'w', preferFor: '2h' }, /preferFor is "2h", but must be from 100ms to 1h/],
      [{ priority: 1 }, /priority is 1, but must be an object/],
      [{ priority: { priorityKey: 0 } }, /priority.priorityKey is 0, but must be a whole number from 1/],
      [{ priority: { priorityKey: 1.5 } }, /priority.priorityKey is 1.5/],
      [{ priority: { fairnessKey: 'ä'.repeat(33) } }, /priority.fairnessKey is .* at most 64 bytes/],
      [{ priority: { fairnessWeight: 0 } }, /priority.fairnessWeight is 0, but must be a number from 0.001 to 1000/],
      [{ capabilities: ['GPU'] }, /capability name "GPU" is not valid/],
      [{ capabilities: ['a', 'b', 'c', 'd'] }, /4 capabilities/],
    ];
    for (const [session, message] of cases) {
      const failure = await failureOf(runWorkflow(client(), fleet, 'sequence', { session }));
      expect(failure.message).toMatch(message);
    }
  });

  it('keeps its heartbeat details over the executor’s own heartbeats', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const result = await runWorkflow(client(), fleet, 'one', {
      activity: 'beat',
      args: [{ done: 7 }, 2_000],
      // The executor heartbeats three times within it, so that the details of the second attempt are what it has sent last.
      options: { heartbeatTimeout: '3s', retry: { initialInterval: 50 } },
    });
    expect(result).toEqual({ done: 7 });
  });
});

describe('activities outside a session', () => {
  const client = useClient();

  it('are routed by capability', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'plain' });
    await startWorker({ fleet, name: 'with-gpu', capabilities: ['gpu'] });
    for (let count = 0; count < 4; count += 1) {
      expect(await runWorkflow(client(), fleet, 'pooledCall', { capabilities: ['gpu'] })).toBe('with-gpu');
    }
  });

  it('reach the worker of an ended session by its queue', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    expect(await runWorkflow(client(), fleet, 'workerCall')).toBe('worker-1');
  });

  it('get a typed error from currentSession()', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const failure = await failureOf(runWorkflow(client(), fleet, 'outside'));
    expect(failure.message).toContain('currentSession() was called outside');
  });
});
