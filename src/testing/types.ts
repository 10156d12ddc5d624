/** What a test gives to a `TestFleet`, and what it gets from it. */
import type { Client } from '@temporalio/client';
import type { NativeConnection, WorkerOptions } from '@temporalio/worker';
import type { Duration } from '../contract/duration.js';

/** A worker of a test fleet. */
export interface TestWorkerOptions {
  /** Such as `w1`; unique in the fleet. */
  readonly name: string;
  /** What it advertises, at most three words. @default none */
  readonly capabilities?: readonly string[];
  /** How many sessions it holds at once. @default 4 */
  readonly maxSessions?: number;
  /**
   * Its activities by name: your real ones, or plain functions that stand for them. @default those of
   * {@link TestFleetOptions.activities}
   */
  readonly activities?: object;
}

export interface TestFleetOptions {
  /** Such as `env.client` of a `TestWorkflowEnvironment`. The test closes it. */
  readonly client: Client;
  /** Such as `env.nativeConnection`, to the same server. The test closes it, after the fleet. */
  readonly connection: NativeConnection;
  /** @default a name that no other test has */
  readonly fleet?: string;
  /** The module with the workflows, which is bundled now. This, `workflowBundle`, or neither where you run them yourself. */
  readonly workflowsPath?: string;
  /** Of Temporal's `bundleWorkflowCode`, or a file that has its code: saves the bundling in every test. */
  readonly workflowBundle?: WorkerOptions['workflowBundle'];
  readonly workers: readonly TestWorkerOptions[];
  /** For workers that name none of their own. */
  readonly activities?: object;
  /** That of the client too, where you have one of your own. */
  readonly dataConverter?: WorkerOptions['dataConverter'];
  /** Other options of the Worker that runs the workflows: interceptors, sinks, `bundlerOptions`. */
  readonly workflowWorker?: Omit<
    WorkerOptions,
    'connection' | 'namespace' | 'taskQueue' | 'activities' | 'workflowsPath' | 'workflowBundle' | 'tuner'
  >;
}

/** A bounded wait. In real time, also where the server skips time: it guards against hanging. */
export interface WaitOptions {
  /** @default 10 seconds */
  readonly timeout?: Duration;
}

/** A worker of a `TestFleet`, and what can be done to it. */
export interface TestWorker {
  readonly name: string;
  readonly capabilities: readonly string[];
  /** Its unique task queue, as `session.queue`. */
  readonly queue: string;
  readonly state: 'open' | 'cordoned' | 'lost';
  /** The sessions that it holds now. */
  readonly sessions: readonly TestSession[];
  /**
   * The worker is gone, silently: calls in flight are heard of no more, nothing is polled on its queue, and its sessions are
   * lost. Where a real fleet takes presence TTL and recovery window to notice, 9 to 11 s, owners are told at once, and the
   * question whether the sessions live is answered with no. Resolves when all owners have heard that.
   *
   * @throws `AtlasError` `WaitTimeout` when the workflow of a session does not ask within 10 seconds.
   */
  lose(): Promise<void>;
  /** A worker that was lost comes back with nothing held; one that is not is lost before. */
  restart(): Promise<void>;
  /**
   * The executor ends and another takes its place, as after a crash: activities that run are attempted again, and sessions
   * with `state: 'memory'` are lost. Those on disk go on. Resolves when the attempts were handed back.
   */
  restartExecutor(): Promise<void>;
  /** From now on it takes no new session. Those that it holds go on, and so do pooled activities. */
  cordon(): Promise<void>;
  /**
   * Cordons, and resolves when the last session has ended.
   *
   * @throws `AtlasError` `WaitTimeout` that names the sessions which remain.
   */
  drain(options?: WaitOptions): Promise<void>;
  /** Takes new sessions again. */
  uncordon(): Promise<void>;
}

/** A session that a worker of a `TestFleet` holds. */
export interface TestSession {
  /** As `session.id` in the workflow and `currentSession().id` in its activities. */
  readonly id: string;
  readonly workflowId: string;
  readonly runId: string;
  /** The name of the worker. */
  readonly worker: string;
  readonly capabilities: readonly string[];
  readonly scratchDirectory: string;
  /** Whether it is still held. */
  readonly held: boolean;
  /**
   * Ends it as if its maximum duration were over: its workflow gets `SessionExpired`. Resolves once its activities have
   * ended and its workflow was told.
   *
   * @throws `AtlasError` `NotFound` when it is not held any more.
   */
  expire(): Promise<void>;
  /**
   * Ends it as an operator does with `atlas sessions release`: its workflow follows its `onLost`, or gets
   * `SessionReleased` with `failOwner`. Resolves like {@link TestSession.expire}.
   *
   * @throws `AtlasError` `NotFound` when it is not held any more.
   */
  release(options?: { readonly failOwner?: boolean; readonly why?: string }): Promise<void>;
}

/** Which session is meant. */
export interface SessionQuery extends WaitOptions {
  readonly workflowId: string;
  /** Where a workflow has several. @default the one that was granted last */
  readonly id?: string;
}
