/** The answers of Temporal reduced to what a keeper decides on. */
import { ActivityCancelledError, ActivityNotFoundError, WorkflowNotFoundError, type Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { ERRORS } from '../../../src/contract/errors.js';
import type { Grant } from '../../../src/contract/session.js';
import { temporalPort } from '../../../src/daemon/temporal-port.js';
import { failure } from '../../../src/temporal/failures.js';

const TOKEN = Buffer.from('a task token').toString('base64');
const GRANT: Grant = {
  session: 's',
  epoch: 1,
  grantId: 'g',
  worker: 'w',
  queue: 'q',
  presenceTtlMs: 6_000,
};

/** A client all of whose calls end the same way, and the calls it got. */
function port(outcome: () => Promise<void>) {
  const calls: unknown[][] = [];
  const deadlines: number[] = [];
  const noting =
    (name: string) =>
    (...args: unknown[]): Promise<void> => {
      calls.push([name, ...args]);
      return outcome();
    };
  const client = {
    connection: {
      withDeadline: (deadline: number, call: () => Promise<unknown>) => {
        deadlines.push(deadline - Date.now());
        return call();
      },
    },
    activity: {
      heartbeat: noting('heartbeat'),
      complete: noting('complete'),
      reportCancellation: noting('reportCancellation'),
      fail: noting('fail'),
    },
    workflow: {
      getHandle: (workflowId: string, runId: string) => ({ signal: noting(`signal ${workflowId} ${runId}`) }),
    },
  } as unknown as Client;
  return { port: temporalPort(client), calls, deadlines };
}

const fine = () => port(() => Promise.resolve());
const failing = (error: Error) => port(() => Promise.reject(error));

describe('temporalPort', () => {
  it('renews a lease by its token', async () => {
    const { port: temporal, calls } = fine();
    expect(await temporal.heartbeat(TOKEN)).toBe('renewed');
    expect(calls).toEqual([['heartbeat', Buffer.from('a task token')]]);
  });

  it('tells a lease that is gone and one that is to be cancelled from a call without an answer', async () => {
    expect(await failing(new ActivityNotFoundError('gone')).port.heartbeat(TOKEN)).toBe('not-found');
    expect(await failing(new ActivityCancelledError('cancel')).port.heartbeat(TOKEN)).toBe('cancel-requested');
    await expect(failing(new Error('UNAVAILABLE')).port.heartbeat(TOKEN)).rejects.toThrow('UNAVAILABLE');
  });

  it('signals a grant to the run of the owner, and knows when that has closed', async () => {
    const owner = { workflowId: 'o', runId: 'r' };
    const { port: temporal, calls } = fine();
    expect(await temporal.signalGrant(owner, GRANT)).toBe('delivered');
    expect(calls).toEqual([['signal o r', 'atlas:grant', GRANT]]);
    expect(await failing(new WorkflowNotFoundError('closed', 'o', 'r')).port.signalGrant(owner, GRANT)).toBe('gone');
    await expect(failing(new Error('UNAVAILABLE')).port.signalGrant(owner, GRANT)).rejects.toThrow('UNAVAILABLE');
  });

  const ends = {
    completeLease: (each: ReturnType<typeof port>) => each.port.completeLease(TOKEN),
    cancelLease: (each: ReturnType<typeof port>) => each.port.cancelLease(TOKEN),
    failLease: (each: ReturnType<typeof port>) => each.port.failLease(TOKEN, 'SessionLost', 'gone'),
    failAttempt: (each: ReturnType<typeof port>) => each.port.failAttempt(TOKEN, 'ExecutorDied', 'died'),
  };

  it.each(Object.entries(ends))('%s needs no answer from what is gone already', async (_, end) => {
    await expect(end(failing(new ActivityNotFoundError('gone')))).resolves.toBeUndefined();
    await expect(end(failing(new Error('UNAVAILABLE')))).rejects.toThrow('UNAVAILABLE');
  });

  it('ends leases and attempts each in its way', async () => {
    const each = fine();
    for (const end of Object.values(ends)) await end(each);
    const bytes = Buffer.from('a task token');
    expect(each.calls).toEqual([
      ['complete', bytes, undefined],
      ['reportCancellation', bytes],
      ['fail', bytes, expect.objectContaining({ type: 'SessionLost', message: 'gone', nonRetryable: true })],
      ['fail', bytes, expect.objectContaining({ type: 'ExecutorDied', message: 'died', nonRetryable: false })],
    ]);
  });

  it('gives every call a deadline', async () => {
    const each = fine();
    await each.port.heartbeat(TOKEN);
    await each.port.signalGrant({ workflowId: 'o', runId: 'r' }, GRANT);
    for (const end of Object.values(ends)) await end(each);
    expect(each.deadlines).toHaveLength(6);
    for (const deadlineMs of each.deadlines) expect(deadlineMs).toBeLessThanOrEqual(5_000);
  });
});

describe('failure', () => {
  it('carries code, message, next step, cause and whether to retry', () => {
    const cause = new Error('why');
    const lost = failure('SessionLost', 'gone', cause);
    expect(lost).toBeInstanceOf(ApplicationFailure);
    expect(lost).toMatchObject({
      type: 'SessionLost',
      message: 'gone',
      nonRetryable: true,
      details: [{ next: ERRORS.SessionLost.next }],
      cause,
    });
    expect(failure('NoFreeSlot', 'full')).toMatchObject({ nonRetryable: false });
  });
});
