/**
 * The sessions and attempts of one worker as a pure state machine: records in, state out. No clock, no I/O.
 *
 * The same records are appended to the ledger, so that the table after a restart is the table before it. Whoever changes
 * the table applies a record and appends it; nothing else changes it.
 */
import type { ProcessIdentity } from './process-identity.js';

/** A session as the ledger knows it. */
export interface SessionEntry {
  /** `<session>.<runId>`, see `sessionKey`. */
  readonly key: string;
  readonly session: string;
  readonly workflowId: string;
  readonly runId: string;
  readonly workflowType: string;
  readonly epoch: number;
  readonly grantId: string;
  readonly capabilities: readonly string[];
  /** Base64 of the task token of the lease. */
  readonly leaseToken: string;
  readonly leaseTtlMs: number;
  readonly grantedAtMs: number;
  readonly expiresAtMs: number;
  /** `granting`: the slot is taken, but the owner may not know yet. `releasing`: over, but its activities may not have ended. */
  readonly state: 'granting' | 'held' | 'releasing';
}

/** An attempt of an activity on the unique queue, from its begin to its end. */
export interface AttemptEntry {
  readonly id: string;
  readonly sessionKey: string | null;
  readonly activity: string;
  readonly activityId: string;
  readonly attempt: number;
  /** Base64. */
  readonly taskToken: string;
  readonly incarnation: string;
  readonly startedAtMs: number;
}

/** Whose ledger it is: the instance of the worker and the directory it was written in. */
export interface LedgerOwner {
  readonly instance: string;
  readonly directoryId: string;
}

export type LedgerRecord =
  | { readonly type: 'instance'; readonly owner: LedgerOwner }
  | { readonly type: 'session'; readonly entry: SessionEntry }
  | { readonly type: 'session-state'; readonly key: string; readonly state: SessionEntry['state'] }
  | { readonly type: 'session-gone'; readonly key: string }
  | { readonly type: 'attempt'; readonly entry: AttemptEntry }
  | { readonly type: 'attempt-ended'; readonly id: string }
  | { readonly type: 'executor'; readonly process: ProcessIdentity | null };

export class SessionTable {
  private readonly sessionsByKey = new Map<string, SessionEntry>();
  private readonly attemptsById = new Map<string, AttemptEntry>();
  private executorProcess: ProcessIdentity | null = null;
  private ledgerOwner: LedgerOwner | null = null;

  static replay(records: readonly LedgerRecord[]): SessionTable {
    const table = new SessionTable();
    for (const record of records) table.apply(record);
    return table;
  }

  apply(record: LedgerRecord): void {
    switch (record.type) {
      case 'instance':
        this.ledgerOwner = record.owner;
        break;
      case 'session':
        this.sessionsByKey.set(record.entry.key, record.entry);
        break;
      case 'session-state': {
        const entry = this.sessionsByKey.get(record.key);
        if (entry !== undefined) this.sessionsByKey.set(record.key, { ...entry, state: record.state });
        break;
      }
      case 'session-gone':
        this.sessionsByKey.delete(record.key);
        break;
      case 'attempt':
        this.attemptsById.set(record.entry.id, record.entry);
        break;
      case 'attempt-ended':
        this.attemptsById.delete(record.id);
        break;
      case 'executor':
        this.executorProcess = record.process;
        break;
    }
  }

  /** The fewest records that lead to the same table; what a compacted ledger holds. */
  records(): LedgerRecord[] {
    return [
      ...(this.ledgerOwner === null ? [] : [{ type: 'instance', owner: this.ledgerOwner } as const]),
      { type: 'executor', process: this.executorProcess },
      ...this.sessions().map((entry) => ({ type: 'session', entry }) as const),
      ...this.attempts().map((entry) => ({ type: 'attempt', entry }) as const),
    ];
  }

  /** Null for a ledger without sessions yet. */
  owner(): LedgerOwner | null {
    return this.ledgerOwner;
  }

  session(key: string): SessionEntry | undefined {
    return this.sessionsByKey.get(key);
  }

  /** In the order in which they were granted. Every one of them takes a slot, whatever its state. */
  sessions(): SessionEntry[] {
    return [...this.sessionsByKey.values()];
  }

  get sessionCount(): number {
    return this.sessionsByKey.size;
  }

  attempt(id: string): AttemptEntry | undefined {
    return this.attemptsById.get(id);
  }

  attempts(): AttemptEntry[] {
    return [...this.attemptsById.values()];
  }

  attemptsOf(key: string): AttemptEntry[] {
    return this.attempts().filter((entry) => entry.sessionKey === key);
  }

  /** The executor that was started last, alive or not; null when it ended in an orderly way. */
  executor(): ProcessIdentity | null {
    return this.executorProcess;
  }
}
