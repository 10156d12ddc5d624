/**
 * Records one history per scenario, on a real server with real workers: `npm run record:histories`, once per release.
 * What is stored is replayed for ever by `replay.test.ts`; a history of an older version is never recorded again.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, it } from 'vitest';
import { PROCESS_DOCUMENT_WORKFLOW } from '../../src/contract/document.js';
import { workerWorkflowId } from '../../src/contract/names.js';
import { VERSION } from '../../src/contract/version.js';
import { spawnAtlasd, temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { FleetClient } from '../../src/fleet/client.js';
import { eventually, restartWorker, sessionsOf, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { makePdf } from '../support/pdf.js';
import { useClient } from '../support/server.js';
import { neutralHistory, storeHistory, stringsOf, toJson, type Neutral, type Suite } from './histories.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PRESENCE = ['--presence-ttl', '2s'];

/** Stores the history, or says what of this machine is left in it. */
async function store(
  suite: Suite,
  scenario: string,
  handle: WorkflowHandle,
  workers: readonly Atlasd[],
  neutral: Neutral = {},
): Promise<void> {
  const places: Record<string, string> = { ...neutral };
  workers.forEach(({ stateDirectory }, index) => {
    places[stateDirectory] = `/var/lib/atlas/state-${index + 1}`;
  });
  const history = neutralHistory(toJson(await handle.fetchHistory()), places);
  const left = stringsOf(history).find((text) => text.includes(ROOT) || text.includes(`${tmpdir()}/`));
  if (left !== undefined) throw new Error(`The history still names this machine: ${left}`);
  storeHistory(VERSION, suite, scenario, history);
}

async function ended(handle: WorkflowHandle): Promise<void> {
  await handle.result().catch(() => undefined);
}

describe('sessions', () => {
  const client = useClient();
  const aSession = async (fleet: string): Promise<string> =>
    (await eventually(async () => (await sessionsOf(client(), fleet))[0], { what: 'a session' })).worker;

  it('plain', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'sequence');
    await handle.result();
    await store('session', 'plain', handle, [worker]);
  });

  it('redo after a lost worker', async () => {
    const fleet = uniqueFleet();
    const workers = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    const directory = await temporaryDirectory();
    const log = join(directory, 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', {
      session: { leaseTtl: '2s' },
      holdMs: 3_000,
      log,
    });
    await eventually(async () => existsSync(log), { what: 'the pinned activity' });
    const holder = await aSession(fleet);
    await workers.find(({ name }) => name === holder)?.killAll();
    await handle.result();
    await store('session', 'redo', handle, workers, { [directory]: '/srv/test' });
  });

  it('rediscovered after a lost worker', async () => {
    const fleet = uniqueFleet();
    const workers = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    const directory = await temporaryDirectory();
    const log = join(directory, 'log');
    const handle = await startWorkflow(client(), fleet, 'affineCalls', { session: { leaseTtl: '2s' }, log, ms: 3_000 });
    await eventually(async () => existsSync(log), { what: 'the pinned activities' });
    const holder = await aSession(fleet);
    await workers.find(({ name }) => name === holder)?.killAll();
    await handle.result();
    await store('session', 'rediscovered', handle, workers, { [directory]: '/srv/test' });
  });

  it('preferred workers, one that grants and one that nobody knows', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a' });
    for (const prefer of ['a', 'nobody']) {
      const handle = await startWorkflow(client(), fleet, 'sequence', { session: { prefer, preferFor: '500ms' } });
      await handle.result();
      await store('session', prefer === 'a' ? 'preferred' : 'preferred-elsewhere', handle, [worker]);
    }
  });

  it('cancel while holding', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const directory = await temporaryDirectory();
    const log = join(directory, 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', { holdMs: 60_000, log });
    await eventually(async () => existsSync(log), { what: 'the pinned activity' });
    await handle.cancel();
    await ended(handle);
    await store('session', 'cancel-while-holding', handle, [worker], { [directory]: '/srv/test' });
  });

  it('acquire timeout', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const session = { capabilities: ['gpu'], acquireTimeout: '1s' };
    const handle = await startWorkflow(client(), fleet, 'sequence', { session });
    await ended(handle);
    await store('session', 'acquire-timeout', handle, [worker]);
  });

  it('release unanswered', async () => {
    const fleet = uniqueFleet();
    const workers = [await startWorker({ fleet, name: 'a' }), await startWorker({ fleet, name: 'b' })];
    const handle = await startWorkflow(client(), fleet, 'holder');
    const holder = await aSession(fleet);
    await workers.find(({ name }) => name === holder)?.killAll();
    await handle.signal('finish');
    await handle.result();
    await store('session', 'release-unanswered', handle, workers);
  });

  it('owner fails', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'failingBody');
    await ended(handle);
    await store('session', 'owner-fails', handle, [worker]);
  });

  it('adopted after an outage', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    const other = await startWorker({ fleet, name: 'b', args: [...PRESENCE, '--capabilities', 'x'] });
    const session = { leaseTtl: '2s', recoveryWindow: '10s' };
    const directory = await temporaryDirectory();
    const log = join(directory, 'log');
    const handle = await startWorkflow(client(), fleet, 'sequence', { session, holdMs: 8_000, log });
    await eventually(async () => existsSync(log), { what: 'the pinned activity' });
    const frozen = (await aSession(fleet)) === 'a' ? worker : other;
    frozen.signal('SIGSTOP');
    await setTimeout(4_000);
    frozen.signal('SIGCONT');
    await handle.result();
    await store('session', 'adopted', handle, [worker, other], { [directory]: '/srv/test' });
  });

  it('confirmed after a suspicion', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    const other = await startWorker({ fleet, name: 'b', args: PRESENCE });
    const directory = await temporaryDirectory();
    const log = join(directory, 'log');
    const session = { recoveryWindow: '20s' };
    const handle = await startWorkflow(client(), fleet, 'sequence', { session, holdMs: 15_000, log });
    await eventually(async () => existsSync(log), { what: 'the pinned activity' });
    const frozen = (await aSession(fleet)) === 'a' ? worker : other;
    frozen.signal('SIGSTOP');
    // Frozen too, it may have taken tasks of the workflow that is to suspect it: each comes back after 3 s.
    await setTimeout(9_000);
    frozen.signal('SIGCONT');
    await handle.result();
    await store('session', 'confirmed', handle, [worker, other], { [directory]: '/srv/test' });
  });

  it('handed over to the next run', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'relay', { runs: 2 });
    await handle.result();
    const last = await client().workflow.getHandle(handle.workflowId).describe();
    const runs = [handle.firstExecutionRunId, last.runId].map((runId) =>
      client().workflow.getHandle(handle.workflowId, runId),
    );
    const places = { [join(worker.stateDirectory, 'scratch')]: '/var/lib/atlas/state-1/scratch' };
    await store('session', 'handed-over-from', runs[0]!, [worker], places);
    await store('session', 'handed-over-to', runs[1]!, [worker], places);
  });

  it('expired', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'idler', { session: { idleTimeout: '1s' } });
    await ended(handle);
    await store('session', 'expired', handle, [worker]);
  });

  it('granted late by a full fleet', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, args: ['--max-sessions', '1'] });
    const first = await startWorkflow(client(), fleet, 'holder');
    await aSession(fleet);
    const handle = await startWorkflow(client(), fleet, 'sequence', { session: { leaseTtl: '1s' } });
    await setTimeout(4_000);
    await first.signal('finish');
    await handle.result();
    await store('session', 'granted-late', handle, [worker]);
  });

  it('two sessions', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet });
    const handle = await startWorkflow(client(), fleet, 'twice');
    await handle.result();
    await store('session', 'two-sessions', handle, [worker]);
  });
});

describe('the workflow of a worker', () => {
  const client = useClient();
  const handleOf = (fleet: string, name: string): WorkflowHandle =>
    client().workflow.getHandle(workerWorkflowId(fleet, name));
  const inState = (fleet: string, name: string, state: string): Promise<boolean> =>
    eventually(
      async () => (await workersOf(client(), fleet)).some((worker) => worker.name === name && worker.state === state),
      { what: `${name} ${state}` },
    );
  /** The workflow has noted it, and not only the client seen that presence is overdue. */
  const lost = (fleet: string, name: string): Promise<boolean> =>
    eventually(
      async () =>
        (await workersOf(client(), fleet)).some(
          (each) => each.name === name && each.reason === 'its presence timed out',
        ),
      { what: `${name} noted as lost` },
    );

  it('registered, lost, and returned', async () => {
    const fleet = uniqueFleet();
    const keeper = await startWorker({ fleet, name: 'keeper' });
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    await inState(fleet, 'a', 'ready');
    await worker.killAll();
    await lost(fleet, 'a');
    const again = await restartWorker(worker, { args: PRESENCE });
    await inState(fleet, 'a', 'ready');
    await store('worker', 'lost-and-returned', handleOf(fleet, 'a'), [keeper, worker, again]);
  });

  it('its name taken over', async () => {
    const fleet = uniqueFleet();
    const keeper = await startWorker({ fleet, name: 'keeper' });
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    await inState(fleet, 'a', 'ready');
    await worker.killAll();
    const successor = await startWorker({ fleet, name: 'a', args: PRESENCE });
    await inState(fleet, 'a', 'ready');
    await store('worker', 'name-taken-over', handleOf(fleet, 'a'), [keeper, worker, successor]);
  });

  it('stopped', async () => {
    const fleet = uniqueFleet();
    const keeper = await startWorker({ fleet, name: 'keeper' });
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    await worker.stop();
    await inState(fleet, 'a', 'stopped');
    await store('worker', 'stopped', handleOf(fleet, 'a'), [keeper, worker]);
  });

  it('ordered about by operators, and forgotten', async () => {
    const fleet = uniqueFleet();
    const keeper = await startWorker({ fleet, name: 'keeper' });
    const worker = await startWorker({ fleet, name: 'a', args: PRESENCE });
    const orders = new FleetClient(client(), { fleet });
    const by = { who: 'ops@bastion', why: 'disk swap' };
    await orders.cordon('keeper', by);
    const owner = await startWorkflow(client(), fleet, 'holder', { session: { onLost: 'fail' } });
    await eventually(async () => (await sessionsOf(client(), fleet))[0], { what: 'a session' });
    await orders.cordon('a', by);
    await orders.uncordon('a', by);
    await orders.drain('a', { ...by, deadlineMs: 500, onDeadline: 'release' });
    await inState(fleet, 'a', 'drained');
    await owner.result().catch(() => undefined);
    await store('session', 'released-by-force', owner, [keeper, worker]);
    await worker.killAll();
    await inState(fleet, 'a', 'lost');
    await orders.uncordon('a', by);
    const handle = handleOf(fleet, 'a');
    await orders.forget('a', { ...by, withSessions: true });
    await store('worker', 'ordered', handle, [keeper, worker]);
  });
});

describe('the document job', () => {
  const client = useClient();

  it('processes a file', async () => {
    const directory = await temporaryDirectory();
    const path = join(directory, 'document.pdf');
    const content = makePdf([['A session pins a sequence of activities to one worker.', 'It is released in the end.']]);
    await writeFile(path, content);
    const fleet = uniqueFleet();
    const worker = await (await spawnAtlasd({ fleet, env: { ATLAS_DOCUMENT_ALLOW_FILES: directory } })).ready();
    const handle = await client().workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
      taskQueue: fleet,
      workflowId: uniqueId('document'),
      args: [
        {
          source: {
            kind: 'file',
            path,
            bytes: content.length,
            sha256: createHash('sha256').update(content).digest('hex'),
          },
        },
      ],
      workflowExecutionTimeout: '1 minute',
    });
    await handle.result();
    await store('document', 'file', handle, [worker], { [directory]: '/srv/documents' });
  });
});
