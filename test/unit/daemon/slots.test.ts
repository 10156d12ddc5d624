import { describe, expect, it } from 'vitest';
import { hasRoom, SlotGate, type SlotRules } from '../../../src/daemon/slots.js';
import { settle } from '../../support/fake-ports.js';

describe('hasRoom', () => {
  const rules: SlotRules = { cap: 3, reserve: { gpu: 2 } };

  it('counts every session and every task that was taken', () => {
    expect(hasRoom({ cap: 2, reserve: {} }, [[]], [])).toBe(true);
    expect(hasRoom({ cap: 2, reserve: {} }, [[], []], [])).toBe(false);
    expect(hasRoom({ cap: 2, reserve: {} }, [[]], [], 1)).toBe(false);
  });

  it('keeps reserved slots for those who ask for the capability', () => {
    expect(hasRoom(rules, [], [])).toBe(true);
    expect(hasRoom(rules, [[]], [])).toBe(false);
    expect(hasRoom(rules, [[]], ['gpu'])).toBe(true);
    expect(hasRoom(rules, [[], ['gpu']], ['gpu'])).toBe(true);
    expect(hasRoom(rules, [[], ['gpu'], ['gpu']], ['gpu'])).toBe(false);
  });

  it('gives the reserve free as it is used, also beyond it', () => {
    expect(hasRoom(rules, [['gpu']], [])).toBe(true);
    expect(hasRoom(rules, [['gpu'], ['gpu']], [])).toBe(true);
    expect(hasRoom(rules, [['gpu'], ['gpu'], ['gpu']], [])).toBe(false);
  });
});

/** A gate over sessions that the test holds. */
function open(rules: SlotRules) {
  const held: string[][] = [];
  const gate = new SlotGate(rules, () => held);
  gate.setClosed(false);
  const end = (): void => {
    held.shift();
    gate.changed();
  };
  /** Waits for a slot, and notes when it is taken. */
  const taking = (...capabilities: string[]) => {
    const abort = new AbortController();
    const state = { outcome: 'waiting', abort: () => abort.abort(new Error('enough')) };
    gate
      .takeSlot(capabilities, abort.signal, () => held.push(capabilities))
      .then(
        () => (state.outcome = 'taken'),
        (error: Error) => (state.outcome = error.message),
      );
    return state;
  };
  return { gate, held, end, taking };
}

describe('SlotGate', () => {
  it('is closed until it is opened', async () => {
    const { gate, taking } = open({ cap: 1, reserve: {} });
    gate.setClosed(true);
    const slot = taking();
    await settle();
    expect([gate.isClosed(), slot.outcome]).toEqual([true, 'waiting']);
    gate.setClosed(false);
    await settle();
    expect(slot.outcome).toBe('taken');
  });

  it('is closed at first', () => {
    expect(new SlotGate({ cap: 1, reserve: {} }, () => []).isClosed()).toBe(true);
  });

  it('gives one free slot to one of several who wait for it', async () => {
    const { end, held, taking } = open({ cap: 1, reserve: {} });
    const waiting = [taking(), taking(), taking(), taking()];
    await settle();
    expect(waiting.map(({ outcome }) => outcome)).toEqual(['taken', 'waiting', 'waiting', 'waiting']);
    end();
    await settle();
    expect(waiting.map(({ outcome }) => outcome)).toEqual(['taken', 'taken', 'waiting', 'waiting']);
    expect(held).toHaveLength(1);
  });

  it('lets who can be served pass who can not', async () => {
    const { end, taking } = open({ cap: 1, reserve: { gpu: 1 } });
    const first = taking('gpu');
    const plain = taking();
    const gpu = taking('gpu');
    end();
    await settle();
    expect([first, plain, gpu].map(({ outcome }) => outcome)).toEqual(['taken', 'waiting', 'taken']);
  });

  it('admits who has room because another filled two reserves at once', async () => {
    const { taking } = open({ cap: 2, reserve: { gpu: 1, ocr: 1 } });
    const plain = taking();
    await settle();
    expect(plain.outcome).toBe('waiting');
    const both = taking('gpu', 'ocr');
    await settle();
    expect([both.outcome, plain.outcome]).toEqual(['taken', 'taken']);
  });

  it('honours an abort, also one that came before, and forgets who waited', async () => {
    const { gate, held, end, taking } = open({ cap: 1, reserve: {} });
    const [, second, third] = [taking(), taking(), taking()];
    second.abort();
    end();
    await settle();
    expect([second.outcome, third.outcome, held.length]).toEqual(['enough', 'taken', 1]);
    await expect(gate.takeSlot([], AbortSignal.abort(new Error('before')), () => undefined)).rejects.toThrow('before');
  });

  it('that is cordoned refuses who waits for a slot at once, and lets who polls wait', async () => {
    const { gate, end, taking } = open({ cap: 1, reserve: {} });
    const [, waiting] = [taking(), taking()];
    let polled = false;
    void gate
      .supplier([])
      .reserveSlot({} as never, new AbortController().signal)
      .then(() => (polled = true));
    gate.setCordoned(true);
    end();
    const late = taking();
    await settle();
    expect([waiting.outcome, late.outcome, polled]).toEqual([
      'The worker is cordoned.',
      'The worker is cordoned.',
      false,
    ]);
    expect(gate.isClosed()).toBe(true);
    gate.setCordoned(false);
    await settle();
    expect([polled, gate.isClosed()]).toEqual([true, false]);
  });

  it('ignores an abort of who has its slot', async () => {
    const { held, taking } = open({ cap: 1, reserve: {} });
    const slot = taking();
    slot.abort();
    await settle();
    expect([slot.outcome, held.length]).toEqual(['taken', 1]);
  });
});

describe('the slot supplier', () => {
  const context = {} as never;

  it('polls while there is room, and holds back for tasks that were taken', async () => {
    const { gate } = open({ cap: 1, reserve: {} });
    const [one, other] = [gate.supplier([]), gate.supplier(['gpu'])];
    // A permit that only polls takes nothing: the other queue may have the work.
    const permit = await one.reserveSlot(context, new AbortController().signal);
    const second = await other.reserveSlot(context, new AbortController().signal);
    one.markSlotUsed({ permit } as never);
    let third = 'waiting';
    void other.reserveSlot(context, new AbortController().signal).then(() => {
      third = 'reserved';
    });
    await settle();
    expect(third).toBe('waiting');
    other.releaseSlot({ permit: second } as never);
    await settle();
    expect(third).toBe('waiting');
    one.releaseSlot({ permit } as never);
    await settle();
    expect(third).toBe('reserved');
  });

  it('does not keep a task waiting for tasks that were taken: it is one of them', async () => {
    const { gate, taking } = open({ cap: 1, reserve: {} });
    const supplier = gate.supplier([]);
    const permit = await supplier.reserveSlot(context, new AbortController().signal);
    supplier.markSlotUsed({ permit } as never);
    const slot = taking();
    await settle();
    expect(slot.outcome).toBe('taken');
  });

  it('honours the abort of a poll that is not needed any more', async () => {
    const { gate, held } = open({ cap: 1, reserve: {} });
    held.push([]);
    const abort = new AbortController();
    const reserved = gate.supplier([]).reserveSlot(context, abort.signal);
    abort.abort(new Error('shutdown'));
    await expect(reserved).rejects.toThrow('shutdown');
  });

  it('does not poll for what is withdrawn, and honours an abort meanwhile', async () => {
    const { gate } = open({ cap: 1, reserve: {} });
    gate.setWithdrawn(['gpu']);
    const abort = new AbortController();
    const aborted = gate.supplier(['gpu', 'ocr']).reserveSlot(context, abort.signal);
    const restored = gate.supplier(['gpu']).reserveSlot(context, new AbortController().signal);
    expect(await gate.supplier(['ocr']).reserveSlot(context, new AbortController().signal)).toEqual({ used: false });
    abort.abort(new Error('shutdown'));
    await expect(aborted).rejects.toThrow('shutdown');
    gate.setWithdrawn([]);
    expect(await restored).toEqual({ used: false });
  });

  it('never gives a permit without being asked to wait', () => {
    const { gate } = open({ cap: 1, reserve: {} });
    expect(gate.supplier([]).tryReserveSlot(context)).toBeNull();
  });
});
