/** The real `atlas top` against a real worker: what it shows, and that its orders reach the daemon. */
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, sessionsOf, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { startInPty } from '../support/pty.js';
import { temporalEnvironment, useClient } from '../support/server.js';

const ATLAS = fileURLToPath(new URL('../../bin/atlas.js', import.meta.url));

describe('atlas top', () => {
  const client = useClient();

  it('shows a session of a worker, and cordons the worker', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'worker-1' });
    const holder = await startWorkflow(client(), fleet, 'holder');
    await eventually(async () => (await sessionsOf(client(), fleet)).length === 1, { what: 'the session' });
    const top = startInPty([ATLAS, 'top', '--fleet', fleet, '--interval', '500ms'], {
      columns: 120,
      rows: 30,
      env: { ...temporalEnvironment(), ATLAS_OPERATOR: 'ops@test' },
    });
    await top.shows(/sessions 1\/4 {2}leaked 0 {2}1 worker: 1 ready/);
    await top.shows(/^> worker-1 +ready +1\/4/m);
    top.press('2');
    await top.shows(holder.workflowId.slice(0, 10));
    top.press('3');
    await top.shows(/^> any +0 +- +3 +1\/1/m);
    top.press('1c');
    await top.shows('It takes no new sessions; 1 session on it goes on.');
    top.press('new disk\r');
    await top.shows('Cordon worker-1? y/N');
    top.press('y');
    await top.shows('Applied: the cordon of worker-1.');
    await top.shows(/^> worker-1 +cordoned +1\/4/m);
    const [worker] = await workersOf(client(), fleet);
    expect(worker!.scheduling).toMatchObject({
      scheduling: 'cordoned',
      who: 'ops@test',
      why: 'new disk',
      applied: true,
    });
    top.press('q');
    expect(await top.ended).toEqual({ exitCode: 0, signal: 0 });
    expect(top.failure).toBeUndefined();
    await holder.signal('finish');
    await holder.result();
  });
});
