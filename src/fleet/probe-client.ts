/**
 * Probes a fleet: starts the probe of `probe.ts` on its supervisors, and waits for the answer no longer than it is told.
 */
import { randomUUID } from 'node:crypto';
import { type Client, WorkflowFailedError } from '@temporalio/client';
import { fleetControlQueue } from '../contract/names.js';
import {
  PROBE_ANSWERED_WITHIN_MS,
  PROBE_TAKEN_WITHIN_MS,
  PROBE_WORKFLOW_TYPE,
  type ProbeAnswer,
  type ProbeOutcome,
  type ProbeRequest,
  type ProbeTarget,
  type QueuesAnswer,
} from '../contract/probe.js';
import { inLanes } from './lanes.js';

/** Of one probe: each is two activities at once, and a workflow task brings them all. */
const TARGETS_PER_PROBE = 20;
const PROBES_AT_ONCE = 5;
/** A workflow task that a frozen supervisor has taken is given to another one after this. */
const TASK_TIMEOUT_MS = 2_000;
/** What a probe takes that gets no answer, and two workflow tasks that a frozen supervisor has taken. */
const NEEDED_MS = PROBE_TAKEN_WITHIN_MS + PROBE_ANSWERED_WITHIN_MS + 2 * TASK_TIMEOUT_MS;

export interface ProbeOptions {
  readonly fleet: string;
  /** When the answer is of no use any more, by `Date.now()`. */
  readonly deadlineMs: number;
}

/**
 * What became of a probe. `not-run`: no supervisor of the fleet ran it to its end, so that nothing is known; `hadTime`
 * unless that may be for want of time.
 */
export type Probed<Answer> =
  | { readonly kind: 'answered'; readonly answer: Answer }
  | { readonly kind: 'not-run'; readonly reason: string; readonly hadTime: boolean };

export interface ProbedQueues {
  readonly target: ProbeTarget;
  readonly probed: Probed<QueuesAnswer>;
}

/** Asks both queues of every target: the supervisor on the control queue, the executor on the unique queue. */
export async function probeQueues(
  client: Client,
  targets: readonly ProbeTarget[],
  options: ProbeOptions,
): Promise<ProbedQueues[]> {
  const batches = Array.from({ length: Math.ceil(targets.length / TARGETS_PER_PROBE) }, (_, index) =>
    targets.slice(index * TARGETS_PER_PROBE, (index + 1) * TARGETS_PER_PROBE),
  );
  const probed = await inLanes(batches, PROBES_AT_ONCE, async (batch): Promise<ProbedQueues[]> => {
    const run = await runProbe(client, { kind: 'queues', targets: batch }, options);
    if (run.kind === 'not-run') return batch.map((target) => ({ target, probed: run }));
    const { answers } = run.answer as Extract<ProbeAnswer, { kind: 'queues' }>;
    return batch.map((target, index) => ({ target, probed: { kind: 'answered', answer: answers[index]! } }));
  });
  return probed.flat();
}

export interface AcquireAnswer {
  readonly outcome: ProbeOutcome;
  readonly worker: string | null;
}

/** Acquires a session of a capability set and gives it back at once. To be called only where a slot is free. */
export async function probeAcquire(
  client: Client,
  capabilities: readonly string[],
  options: ProbeOptions,
): Promise<Probed<AcquireAnswer>> {
  const run = await runProbe(client, { kind: 'acquire', fleet: options.fleet, capabilities }, options);
  if (run.kind === 'not-run') return run;
  const { outcome, worker } = run.answer as Extract<ProbeAnswer, { kind: 'acquire' }>;
  return { kind: 'answered', answer: { outcome, worker } };
}

async function runProbe(
  client: Client,
  request: ProbeRequest,
  { fleet, deadlineMs }: ProbeOptions,
): Promise<Probed<ProbeAnswer>> {
  const forMs = deadlineMs - Date.now();
  if (forMs <= 0) return { kind: 'not-run', reason: 'there was no time left for a probe', hadTime: false };
  const handle = await client.connection.withDeadline(deadlineMs, () =>
    client.workflow.start<(request: ProbeRequest) => Promise<ProbeAnswer>>(PROBE_WORKFLOW_TYPE, {
      taskQueue: fleetControlQueue(fleet),
      workflowId: `${fleet}:probe/${randomUUID()}`,
      args: [request],
      // The server ends what nobody runs, also where whoever asked is gone by then.
      workflowExecutionTimeout: forMs,
      workflowTaskTimeout: TASK_TIMEOUT_MS,
    }),
  );
  try {
    const answer = await client.connection.withDeadline(deadlineMs + TASK_TIMEOUT_MS, () => handle.result());
    return { kind: 'answered', answer };
  } catch (error) {
    if (error instanceof WorkflowFailedError && error.cause?.name === 'TimeoutFailure')
      return {
        kind: 'not-run',
        reason: `no supervisor of the fleet ran the probe to its end within ${Math.round(forMs / 1_000)} s`,
        hadTime: forMs >= NEEDED_MS,
      };
    throw error;
  }
}
