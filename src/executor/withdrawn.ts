/**
 * The capabilities that the supervisor has withdrawn, as its checks fail: pooled activities of their queues are neither
 * polled nor run. Pinned ones are no concern of this: a session that is held goes on.
 */
import type { ActivitySlotInfo, CustomSlotSupplier } from '@temporalio/worker';
import { failure } from '../temporal/failures.js';
import { PollGate } from '../temporal/poll-gate.js';

export class WithdrawnCapabilities {
  private readonly gate = new PollGate();
  private withdrawn: readonly string[] = [];

  set(capabilities: readonly string[]): void {
    this.withdrawn = capabilities;
    this.gate.changed();
  }

  /** The slots of the Worker that polls the queue of these capabilities. */
  supplier(capabilities: readonly string[], maxActivities: number): CustomSlotSupplier<ActivitySlotInfo> {
    return this.gate.supplier(({ given }) => given < maxActivities && this.of(capabilities).length === 0);
  }

  /** For a task whose poll was out: throws `CapabilityWithdrawn`, which the server retries, maybe elsewhere. */
  refuse(capabilities: readonly string[]): void {
    const missing = this.of(capabilities);
    if (missing.length > 0) throw failure('CapabilityWithdrawn', `The worker has withdrawn ${missing.join(' and ')}.`);
  }

  private of(capabilities: readonly string[]): string[] {
    return capabilities.filter((capability) => this.withdrawn.includes(capability));
  }
}
