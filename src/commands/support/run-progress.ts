/**
 * Derives how far a run is from what `describe` says about its pending activities. Pure.
 *
 * Only pending activities are read: a history grows with the run, and reading it at every look would cost the server
 * more than the run itself. What is not pending any more is done, because the steps have a fixed order.
 */
import { DOCUMENT_STEPS } from '../../contract/document.js';
import { parseSessionActivityId } from '../../contract/names.js';
import type { Progress } from '../../contract/progress.js';
import { LEASE_ACTIVITY } from '../../contract/session.js';
import type { RunView, StageView } from '../../terminal/run-view.js';

export interface PendingActivity {
  readonly activityId: string;
  readonly activityType: string;
  /** Whether a worker has it, as opposed to waiting for one. */
  readonly started: boolean;
  readonly attempt: number;
  readonly progress?: Progress;
  readonly lastFailure?: string;
  /** The worker that has or had it, where that is known. */
  readonly worker?: string;
}

export interface Observation {
  readonly atMs: number;
  readonly pending: readonly PendingActivity[];
}

/** What is kept between two looks. */
export interface RunState {
  readonly view: RunView;
  /** The highest lease that was seen, by session: a higher epoch, or another session, is a redo. */
  readonly lease: { readonly session: string; readonly epoch: number } | null;
}

const STAGES: readonly string[] = ['acquire', ...DOCUMENT_STEPS];
/** Waiting this long for a worker is worth a word on what might be missing. */
export const WAIT_HINT_AFTER_MS = 5_000;

export interface RunStart {
  readonly document: string;
  readonly workflowId: string;
  readonly atMs: number;
}

export function startOfRun({ document, workflowId, atMs }: RunStart): RunState {
  return {
    lease: null,
    view: {
      document,
      workflowId,
      worker: null,
      redos: 0,
      stages: freshStages(atMs),
      outageSinceMs: null,
      hint: null,
    },
  };
}

function freshStages(atMs: number): StageView[] {
  return STAGES.map((name, index) =>
    index === 0 ? { name, state: 'running', attempt: 1, startedAtMs: atMs } : { name, state: 'waiting', attempt: 1 },
  );
}

/** The state after another look at the run. */
export function observe(state: RunState, { atMs, pending }: Observation, waitHint: string): RunState {
  const steps = pending.filter(({ activityType }) => STAGES.includes(activityType));
  const lease = newestLease(pending) ?? state.lease;
  // A lease that failed before a step ran under it was only another try to find a worker.
  const hadBegun = state.view.stages.some(({ name, state: stage }) => name !== 'acquire' && stage !== 'waiting');
  const isRedo = hadBegun && state.lease !== null && lease !== null && isLater(lease, state.lease);
  let { stages, worker } = state.view;
  if (isRedo) {
    stages = freshStages(atMs);
    worker = null;
  }
  const running = steps.find(({ activityId }) => belongsTo(activityId, lease)) ?? steps[0];
  if (running !== undefined) {
    stages = advance(stages, running, atMs);
    worker = running.worker ?? worker;
  }
  const acquire = stages[0]!;
  const waitsTooLong = acquire.state === 'running' && atMs - (acquire.startedAtMs ?? atMs) >= WAIT_HINT_AFTER_MS;
  // What the last worker answered is a better hint than any guess: it may be full rather than absent.
  const refusal = pending.find(({ activityType }) => activityType === LEASE_ACTIVITY)?.lastFailure;
  return {
    lease,
    view: {
      ...state.view,
      stages,
      worker,
      redos: state.view.redos + (isRedo ? 1 : 0),
      outageSinceMs: null,
      hint: waitsTooLong ? (refusal === undefined ? waitHint : `Waiting for a free slot: ${refusal}`) : null,
    },
  };
}

/** Temporal did not answer. */
export function observeOutage(state: RunState, atMs: number): RunState {
  return { ...state, view: { ...state.view, outageSinceMs: state.view.outageSinceMs ?? atMs } };
}

/** The run has closed: everything is done, except what `failedStep` says or what was skipped. */
export function closeRun(
  state: RunState,
  atMs: number,
  end: {
    readonly failedStep?: string;
    readonly failed: boolean;
    readonly delivered?: boolean;
    readonly worker?: string;
    /** Counted by the run itself. */
    readonly redos?: number;
  },
): RunState {
  const failedIndex = end.failed ? failedStage(state.view.stages, end.failedStep) : -1;
  const stages = state.view.stages.map((stage, index): StageView => {
    const ended = { ...stage, endedAtMs: stage.endedAtMs ?? atMs, startedAtMs: stage.startedAtMs ?? atMs };
    if (end.failed) {
      if (index === failedIndex) return { ...ended, state: 'failed' };
      return index < failedIndex && stage.state !== 'waiting'
        ? { ...ended, state: 'done' }
        : { ...stage, state: skip(stage) };
    }
    if (stage.name === 'deliverDocument' && end.delivered !== true) return { ...stage, state: 'skipped' };
    return { ...ended, state: 'done' };
  });
  return {
    ...state,
    view: {
      ...state.view,
      stages,
      worker: end.worker ?? state.view.worker,
      redos: end.redos ?? state.view.redos,
      outageSinceMs: null,
      hint: null,
    },
  };
}

function skip(stage: StageView): StageView['state'] {
  return stage.state === 'running' ? 'skipped' : stage.state;
}

function failedStage(stages: readonly StageView[], step: string | undefined): number {
  const named = stages.findIndex(({ name }) => name === step);
  return named >= 0 ? named : stages.findIndex(({ state }) => state === 'running');
}

/** Whether the worker has the whole document, so that the run can go on without this command. */
export function workerHasDocument(state: RunState): boolean {
  const { stages } = state.view;
  return stages.findIndex(({ state: stage }) => stage === 'running') > STAGES.indexOf('downloadDocument');
}

function advance(stages: readonly StageView[], running: PendingActivity, atMs: number): StageView[] {
  const index = STAGES.indexOf(running.activityType);
  return stages.map((stage, position): StageView => {
    if (position < index) {
      if (stage.state === 'done') return stage;
      return { ...stage, state: 'done', startedAtMs: stage.startedAtMs ?? atMs, endedAtMs: atMs };
    }
    if (position > index) return stage;
    return {
      name: stage.name,
      state: 'running',
      attempt: running.attempt,
      startedAtMs: stage.startedAtMs ?? atMs,
      ...(running.progress === undefined ? {} : { progress: running.progress }),
      ...(running.lastFailure === undefined ? {} : { lastFailure: running.lastFailure }),
    };
  });
}

interface Lease {
  readonly session: string;
  readonly epoch: number;
}

function newestLease(pending: readonly PendingActivity[]): Lease | undefined {
  let newest: Lease | undefined;
  for (const { activityId, activityType } of pending) {
    if (activityType !== LEASE_ACTIVITY && !STAGES.includes(activityType)) continue;
    const id = parseSessionActivityId(activityId);
    if (id === undefined) continue;
    if (newest === undefined || isLater(id, newest)) newest = { session: id.session, epoch: id.epoch };
  }
  return newest;
}

/** An epoch never repeats within a run and rises with every lease, also over the sessions of a run. */
function isLater(lease: Lease, than: Lease): boolean {
  return lease.epoch > than.epoch || (lease.epoch === than.epoch && lease.session !== than.session);
}

function belongsTo(activityId: string, lease: Lease | null): boolean {
  const id = parseSessionActivityId(activityId);
  return id !== undefined && lease !== null && id.session === lease.session && id.epoch === lease.epoch;
}
