/**
 * What must hold after a schedule, read from the server's histories and from the files of the hosts:
 *
 * 1. Every pinned activity of a session ran on the worker that was granted that acquisition of it.
 * 2. A worker never has more sessions than its cap, those counted whose last activity has not ended.
 * 3. No pinned activity has an effect after its session was released or given up.
 * 4. When all owners have closed, all slots are free and all scratch directories gone within the bound (`chaos.test.ts`).
 * 5. No workflow hangs: each completes, or fails with an error of the catalogue.
 * 6. A short restart of atlasd, an outage of the server, and a deploy of every worker in turn redo no finished step.
 * 7. No session begins on a worker after a cordon was acknowledged.
 *
 * All processes of a run are on one machine, so that the server's timestamps and those of effects are by one clock. A
 * tolerance covers that the server notes an event a moment after it happened.
 */
import type { WorkflowFailedError } from '@temporalio/client';
import { ERRORS, findError } from '../../src/contract/errors.js';
import { controlQueueOf, parseSessionActivityId } from '../../src/contract/names.js';
import { historyOf, type RunHistory } from '../support/history.js';
import { type Arena, type DoneFault, type Effect, persistently, type StartedWorkflow } from './arena.js';

/** How much earlier than its cause an event may be in the history: none of these orders depends on less. */
const TOLERANCE_MS = 20;
/**
 * The one exception to 3: nothing on a host whose supervisor and executor stand still can end an activity. How long it may
 * go on when they do.
 */
const AFTER_FREEZE_MS = 1_500;
/** An executor whose supervisor was killed ends itself; what ended in it just before or meanwhile may not be on disk. */
const AROUND_KILL_MS = 1_000;

export interface Violation {
  readonly invariant: 1 | 2 | 3 | 4 | 5 | 6 | 7;
  readonly message: string;
  /** Whose timeline tells more. */
  readonly workflowId?: string;
}

/** One acquisition of a session: what its owner was granted, over all runs that adopted it. */
interface Acquisition {
  readonly grantId: string;
  readonly session: string;
  readonly workflowId: string;
  readonly worker: string;
  readonly queue: string;
  readonly grantedAtMs: number;
  readonly effects: Effect[];
  /** When its owner had the answer to a release, or acquired the session again; none after that. */
  endedAtMs: number | undefined;
  endedBy: string;
}

export interface Judged {
  readonly violations: readonly Violation[];
  readonly acquisitions: readonly Acquisition[];
  readonly redone: number;
  readonly adopted: number;
  readonly retried: number;
  /** How many runs ended as what. */
  readonly ends: ReadonlyMap<string, number>;
}

export interface Schedule {
  readonly faults: readonly DoneFault[];
  /** Whether there was nothing that may cost a finished step. */
  readonly keepsSteps: boolean;
}

/** Every run of a workflow: the first and what it continued as, then the same for each run that a reset has made. */
async function runsOf(arena: Arena, { workflowId, roots }: StartedWorkflow): Promise<RunHistory[]> {
  const runs: RunHistory[] = [];
  for (const root of roots) {
    for (let runId: string | undefined = root; runId !== undefined; runId = runs.at(-1)!.continuedAs)
      runs.push(await persistently(() => historyOf(arena.client, workflowId, runId)));
  }
  return runs;
}

export async function judge(
  arena: Arena,
  open: readonly StartedWorkflow[],
  { faults, keepsSteps }: Schedule,
): Promise<Judged> {
  const violations: Violation[] = [];
  const broken = (invariant: Violation['invariant'], message: string): void => {
    const workflowId = arena.workflows.find((each) => message.startsWith(each.workflowId))?.workflowId;
    violations.push({ invariant, message, ...(workflowId === undefined ? {} : { workflowId }) });
  };
  const effects = await arena.effects();
  const byGrant = new Map<string, Acquisition>();
  let adopted = 0;
  let retried = 0;
  const ends = new Map<string, number>();

  for (const workflow of arena.workflows) {
    const runs = await runsOf(arena, workflow);
    const { workflowId } = workflow;
    for (const run of runs) {
      ends.set(run.status, (ends.get(run.status) ?? 0) + 1);
      adopted += run.activities.filter(
        ({ type, outcome }) => type === 'atlas:adoptSession' && outcome !== 'timed-out',
      ).length;
      retried += run.activities.filter(({ type, attempt }) => type === 'write' && (attempt ?? 1) > 1).length;
      for (const grant of run.grants) {
        if (byGrant.has(grant.grantId)) continue;
        const { grantId, session, worker, queue, atMs } = grant;
        byGrant.set(grantId, { grantId, session, workflowId, worker, queue, grantedAtMs: atMs, effects: [], endedAtMs: undefined, endedBy: '' }); // prettier-ignore
      }
      // 1: where the pinned activities were sent, and who ran them.
      const grantOf = (activityId: string) => {
        const id = parseSessionActivityId(activityId);
        // A workflow reset may make two workers grant the same lease; the id says for which of them it is.
        return run.grants.find(
          ({ session, epoch, grantId }) =>
            session === id?.session && epoch === id.epoch && id.step.endsWith(`-${grantId}`),
        );
      };
      for (const { activityId, queue, identity, outcome } of run.activities.filter(({ type }) => type === 'write')) {
        const grant = grantOf(activityId);
        if (grant === undefined) broken(1, `${workflowId}: ${activityId} belongs to no grant of its run`);
        else if (queue !== grant.queue) broken(1, `${workflowId}: ${activityId} was sent to ${queue}, granted was ${grant.queue}`); // prettier-ignore
        else if (outcome === 'completed' && identity !== undefined && identity !== '' && !identity.startsWith(`${grant.worker}@`)) broken(1, `${workflowId}: ${activityId} was completed by ${identity}, granted was ${grant.worker}`); // prettier-ignore
      }
      for (const effect of effects.filter(({ runId }) => runId === run.runId)) {
        const grant = grantOf(effect.activityId);
        if (grant === undefined) {
          broken(1, `${workflowId}: an effect of ${effect.activityId} on ${effect.worker} belongs to no grant`);
          continue;
        }
        if (effect.worker !== grant.worker) broken(1, `${workflowId}: ${effect.activityId} had an effect on ${effect.worker}, granted was ${grant.worker}`); // prettier-ignore
        byGrant.get(grant.grantId)?.effects.push(effect);
      }
      // 3: when an acquisition was over for its owner.
      for (const [index, grant] of run.grants.entries()) {
        const acquisition = byGrant.get(grant.grantId)!;
        const end = (atMs: number, by: string): void => {
          if (acquisition.endedAtMs !== undefined && acquisition.endedAtMs <= atMs) return;
          acquisition.endedAtMs = atMs;
          acquisition.endedBy = by;
        };
        const prefix = `${grant.session}.${grant.epoch}:release-`;
        for (const { activityId, outcome, closedAtMs, queue } of run.activities) {
          const isRelease = activityId.startsWith(prefix) && queue === controlQueueOf(grant.queue);
          if (isRelease && outcome === 'completed') end(closedAtMs!, `its release (${activityId})`);
        }
        for (const next of run.grants.slice(index + 1).filter(({ session }) => session === grant.session)) {
          const lease = run.activities.find(({ activityId }) => activityId === `${next.session}.${next.epoch}:lease`);
          if (lease?.type === 'atlas:acquireWorker' && lease.scheduledAtMs > grant.atMs)
            end(lease.scheduledAtMs, `its owner giving it up (${lease.activityId})`);
        }
      }
    }
    const last = runs.at(-1)!;
    if (open.includes(workflow)) {
      const pending = last.activities.filter(({ outcome }) => outcome === 'open').map(({ type, activityId }) => `${type} ${activityId}`); // prettier-ignore
      broken(5, `${workflowId} (run ${last.runId}) has not closed in time; open: ${pending.join(', ') || 'nothing'}`);
    } else if (last.status === 'FAILED') {
      const { handle } = workflow;
      const error: unknown = await handle.result().catch((reason: unknown) => reason);
      const code = findError(error)?.code;
      if (code === undefined || !(code in ERRORS))
        broken(5, `${workflowId} failed with an error that is not documented: ${String((error as WorkflowFailedError).cause)}`); // prettier-ignore
      else if (workflow.ended === undefined && keepsSteps) broken(5, `${workflowId} failed with ${code}`);
    } else if (last.status !== 'COMPLETED' && workflow.ended === undefined) {
      broken(5, `${workflowId} ended as ${last.status}`);
    }
  }

  const frozen = faults.filter(({ fault }) => fault.kind === 'freeze-both');
  const excused = ({ worker, atMs }: Effect): boolean =>
    frozen.some(
      ({ fault, beganAtMs, endedAtMs }) =>
        'worker' in fault && worker === `w${fault.worker}` && atMs >= beganAtMs && atMs <= endedAtMs + AFTER_FREEZE_MS,
    );
  const acquisitions = [...byGrant.values()].sort((one, other) => one.grantedAtMs - other.grantedAtMs);
  for (const { endedAtMs, endedBy, effects: own, session, worker, workflowId } of acquisitions) {
    if (endedAtMs === undefined) continue;
    const late = own.filter((effect) => effect.atMs > endedAtMs + TOLERANCE_MS && !excused(effect));
    if (late.length > 0) {
      const latestMs = Math.max(...late.map(({ atMs }) => atMs)) - endedAtMs;
      broken(3, `${workflowId}: ${late.length} effects of session ${session} on ${worker} up to ${latestMs.toFixed(0)} ms after ${endedBy}`); // prettier-ignore
    }
  }
  checkCaps(arena, acquisitions, broken);
  for (const { worker, fromMs, toMs } of arena.cordons) {
    const late = acquisitions.filter(
      (each) => each.worker === worker && each.grantedAtMs > fromMs + TOLERANCE_MS && each.grantedAtMs < toMs,
    );
    for (const { workflowId, session, grantedAtMs } of late)
      broken(7, `${workflowId}: ${session} was granted by ${worker} ${(grantedAtMs - fromMs).toFixed(0)} ms after it had acknowledged a cordon`); // prettier-ignore
  }
  if (keepsSteps) checkSteps(arena, effects, faults, broken);

  const bySession = new Map<string, Acquisition[]>();
  for (const acquisition of acquisitions) {
    const key = `${acquisition.workflowId} ${acquisition.session}`;
    bySession.set(key, [...(bySession.get(key) ?? []), acquisition]);
  }
  let redone = 0;
  for (const [key, all] of bySession) {
    redone += all.length - 1;
    if (all.length > 1 && keepsSteps) {
      broken(6, `${key} was redone: granted by ${all.map(({ worker }) => worker).join(', then ')}`);
    }
  }
  return { violations, acquisitions, redone, adopted, retried, ends };
}

/** 6: a step that had ended does not begin again, unless its executor was being killed just then. */
function checkSteps(
  arena: Arena,
  effects: readonly Effect[],
  faults: readonly DoneFault[],
  broken: (invariant: 6, message: string) => void,
): void {
  const kills = [
    ...arena.kills,
    ...faults.flatMap(({ fault, beganAtMs, endedAtMs }) =>
      fault.kind.startsWith('kill-') && 'worker' in fault
        ? [{ worker: `w${fault.worker}`, fromMs: beganAtMs, toMs: endedAtMs }]
        : [],
    ),
  ];
  for (const end of effects.filter(({ what }) => what === 'end')) {
    const again = effects.find(
      ({ what, runId, label, atMs }) =>
        what === 'begin' && runId === end.runId && label === end.label && atMs > end.atMs,
    );
    const killed = kills.some(
      ({ worker, fromMs, toMs }) =>
        end.worker === worker && end.atMs > fromMs - AROUND_KILL_MS && end.atMs < toMs + AROUND_KILL_MS,
    );
    if (again === undefined || killed) continue;
    const workflow = arena.workflows.find(({ roots }) => roots.includes(end.runId));
    broken(6, `${workflow?.workflowId ?? end.runId}: the step ${end.label} (${end.activityId}) began again ${again.atMs - end.atMs} ms after it had ended`); // prettier-ignore
  }
}

/** 2: sessions of one worker at the same time, from the grant to the last effect; the true interval is no shorter. */
function checkCaps(
  arena: Arena,
  acquisitions: readonly Acquisition[],
  broken: (invariant: 2, message: string) => void,
): void {
  for (const { name, cap } of arena.workers) {
    const spans = acquisitions
      .filter(({ worker, effects }) => worker === name && effects.length > 0)
      .map(({ grantedAtMs, effects, session }) => ({ session, fromMs: grantedAtMs, toMs: Math.max(...effects.map(({ atMs }) => atMs)) })); // prettier-ignore
    for (const span of spans) {
      const beside = spans.filter(({ fromMs, toMs }) => fromMs + TOLERANCE_MS < span.fromMs && toMs > span.fromMs + TOLERANCE_MS); // prettier-ignore
      if (beside.length + 1 > cap) {
        broken(2, `${name} has a cap of ${cap}, but held ${span.session} beside ${beside.map(({ session }) => session).join(', ')}`); // prettier-ignore
      }
    }
  }
}

/** What happened to a workflow, in order, for the report of a broken invariant. Times are seconds since its start. */
export async function timeline(arena: Arena, workflowId: string): Promise<string> {
  const workflow = arena.workflows.find((each) => each.workflowId === workflowId);
  if (workflow === undefined) return '';
  const runs = await runsOf(arena, workflow);
  const effects = await arena.effects();
  const events: { readonly atMs: number; readonly what: string }[] = [];
  for (const run of runs) {
    events.push({ atMs: run.startedAtMs, what: `run ${run.runId}` });
    if (run.closedAtMs !== undefined) events.push({ atMs: run.closedAtMs, what: `run ${run.status}` });
    for (const { atMs, worker, epoch, grantId } of run.grants)
      events.push({ atMs, what: `grant ${grantId} epoch ${epoch} on ${worker}` });
    for (const { type, activityId, queue, scheduledAtMs, closedAtMs, outcome, attempt } of run.activities) {
      events.push({ atMs: scheduledAtMs, what: `scheduled ${type} ${activityId} on ${queue}` });
      if (closedAtMs !== undefined)
        events.push({ atMs: closedAtMs, what: `${outcome} ${type} ${activityId} attempt ${attempt ?? 0}` });
    }
    const own = effects.filter(({ runId }) => runId === run.runId);
    for (const [index, { atMs, what, label, worker, activityId, attempt, pid }] of own.entries()) {
      const last = !own.slice(index + 1).some((later) => later.pid === pid && later.activityId === activityId);
      if (what !== 'tick' || last)
        events.push({
          atMs,
          what: `  effect ${what} ${label} on ${worker} (pid ${pid}), ${activityId} attempt ${attempt}`,
        });
    }
  }
  const fromMs = runs[0]!.startedAtMs;
  return events
    .sort((one, other) => one.atMs - other.atMs)
    .map(({ atMs, what }) => `    ${((atMs - fromMs) / 1_000).toFixed(3).padStart(8)} ${what}`)
    .join('\n');
}
