/**
 * Slots of activities that are given only while a condition holds, so that a Worker does not poll meanwhile.
 *
 * A poll that is out when the condition ceases still takes a task: whoever uses this also refuses such a task.
 */
import type { ActivitySlotInfo, CustomSlotSupplier, SlotPermit } from '@temporalio/worker';

/** What was given of the slots of one Worker, or of several that share them. */
export interface SlotUsage {
  /** Slots that poll or run a task. */
  given: number;
  /** Slots that run a task. */
  taken: number;
}

interface Permit extends SlotPermit {
  used: boolean;
}

export class PollGate {
  private readonly waiters = new Set<() => void>();

  /** To be called whenever a condition may have come to hold. */
  changed(): void {
    for (const check of [...this.waiters]) check();
  }

  /** Resolves as soon as the condition holds; rejects with the reason of the signal when that aborts before. */
  async until(holds: () => boolean, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (holds()) return;
    await new Promise<void>((resolve, reject) => {
      const settle = (): void => {
        this.waiters.delete(check);
        signal.removeEventListener('abort', onAbort);
      };
      const check = (): void => {
        if (!holds()) return;
        settle();
        resolve();
      };
      const onAbort = (): void => {
        settle();
        reject(signal.reason as Error);
      };
      this.waiters.add(check);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** The slots of a Worker that polls while `mayPoll` says so. Nothing is given for eager activities. */
  supplier(
    mayPoll: (usage: SlotUsage) => boolean,
    usage: SlotUsage = { given: 0, taken: 0 },
  ): CustomSlotSupplier<ActivitySlotInfo> {
    return {
      type: 'custom',
      reserveSlot: async (_, signal) => {
        let permit: Permit | undefined;
        // Given in the very turn in which it may be: between the wait and its continuation another would see it free.
        const take = (): boolean => {
          if (permit === undefined && mayPoll(usage)) {
            permit = { used: false };
            usage.given += 1;
          }
          return permit !== undefined;
        };
        await this.until(take, signal);
        return permit!;
      },
      tryReserveSlot: () => null,
      markSlotUsed: ({ permit }) => {
        (permit as Permit).used = true;
        usage.taken += 1;
        this.changed();
      },
      releaseSlot: ({ permit }) => {
        usage.given -= 1;
        if ((permit as Permit).used) usage.taken -= 1;
        this.changed();
      },
    };
  }
}
