/** `temporal-atlas/testing`: workflows with sessions in the process of a test, on the server of the suite. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, onTestFinished, vi } from 'vitest';
import { currentSession, currentWorker, progress } from 'temporal-atlas/activity';
import { TestFleet, type TestFleetOptions, type TestWorkerOptions } from 'temporal-atlas/testing';
import { findError } from '../../src/contract/errors.js';
import { SESSION_DEFAULTS } from '../../src/contract/session.js';
import { eventually, startWorkflow } from '../support/fixtures.js';
import { uniqueId } from '../support/fleet.js';
import { activitiesOf } from '../support/history.js';
import { temporalAddress, temporalEnvironment, useClient } from '../support/server.js';

const fleetDirectories = async (): Promise<string[]> =>
  (await readdir(tmpdir())).filter((name) => name.startsWith('atlas-test-fleet-'));

/** The error of the catalogue that a promise rejects with. */
async function refusal(promise: Promise<unknown>): Promise<{ code: string; message: string; next: string }> {
  const error: unknown = await promise.then(
    () => new Error('It was fulfilled.'),
    (reason: unknown) => reason,
  );
  const found = findError(error);
  if (found === undefined) throw error;
  return found;
}

/** Activities under the names that the workflows of the fixtures call. */
const where = () => ({ worker: currentWorker().name, session: currentSession().id });
const hold = (ms: number) =>
  ms === 0
    ? undefined
    : new Promise((_, reject) => {
        const { signal } = currentSession();
        const end = (): void => {
          reject(signal.reason as Error);
        };
        // A session that is ended at once may have ended before this begins.
        if (signal.aborted) end();
        else signal.addEventListener('abort', end);
      });
const FOREVER_MS = 3_600_000;
/** Bounded against hanging only: the machine may be busy. */
const soon = <T>(ask: () => T) => expect.poll(ask, { timeout: 60_000 });

describe('a test fleet', () => {
  const client = useClient();
  let connection: NativeConnection;
  let fleet: TestFleet | undefined;

  beforeAll(async () => {
    Runtime.install({ logger: new DefaultLogger('ERROR') });
    connection = await NativeConnection.connect({ address: temporalAddress() });
  });
  afterEach(async () => {
    await fleet?.close();
    fleet = undefined;
  });
  afterAll(async () => {
    await connection.close();
  });

  async function create(
    workers: readonly TestWorkerOptions[],
    options: Partial<TestFleetOptions> = {},
  ): Promise<TestFleet> {
    fleet = await TestFleet.create({
      client: client(),
      connection,
      workflowBundle: { codePath: inject('fixtureWorkflows') },
      activities: { where, hold, put: () => undefined, get: () => 'state', name: () => currentWorker().name },
      workers,
      ...options,
    });
    return fleet;
  }

  const start = (type: string, input?: unknown) => startWorkflow(client(), fleet!.taskQueue, type, input);
  const steps = ({ workflowId }: { workflowId: string }): string[] =>
    fleet!.calls
      .filter((call) => call.workflowId === workflowId)
      .map(({ activity, worker, outcome }) => `${activity} ${worker} ${outcome}`);

  it('runs the body again on another worker when one is lost in silence, long before its TTL', async () => {
    const fleet = await create([{ name: 'w1' }, { name: 'w2' }]);
    const handle = await start('observeLoss', { holdMs: FOREVER_MS });
    const redone = await start('sequence', { holdMs: FOREVER_MS });
    const lost = await fleet.session({ workflowId: redone.workflowId });
    const other = await fleet.session({ workflowId: handle.workflowId });
    // The emptiest first, so each has one.
    expect(new Set([lost.worker, other.worker])).toEqual(new Set(['w1', 'w2']));
    expect(existsSync(lost.scratchDirectory)).toBe(true);
    const lostAtMs = performance.now();
    await fleet.worker(lost.worker).lose();
    const again = await fleet.session({ workflowId: redone.workflowId });
    expect(performance.now() - lostAtMs).toBeLessThan(SESSION_DEFAULTS.leaseTtlMs / 2);

    expect(again).toMatchObject({ id: lost.id, worker: other.worker, held: true });
    expect(lost.held).toBe(false);
    expect(existsSync(lost.scratchDirectory)).toBe(false);
    expect(fleet.worker(lost.worker)).toMatchObject({ state: 'lost', sessions: [] });
    expect(other.held).toBe(true);
    // The owner has seen what it sees of a real loss: it suspected, asked and got no for an answer.
    const asked = (await activitiesOf(redone)).filter(({ type }) => type === 'atlas:confirmSession');
    expect(asked).toEqual([expect.objectContaining({ outcome: 'failed' })]);

    // The last worker that is left: the next session waits for one that comes back.
    await fleet.worker(other.worker).lose();
    expect(await handle.result()).toMatchObject({
      seen: [{ type: 'SessionLost', cancellation: false }],
      thrown: 'SessionLost',
    });
    await fleet.worker('w1').restart();
    expect(await fleet.session({ workflowId: redone.workflowId })).toMatchObject({ worker: 'w1' });
    await redone.terminate('the test is over');
  });

  it('tells a lost call from one that failed, in the order of the calls', async () => {
    const fleet = await create([{ name: 'w1' }, { name: 'w2' }]);
    const handle = await start('sequence', { holdMs: FOREVER_MS });
    await fleet.session({ workflowId: handle.workflowId });
    await soon(() => steps(handle)).toContain('hold w1 running');
    await fleet.worker('w1').lose();
    await soon(() => steps(handle)).toEqual([
      'where w1 completed',
      'put w1 completed',
      'hold w1 lost',
      'where w2 completed',
      'put w2 completed',
      'hold w2 running',
    ]);
    await handle.terminate('the test is over');
    // A workflow that ended without a release gives its slot back all the same.
    await fleet.worker('w2').drain();
  });

  it('loses a session in memory with the executor, and one on disk not', async () => {
    const disposed: string[] = [];
    const put = (): void => {
      const session = currentSession();
      if (session.state === 'memory') session.memory.set('text', { [Symbol.dispose]: () => disposed.push(session.id) });
    };
    const get = (): string => {
      const session = currentSession();
      return session.state === 'disk' ? 'on disk' : `${session.memory.size} in memory`;
    };
    let holding = 0;
    const holdOnce = async (): Promise<void> => {
      holding += 1;
      if (holding <= 2) await hold(FOREVER_MS);
    };
    const fleet = await create([{ name: 'w1' }], { activities: { where, put, get, hold: holdOnce } });
    const inMemory = await start('sequence', { session: { state: 'memory' } });
    const onDisk = await start('sequence');
    for (const handle of [inMemory, onDisk]) {
      await fleet.session({ workflowId: handle.workflowId });
      await soon(() => steps(handle)).toContain('hold w1 running');
    }
    await fleet.worker('w1').restartExecutor();
    expect(await inMemory.result()).toMatchObject({ state: '1 in memory', attempt: 2 });
    expect(await onDisk.result()).toMatchObject({ state: 'on disk', attempt: 1 });
    expect(disposed).toHaveLength(1);
  });

  it('asks the preferred worker first, and any other where it can not', async () => {
    const fleet = await create([{ name: 'w1', capabilities: ['gpu'] }, { name: 'w2' }, { name: 'w3' }]);
    const session = { prefer: 'w3', preferFor: '2m' };
    const preferred = await start('sequence', { session });
    expect(await preferred.result()).toMatchObject({ worker: 'w3' });
    const lacking = await start('sequence', { session: { ...session, capabilities: ['gpu'] } });
    expect(await lacking.result()).toMatchObject({ worker: 'w1' });
    await fleet.worker('w3').cordon();
    const cordoned = await start('sequence', { session: { ...session, preferFor: '200ms' } });
    expect(await cordoned.result()).toMatchObject({ worker: 'w1' });
  });

  it('runs a call again elsewhere that a loss hits, where the session is pinned for speed', async () => {
    const fleet = await create([{ name: 'w1' }, { name: 'w2' }]);
    const handle = await start('sequence', { session: { onLost: 'rediscover' }, holdMs: FOREVER_MS });
    await soon(() => steps(handle)).toContain('hold w1 running');
    await fleet.worker('w1').lose();
    await soon(() => steps(handle)).toEqual([
      'where w1 completed',
      'put w1 completed',
      'hold w1 lost',
      'hold w2 running',
    ]);
    await handle.terminate('the test is over');
  });

  it('expires a session, and releases one by force', async () => {
    const fleet = await create([{ name: 'w1' }]);
    const expired = await start('one', { activity: 'hold', args: [FOREVER_MS] });
    await (await fleet.session({ workflowId: expired.workflowId })).expire();
    expect(await refusal(expired.result())).toMatchObject({
      code: 'SessionExpired',
      message: expect.stringContaining('maximum duration') as string,
    });

    const released = await start('holder');
    const first = await fleet.session({ workflowId: released.workflowId });
    await first.release({ why: 'the test wants to see a redo' });
    const second = await fleet.session({ workflowId: released.workflowId });
    expect(second.id).toBe(first.id);
    expect(first.held).toBe(false);
    expect(await refusal(first.release())).toMatchObject({ code: 'NotFound' });
    await released.signal('finish');
    expect(await released.result()).toEqual({ worker: 'w1', attempt: 2 });

    const ended = await start('holder');
    await (await fleet.session({ workflowId: ended.workflowId })).release({ failOwner: true });
    expect((await refusal(ended.result())).code).toBe('SessionReleased');
  });

  it('drains a worker: the session that it holds ends there, the next one begins elsewhere', async () => {
    const fleet = await create([{ name: 'w1' }, { name: 'w2' }]);
    const held = await start('holder');
    await fleet.session({ workflowId: held.workflowId });
    expect(await refusal(fleet.worker('w1').drain({ timeout: '50ms' }))).toMatchObject({
      code: 'WaitTimeout',
      message: expect.stringContaining(`of ${held.workflowId}`) as string,
    });
    expect(fleet.worker('w1').state).toBe('cordoned');
    const drained = fleet.worker('w1').drain();
    expect(await (await start('sequence')).result()).toMatchObject({ worker: 'w2' });
    await held.signal('finish');
    expect(await held.result()).toEqual({ worker: 'w1', attempt: 1 });
    await drained;
    // Equally empty, and the first: it would be chosen if it were not drained.
    expect(await (await start('sequence')).result()).toMatchObject({ worker: 'w2' });
    await fleet.worker('w1').uncordon();
    expect(await (await start('sequence')).result()).toMatchObject({ worker: 'w1' });
  });

  it('keeps caps and capabilities, for sessions and for pooled activities', async () => {
    const fleet = await create([{ name: 'plain' }, { name: 'gpu', capabilities: ['gpu'], maxSessions: 1 }]);
    const session = { capabilities: ['gpu'] };
    const first = await start('holder', { session });
    await fleet.session({ workflowId: first.workflowId });
    const second = await start('holder', { session });
    await eventually(async () => (await activitiesOf(second)).length > 0, { what: 'the second asks for a session' });
    expect(await refusal(fleet.session({ workflowId: second.workflowId, timeout: '1s' }))).toMatchObject({
      code: 'WaitTimeout',
      message: expect.stringMatching(
        /it asks for one, and the workers are plain open with 0 of 4 sessions, gpu \(gpu\) open with 1 of 1 sessions\.$/,
      ) as string,
    });
    await first.signal('finish');
    await fleet.session({ workflowId: second.workflowId });
    await second.signal('finish');
    for (const handle of [first, second]) expect(await handle.result()).toEqual({ worker: 'gpu', attempt: 1 });

    expect(await (await start('pooledCall', { capabilities: ['gpu'] })).result()).toBe('gpu');
    expect(await (await start('workerCall')).result()).toBe('plain');
    expect(fleet.calls.map(({ kind, worker, session: id }) => [kind, worker, id])).toEqual([
      ['pooled', 'gpu', null],
      ['worker', 'plain', null],
    ]);
  });

  it('lets a session go on in the next run, and reports progress', async () => {
    const state = new Map<string, string>();
    await create([{ name: 'w1' }, { name: 'w2' }], {
      activities: {
        where,
        put: (text: string) => {
          progress({ done: 1, unit: 'texts' });
          state.set(currentSession().scratchDirectory, text);
        },
        get: () => state.get(currentSession().scratchDirectory),
      },
    });
    const places = (await (await start('relay')).result()) as { worker: string; state: string; attempt: number }[];
    expect(places).toHaveLength(3);
    for (const place of places) expect(place).toMatchObject({ worker: 'w1', state: 'by the first run', attempt: 1 });
  });

  it('says what is wrong with what it is given', async () => {
    const refused = (workers: readonly TestWorkerOptions[], options: Partial<TestFleetOptions> = {}) =>
      refusal(create(workers, options));
    expect((await refused([])).message).toBe('A test fleet needs at least one worker.');
    expect((await refused([{ name: 'w1' }, { name: 'w1' }])).message).toContain('Two workers');
    expect((await refused([{ name: 'W 1' }])).code).toBe('NameInvalid');
    expect((await refused([{ name: 'w1', maxSessions: 0 }])).message).toContain('a whole number from 1');
    expect((await refused([{ name: 'w1' }], { activities: {} })).message).toContain('has no activities');
    const fleet = await create([{ name: 'w1' }]);
    expect(() => fleet.worker('w3')).toThrow('has no worker "w3"');
    expect(await refusal(fleet.session({ workflowId: uniqueId('none'), timeout: '50ms' }))).toMatchObject({
      code: 'WaitTimeout',
      message: expect.stringContaining('no workflow of this id has been started') as string,
    });
    const done = await start('pooledCall', {});
    await done.result();
    expect(await refusal(fleet.session({ workflowId: done.workflowId }))).toMatchObject({ code: 'NotFound' });
    const missing = await start('one', { activity: 'encode' });
    await expect(missing.result()).rejects.toMatchObject({
      cause: { cause: { message: expect.stringContaining('has no activity "encode"; it has where, hold') as string } },
    });
  });

  it('leaves nothing behind', async () => {
    // Of its own: other files of the suite have fleets of this kind, too.
    const temporary = await mkdtemp(join(tmpdir(), 'at-'));
    vi.stubEnv('TMPDIR', temporary);
    onTestFinished(async () => {
      vi.unstubAllEnvs();
      await rm(temporary, { recursive: true });
    });
    const before = await fleetDirectories();
    const timerCount = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const timersBefore = timerCount();
    const fleet = await create([{ name: 'w1', capabilities: ['gpu'] }, { name: 'w2' }]);
    const handle = await start('one', { activity: 'hold', args: [FOREVER_MS] });
    await fleet.session({ workflowId: handle.workflowId });
    await soon(() => steps(handle)).toHaveLength(1);
    const waiting = refusal(fleet.session({ workflowId: uniqueId('none') }));
    expect(await fleetDirectories()).toHaveLength(before.length + 1);
    const closedAtMs = performance.now();
    await fleet.close();
    await fleet.close();
    // It does not wait for what runs, which would take an hour.
    expect(performance.now() - closedAtMs).toBeLessThan(30_000);
    expect(await waiting).toMatchObject({ code: 'Interrupted' });
    expect(await fleetDirectories()).toEqual(before);
    expect(fleet.calls).toMatchObject([{ outcome: 'lost' }]);
    // The calls of this test have timers of their own, until they are answered.
    await eventually(() => Promise.resolve(timerCount() <= timersBefore), { what: 'its timers are gone' });
    await handle.terminate('the test is over');
  });
});

describe('the example of a test', () => {
  it('passes under node --test', async () => {
    const path = fileURLToPath(new URL('../../examples/testing/clip.test.js', import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, ['--test', '--test-reporter=tap', path], {
      env: temporalEnvironment(),
      timeout: 200_000,
    });
    expect(stdout).toMatch(/^# pass 2$/m);
    expect(stdout).toMatch(/^# fail 0$/m);
  });
});
