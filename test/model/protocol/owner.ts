/**
 * An owner: the real `ownSession` in a simulated workflow.
 *
 * The code of a workflow is deterministic and acts only when an event reaches it, so that a reset is a second execution
 * that is given the events of the first again, each with its time, and whose commands go nowhere meanwhile.
 *
 * The body and its pinned calls stand in for `workflow/session.ts`, and the runtime for `workflow/runtime.ts`, which both
 * need Temporal's sandbox; the numbers and the order of things are theirs.
 */
import { ERRORS, type ErrorCode } from '../../../src/contract/errors.js';
import {
  acquireQueue,
  acquireQueueOf,
  controlQueueOf,
  pinnedStep,
  sessionActivityId,
} from '../../../src/contract/names.js';
import {
  ADOPT_ACTIVITY,
  ASK_SIGNAL,
  CONFIRM_ACTIVITY,
  EXPIRY_BACKSTOP_MS,
  GRANT_SIGNAL,
  type Grant,
  LEASE_ACTIVITY,
  RELEASE_ACTIVITY,
  RELEASE_HEARTBEAT_TIMEOUT_MS,
  RELEASE_SCHEDULE_TO_START_MS,
  RELEASE_START_TO_CLOSE_MS,
  type SessionHandle,
  SUSPECTED_SIGNAL,
  type Suspicion,
} from '../../../src/contract/session.js';
import { type Affinity, ownAffinity } from '../../../src/workflow/affinity.js';
import {
  type HeldSession,
  type LeaseEnd,
  type Loss,
  type OwnerInbox,
  type OwnerRuntime,
  ownSession,
  type SessionContract,
} from '../../../src/workflow/owner.js';
import { settle } from './kernel.js';
import type { ActivityEnd, ActivitySpec, Run, RunEvent } from './server.js';
import type { World } from './world.js';

/** A step of the body: one pinned activity. */
export interface Step {
  readonly durationMs: number;
  readonly heartbeatMs: number;
  /** How the activity takes its cancellation: after how long it ends; null when it never does. */
  readonly stopsAfterMs: number | null;
  /** Keeps the event loop of the executor busy while it runs. */
  readonly busy: boolean;
  /** The workflow waits so long before it. */
  readonly pauseMs: number;
}

export interface OwnerPlan {
  readonly workflowId: string;
  readonly contract: SessionContract;
  readonly steps: readonly Step[];
  /** After so many steps the run continues as new, with the session or without. */
  readonly continueAfter: number | null;
  readonly withHandle: boolean;
  /** The next run does not use the handle. */
  readonly dropsHandle: boolean;
  /** The run goes on for so long after its session. */
  readonly lingerMs: number;
}

/** What a run is started with. */
export interface RunInput {
  readonly firstStep: number;
  readonly generation: number;
  readonly handle: SessionHandle | undefined;
}

/** What a test may change of the rules. */
export type RuntimeMutation = (runtime: OwnerRuntime, execution: OwnerExecution) => void;

export class OwnerFailure extends Error {
  constructor(
    readonly type: ErrorCode,
    message: string,
    cause?: Error,
  ) {
    super(message, { cause });
  }
}

class ContinueAsNew extends Error {
  constructor(readonly input: RunInput) {
    super('continue as new');
  }
}

class Cancelled extends Error {}

class ActivityError extends Error {
  constructor(readonly end: ActivityEnd) {
    super(
      end.kind === 'failed' ? end.failure.message : end.kind === 'timed-out' ? `timed out: ${end.timeout}` : end.kind,
    );
  }
}

const ACQUIRE_RETRY = { initialMs: 200, factor: 1.5, maximumMs: 5_000 };
const CONFIRM_START_TO_CLOSE_MS = 2_000;

interface Waiter {
  readonly condition: () => boolean;
  readonly resolve: (held: boolean) => void;
  readonly reject: ((error: Error) => void) | undefined;
}

export class OwnerExecution {
  readonly run: Run;
  nowMs: number;
  /** While events of an earlier run are given again. */
  replaying = true;
  private readonly activities = new Map<string, (end: ActivityEnd) => void>();
  private readonly waiters = new Set<Waiter>();
  private readonly timers = new Map<number, { readonly fire: () => void; readonly atMs: number }>();
  private timerCount = 0;
  private readonly inboxes = new Map<string, OwnerInbox>();
  private lastEpoch = 0;
  private questionCount = 0;
  private pinnedCount = 0;
  private sessionCount = 0;
  private cancelled = false;
  private readonly cancelListeners = new Set<() => void>();
  /** Commands of the replayed part whose outcome is not in it: they are given once it is over. */
  private readonly open = new Map<string, ActivitySpec>();
  private readonly cancelsAsked = new Set<string>();
  readonly runtime: OwnerRuntime;
  /** The grants that this run holds or held. */
  private readonly grants: Grant[] = [];
  /** Steps of a body that runs once: which were scheduled, and which have returned to it. */
  readonly stepsScheduled = new Set<number>();
  readonly stepsReturned = new Set<number>();
  /** When it last asked for a worker. */
  readonly acquiredAtMs: number[] = [];
  /** Since when it waits for a worker, while it does. */
  acquiringSinceMs: number | undefined;

  constructor(
    readonly world: World,
    readonly plan: OwnerPlan,
    readonly input: RunInput,
    readonly startedAtMs: number,
  ) {
    this.run = world.server.startRun(plan.workflowId, (event) => this.apply(event));
    this.nowMs = startedAtMs;
    if (input.handle !== undefined) this.grants.push(input.handle.grant);
    this.runtime = this.createRuntime();
    world.options.runtime?.(this.runtime, this);
  }

  /** Starts the code, and gives it the history of the run that is reset, if any. */
  async start(history: Run['history'] = []): Promise<void> {
    const { world, plan, input } = this;
    void this.main().then(
      () => {
        this.closed('completed', undefined);
      },
      (error: unknown) => {
        if (error instanceof ContinueAsNew) {
          if (this.replaying) return;
          world.server.closeRun(this.run, 'continued');
          world.ownerContinued(this, error.input);
        } else if (error instanceof Cancelled) this.closed('cancelled', undefined);
        else this.closed('failed', error);
      },
    );
    await this.progress();
    for (const { atMs, event } of history) {
      this.nowMs = atMs;
      this.run.history.push({ atMs, event });
      await this.handle(event);
    }
    this.replaying = false;
    this.nowMs = world.sim.nowMs;
    for (const spec of this.open.values()) world.server.schedule(this.run, spec);
    for (const activityId of this.cancelsAsked) world.server.requestCancel(this.run, activityId);
    for (const [timer, { atMs }] of this.timers)
      world.server.workflowTimer(this.run, timer, Math.max(0, atMs - world.sim.nowMs));
    world.sim.note(plan.workflowId, () => `${this.run.runId} starts at step ${input.firstStep + 1}`);
  }

  private closed(status: 'completed' | 'failed' | 'cancelled', error: unknown): void {
    if (this.replaying) return;
    this.world.ownerClosed(this, status, error);
  }

  // ---- Events ----

  private async apply(event: RunEvent): Promise<void> {
    this.nowMs = this.world.sim.nowMs;
    await this.handle(event);
  }

  private async handle(event: RunEvent): Promise<void> {
    switch (event.kind) {
      case 'signal':
        this.signalled(event.name, event.argument);
        break;
      case 'activity': {
        const resolve = this.activities.get(event.activityId);
        this.activities.delete(event.activityId);
        this.open.delete(event.activityId);
        resolve?.(event.end);
        break;
      }
      case 'timer': {
        const timer = this.timers.get(event.timer);
        this.timers.delete(event.timer);
        timer?.fire();
        break;
      }
      case 'cancel':
        this.cancelled = true;
        for (const listener of [...this.cancelListeners]) listener();
        for (const waiter of [...this.waiters]) {
          if (waiter.reject === undefined) continue;
          this.waiters.delete(waiter);
          waiter.reject(new Cancelled());
        }
        break;
    }
    await this.progress();
  }

  /** Until no condition holds any more that somebody waits for. */
  private async progress(): Promise<void> {
    await settle();
    for (;;) {
      const waiter = [...this.waiters].find(({ condition }) => condition());
      if (waiter === undefined) return;
      this.waiters.delete(waiter);
      waiter.resolve(true);
      await settle();
    }
  }

  private signalled(name: string, argument: unknown): void {
    if (name === SUSPECTED_SIGNAL) {
      const { queue } = argument as Suspicion;
      for (const inbox of this.inboxes.values()) inbox.suspected(queue);
      return;
    }
    const grant = argument as Grant;
    const inbox = this.inboxes.get(grant.session);
    if (name === GRANT_SIGNAL && inbox?.granted(grant) === true) {
      if (this.plan.contract.onLost === 'rediscover') this.acquired(grant);
      return;
    }
    if (name === ASK_SIGNAL && inbox?.asked(grant) === true) return;
    this.note(() => `${name} of ${grant.worker} (${grant.grantId}) is not wanted`);
    void this.runtime.release(grant);
  }

  // ---- Commands ----

  private note(what: () => string): void {
    if (!this.replaying) this.world.sim.note(this.plan.workflowId, what);
  }

  private schedule(spec: ActivitySpec): Promise<ActivityEnd> {
    return new Promise((resolve) => {
      this.activities.set(spec.activityId, resolve);
      if (this.replaying) this.open.set(spec.activityId, spec);
      else this.world.server.schedule(this.run, spec);
    });
  }

  private requestCancel(activityId: string): void {
    if (this.replaying) this.cancelsAsked.add(activityId);
    else this.world.server.requestCancel(this.run, activityId);
  }

  private startTimer(delayMs: number, fire: () => void): () => void {
    const timer = (this.timerCount += 1);
    this.timers.set(timer, { fire, atMs: this.nowMs + delayMs });
    if (!this.replaying) this.world.server.workflowTimer(this.run, timer, delayMs);
    return () => {
      this.timers.delete(timer);
    };
  }

  private wait(condition: () => boolean, timeoutMs: number, cancellable: boolean): Promise<boolean> {
    if (cancellable && this.cancelled) return Promise.reject(new Cancelled());
    if (condition()) return Promise.resolve(true);
    return new Promise((resolve, reject) => {
      let cancelTimer = (): void => undefined;
      const waiter: Waiter = {
        condition,
        resolve: (held) => {
          cancelTimer();
          resolve(held);
        },
        reject: cancellable
          ? (error) => {
              cancelTimer();
              reject(error);
            }
          : undefined,
      };
      this.waiters.add(waiter);
      if (Number.isFinite(timeoutMs)) {
        cancelTimer = this.startTimer(timeoutMs, () => {
          if (this.waiters.delete(waiter)) resolve(false);
        });
      }
    });
  }

  // ---- The runtime ----

  private createRuntime(): OwnerRuntime {
    return {
      now: () => this.nowMs,
      newSessionId: () => `${this.plan.workflowId}x${this.input.generation}x${(this.sessionCount += 1)}`,
      nextEpoch: () => (this.lastEpoch += 1),
      raiseEpoch: (epoch) => {
        this.lastEpoch = Math.max(this.lastEpoch, epoch);
      },
      scheduleLease: (spec, contract) => {
        let end: LeaseEnd | undefined;
        let activity: ActivitySpec;
        const retry = { notRetried: ['HEARTBEAT', 'START_TO_CLOSE'] } as const;
        if (spec.kind === 'acquire') {
          if (this.acquiringSinceMs === undefined) this.acquiringSinceMs = this.nowMs;
          this.moveOn();
          if (!this.replaying) this.world.acquires(this);
          activity = {
            activityId: sessionActivityId({ session: spec.session, epoch: spec.epoch, step: 'lease' }),
            type: LEASE_ACTIVITY,
            queue:
              spec.worker === null
                ? acquireQueue(contract.fleet, contract.capabilities)
                : acquireQueueOf(contract.fleet, spec.worker),
            request: {
              session: spec.session,
              epoch: spec.epoch,
              capabilities: contract.capabilities,
              leaseTtlMs: contract.leaseTtlMs,
              maxDurationMs: contract.maxDurationMs,
              recoveryWindowMs: contract.recoveryWindowMs,
              idleTimeoutMs: contract.idleTimeoutMs,
              state: contract.state,
            },
            heartbeatMs: contract.leaseTtlMs,
            startToCloseMs: contract.maxDurationMs + EXPIRY_BACKSTOP_MS,
            ...(spec.scheduleToStartMs === null
              ? { retry: { ...ACQUIRE_RETRY, ...retry } }
              : { retry: { ...ACQUIRE_RETRY, attempts: 1 }, scheduleToStartMs: spec.scheduleToStartMs }),
          };
        } else {
          const { session, grantId, queue } = spec.grant;
          const { leaseTtlMs, recoveryWindowMs, idleTimeoutMs, state } = contract;
          activity = {
            activityId: sessionActivityId({ session, epoch: spec.epoch, step: 'lease' }),
            type: ADOPT_ACTIVITY,
            queue: controlQueueOf(queue),
            request: { session, epoch: spec.epoch, grantId, leaseTtlMs, recoveryWindowMs, idleTimeoutMs, state },
            heartbeatMs: contract.leaseTtlMs,
            scheduleToStartMs: spec.scheduleToStartMs,
            startToCloseMs: spec.durationMs + EXPIRY_BACKSTOP_MS,
            retry: { initialMs: 200, factor: 2, maximumMs: 1_000, ...retry },
          };
        }
        this.note(() => `${spec.kind}s under epoch ${spec.epoch}`);
        void this.schedule(this.world.options.lease?.(activity, contract) ?? activity).then((ended) => {
          end = leaseEnd(ended);
          this.note(() => `the lease ${spec.epoch} has ended: ${end!.kind} (${end!.message})`);
        });
        return {
          epoch: spec.epoch,
          end: () => end,
          cancel: () => {
            if (end !== undefined) return;
            this.note(() => `cancels the lease ${spec.epoch}`);
            this.requestCancel(activity.activityId);
          },
        };
      },
      confirm: async (grant, timeoutMs) => {
        this.questionCount += 1;
        this.note(() => `asks ${grant.worker} for a confirmation`);
        const end = await this.schedule({
          activityId: sessionActivityId({
            session: grant.session,
            epoch: grant.epoch,
            step: `confirm-${this.questionCount}`,
          }),
          type: CONFIRM_ACTIVITY,
          queue: controlQueueOf(grant.queue),
          request: { session: grant.session, grantId: grant.grantId },
          scheduleToStartMs: timeoutMs,
          startToCloseMs: CONFIRM_START_TO_CLOSE_MS,
          scheduleToCloseMs: timeoutMs + CONFIRM_START_TO_CLOSE_MS,
          retry: { initialMs: 100, factor: 2, maximumMs: 1_000 },
        });
        const answer =
          end.kind === 'completed'
            ? 'held'
            : end.kind === 'failed' && end.failure.type === 'SessionLost'
              ? 'unknown'
              : 'no-answer';
        this.note(() => `${grant.worker}: ${answer}`);
        return answer;
      },
      release: async (grant) => {
        this.questionCount += 1;
        this.note(() => `releases ${grant.grantId} on ${grant.worker}`);
        const end = await this.schedule({
          activityId: sessionActivityId({
            session: grant.session,
            epoch: grant.epoch,
            step: `release-${this.questionCount}`,
          }),
          type: RELEASE_ACTIVITY,
          queue: controlQueueOf(grant.queue),
          request: { session: grant.session, grantId: grant.grantId },
          scheduleToStartMs: RELEASE_SCHEDULE_TO_START_MS,
          startToCloseMs: RELEASE_START_TO_CLOSE_MS,
          heartbeatMs: RELEASE_HEARTBEAT_TIMEOUT_MS,
          retry: { initialMs: 200, factor: 2, maximumMs: 20_000, attempts: 3 },
        });
        this.note(
          () => `the release of ${grant.grantId} was ${end.kind === 'completed' ? 'answered' : 'not answered'}`,
        );
        return end.kind === 'completed';
      },
      until: (condition, timeoutMs) => this.wait(condition, timeoutMs, true),
      untilEvenIfCancelled: (condition, timeoutMs) => this.wait(condition, timeoutMs, false),
      listen: (session, inbox) => {
        this.inboxes.set(session, inbox);
      },
      stopListening: (session) => {
        this.inboxes.delete(session);
      },
      failure: (code, message, cause) => new OwnerFailure(code, message, cause),
      log: (_, message) => {
        this.note(() => message);
      },
    };
  }

  // ---- The workflow ----

  private async main(): Promise<void> {
    const { plan, input } = this;
    let failed: { readonly error: unknown } | undefined;
    try {
      if (plan.contract.onLost === 'rediscover')
        await ownAffinity(this.runtime, plan.contract, (affinity) => this.runOnce(affinity), input.handle);
      else await ownSession(this.runtime, plan.contract, (held, attempt) => this.runBody(held, attempt), input.handle);
    } catch (error) {
      if (error instanceof ContinueAsNew) {
        if (error.input.handle === undefined) this.moveOn();
        throw error;
      }
      failed = { error };
    }
    this.moveOn();
    if (!this.replaying) this.world.sessionOver(this, failed?.error);
    this.acquiringSinceMs = undefined;
    if (plan.lingerMs > 0) await this.wait(() => false, plan.lingerMs, true);
    if (failed !== undefined) throw failed.error;
  }

  /** From now on what it held is given up. */
  private moveOn(): void {
    for (const grant of this.grants) this.gaveUp(grant);
  }

  private gaveUp(grant: Grant): void {
    if (!this.replaying) this.world.gaveUp(this, grant);
  }

  private async runBody(held: HeldSession, attempt: number) {
    const { plan, input } = this;
    this.grants.push(held.grant);
    if (!this.replaying) this.world.bodyStarts(this, held.grant, attempt);
    this.acquiringSinceMs = undefined;
    const body: BodyState = { cancelled: false, onCancel: new Set(), hitByLoss: false };
    const cancelBody = () => {
      if (body.cancelled) return;
      body.cancelled = true;
      for (const listener of [...body.onCancel]) listener();
    };
    held.onLoss((loss) => {
      this.note(() => `the session is lost: ${loss.failure.message}`);
      cancelBody();
    });
    if (this.cancelled) cancelBody();
    this.cancelListeners.add(cancelBody);
    try {
      for (let step = input.firstStep; step < plan.steps.length; step += 1) {
        if (input.generation === 1 && plan.continueAfter === step) {
          const handle = plan.withHandle ? held.handle(attempt) : undefined;
          throw new ContinueAsNew({ firstStep: step, generation: 2, handle: plan.dropsHandle ? undefined : handle });
        }
        if (plan.steps[step]!.pauseMs > 0) await this.sleepInBody(body, plan.steps[step]!.pauseMs);
        await this.callPinned(held, body, step, attempt);
      }
      return { kind: 'returned', value: undefined, hitByLoss: body.hitByLoss } as const;
    } catch (error) {
      const continuesAsNew = error instanceof ContinueAsNew;
      return { kind: 'threw', error, continuesAsNew, hitByLoss: body.hitByLoss } as const;
    } finally {
      this.cancelListeners.delete(cancelBody);
    }
  }

  /** A session that is rediscovered was granted, or adopted: the body goes on, whatever it does just then. */
  private acquired(grant: Grant): void {
    this.acquiringSinceMs = undefined;
    if (this.grants.some(({ grantId }) => grantId === grant.grantId)) return;
    this.grants.push(grant);
    this.note(() => `has ${grant.worker} (${grant.grantId})`);
  }

  /** The body of a session that is rediscovered: steps without a pause before them run beside the one before. */
  private async runOnce(affinity: Affinity) {
    const { plan, input } = this;
    const body: BodyState = { cancelled: false, onCancel: new Set(), hitByLoss: false };
    const cancelBody = () => {
      if (body.cancelled) return;
      body.cancelled = true;
      for (const listener of [...body.onCancel]) listener();
    };
    affinity.onEnd(cancelBody);
    if (this.cancelled) cancelBody();
    this.cancelListeners.add(cancelBody);
    const run = async (step: number): Promise<void> => {
      await affinity.call((held) => this.callPinned(held, body, step, affinity.attempt));
      this.stepsReturned.add(step);
    };
    const continuesAt = input.generation === 1 ? plan.continueAfter : null;
    try {
      for (let step = input.firstStep; step < plan.steps.length;) {
        if (continuesAt === step) {
          const handle = plan.withHandle ? affinity.handle() : undefined;
          throw new ContinueAsNew({ firstStep: step, generation: 2, handle: plan.dropsHandle ? undefined : handle });
        }
        if (plan.steps[step]!.pauseMs > 0) await this.sleepInBody(body, plan.steps[step]!.pauseMs);
        const next = step + 1;
        const isPair = next < plan.steps.length && next !== continuesAt && plan.steps[next]!.pauseMs === 0;
        await Promise.all(isPair ? [run(step), run(next)] : [run(step)]);
        step = isPair ? next + 1 : next;
      }
      return { kind: 'returned', value: undefined } as const;
    } catch (error) {
      return { kind: 'threw', error, continuesAsNew: error instanceof ContinueAsNew } as const;
    } finally {
      this.cancelListeners.delete(cancelBody);
    }
  }

  private async sleepInBody(body: BodyState, durationMs: number): Promise<void> {
    if (body.cancelled) throw new Cancelled();
    await new Promise<void>((resolve, reject) => {
      const onCancel = () => {
        cancelTimer();
        reject(new Cancelled());
      };
      const cancelTimer = this.startTimer(durationMs, () => {
        body.onCancel.delete(onCancel);
        resolve();
      });
      body.onCancel.add(onCancel);
    });
  }

  private async callPinned(held: HeldSession, body: BodyState, step: number, attempt: number): Promise<void> {
    const hit = (loss: Loss): Error => {
      body.hitByLoss = true;
      return loss.failure;
    };
    const before = held.lost();
    if (before !== undefined) throw hit(before);
    if (body.cancelled) throw new Cancelled();
    this.pinnedCount += 1;
    const { grant } = held;
    const activityId = sessionActivityId({
      session: grant.session,
      epoch: grant.epoch,
      step: pinnedStep(this.pinnedCount, grant.grantId),
    });
    const { heartbeatMs } = this.plan.steps[step]!;
    const pinned: ActivitySpec = {
      activityId,
      type: 'work',
      queue: grant.queue,
      request: { step } satisfies PinnedRequest,
      heartbeatMs,
      startToCloseMs: 3_600_000,
      retry: { initialMs: 500, factor: 2, maximumMs: 5_000 },
    };
    this.world.pinnedScheduled(this, activityId, grant, step, attempt);
    const lost = new Promise<never>((_, reject) => {
      held.onLoss((loss) => {
        reject(hit(loss));
        // Elsewhere the body is cancelled, and with it the call.
        if (this.plan.contract.onLost === 'rediscover') this.requestCancel(activityId);
      });
    });
    lost.catch(() => undefined);
    const cancelled = new Promise<never>((_, reject) => {
      body.onCancel.add(() => {
        this.requestCancel(activityId);
        reject(new Cancelled());
      });
    });
    cancelled.catch(() => undefined);
    try {
      const ended = this.schedule(this.world.options.pinned?.(pinned) ?? pinned).then((end) => {
        if (end.kind !== 'completed') throw end.kind === 'cancelled' ? new Cancelled() : new ActivityError(end);
        if (!this.replaying) this.world.stepAnswered(this, step, end.result);
      });
      ended.catch(() => undefined);
      await Promise.race([lost, cancelled, ended]);
    } catch (error) {
      const refusal =
        error instanceof ActivityError && error.end.kind === 'failed' && isRefusal(error.end.failure.type)
          ? error.end.failure
          : undefined;
      if (refusal !== undefined) {
        const code = refusal.type === 'SessionExpired' ? 'SessionExpired' : 'SessionLost';
        held.lose(code, new OwnerFailure(code, `The session was refused by ${grant.worker}. ${refusal.message}`), true);
      }
      const after = held.lost();
      if (after !== undefined && (refusal !== undefined || error instanceof Cancelled)) throw hit(after);
      throw error;
    }
  }
}

export interface PinnedRequest {
  readonly step: number;
}

interface BodyState {
  cancelled: boolean;
  readonly onCancel: Set<() => void>;
  hitByLoss: boolean;
}

function isRefusal(type: string): boolean {
  return type === 'SessionLost' || type === 'SessionExpired';
}

/** As `workflow/runtime.ts` tells the ends of a lease apart. */
function leaseEnd(end: ActivityEnd): LeaseEnd {
  const cause = new Error(end.kind);
  switch (end.kind) {
    case 'completed':
      return { kind: 'given-up', message: 'The worker ended the lease.', cause: undefined };
    case 'cancelled':
      return { kind: 'given-up', message: 'The lease ended: cancelled', cause };
    case 'timed-out':
      if (end.timeout === 'HEARTBEAT')
        return { kind: 'silent', message: 'The worker was silent for the lease TTL.', cause };
      if (end.timeout === 'SCHEDULE_TO_START')
        return { kind: 'not-taken', message: 'The worker did not answer in time.', cause };
      return { kind: 'expired', message: 'It reached its maximum duration.', cause };
    case 'failed': {
      const { type, message, nonRetryable } = end.failure;
      if (type === 'SessionLost') return { kind: 'given-up', message, cause };
      if (type === 'SessionExpired') return { kind: 'expired', message, cause };
      if (!nonRetryable) return { kind: 'not-taken', message, cause };
      return { kind: 'refused', message, cause: new OwnerFailure(type as ErrorCode, message) };
    }
  }
}

export function isDocumented(error: unknown): boolean {
  return error instanceof Cancelled || (error instanceof OwnerFailure && error.type in ERRORS);
}
