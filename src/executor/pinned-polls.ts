/**
 * The polls of the unique queue: how many are out, and an end of them that loses no task.
 *
 * A Worker that is shut down cancels its polls, and a task that the server gives to one in that moment is lost until its
 * heartbeat timeout. An executor that retires while another one polls the same queue has time: it begins no further poll, and
 * is shut down once the last one has come back, with a task or empty.
 */
import type { ActivitySlotInfo, CustomSlotSupplier } from '@temporalio/worker';
import { PollGate, type SlotUsage } from '../temporal/poll-gate.js';

/** Over the longest poll of the server, a minute. */
const LAST_POLL_TIMEOUT_MS = 70_000;

export class PinnedPolls {
  readonly supplier: CustomSlotSupplier<ActivitySlotInfo>;
  private readonly gate = new PollGate();
  private readonly usage: SlotUsage = { given: 0, taken: 0 };
  private closed = false;

  constructor(maxTasks: number) {
    this.supplier = this.gate.supplier(({ given }) => !this.closed && given < maxTasks, this.usage);
  }

  /** Begins no further poll. Resolves when none is out any more, or after a bound; rejects when the signal aborts. */
  async close(signal: AbortSignal): Promise<void> {
    this.closed = true;
    const bound = AbortSignal.timeout(LAST_POLL_TIMEOUT_MS);
    try {
      await this.gate.until(() => this.usage.given === this.usage.taken, AbortSignal.any([signal, bound]));
    } catch (error) {
      if (!bound.aborted) throw error;
    }
  }
}
