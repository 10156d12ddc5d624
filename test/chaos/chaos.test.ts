/**
 * Random faults on real processes and a real server; what must hold is then read from histories and files. A schedule is
 * made from a seed, which is printed: `ATLAS_CHAOS_SEED=n` runs the same again. `ATLAS_CHAOS_MINUTES=n` goes on for that
 * long, as a nightly run does; by default it is about two minutes.
 */
import { describe, expect, it } from 'vitest';
import { workersOf } from '../support/fixtures.js';
import { type DoneFault, Arena, drain, eventually, persistently, PrivateServer, runPlan } from './arena.js';
import { type Judged, judge, timeline, type Violation } from './invariants.js';
import { describeFault, type Plan, planOf } from './plan.js';

const MINUTES = Number(process.env['ATLAS_CHAOS_MINUTES'] ?? '2');
const FIXED_SEED = process.env['ATLAS_CHAOS_SEED'];
/** After the last fault, on a busy machine. A workflow that hangs hangs for longer. */
const DRAIN_MS = 150_000;
/** The documented bound of an idle slot is far less; the rest is for a busy machine. */
const FREE_MS = 60_000;
const ONE_SCHEDULE_MS = 420_000;

interface Outcome {
  readonly plan: Plan;
  readonly faults: readonly DoneFault[];
  readonly judged: Judged;
  readonly violations: readonly Violation[];
}

async function runSchedule(plan: Plan): Promise<Outcome> {
  const server = await PrivateServer.start();
  let arena: Arena | undefined;
  try {
    const { caps, presenceTtlMs } = plan;
    arena = await Arena.open({ client: server.client, address: server.address, caps, presenceTtlMs });
    const faults = await runPlan(arena, server, plan);
    const open = await drain(arena, DRAIN_MS);
    const late = faults.some(({ fault, beganAtMs, endedAtMs }) => plan.kind === 'gentle' && fault.kind !== 'stop-server' && endedAtMs - beganAtMs > presenceTtlMs + plan.recoveryWindowMs - 2_000); // prettier-ignore
    if (late) console.log('  a restart took too long for a promise that nothing is redone; that is not judged');
    const judged = await judge(arena, open, plan.kind === 'wild' || late);
    const tell = new Set(judged.violations.flatMap(({ workflowId }) => workflowId ?? []));
    for (const workflowId of tell) console.log(`${workflowId}:\n${await timeline(arena, workflowId)}`);
    return { plan, faults, judged, violations: [...judged.violations, ...(await freeViolations(arena, plan))] };
  } finally {
    await arena?.close();
    await server.close();
  }
}

/** 4: every slot can be had, and nothing is left in scratch. */
async function freeViolations(arena: Arena, plan: Plan): Promise<Violation[]> {
  const violations: Violation[] = [];
  const within = async (what: string, holds: () => Promise<boolean>): Promise<void> => {
    await eventually(() => persistently(holds), { what, timeoutMs: FREE_MS }).catch((error: unknown) => {
      violations.push({ invariant: 4, message: String(error) });
    });
  };
  await within('no session is listed', async () => (await arena.heldSessions()) === 0);
  await within('no scratch directory is left', async () => (await arena.scratch()).length === 0);
  if (violations.length > 0) {
    violations.push({ invariant: 4, message: `left: ${(await arena.scratch()).join(', ') || 'no scratch'}` });
    return violations;
  }
  const slots = plan.caps.reduce((sum, cap) => sum + cap, 0);
  const holders = await Promise.all(Array.from({ length: slots }, () => arena.start('holder', { session: {} })));
  await within('as many sessions are held as there are slots', async () => (await arena.heldSessions()) === slots);
  if (violations.length > 0) await describeFleet(arena);
  await Promise.all(holders.map(({ handle }) => handle.signal('finish')));
  await within('they are released again', async () => (await arena.heldSessions()) === 0);
  return violations;
}

/** For the report: what each worker says of itself, and how far its last workflows have come. */
async function describeFleet(arena: Arena): Promise<void> {
  for (const { name, state, sessions, cap, reason } of await workersOf(arena.client, arena.fleet))
    console.log(`  ${name}: ${state} ${sessions}/${cap} ${reason ?? ''}`);
  for (const { handle } of arena.workflows.slice(-4))
    console.log(`  ${handle.workflowId}:\n${await timeline(arena, handle.workflowId)}`);
  for (const { atlasd } of arena.workers) console.log(atlasd.transcript().slice(-4_000));
}

/** Whether a fault met a session: of its worker, or any for one of the server. */
function hit({ fault, beganAtMs, endedAtMs }: DoneFault, { acquisitions }: Judged): boolean {
  const name = 'worker' in fault ? `w${fault.worker}` : undefined;
  return acquisitions.some(
    ({ worker, grantedAtMs, endedAtMs: overAtMs }) =>
      (name === undefined || worker === name) &&
      grantedAtMs < Math.max(endedAtMs, beganAtMs + 1) &&
      (overAtMs ?? Number.POSITIVE_INFINITY) > beganAtMs,
  );
}

function report({ plan, faults, judged, violations }: Outcome): void {
  const lines = [
    `chaos: seed ${plan.seed} (${plan.kind}), caps ${plan.caps.join('+')}, presence TTL ${plan.presenceTtlMs} ms, lease TTL ${plan.leaseTtlMs} ms, window ${plan.recoveryWindowMs} ms`,
    ...faults.map((done) => `  ${describeFault(done.fault)}: ${hit(done, judged) ? 'hit' : 'met no session'}`),
    `  ${judged.acquisitions.length} acquisitions, ${judged.redone} redone, ${judged.adopted} adopted, ${judged.retried} steps retried in place`,
    ...violations.map(({ invariant, message }) => `  INVARIANT ${invariant}: ${message}`),
  ];
  console.log(lines.join('\n'));
}

describe('chaos', () => {
  const firstSeed = FIXED_SEED === undefined ? Math.floor(Math.random() * 1_000_000) : Number(FIXED_SEED);

  it('breaks no promise', { timeout: MINUTES * 60_000 + 2 * ONE_SCHEDULE_MS }, async () => {
    const untilMs = performance.now() + MINUTES * 60_000;
    const broken: string[] = [];
    let count = 0;
    let hits = 0;
    // Odd seeds are wild, even ones gentle; at least one of each.
    for (
      let seed = firstSeed;
      count < (FIXED_SEED === undefined ? 2 : 1) || (performance.now() < untilMs && FIXED_SEED === undefined);
      seed += 1
    ) {
      const outcome = await runSchedule(planOf(seed, seed % 2 === 1 ? 'wild' : 'gentle'));
      report(outcome);
      count += 1;
      hits += outcome.faults.filter((done) => hit(done, outcome.judged)).length;
      broken.push(
        ...outcome.violations.map(({ invariant, message }) => `seed ${seed}, invariant ${invariant}: ${message}`),
      );
    }
    console.log(`chaos: ${count} schedules from seed ${firstSeed}, ${hits} faults met a session`);
    expect(broken).toEqual([]);
    expect(hits).toBeGreaterThan(0);
  });
});
