/**
 * A session worker inside a process of one's own: {@link SessionWorkerPlugin}, for a Worker of the SDK.
 *
 * @module
 */
export { SESSION_CHANNEL_ARGS } from '../temporal/connect.js';
export type { SessionWorkerPluginOptions } from './options.js';
export { SessionWorkerPlugin } from './plugin.js';
