/** One schedule of faults, from its server to its verdict, and what is printed of it. */
import { eventually, workersOf } from '../support/fixtures.js';
import { type ArenaOptions, type DoneFault, Arena, drain, persistently, PrivateServer, runPlan } from './arena.js';
import { type Judged, judge, timeline, type Violation } from './invariants.js';
import { describeFault, type Plan } from './plan.js';

/** After the last fault, on a busy machine. A workflow that hangs hangs for longer. */
const DRAIN_MS = 150_000;
/**
 * From when all owners have closed. The owner check takes 3 s and what visibility is behind, the hand-over to a next run
 * that never came 15 s, and what a worker could not delete it tries again every 10 s; the rest is for a busy machine.
 */
const FREE_MS = 40_000;
/** What takes longer than this to close is told of, though it breaks no promise. */
const SLOW_MS = 30_000;

export interface Outcome {
  readonly plan: Plan;
  readonly faults: readonly DoneFault[];
  readonly judged: Judged;
  readonly violations: readonly Violation[];
  readonly openMs: number;
  readonly freeMs: number;
  /** A restart took so long that what it costs is not promised; the rest is judged. */
  readonly late: boolean;
  /** How often an embedded worker has killed its process at a fence. */
  readonly selfKills: number;
}

/** Runs a schedule with a server of its own. */
export async function runSchedule(
  plan: Plan,
  workers: Pick<ArenaOptions, 'program' | 'embedded'> = {},
): Promise<Outcome> {
  const server = await PrivateServer.start();
  let arena: Arena | undefined;
  try {
    const { caps, presenceTtlMs } = plan;
    arena = await Arena.open({ client: server.client, address: server.address, caps, presenceTtlMs, ...workers });
    const faults = await runPlan(arena, server, plan);
    const faultsEndedMs = performance.now();
    const open = await drain(arena, DRAIN_MS);
    const closedMs = performance.now();
    if (closedMs - faultsEndedMs > SLOW_MS) await describeLastToClose(arena);
    const left = await leftViolations(arena);
    const freeMs = performance.now() - closedMs;
    const gentle = plan.kind === 'gentle';
    const keepsAll = gentle || plan.kind === 'deploy';
    const promisedMs = presenceTtlMs + plan.recoveryWindowMs - presenceTtlMs / 3;
    const late =
      gentle &&
      faults.some(({ fault, beganAtMs, endedAtMs }) => 'worker' in fault && endedAtMs - beganAtMs > promisedMs);
    const judged = await judge(arena, open, { faults, keepsSteps: keepsAll && !late });
    const tell = new Set(judged.violations.flatMap(({ workflowId }) => workflowId ?? []));
    for (const workflowId of tell) console.log(`${workflowId}:\n${await timeline(arena, workflowId)}`);
    const violations = [...judged.violations, ...left];
    if (left.length === 0) violations.push(...(await slotViolations(arena, plan)));
    if (violations.length > 0) await describeFleet(arena);
    return {
      plan,
      faults,
      judged,
      violations,
      openMs: closedMs - faultsEndedMs,
      freeMs,
      late,
      selfKills: arena.selfKills,
    };
  } finally {
    await arena?.close();
    await server.close();
  }
}

/** 4: waits until something holds; a violation if it does not in time. */
async function within(what: string, holds: () => Promise<boolean>): Promise<Violation[]> {
  try {
    await eventually(() => persistently(holds), { what, timeoutMs: FREE_MS });
    return [];
  } catch (error) {
    return [{ invariant: 4, message: String(error) }];
  }
}

/** 4: no session and no scratch directory is left. */
async function leftViolations(arena: Arena): Promise<Violation[]> {
  const violations = [
    ...(await within('no session is listed', async () => (await arena.heldSessions()) === 0)),
    ...(await within('no scratch directory is left', async () => (await arena.scratch()).length === 0)),
  ];
  if (violations.length > 0)
    violations.push({ invariant: 4, message: `left: ${(await arena.scratch()).join(', ') || 'no scratch'}` });
  return violations;
}

/** 4: every slot can be had, and is free again after that. */
async function slotViolations(arena: Arena, plan: Plan): Promise<Violation[]> {
  const slots = plan.caps.reduce((sum, cap) => sum + cap, 0);
  // A short lease: what the poll of a dead connection has swallowed is handed out again after the lease TTL.
  const holders = await Promise.all(
    Array.from({ length: slots }, () => arena.start('holder', { session: { leaseTtl: '5s' } })),
  );
  const violations = await within(
    'as many sessions are held as there are slots',
    async () => (await arena.heldSessions()) === slots,
  );
  await Promise.all(holders.map(({ handle }) => handle.signal('finish')));
  violations.push(...(await within('they are released again', async () => (await arena.heldSessions()) === 0)));
  return violations;
}

async function describeLastToClose(arena: Arena): Promise<void> {
  const closed = await Promise.all(
    arena.workflows.map(async ({ workflowId, handle }) => {
      const { closeTime } = await persistently(() => handle.describe());
      return { workflowId, atMs: closeTime?.getTime() ?? 0 };
    }),
  );
  const [last] = closed.sort((one, other) => other.atMs - one.atMs);
  if (last !== undefined)
    console.log(`  the last to close, ${last.workflowId}:\n${await timeline(arena, last.workflowId)}`);
}

/** For the report: what each worker says of itself, and how far the last workflows have come. */
async function describeFleet(arena: Arena): Promise<void> {
  for (const { name, state, sessions, cap, reason } of await workersOf(arena.client, arena.fleet))
    console.log(`  ${name}: ${state} ${sessions}/${cap} ${reason ?? ''}`);
  for (const { workflowId } of arena.workflows.slice(-4))
    console.log(`  ${workflowId}:\n${await timeline(arena, workflowId)}`);
  for (const { atlasd } of arena.workers) console.log(atlasd.transcript().slice(-6_000));
}

/** Whether a fault met something: calls, a workflow, a session of its worker, or any session for one of the server. */
export function hit({ fault, beganAtMs, endedAtMs, met }: DoneFault, { acquisitions }: Judged): boolean {
  if (met !== undefined) return met > 0;
  const name = 'worker' in fault ? `w${fault.worker}` : undefined;
  return acquisitions.some(
    ({ worker, grantedAtMs, effects, endedAtMs: overAtMs }) =>
      (name === undefined || worker === name) &&
      grantedAtMs < Math.max(endedAtMs, beganAtMs + 1) &&
      (overAtMs ?? Math.max(grantedAtMs, ...effects.map(({ atMs }) => atMs))) > beganAtMs,
  );
}

export function report({ plan, faults, judged, violations, openMs, freeMs, late, selfKills }: Outcome): void {
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  const lines = [
    `chaos: seed ${plan.seed} (${plan.kind}), caps ${plan.caps.join('+')}, presence TTL ${plan.presenceTtlMs} ms, lease TTL ${plan.leaseTtlMs} ms, window ${plan.recoveryWindowMs} ms`,
    ...faults.map(
      (done) =>
        `  ${describeFault(done.fault)}: ${hit(done, judged) ? 'hit' : 'met nothing'}${done.met === undefined ? '' : ` (${done.met})`}, took ${seconds(done.endedAtMs - done.beganAtMs)}`,
    ),
    `  runs: ${[...judged.ends].map(([end, count]) => `${count} ${end}`).join(', ')}`,
    `  ${judged.acquisitions.length} acquisitions, ${judged.redone} redone, ${judged.adopted} adopted, ${judged.retried} steps retried in place`,
    `  all owners closed ${seconds(openMs)} after the last fault, all slots and scratch free ${seconds(freeMs)} later`,
    ...(selfKills > 0 ? [`  ${selfKills} processes killed themselves at a fence`] : []),
    ...(late ? ['  a restart took too long for the promise that nothing is redone: that one was not judged'] : []),
    ...violations.map(({ invariant, message }) => `  INVARIANT ${invariant}: ${message}`),
  ];
  console.log(lines.join('\n'));
}
