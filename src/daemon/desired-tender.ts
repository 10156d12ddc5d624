/**
 * What follows from the desired state over time: orders of this host are told to the fleet, the end of a drain is told,
 * and a daemon that is to stop once drained does so. Called on a timer; never throws.
 */
import { drained } from '../contract/desired.js';
import type { AtlasError } from '../contract/errors.js';
import type { DesiredState, ForceReleaseRequest } from '../contract/fleet.js';
import type { LocalOrder } from '../contract/local.js';
import type { DesiredKeeper, GivenOrder } from './desired-keeper.js';
import type { EventLog } from './ports.js';

/** Between calls that got no answer, or whose effect has not come yet. */
const AGAIN_AFTER_MS = 2_000;

export interface DesiredTenderPorts {
  readonly nonce: string;
  readonly sessionCount: () => number;
  readonly forceRelease: (request: ForceReleaseRequest) => Promise<unknown>;
  /** Tells the fleet of an order; throws where there is no answer. */
  readonly tellOrder: (order: LocalOrder) => Promise<DesiredState | AtlasError>;
  /** Tells the fleet that the drain of this revision is over; throws where there is no answer. */
  readonly tellDrained: (revision: number) => Promise<void>;
  /** The daemon is to end itself: it is drained. */
  readonly stop: () => void;
  readonly now: () => number;
  readonly monotonicMs: () => number;
  readonly log: EventLog;
}

export class DesiredTender {
  private busy = false;
  private nextCallMs = Number.NEGATIVE_INFINITY;
  private stopping = false;
  /** The order whose deadline has ended sessions already. */
  private releasedFor: string | undefined;

  constructor(
    private readonly desired: DesiredKeeper,
    private readonly ports: DesiredTenderPorts,
  ) {}

  async tick(): Promise<void> {
    if (this.busy || this.stopping) return;
    this.busy = true;
    try {
      await this.releaseAtLocalDeadline();
      this.stopIfDrained();
      if (this.ports.monotonicMs() >= this.nextCallMs) await this.tell();
    } catch (error) {
      this.nextCallMs = this.ports.monotonicMs() + AGAIN_AFTER_MS;
      this.ports.log.debug(
        { event: 'desired-untold', reason: error instanceof Error ? error.message : String(error) },
        'The fleet could not be told; it is tried again',
      );
    } finally {
      this.busy = false;
    }
  }

  private async tell(): Promise<void> {
    const untold = this.desired.untold();
    if (untold !== undefined) {
      await this.desired.told(untold.given.order.orderId, await this.ports.tellOrder(this.remaining(untold)));
      return;
    }
    const { scheduling, revision } = this.desired.ofFleet();
    if (scheduling !== 'draining' || this.ports.sessionCount() > 0) return;
    // Until the fleet says "drained".
    this.nextCallMs = this.ports.monotonicMs() + AGAIN_AFTER_MS;
    await this.ports.tellDrained(revision);
  }

  /** A deadline counts from when the order was given, not from when Temporal comes back. */
  private remaining({ given, atMs }: GivenOrder): LocalOrder {
    if (given.kind !== 'drain' || given.order.deadlineMs === null) return given;
    const deadlineMs = Math.max(0, atMs + given.order.deadlineMs - this.ports.now());
    return { kind: 'drain', order: { ...given.order, deadlineMs } };
  }

  private stopIfDrained(): void {
    let desired = this.desired.effective();
    // While Temporal is away nobody else says so.
    if (this.desired.untold() !== undefined && this.ports.sessionCount() === 0)
      desired = drained(desired, this.ports.now());
    if (desired.scheduling !== 'drained' || desired.drain?.stopNonce !== this.ports.nonce) return;
    this.stopping = true;
    this.ports.log.info({ event: 'drained-stop' }, 'The worker is drained and ends itself, as it was told to');
    this.ports.stop();
  }

  /** The fleet keeps the deadlines of drains that it knows of. */
  private async releaseAtLocalDeadline(): Promise<void> {
    const untold = this.desired.untold();
    const { scheduling, drain } = this.desired.effective();
    if (untold === undefined || scheduling !== 'draining' || drain?.onDeadline !== 'release') return;
    if (drain.deadlineAtMs === null || this.ports.now() < drain.deadlineAtMs) return;
    const { orderId } = untold.given.order;
    if (this.releasedFor === orderId) return;
    this.releasedFor = orderId;
    await this.ports.forceRelease({
      keys: null,
      who: drain.who,
      why: 'the deadline of the drain was reached',
      failOwner: false,
    });
  }
}
