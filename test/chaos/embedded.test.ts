/**
 * The schedules of the chaos suite on workers inside processes of their users. Judged by the same rules; a fault of one
 * of atlasd's two processes is one of the whole process, which is started again when its fence has killed it.
 *
 * Two fixed seeds run, a gentle and a wild one; `ATLAS_CHAOS_SEED=n` runs that one alone.
 */
import { describe, expect, it } from 'vitest';
import { EMBEDDED_PROGRAM } from '../support/embedded.js';
import { embeddedPlan, planOf } from './plan.js';
import { hit, report, runSchedule } from './schedule.js';

/** Of each kind one that does not take long. */
const DEFAULT_SEEDS = [2, 359];
const SEED = process.env['ATLAS_CHAOS_SEED'];
const ONE_SCHEDULE_MS = 420_000;

describe('chaos with embedded workers', () => {
  it.each(SEED === undefined ? DEFAULT_SEEDS : [Number(SEED)])(
    'breaks no promise: seed %i',
    { timeout: ONE_SCHEDULE_MS },
    async (seed) => {
      const outcome = await runSchedule(embeddedPlan(planOf(seed)), { program: EMBEDDED_PROGRAM, embedded: true });
      report(outcome);
      expect(outcome.violations).toEqual([]);
      expect(outcome.faults.some((done) => hit(done, outcome.judged))).toBe(true);
    },
  );
});
