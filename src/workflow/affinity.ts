/**
 * `onLost: 'rediscover'`: a session that is pinned for speed and not for correctness. Its body runs once; a pinned call
 * that a loss hits is run again on the worker that is acquired next, and nothing else is.
 *
 * Owns which acquisition calls go to, and when another is made. How one is acquired, watched and released is in
 * `owner.ts`, for all of them; the calls themselves are in `session.ts`.
 */
import type { SessionHandle } from '../contract/session.js';
import { type BodyEnd, type HeldSession, type Loss, Owner, type OwnerRuntime, type SessionContract } from './owner.js';

/** Acquires, runs the body once over as many acquisitions as it takes, and releases whatever happens. */
export async function ownAffinity<T>(
  runtime: OwnerRuntime,
  contract: SessionContract,
  runBody: (affinity: Affinity) => Promise<BodyEnd<T>>,
  handle?: SessionHandle,
): Promise<T> {
  const owner = new Owner(runtime, contract, handle?.grant.session ?? runtime.newSessionId());
  try {
    const { held, attempt } = await owner.begin(handle);
    const affinity = new Affinity(runtime, owner, held, attempt);
    const tending = affinity.tend();
    const end = await runBody(affinity);
    affinity.close();
    await tending;
    if (!affinity.isLetGo) await owner.finish(affinity.held, end);
    return affinity.resultOf(end);
  } finally {
    runtime.stopListening(owner.id);
  }
}

/** What the calls of one body share: the acquisition they run on now, and the one that is made when it is lost. */
export class Affinity {
  /** Why no call is run any more. */
  private over: Error | undefined;
  private closed = false;
  /** Whether the newest acquisition was lost, and what was left of it has been released. */
  isLetGo = false;
  /** The end of the session that is not followed by another acquisition: it has expired, or an operator ended it. */
  private ending: Loss | undefined;
  private hitByEnding = false;
  /** How many calls wait for a worker. */
  private waitingCount = 0;
  private readonly endListeners = new Set<() => void>();

  constructor(
    private readonly runtime: OwnerRuntime,
    private readonly owner: Owner,
    /** The newest acquisition; it may be lost. */
    public held: HeldSession,
    /** 1 for the first acquisition, and one more for each that followed a loss. */
    public attempt: number,
  ) {}

  /** Calls the listener when the session ends under its body, for good. */
  onEnd(listener: () => void): void {
    this.endListeners.add(listener);
  }

  /**
   * Runs a pinned call on the worker that holds the session, and again on the next one as often as a loss hits it. Waits in
   * the scope of the caller, which may be cancelled alone: the acquisition belongs to no call.
   *
   * `start` rejects with the failure of the loss where that is what ended it.
   */
  async call<R>(start: (held: HeldSession) => Promise<R>): Promise<R> {
    for (;;) {
      const held = this.isHeld() ? this.held : await this.nextHeld();
      try {
        return await start(held);
      } catch (error) {
        const loss = held.lost();
        if (loss === undefined || error !== loss.failure) throw error;
        if (loss.code === 'SessionLost') continue;
        this.hitByEnding = true;
        throw error;
      }
    }
  }

  /**
   * Lets go of what is lost, and acquires again once a call needs it. In the scope of the session, so that all calls share
   * one acquisition and the cancellation of one leaves it alone. Never rejects.
   */
  async tend(): Promise<void> {
    const { runtime, owner } = this;
    try {
      for (;;) {
        const { held } = this;
        await runtime.untilEvenIfCancelled(() => this.closed || held.lost() !== undefined, Number.POSITIVE_INFINITY);
        const loss = held.lost();
        if (this.closed || loss === undefined) return;
        if (loss.code !== 'SessionLost') {
          this.end(loss);
          return;
        }
        this.isLetGo = true;
        await owner.release(held);
        if (this.closed) return;
        owner.checkReacquisitions(this.attempt, held.grant.worker, loss);
        await runtime.until(() => this.closed || this.waitingCount > 0, Number.POSITIVE_INFINITY);
        if (this.closed) return;
        runtime.log('warn', 'The session was lost; the pinned calls that it hit are run again on another worker', {
          session: owner.id,
          worker: held.grant.worker,
          attempt: this.attempt,
          reason: loss.failure.message,
        });
        this.held = await owner.acquire(true, () => this.closed);
        this.isLetGo = false;
        this.attempt += 1;
      }
    } catch (error) {
      // Exhausted, timed out, or cancelled with the workflow: what every call is told from now on. Where the body has ended
      // it is told that already.
      this.over ??= error as Error;
    }
  }

  handle(): SessionHandle {
    return this.held.handle(this.attempt);
  }

  /** The body has ended: nothing is acquired for it any more. */
  close(): void {
    this.closed = true;
    this.over ??= this.runtime.failure('SessionLost', `The session ${this.owner.id} has ended with its body.`);
  }

  /** What `withSession` returns or throws. */
  resultOf<T>(end: BodyEnd<T>): T {
    const { ending } = this;
    // As with a redo: a body that swallows the end of its session under a pinned call has not done its work.
    if (ending !== undefined && (end.kind === 'threw' || this.hitByEnding)) throw ending.failure;
    if (end.kind === 'threw') throw end.error;
    return end.value;
  }

  private isHeld(): boolean {
    return this.over === undefined && this.held.lost() === undefined;
  }

  private async nextHeld(): Promise<HeldSession> {
    this.waitingCount += 1;
    try {
      await this.runtime.until(() => this.over !== undefined || this.isHeld(), Number.POSITIVE_INFINITY);
    } finally {
      this.waitingCount -= 1;
    }
    if (this.over === undefined) return this.held;
    if (this.over === this.ending?.failure) this.hitByEnding = true;
    throw this.over;
  }

  private end(loss: Loss): void {
    this.ending = loss;
    this.over = loss.failure;
    for (const listener of this.endListeners) listener();
  }
}
