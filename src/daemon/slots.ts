/**
 * The cap on sessions, shared over all acquire queues of a worker.
 *
 * Core takes a permit before it polls, so a permit shared between queues would be parked on whichever queue polls and not
 * be there for the one that has work. The suppliers made here give permits freely while there is room, and block while
 * sessions and tasks already taken fill the cap; a task that was polled all the same waits inside the activity
 * (see `SessionKeeper.acquire`).
 */
import { AtlasError } from '../contract/errors.js';
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
  readonly capabilities: readonly string[];
  /** Whether it waits for a poll, which counts the tasks already taken, or for a slot. */
  readonly forPoll: boolean;
  readonly admit: () => void;
  readonly refuse: (reason: Error) => void;
}

const CORDONED = new Error('The worker is cordoned.');

function withdrawnError(capabilities: readonly string[]): AtlasError {
  return new AtlasError('CapabilityWithdrawn', `The worker has withdrawn ${capabilities.join(' and ')}.`);
}

export class SlotGate {
  private readonly waiters = new Set<Waiter>();
  private tasksTaken = 0;
  private closed = true;
  private cordoned = false;
  private withdrawn: readonly string[] = [];

  constructor(
    private readonly rules: SlotRules,
    private readonly held: () => (readonly string[])[],
  ) {}

  /** While closed no task is polled and none is granted: the executor is not ready, or the worker is stopping. */
  setClosed(closed: boolean): void {
    this.closed = closed;
    this.changed();
  }

  /**
   * Like closed, but for long: a task that was polled before goes back to the server at once instead of waiting. So it is
   * until the fleet has said what operators want of this worker.
   */
  setCordoned(cordoned: boolean): void {
    this.cordoned = cordoned;
    if (cordoned) for (const waiter of [...this.waiters]) if (!waiter.forPoll) waiter.refuse(CORDONED);
    this.changed();
  }

  /**
   * Capabilities whose check fails. Sessions that ask for one of them are treated as if the worker were cordoned, all
   * others as before.
   */
  setWithdrawn(capabilities: readonly string[]): void {
    this.withdrawn = capabilities;
    for (const waiter of [...this.waiters]) {
      const missing = this.withdrawnOf(waiter.capabilities);
      if (missing.length > 0 && !waiter.forPoll) waiter.refuse(withdrawnError(missing));
    }
    this.changed();
  }

  private withdrawnOf(asked: readonly string[]): string[] {
    return asked.filter((capability) => this.withdrawn.includes(capability));
  }

  isClosed(): boolean {
    return this.closed || this.cordoned;
  }

  /** To be called whenever a session ends. */
  changed(): void {
    // From the start again after each: who is admitted takes room from the next, or makes some by filling two reserves.
    for (let next = this.admittedWaiter(); next !== undefined; next = this.admittedWaiter()) {
      this.waiters.delete(next);
      next.admit();
    }
  }

  private admittedWaiter(): Waiter | undefined {
    for (const waiter of this.waiters) if (this.admits(waiter.capabilities, waiter.forPoll)) return waiter;
    return undefined;
  }

  private admits(capabilities: readonly string[], forPoll: boolean): boolean {
    if (this.isClosed() || this.withdrawnOf(capabilities).length > 0) return false;
    return hasRoom(this.rules, this.held(), capabilities, forPoll ? this.tasksTaken : 0);
  }

  /**
   * Calls `take` as soon as there is room; rejects when the signal aborts before. `take` must make the session held, and
   * is called in the very turn in which the room was seen: between a promise's resolution and its continuation another
   * waiter would see the same slot free.
   */
  async takeSlot(capabilities: readonly string[], signal: AbortSignal, take: () => void): Promise<void> {
    await this.whenAdmitted(capabilities, signal, false, take);
  }

  private async whenAdmitted(
    capabilities: readonly string[],
    signal: AbortSignal,
    forPoll: boolean,
    admitted: () => void,
  ): Promise<void> {
    signal.throwIfAborted();
    if (this.cordoned && !forPoll) throw CORDONED;
    const missing = this.withdrawnOf(capabilities);
    if (missing.length > 0 && !forPoll) throw withdrawnError(missing);
    await new Promise<void>((resolve, reject) => {
      const refuse = (reason: Error) => {
        signal.removeEventListener('abort', onAbort);
        this.waiters.delete(waiter);
        reject(reason);
      };
      const onAbort = () => {
        refuse(signal.reason as Error);
      };
      const waiter: Waiter = {
        capabilities,
        forPoll,
        admit: () => {
          signal.removeEventListener('abort', onAbort);
          admitted();
          resolve();
        },
        refuse,
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
        await this.whenAdmitted(capabilities, signal, true, () => undefined);
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
