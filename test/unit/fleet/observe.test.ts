/** The read path with a server that is only its two calls: pages, what is decoded, bounds, and an exhausted server. */
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Client } from '@temporalio/client';
import { defaultDataConverter, defaultPayloadConverter } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import {
  PRESENCE_ACTIVITY,
  type PresenceSnapshot,
  WORKER_MEMO_KEY,
  type WorkerIdentity,
  type WorkerMemo,
} from '../../../src/contract/fleet.js';
import { FleetView } from '../../../src/fleet/observe.js';

const PAGE = 10;
const STARTED_AT_MS = 1_700_000_000_000;

function identity(name: string): WorkerIdentity {
  return {
    name,
    instance: 'k3f9',
    nonce: 'n1',
    fleet: 'atlas',
    queue: `atlas-${name}.k3f9`,
    controlQueue: `atlas-${name}.k3f9:control`,
    capabilities: ['ocr'],
    maxSessions: 4,
    version: '0.1.0',
    host: 'host-1',
    pid: 4242,
    machineId: 'm1',
    bootId: 'b1',
    presenceTtlMs: 6_000,
    startedAtMs: STARTED_AT_MS,
  };
}

function snapshot(): PresenceSnapshot {
  return {
    v: 1,
    sentAtMs: Date.now(),
    stopping: false,
    sessions: [
      {
        session: 's1',
        epoch: 2,
        state: 'held',
        workflowId: 'document-1',
        runId: 'run-1',
        workflowType: 'processDocument',
        capabilities: [],
        grantedAtMs: STARTED_AT_MS,
        expiresAtMs: STARTED_AT_MS + 1,
        attempts: [],
      },
    ],
    slots: { used: 1, cap: 4 },
    executor: { state: 'ready', pid: 1, incarnation: 'x1', restarts: 0 },
    disk: null,
    load1: 0.5,
  };
}

interface FakeServer {
  readonly client: Client;
  readonly calls: { lists: number; describes: number; atOnce: number };
}

/** A server that knows `count` workers and answers a describe with `answer`, after a turn of the event loop. */
function fakeServer(count: number, answer: (workflowId: string) => unknown): FakeServer {
  const calls = { lists: 0, describes: 0, atOnce: 0 };
  let open = 0;
  const service = {
    listWorkflowExecutions: ({ nextPageToken }: { nextPageToken: Uint8Array }) => {
      calls.lists += 1;
      const start = nextPageToken[0] ?? 0;
      const end = Math.min(count, start + PAGE);
      const executions = Array.from({ length: end - start }, (_, index) => ({
        execution: { workflowId: `worker-${start + index + 1}`, runId: 'r1' },
      }));
      return Promise.resolve({ executions, nextPageToken: end < count ? Uint8Array.of(end) : new Uint8Array() });
    },
    describeWorkflowExecution: async ({ execution }: { execution: { workflowId: string } }) => {
      calls.describes += 1;
      open += 1;
      calls.atOnce = Math.max(calls.atOnce, open);
      await new Promise((resolve) => setImmediate(resolve));
      try {
        return await answer(execution.workflowId);
      } finally {
        open -= 1;
      }
    },
  };
  const client = {
    options: { namespace: 'default', loadedDataConverter: { ...defaultDataConverter, payloadCodecs: [] } },
    workflowService: service,
    withDeadline: (_: number, call: () => unknown) => call(),
  };
  return { client: client as unknown as Client, calls };
}

function described(name: string): object {
  const memo: WorkerMemo = { state: 'ready', identity: identity(name), changedAtMs: STARTED_AT_MS };
  return {
    workflowExecutionInfo: { memo: { fields: { [WORKER_MEMO_KEY]: defaultPayloadConverter.toPayload(memo) } } },
    pendingActivities: [
      {
        activityType: { name: PRESENCE_ACTIVITY },
        lastHeartbeatTime: { seconds: Math.floor(Date.now() / 1_000), nanos: 0 },
        heartbeatDetails: { payloads: [defaultPayloadConverter.toPayload(snapshot())] },
      },
    ],
  };
}

describe('a look at a fleet', () => {
  it('reads all pages, and sorts workers by name with numbers as numbers', async () => {
    const { client, calls } = fakeServer(25, described);
    const workers = await new FleetView(client, 'atlas').listWorkers();
    expect(workers.map(({ name }) => name)).toEqual(Array.from({ length: 25 }, (_, index) => `worker-${index + 1}`));
    expect(workers[0]).toMatchObject({ state: 'ready', sessions: 1, cap: 4, load1: 0.5, capabilities: ['ocr'] });
    expect(calls).toMatchObject({ lists: 3, describes: 25 });
  });

  it('leaves out a worker whose first registration has not been handled', async () => {
    const { client } = fakeServer(3, (name) =>
      name === 'worker-2' ? { workflowExecutionInfo: { memo: null }, pendingActivities: [] } : described(name),
    );
    const sessions = await new FleetView(client, 'atlas').listSessions();
    expect(sessions.map(({ worker }) => worker)).toEqual(['worker-1', 'worker-3']);
  });

  it('asks for no more workers at once than it may', async () => {
    // The first answers wait until five calls are open, since calls are spread over time too.
    let opened = (): void => undefined;
    const five = new Promise<void>((resolve) => (opened = resolve));
    const { client, calls } = fakeServer(40, async (name) => {
      if (calls.describes >= 5) opened();
      await five;
      return described(name);
    });
    await new FleetView(client, 'atlas', 5).listWorkers();
    expect(calls.atOnce).toBe(5);
  });

  it('asks no faster than the rate allows', async () => {
    const { client } = fakeServer(240, described);
    const startMs = performance.now();
    await new FleetView(client, 'atlas').listWorkers();
    // 1,200 a second; the first turn is free, and timers may be early by a fraction of a millisecond.
    expect(performance.now() - startMs).toBeGreaterThan(190);
  });

  it('says that the server is exhausted, and asks nothing more', async () => {
    const { client, calls } = fakeServer(200, () => {
      throw Object.assign(new Error('8 RESOURCE_EXHAUSTED'), { code: 8, details: 'namespace rate limit exceeded' });
    });
    const error: unknown = await new FleetView(client, 'atlas', 5).listWorkers().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(AtlasError);
    expect(error).toMatchObject({ code: 'ServerUnreachable' });
    expect((error as Error).message).toContain('namespace rate limit exceeded');
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(calls.describes).toBeLessThanOrEqual(5);
  });

  it('finds in its history what a worker held whose presence has timed out, before its workflow has noted it', async () => {
    const details = { payloads: [defaultPayloadConverter.toPayload(snapshot())] };
    const { client } = fakeServer(1, (name) => ({ ...described(name), pendingActivities: [] }));
    Object.assign(client.workflowService, {
      getWorkflowExecutionHistoryReverse: () =>
        Promise.resolve({
          history: {
            events: [
              { eventType: 5 },
              {
                activityTaskTimedOutEventAttributes: {
                  failure: { timeoutFailureInfo: { lastHeartbeatDetails: details } },
                },
              },
            ],
          },
        }),
    });
    const view = new FleetView(client, 'atlas');
    expect(await view.listSessions()).toMatchObject([{ session: 's1', worker: 'worker-1', workerState: 'lost' }]);
    expect(await view.listWorkers()).toMatchObject([{ state: 'lost', sessions: 1 }]);
  });

  it('passes any other error on', async () => {
    const failure = Object.assign(new Error('14 UNAVAILABLE'), { code: 14 });
    const { client } = fakeServer(1, () => {
      throw failure;
    });
    await expect(new FleetView(client, 'atlas').listWorkers()).rejects.toBe(failure);
  });
});

describe('a command that lists', () => {
  it("loads nothing of Temporal's before it connects, so that nothing of it is loaded as a module", () => {
    const list = fileURLToPath(new URL('../../../dist/commands/support/list.js', import.meta.url));
    const program = `await import(${JSON.stringify(list)});
      const { createRequire } = await import('node:module');
      const loaded = Object.keys(createRequire(${JSON.stringify(list)}).cache);
      console.log(JSON.stringify(loaded.filter((path) => path.includes('@temporalio'))));`;
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
    expect(JSON.parse(output)).toEqual([]);
  });
});
