/**
 * Without any one of its rules the protocol breaks a promise under some schedule; see `mutants.ts`. A schedule counts only
 * if the protocol with all of its rules keeps its promises under the very same.
 */
import { describe, expect, it } from 'vitest';
import { MIXES } from './faults.js';
import { MUTANTS, together } from './mutants.js';
import { simulate, type Violation } from './world.js';

const MAX_SEEDS = 600;

describe('the protocol without a rule', () => {
  it.each(MUTANTS)('$rule', async ({ without, mix, breaks, options, patch, coveredBy, firstSeed = 1 }) => {
    const mutated = coveredBy === undefined ? options : together(coveredBy.options, options ?? {});
    let found: { readonly seed: number; readonly violation: Violation } | undefined;
    for (let seed = firstSeed; found === undefined && seed < firstSeed + MAX_SEEDS; seed += 1) {
      const undo = patch?.();
      let violation: Violation | undefined;
      try {
        ({ violation } = await simulate(seed, MIXES[mix], mutated));
      } finally {
        undo?.();
      }
      if (violation === undefined || !breaks.includes(violation.invariant)) continue;
      const control = await simulate(seed, MIXES[mix], coveredBy?.options);
      if (control.violation === undefined) found = { seed, violation };
    }
    expect(found, `${without}: no schedule of ${MAX_SEEDS} shows what the rule is for`).toBeDefined();
    console.log(
      `${without}: promise ${found!.violation.invariant} in "${mix}", seed ${found!.seed}: ${found!.violation.what}`,
    );
  });
});
