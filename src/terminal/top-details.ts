/**
 * What `atlas top` says about one worker, one session, and its own keys: lines, independent of where they are shown. Pure.
 */
import { withdrawnText } from './capabilities.js';
import type { SessionRecord, WorkerRecord } from '../fleet/records.js';
import { count, displayWidth, formatAge, formatBytes, formatDuration, plainText, wrapLines } from './format.js';
import { type Clock, sessionState, sessionStep, type Tone, toneOfWorker, type TopData } from './top-panels.js';

export interface Segment {
  readonly text: string;
  readonly tone?: Tone | undefined;
  readonly bold?: boolean;
  readonly dim?: boolean;
  readonly inverse?: boolean;
}
export type Line = readonly Segment[];

const LABEL_WIDTH = 13;

/** `Label        text`, its continuation under the text. */
function fact(label: string, text: string, width: number, tone?: Tone): Line[] {
  const room = Math.max(8, width - LABEL_WIDTH);
  return wrapped(text, room).map((line, index) => [
    { text: (index === 0 ? label : '').padEnd(LABEL_WIDTH), dim: true },
    { text: line, tone },
  ]);
}

/** Words that are longer than the line, such as workflow ids, are broken as well: here everything has to be read. */
export function wrapped(text: string, width: number): string[] {
  return wrapLines(plainText(text), width)
    .split('\n')
    .flatMap((line) => (displayWidth(line) <= width ? [line] : chunks(line, width)));
}

function chunks(line: string, width: number): string[] {
  const parts: string[] = [];
  let part = '';
  for (const character of line) {
    if (displayWidth(part + character) > width && part !== '') {
      parts.push(part);
      part = '';
    }
    part += character;
  }
  return [...parts, part];
}

function ago(iso: string, nowMs: number): string {
  return `${formatAge(nowMs - Date.parse(iso))} ago`;
}

export function workerLines(worker: WorkerRecord, data: TopData, width: number, clock: Clock): Line[] {
  const { nowMs } = clock;
  const held = data.sessions.filter((session) => session.worker === worker.name);
  const beat = worker.heartbeatAgeMs === null ? 'none' : `${formatAge(worker.heartbeatAgeMs + sinceRead(clock))} ago`;
  const skew = worker.clockSkewMs === null ? '' : `, its clock is ${formatSkew(worker.clockSkewMs)}`;
  return [
    ...fact('State', worker.state, width, toneOfWorker(worker.state)),
    ...(worker.reason === null ? [] : fact('Reason', worker.reason, width)),
    ...fact('Scheduling', schedulingText(worker, nowMs), width),
    ...drainLines(worker, width, nowMs),
    ...fact('Slots', `${worker.sessions} of ${worker.cap} taken`, width),
    ...fact('Capabilities', worker.capabilities.join(', ') || 'none', width),
    ...(worker.withdrawn.length === 0 ? [] : fact('Withdrawn', withdrawnText(worker), width, 'yellow')),
    ...fact('Presence', `${beat}, lost after ${formatDuration(worker.presenceTtlMs)}${skew}`, width),
    ...fact(
      'Host',
      `${worker.host}, pid ${worker.pid}, up for ${formatAge(nowMs - Date.parse(worker.startedAt))}`,
      width,
    ),
    ...fact('Version', worker.version, width),
    ...fact(
      'Executor',
      worker.executor === null
        ? 'not known'
        : `${worker.executor.state}, ${count(worker.executor.restarts, 'restart')}`,
      width,
    ),
    ...fact(
      'Disk, load',
      `${worker.disk === null ? 'not known' : `${formatBytes(worker.disk.freeBytes)} of ${formatBytes(worker.disk.totalBytes)} free`}, ${worker.load1 === null ? 'not known' : worker.load1.toFixed(2)}`,
      width,
    ),
    ...fact('Queue', worker.queue, width),
    [],
    ...noteLines(worker, width, nowMs),
    [{ text: held.length === 0 ? 'No sessions' : count(held.length, 'session'), bold: true }],
    ...held.flatMap((session) =>
      wrapped(
        `${session.session}  ${sessionState(session)}  ${sessionStep(session, nowMs)}  held ${formatAge(session.heldForMs + sinceRead(clock))}  ${session.workflowId}`,
        width - 2,
      ).map((text, index): Line => [{ text: `${index === 0 ? '' : '  '}${text}` }]),
    ),
  ];
}

function schedulingText({ scheduling: by }: WorkerRecord, nowMs: number): string {
  if (by.scheduling === 'open') return 'open: no operator has taken it out of service';
  const who = by.who === null ? '' : ` by ${by.who}`;
  const since = by.since === null ? '' : `, ${ago(by.since, nowMs)}`;
  const why = by.why === null ? ', without a reason' : `: ${by.why}`;
  return `${by.scheduling}${who}${since}${why}${by.applied ? '' : ' (not confirmed by the daemon yet)'}`;
}

function drainLines({ scheduling: { drain } }: WorkerRecord, width: number, nowMs: number): Line[] {
  if (drain === null) return [];
  const atDeadline = drain.onDeadline === 'release' ? 'what remains is released by force' : 'it is only reported';
  const deadline =
    drain.deadlineAt === null
      ? 'no deadline'
      : drain.overdue
        ? `its deadline passed ${ago(drain.deadlineAt, nowMs)}; then ${atDeadline}`
        : `deadline in ${formatDuration(Date.parse(drain.deadlineAt) - nowMs)}, then ${atDeadline}`;
  const stop = drain.stop ? '; the daemon ends itself once drained' : '';
  return fact('Drain', `by ${drain.who}, ${ago(drain.startedAt, nowMs)}; ${deadline}${stop}`, width);
}

function noteLines({ scheduling: { notes } }: WorkerRecord, width: number, nowMs: number): Line[] {
  if (notes.length === 0) return [];
  return [
    [{ text: 'What operators did', bold: true }],
    ...notes.flatMap(({ action, who, why, at }) =>
      wrapped(`${ago(at, nowMs)}  ${action} by ${who}${why === null ? '' : `: ${why}`}`, width - 2).map(
        (text, index): Line => [{ text: `${index === 0 ? '' : '  '}${text}` }],
      ),
    ),
    [],
  ];
}

function formatSkew(skewMs: number): string {
  if (Math.abs(skewMs) < 1_000) return 'right';
  return `${formatDuration(Math.abs(skewMs))} ${skewMs > 0 ? 'ahead' : 'behind'}`;
}

function sinceRead({ nowMs, readAtMs }: Clock): number {
  return Math.max(0, nowMs - readAtMs);
}

export function sessionLines(session: SessionRecord, width: number, clock: Clock): Line[] {
  const { nowMs } = clock;
  const { step, lastStep } = session;
  const owner = `${session.workflowId} (${session.workflowType})`;
  return [
    ...fact('State', sessionState(session), width, session.leaked === true ? 'red' : undefined),
    ...(session.leaked === true ? fact('', 'Its owner has closed, and the slot is held for nothing.', width) : []),
    ...fact('Worker', `${session.worker}, ${session.workerState}`, width),
    ...fact(
      'Step',
      step === null
        ? 'none runs'
        : `${step.activity}, running for ${formatDuration(nowMs - Date.parse(step.startedAt))}, attempt ${step.attempt}`,
      width,
    ),
    ...fact(
      'Last step',
      lastStep === null ? 'none has ended' : `${lastStep.activity}, ended ${ago(lastStep.endedAt, nowMs)}`,
      width,
    ),
    ...fact(
      'Idle',
      session.idleForMs === null
        ? step === null
          ? 'not known'
          : 'no'
        : `for ${formatDuration(session.idleForMs + sinceRead(clock))}`,
      width,
    ),
    ...fact('Owner', owner, width),
    ...fact('Run', `${session.runId}${session.ownerStatus === null ? '' : `, ${session.ownerStatus}`}`, width),
    ...fact(
      'Lease',
      `epoch ${session.epoch}${session.leaseTtlMs === null ? '' : `, lost after ${formatDuration(session.leaseTtlMs)} of silence`}${session.recoveryWindowMs === null ? '' : `, ${formatDuration(session.recoveryWindowMs)} to recover`}`,
      width,
    ),
    ...fact('Held', `for ${formatDuration(session.heldForMs + sinceRead(clock))}`, width),
    ...fact('Expires', expiry(session.expiresInMs - sinceRead(clock)), width),
    ...fact('Scratch', session.scratchBytes === null ? 'not measured yet' : formatBytes(session.scratchBytes), width),
    ...fact('Capabilities', session.capabilities.join(', ') || 'none', width),
    ...fact('Key', session.key, width),
  ];
}

function expiry(expiresInMs: number): string {
  return expiresInMs >= 0 ? `in ${formatDuration(expiresInMs)}` : `${formatDuration(-expiresInMs)} ago`;
}

/** The keys, as the help overlay and the documentation list them. */
export const TOP_KEYS: readonly (readonly [string, string])[] = [
  ['1 2 3, Tab', 'workers, sessions, pools'],
  ['arrows, j k', 'select; PgUp PgDn Home End go further'],
  ['Enter', 'look at the selected worker or session'],
  ['Esc', 'go back; clear the filter'],
  ['/', 'filter by name, host, state, capability, owner; every word must match'],
  ['s, S', 'sort by the next column; the other way round'],
  ['c', 'cordon the worker: no new sessions'],
  ['u', 'uncordon it'],
  ['d', 'drain it: no new sessions, and say when the last has ended'],
  ['r', 'release the session by force'],
  ['Ctrl-L', 'draw the screen anew'],
  ['?', 'this help'],
  ['q, Ctrl-C', 'leave'],
];

export function helpLines(width: number): Line[] {
  const keys = TOP_KEYS.flatMap(([key, text]) => fact(key, text, width));
  return [
    ...keys,
    [],
    ...wrapped(
      'Each order asks for a reason and for a y before it is sent. Nothing is sent by one key alone.',
      width,
    ).map((text): Line => [{ text }]),
  ];
}
