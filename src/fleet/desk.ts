/**
 * The desk of a worker's workflow, where operators' orders come in: validates them, keeps the desired state, takes it to
 * the daemon, and keeps the deadline of a drain. What a state and an order give is decided in `contract/desired.ts`.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  defineSignal,
  defineUpdate,
  isCancellation,
  log,
  proxyActivities,
  setHandler,
  sleep,
} from '@temporalio/workflow';
import { cordoned, drained, draining, overdue, refusalOf, refused, released, uncordoned } from '../contract/desired.js';
import {
  APPLY_ACTIVITY,
  type ApplyAnswer,
  type ApplyRequest,
  CORDON_UPDATE,
  type CordonOrder,
  type DesiredState,
  DRAIN_UPDATE,
  DRAINED_SIGNAL,
  type DrainedNotice,
  type DrainRequest,
  FORCE_RELEASE_ACTIVITY,
  type ForceReleaseRequest,
  type OperatorAnswer,
  type OperatorOrder,
  ORDER_SIGNAL,
  type OwnerList,
  RELEASE_UPDATE,
  type ReleaseAnswer,
  type ReleaseOrder,
  type SignalledOrder,
  UNCORDON_UPDATE,
  type UncordonOrder,
  UNTOUCHED,
  type WorkerIdentity,
} from '../contract/fleet.js';
import {
  RELEASE_HEARTBEAT_TIMEOUT_MS,
  RELEASE_SCHEDULE_TO_START_MS,
  RELEASE_START_TO_CLOSE_MS,
} from '../contract/session.js';

const cordonUpdate = defineUpdate<OperatorAnswer, [CordonOrder]>(CORDON_UPDATE);
const uncordonUpdate = defineUpdate<OperatorAnswer, [UncordonOrder]>(UNCORDON_UPDATE);
const drainUpdate = defineUpdate<OperatorAnswer, [DrainRequest]>(DRAIN_UPDATE);
const releaseUpdate = defineUpdate<ReleaseAnswer, [ReleaseOrder]>(RELEASE_UPDATE);
const orderSignal = defineSignal<[SignalledOrder]>(ORDER_SIGNAL);
const drainedSignal = defineSignal<[DrainedNotice]>(DRAINED_SIGNAL);

/** How long an operator waits for the daemon's confirmation before the order counts as recorded only. */
const CONFIRM_WITHIN_MS = 5_000;
/** The daemon closes its gate, writes its ledger and waits for grants that are under way, which is 2 s at most. */
const APPLY_START_TO_CLOSE_MS = 10_000;
/** Orders that were followed, so that one that comes again as a signal counts once. */
const ORDERS_REMEMBERED = 50;
/** What is recorded for a worker that is away; more than that nobody releases by hand. */
const RELEASES_KEPT = 100;
const AFTER_FAILURE_MS = 5_000;

/** What a run hands to the next one. */
export interface DeskRecord {
  readonly desired: DesiredState;
  readonly appliedRevision: number;
  readonly releases: readonly ForceReleaseRequest[];
  readonly orderIds: readonly string[];
}

export interface DeskSurroundings {
  /** Undefined before the first registration. */
  readonly identity: () => WorkerIdentity | undefined;
  /** Whether the daemon is registered and was not missed since. */
  readonly isReady: () => boolean;
  /** The desired state has changed, or what is confirmed of it. */
  readonly changed: () => void;
}

export class Desk {
  desired: DesiredState;
  appliedRevision: number;
  private releases: ForceReleaseRequest[];
  private orderIds: string[];
  /** Of what is on its way to the daemon. */
  private scope: CancellationScope | undefined;

  constructor(
    private readonly around: DeskSurroundings,
    record?: DeskRecord,
  ) {
    this.desired = record?.desired ?? UNTOUCHED;
    this.appliedRevision = record?.appliedRevision ?? 0;
    this.releases = [...(record?.releases ?? [])];
    this.orderIds = [...(record?.orderIds ?? [])];
  }

  record(): DeskRecord {
    const { desired, appliedRevision, releases, orderIds } = this;
    return { desired, appliedRevision, releases, orderIds };
  }

  open(): void {
    setHandler(cordonUpdate, (order) => this.cordon(order), {
      validator: (order: CordonOrder) => {
        this.check({ kind: 'cordon', order });
      },
    });
    setHandler(uncordonUpdate, (order) => this.uncordon(order), {
      validator: (order: UncordonOrder) => {
        this.check({ kind: 'uncordon', order });
      },
    });
    setHandler(drainUpdate, (order) => this.drain(order), {
      validator: (order: DrainRequest) => {
        this.check({ kind: 'drain', order });
      },
    });
    setHandler(releaseUpdate, (order) => this.release(order), {
      validator: (order: ReleaseOrder) => {
        this.check({ kind: 'release', order });
      },
    });
    setHandler(orderSignal, (signalled) => this.signalled(signalled));
    setHandler(drainedSignal, ({ nonce, revision }) => {
      if (nonce === this.around.identity()?.nonce && revision === this.desired.revision) this.change(drained);
    });
    void this.keepApplied();
    void this.keepDeadline();
  }

  /** A daemon has registered. `known` is the desired state that it has on disk. */
  registered(identity: WorkerIdentity, previous: WorkerIdentity | undefined, known: DesiredState | undefined): void {
    // The workflow of the worker was terminated, or the worker forgotten: what was wanted of it still counts.
    if (this.desired.revision === 0 && known !== undefined && known.revision > 0) this.desired = known;
    if (identity.nonce === previous?.nonce) return;
    this.appliedRevision = 0;
    this.scope?.cancel();
  }

  /** The daemon has stopped, and has left no session to its next start. */
  emptied(): void {
    this.change(drained);
  }

  /** The owners of what the worker holds, asked of its daemon. */
  async owners(identity: WorkerIdentity): Promise<OwnerList> {
    const { owners } = await this.control(identity, { scheduleToCloseTimeout: APPLY_START_TO_CLOSE_MS })[
      APPLY_ACTIVITY
    ]({ desired: this.desired });
    return owners;
  }

  /** Throws what refuses an order before it is in the history. */
  private check(signalled: SignalledOrder): void {
    const identity = this.around.identity();
    if (identity === undefined)
      throw ApplicationFailure.nonRetryable('The worker has not registered yet.', 'FleetConflict');
    const refusal = this.refusal(identity, signalled);
    if (refusal !== undefined) throw ApplicationFailure.nonRetryable(refusal, 'FleetConflict');
  }

  private refusal(identity: WorkerIdentity, signalled: SignalledOrder): string | undefined {
    return refusalOf(
      identity.name,
      this.desired,
      signalled.kind === 'drain' ? { ...signalled, nonce: identity.nonce } : signalled,
    );
  }

  private async signalled(signalled: SignalledOrder): Promise<void> {
    await condition(() => this.around.identity() !== undefined);
    // The update may have come through after all.
    if (this.orderIds.includes(signalled.order.orderId)) return;
    const refusal = this.refusal(this.around.identity()!, signalled);
    if (refusal !== undefined) {
      log.warn('An order that waited for a worker of the fleet is refused', {
        order: signalled.kind,
        who: signalled.order.who,
        reason: refusal,
      });
      this.change((desired, nowMs) => refused(desired, signalled.order, refusal, nowMs));
      return;
    }
    if (signalled.kind === 'cordon') await this.cordon(signalled.order);
    else if (signalled.kind === 'uncordon') await this.uncordon(signalled.order);
    else if (signalled.kind === 'drain') await this.drain(signalled.order);
    else await this.release(signalled.order);
  }

  private cordon(order: CordonOrder): Promise<OperatorAnswer> {
    return this.follow(order, (desired, nowMs) => cordoned(desired, order, nowMs));
  }

  private uncordon(order: UncordonOrder): Promise<OperatorAnswer> {
    return this.follow(order, (desired, nowMs) => uncordoned(desired, order, nowMs));
  }

  private drain(order: DrainRequest): Promise<OperatorAnswer> {
    const nonce = this.around.identity()!.nonce;
    return this.follow(order, (desired, nowMs) => draining(desired, order, nonce, nowMs));
  }

  /** Changes the desired state and waits a little for the daemon's word that it acts on it. */
  private async follow(
    order: OperatorOrder,
    next: (desired: DesiredState, nowMs: number) => DesiredState,
  ): Promise<OperatorAnswer> {
    const before = this.desired.revision;
    if (this.isNew(order)) this.change(next);
    const { revision } = this.desired;
    if (this.appliedRevision < revision && this.around.isReady())
      await condition(() => this.appliedRevision >= revision || !this.around.isReady(), CONFIRM_WITHIN_MS);
    return { desired: this.desired, applied: this.appliedRevision >= revision, changed: revision !== before };
  }

  private async release(order: ReleaseOrder): Promise<ReleaseAnswer> {
    const { keys, who, why, failOwner } = order;
    if (this.isNew(order)) this.change((desired, nowMs) => released(desired, order, nowMs));
    return await this.releaseNow({ keys, who, why, failOwner });
  }

  /** Has the daemon end sessions; records it for a daemon that does not answer. */
  private async releaseNow(request: ForceReleaseRequest): Promise<ReleaseAnswer> {
    const identity = this.around.identity()!;
    if (this.around.isReady()) {
      try {
        return await this.control(identity, { scheduleToStartTimeout: RELEASE_SCHEDULE_TO_START_MS })[
          FORCE_RELEASE_ACTIVITY
        ](request);
      } catch (error) {
        log.warn('The worker did not answer a release; it is recorded for its return', {
          worker: identity.name,
          reason: reasonOf(error),
        });
      }
    }
    if (this.releases.length < RELEASES_KEPT) this.releases.push(request);
    else log.warn('Too many releases are recorded for a worker that is away', { worker: identity.name });
    return { outcomes: (request.keys ?? []).map((key) => ({ key, outcome: 'recorded' })) };
  }

  private isNew({ orderId }: OperatorOrder): boolean {
    if (this.orderIds.includes(orderId)) return false;
    this.orderIds = [...this.orderIds, orderId].slice(-ORDERS_REMEMBERED);
    return true;
  }

  private change(next: (desired: DesiredState, nowMs: number) => DesiredState): void {
    const before = this.desired;
    this.desired = next(before, Date.now());
    if (this.desired === before) return;
    log.info('The desired state of the worker changes', {
      worker: this.around.identity()?.name,
      from: before.scheduling,
      to: this.desired.scheduling,
      who: this.desired.notes.at(-1)?.who,
    });
    this.around.changed();
  }

  /** Takes the desired state, and releases that were recorded, to the daemon for as long as the workflow runs. */
  private async keepApplied(): Promise<void> {
    for (;;) {
      await condition(
        () => this.around.isReady() && (this.appliedRevision < this.desired.revision || this.releases.length > 0),
      );
      const identity = this.around.identity()!;
      this.scope = new CancellationScope();
      try {
        await this.scope.run(() => this.applyOne(identity));
      } catch (error) {
        // Cancelled: another life of the daemon has registered, and is told instead.
        if (isCancellation(error)) continue;
        log.warn('The worker could not be told what operators want of it; it is tried again', {
          worker: identity.name,
          reason: reasonOf(error),
        });
        await sleep(AFTER_FAILURE_MS);
      }
    }
  }

  private async applyOne(identity: WorkerIdentity): Promise<void> {
    if (this.appliedRevision < this.desired.revision) {
      const { revision } = await this.control(identity, {})[APPLY_ACTIVITY]({ desired: this.desired });
      if (identity.nonce !== this.around.identity()?.nonce) return;
      this.appliedRevision = Math.max(this.appliedRevision, revision);
      this.around.changed();
      return;
    }
    const [request] = this.releases;
    if (request === undefined) return;
    await this.control(identity, {})[FORCE_RELEASE_ACTIVITY](request);
    this.releases = this.releases.filter((each) => each !== request);
  }

  /** What remains at the deadline of a drain is noted, and released by force where the drain says so. */
  private async keepDeadline(): Promise<void> {
    for (;;) {
      await condition(() => this.deadlineAtMs() !== undefined);
      const deadlineAtMs = this.deadlineAtMs()!;
      const nowMs = Date.now();
      if (nowMs < deadlineAtMs && (await condition(() => this.deadlineAtMs() !== deadlineAtMs, deadlineAtMs - nowMs)))
        continue;
      const { drain } = this.desired;
      this.change(overdue);
      if (drain?.onDeadline !== 'release') continue;
      await this.releaseNow({
        keys: null,
        who: drain.who,
        why: 'the deadline of the drain was reached',
        failOwner: false,
      });
    }
  }

  /** The deadline that is still to come, if any. */
  private deadlineAtMs(): number | undefined {
    const { scheduling, drain } = this.desired;
    if (scheduling !== 'draining' || drain === null || drain.overdue) return undefined;
    return drain.deadlineAtMs ?? undefined;
  }

  private control(
    identity: WorkerIdentity,
    timeouts: { readonly scheduleToStartTimeout?: number; readonly scheduleToCloseTimeout?: number },
  ) {
    const common = { taskQueue: identity.controlQueue, ...timeouts } as const;
    const apply = proxyActivities<{ [APPLY_ACTIVITY]: (request: ApplyRequest) => Promise<ApplyAnswer> }>({
      ...common,
      startToCloseTimeout: APPLY_START_TO_CLOSE_MS,
      retry: { initialInterval: 200, maximumInterval: 5_000 },
    });
    const release = proxyActivities<{
      [FORCE_RELEASE_ACTIVITY]: (request: ForceReleaseRequest) => Promise<ReleaseAnswer>;
    }>({
      ...common,
      startToCloseTimeout: RELEASE_START_TO_CLOSE_MS,
      heartbeatTimeout: RELEASE_HEARTBEAT_TIMEOUT_MS,
      retry: { initialInterval: 200, maximumInterval: 5_000 },
    });
    return { [APPLY_ACTIVITY]: apply[APPLY_ACTIVITY], [FORCE_RELEASE_ACTIVITY]: release[FORCE_RELEASE_ACTIVITY] };
  }
}

function reasonOf(error: unknown): string {
  const cause = error instanceof ActivityFailure ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message : String(cause);
}
