/**
 * The session protocol under random schedules: the real owner, keeper, fence, slots and guard of attempts, in virtual time
 * against a model of the server. What must hold is in `world.ts`, what goes wrong in `faults.ts`.
 *
 * ATLAS_SEED starts elsewhere, ATLAS_SEEDS runs more of each mix: `ATLAS_SEED=2045 ATLAS_SEEDS=1` is one schedule of each,
 * with its trace when it fails.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MIXES } from './faults.js';
import { type Outcome, simulate } from './world.js';

const FIRST_SEED = Number(process.env['ATLAS_SEED'] ?? 1);
const SEEDS = Number(process.env['ATLAS_SEEDS'] ?? 150);
const TRACE_LINES = 150;

const hits = new Map<string, number>();
let schedules = 0;
let redone = 0;
let repeated = 0;
let virtualMs = 0;
let startedAtMs = 0;

function count(outcome: Outcome): void {
  schedules += 1;
  redone += outcome.redoCount;
  repeated += outcome.repeatCount;
  virtualMs += outcome.virtualMs;
  for (const [kind, times] of outcome.hits) hits.set(kind, (hits.get(kind) ?? 0) + times);
}

/** The same schedule once more, with all that happened. */
async function explain({ seed, violation }: Outcome, mix: keyof typeof MIXES): Promise<string> {
  const { trace } = await simulate(seed, MIXES[mix], {}, true);
  return [
    `Promise ${violation!.invariant} is broken: ${violation!.what}`,
    `Again: ATLAS_SEED=${seed} ATLAS_SEEDS=1 npx vitest run test/model/protocol/protocol.test.ts -t "${mix}"`,
    ...trace.slice(-TRACE_LINES),
  ].join('\n');
}

beforeAll(() => {
  startedAtMs = performance.now();
});

afterAll(() => {
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const kinds = [...hits].sort(([left], [right]) => left.localeCompare(right));
  console.log(
    [
      `protocol simulation: ${schedules} schedules from seed ${FIRST_SEED} in ${seconds.toFixed(1)} s, ${(virtualMs / 3_600_000).toFixed(1)} h of virtual time, ${redone} bodies and ${repeated} single steps run again`,
      `faults that hit: ${kinds.map(([kind, times]) => `${kind} ${times}`).join(', ')}`,
    ].join('\n'),
  );
});

describe('the promises of a session', () => {
  it.each(Object.keys(MIXES) as (keyof typeof MIXES)[])(
    'hold under %s',
    async (mix) => {
      for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed += 1) {
        const outcome = await simulate(seed, MIXES[mix]);
        count(outcome);
        if (outcome.violation !== undefined) expect.fail(await explain(outcome, mix));
      }
    },
    1_800_000,
  );

  it('are kept the same way each time: a seed is a schedule', async () => {
    const once = await simulate(FIRST_SEED, MIXES.everything, {}, true);
    const again = await simulate(FIRST_SEED, MIXES.everything, {}, true);
    expect(again.trace).toEqual(once.trace);
  });
});
