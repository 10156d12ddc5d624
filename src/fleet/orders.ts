/**
 * What operators order of a fleet: validated updates on the workflow that represents a worker. Where no worker of the
 * fleet runs, nobody can validate or answer them, and the order is left with the server as a signal instead.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Client,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from '@temporalio/client';
import { releasedBy } from '../contract/desired.js';
import { AtlasError, findErrorCode } from '../contract/errors.js';
import {
  CORDON_UPDATE,
  type CordonOrder,
  type DesiredState,
  DRAIN_UPDATE,
  type DrainRequest,
  FORGET_UPDATE,
  type ForgetOrder,
  type OnDeadline,
  type OperatorAnswer,
  type OperatorOrder,
  ORDER_SIGNAL,
  RELEASE_UPDATE,
  type ReleaseAnswer,
  type ReleaseOrder,
  type SignalledOrder,
  UNCORDON_UPDATE,
  type UncordonOrder,
} from '../contract/fleet.js';
import { workerWorkflowId } from '../contract/names.js';
import { SESSION_DEFAULTS } from '../contract/session.js';
import { failure } from '../temporal/failures.js';
import { failureTypeOf, sendUpdate } from '../temporal/updates.js';
import { describeOwner, isGivenUp, isOpen, openLease } from './owner-run.js';
import type { SessionRecord } from './records.js';

/** Who orders it, and why. */
export interface OrderBy {
  /** Such as `ops@bastion-1`. */
  readonly who: string;
  readonly why: string | null;
  /** Only on the state that the operator saw (`scheduling.revision`); on any other the order is a conflict. */
  readonly ifRevision?: number;
}

export interface DrainTerms {
  /** Milliseconds from now until {@link DrainTerms.onDeadline} happens. @default no deadline */
  readonly deadlineMs?: number | null;
  /** `report` ends nothing; `release` releases what remains by force. @default 'report' */
  readonly onDeadline?: OnDeadline;
  /** The daemon ends itself once drained. @default false */
  readonly stop?: boolean;
  /** Replaces a drain of another operator that goes on by other terms. @default false */
  readonly replace?: boolean;
}

export interface ReleaseTerms {
  /** Owners fail with `SessionReleased` instead of following their `onLost`. @default false */
  readonly failOwner?: boolean;
}

/**
 * `applied`: the daemon has confirmed it. `recorded`: the worker is away and applies it when it returns. `sent`: no
 * worker of the fleet runs; the order waits on the server and the first that returns validates and applies it.
 */
export type Delivery = 'applied' | 'recorded' | 'sent';

export interface OrderResult {
  readonly worker: string;
  readonly delivery: Delivery;
  /** False where the worker was in this state already. */
  readonly changed: boolean;
  /** Null where the order was only sent. */
  readonly desired: DesiredState | null;
}

/**
 * What became of a session that was to be released. `released`: slot and scratch are free. `not-held`: its worker does not
 * hold it. For a worker that does not answer: `owner-told` (its owner has lost the session), `owner-moved-on` (it waits
 * for no such session any more) or `owner-closed`; what the worker still has of it ends when it returns.
 */
export interface ReleaseResult {
  readonly session: SessionRecord;
  readonly outcome: 'released' | 'not-held' | 'owner-told' | 'owner-moved-on' | 'owner-closed';
}

/** The handler of an order waits for the worker for up to 5 s, that of a release for as long as activities take to end. */
const ORDER_DEADLINE_MS = 15_000;
const RELEASE_DEADLINE_MS = 120_000;
const CALL_DEADLINE_MS = 10_000;
/** How much longer than its fence a worker that does not answer is given, for timers and calls that are under way. */
const FENCE_MARGIN_MS = 2_000;

/** How the server answers an update whose workflow has ended without an answer. */
const ENDED_BEFORE_ANSWER = 'AcceptedUpdateCompletedWorkflow';

export class FleetOrders {
  constructor(
    private readonly client: Client,
    private readonly fleet: string,
  ) {}

  cordon(worker: string, by: OrderBy): Promise<OrderResult> {
    const order: CordonOrder = orderOf(by);
    return this.order(worker, CORDON_UPDATE, { kind: 'cordon', order });
  }

  uncordon(worker: string, by: OrderBy & { readonly ofOthers?: boolean }): Promise<OrderResult> {
    const order: UncordonOrder = { ...orderOf(by), ofOthers: by.ofOthers ?? false };
    return this.order(worker, UNCORDON_UPDATE, { kind: 'uncordon', order });
  }

  drain(worker: string, by: OrderBy & DrainTerms): Promise<OrderResult> {
    const order: DrainRequest = {
      ...orderOf(by),
      deadlineMs: by.deadlineMs ?? null,
      onDeadline: by.onDeadline ?? 'report',
      stop: by.stop ?? false,
      replace: by.replace ?? false,
    };
    return this.order(worker, DRAIN_UPDATE, { kind: 'drain', order });
  }

  async forget(worker: string, by: OrderBy & { readonly withSessions?: boolean }): Promise<void> {
    const order: ForgetOrder = { ...orderOf(by), withSessions: by.withSessions ?? false };
    try {
      await this.update<void, ForgetOrder>(worker, FORGET_UPDATE, order, ORDER_DEADLINE_MS);
    } catch (error) {
      if (isUnanswered(error)) throw this.nobodyForgets(worker, error);
      // Its workflow ends by being forgotten; that the answer was lost with it changes nothing.
      if (failureTypeOf(error) !== ENDED_BEFORE_ANSWER) throw error;
    }
  }

  private async order(worker: string, update: string, signalled: SignalledOrder): Promise<OrderResult> {
    try {
      const answer = await this.update<OperatorAnswer, OperatorOrder>(
        worker,
        update,
        signalled.order,
        ORDER_DEADLINE_MS,
      );
      const { desired, changed, applied } = answer;
      return { worker, delivery: applied ? 'applied' : 'recorded', changed, desired };
    } catch (error) {
      if (!isUnanswered(error)) throw error;
      await this.signal(worker, signalled);
      return { worker, delivery: 'sent', changed: true, desired: null };
    }
  }

  async release(sessions: readonly SessionRecord[], by: OrderBy & ReleaseTerms): Promise<ReleaseResult[]> {
    const byWorker = new Map<string, SessionRecord[]>();
    for (const session of sessions) byWorker.set(session.worker, [...(byWorker.get(session.worker) ?? []), session]);
    const results = await Promise.all([...byWorker].map(([worker, held]) => this.releaseOf(worker, held, by)));
    return results.flat();
  }

  private async releaseOf(
    worker: string,
    sessions: readonly SessionRecord[],
    by: OrderBy & ReleaseTerms,
  ): Promise<ReleaseResult[]> {
    const order: ReleaseOrder = {
      ...orderOf(by),
      keys: sessions.map(({ key }) => key),
      failOwner: by.failOwner ?? false,
    };
    let answer: ReleaseAnswer;
    try {
      answer = await this.update<ReleaseAnswer, ReleaseOrder>(worker, RELEASE_UPDATE, order, RELEASE_DEADLINE_MS);
    } catch (error) {
      if (!isUnanswered(error)) throw error;
      await this.signal(worker, { kind: 'release', order });
      answer = { outcomes: [] };
    }
    const outcomes = new Map(answer.outcomes.map(({ key, outcome }) => [key, outcome]));
    return await Promise.all(
      sessions.map(async (session) => {
        const outcome = outcomes.get(session.key) ?? 'recorded';
        if (outcome !== 'recorded') return { session, outcome };
        return { session, outcome: await this.tellOwner(session, by) };
      }),
    );
  }

  /**
   * The worker does not answer: fails the lease in its stead, but not before its fence has ended what may still run
   * there, since the owner goes on with another worker at once.
   */
  private async tellOwner(
    session: SessionRecord,
    { who, why, failOwner }: OrderBy & ReleaseTerms,
  ): Promise<'owner-told' | 'owner-moved-on' | 'owner-closed'> {
    const windowMs = session.recoveryWindowMs ?? SESSION_DEFAULTS.recoveryWindowMs;
    await sleep(fenceWaitMs(session, windowMs));
    const owner = await this.bounded(() => describeOwner(this.client, session));
    if (!isOpen(owner.status)) return 'owner-closed';
    // Of this worker only: the owner may have acquired the session again elsewhere, under the same id.
    const lease = openLease(session, owner.pending);
    if (lease?.activityId == null || isGivenUp(lease)) return 'owner-moved-on';
    const { activityId } = lease;
    const code = failOwner === true ? 'SessionReleased' : 'SessionLost';
    await this.bounded(() =>
      this.client.activity.fail(
        { workflowId: session.workflowId, runId: session.runId, activityId },
        failure(code, releasedBy(who, why)),
      ),
    );
    return 'owner-told';
  }

  private async update<R, O extends OperatorOrder>(
    worker: string,
    name: string,
    order: O,
    deadlineMs: number,
  ): Promise<R> {
    const handle = this.client.workflow.getHandle(workerWorkflowId(this.fleet, worker));
    try {
      return await sendUpdate(this.client, deadlineMs, () =>
        handle.executeUpdate<R, [O]>(name, { args: [order], updateId: order.orderId }),
      );
    } catch (error) {
      throw this.orderError(worker, name, error);
    }
  }

  private orderError(worker: string, name: string, error: unknown): unknown {
    if (error instanceof WorkflowNotFoundError) return this.unknownWorker(worker, error);
    if (!(error instanceof WorkflowUpdateFailedError)) return error;
    if (name !== FORGET_UPDATE && failureTypeOf(error) === ENDED_BEFORE_ANSWER)
      return this.unknownWorker(worker, error);
    const code = findErrorCode(error);
    return code === undefined ? error : new AtlasError(code, error.cause?.message ?? error.message, { cause: error });
  }

  private async signal(worker: string, signalled: SignalledOrder): Promise<void> {
    const handle = this.client.workflow.getHandle(workerWorkflowId(this.fleet, worker));
    try {
      await this.bounded(() => handle.signal<[SignalledOrder]>(ORDER_SIGNAL, signalled));
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) throw this.unknownWorker(worker, error);
      throw error;
    }
  }

  private unknownWorker(worker: string, cause: Error): AtlasError {
    return new AtlasError('NotFound', `The fleet ${this.fleet} has no worker ${worker}.`, {
      cause,
      next: 'See `atlas workers ls`.',
    });
  }

  /** Unlike other orders it does not wait on the server: a worker that has returned meanwhile is not forgotten. */
  private nobodyForgets(worker: string, cause: unknown): AtlasError {
    return new AtlasError(
      'FleetConflict',
      `No worker of the fleet ${this.fleet} runs that could take ${worker} off the list. Nothing was changed.`,
      { cause, next: 'Forget it once a worker of the fleet runs.' },
    );
  }

  private bounded<T>(call: () => Promise<T>): Promise<T> {
    return this.client.connection.withDeadline(Date.now() + CALL_DEADLINE_MS, call);
  }
}

function orderOf({ who, why, ifRevision }: OrderBy): OperatorOrder {
  return { orderId: randomUUID(), who, why, ...(ifRevision === undefined ? {} : { ifRevision }) };
}

/** No worker of the fleet has taken the update, so that nothing has come of it. */
function isUnanswered(error: unknown): boolean {
  return error instanceof WorkflowUpdateRPCTimeoutOrCancelledError;
}

/** How long to wait until what a silent worker runs for the session must have ended. */
function fenceWaitMs(session: SessionRecord, windowMs: number): number {
  const { workerHeartbeatAgeMs, workerPresenceTtlMs } = session;
  if (workerHeartbeatAgeMs === null) return 0;
  return Math.max(0, workerPresenceTtlMs + windowMs + FENCE_MARGIN_MS - workerHeartbeatAgeMs);
}
