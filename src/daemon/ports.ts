/**
 * What the session keeper needs from the outside: Temporal, the ledger, scratch space, the executor and a clock. Narrow
 * interfaces, so that the keeper can be driven without any of them.
 */
import type { ErrorCode } from '../contract/errors.js';
import type { EncodedResult, SessionEndCode, SessionMemoryName } from '../contract/local.js';
import type { Grant } from '../contract/session.js';
import type { LedgerRecord } from './session-table.js';

/** The calls about leases and attempts. Each is bounded in time and throws `Unavailable` when no answer came. */
export interface TemporalPort {
  /** Renews a lease. */
  heartbeat(leaseToken: string): Promise<'renewed' | 'not-found' | 'cancel-requested'>;
  /** Ends a lease that was released; an owner that is closed makes it a no-op. */
  completeLease(leaseToken: string): Promise<void>;
  /**
   * Answers an owner that asked whether the session lives. `gone`: it does not wait for the answer any more, and may
   * have given the session up.
   */
  answerConfirm(taskToken: string): Promise<'answered' | 'gone'>;
  /** Answers the owner's request to cancel a lease. */
  cancelLease(leaseToken: string): Promise<void>;
  /** Ends a lease that this worker gives up; the owner's session is lost. */
  failLease(leaseToken: string, code: ErrorCode, message: string): Promise<void>;
  /** Fails an attempt of an activity so that the server hands it out again. */
  failAttempt(taskToken: string, code: ErrorCode, message: string): Promise<void>;
  /** Completes an attempt with the result it had; an attempt that the server knows to be over makes it a no-op. */
  completeAttempt(taskToken: string, result: EncodedResult): Promise<void>;
  /** What has become of the run that owns a session. */
  describeOwner(owner: { workflowId: string; runId: string }): Promise<'running' | 'continued' | 'closed'>;
  /** Asks an owner whose lease the server has timed out. `gone`: it has closed. */
  askOwner(owner: { workflowId: string; runId: string }, grant: Grant): Promise<'delivered' | 'gone'>;
  /** `gone`: the owner has closed. */
  signalGrant(owner: { workflowId: string; runId: string }, grant: Grant): Promise<'delivered' | 'gone'>;
}

export interface LedgerPort {
  append(record: LedgerRecord, options: { durable: boolean }): Promise<void>;
}

export interface ScratchPort {
  create(key: string, marker: { key: string; epoch: number; grantedAtMs: number }): Promise<string>;
  isIntact(key: string): Promise<boolean>;
  directory(key: string): string;
  /** Renames the directory away, so that its name is free, and returns what deletes it. */
  discard(key: string): Promise<() => Promise<void>>;
}

export interface ExecutorPort {
  /** Whether this life of the executor goes on. While one takes the place of another there are two. */
  isAlive(incarnation: string): boolean;
  /** The life in whose memory a session may be granted now; null while there is none that may take one. */
  memoryHome(): string | null;
  /** Cancels every attempt of a session. */
  cancelSession(session: { key: string; session: string; runId: string }, code: SessionEndCode, reason: string): void;
  /**
   * Has an executor give back what a session has in its memory. Resolves when it has, or has ended, or after a bound;
   * never rejects.
   */
  dropMemory(incarnation: string, memory: SessionMemoryName): Promise<void>;
  /** Renews the local lease of the executor, after which it kills itself; null while no attempt runs. */
  renewLocalLease(forMs: number | null): void;
  /**
   * Kills these lives of the executor with all their children, for an attempt that ignores its cancellation; the current
   * one is started again. Resolves when their attempts have been failed.
   */
  kill(reason: string, incarnations: readonly string[]): Promise<void>;
}

export interface Clock {
  /** Milliseconds since the epoch, for records that people read. */
  now(): number;
  /** Milliseconds of a clock that is never set. */
  monotonicMs(): number;
  /** Calls back once, unless the returned function is called before. */
  timer(delayMs: number, callback: () => void): () => void;
}

export interface EventLog {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
