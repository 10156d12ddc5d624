/**
 * Temporal's Runtime of this process: its log lines go to ours, and signals stay ours. To be installed before the first
 * Worker or native connection is made.
 */
import { makeTelemetryFilterString, Runtime, type LogLevel, type LogMetadata } from '@temporalio/worker';

export interface RuntimeLog {
  /** Whether lines of this level are written. */
  isOn(level: 'trace' | 'debug' | 'info' | 'warn' | 'error'): boolean;
  trace(fields: object, message: string): void;
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** What the SDK says about its own life is detail here: our own lines say what matters. */
const LEVEL: Record<LogLevel, 'trace' | 'debug' | 'info' | 'warn' | 'error'> = {
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'debug',
  WARN: 'warn',
  ERROR: 'error',
};

/** Warnings of the SDK about what is meant here: most queues carry either workflows or activities. */
const EXPECTED = new Set([
  'No workflows registered, not polling for workflow tasks',
  'No activities registered, not polling for activity tasks',
]);

/** In an outage every poll fails several times a second; once in this time the same words are news enough. */
const REPEAT_AFTER_MS = 10_000;
const MAX_REMEMBERED = 100;

export function installRuntime(log: RuntimeLog): void {
  const lastMs = new Map<string, number>();
  const isRepetition = (message: string): boolean => {
    const nowMs = performance.now();
    if (nowMs - (lastMs.get(message) ?? Number.NEGATIVE_INFINITY) < REPEAT_AFTER_MS) return true;
    if (lastMs.size >= MAX_REMEMBERED) lastMs.clear();
    lastMs.set(message, nowMs);
    return false;
  };
  const write = (level: LogLevel, message: string, meta?: LogMetadata): void => {
    // Log lines of workflows and activities are the user's, at the level the user chose.
    const own = meta?.['sdkComponent'] === 'workflow' || meta?.['sdkComponent'] === 'activity';
    const target = own && level === 'INFO' ? 'info' : EXPECTED.has(message) ? 'debug' : LEVEL[level];
    // Only what core says of itself: each failed attempt of a user's activity is a line of its own.
    if (!own && level === 'WARN' && isRepetition(message)) return;
    // The SDK says several things about every activity; what nobody reads need not be put into words.
    if (!log.isOn(target)) return;
    log[target]({ event: 'temporal', ...describe(meta) }, message);
  };
  Runtime.install({
    // Each program runs its own bounded stop; the SDK's would begin one at the first signal.
    shutdownSignals: [],
    logger: {
      log: write,
      trace: (message, meta) => {
        write('TRACE', message, meta);
      },
      debug: (message, meta) => {
        write('DEBUG', message, meta);
      },
      info: (message, meta) => {
        write('INFO', message, meta);
      },
      warn: (message, meta) => {
        write('WARN', message, meta);
      },
      error: (message, meta) => {
        write('ERROR', message, meta);
      },
    },
    telemetryOptions: { logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN', other: 'ERROR' }) } },
  });
}

/** The fields that tell which activity or workflow a line is about, and why it failed; without the rest of the metadata. */
function describe(meta: LogMetadata | undefined): object {
  if (meta === undefined) return {};
  const { workflowId, runId, workflowType, activityId, activityType, taskQueue, attempt, error, ...rest } =
    meta as Record<string, unknown>;
  const known = { workflowId, runId, workflowType, activityId, activityType, taskQueue, attempt };
  const extra: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(rest)) {
    if (!IGNORED.has(key) && (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'))
      extra[key] = value;
  }
  return {
    ...Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined)),
    ...extra,
    ...(error === undefined ? {} : { error: error instanceof Error ? error.message : JSON.stringify(error) }),
  };
}

const IGNORED = new Set([
  'sdkComponent',
  'isLocal',
  'namespace',
  'taskToken',
  'durationMs',
  'target',
  'timestampNanos',
]);
