/**
 * The cap on sessions, shared over all acquire queues of a worker.
 *
 * Core takes a permit before it polls, so a permit shared between queues would be parked on whichever queue polls and not
 * be there for the one that has work. The suppliers made here give permits freely while there is room, and block while
 * sessions and tasks already taken fill the cap; a task that was polled all the same waits inside the activity
 * (see `SessionKeeper.acquire`).
 */
import type { ActivitySlotInfo, CustomSlotSupplier, SlotPermit } from '@temporalio/worker';

export interface SlotRules {
  readonly cap: number;
  /** Slots kept for sessions that ask for a capability. */
  readonly reserve: Readonly<Record<string, number>>;
}

/**
 * Whether one more session that asks for `capabilities` fits beside those that are held (each given by what it asked
 * for). Pure.
 */
export function hasRoom(
  rules: SlotRules,
  held: readonly (readonly string[])[],
  capabilities: readonly string[],
  tasksTaken = 0,
): boolean {
  let room = rules.cap - held.length - tasksTaken;
  for (const [capability, count] of Object.entries(rules.reserve)) {
    if (capabilities.includes(capability)) continue;
    const used = held.filter((asked) => asked.includes(capability)).length;
    room -= Math.max(0, count - used);
  }
  return room > 0;
}

interface Waiter {
  readonly admitted: () => boolean;
  readonly admit: () => void;
}

/** A slot that is taken and has no session yet. */
export interface SlotClaim {
  /** The session is there and counts by itself, or there will be none. */
  readonly settle: () => void;
}

export class SlotGate {
  private readonly waiters = new Set<Waiter>();
  private readonly claims = new Map<SlotClaim, readonly string[]>();
  private tasksTaken = 0;
  private closed = true;

  constructor(
    private readonly rules: SlotRules,
    private readonly held: () => (readonly string[])[],
  ) {}

  /** While closed no task is polled and none is granted: the executor is not ready, or the worker is stopping. */
  setClosed(closed: boolean): void {
    this.closed = closed;
    this.changed();
  }

  isClosed(): boolean {
    return this.closed;
  }

  /** To be called whenever a session ends. */
  changed(): void {
    // From the start again after each: a claim takes room from the next waiter, and one that fills two reserves makes
    // room for another.
    for (let next = this.admittedWaiter(); next !== undefined; next = this.admittedWaiter()) {
      this.waiters.delete(next);
      next.admit();
    }
  }

  private admittedWaiter(): Waiter | undefined {
    for (const waiter of this.waiters) if (waiter.admitted()) return waiter;
    return undefined;
  }

  /** Whether a session that asks for this may be granted now. */
  admits(capabilities: readonly string[]): boolean {
    return !this.closed && hasRoom(this.rules, this.taken(), capabilities);
  }

  /**
   * Takes a slot as soon as there is room; rejects when the signal aborts. The slot counts from that very moment:
   * whoever waited beside this one must not see it free before the session is in the table.
   */
  async claim(capabilities: readonly string[], signal: AbortSignal): Promise<SlotClaim> {
    const claim: SlotClaim = {
      settle: () => {
        if (this.claims.delete(claim)) this.changed();
      },
    };
    await this.wait(
      {
        admitted: () => this.admits(capabilities),
        admit: () => this.claims.set(claim, capabilities),
      },
      signal,
    );
    return claim;
  }

  /** Resolves when a task for this may be polled; rejects when the signal aborts. Takes nothing. */
  async waitToPoll(capabilities: readonly string[], signal: AbortSignal): Promise<void> {
    await this.wait(
      {
        admitted: () => !this.closed && hasRoom(this.rules, this.taken(), capabilities, this.tasksTaken),
        admit: () => undefined,
      },
      signal,
    );
  }

  private taken(): (readonly string[])[] {
    return [...this.held(), ...this.claims.values()];
  }

  /** The waiter is forgotten when it is admitted and when the signal aborts. */
  private async wait({ admitted, admit }: Waiter, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        this.waiters.delete(waiter);
        reject(signal.reason as Error);
      };
      const waiter: Waiter = {
        admitted,
        admit: () => {
          signal.removeEventListener('abort', onAbort);
          admit();
          resolve();
        },
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.waiters.add(waiter);
      this.changed();
    });
  }

  /** The supplier of the Worker that polls the acquire queue of this capability set. */
  supplier(capabilities: readonly string[]): CustomSlotSupplier<ActivitySlotInfo> {
    return {
      type: 'custom',
      reserveSlot: async (_, signal) => {
        await this.waitToPoll(capabilities, signal);
        return { used: false } satisfies Permit;
      },
      tryReserveSlot: () => null,
      markSlotUsed: ({ permit }) => {
        (permit as Permit).used = true;
        this.tasksTaken += 1;
      },
      releaseSlot: ({ permit }) => {
        if (!(permit as Permit).used) return;
        this.tasksTaken -= 1;
        this.changed();
      },
    };
  }
}

interface Permit extends SlotPermit {
  used: boolean;
}
