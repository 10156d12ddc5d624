/**
 * The rows of docs/placement.md: what each promises, and what breaks for those who count on more. Read from the server's
 * history. Memory sessions and checkpoints are in memory.test.ts and examples.test.ts.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { eventually, runWorkflow, startWorker, startWorkflow } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { activitiesOf } from '../support/history.js';
import { useClient } from '../support/server.js';

describe('placement', () => {
  const client = useClient();

  it('of a queued activity is any worker of the queue, so that nothing of the call before may be counted on', async () => {
    const fleet = uniqueFleet();
    const args = ['--max-activities', '1'];
    for (const name of ['a', 'b']) await startWorker({ fleet, name, args });
    const handle = await startWorkflow(client(), fleet, 'queuedCalls', { mark: 'mark', holdMs: 5_000 });
    const { left, found } = (await handle.result()) as { left: string; found: { name: string; found: boolean }[] };
    // One queue, two hosts: two calls at once run on both, and only one of them has what the first call left behind.
    expect(new Set((await activitiesOf(handle)).map(({ queue }) => queue))).toEqual(new Set([fleet]));
    expect(found.map(({ name }) => name).sort()).toEqual(['a', 'b']);
    for (const { name, found: here } of found) expect(here).toBe(name === left);
  });

  it('of a pooled activity is any worker that advertises the capabilities, and no other', async () => {
    const fleet = uniqueFleet();
    await startWorker({ fleet, name: 'plain' });
    await startWorker({ fleet, name: 'with-gpu', capabilities: ['gpu'] });
    const calls = { capabilities: ['gpu'], count: 6 };
    const names = await runWorkflow<string[]>(client(), fleet, 'pooledCalls', calls);
    expect(names).toEqual(Array.from({ length: 6 }, () => 'with-gpu'));
    // Two workers are idle, but neither has both words: the call waits, and its own timeout ends it.
    const unserved = await startWorkflow(client(), fleet, 'pooledCalls', {
      capabilities: ['gpu', 'ocr'],
      count: 1,
      scheduleToStartTimeout: '1s',
    });
    await expect(unserved.result()).rejects.toMatchObject({
      cause: { cause: { timeoutType: 'SCHEDULE_TO_START' } },
    });
    expect(await activitiesOf(unserved)).toMatchObject([{ queue: `${fleet}-gpu+ocr`, outcome: 'timed-out' }]);
  });

  it('of a local activity is the process that runs the workflow, and its end runs the call again', async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'a' });
    const log = join(await temporaryDirectory(), 'log');
    const handle = await startWorkflow(client(), fleet, 'localCall', { log, ms: 4_000 });
    await eventually(async () => (await readFile(log, 'utf8').catch(() => '')) === 'begin a\n', {
      what: 'the local activity runs',
    });
    const { pid } = await worker.event('executor-start');
    process.kill(pid as number, 'SIGKILL');
    expect(await handle.result()).toBe('a');
    // No task queue took part in it, and what the dead process had begun was begun anew.
    expect(await activitiesOf(handle)).toEqual([]);
    expect(await readFile(log, 'utf8')).toBe('begin a\nbegin a\nend a\n');
  });

  it.each([
    { placement: 'an affine call', onLost: 'rediscover', what: 'gone with it' },
    { placement: 'a session', onLost: 'redo', what: 'made again' },
  ] as const)(
    'of $placement is one worker as long as it lives, and what was left there is $what',
    async ({ onLost }) => {
      const fleet = uniqueFleet();
      // Not over while a worker only gets no processor: a fence would end the one attempt that the step has.
      const args = ['--presence-ttl', '3s'];
      const workers = new Map<string, Atlasd>();
      for (const name of ['a', 'b']) workers.set(name, await startWorker({ fleet, name, args }));
      const handle = await startWorkflow(client(), fleet, 'sequence', {
        session: { onLost, recoveryWindow: '4s', leaseTtl: '8s' },
        holdMs: 4_000,
        activity: { retry: { maximumAttempts: 1 } },
      });
      const held = await eventually(
        async () => (await activitiesOf(handle)).find(({ type, outcome }) => type === 'hold' && outcome === 'open'),
        { what: 'the second step is scheduled' },
      );
      const [dead, alive] = held.queue.startsWith(`${fleet}-a.`) ? ['a', 'b'] : ['b', 'a'];
      await workers.get(dead)!.killAll();
      const steps = async (): Promise<Record<string, number>> => {
        const counts: Record<string, number> = {};
        for (const { type } of await activitiesOf(handle)) counts[type] = (counts[type] ?? 0) + 1;
        return counts;
      };
      if (onLost === 'redo') {
        expect(await handle.result()).toMatchObject({ worker: alive, attempt: 2, state: 'by attempt 2' });
        expect(await steps()).toMatchObject({ put: 2, hold: 2, get: 1 });
      } else {
        // The step that reads the file of an earlier one runs where that file never was.
        await expect(handle.result()).rejects.toMatchObject({
          cause: { cause: { message: expect.stringContaining('ENOENT') as unknown } },
        });
        expect(await steps()).toMatchObject({ put: 1, hold: 2, get: 1 });
      }
    },
  );
});
