/**
 * For tests of workflows that use sessions: {@link TestFleet}, workers in the process of the test, without a daemon.
 *
 * Knows no test framework, and does not import `@temporalio/testing`: the test passes a client and a connection.
 *
 * @module
 */
export { TestFleet } from './fleet.js';
export type {
  SessionQuery,
  TestFleetOptions,
  TestSession,
  TestWorker,
  TestWorkerOptions,
  WaitOptions,
} from './types.js';
export type { TestCall } from './calls.js';
