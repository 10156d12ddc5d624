/**
 * What workflow code imports: sessions pinned to one worker, and activities routed by capability.
 *
 * @module
 */
export { withSession, type PinnedActivityOptions, type Session } from './session.js';
export type { OnLost, SessionHandle, SessionOptions } from './options.js';
export {
  pooled,
  workerActivities,
  type PooledOptions,
  type RoutedActivities,
  type WorkerActivityOptions,
} from './routing.js';
export type { Duration } from '../contract/duration.js';
export { ERRORS, findErrorCode, isErrorCode, type ErrorCode } from '../contract/errors.js';
