/** What the executor gives to the Workers of queues whose capabilities are checked. */
import { describe, expect, it } from 'vitest';
import { findErrorCode } from '../../../src/contract/errors.js';
import { WithdrawnCapabilities } from '../../../src/executor/withdrawn.js';
import { settle } from '../../support/fake-ports.js';

const context = {} as never;
const signal = new AbortController().signal;

describe('withdrawn capabilities', () => {
  it('hold back the polls of their queues, until they are restored or the poll is aborted', async () => {
    const withdrawn = new WithdrawnCapabilities();
    withdrawn.set(['gpu']);
    const abort = new AbortController();
    const aborted = withdrawn.supplier(['gpu', 'ocr'], 4).reserveSlot(context, abort.signal);
    let given = 0;
    const waiting = withdrawn
      .supplier(['gpu'], 4)
      .reserveSlot(context, signal)
      .then(() => (given += 1));
    await withdrawn.supplier(['ocr'], 4).reserveSlot(context, signal);
    abort.abort(new Error('shutdown'));
    await expect(aborted).rejects.toThrow('shutdown');
    withdrawn.set(['ocr']);
    await waiting;
    expect(given).toBe(1);
  });

  it('leave the bound on activities as it is', async () => {
    const supplier = new WithdrawnCapabilities().supplier(['gpu'], 1);
    const permit = await supplier.reserveSlot(context, signal);
    let second = false;
    void supplier.reserveSlot(context, signal).then(() => (second = true));
    await settle();
    expect(second).toBe(false);
    supplier.markSlotUsed({ permit } as never);
    supplier.releaseSlot({ permit } as never);
    await settle();
    expect(second).toBe(true);
  });

  it('refuse a task whose poll was out, so that the server tries it again', () => {
    const withdrawn = new WithdrawnCapabilities();
    withdrawn.set(['gpu']);
    withdrawn.refuse(['ocr']);
    let refusal: unknown;
    try {
      withdrawn.refuse(['gpu', 'ocr']);
    } catch (error) {
      refusal = error;
    }
    expect(findErrorCode(refusal)).toBe('CapabilityWithdrawn');
    expect(refusal).toMatchObject({ nonRetryable: false, message: 'The worker has withdrawn gpu.' });
  });
});
