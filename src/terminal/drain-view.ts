/**
 * What a drain looks like to a person: words for workers and for the sessions that keep them, the lines that a terminal
 * redraws, and the lines for a log. Pure, and loads nothing.
 */
import type { Blocker, OwnerLook, PinnedStep } from '../fleet/blockers.js';
import type { Target, WaitReason } from '../fleet/drain-plan.js';
import type { SessionRecord, WorkerRecord } from '../fleet/records.js';
import { count, formatDuration, plainText } from './format.js';
import { progressText } from './run-view.js';
import type { Style } from './style.js';

/** A change this recent means that the session moves; without one for as long, it is said to be stuck. */
const MOVES_WITHIN_MS = 30_000;

export type Verdict = 'moves' | 'stuck' | 'unclear';

export interface BlockerText {
  readonly verdict: Verdict;
  /** What it is doing: `extractPages 1m12s`. */
  readonly doing: string;
  /** Whether it moves, in words: `moved 2.0s ago · 12 of 80 pages`. */
  readonly says: string;
}

export interface DrainScreen {
  readonly startedAtMs: number;
  readonly nowMs: number;
  readonly targets: readonly Target[];
  readonly waits: ReadonlyMap<string, WaitReason>;
  readonly workers: ReadonlyMap<string, WorkerRecord>;
  readonly blockers: readonly Blocker[];
  readonly maxParallel: number;
  /** Only watched: nothing was ordered. */
  readonly monitor: boolean;
  /** Since when Temporal has not answered. */
  readonly outageSinceMs: number | null;
}

/** What a session that keeps a worker from being drained is doing, and whether it moves. */
export function blockerText(blocker: Blocker, nowMs: number): BlockerText {
  const { session, owner } = blocker;
  if (session.state === 'releasing') return { verdict: 'moves', doing: 'is being released', says: '' };
  if (session.state === 'granting') return { verdict: 'moves', doing: 'is being granted', says: '' };
  const step = owner?.steps.find(({ started }) => started) ?? owner?.steps[0];
  if (step !== undefined) return stepText(step, blocker, nowMs);
  if (session.step !== null) {
    const { activity, attempt, startedAt } = session.step;
    return {
      verdict: 'unclear',
      doing: `${plainText(activity)} ${formatDuration(nowMs - Date.parse(startedAt))}`,
      says: attempt > 1 ? `attempt ${attempt}` : '',
    };
  }
  return idleText(session, owner, nowMs);
}

function stepText(step: PinnedStep, { session, movedAtMs, watchedSinceMs }: Blocker, nowMs: number): BlockerText {
  const activity = plainText(step.activity);
  const attempt = step.attempt > 1 ? `attempt ${step.attempt}` : undefined;
  const failure =
    step.attempt > 1 && step.lastFailure !== null && step.lastFailure !== ''
      ? `after: ${plainText(step.lastFailure.replace(/\s+/g, ' '))}`
      : undefined;
  const retry = [attempt, failure].filter((part) => part !== undefined).join(' ');
  if (!step.started) {
    const inMs = step.nextAttemptAtMs === null ? 0 : step.nextAttemptAtMs - nowMs;
    if (inMs > 0) return { verdict: 'unclear', doing: activity, says: `${retry}, in ${formatDuration(inMs)}` };
    const waitsMs = nowMs - (step.scheduledAtMs ?? watchedSinceMs);
    const verdict = waitsMs >= MOVES_WITHIN_MS ? 'stuck' : 'unclear';
    return { verdict, doing: activity, says: join(`not begun for ${formatDuration(waitsMs)}`, retry) };
  }
  const startedAtMs = session.step?.activity === step.activity ? Date.parse(session.step.startedAt) : null;
  const doing = startedAtMs === null ? activity : `${activity} ${formatDuration(nowMs - startedAtMs)}`;
  const amount = step.progress === null || step.progress.total === 0 ? undefined : progressText(step.progress);
  const sinceMs = nowMs - Math.max(movedAtMs ?? watchedSinceMs, startedAtMs ?? 0);
  if (movedAtMs !== null && sinceMs < MOVES_WITHIN_MS)
    return { verdict: 'moves', doing, says: join(`moved ${formatDuration(sinceMs)} ago`, amount, retry) };
  if (amount === undefined) return { verdict: 'unclear', doing, says: join('it reports no progress', retry) };
  if (sinceMs < MOVES_WITHIN_MS) return { verdict: 'unclear', doing, says: join(amount, retry) };
  return { verdict: 'stuck', doing, says: join(`no progress for ${formatDuration(sinceMs)}`, amount, retry) };
}

function idleText(session: SessionRecord, owner: OwnerLook | null, nowMs: number): BlockerText {
  const idleMs = session.idleForMs ?? session.heldForMs;
  const doing = session.lastStep === null ? 'no step yet' : 'no step running';
  const verdict: Verdict = idleMs >= MOVES_WITHIN_MS ? 'stuck' : 'unclear';
  return {
    verdict,
    doing: `${doing} for ${formatDuration(idleMs)}`,
    says: owner === null ? '' : ownerText(owner, nowMs),
  };
}

/** What the owner does while none of its steps runs. */
function ownerText({ status, task, elsewhere }: OwnerLook, nowMs: number): string {
  if (status === 'PAUSED') return 'its owner is paused';
  if (status !== 'RUNNING') return `its owner has ended (${status}); the worker notices within seconds`;
  if (task !== null && task.attempt > 1) return `the workflow task of its owner fails, attempt ${task.attempt}`;
  if (task !== null && !task.started) {
    const waitsMs = task.sinceMs === null ? 0 : nowMs - task.sinceMs;
    return `no worker takes the workflow task of its owner, for ${formatDuration(waitsMs)}`;
  }
  if (task !== null) return 'its owner is at work';
  if (elsewhere.length > 0) return `owner waits for ${[...new Set(elsewhere.map(plainText))].join(', ')} elsewhere`;
  return 'owner waits for a timer, signal or child';
}

/** `worker-7: 2 of 4 sessions remain · deadline in 9m18s`, without the name. */
export function targetText(target: Target, screen: Omit<DrainScreen, 'blockers'>): string {
  const { nowMs, waits, workers } = screen;
  const worker = workers.get(target.worker);
  const took = target.startedAtMs === null ? '' : ` in ${formatDuration(target.sinceMs - target.startedAtMs)}`;
  const remain = `${count(target.sessions, 'session remains', 'sessions remain')}`;
  switch (target.phase) {
    case 'waiting':
      return waitText(waits.get(target.worker));
    case 'ordered':
      return 'is being told';
    case 'draining':
      return join(
        drainingText(target, worker, nowMs),
        target.deadlineAtMs === null ? undefined : deadlineText(target, nowMs),
      );
    case 'drained':
      return `drained${took}`;
    case 'overdue':
      return target.onDeadline === 'release'
        ? `not drained${took}, though its sessions were to be released: ${remain}`
        : `deadline reached, ${remain}; nothing was ended`;
    case 'lost':
      return 'is lost. Its sessions are redone elsewhere; the order is recorded and holds when it returns';
    case 'stopped':
      return target.sessions === 0
        ? 'has stopped, holding nothing. The order is recorded and holds when it starts'
        : `has stopped with ${count(target.sessions, 'session', 'sessions')} left, resumed by its next start or redone elsewhere. The order is recorded`;
    case 'undone':
      return target.note === null
        ? 'no longer drains: an operator has uncordoned it meanwhile'
        : `no longer drains; it is cordoned by ${plainText(target.note)}`;
    case 'gone':
      return 'is no longer on the list of the fleet';
    case 'refused':
      return `not drained: ${plainText(target.note ?? 'refused')}`;
    case 'no-room':
      return 'not started: no room came within the deadline (--min-ready)';
  }
}

function drainingText(target: Target, worker: WorkerRecord | undefined, nowMs: number): string {
  if (target.awaySinceMs !== null) {
    const state = worker === undefined ? 'missing from the list' : worker.state;
    return `${state} for ${formatDuration(nowMs - target.awaySinceMs)}; the drain goes on when it returns`;
  }
  if (worker === undefined) return 'draining';
  const unconfirmed = worker.scheduling.applied ? '' : ', not confirmed by it yet';
  return `draining, ${worker.sessions} of ${count(worker.cap, 'slot', 'slots')} held${unconfirmed}`;
}

function deadlineText({ deadlineAtMs, onDeadline }: Target, nowMs: number): string {
  const inMs = deadlineAtMs! - nowMs;
  if (inMs > 0)
    return onDeadline === 'release'
      ? `released by force in ${formatDuration(inMs)}`
      : `deadline in ${formatDuration(inMs)}`;
  return onDeadline === 'release' ? 'being released by force' : 'deadline reached';
}

export function waitText(wait: WaitReason | undefined): string {
  if (wait === undefined) return 'waits';
  if (wait.kind === 'parallel') return `waits: ${wait.going} being drained, --max-parallel ${wait.maxParallel}`;
  const others = `${wait.readyOthers === 0 ? 'no' : wait.readyOthers} other ${wait.readyOthers <= 1 ? 'worker is' : 'workers are'} ready`;
  return `waits for room: ${others}, --min-ready ${wait.minReady}`;
}

const MARKS = {
  waiting: ['·', undefined],
  ordered: ['>', 'cyan'],
  draining: ['>', 'cyan'],
  drained: ['✓', 'green'],
  overdue: ['!', 'yellow'],
  lost: ['!', 'yellow'],
  stopped: ['!', 'yellow'],
  undone: ['✗', 'red'],
  gone: ['✗', 'red'],
  refused: ['✗', 'red'],
  'no-room': ['!', 'yellow'],
} as const satisfies Record<Target['phase'], readonly [string, keyof Omit<Style, 'enabled'> | undefined]>;

/** The lines of the live view, uncut. */
export function screenLines(screen: DrainScreen, style: Style): string[] {
  const { targets, nowMs, startedAtMs, outageSinceMs, monitor, maxParallel, blockers } = screen;
  const drained = targets.filter(({ phase }) => phase === 'drained').length;
  const going = targets.filter(({ phase }) => phase === 'draining' || phase === 'ordered').length;
  const parallel = !monitor && targets.length > 1 ? `, ${maxParallel} at a time` : '';
  const head = join(
    `${monitor ? 'Watching the drain of' : 'Draining'} ${count(targets.length, 'worker', 'workers')}${parallel}`,
    targets.length > 1 ? `${drained} drained, ${going} going` : undefined,
    formatDuration(nowMs - startedAtMs),
    'Ctrl-C stops watching, not the drain',
  );
  const lines = [style.bold(head)];
  if (outageSinceMs !== null) lines.push(style.yellow(`! ${outageText(outageSinceMs, nowMs)}`));
  const width = Math.max(...targets.map(({ worker }) => worker.length));
  for (const target of targets) {
    const [mark, colour] = MARKS[target.phase];
    const name = target.worker.padEnd(width);
    lines.push(`${colour === undefined ? mark : style[colour](mark)} ${name}  ${targetText(target, screen)}`);
    if (target.phase !== 'draining' && target.phase !== 'overdue') continue;
    for (const blocker of blockers.filter(({ session }) => session.worker === target.worker))
      lines.push(`    ${blockerLine(blocker, nowMs, style)}`);
  }
  return lines;
}

/** `06babd2d6284  extractPages 1m12s · moved 2.0s ago · 12 of 80 pages (15%) · held 4m12s · document-report-3f9k2a`. */
export function blockerLine(blocker: Blocker, nowMs: number, style?: Style): string {
  const { verdict, doing, says } = blockerText(blocker, nowMs);
  const { session, workflowId, heldForMs } = blocker.session;
  const what = join(doing, says === '' ? undefined : says);
  const marked = verdict === 'stuck' ? `STUCK? ${what}` : what;
  const shown = style !== undefined && verdict === 'stuck' ? style.yellow(marked) : marked;
  return `${session}  ${shown} · held ${formatDuration(heldForMs)} · ${plainText(workflowId)}`;
}

export function outageText(sinceMs: number, nowMs: number): string {
  return `Temporal has not answered for ${formatDuration(nowMs - sinceMs)}; waiting for it. Drains that were ordered go on.`;
}

/** Without a change, what goes on is said again after this long. */
const REMINDER_INTERVAL_MS = 30_000;

/** The lines for a log: one per change, and what goes on every 30 s. Feed it every screen in turn. */
export class DrainLines {
  #told = new Map<string, string>();
  #sessions = new Map<string, string>();
  #outage = false;
  #lastReminderAtMs: number | undefined;

  next(screen: DrainScreen): string[] {
    const { nowMs, targets, outageSinceMs, startedAtMs } = screen;
    const lines: string[] = [];
    if ((outageSinceMs !== null) !== this.#outage) {
      this.#outage = outageSinceMs !== null;
      lines.push(this.#outage ? outageText(outageSinceMs!, nowMs) : 'Temporal answers again.');
    }
    for (const target of targets) {
      const gist = gistOf(target, screen);
      if (this.#told.get(target.worker) === gist) continue;
      this.#told.set(target.worker, gist);
      lines.push(`${target.worker}: ${targetText(target, screen)}`);
    }
    const seen = new Map<string, string>();
    for (const blocker of this.#of(screen)) {
      const { session } = blocker;
      const { verdict, doing } = blockerText(blocker, nowMs);
      // Not what moves within a step: only which step it is, and whether it has come to a stop.
      const gist = `${session.step?.activity ?? (session.state === 'held' ? '' : doing)} ${verdict === 'stuck'}`;
      seen.set(session.key, gist);
      if (this.#sessions.get(session.key) !== gist) lines.push(`${session.worker}:   ${blockerLine(blocker, nowMs)}`);
    }
    this.#sessions = seen;
    this.#lastReminderAtMs ??= startedAtMs;
    if (nowMs - this.#lastReminderAtMs >= REMINDER_INTERVAL_MS) {
      this.#lastReminderAtMs = nowMs;
      lines.push(...this.#reminder(screen));
    }
    const elapsed = `[${formatDuration(nowMs - startedAtMs).padStart(6)}]`;
    return lines.map((line) => `${elapsed} ${line}`);
  }

  #of({ targets, blockers }: DrainScreen): readonly Blocker[] {
    const open = new Set(
      targets.filter(({ phase }) => phase === 'draining' || phase === 'overdue').map(({ worker }) => worker),
    );
    return blockers.filter(({ session }) => open.has(session.worker));
  }

  #reminder(screen: DrainScreen): string[] {
    const { targets, nowMs, outageSinceMs } = screen;
    const lines = outageSinceMs === null ? [] : [outageText(outageSinceMs, nowMs)];
    for (const target of targets) {
      if (!['waiting', 'ordered', 'draining'].includes(target.phase)) continue;
      lines.push(`${target.worker}: still ${targetText(target, screen)}`);
      for (const blocker of screen.blockers.filter(({ session }) => session.worker === target.worker))
        if (target.phase === 'draining') lines.push(`${target.worker}:   ${blockerLine(blocker, nowMs)}`);
    }
    return lines;
  }
}

/** What of a target is worth a line when it changes: not the time that passes. */
function gistOf(target: Target, { waits, workers }: DrainScreen): string {
  const wait = waits.get(target.worker);
  const worker = workers.get(target.worker);
  const parts = [target.phase, wait?.kind, wait?.kind === 'room' ? wait.readyOthers : undefined];
  if (target.phase !== 'draining') return parts.join(' ');
  return [...parts, target.awaySinceMs !== null, worker?.sessions, worker?.scheduling.applied].join(' ');
}

function join(...parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined && part !== '').join(' · ');
}
