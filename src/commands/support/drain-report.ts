/** What a drain has come to: for people, for scripts, and as an exit code. Pure. */
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import type { Blocker } from '../../fleet/blockers.js';
import type { OrderResult } from '../../fleet/client.js';
import type { Target } from '../../fleet/drain-plan.js';
import { blockerLine, blockerText, type DrainScreen, targetText } from '../../terminal/drain-view.js';
import { worstExit } from './outcomes.js';
import type { DrainEnd } from './watch-drain.js';

/** `atlas uncordon worker-1 worker-2`. */
export function commandFor(words: string, workers: readonly string[]): string {
  return `\`atlas ${words} ${workers.join(' ')}\``;
}

export function exitOf({ plan, ended, reports }: DrainEnd): ExitCode {
  if (ended === 'interrupted') return EXIT.interrupted;
  const codes = plan.targets.map((target) => exitOfTarget(target, reports.get(target.worker)?.exitCode));
  return worstExit(ended === 'unreachable' ? [...codes, EXIT.unreachable] : codes);
}

function exitOfTarget({ phase, sessions }: Target, refusal: ExitCode | undefined): ExitCode {
  switch (phase) {
    case 'drained':
      return EXIT.done;
    case 'stopped':
      // It held nothing, and nothing runs there any more: what was wanted.
      return sessions === 0 ? EXIT.done : EXIT.failed;
    case 'overdue':
    case 'no-room':
      return EXIT.deadline;
    case 'undone':
      return EXIT.conflict;
    case 'gone':
      return EXIT.notFound;
    case 'refused':
      return refusal ?? EXIT.failed;
    case 'lost':
      return EXIT.failed;
    case 'waiting':
    case 'ordered':
    case 'draining':
      // Only where the watching ended before the drain did, which has an exit code of its own.
      return EXIT.done;
  }
}

/** One line for each worker, and for what still keeps it. */
export function resultLines({ plan, screen }: DrainEnd): string[] {
  const width = Math.max(0, ...plan.targets.map(({ worker }) => worker.length));
  return plan.targets.flatMap((target) => [
    `${target.worker.padEnd(width)}  ${resultText(target, screen)}`,
    ...remaining(target, screen).map((blocker) => `  ${blockerLine(blocker, screen.nowMs)}`),
  ]);
}

function resultText(target: Target, screen: DrainScreen): string {
  return target.phase === 'waiting' ? 'not started' : targetText(target, screen);
}

function remaining({ worker, phase }: Target, { blockers }: DrainScreen): readonly Blocker[] {
  if (phase !== 'overdue' && phase !== 'draining') return [];
  return blockers.filter(({ session }) => session.worker === worker);
}

/** What there is to know and to do afterwards. */
export function closingLines({ plan, reports }: DrainEnd, stop: boolean): string[] {
  const inPhase = (...phases: readonly Target['phase'][]): string[] =>
    plan.targets.filter(({ phase }) => phases.includes(phase)).map(({ worker }) => worker);
  const lines: string[] = [];
  const drained = inPhase('drained', 'lost', 'stopped');
  if (drained.length > 0) {
    const ends = stop ? ' With --stop the daemon ends by itself; its unit may start it again, cordoned.' : '';
    lines.push(`A drained worker stays cordoned, also over restarts, until ${commandFor('uncordon', drained)}.${ends}`);
  }
  const overdue = inPhase('overdue');
  if (overdue.length > 0) {
    lines.push(
      `The drain goes on; watch it with ${commandFor('drain --monitor', overdue)}. To end what remains: \`atlas sessions release ID\`, or ${commandFor('drain --force --reason WHY', overdue)}. To undo: ${commandFor('uncordon', overdue)}.`,
    );
  }
  const left = inPhase('no-room');
  if (left.length > 0)
    lines.push(`Not started: ${left.join(', ')}. Nothing was changed on ${left.length === 1 ? 'it' : 'them'}.`);
  for (const [worker, { next }] of reports) lines.push(`${worker}: ${next}`);
  return lines;
}

/** What Ctrl-C leaves behind: what goes on, what was never begun, how to look again and how to undo. */
export function interruption(end: DrainEnd, monitor: boolean): { readonly message: string; readonly next: string } {
  const { targets } = end.plan;
  const named = (...phases: readonly Target['phase'][]): string[] =>
    targets.filter(({ phase }) => phases.includes(phase)).map(({ worker }) => worker);
  const going = named('draining', 'overdue');
  const unsure = named('ordered');
  const notStarted = named('waiting');
  const drained = named('drained');
  const parts = [
    ...(going.length > 0 ? [`goes on:     ${going.join(', ')}`] : []),
    ...(unsure.length > 0 ? [`was told just now, without an answer: ${unsure.join(', ')}`] : []),
    ...(notStarted.length > 0 ? [`not started: ${notStarted.join(', ')}`] : []),
    ...(drained.length > 0 ? [`drained:     ${drained.join(', ')}`] : []),
  ];
  const said = [...going, ...unsure];
  const head = monitor
    ? 'Stopped watching.'
    : said.length > 0
      ? 'Stopped watching; what was begun goes on.'
      : 'Stopped.';
  const undo = [...said, ...drained];
  const next = [
    ...(said.length > 0 ? [`Look again with ${commandFor('drain --monitor', said)}`] : []),
    ...(undo.length > 0 ? [`undo with ${commandFor('uncordon', undo)}`] : []),
  ].join('; ');
  return {
    message: [head, ...parts.map((part) => `  ${part}`)].join('\n'),
    next: next === '' ? 'Nothing was changed.' : `${next.charAt(0).toUpperCase()}${next.slice(1)}.`,
  };
}

/** The result as JSON. `outcome` is the phase of the plan; `not-started` for a worker that was never ordered. */
export function resultRecord({ plan, ended, screen, results, reports }: DrainEnd): Record<string, unknown> {
  return {
    ended,
    workers: plan.targets.map((target) => {
      const { worker, phase, startedAtMs, deadlineAtMs, onDeadline, sinceMs } = target;
      const report = reports.get(worker);
      return {
        worker,
        outcome: phase === 'waiting' || phase === 'no-room' ? 'not-started' : phase,
        text: resultText(target, screen),
        delivery: results.get(worker)?.delivery ?? null,
        startedAt: isoOrNull(startedAtMs),
        endedAt: ['waiting', 'ordered', 'draining'].includes(phase) ? null : isoOrNull(sinceMs),
        deadlineAt: isoOrNull(deadlineAtMs),
        onDeadline,
        remaining: remaining(target, screen).map((blocker) => blockerRecord(blocker, screen.nowMs)),
        error: report === undefined ? null : { code: report.code ?? null, message: report.message, next: report.next },
      };
    }),
  };
}

export function blockerRecord(blocker: Blocker, nowMs: number): Record<string, unknown> {
  const { session, owner } = blocker;
  const { verdict, doing, says } = blockerText(blocker, nowMs);
  return {
    session: session.session,
    key: session.key,
    worker: session.worker,
    workflowId: session.workflowId,
    runId: session.runId,
    state: session.state,
    step: session.step,
    heldForMs: session.heldForMs,
    idleForMs: session.idleForMs,
    ownerStatus: owner?.status ?? null,
    progress: owner?.steps[0]?.progress ?? null,
    verdict,
    text: says === '' ? doing : `${doing}, ${says}`,
  };
}

/** Of orders that nobody waits for. */
export function orderedLine(worker: string, { desired, delivery }: OrderResult, deliveryWords: string): string {
  if (desired?.scheduling === 'drained') return `${worker}: drained already, held nothing; ${deliveryWords}`;
  return `${worker}: ${delivery === 'sent' ? deliveryWords : `draining; ${deliveryWords}`}`;
}

function isoOrNull(atMs: number | null): string | null {
  return atMs === null ? null : new Date(atMs).toISOString();
}
