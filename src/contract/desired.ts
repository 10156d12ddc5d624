/**
 * What operators want of a worker, as a pure state machine: an order and the state it meets give the next state, or the
 * reason why it is refused. The workflow of a worker and its daemon both decide by this. Imports nothing but the contract.
 */
import {
  type CordonOrder,
  type DesiredState,
  type DrainRequest,
  NOTED_SESSIONS,
  NOTES_KEPT,
  type OperatorAction,
  type OperatorNote,
  type OperatorOrder,
  type ReleaseOrder,
  type UncordonOrder,
} from './fleet.js';

/** The order by which the worker left the open state: its reason is the reason. */
export function firstNote({ scheduling, notes }: DesiredState): OperatorNote | undefined {
  return scheduling === 'open' ? undefined : notes[0];
}

/** Why an order can not be followed, as a sentence; undefined where it can. */
export function refusalOf(
  worker: string,
  desired: DesiredState,
  request:
    | { readonly kind: 'cordon' | 'release'; readonly order: OperatorOrder }
    | { readonly kind: 'uncordon'; readonly order: UncordonOrder }
    | { readonly kind: 'drain'; readonly order: DrainRequest; readonly nonce: string },
): string | undefined {
  const { order } = request;
  if (order.ifRevision !== undefined && order.ifRevision !== desired.revision) {
    return `The worker ${worker} was changed meanwhile: ${describeDesired(desired)}.`;
  }
  if (request.kind === 'uncordon') {
    const holder = firstNote(desired);
    if (holder !== undefined && holder.who !== order.who && !request.order.ofOthers)
      return `The worker ${worker} was taken out of service by another operator: ${describeDesired(desired)}.`;
  }
  if (request.kind === 'drain' && desired.scheduling === 'draining' && desired.drain !== null) {
    const { drain } = desired;
    if (drain.who !== order.who && !request.order.replace && !joins(request.order))
      return `Another operator drains the worker ${worker} by other terms: ${describeDesired(desired)}.`;
  }
  return undefined;
}

/** A drain without terms of its own joins the one that goes on. */
function joins(order: DrainRequest): boolean {
  return order.deadlineMs === null && order.onDeadline === 'report' && !order.stop;
}

export function cordoned(desired: DesiredState, order: CordonOrder, nowMs: number): DesiredState {
  const note = noteOf('cordon', order, nowMs);
  if (desired.scheduling !== 'open') return { ...desired, notes: appended(desired.notes, note) };
  return { ...changed(desired, nowMs), scheduling: 'cordoned', notes: [note] };
}

export function uncordoned(desired: DesiredState, order: UncordonOrder, nowMs: number): DesiredState {
  if (desired.scheduling === 'open') return desired;
  return { ...changed(desired, nowMs), scheduling: 'open', drain: null, notes: [noteOf('uncordon', order, nowMs)] };
}

/** `nonce` is the life of the daemon that a drain with `stop` ends. */
export function draining(desired: DesiredState, order: DrainRequest, nonce: string, nowMs: number): DesiredState {
  const note = noteOf('drain', order, nowMs);
  const notes = desired.scheduling === 'open' ? [note] : appended(desired.notes, note);
  const goesOn = desired.scheduling === 'draining' && joins(order);
  if (goesOn || (desired.scheduling === 'drained' && !order.stop)) return { ...desired, notes };
  return {
    ...changed(desired, nowMs),
    scheduling: 'draining',
    drain: {
      who: order.who,
      startedAtMs: nowMs,
      deadlineAtMs: order.deadlineMs === null ? null : nowMs + order.deadlineMs,
      onDeadline: order.onDeadline,
      overdue: false,
      stopNonce: order.stop ? nonce : null,
    },
    notes,
  };
}

/** The last session has ended. */
export function drained(desired: DesiredState, nowMs: number): DesiredState {
  if (desired.scheduling !== 'draining') return desired;
  const note: OperatorNote = { action: 'drained', who: 'atlas', why: null, atMs: nowMs };
  return { ...changed(desired, nowMs), scheduling: 'drained', notes: appended(desired.notes, note) };
}

/** The deadline of the drain has come while sessions remain. */
export function overdue(desired: DesiredState, nowMs: number): DesiredState {
  if (desired.scheduling !== 'draining' || desired.drain === null) return desired;
  const note: OperatorNote = { action: 'deadline', who: 'atlas', why: null, atMs: nowMs };
  return { ...desired, drain: { ...desired.drain, overdue: true }, notes: appended(desired.notes, note) };
}

/** Sessions were released by force. */
export function released(desired: DesiredState, order: ReleaseOrder, nowMs: number): DesiredState {
  const note = { ...noteOf('release', order, nowMs), sessions: order.keys.slice(0, NOTED_SESSIONS) };
  return { ...desired, notes: appended(desired.notes, note) };
}

/** An order that came as a signal was not followed: nobody waits for an answer, so that it is noted. */
export function refused(desired: DesiredState, { who }: OperatorOrder, why: string, nowMs: number): DesiredState {
  return { ...desired, notes: appended(desired.notes, { action: 'refused', who, why, atMs: nowMs }) };
}

/** `cordoned by ops@bastion since 2026-03-01T10:00:00Z ("disk swap")`, for refusals and the REASON column. */
export function describeDesired(desired: DesiredState): string {
  const note = firstNote(desired);
  if (note === undefined) return 'it takes sessions';
  const { drain } = desired;
  const deadline =
    desired.scheduling !== 'draining' || drain?.deadlineAtMs == null
      ? ''
      : `, ${drain.overdue ? 'deadline passed' : 'deadline'} ${isoSeconds(drain.deadlineAtMs)}`;
  const why = note.why === null ? '' : ` ("${note.why}")`;
  return `${desired.scheduling} by ${note.who} since ${isoSeconds(note.atMs)}${deadline}${why}`;
}

/** What an owner is told about a session that an operator has released. */
export function releasedBy(who: string, why: string | null): string {
  return `${who} released it by force${why === null ? '' : `: ${why}`}.`;
}

function isoSeconds(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 19)}Z`;
}

function changed(desired: DesiredState, nowMs: number): DesiredState {
  return { ...desired, revision: desired.revision + 1, sinceMs: nowMs };
}

function noteOf(action: OperatorAction, { who, why }: OperatorOrder, atMs: number): OperatorNote {
  return { action, who, why, atMs };
}

/** The first is kept, since its reason counts; of the others the latest. */
function appended(notes: readonly OperatorNote[], note: OperatorNote): readonly OperatorNote[] {
  const all = [...notes, note];
  return all.length <= NOTES_KEPT ? all : [all[0]!, ...all.slice(all.length - NOTES_KEPT + 1)];
}
