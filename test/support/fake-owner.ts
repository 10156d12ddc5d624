/**
 * A workflow without Temporal for the owner's side of the protocol: leases that end as a test says, a worker that answers
 * as a test says, and a clock that stands still until a test advances it.
 */
import type { Grant } from '../../src/contract/session.js';
import type {
  Confirmation,
  Lease,
  LeaseEnd,
  LeaseSpec,
  OwnerInbox,
  OwnerRuntime,
  SessionContract,
} from '../../src/workflow/owner.js';
import { settle } from './fake-ports.js';

export const CONTRACT: SessionContract = {
  fleet: 'atlas',
  capabilities: [],
  leaseTtlMs: 60_000,
  maxDurationMs: 3_600_000,
  acquireTimeoutMs: 600_000,
  recoveryWindowMs: 5_000,
  idleTimeoutMs: null,
  state: 'disk',
  onLost: 'redo',
  maxReacquisitions: 3,
  priority: undefined,
  prefer: null,
  preferForMs: 5_000,
};
export const PRESENCE_TTL_MS = 6_000;

export class Failure extends Error {
  constructor(
    readonly code: string,
    message: string,
    cause?: Error,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

export interface FakeLease extends Lease {
  readonly spec: LeaseSpec;
  cancelled: boolean;
  ended: LeaseEnd | undefined;
}

interface Waiter {
  readonly done: () => boolean;
  readonly atMs: number;
  readonly cancellable: boolean;
  readonly resolve: (inTime: boolean) => void;
  readonly reject: (error: Error) => void;
}

/** A workflow without Temporal: conditions are looked at after everything that happens. */
export class FakeRuntime implements OwnerRuntime {
  readonly leases: FakeLease[] = [];
  readonly journal: string[] = [];
  inbox: OwnerInbox | undefined;
  /** What a worker answers to the next questions; without one it says that it holds the session. */
  readonly confirmations: (Confirmation | Promise<Confirmation>)[] = [];
  /** Whether a release is answered. */
  releaseAnswers = true;
  private readonly waiters = new Set<Waiter>();
  private elapsedMs = 0;
  private epoch = 0;
  private cancelled = false;

  now(): number {
    return this.elapsedMs;
  }
  newSessionId(): string {
    return 's';
  }
  nextEpoch(): number {
    return (this.epoch += 1);
  }
  raiseEpoch(epoch: number): void {
    this.epoch = Math.max(this.epoch, epoch);
  }
  scheduleLease(spec: LeaseSpec): Lease {
    this.journal.push(`${spec.kind} ${spec.epoch}`);
    const lease: FakeLease = {
      spec,
      epoch: spec.epoch,
      cancelled: false,
      ended: undefined,
      end: () => lease.ended,
      cancel: () => {
        lease.cancelled = true;
        this.journal.push(`cancel ${spec.epoch}`);
      },
    };
    this.leases.push(lease);
    return lease;
  }
  async confirm(grant: Grant, timeoutMs: number): Promise<Confirmation> {
    this.journal.push(`confirm ${grant.grantId} ${timeoutMs}`);
    return await (this.confirmations.shift() ?? 'held');
  }
  async release(grant: Grant): Promise<boolean> {
    this.journal.push(`release ${grant.grantId}`);
    return this.releaseAnswers;
  }
  until(done: () => boolean, timeoutMs: number): Promise<boolean> {
    if (this.cancelled) return Promise.reject(new Failure('Cancelled', 'cancelled'));
    return this.wait(done, timeoutMs, true);
  }
  untilEvenIfCancelled(done: () => boolean, timeoutMs: number): Promise<boolean> {
    return this.wait(done, timeoutMs, false);
  }
  listen(_: string, inbox: OwnerInbox): void {
    this.inbox = inbox;
  }
  stopListening(): void {
    this.inbox = undefined;
  }
  failure(code: string, message: string, cause?: Error): Error {
    return new Failure(code, message, cause);
  }
  log(): void {
    // Not what is tested.
  }

  private wait(done: () => boolean, timeoutMs: number, cancellable: boolean): Promise<boolean> {
    if (done()) return Promise.resolve(true);
    return new Promise((resolve, reject) => {
      this.waiters.add({ done, atMs: this.elapsedMs + timeoutMs, cancellable, resolve, reject });
    });
  }

  get timerCount(): number {
    return [...this.waiters].filter(({ atMs }) => Number.isFinite(atMs)).length;
  }

  /** How many conditions are waited for without end or with one; a session that is over leaves none. */
  get waiterCount(): number {
    return this.waiters.size;
  }

  /** Lets everything run that can. */
  async turn(): Promise<void> {
    for (let changed = true; changed;) {
      changed = false;
      await settle();
      for (const waiter of [...this.waiters]) {
        const inTime = waiter.done();
        if (!inTime && waiter.atMs > this.elapsedMs) continue;
        this.waiters.delete(waiter);
        waiter.resolve(inTime);
        changed = true;
      }
    }
  }

  async advance(durationMs: number): Promise<void> {
    await this.turn();
    const untilMs = this.elapsedMs + durationMs;
    for (;;) {
      const nextMs = Math.min(...[...this.waiters].map(({ atMs }) => atMs), untilMs);
      this.elapsedMs = nextMs;
      await this.turn();
      if (nextMs >= untilMs) return;
    }
  }

  /** The owner is cancelled. */
  async cancel(): Promise<void> {
    this.cancelled = true;
    for (const waiter of [...this.waiters]) {
      if (!waiter.cancellable) continue;
      this.waiters.delete(waiter);
      waiter.reject(new Failure('Cancelled', 'cancelled'));
    }
    await this.turn();
  }

  /** A worker grants the newest lease, or another; returns whether the owner took it. */
  async grant(grantId: string, changes: Partial<Grant> = {}): Promise<boolean> {
    const taken = this.inbox?.granted(grantOf(grantId, { epoch: this.leases.at(-1)!.epoch, ...changes })) ?? false;
    await this.turn();
    return taken;
  }

  async endLease(end: LeaseEnd | LeaseEnd['kind'], lease = this.leases.at(-1)!): Promise<void> {
    lease.ended = typeof end === 'string' ? leaseEnd(end) : end;
    await this.turn();
  }

  async suspect(queue = 'queue-w'): Promise<void> {
    this.inbox?.suspected(queue);
    await this.turn();
  }
}

export function grantOf(grantId: string, changes: Partial<Grant> = {}): Grant {
  return {
    session: 's',
    epoch: 1,
    grantId,
    worker: 'w',
    queue: 'queue-w',
    presenceTtlMs: PRESENCE_TTL_MS,
    ...changes,
  };
}

export function leaseEnd(kind: LeaseEnd['kind']): LeaseEnd {
  return { kind, message: `It is ${kind}.`, cause: new Error(kind) };
}
