/** What the checks of capabilities have said, and what follows. Pure: outcomes and times in, changes out. */
import type { WithdrawnCapability } from '../contract/fleet.js';

export type CheckOutcome =
  | { readonly passed: true }
  /** Why, in words, without a full stop. */
  | { readonly passed: false; readonly reason: string };

/** What a change is called in the log. */
export type CapabilityChange = 'withdrawn' | 'restored';

const NOT_CHECKED = 'its check has not passed yet';

export class CapabilityState {
  private readonly entries: Map<string, { reason: string; sinceMs: number; hasFailed: boolean } | null>;

  /** Before its first pass a capability counts as withdrawn. */
  constructor(capabilities: readonly string[], nowMs: number) {
    this.entries = new Map(
      capabilities.map((capability) => [capability, { reason: NOT_CHECKED, sinceMs: nowMs, hasFailed: false }]),
    );
  }

  /** In the order of the configuration. */
  withdrawn(): WithdrawnCapability[] {
    return [...this.entries].flatMap(([capability, entry]) =>
      entry === null ? [] : [{ capability, reason: entry.reason, sinceMs: entry.sinceMs }],
    );
  }

  /**
   * A check has ended. Returns what is to be logged: null where nothing has changed, and for a first pass, which is what
   * was expected. A further failure may have another reason; it is withdrawn since the first.
   */
  checked(capability: string, outcome: CheckOutcome, nowMs: number): CapabilityChange | null {
    const before = this.entries.get(capability);
    if (before === undefined) throw new Error(`The capability ${capability} has no check.`);
    if (outcome.passed) {
      this.entries.set(capability, null);
      return before?.hasFailed === true ? 'restored' : null;
    }
    this.entries.set(capability, {
      reason: outcome.reason,
      sinceMs: before?.hasFailed === true ? before.sinceMs : nowMs,
      hasFailed: true,
    });
    return before?.hasFailed === true ? null : 'withdrawn';
  }
}
