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
  /** Each admits or refuses who waits, if that is due, and returns whether it was. */
  private readonly waiters = new Set<() => boolean>();

  /** To be called whenever a condition may have come to hold, or to throw. */
  changed(): void {
    // From the start again after each: who is admitted takes room from the next, or makes some.
    while ([...this.waiters].some((check) => check()));
  }

  /**
   * Resolves as soon as the condition holds, and calls `admitted` in the very turn in which it was seen to: between a
   * promise's resolution and its continuation another waiter would see the same. Those who came first are asked first.
   *
   * @throws what the condition throws, and the reason of the signal when that aborts before.
   */
  async until(holds: () => boolean, signal: AbortSignal, admitted: () => void = () => undefined): Promise<void> {
    signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const settle = (act: () => void): void => {
        this.waiters.delete(check);
        signal.removeEventListener('abort', onAbort);
        act();
      };
      const onAbort = (): void => {
        settle(() => {
          reject(signal.reason as Error);
        });
      };
      const check = (): boolean => {
        try {
          if (!holds()) return false;
          settle(admitted);
          resolve();
        } catch (error) {
          settle(() => {
            reject(error as Error);
          });
        }
        return true;
      };
      signal.addEventListener('abort', onAbort, { once: true });
      this.waiters.add(check);
      this.changed();
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
        await this.until(
          () => mayPoll(usage),
          signal,
          () => {
            usage.given += 1;
          },
        );
        return { used: false } satisfies Permit;
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
