/**
 * Which worker of a drain is next, which wait and why, and which are done: a pure state machine over what was last seen
 * of the fleet. The shell around it (`commands/support/run-drain.ts`) looks, gives the orders and tells the plan.
 *
 * Two promises, whatever the fleet does: never more than `maxParallel` drains go on at once, and none begins that would
 * leave fewer than `minReady` other workers ready. Imports nothing but types.
 */
import type { DesiredState, OnDeadline, Scheduling } from '../contract/fleet.js';
import type { WorkerRecord, WorkerState } from './records.js';

/** What a plan needs to know of a worker. */
export interface PlanWorker {
  readonly name: string;
  readonly state: WorkerState;
  readonly sessions: number;
  /** Since it was last heard of; null where that is not known. */
  readonly silentForMs: number | null;
  /** It is alive, open, and does not stop: sessions can go there. */
  readonly ready: boolean;
  readonly scheduling: Scheduling;
  readonly revision: number;
  /** Who took it out of service; null while it is open. */
  readonly who: string | null;
  readonly drain: {
    readonly deadlineAtMs: number | null;
    readonly onDeadline: OnDeadline;
    readonly overdue: boolean;
  } | null;
}

export interface DrainPlanOptions {
  readonly maxParallel: number;
  readonly minReady: number;
  /** Of each worker, from the order on; also how long one waits for room before it is left out. Null for none. */
  readonly deadlineMs: number | null;
  readonly onDeadline: OnDeadline;
}

/**
 * `waiting`: not ordered yet. `ordered`: the order is under way. `draining`: it goes on. All others are ends:
 * `overdue` (the deadline was reached with work left), `lost` and `stopped` (for longer than {@link RETURN_PATIENCE_MS}),
 * `undone` (uncordoned meanwhile), `gone` (it was taken off the list), `refused`, `no-room` (left out after waiting for
 * as long as the deadline). An overdue worker may still become `drained` while others are watched.
 */
export type TargetPhase =
  | 'waiting'
  | 'ordered'
  | 'draining'
  | 'drained'
  | 'overdue'
  | 'lost'
  | 'stopped'
  | 'undone'
  | 'gone'
  | 'refused'
  | 'no-room';

export interface Target {
  readonly worker: string;
  readonly phase: TargetPhase;
  /** When the phase began. */
  readonly sinceMs: number;
  /** When it was ordered, or first seen to drain; null before. */
  readonly startedAtMs: number | null;
  /** By the clock of whoever watches. */
  readonly deadlineAtMs: number | null;
  readonly onDeadline: OnDeadline;
  /** The revision that the order led to: whatever is seen with an older one was seen before it. Null where unknown. */
  readonly revision: number | null;
  /** The revision that was seen when it was ordered. */
  readonly seenRevision: number;
  /** Since when it is lost, stopped or missing from the list; null while it is there. */
  readonly awaySinceMs: number | null;
  /** Since when only `minReady` holds it back. */
  readonly noRoomSinceMs: number | null;
  /** What it was last seen to hold. */
  readonly sessions: number;
  /** Who undid the drain, or why it was refused. */
  readonly note: string | null;
}

export interface DrainPlan {
  readonly targets: readonly Target[];
  readonly options: DrainPlanOptions;
}

export type WaitReason =
  | { readonly kind: 'parallel'; readonly going: number; readonly maxParallel: number }
  | { readonly kind: 'room'; readonly readyOthers: number; readonly minReady: number };

export interface PlanStep {
  readonly plan: DrainPlan;
  /** To be ordered now, each told to the plan by {@link ordered}. */
  readonly start: readonly string[];
  readonly waits: ReadonlyMap<string, WaitReason>;
  readonly finished: boolean;
}

/** How long a worker that drains may be lost, stopped or missing: restarts take some seconds, and the drain goes on. */
export const RETURN_PATIENCE_MS = 30_000;
/** How long after the deadline it is taken for reached although the fleet has not noted it, as when no worker runs. */
export const DEADLINE_MARGIN_MS = 15_000;
/** How long after the deadline a forced release may take: activities get 30 s to end before they are killed. */
export const RELEASE_PATIENCE_MS = 120_000;

export function startPlan(workers: readonly string[], options: DrainPlanOptions, nowMs: number): DrainPlan {
  return {
    options,
    targets: workers.map((worker) => ({
      worker,
      phase: 'waiting',
      sinceMs: nowMs,
      startedAtMs: null,
      deadlineAtMs: null,
      onDeadline: options.onDeadline,
      revision: null,
      seenRevision: 0,
      awaySinceMs: null,
      noRoomSinceMs: null,
      sessions: 0,
      note: null,
    })),
  };
}

/** Drains that go on already, by their own terms: nothing is ordered. */
export function monitorPlan(workers: readonly PlanWorker[], nowMs: number): DrainPlan {
  const plan = startPlan(
    workers.map(({ name }) => name),
    { maxParallel: workers.length, minReady: 0, deadlineMs: null, onDeadline: 'report' },
    nowMs,
  );
  return {
    ...plan,
    targets: plan.targets.map((target, index) => ({
      ...target,
      phase: 'draining',
      startedAtMs: nowMs,
      deadlineAtMs: workers[index]!.drain?.deadlineAtMs ?? null,
      onDeadline: workers[index]!.drain?.onDeadline ?? 'report',
      revision: workers[index]!.revision,
      sessions: workers[index]!.sessions,
    })),
  };
}

/** The plan after another look at the fleet, and what to do now. Repeatable: it changes nothing but its answer. */
export function advance(plan: DrainPlan, fleet: readonly PlanWorker[], nowMs: number): PlanStep {
  const seen = new Map(fleet.map((worker) => [worker.name, worker]));
  const targets = plan.targets.map((target) => observed(target, seen.get(target.worker), nowMs));
  const { maxParallel, minReady, deadlineMs } = plan.options;
  const start: string[] = [];
  const waits = new Map<string, WaitReason>();
  const isGoing = ({ phase }: Target): boolean => phase === 'ordered' || phase === 'draining';
  let going = targets.filter(isGoing).length;
  // What was ordered may not be in what was seen yet, nor what came of an order that was not answered.
  const takenOut = new Set(
    targets.filter((each) => isGoing(each) || each.phase === 'refused').map(({ worker }) => worker),
  );
  const decided = targets.map((target): Target => {
    if (target.phase !== 'waiting') return target;
    const worker = seen.get(target.worker);
    if (going >= maxParallel) {
      waits.set(target.worker, { kind: 'parallel', going, maxParallel });
      return { ...target, noRoomSinceMs: null };
    }
    const readyOthers = fleet.filter(
      ({ name, ready }) => ready && name !== target.worker && !takenOut.has(name),
    ).length;
    // One that takes no sessions anyway takes nothing from the fleet by being drained.
    const takesRoom = worker === undefined || (worker.scheduling === 'open' && !isAway(worker.state));
    if (takesRoom && readyOthers < minReady) {
      const sinceMs = target.noRoomSinceMs ?? nowMs;
      if (deadlineMs !== null && nowMs - sinceMs >= deadlineMs) return ended(target, 'no-room', nowMs);
      waits.set(target.worker, { kind: 'room', readyOthers, minReady });
      return { ...target, noRoomSinceMs: sinceMs };
    }
    start.push(target.worker);
    going += 1;
    takenOut.add(target.worker);
    return { ...target, seenRevision: worker?.revision ?? 0 };
  });
  const finished = start.length === 0 && decided.every((target) => !isGoing(target) && target.phase !== 'waiting');
  return { plan: { ...plan, targets: decided }, start, waits, finished };
}

/** The order is about to be given. */
export function ordered(plan: DrainPlan, worker: string, nowMs: number): DrainPlan {
  const { deadlineMs } = plan.options;
  return update(plan, worker, (target) => ({
    ...target,
    phase: 'ordered',
    sinceMs: nowMs,
    startedAtMs: nowMs,
    deadlineAtMs: deadlineMs === null ? null : nowMs + deadlineMs,
    noRoomSinceMs: null,
  }));
}

/** The order was answered; `desired` is null where it was only left with the server. */
export function accepted(plan: DrainPlan, worker: string, desired: DesiredState | null, nowMs: number): DrainPlan {
  return update(plan, worker, (target) => ({
    ...target,
    phase: 'draining',
    sinceMs: nowMs,
    revision: desired?.revision ?? null,
    // One that joins a drain is bound to the terms of that one.
    onDeadline: desired?.drain?.onDeadline ?? target.onDeadline,
  }));
}

/** The order was refused, or could not be given. */
export function refused(plan: DrainPlan, worker: string, why: string, nowMs: number): DrainPlan {
  return update(plan, worker, (target) => ({ ...ended(target, 'refused', nowMs), note: why }));
}

/** What a plan needs of the record of a worker. */
export function planWorker(record: WorkerRecord): PlanWorker {
  const { name, state, sessions, reason, scheduling } = record;
  const { drain } = scheduling;
  return {
    name,
    state,
    sessions,
    silentForMs: record.heartbeatAgeMs,
    // A reason says what keeps a ready worker from taking sessions: its executor is down, or it stops.
    ready: state === 'ready' && reason === null,
    scheduling: scheduling.scheduling,
    revision: scheduling.revision,
    who: scheduling.who,
    drain:
      drain === null
        ? null
        : {
            deadlineAtMs: drain.deadlineAt === null ? null : Date.parse(drain.deadlineAt),
            onDeadline: drain.onDeadline,
            overdue: drain.overdue,
          },
  };
}

function observed(target: Target, worker: PlanWorker | undefined, nowMs: number): Target {
  if (target.phase !== 'draining' && target.phase !== 'overdue') return target;
  if (worker === undefined) return awayFor(target, 'gone', nowMs, nowMs);
  const { scheduling, drain } = worker;
  // The record of a stopped worker has none, whatever it left behind.
  const sessions = worker.state === 'stopped' ? target.sessions : worker.sessions;
  // Seen before the order was followed. Where nobody answered it, the order has led to a later revision, or to nothing
  // since the worker was draining or drained already.
  const isOlder =
    target.revision === null
      ? scheduling !== 'draining' && scheduling !== 'drained' && worker.revision <= target.seenRevision
      : worker.revision < target.revision;
  if (!isOlder) {
    if (scheduling === 'drained') return { ...ended(target, 'drained', nowMs), sessions };
    if (scheduling !== 'draining') return { ...ended(target, 'undone', nowMs), note: worker.who };
  }
  if (target.phase === 'overdue') return { ...target, sessions };
  const terms = isOlder || drain === null ? {} : { onDeadline: drain.onDeadline };
  const next = present({ ...target, ...terms, sessions }, worker, nowMs);
  if (next.phase !== 'draining') return next;
  return isOverdue(next, !isOlder && drain?.overdue === true, nowMs) ? ended(next, 'overdue', nowMs) : next;
}

function isOverdue({ deadlineAtMs, onDeadline }: Target, noted: boolean, nowMs: number): boolean {
  if (onDeadline === 'report' && noted) return true;
  if (deadlineAtMs === null) return false;
  return nowMs >= deadlineAtMs + (onDeadline === 'report' ? DEADLINE_MARGIN_MS : RELEASE_PATIENCE_MS);
}

function present(target: Target, { state, silentForMs }: PlanWorker, nowMs: number): Target {
  // One that has been silent for long is not given time again by whoever looks now.
  if (state === 'lost') return awayFor(target, 'lost', nowMs - (silentForMs ?? 0), nowMs);
  // What it still held would be resumed by its next start; with nothing held there is nothing to wait for.
  if (state === 'stopped' && target.sessions === 0) return ended(target, 'stopped', nowMs);
  if (state === 'stopped') return awayFor(target, 'stopped', nowMs, nowMs);
  return { ...target, awaySinceMs: null };
}

function awayFor(target: Target, phase: 'lost' | 'stopped' | 'gone', sinceMs: number, nowMs: number): Target {
  const awaySinceMs = target.awaySinceMs ?? sinceMs;
  return nowMs - awaySinceMs >= RETURN_PATIENCE_MS ? ended(target, phase, nowMs) : { ...target, awaySinceMs };
}

function isAway(state: WorkerState): boolean {
  return state === 'lost' || state === 'stopped';
}

function ended(target: Target, phase: TargetPhase, nowMs: number): Target {
  return { ...target, phase, sinceMs: nowMs, noRoomSinceMs: null };
}

function update(plan: DrainPlan, worker: string, change: (target: Target) => Target): DrainPlan {
  return { ...plan, targets: plan.targets.map((target) => (target.worker === worker ? change(target) : target)) };
}
