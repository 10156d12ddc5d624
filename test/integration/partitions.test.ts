/**
 * What a session promises, under faults that are real: a link that is cut, half-open or slow, and processes that
 * are frozen. Read from the server's histories and from the hosts' file systems, never from Atlas's own logs.
 */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { eventually, runWorkflow, sessionsOf, startWorker, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { linesOf, measured, PATIENT_MS, SLOW, untilAllFree, untilLine } from '../support/promises.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { temporalAddress, useClient } from '../support/server.js';

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
    const session = { recoveryWindow: '5s' };
    const handle = await startWorkflow(client(), fleet, 'writer', { session, log, ms: 100_000, mode });
    await startWorker({ fleet, name: 'other', args });
    await untilLine(log, '1:middle');
    await eventually(
      async () => (await sessionsOf(client(), fleet)).some(({ workflowId }) => workflowId === handle.workflowId),
      { what: 'the session is listed' },
    );
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
    // The other one waits half a minute for an activity that ignores its cancellation.
    await untilAllFree(client(), fleet, 'away');
  });

  it('keeps its session when the link is only slow', SLOW, async () => {
    const fleet = uniqueFleet();
    const proxy = await startProxy(temporalAddress());
    // The other one runs the workflow, and has not the capability that the session asks for.
    await startWorker({ fleet, name: 'slow', address: proxy.address, capabilities: ['far'], args });
    await startWorker({ fleet, name: 'other', args });
    const log = join(await temporaryDirectory(), 'log');
    proxy.slow(200);
    const session = { capabilities: ['far'], leaseTtl: '4s' };
    const result = await runWorkflow(client(), fleet, 'writer', { log, ms: 4_000, session });
    expect(result).toMatchObject({ attempt: 1, worker: 'slow' });
  });
});
