/** How sessions spread over workers that are alike. Nobody places them: each worker asks for the next when it has room. */
import { describe, expect, it } from 'vitest';
import type { WorkflowHandle } from '@temporalio/client';
import { uniqueFleet } from '../support/fleet.js';
import { eventually, runWorkflow, startWorker, startWorkflow } from '../support/fixtures.js';
import { historyOf } from '../support/history.js';
import { SLOW, untilAllFree } from '../support/promises.js';
import { useClient } from '../support/server.js';

const SLOTS = 8;
const SESSIONS = 20;
const WORKERS = ['a', 'b', 'c', 'd'];
/** Who polls next is a matter of which process is given a processor: a machine that has none to spare has fuller workers. */
const IS_QUIET = process.env['ATLAS_BALANCE'] === '1';

describe('sessions that begin at once', () => {
  const client = useClient();

  const grantOf = async (handle: WorkflowHandle) =>
    await eventually(async () => (await historyOf(client(), handle.workflowId)).grants[0], { what: 'a grant' });

  it.skipIf(!IS_QUIET)(
    `spread evenly over workers that are alike${IS_QUIET ? '' : ' (on a quiet machine: ATLAS_BALANCE=1)'}`,
    SLOW,
    async () => {
      const fleet = uniqueFleet();
      await Promise.all(WORKERS.map((name) => startWorker({ fleet, name, args: ['--max-sessions', String(SLOTS)] })));
      for (let round = 1; round <= 3; round += 1) {
        const handles = await Promise.all(
          Array.from({ length: SESSIONS }, () => startWorkflow(client(), fleet, 'holder')),
        );
        const grants = await Promise.all(handles.map(grantOf));
        const counts = WORKERS.map((name) => grants.filter(({ worker }) => worker === name).length);
        console.log(
          `measured: ${SESSIONS} sessions over ${WORKERS.length} workers, round ${round}: ${counts.join(' ')}`,
        );
        for (const handle of handles) await handle.signal('finish');
        await Promise.all(handles.map((handle) => handle.result()));
        await untilAllFree(client(), fleet);
        for (const count of counts) {
          expect(count).toBeGreaterThanOrEqual(4);
          expect(count).toBeLessThanOrEqual(6);
        }
      }
      // One at a time goes round: the worker that has waited for longest is next.
      const turns: string[] = [];
      for (let count = 0; count < 2 * WORKERS.length; count += 1)
        turns.push((await runWorkflow<{ worker: string }>(client(), fleet, 'sequence')).worker);
      console.log(`measured: one session at a time: ${turns.join(' ')}`);
      expect(new Set(turns).size).toBeGreaterThan(1);
    },
  );
});
