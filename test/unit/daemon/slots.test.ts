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
  return { gate, held };
}

/** Waits for a slot and notes when it is there. */
function claiming(gate: SlotGate, capabilities: string[] = []) {
  const abort = new AbortController();
  const state = { outcome: 'waiting', settle: () => undefined as void, abort: () => abort.abort(new Error('enough')) };
  gate.claim(capabilities, abort.signal).then(
    (claim) => {
      state.outcome = 'claimed';
      state.settle = claim.settle;
    },
    (error: Error) => {
      state.outcome = error.message;
    },
  );
  return state;
}

describe('SlotGate', () => {
  it('is closed until it is opened', async () => {
    const gate = new SlotGate({ cap: 1, reserve: {} }, () => []);
    const claim = claiming(gate);
    await settle();
    expect([gate.isClosed(), gate.admits([]), claim.outcome]).toEqual([true, false, 'waiting']);
    gate.setClosed(false);
    await settle();
    expect(claim.outcome).toBe('claimed');
  });

  it('counts a slot from its claim on, until the session counts by itself', async () => {
    const { gate, held } = open({ cap: 1, reserve: {} });
    const first = claiming(gate);
    const second = claiming(gate);
    await settle();
    expect([first.outcome, second.outcome, gate.admits([])]).toEqual(['claimed', 'waiting', false]);
    held.push([]);
    first.settle();
    await settle();
    expect(second.outcome).toBe('waiting');
    held.pop();
    gate.changed();
    await settle();
    expect(second.outcome).toBe('claimed');
  });

  it('gives one free slot to one of several who wait for it', async () => {
    const { gate, held } = open({ cap: 1, reserve: {} });
    held.push([]);
    const waiting = [claiming(gate), claiming(gate), claiming(gate)];
    held.pop();
    gate.changed();
    await settle();
    expect(waiting.map(({ outcome }) => outcome)).toEqual(['claimed', 'waiting', 'waiting']);
    // A claim that comes to nothing goes to the next.
    waiting[0]!.settle();
    await settle();
    expect(waiting.map(({ outcome }) => outcome)).toEqual(['claimed', 'claimed', 'waiting']);
  });

  it('lets who can be served pass who can not', async () => {
    const { gate, held } = open({ cap: 1, reserve: { gpu: 1 } });
    held.push([]);
    const plain = claiming(gate);
    const gpu = claiming(gate, ['gpu']);
    held.pop();
    gate.changed();
    await settle();
    expect([plain.outcome, gpu.outcome]).toEqual(['waiting', 'claimed']);
  });

  it('admits who has room because another claim filled two reserves at once', async () => {
    const { gate } = open({ cap: 2, reserve: { gpu: 1, ocr: 1 } });
    const plain = claiming(gate);
    await settle();
    expect(plain.outcome).toBe('waiting');
    const both = claiming(gate, ['gpu', 'ocr']);
    await settle();
    expect([both.outcome, plain.outcome]).toEqual(['claimed', 'claimed']);
  });

  it('honours an abort, also one that came before, and forgets the waiter', async () => {
    const { gate, held } = open({ cap: 1, reserve: {} });
    held.push([]);
    const first = claiming(gate);
    first.abort();
    const next = claiming(gate);
    held.pop();
    gate.changed();
    await settle();
    expect([first.outcome, next.outcome]).toEqual(['enough', 'claimed']);
    await expect(gate.claim([], AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
    next.settle();
    expect(gate.admits([])).toBe(true);
  });

  it('ignores an abort after the claim, and a claim that is settled twice', async () => {
    const { gate, held } = open({ cap: 2, reserve: {} });
    const claim = claiming(gate);
    await settle();
    claim.abort();
    held.push([]);
    claim.settle();
    claim.settle();
    expect(gate.admits([])).toBe(true);
    held.push([]);
    expect(gate.admits([])).toBe(false);
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

  it('does not keep a local claim waiting for tasks: those are who claim', async () => {
    const { gate } = open({ cap: 1, reserve: {} });
    const supplier = gate.supplier([]);
    const permit = await supplier.reserveSlot(context, new AbortController().signal);
    supplier.markSlotUsed({ permit } as never);
    const claim = claiming(gate);
    await settle();
    expect(claim.outcome).toBe('claimed');
  });

  it('honours the abort of a poll that is not needed any more', async () => {
    const { gate, held } = open({ cap: 1, reserve: {} });
    held.push([]);
    const abort = new AbortController();
    const reserved = gate.supplier([]).reserveSlot(context, abort.signal);
    abort.abort(new Error('shutdown'));
    await expect(reserved).rejects.toThrow('shutdown');
  });

  it('never gives a permit without being asked to wait', () => {
    const { gate } = open({ cap: 1, reserve: {} });
    expect(gate.supplier([]).tryReserveSlot(context)).toBeNull();
  });
});
