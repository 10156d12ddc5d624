/**
 * Random faults on real processes and a real server; what must hold is then read from histories and files.
 *
 * A schedule is made from a seed, which is printed: an odd one has every kind of fault, an even one only those that must
 * redo nothing, and one that ten divides deploys every worker in turn. By default two fixed seeds run, in about two minutes; one of the
 * gentle kind runs on embedded workers (`embedded.test.ts`). `ATLAS_CHAOS_SEED=n` runs that one alone.
 * `ATLAS_CHAOS_MINUTES=n` goes on for that long, as a nightly run does: from the given seed, or from a random one.
 */
import { describe, expect, it } from 'vitest';
import { planOf } from './plan.js';
import { hit, report, runSchedule } from './schedule.js';

const DEFAULT_SEEDS = [7, 10];
const SEED = process.env['ATLAS_CHAOS_SEED'];
const MINUTES = process.env['ATLAS_CHAOS_MINUTES'];
const ONE_SCHEDULE_MS = 420_000;

function* seeds(): Generator<number> {
  if (MINUTES === undefined) {
    yield* SEED === undefined ? DEFAULT_SEEDS : [Number(SEED)];
    return;
  }
  const untilMs = performance.now() + Number(MINUTES) * 60_000;
  const first = SEED === undefined ? Math.floor(Math.random() * 1_000_000) : Number(SEED);
  for (let seed = first; seed === first || performance.now() < untilMs; seed += 1) yield seed;
}

describe('chaos', () => {
  it(
    'breaks no promise',
    { timeout: Number(MINUTES ?? '0') * 60_000 + DEFAULT_SEEDS.length * ONE_SCHEDULE_MS },
    async () => {
      const broken: string[] = [];
      const ran: number[] = [];
      const hits = new Map<string, number>();
      for (const seed of seeds()) {
        console.log(`chaos: seed ${seed} begins`);
        const outcome = await runSchedule(planOf(seed));
        report(outcome);
        ran.push(seed);
        for (const done of outcome.faults)
          if (hit(done, outcome.judged)) hits.set(done.fault.kind, (hits.get(done.fault.kind) ?? 0) + 1);
        broken.push(
          ...outcome.violations.map(({ invariant, message }) => `seed ${seed}, invariant ${invariant}: ${message}`),
        );
      }
      const kinds = [...hits].map(([kind, count]) => `${kind} ${count}`).join(', ');
      console.log(`chaos: ${ran.length} schedules, seeds ${ran.join(', ')}; faults that hit: ${kinds}`);
      expect(broken).toEqual([]);
      expect(hits.size).toBeGreaterThan(0);
    },
  );
});
