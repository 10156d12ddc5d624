/** Random sessions on one gate: the cap and the reserves hold at every moment, and nobody waits who has room. */
import fc from 'fast-check';
import { describe, it } from 'vitest';
import { findErrorCode } from '../../src/contract/errors.js';
import { SlotGate } from '../../src/daemon/slots.js';
import { settle } from '../support/fake-ports.js';

const CAPABILITIES = ['gpu', 'ocr', 'big'];

const rules = fc
  .tuple(fc.integer({ min: 1, max: 5 }), fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 3, maxLength: 3 }))
  .map(([cap, counts]) => {
    let left = cap;
    const reserve: Record<string, number> = {};
    // The configuration refuses reserves that are more than the cap.
    counts.forEach((count, index) => {
      const kept = Math.min(count, left);
      left -= kept;
      if (kept > 0) reserve[CAPABILITIES[index]!] = kept;
    });
    return { cap, reserve };
  });

const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('ask' as const), asked: fc.subarray(CAPABILITIES) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('end' as const), pick: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('abort' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('door' as const), closed: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('withdraw' as const), withdrawn: fc.subarray(CAPABILITIES) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('restore' as const) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('turn' as const) }) },
);

interface Asker {
  readonly asked: readonly string[];
  readonly abort: AbortController;
  outcome: 'waiting' | 'taken' | 'aborted' | 'refused';
}

/** What the reserves still have to keep free for others than who asks for this; counted anew, not by the gate. */
function keptFromOthers(
  reserve: Record<string, number>,
  held: readonly (readonly string[])[],
  asked: readonly string[],
) {
  let kept = 0;
  for (const [capability, count] of Object.entries(reserve)) {
    if (asked.includes(capability)) continue;
    kept += Math.max(0, count - held.filter((each) => each.includes(capability)).length);
  }
  return kept;
}

describe('the slots of a worker', () => {
  it('hold cap and reserves whatever comes, and lose no wake-up', async () => {
    await fc.assert(
      fc.asyncProperty(rules, fc.array(step, { maxLength: 60 }), async ({ cap, reserve }, steps) => {
        const held: (readonly string[])[] = [];
        const askers: Asker[] = [];
        let withdrawn: readonly string[] = [];
        const lacks = (asked: readonly string[]): boolean => asked.some((name) => withdrawn.includes(name));
        const gate = new SlotGate({ cap, reserve }, () => held);
        const take = (asker: Asker): void => {
          const kept = keptFromOthers(reserve, held, asker.asked);
          if (held.length + kept >= cap)
            throw new Error(`A slot was given to ${asker.asked.join('+')} beside ${JSON.stringify(held)}.`);
          if (lacks(asker.asked)) throw new Error(`${asker.asked.join('+')} was given while a part is withdrawn.`);
          if (gate.isClosed()) throw new Error('A slot was given while the gate was closed.');
          if (asker.outcome !== 'waiting' || asker.abort.signal.aborted) throw new Error('Given to who does not wait.');
          asker.outcome = 'taken';
          held.push(asker.asked);
        };
        const failures: unknown[] = [];
        for (const each of steps) {
          if (each.kind === 'ask') {
            const asker: Asker = { asked: each.asked, abort: new AbortController(), outcome: 'waiting' };
            askers.push(asker);
            gate
              .takeSlot(asker.asked, asker.abort.signal, () => {
                try {
                  take(asker);
                } catch (error) {
                  failures.push(error);
                }
              })
              .catch((error: unknown) => {
                asker.outcome = findErrorCode(error) === 'CapabilityWithdrawn' ? 'refused' : 'aborted';
              });
          } else if (each.kind === 'end' && held.length > 0) {
            held.splice(each.pick % held.length, 1);
            gate.changed();
          } else if (each.kind === 'abort') {
            const waiting = askers.filter(({ outcome, abort }) => outcome === 'waiting' && !abort.signal.aborted);
            waiting[each.pick % Math.max(1, waiting.length)]?.abort.abort(new Error('abort'));
          } else if (each.kind === 'door') {
            gate.setClosed(each.closed);
          } else if (each.kind === 'withdraw' || each.kind === 'restore') {
            withdrawn = each.kind === 'withdraw' ? each.withdrawn : [];
            gate.setWithdrawn(withdrawn);
          } else {
            await settle();
          }
          // Whoever asks for what is withdrawn goes back to the server at once, also where no slot is free.
          if (each.kind === 'withdraw' || each.kind === 'ask') await settle();
          if (askers.some(({ outcome, asked }) => outcome === 'waiting' && lacks(asked)))
            throw new Error('A session waits here for what is withdrawn.');
          if (failures.length > 0) throw failures[0];
          const left = askers.find(
            ({ outcome, asked, abort }) =>
              outcome === 'waiting' &&
              !abort.signal.aborted &&
              !gate.isClosed() &&
              held.length + keptFromOthers(reserve, held, asked) < cap,
          );
          if (left !== undefined) throw new Error(`${left.asked.join('+')} waits although there is room.`);
        }
        await settle();
        for (const { abort, outcome } of askers)
          if (abort.signal.aborted !== (outcome === 'aborted')) throw new Error(`An abort ended as ${outcome}.`);
      }),
      { numRuns: 1_000 },
    );
  });
});
