/**
 * The sessions and attempts of one worker as a pure state machine: records in, state out. No clock, no I/O.
 *
 * The same records are appended to the ledger, so that the table after a restart is the table before it. Whoever changes
 * the table applies a record and appends it; nothing else changes it.
 */
import type { EncodedResult } from '../contract/local.js';
import type { DesiredEntry } from './desired-keeper.js';
import type { ProcessIdentity } from './process-identity.js';

/** A session as the ledger knows it. */
export interface SessionEntry {
  /** `<session>.<runId>` of the run that acquired it, see `sessionKey`. Names its scratch directory. */
  readonly key: string;
  readonly session: string;
  readonly workflowId: string;
  /** The run that owns it now; another than in the key once a run has continued as new. */
  readonly runId: string;
  readonly workflowType: string;
  /** That of the newest lease. */
  readonly epoch: number;
  /** That of the lease by which it was acquired; activities carry an epoch from this one on. */
  readonly acquiredEpoch: number;
  readonly grantId: string;
  readonly fencingToken: number;
  readonly capabilities: readonly string[];
  /** Base64 of the task token of the lease. */
  readonly leaseToken: string;
  readonly leaseTtlMs: number;
  readonly recoveryWindowMs: number;
  readonly idleTimeoutMs: number | null;
  /**
   * The life of the executor in whose memory the session is; absent for one whose state is on disk, as in every ledger
   * from before there were others.
   */
  readonly incarnation?: string;
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

/** What a finished pinned activity returned, for as long as the server may not have got it. */
export interface ResultEntry {
  /** By run and activity id. */
  readonly activity: string;
  readonly sessionKey: string;
  /** Base64, of the attempt that returned it. */
  readonly taskToken: string;
  readonly result: EncodedResult;
}

export type LedgerRecord =
  | { readonly type: 'instance'; readonly owner: LedgerOwner }
  | { readonly type: 'session'; readonly entry: SessionEntry }
  | { readonly type: 'session-state'; readonly key: string; readonly state: SessionEntry['state'] }
  | { readonly type: 'session-gone'; readonly key: string }
  | { readonly type: 'attempt'; readonly entry: AttemptEntry }
  | { readonly type: 'attempt-ended'; readonly id: string }
  | { readonly type: 'result'; readonly entry: ResultEntry }
  | { readonly type: 'result-gone'; readonly activity: string }
  /** The one executor that there is now; null where there is none. */
  | { readonly type: 'executor'; readonly process: ProcessIdentity | null }
  /** Those that there are now, while one takes the place of another. */
  | { readonly type: 'executors'; readonly processes: readonly ProcessIdentity[] }
  | { readonly type: 'desired'; readonly entry: DesiredEntry };

export class SessionTable {
  private readonly sessionsByKey = new Map<string, SessionEntry>();
  private readonly attemptsById = new Map<string, AttemptEntry>();
  private readonly resultsByActivity = new Map<string, ResultEntry>();
  private executorProcesses: readonly ProcessIdentity[] = [];
  private ledgerOwner: LedgerOwner | null = null;
  private desiredEntry: DesiredEntry | null = null;

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
        for (const entry of this.results())
          if (entry.sessionKey === record.key) this.resultsByActivity.delete(entry.activity);
        break;
      case 'result':
        this.resultsByActivity.set(record.entry.activity, record.entry);
        break;
      case 'result-gone':
        this.resultsByActivity.delete(record.activity);
        break;
      case 'attempt':
        this.attemptsById.set(record.entry.id, record.entry);
        break;
      case 'attempt-ended':
        this.attemptsById.delete(record.id);
        break;
      case 'executor':
        this.executorProcesses = record.process === null ? [] : [record.process];
        break;
      case 'executors':
        this.executorProcesses = record.processes;
        break;
      case 'desired':
        this.desiredEntry = record.entry;
        break;
    }
  }

  /** The fewest records that lead to the same table; what a compacted ledger holds. */
  records(): LedgerRecord[] {
    return [
      ...(this.ledgerOwner === null ? [] : [{ type: 'instance', owner: this.ledgerOwner } as const]),
      executorsRecord(this.executorProcesses),
      ...(this.desiredEntry === null ? [] : [{ type: 'desired', entry: this.desiredEntry } as const]),
      ...this.sessions().map((entry) => ({ type: 'session', entry }) as const),
      ...this.attempts().map((entry) => ({ type: 'attempt', entry }) as const),
      ...this.results().map((entry) => ({ type: 'result', entry }) as const),
    ];
  }

  /** Null for a ledger without sessions yet. */
  owner(): LedgerOwner | null {
    return this.ledgerOwner;
  }

  session(key: string): SessionEntry | undefined {
    return this.sessionsByKey.get(key);
  }

  /** The session of this name that the run owns. */
  sessionOf(session: string, runId: string): SessionEntry | undefined {
    return this.sessions().find((entry) => entry.session === session && entry.runId === runId);
  }

  /** The session that was acquired by this grant, whichever run owns it now. */
  sessionByGrant(grantId: string): SessionEntry | undefined {
    return this.sessions().find((entry) => entry.grantId === grantId);
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

  result(activity: string): ResultEntry | undefined {
    return this.resultsByActivity.get(activity);
  }

  results(): ResultEntry[] {
    return [...this.resultsByActivity.values()];
  }

  attemptsOf(key: string): AttemptEntry[] {
    return this.attempts().filter((entry) => entry.sessionKey === key);
  }

  /** What operators want of the worker; null where none has touched it. */
  desired(): DesiredEntry | null {
    return this.desiredEntry;
  }

  /** The executors that have been started, alive or not, and have not ended in an orderly way. */
  executors(): readonly ProcessIdentity[] {
    return this.executorProcesses;
  }
}

/** One as it has always been written, so that an earlier version of atlasd that is started next finds it. */
export function executorsRecord(processes: readonly ProcessIdentity[]): LedgerRecord {
  return processes.length > 1 ? { type: 'executors', processes } : { type: 'executor', process: processes[0] ?? null };
}
