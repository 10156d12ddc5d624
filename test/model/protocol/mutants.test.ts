/** Without any one of its rules the protocol breaks a promise under some schedule; see `mutants.ts`. */
import { describe, expect, it } from 'vitest';
import { MIXES } from './faults.js';
import { MUTANTS } from './mutants.js';
import { simulate, type Violation } from './world.js';

const MAX_SEEDS = 600;

describe('the protocol without a rule', () => {
  it.each(MUTANTS)('$rule', async ({ without, mix, breaks, options, patch, firstSeed }) => {
    let found: { readonly seed: number; readonly violation: Violation } | undefined;
    const first = firstSeed ?? 1;
    for (let seed = first; found === undefined && seed < first + MAX_SEEDS; seed += 1) {
      const undo = patch?.();
      try {
        const { violation } = await simulate(seed, MIXES[mix], options);
        if (violation !== undefined && breaks.includes(violation.invariant)) found = { seed, violation };
      } finally {
        undo?.();
      }
    }
    expect(found, `${without}: no schedule of ${MAX_SEEDS} shows what the rule is for`).toBeDefined();
    console.log(
      `${without}: promise ${found!.violation.invariant} in "${mix}", seed ${found!.seed}: ${found!.violation.what}`,
    );
  });
});
