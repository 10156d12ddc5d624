/**
 * What must hold after a schedule, read from the server's histories and from the files of the hosts. Numbers are those of
 * the issue.
 *
 * All processes of a run are on one machine, so that the server's timestamps and those of effects are by one clock. A
 * tolerance covers that the server notes an event a moment after it happened.
 */
import type { WorkflowFailedError } from '@temporalio/client';
import { ERRORS, findError } from '../../src/contract/errors.js';
import { parseSessionActivityId } from '../../src/contract/names.js';
import { historyOf, type RunHistory } from '../support/history.js';
import { type Arena, type Effect, persistently, type StartedWorkflow } from './arena.js';

/** How much earlier than its cause an event may be in the history: none of these orders depends on less. */
const TOLERANCE_MS = 20;

export interface Violation {
  readonly invariant: 1 | 2 | 3 | 4 | 5 | 6;
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
}

/** Every run of a workflow, the oldest first, followed by what its runs continued as. */
async function runsOf(arena: Arena, { handle }: StartedWorkflow): Promise<RunHistory[]> {
  const runs: RunHistory[] = [];
  let runId = (handle as { firstExecutionRunId?: string }).firstExecutionRunId;
  for (;;) {
    const run = await persistently(() => historyOf(arena.client, handle.workflowId, runId));
    runs.push(run);
    if (run.continuedAs === undefined) return runs;
    runId = run.continuedAs;
  }
}

export async function judge(arena: Arena, open: readonly StartedWorkflow[], redoAllowed: boolean): Promise<Judged> {
  const violations: Violation[] = [];
  const broken = (invariant: Violation['invariant'], message: string): void => {
    const workflowId = arena.workflows.find(({ handle }) => message.startsWith(handle.workflowId))?.handle.workflowId;
    violations.push({ invariant, message, ...(workflowId === undefined ? {} : { workflowId }) });
  };
  const effects = await arena.effects();
  const byGrant = new Map<string, Acquisition>();
  let adopted = 0;
  let retried = 0;

  for (const workflow of arena.workflows) {
    const runs = await runsOf(arena, workflow);
    const { workflowId } = workflow.handle;
    for (const run of runs) {
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
      for (const activity of run.activities.filter(({ type }) => type === 'write')) {
        const id = parseSessionActivityId(activity.activityId);
        const grant = run.grants.find(({ session, epoch }) => session === id?.session && epoch === id.epoch);
        if (grant === undefined) broken(1, `${workflowId}: ${activity.activityId} belongs to no grant of its run`);
        else if (activity.queue !== grant.queue) broken(1, `${workflowId}: ${activity.activityId} was sent to ${activity.queue}, granted was ${grant.queue}`); // prettier-ignore
        else if (activity.identity !== undefined && activity.identity !== '' && !activity.identity.startsWith(`${grant.worker}@`) && activity.outcome === 'completed') broken(1, `${workflowId}: ${activity.activityId} was completed by ${activity.identity}, granted was ${grant.worker}`); // prettier-ignore
      }
      for (const effect of effects.filter(({ runId }) => runId === run.runId)) {
        const id = parseSessionActivityId(effect.activityId);
        const grant = run.grants.find(({ session, epoch }) => session === id?.session && epoch === id.epoch);
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
        for (const { activityId, outcome, closedAtMs } of run.activities) {
          if (activityId.startsWith(prefix) && outcome === 'completed') end(closedAtMs!, `its release (${activityId})`);
        }
        const next = run.grants.slice(index + 1).find(({ session, grantId }) => session === grant.session && grantId !== grant.grantId); // prettier-ignore
        const lease = next === undefined ? undefined : run.activities.find(({ activityId }) => activityId === `${next.session}.${next.epoch}:lease`); // prettier-ignore
        if (lease?.type === 'atlas:acquireWorker' && lease.scheduledAtMs > grant.atMs) {
          end(lease.scheduledAtMs, `its owner giving it up (${lease.activityId})`);
        }
      }
    }
    const last = runs.at(-1)!;
    if (open.includes(workflow)) {
      const pending = last.activities.filter(({ outcome }) => outcome === 'open').map(({ type, activityId }) => `${type} ${activityId}`); // prettier-ignore
      broken(5, `${workflowId} (run ${last.runId}) has not closed in time; open: ${pending.join(', ') || 'nothing'}`);
    } else if (last.status === 'FAILED') {
      const error: unknown = await workflow.handle.result().catch((reason: unknown) => reason);
      const code = findError(error)?.code;
      if (code === undefined || !(code in ERRORS))
        broken(5, `${workflowId} failed with an error that is not documented: ${String((error as WorkflowFailedError).cause)}`); // prettier-ignore
      else if (workflow.ended === undefined && !redoAllowed) broken(5, `${workflowId} failed with ${code}`);
    } else if (last.status !== 'COMPLETED' && workflow.ended === undefined) {
      broken(5, `${workflowId} ended as ${last.status}`);
    }
  }

  const acquisitions = [...byGrant.values()].sort((one, other) => one.grantedAtMs - other.grantedAtMs);
  for (const { endedAtMs, endedBy, effects: own, session, worker, workflowId } of acquisitions) {
    if (endedAtMs === undefined) continue;
    const late = own.filter(({ atMs }) => atMs > endedAtMs + TOLERANCE_MS);
    if (late.length > 0) {
      const latestMs = Math.max(...late.map(({ atMs }) => atMs)) - endedAtMs;
      broken(3, `${workflowId}: ${late.length} effects of session ${session} on ${worker} up to ${latestMs.toFixed(0)} ms after ${endedBy}`); // prettier-ignore
    }
  }
  checkCaps(arena, acquisitions, broken);

  const bySession = new Map<string, Acquisition[]>();
  for (const acquisition of acquisitions) {
    const key = `${acquisition.workflowId} ${acquisition.session}`;
    bySession.set(key, [...(bySession.get(key) ?? []), acquisition]);
  }
  let redone = 0;
  for (const [key, all] of bySession) {
    redone += all.length - 1;
    if (all.length > 1 && !redoAllowed) {
      broken(6, `${key} was redone: granted by ${all.map(({ worker }) => worker).join(', then ')}`);
    }
  }
  return { violations, acquisitions, redone, adopted, retried };
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
  const workflow = arena.workflows.find(({ handle }) => handle.workflowId === workflowId);
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
