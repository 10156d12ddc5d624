/**
 * What runs the activities of a worker, as the part that holds the sessions sees it, and what it may ask of that part.
 * atlasd's is a child process (`executor-child.ts`); a worker inside a user's own process has another.
 */
import type { ExecutorState } from '../contract/fleet.js';
import type {
  AttemptFacts,
  BeginAttempt,
  EncodedResult,
  LocalOrder,
  LocalOrderAnswer,
  LocalStatus,
} from '../contract/local.js';
import type { ExecutorPort } from './ports.js';
import type { ProcessIdentity } from './process-identity.js';

export interface ExecutorHost extends ExecutorPort {
  state(): ExecutorState;
  /** The life that runs, or the one that is started next. */
  incarnation(): string;
  /** null while there is none. */
  pid(): number | null;
  restarts(): number;
  /**
   * Begins to start the executor, which must run no user code before {@link admit}. Resolves when its end can be told to
   * `sessions`.
   */
  start(sessions: SessionSide): Promise<void>;
  /** What an earlier life left is being failed: user code may run, and its attempts are answered for. */
  admit(): void;
  /** Resolves when the executor has ended: what runs may go on for `timeoutMs`. */
  stop(timeoutMs: number): Promise<void>;
  /** After everything else has been stopped: nobody is answered any more. */
  close(): Promise<void>;
  /** Ends the executor without waiting, for a process that is about to end itself. */
  killNow(): void;
}

/** The sessions of the worker, for the host of its executor and for the socket in the state directory. */
export interface SessionSide {
  beginAttempt(attempt: BeginAttempt): Promise<AttemptFacts>;
  endAttempt(id: string, result?: EncodedResult): Promise<void>;
  status(): LocalStatus;
  order(order: LocalOrder): Promise<LocalOrderAnswer>;
  /** To be awaited before it runs anything: what the ledger does not name, a restart could not end. */
  executorStarted(process: ProcessIdentity): Promise<void>;
  /** The executor polls, or another one that polls is current now; sessions are taken if its state is `ready`. */
  executorReady(): void;
  /**
   * An executor and all its children have ended; others may go on. Resolves when its attempts have been failed. `process` is
   * the one that was told of as started, if it was.
   */
  executorEnded(incarnation: string, process?: ProcessIdentity): Promise<void>;
  /** How many sessions have their state in the memory of this executor. */
  memorySessions(incarnation: string): number;
  /** Ends these sessions. Resolves when they have ended. */
  loseMemory(incarnation: string, reason: string): Promise<void>;
  /** How many pinned attempts run in this executor. */
  attempts(incarnation: string): number;
  /** The executor can not stay up: the worker hands its sessions back and takes none until it is ready again. */
  executorDegraded(): void;
}
