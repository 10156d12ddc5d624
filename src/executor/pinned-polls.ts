/**
 * The polls of the unique queue: how many are out, and an end of them that loses no task.
 *
 * A Worker that is shut down cancels its polls, and a task that the server gives to one in that moment is lost until its
 * heartbeat timeout. An executor that retires while another one polls the same queue has time: it begins no further poll, and
 * is shut down once the last one has come back, with a task or empty.
 */
import type { ActivitySlotInfo, CustomSlotSupplier, SlotPermit } from '@temporalio/worker';

/** Over the longest poll of the server, a minute. */
const LAST_POLL_TIMEOUT_MS = 70_000;

interface Permit extends SlotPermit {
  used: boolean;
}

export class PinnedPolls {
  /** Permits that Core has, for a poll or for a task. */
  private givenCount = 0;
  private usedCount = 0;
  private closed = false;
  private readonly waiters = new Set<() => void>();

  constructor(private readonly maxTasks: number) {}

  get supplier(): CustomSlotSupplier<ActivitySlotInfo> {
    return {
      type: 'custom',
      reserveSlot: async (_, signal) => {
        await this.untilHolds(() => !this.closed && this.givenCount < this.maxTasks, signal);
        this.givenCount += 1;
        return { used: false } satisfies Permit;
      },
      tryReserveSlot: () => null,
      markSlotUsed: ({ permit }) => {
        (permit as Permit).used = true;
        this.usedCount += 1;
        this.wake();
      },
      releaseSlot: ({ permit }) => {
        if ((permit as Permit).used) this.usedCount -= 1;
        this.givenCount -= 1;
        this.wake();
      },
    };
  }

  /** Begins no further poll. Resolves when none is out any more, or after a bound; rejects when the signal aborts. */
  async close(signal: AbortSignal): Promise<void> {
    this.closed = true;
    const bound = AbortSignal.timeout(LAST_POLL_TIMEOUT_MS);
    try {
      await this.untilHolds(() => this.givenCount === this.usedCount, AbortSignal.any([signal, bound]));
    } catch (error) {
      if (!bound.aborted) throw error;
    }
  }

  private wake(): void {
    for (const check of [...this.waiters]) check();
  }

  private untilHolds(condition: () => boolean, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        this.waiters.delete(check);
        signal.removeEventListener('abort', onAbort);
      };
      const check = (): void => {
        if (!condition()) return;
        settle();
        resolve();
      };
      const onAbort = (): void => {
        settle();
        reject(signal.reason as Error);
      };
      if (signal.aborted) {
        onAbort();
        return;
      }
      signal.addEventListener('abort', onAbort);
      this.waiters.add(check);
      check();
    });
  }
}
