/** `atlasd status` as an operator on the host uses it: also while Temporal is away. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import type { LocalStatus } from '../../src/contract/local.js';
import { localCall } from '../../src/local/client.js';
import { socketPathIn } from '../../src/local/paths.js';
import { eventually, startWorker, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { SLOW } from '../support/promises.js';
import { connectTestClient, startPrivateServer, temporalEnvironment } from '../support/server.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));

interface Outcome {
  readonly exit: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `atlasd status` with a server that is not there: it must not be asked. */
async function atlasdStatus(argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
  return await new Promise((resolve) => {
    execFile(
      process.execPath,
      [ATLASD, 'status', ...argv],
      { env: { ...temporalEnvironment('127.0.0.1:1'), ...env } },
      (error, stdout, stderr) => {
        resolve({ exit: error === null ? 0 : Number(error.code), stdout, stderr });
      },
    );
  });
}

describe('atlasd status', () => {
  const stops: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  it('answers with sessions and orders while Temporal is away', SLOW, async () => {
    const server = await startPrivateServer();
    stops.push(() => server.stop());
    const { client, close } = await connectTestClient(server.address);
    stops.push(close);
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'worker-7', address: server.address });
    const { workflowId } = await startWorkflow(client, fleet, 'holder');
    const args = ['--state-dir', worker.stateDirectory];
    const json = async (): Promise<LocalStatus> => {
      const { stdout } = await atlasdStatus([...args, '-o', 'json']);
      const { version, status } = JSON.parse(stdout) as { version: number; status: LocalStatus };
      expect(version).toBe(1);
      return status;
    };
    await eventually(async () => (await json()).snapshot.sessions.length === 1, { what: 'the session' });
    expect(await json()).toMatchObject({ told: true, identity: { name: 'worker-7', fleet, pid: worker.child.pid } });

    await server.stop();
    await localCall(socketPathIn(worker.stateDirectory), 'POST', '/orders', {
      kind: 'cordon',
      order: { orderId: 'order-1', who: 'ops@host', why: 'disk swap' },
    });
    const page = await atlasdStatus(args);
    expect(page).toMatchObject({ exit: 0, stderr: '' });
    expect(page.stdout).toMatch(/^state +cordoned/m);
    expect(page.stdout).toMatch(/^reason +"disk swap", ops@host, /m);
    expect(page.stdout).toMatch(/^orders +not known to the fleet yet/m);
    expect(page.stdout).toMatch(new RegExp(`^[0-9a-f]{12} +held +.* ${workflowId}$`, 'm'));

    // Killed, it leaves its socket behind, which must not look like a worker that does not answer.
    await worker.killAll();
    expect(await atlasdStatus(args)).toMatchObject({
      exit: 4,
      stdout: '',
      stderr: expect.stringContaining(`No atlasd runs with the state directory ${worker.stateDirectory}.`) as string,
    });
  });

  it('finds the directory as atlasd does: by flag, variable and file, and else by the fleet', SLOW, async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'worker-8' });
    const byVariable = await atlasdStatus([], { ATLAS_STATE_DIR: worker.stateDirectory });
    expect(byVariable).toMatchObject({ exit: 0, stdout: expect.stringMatching(/^worker +worker-8$/m) as string });
    // A variable that atlasd would refuse does not keep an operator from looking at the one that runs.
    const misspelt = { ATLAS_STATE_DIRR: 'x' };
    expect((await atlasdStatus(['--state-dir', worker.stateDirectory], misspelt)).exit).toBe(0);
    expect((await atlasdStatus([], misspelt)).exit).toBe(2);
    const other = await atlasdStatus(['--fleet', `${fleet}x`]);
    expect(other).toMatchObject({ exit: 4, stderr: expect.stringContaining(`${fleet}x.\n`) as string });
  });
});
