/**
 * The probe: a short workflow on the supervisors of a fleet that asks workers for an answer, and a session of a capability
 * set. It needs no user code. Imports nothing.
 */

export const PROBE_WORKFLOW_TYPE = 'atlasProbe';
/** On the unique queue of a worker, in no session: does nothing. Every executor serves it beside the user's activities. */
export const PING_ACTIVITY = 'atlas:ping';

/** How long a worker may take to take a question, and then to answer it. It does nothing for either. */
export const PROBE_TAKEN_WITHIN_MS = 5_000;
export const PROBE_ANSWERED_WITHIN_MS = 3_000;
/** How long a session may take to be granted where a slot is free. */
export const PROBE_GRANT_WITHIN_MS = 6_000;
/** A multiple of it fits into the wait for the grant: a poll of a dead worker may take the first lease with it. */
export const PROBE_LEASE_TTL_MS = 2_000;

/** A worker whose two queues are asked. */
export interface ProbeTarget {
  readonly worker: string;
  /** Its unique queue; the control queue follows from it. */
  readonly queue: string;
}

export type ProbeRequest =
  | { readonly kind: 'queues'; readonly targets: readonly ProbeTarget[] }
  /** Takes a slot, and gives it back at once. */
  | { readonly kind: 'acquire'; readonly fleet: string; readonly capabilities: readonly string[] };

export interface ProbeOutcome {
  readonly answered: boolean;
  /** From the question to the answer, or to when it was given up. */
  readonly tookMs: number;
  /** Why there was no answer, in words; null where there was one. */
  readonly reason: string | null;
}

/** Of one target: what its supervisor says on the control queue, and its executor on the unique queue. */
export interface QueuesAnswer {
  readonly worker: string;
  readonly control: ProbeOutcome;
  readonly pinned: ProbeOutcome;
}

export type ProbeAnswer =
  | { readonly kind: 'queues'; readonly answers: readonly QueuesAnswer[] }
  /** `worker`: who granted the session; null where nobody did. */
  | { readonly kind: 'acquire'; readonly outcome: ProbeOutcome; readonly worker: string | null };
