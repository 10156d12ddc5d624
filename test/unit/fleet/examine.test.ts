/** The bounds of an examination: what a check that fails, or never ends, leaves of the others. */
import { describe, expect, it } from 'vitest';
import type { Client } from '@temporalio/client';
import { WORKER_WORKFLOW_TYPE } from '../../../src/contract/fleet.js';
import { examine } from '../../../src/fleet/doctor/doctor.js';
import type { CheckName } from '../../../src/fleet/doctor/findings.js';

const HANG = (): Promise<never> => new Promise(() => undefined);

/** A client of a fleet without workers, whose other lists of workflows do as the test says. */
function fakeClient(listOthers: () => Promise<unknown>): Client {
  const workflowService = {
    listWorkflowExecutions: ({ query }: { query: string }) =>
      query.startsWith(`WorkflowType = '${WORKER_WORKFLOW_TYPE}'`)
        ? Promise.resolve({ executions: [], nextPageToken: new Uint8Array() })
        : listOthers(),
  };
  const withDeadline = (_: number, run: () => Promise<unknown>): Promise<unknown> => run();
  return {
    options: { namespace: 'default' },
    workflowService,
    withDeadline,
    connection: { workflowService, withDeadline },
    workflow: { list: nothing },
  } as unknown as Client;
}

async function* nothing(): AsyncIterable<unknown> {
  await Promise.resolve();
  yield* [];
}

describe('examine', () => {
  it('prints what it knows where one check fails, and hands the error over', async () => {
    const refused = Object.assign(new Error('14 UNAVAILABLE: gone'), { code: 14 });
    const checked: CheckName[] = [];
    const { findings, errors } = await examine(
      fakeClient(() => Promise.reject(refused)),
      {
        fleet: 'blue',
        address: '127.0.0.1:7233',
        checks: ['stranded', 'clocks'],
        timeoutMs: 5_000,
        atlas: (command) => `${command} --fleet blue`,
        onChecked: (check) => checked.push(check),
      },
    );
    expect(findings).toEqual([
      {
        check: 'stranded',
        level: 'fail',
        subject: 'blue',
        message: 'it could not be checked: 14 UNAVAILABLE: gone',
        next: '`atlas doctor --check stranded --timeout 10s --fleet blue`',
      },
      expect.objectContaining({ check: 'clocks', level: 'ok' }),
    ]);
    expect(errors).toEqual([refused]);
    expect(checked.sort()).toEqual(['clocks', 'stranded']);
  });

  it('ends at its timeout, with what is not finished as a failure', async () => {
    const startedMs = performance.now();
    const { findings, errors } = await examine(fakeClient(HANG), {
      fleet: 'blue',
      address: '127.0.0.1:7233',
      checks: ['disks', 'waiting'],
      timeoutMs: 200,
    });
    // A guard against hanging: the machine may be busy.
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    expect(findings.map(({ check, level, message }) => [check, level, message])).toEqual([
      ['waiting', 'fail', 'it was not checked within 200ms'],
      ['disks', 'ok', 'no live worker tells its disk'],
    ]);
    expect(errors).toEqual([]);
  });

  it('runs the checks that are asked for and no other, whatever their order', async () => {
    const { findings } = await examine(fakeClient(HANG), {
      fleet: 'blue',
      address: '127.0.0.1:7233',
      checks: ['reserves', 'workers'],
      timeoutMs: 5_000,
    });
    expect(findings.map(({ check, level }) => [check, level])).toEqual([
      ['workers', 'fail'],
      ['reserves', 'ok'],
    ]);
  });
});
