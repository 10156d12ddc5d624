/** The example that the README leads through: its files, served by a real atlasd and started by its own script. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { startAtlasd, type Atlasd } from '../support/atlasd.js';
import { eventually, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { activitiesOf } from '../support/history.js';
import { temporalEnvironment, useClient } from '../support/server.js';

const path = (name: string): string => fileURLToPath(new URL(`../../examples/own-activities/${name}`, import.meta.url));
/** Sources, as the README has it: the workflows are bundled at the start. */
const ARGS = ['--activities', path('activities.js'), '--workflows', path('workflows.js')];
const TOP_WORDS = ['harbour 1858', 'anchor 857', 'berth 857'];

describe('the example of own activities', () => {
  const client = useClient();

  it('runs when it is started as the README says', async () => {
    const { fleet } = await startAtlasd({ args: ARGS });
    const { stdout } = await promisify(execFile)(process.execPath, [path('start.js'), '1'], {
      env: { ...temporalEnvironment(), ATLAS_FLEET: fleet },
      timeout: 120_000,
    });
    expect(stdout).toContain("words: [ 'harbour 1858', 'anchor 857', 'berth 857' ]");
    expect(stdout).toContain("worker: 'worker-1'");
    expect(stdout).toContain('attempt: 1');
  });

  it('runs again from its start on another worker when its worker is killed', async () => {
    const fleet = uniqueFleet();
    const workers = new Map<string, Atlasd>();
    for (const name of ['a', 'b']) workers.set(name, await startAtlasd({ fleet, name, args: ARGS }));
    const handle = await startWorkflow(client(), fleet, 'countText', { seconds: 5, session: { leaseTtl: '5s' } });
    // From the history: the list of sessions is too old to show every step.
    const { queue } = await eventually(
      async () => (await activitiesOf(handle)).find(({ type }) => type === 'countWords'),
      { what: 'words are being counted' },
    );
    const dead = queue.startsWith(`${fleet}-a.`) ? 'a' : 'b';
    await workers.get(dead)!.killAll();
    expect(await handle.result()).toEqual({ words: TOP_WORDS, worker: dead === 'a' ? 'b' : 'a', attempt: 2 });
  });
});
