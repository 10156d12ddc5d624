/**
 * What a session promises, under faults that are real: processes that die, owners that end, expiry, hand-over. Read
 * from the server's histories and from the hosts' file systems, never from Atlas's own logs.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import {
  eventually,
  runWorkflow,
  sessionsOf,
  startWorker,
  startWorkflow,
  untilScratchIsEmpty,
  workersOf,
} from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { historyOf } from '../support/history.js';
import {
  codeOf,
  linesOf,
  measured,
  PATIENT_MS,
  secondGrantAtMs,
  SLOW,
  untilAllFree,
  untilLine,
} from '../support/promises.js';
import { useClient } from '../support/server.js';

describe('a worker that dies', () => {
  const client = useClient();

  it('is missed by its presence: the session is redone long before its lease times out', SLOW, async () => {
    const fleet = uniqueFleet();
    const dead = await startWorker({ fleet, name: 'dead' });
    const log = join(await temporaryDirectory(), 'log');
    // The lease alone would tell after minutes.
    const session = { leaseTtl: '10m' };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: 300_000 });
    await untilLine(log, '1:middle');
    await startWorker({ fleet, name: 'other' });
    await eventually(
      async () => (await sessionsOf(client(), fleet)).some(({ workflowId }) => workflowId === handle.workflowId),
      { what: 'the session is listed' },
    );
    const killedAtMs = Date.now();
    await dead.killAll();
    expect(await untilLine(log, '2:first')).toMatchObject({ worker: 'other' });
    const tookMs = (await secondGrantAtMs(client(), handle)) - killedAtMs;
    measured('kill -9 to the grant of the redo, presence TTL 6 s', tookMs);
    expect(tookMs).toBeLessThan(PATIENT_MS);
    const [lease] = (await historyOf(client(), handle.workflowId)).activities;
    expect(lease).toMatchObject({ type: 'atlas:acquireWorker', outcome: 'open' });
    await handle.terminate();
  });
});

describe('continue as new', () => {
  const client = useClient();

  it('hands the session over: the same worker, scratch and remaining duration', SLOW, async () => {
    const fleet = uniqueFleet();
    for (const name of ['a', 'b']) await startWorker({ fleet, name });
    const seen = await runWorkflow<{ worker: string; scratch: string; state: string; expiresAtMs: number }[]>(
      client(),
      fleet,
      'relay',
    );
    expect(seen).toHaveLength(3);
    expect(new Set(seen.map(({ worker }) => worker)).size).toBe(1);
    expect(new Set(seen.map(({ scratch }) => scratch)).size).toBe(1);
    expect(new Set(seen.map(({ expiresAtMs }) => expiresAtMs)).size).toBe(1);
    expect(seen.map(({ state }) => state)).toEqual(Array(3).fill('by the first run'));
    await untilAllFree(client(), fleet);
    expect(existsSync(seen[0]!.scratch)).toBe(false);
  });

  it('keeps the remaining duration, and expires in a later run', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const session = { maxDuration: '6s' };
    const code = await codeOf(runWorkflow(client(), fleet, 'relay', { session, runs: 1_000 }));
    expect(code).toBe('SessionExpired');
    await untilAllFree(client(), fleet);
  });

  it('without adopting frees the slot within the bound of the hand-over', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'relay', { forget: true });
    const first = await eventually(
      async () => {
        const { status } = await handle.describe();
        const history = await historyOf(client(), handle.workflowId, handle.firstExecutionRunId);
        return status.name === 'RUNNING' && history.status === 'CONTINUED_AS_NEW' ? history : undefined;
      },
      { what: 'the second run', timeoutMs: PATIENT_MS },
    );
    // The list of the worker is a little behind: a slot that is not on it yet is not free.
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session is listed' });
    await untilAllFree(client(), fleet);
    const tookMs = Date.now() - first.closedAtMs!;
    measured('continue-as-new without adoption to the free slot', tookMs);
    // The hand-over bound of 15 s, and the interval of the owner check; twice that for a machine that is busy.
    expect(tookMs).toBeLessThan(70_000);
    expect(tookMs).toBeGreaterThan(10_000);
    await handle.terminate();
  });
});

describe('a session', () => {
  const client = useClient();

  it('is refused beside or within another of its workflow, unless allowed', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet });
    const allowed = { allowConcurrentSessions: true };
    expect(await codeOf(runWorkflow(client(), fleet, 'nested'))).toBe('SessionNested');
    expect(await codeOf(runWorkflow(client(), fleet, 'sideBySide'))).toBe('SessionNested');
    const pair = await runWorkflow<{ session: string }[]>(client(), fleet, 'nested', { inner: allowed });
    expect(new Set(pair.map(({ session }) => session)).size).toBe(2);
    expect(await runWorkflow(client(), fleet, 'sideBySide', { session: allowed })).toHaveLength(2);
    await untilAllFree(client(), fleet);
  });

  it.each([{ idleTimeout: '2s' }, { maxDuration: '4s' }])(
    'expires by %j, and its slot is free',
    SLOW,
    async (session) => {
      const fleet = uniqueFleet();
      await startWorker({ fleet, args: ['--max-sessions', '1'] });
      expect(await codeOf(runWorkflow(client(), fleet, 'idler', { session }))).toBe('SessionExpired');
      expect(await runWorkflow(client(), fleet, 'sequence', {})).toMatchObject({ attempt: 1 });
      await untilAllFree(client(), fleet);
    },
  );

  it('is acquired again at most maxReacquisitions times', SLOW, async () => {
    const fleet = uniqueFleet();
    const args = ['--presence-ttl', '4s'];
    // It runs the workflow, and takes no session of this capability set.
    await startWorker({ fleet, name: 'plain', args });
    const workers = new Map<string, Atlasd>();
    for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name, capabilities: ['x'], args }));
    const session = { capabilities: ['x'], recoveryWindow: '4s', maxReacquisitions: 1, acquireTimeout: '1 minute' };
    const handle = await startWorkflow(client(), fleet, 'holder', { session });
    for (const count of [1, 2]) {
      const held = await eventually(
        async () => (await sessionsOf(client(), fleet)).find(({ worker }) => workers.has(worker)),
        { what: `session ${count}`, timeoutMs: PATIENT_MS },
      );
      await workers.get(held.worker)!.killAll();
      workers.delete(held.worker);
    }
    expect(await codeOf(handle.result())).toBe('SessionReacquisitionsExhausted');
  });

  it('of a terminated owner is freed by the owner check, and never while the old activity runs', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const log = join(await temporaryDirectory(), 'log');
    // Its renewals alone would tell after minutes.
    const idle = await startWorkflow(client(), fleet, 'holder', { session: { leaseTtl: '30m' } });
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session' });
    const terminatedAtMs = Date.now();
    await idle.terminate();
    const next = await startWorkflow(client(), fleet, 'writer', { log, ms: 6_000, mode: 'stubborn' });
    const granted = await untilLine(log, '1:middle');
    measured('terminated to the next effect in its slot', granted.atMs - terminatedAtMs);
    expect(granted.atMs - terminatedAtMs).toBeLessThan(PATIENT_MS);

    await next.terminate();
    const stolen = join(await temporaryDirectory(), 'log');
    const after = await startWorkflow(client(), fleet, 'writer', { log: stolen });
    await after.result();
    const [first] = await linesOf(stolen);
    const last = (await linesOf(log)).at(-1)!;
    expect(last.label).toBe('1:middle');
    expect(first!.atMs).toBeGreaterThanOrEqual(last.atMs);
    await untilAllFree(client(), fleet);
  });

  it('survives a reset of its workflow to any point, and leaks no slot', { timeout: 300_000 }, async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, args: ['--max-sessions', '2'] });
    const original = await startWorkflow(client(), fleet, 'sequence', {});
    await original.result();
    const { resetPoints, runId } = await historyOf(client(), original.workflowId);
    expect(resetPoints.length).toBeGreaterThan(4);
    const reset = async (from: string, point: number) => {
      const { runId: newRun } = await client().workflowService.resetWorkflowExecution({
        namespace: 'default',
        workflowExecution: { workflowId: original.workflowId, runId: from },
        workflowTaskFinishEventId: point as never,
        requestId: `${from}-${point}`,
        reason: 'test',
      });
      return client().workflow.getHandle(original.workflowId, newRun);
    };
    for (const point of resetPoints) {
      const again = await reset(runId, point);
      expect(await again.result(), `reset to event ${point}`).toMatchObject({ worker: 'worker-1' });
    }
    // And of a run that is still at work, while its session is held.
    for (const index of [0, 1, 2, 3]) {
      const running = await startWorkflow(client(), fleet, 'sequence', { holdMs: 4_000 });
      const history = await eventually(
        async () => {
          const now = await historyOf(client(), running.workflowId);
          return now.resetPoints.length > index + 1 ? now : undefined;
        },
        { what: 'reset points' },
      );
      const { runId: newRun } = await client().workflowService.resetWorkflowExecution({
        namespace: 'default',
        workflowExecution: { workflowId: running.workflowId, runId: history.runId },
        workflowTaskFinishEventId: history.resetPoints[index] as never,
        requestId: `${history.runId}-${index}`,
        reason: 'test',
      });
      const result = await client().workflow.getHandle(running.workflowId, newRun).result();
      expect(result, `reset of a running one, ${index}`).toMatchObject({ worker: 'worker-1' });
    }
    await untilAllFree(client(), fleet);
    await untilScratchIsEmpty(worker);
  });

  it('of a worker whose executor ends again and again is redone elsewhere', SLOW, async () => {
    const fleet = uniqueFleet();
    for (const name of ['broken', 'sound']) await startWorker({ fleet, name });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'one', {
      // By name, since the other one is there already: it must not start only when the broken one is well again.
      session: { prefer: 'broken', preferFor: '2m' },
      activity: 'crashOn',
      args: ['broken', log],
      options: { heartbeatTimeout: '100s', retry: { initialInterval: 50, backoffCoefficient: 1 } },
    });
    expect(await handle.result()).toBe('sound');
    const states = new Map((await workersOf(client(), fleet)).map(({ name, state }) => [name, state]));
    expect(states.get('broken')).toBe('degraded');
    const { grants } = await historyOf(client(), handle.workflowId);
    expect(new Set(grants.map(({ worker }) => worker))).toEqual(new Set(['broken', 'sound']));
  });
});
