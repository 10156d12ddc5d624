/** What the server itself answers to an order, which a real one does only when a worker is starved at the wrong moment. */
import {
  type Client,
  ServiceError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { FleetOrders } from '../../../src/fleet/orders.js';

const BY = { who: 'test', why: null };

const serverFailure = (type: string): Error =>
  new WorkflowUpdateFailedError('Workflow Update failed', ApplicationFailure.nonRetryable('of the server', type));

/** What grpc-js fails with. */
const preconditionFailed = (details: string): Error => {
  const cause = Object.assign(new Error(`9 FAILED_PRECONDITION: ${details}`), { code: 9, details, metadata: {} });
  return new ServiceError('Workflow Update failed', { cause });
};

/** A client whose updates are answered in turn with these. */
function ordersAnswered(...answers: unknown[]): { readonly orders: FleetOrders; readonly ids: string[] } {
  const ids: string[] = [];
  const executeUpdate = (_name: string, { updateId }: { updateId: string }): Promise<unknown> => {
    ids.push(updateId);
    const answer = answers.shift();
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const client = {
    connection: { withDeadline: (_atMs: number, call: () => Promise<unknown>) => call() },
    workflow: { getHandle: () => ({ executeUpdate }) },
  };
  return { orders: new FleetOrders(client as unknown as Client, 'fleet'), ids };
}

describe('an order that the server answers by itself', () => {
  it.each([
    ['left out by its workflow task', serverFailure('UnprocessedUpdate')],
    [
      'dropped with its workflow task',
      preconditionFailed('Unable to perform workflow execution update due to unexpected workflow task failure.'),
    ],
  ])('is sent again, as the same one, where it was %s', async (_what, dropped) => {
    const answer = { desired: {}, changed: true, applied: true };
    const { orders, ids } = ordersAnswered(dropped, answer);
    expect(await orders.cordon('a', BY)).toMatchObject({ delivery: 'applied' });
    expect(ids).toHaveLength(2);
    expect(ids[0]).toBe(ids[1]);
  });

  it('is not sent again where the server refuses it', async () => {
    const refusal = preconditionFailed('Namespace is not active.');
    const { orders, ids } = ordersAnswered(refusal);
    await expect(orders.cordon('a', BY)).rejects.toBe(refusal);
    expect(ids).toHaveLength(1);
  });

  it('is not asked again for longer than its deadline', async () => {
    const late = new WorkflowUpdateRPCTimeoutOrCancelledError('late');
    const { orders, ids } = ordersAnswered(serverFailure('UnprocessedUpdate'), late);
    await expect(orders.forget('a', BY)).rejects.toMatchObject({
      code: 'FleetConflict',
      message: 'No worker of the fleet fleet runs that could take a off the list. Nothing was changed.',
    });
    expect(ids).toHaveLength(2);
  });

  it('has forgotten the worker whose workflow ended before the answer', async () => {
    const { orders } = ordersAnswered(serverFailure('AcceptedUpdateCompletedWorkflow'));
    await expect(orders.forget('a', BY)).resolves.toBeUndefined();
  });

  it('is for no worker of the fleet where the workflow ended before any other answer', async () => {
    const { orders } = ordersAnswered(serverFailure('AcceptedUpdateCompletedWorkflow'));
    await expect(orders.cordon('a', BY)).rejects.toMatchObject({ code: 'NotFound' });
  });

  it('fails with what the workflow says, and with what nobody knows as it is', async () => {
    await expect(ordersAnswered(serverFailure('FleetConflict')).orders.forget('a', BY)).rejects.toMatchObject({
      code: 'FleetConflict',
      message: 'of the server',
    });
    const unknown = serverFailure('SomethingElse');
    await expect(ordersAnswered(unknown).orders.forget('a', BY)).rejects.toBe(unknown);
  });
});
