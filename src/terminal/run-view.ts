/**
 * What a run of the document job looks like to a person: the state that the live view draws and that the plain lines are
 * made from. Owns words and layout, not where the state comes from. Pure, and loads nothing: the live view with ink is
 * in `run-view-live.tsx`.
 */
import type { Progress } from '../contract/progress.js';
import { count, formatAmount, formatDuration, plainText } from './format.js';

export type StageState = 'waiting' | 'running' | 'done' | 'failed' | 'skipped';

export interface StageView {
  /** The activity, or `acquire` for the wait for a worker. */
  readonly name: string;
  readonly state: StageState;
  readonly progress?: Progress;
  /** The attempt that runs, from 1. */
  readonly attempt: number;
  /** Why the attempt before failed. */
  readonly lastFailure?: string;
  readonly startedAtMs?: number;
  readonly endedAtMs?: number;
}

export interface RunView {
  readonly document: string;
  readonly workflowId: string;
  readonly worker: string | null;
  /** How many times the sequence was begun again on another lease. */
  readonly redos: number;
  readonly stages: readonly StageView[];
  /** Since when Temporal has not answered. */
  readonly outageSinceMs: number | null;
  /** Something to tell the user, such as why nothing moves. */
  readonly hint: string | null;
}

const LABELS: Readonly<Record<string, string>> = {
  acquire: 'Find a worker',
  downloadDocument: 'Download',
  extractPages: 'Read pages',
  summarizeDocument: 'Summarise',
  deliverDocument: 'Deliver',
};

export function stageLabel(name: string): string {
  return LABELS[name] ?? name;
}

/** The stage that a person would say the run is at. */
export function currentStage(view: RunView): StageView | undefined {
  return view.stages.find((stage) => stage.state === 'running' || stage.state === 'failed');
}

/** `12.3 MB of 200.0 MB (6%), page 3 with OCR`. */
export function progressText(progress: Progress): string {
  const { done, total, unit, note } = progress;
  const percent = total !== undefined && total > 0 ? ` (${Math.floor((done / total) * 100)}%)` : '';
  const amount = formatAmount(done, total, unit) + percent;
  return note === undefined || note === '' ? amount : `${amount}, ${plainText(note)}`;
}

/** What there is to say beside the state of a stage. */
export function stageDetail(stage: StageView, nowMs: number): string {
  const parts: string[] = [];
  // "0 of 0" is what a step reports before it knows how much there is.
  if (stage.state === 'running' && stage.progress !== undefined && stage.progress.total !== 0)
    parts.push(progressText(stage.progress));
  if (stage.state === 'running' && stage.attempt > 1) {
    const reason =
      stage.lastFailure === undefined ? '' : ` after: ${plainText(stage.lastFailure.replace(/\s+/g, ' '))}`;
    parts.push(`attempt ${stage.attempt}${reason}`);
  }
  if (stage.startedAtMs !== undefined && stage.state !== 'waiting' && stage.state !== 'skipped') {
    parts.push(formatDuration((stage.endedAtMs ?? nowMs) - stage.startedAtMs));
  }
  return parts.join(' · ');
}

/** Not more often than this for progress within a stage; a change of stage is told at once. */
const PROGRESS_LINE_INTERVAL_MS = 2_000;

/**
 * The lines for a log: one per change of stage, worker, attempt, redo or outage, and at most one per two seconds of
 * progress. Feed it every state in turn.
 */
export class RunLines {
  readonly #startedAtMs: number;
  #previous: RunView | undefined;
  #lastProgressAtMs = Number.NEGATIVE_INFINITY;

  constructor(startedAtMs: number) {
    this.#startedAtMs = startedAtMs;
  }

  next(view: RunView, nowMs: number): string[] {
    const before = this.#previous;
    this.#previous = view;
    const lines = [...this.#changes(before, view, nowMs), ...this.#stages(before, view, nowMs)];
    const elapsed = `[${formatDuration(nowMs - this.#startedAtMs).padStart(6)}]`;
    return lines.map((line) => `${elapsed} ${line}`);
  }

  *#changes(before: RunView | undefined, view: RunView, nowMs: number): Generator<string> {
    if (view.outageSinceMs !== null && (before?.outageSinceMs ?? null) === null) {
      yield 'Temporal does not answer; waiting for it to come back. The run is not affected by this.';
    }
    if (view.outageSinceMs === null && before !== undefined && before.outageSinceMs !== null) {
      yield `Temporal answers again after ${formatDuration(nowMs - before.outageSinceMs)}.`;
    }
    if (view.redos > (before?.redos ?? 0)) {
      yield `The worker was lost; the sequence is done again from its start (${count(view.redos, 'redo', 'redos')} so far).`;
    }
    // The line of the stage that ends with a worker names it; only a change after that needs one of its own.
    const isToldByStage = before?.stages[0]?.state !== view.stages[0]?.state;
    if (!isToldByStage && view.worker !== null && view.worker !== before?.worker) yield `On ${plainText(view.worker)}.`;
    if (view.hint !== null && view.hint !== before?.hint) yield view.hint;
  }

  *#stages(before: RunView | undefined, view: RunView, nowMs: number): Generator<string> {
    for (const [index, stage] of view.stages.entries()) {
      const old = before?.stages[index];
      const detail = stageDetail(stage, nowMs);
      const line = `${stageLabel(stage.name)}: ${stageWord(stage, view.worker)}${detail === '' ? '' : ` · ${detail}`}`;
      const changed = stage.state !== (old?.state ?? 'waiting') || stage.attempt > (old?.attempt ?? 1);
      // After a redo the stages fall back to waiting; the line about the redo has said so.
      if (changed && stage.state !== 'waiting') {
        this.#lastProgressAtMs = nowMs;
        yield line;
      } else if (
        stage.state === 'running' &&
        stage.progress !== undefined &&
        (stage.progress.done !== old?.progress?.done || stage.progress.note !== old.progress.note) &&
        nowMs - this.#lastProgressAtMs >= PROGRESS_LINE_INTERVAL_MS
      ) {
        this.#lastProgressAtMs = nowMs;
        yield line;
      }
    }
  }
}

function stageWord(stage: StageView, worker: string | null): string {
  if (stage.name !== 'acquire') return stage.state;
  if (stage.state === 'done' && worker !== null) return plainText(worker);
  return stage.state === 'running' ? 'waiting' : stage.state;
}
