/**
 * The cap on sessions, shared over all acquire queues of a worker.
 *
 * Core takes a permit before it polls, so a permit shared between queues would be parked on whichever queue polls and not
 * be there for the one that has work. The suppliers made here give permits freely while there is room, and block while
 * sessions and tasks already taken fill the cap; a task that was polled all the same waits inside the activity
 * (see `SessionKeeper.acquire`).
 */
import { AtlasError } from '../contract/errors.js';
import type { ActivitySlotInfo, CustomSlotSupplier } from '@temporalio/worker';
import { PollGate, type SlotUsage } from '../temporal/poll-gate.js';

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

const CORDONED = new Error('The worker is cordoned.');

function withdrawnError(capabilities: readonly string[]): AtlasError {
  return new AtlasError('CapabilityWithdrawn', `The worker has withdrawn ${capabilities.join(' and ')}.`);
}

export class SlotGate {
  private readonly gate = new PollGate();
  /** Of the polls of all queues together. */
  private readonly usage: SlotUsage = { given: 0, taken: 0 };
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
    this.changed();
  }

  /**
   * Capabilities whose check fails. Sessions that ask for one of them are treated as if the worker were cordoned, all
   * others as before.
   */
  setWithdrawn(capabilities: readonly string[]): void {
    this.withdrawn = capabilities;
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
    this.gate.changed();
  }

  private admits(capabilities: readonly string[], tasksTaken: number): boolean {
    if (this.isClosed() || this.withdrawnOf(capabilities).length > 0) return false;
    return hasRoom(this.rules, this.held(), capabilities, tasksTaken);
  }

  /**
   * Calls `take` as soon as there is room, in the very turn in which that was seen; `take` must make the session held.
   * Rejects when the signal aborts before, and at once while the worker is cordoned or what is asked for is withdrawn.
   */
  async takeSlot(capabilities: readonly string[], signal: AbortSignal, take: () => void): Promise<void> {
    const mayTake = (): boolean => {
      if (this.cordoned) throw CORDONED;
      const missing = this.withdrawnOf(capabilities);
      if (missing.length > 0) throw withdrawnError(missing);
      // The task that asks is one of those that were taken.
      return this.admits(capabilities, 0);
    };
    await this.gate.until(mayTake, signal, take);
  }

  /** The supplier of the Worker that polls the acquire queue of this capability set. */
  supplier(capabilities: readonly string[]): CustomSlotSupplier<ActivitySlotInfo> {
    return this.gate.supplier(({ taken }) => this.admits(capabilities, taken), this.usage);
  }
}
