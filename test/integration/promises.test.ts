/**
 * What a session promises, under faults that are real: processes killed and frozen, a server that is away, a link that is
 * cut. Read from the server's histories and from the hosts' file systems, never from Atlas's own logs.
 */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { WorkflowFailedError } from '@temporalio/client';
import { afterEach, describe, expect, it } from 'vitest';
import { findError } from '../../src/contract/errors.js';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, runWorkflow, sessionsOf, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { historyOf } from '../support/history.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { connectTestClient, startPrivateServer, temporalAddress, useClient } from '../support/server.js';

/** A guard against hanging on a busy machine; what is bounded says so itself. */
const SLOW = { timeout: 170_000 };
const PATIENT_MS = 90_000;

interface Line {
  readonly label: string;
  readonly what: 'begin' | 'tick' | 'end';
  readonly worker: string;
  readonly pid: number;
  readonly session: string;
  readonly token: number;
  readonly attempt: number;
  readonly atMs: number;
}

async function linesOf(log: string): Promise<Line[]> {
  const text = await readFile(log, 'utf8').catch(() => '');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

const labelsOf = (lines: readonly Line[], what: Line['what']): string[] =>
  lines.filter((line) => line.what === what).map(({ label }) => label);

async function untilLine(log: string, label: string): Promise<Line> {
  return await eventually(async () => (await linesOf(log)).find((line) => line.label === label), {
    what: `a line of ${label}`,
    timeoutMs: PATIENT_MS,
  });
}

async function codeOf(result: Promise<unknown>): Promise<string> {
  const error: unknown = await result.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WorkflowFailedError);
  return findError(error)?.code ?? `not of the catalogue: ${String((error as Error).cause)}`;
}

async function untilAllFree(client: Client, fleet: string, timeoutMs = PATIENT_MS): Promise<void> {
  await eventually(
    async () => {
      const workers = await workersOf(client, fleet);
      return workers.filter(({ state }) => state === 'ready').every(({ sessions }) => sessions === 0);
    },
    { what: 'all slots free', timeoutMs },
  );
}

function measured(what: string, ms: number): void {
  console.log(`measured: ${what}: ${(ms / 1_000).toFixed(1)} s`);
}

/** When the second grant of a run came, by the server's clock. */
async function secondGrantAtMs(client: Client, handle: WorkflowHandle): Promise<number> {
  const { grants } = await historyOf(client, handle.workflowId);
  const ids = [...new Set(grants.map(({ grantId }) => grantId))];
  expect(ids).toHaveLength(2);
  return grants.find(({ grantId }) => grantId === ids[1])!.atMs;
}

describe('a worker that dies', () => {
  const client = useClient();

  it('is missed by its presence: the session is redone long before its lease times out', SLOW, async () => {
    const fleet = uniqueFleet();
    const dead = await startWorker({ fleet, name: 'dead' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'writer', { log, ms: 100_000 });
    await untilLine(log, '1:middle');
    await startWorker({ fleet, name: 'other' });
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session is listed' });
    const killedAtMs = Date.now();
    await dead.killAll();
    expect(await untilLine(log, '2:first')).toMatchObject({ worker: 'other' });
    const tookMs = (await secondGrantAtMs(client(), handle)) - killedAtMs;
    measured('kill -9 to the grant of the redo, presence TTL 6 s', tookMs);
    expect(tookMs).toBeLessThan(20_000);
    await handle.terminate();
  });
});

describe('an outage of Temporal', () => {
  const stops: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  async function privateServer() {
    const dbFilename = join(await temporaryDirectory(), 'temporal.db');
    let server = await startPrivateServer({ dbFilename });
    const { address } = server;
    const port = Number(address.split(':').at(-1));
    stops.push(() => server.stop());
    const connected = await connectTestClient(address);
    stops.push(() => connected.close());
    return {
      address,
      client: connected.client,
      stop: () => server.stop(),
      async start() {
        server = await startPrivateServer({ dbFilename, port });
      },
    };
  }

  it('longer than lease TTL and window redoes nothing: the session is adopted', SLOW, async () => {
    const server = await privateServer();
    const fleet = uniqueFleet();
    const proxy = await startProxy(server.address);
    const worker = await startWorker({ fleet, name: 'a', address: proxy.address });
    const log = join(await temporaryDirectory(), 'log');
    const session = { leaseTtl: '2s', recoveryWindow: '5s' };
    const handle = await startWorkflow(server.client, fleet, 'writer', { session, log, wait: true });
    await eventually(async () => labelsOf(await linesOf(log), 'end').includes('1:first'), { what: 'the first step' });
    // Its end is known to the server too, so that the outage falls into the wait.
    await eventually(
      async () =>
        (await historyOf(server.client, handle.workflowId)).activities.some(
          ({ type, outcome }) => type === 'write' && outcome === 'completed',
        ),
      { what: 'the first step in the history' },
    );
    // Its link stays cut until the server has timed the lease out: a renewal that comes first would leave nothing to adopt.
    proxy.cut();
    await server.stop();
    await new Promise((resolve) => setTimeout(resolve, 9_000));
    await server.start();
    await eventually(
      async () => (await historyOf(server.client, handle.workflowId)).activities[0]?.outcome === 'timed-out',
      { what: 'the end of the lease', timeoutMs: PATIENT_MS },
    );
    proxy.heal();
    const healedAtMs = Date.now();
    await eventually(
      async () =>
        (await historyOf(server.client, handle.workflowId)).activities.some(
          ({ type }) => type === 'atlas:adoptSession',
        ),
      { what: 'the adoption', timeoutMs: PATIENT_MS },
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${worker.transcript()}`);
    });
    measured('server back and lease timed out to the adoption', Date.now() - healedAtMs);
    await handle.signal('resume');
    expect(await handle.result()).toEqual({ attempt: 1, worker: 'a' });
    expect(labelsOf(await linesOf(log), 'begin')).toEqual(['1:first', '1:middle', '1:last']);
    const { activities } = await historyOf(server.client, handle.workflowId);
    expect(activities.filter(({ type }) => type === 'atlas:acquireWorker')).toHaveLength(1);
    await untilAllFree(server.client, fleet);
  });

  it('does not repeat a step that finishes meanwhile', SLOW, async () => {
    const server = await privateServer();
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'a', address: server.address });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(server.client, fleet, 'writer', { log, ms: 1_500 });
    await untilLine(log, '1:middle');
    await server.stop();
    // Longer than the ten seconds for which Core tries to report the result.
    await new Promise((resolve) => setTimeout(resolve, 13_000));
    expect(labelsOf(await linesOf(log), 'end')).toEqual(['1:first', '1:middle']);
    await server.start();
    expect(await handle.result()).toEqual({ attempt: 1, worker: 'a' });
    expect(labelsOf(await linesOf(log), 'begin')).toEqual(['1:first', '1:middle', '1:last']);
    await untilAllFree(server.client, fleet);
  });
});

describe('a worker that can not be heard', () => {
  const client = useClient();
  const args = ['--presence-ttl', '2s'];

  interface Partition {
    readonly begin: (proxy: Proxy, worker: Atlasd) => void;
    readonly end: (proxy: Proxy, worker: Atlasd) => void;
  }

  const cut: Partition = {
    begin: (proxy) => {
      proxy.cut();
    },
    end: (proxy) => {
      proxy.heal();
    },
  };
  const halfOpen: Partition = { ...cut, begin: (proxy) => { proxy.halfOpen(); } }; // prettier-ignore
  const frozenSupervisor: Partition = {
    begin: (_, worker) => {
      worker.signal('SIGSTOP');
    },
    end: (_, worker) => {
      worker.signal('SIGCONT');
    },
  };

  it.each([
    { what: 'a cut link, an activity that obeys', fault: cut, mode: 'obedient' },
    { what: 'a cut link, an activity that ignores its cancellation', fault: cut, mode: 'stubborn' },
    { what: 'a cut link, an activity that keeps the event loop busy', fault: cut, mode: 'busy' },
    { what: 'a half-open link, an activity that ignores its cancellation', fault: halfOpen, mode: 'stubborn' },
    { what: 'a frozen supervisor, an activity that keeps the event loop busy', fault: frozenSupervisor, mode: 'busy' },
    { what: 'a frozen supervisor, an activity that obeys', fault: frozenSupervisor, mode: 'obedient' },
  ])('has ended its activity before the session is redone: $what', SLOW, async ({ what, fault, mode }) => {
    const fleet = uniqueFleet();
    const proxy = await startProxy(temporalAddress());
    const away = await startWorker({ fleet, name: 'away', address: proxy.address, args });
    const log = join(await temporaryDirectory(), 'log');
    // It would write for much longer than everything here takes, were it not ended.
    // A poll that is not really there may swallow the acquisition of the redo, which then waits for the lease TTL.
    const session = { recoveryWindow: '5s', ...(fault === cut ? {} : { leaseTtl: '10s' }) };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: 100_000, mode });
    await startWorker({ fleet, name: 'other', args });
    await untilLine(log, '1:middle');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session is listed' });
    const faultAtMs = Date.now();
    fault.begin(proxy, away);
    const redo = await untilLine(log, '2:first');
    measured(`fault to the first effect of the redo, presence TTL 2 s (${what})`, redo.atMs - faultAtMs);
    await untilLine(log, '2:middle');
    fault.end(proxy, away);
    // What was on its way while the link was away must not start anything now.
    await away.event('returned', () => true, { timeoutMs: PATIENT_MS });
    await handle.terminate();
    const lines = await linesOf(log);
    const redone = lines.findIndex(({ label }) => label.startsWith('2:'));
    expect(lines.slice(redone).filter(({ label }) => label.startsWith('1:'))).toEqual([]);
    const lastOld = lines.slice(0, redone).at(-1)!;
    measured(`last effect of the old attempt before the first of the redo (${what})`, redo.atMs - lastOld.atMs);
    expect(lines.slice(redone).every(({ worker }) => worker === 'other')).toBe(true);
    await untilAllFree(client(), fleet);
  });

  it('keeps its session when the link is only slow', SLOW, async () => {
    const fleet = uniqueFleet();
    const proxy = await startProxy(temporalAddress());
    await startWorker({ fleet, name: 'slow', address: proxy.address, args });
    await startWorker({ fleet, name: 'other', args });
    const log = join(await temporaryDirectory(), 'log');
    proxy.slow(200);
    const result = await runWorkflow(client(), fleet, 'writer', { log, ms: 4_000, session: { leaseTtl: '4s' } });
    expect(result).toMatchObject({ attempt: 1 });
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
    await untilAllFree(client(), fleet);
    const tookMs = Date.now() - first.closedAtMs!;
    measured('continue-as-new without adoption to the free slot', tookMs);
    // The hand-over bound of 15 s, and the interval of the owner check.
    expect(tookMs).toBeLessThan(35_000);
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
    const args = ['--presence-ttl', '1s'];
    // It runs the workflow, and takes no session of this capability set.
    await startWorker({ fleet, name: 'plain', args });
    const workers = new Map<string, Atlasd>();
    for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name, capabilities: ['x'], args }));
    const session = { capabilities: ['x'], recoveryWindow: '2s', maxReacquisitions: 1, acquireTimeout: '1 minute' };
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
    const idle = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session' });
    const terminatedAtMs = Date.now();
    await idle.terminate();
    const next = await startWorkflow(client(), fleet, 'writer', { log, ms: 6_000, mode: 'stubborn' });
    const granted = await untilLine(log, '1:middle');
    measured('terminated to the next effect in its slot', granted.atMs - terminatedAtMs);
    expect(granted.atMs - terminatedAtMs).toBeLessThan(15_000);

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
    expect(await readdir(join(worker.stateDirectory, 'scratch'))).toEqual([]);
  });

  it('of a worker whose executor ends again and again is redone elsewhere', SLOW, async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'broken' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'one', {
      activity: 'crashOn',
      args: ['broken', log],
      options: { heartbeatTimeout: '100s', retry: { initialInterval: 50, backoffCoefficient: 1 } },
    });
    await eventually(async () => existsSync(log), { what: 'the first crash' });
    await startWorker({ fleet, name: 'sound' });
    expect(await handle.result()).toBe('sound');
    const states = new Map((await workersOf(client(), fleet)).map(({ name, state }) => [name, state]));
    expect(states.get('broken')).toBe('degraded');
    const { grants } = await historyOf(client(), handle.workflowId);
    expect(new Set(grants.map(({ worker }) => worker))).toEqual(new Set(['broken', 'sound']));
  });
});
