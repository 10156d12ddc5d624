/** The bounds of an examination: what a check that fails, or never ends, leaves of the others. */
import { describe, expect, it } from 'vitest';
import type { Client } from '@temporalio/client';
import { examine } from '../../../src/fleet/doctor/doctor.js';
import type { CheckName } from '../../../src/fleet/doctor/findings.js';

const HANG = (): Promise<never> => new Promise(() => undefined);

/** A client of which each call does as the test says; one that is not named fails the test. */
function fakeClient(
  calls: Readonly<Record<string, () => Promise<unknown>>>,
  list: () => AsyncIterable<unknown>,
): Client {
  const workflowService = new Proxy(
    {},
    {
      get: (_, name) => calls[String(name)] ?? (() => Promise.reject(new Error(`Unexpected call of ${String(name)}`))),
    },
  );
  return {
    options: { namespace: 'default' },
    connection: { workflowService, withDeadline: (_: number, run: () => Promise<unknown>) => run() },
    workflow: { list },
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
      fakeClient({ listWorkflowExecutions: () => Promise.reject(refused) }, nothing),
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
    const { findings, errors } = await examine(fakeClient({ listWorkflowExecutions: HANG }, nothing), {
      fleet: 'blue',
      address: '127.0.0.1:7233',
      checks: ['disks', 'waiting'],
      timeoutMs: 200,
    });
    // A guard against hanging: the machine may be busy.
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect(findings.map(({ check, level, message }) => [check, level, message])).toEqual([
      ['waiting', 'fail', 'it was not checked within 200ms'],
      ['disks', 'ok', 'no live worker tells its disk'],
    ]);
    expect(errors).toEqual([]);
  });

  it('runs the checks that are asked for and no other, whatever their order', async () => {
    const { findings } = await examine(fakeClient({}, nothing), {
      fleet: 'blue',
      address: '127.0.0.1:7233',
      checks: ['reserves', 'workers'],
      timeoutMs: 5_000,
    });
    expect(findings.map(({ check }) => check)).toEqual(['workers', 'reserves']);
  });
});
