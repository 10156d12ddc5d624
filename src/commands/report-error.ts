/**
 * How an error is shown: what failed, in one line (or with an indented list), then what to do next; or the same as JSON.
 *
 * Knows the catalogue, and Temporal's failure classes by their names: importing Temporal's packages to test a class
 * would cost every failing command a third of a second. Tells the user's fault, or the world's, from a bug of ours: only
 * for a bug is there a stack to ask for.
 */
import { AtlasError, findError, type ErrorCode } from '../contract/errors.js';
import { EXIT, type ExitCode } from '../contract/exit-codes.js';
import { workerOfIdentity } from '../contract/names.js';
import { styleFor } from '../terminal/style.js';
import { EXIT_OF_ERROR } from './exit-codes.js';

export interface ErrorReport {
  readonly message: string;
  readonly next: string;
  readonly exitCode: ExitCode;
  /** Absent for an error that the catalogue does not know. */
  readonly code?: ErrorCode;
  /** The step of the job that failed. */
  readonly step?: string;
  /** The code of the first cause that has another one than the error itself. */
  readonly reason?: ErrorCode;
  /** The error is a defect of Atlas and not something the user can put right. */
  readonly unexpected: boolean;
}

export interface ReportOptions {
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
  readonly format: 'text' | 'json';
}

/** The bound on how many causes are walked: a cause chain may be cyclic. */
const MAX_CAUSES = 16;

/** Prints an error and returns the exit code for it. */
export function reportError(error: unknown, options: ReportOptions): ExitCode {
  const report = describeError(error);
  const debug = (options.env['ATLAS_DEBUG'] ?? '') !== '';
  if (options.format === 'json') {
    const { unexpected: _, ...fields } = report;
    const stack = debug && error instanceof Error ? { stack: error.stack } : {};
    options.stderr.write(`${JSON.stringify({ version: 1, error: { ...fields, ...stack } })}\n`);
    return report.exitCode;
  }
  const style = styleFor(options.stderr, options.env);
  // Who pressed Ctrl-C or said no got what was asked for: no error, though the exit code says that it is not the whole.
  const label =
    report.code === 'Interrupted' || report.code === 'Declined' ? '' : `${style.bold(style.red('error:'))} `;
  options.stderr.write(`${label}${report.message}\n`);
  if (report.next !== '') options.stderr.write(`${style.bold(' next:')} ${report.next}\n`);
  if (debug) options.stderr.write(`${stackOf(error)}\n`);
  return report.exitCode;
}

/** Pure: what there is to say about an error. */
export function describeError(error: unknown): ErrorReport {
  const found = findError(error);
  if (found !== undefined) {
    const step = stepOf(error);
    const reason = findError(found.error.cause)?.code;
    return {
      code: found.code,
      message: oneLine(found.message),
      next: found.next,
      exitCode: EXIT_OF_ERROR[found.code],
      ...(step === undefined ? {} : { step }),
      ...(reason === undefined || reason === found.code ? {} : { reason }),
      unexpected: false,
    };
  }
  const translated = fromTemporal(error);
  if (translated !== undefined) return describeError(translated);
  if (isSystemError(error)) {
    return {
      message: oneLine(error.message),
      next: 'Correct what the message names and run the command again.',
      exitCode: EXIT.failed,
      unexpected: false,
    };
  }
  return {
    message: `Unexpected: ${oneLine(messageWithReason(error))}`,
    next: 'This looks like a defect of Atlas. Set ATLAS_DEBUG=1 and run again for the stack.',
    exitCode: EXIT.failed,
    unexpected: true,
  };
}

/** "Workflow Update failed" alone says nothing: what is wrong is in its cause. */
function messageWithReason(error: unknown): string {
  const message = error instanceof Error ? error.message || error.name : String(error);
  const reason = reasonOf(error);
  if (message.includes(reason)) return message;
  return reason.includes(message) ? reason : `${message}: ${reason}`;
}

function causes(error: unknown): Error[] {
  const chain: Error[] = [];
  let current: unknown = error;
  while (chain.length < MAX_CAUSES && current instanceof Error) {
    chain.push(current);
    current = current.cause;
  }
  return chain;
}

/** The activity that a failed workflow names as its cause. */
export function stepOf(error: unknown): string | undefined {
  for (const cause of causes(error)) {
    const { activityType } = cause as { activityType?: unknown };
    if (cause.name === 'ActivityFailure' && typeof activityType === 'string') return activityType;
  }
  return undefined;
}

/** The worker on which that activity failed, where the failure tells it. */
export function workerOf(error: unknown): string | undefined {
  for (const cause of causes(error)) {
    const { identity } = cause as { identity?: unknown };
    if (cause.name === 'ActivityFailure' && typeof identity === 'string') return workerOfIdentity(identity);
  }
  return undefined;
}

/**
 * Why a workflow failed, in words: its innermost cause that says something. `ActivityFailure` itself only says "Activity
 * task failed".
 */
export function reasonOf(error: unknown): string {
  const chain = causes(error);
  for (const cause of [...chain].reverse()) {
    if (cause.name === 'TimeoutFailure') {
      const { timeoutType } = cause as { timeoutType?: unknown };
      return `it timed out (${typeof timeoutType === 'string' ? timeoutType : cause.message})`;
    }
    if (cause.name === 'CancelledFailure') return 'it was cancelled';
    if (cause.name === 'TerminatedFailure') return 'it was terminated';
    if (cause.message !== '') return cause.message;
  }
  return String(error);
}

/** gRPC's numbers for the answers that have an entry in the catalogue. */
const GRPC = { deadlineExceeded: 4, notFound: 5, permissionDenied: 7, unavailable: 14, unauthenticated: 16 } as const;

/** An error of Temporal's client as one of the catalogue. */
function fromTemporal(error: unknown): AtlasError | undefined {
  for (const cause of causes(error)) {
    switch (cause.name) {
      case 'WorkflowNotFoundError':
      case 'NamespaceNotFoundError':
        return new AtlasError(cause.name === 'WorkflowNotFoundError' ? 'NotFound' : 'ServerRefused', cause.message, {
          cause: error,
        });
      case 'WorkflowFailedError': {
        const step = stepOf(error);
        const at = step === undefined ? '' : ` at ${step}`;
        return new AtlasError('JobFailed', `The workflow failed${at}: ${reasonOf(error)}`, { cause: error });
      }
    }
    const { code, details } = cause as { code?: unknown; details?: unknown };
    if (typeof code !== 'number') continue;
    const text = typeof details === 'string' && details !== '' ? details : cause.message;
    if (code === GRPC.unavailable || code === GRPC.deadlineExceeded) {
      return new AtlasError('ServerUnreachable', `The Temporal server does not answer: ${text}`, { cause: error });
    }
    if (code === GRPC.permissionDenied || code === GRPC.unauthenticated) {
      return new AtlasError('ServerRefused', `The Temporal server refused the call: ${text}`, { cause: error });
    }
    if (code === GRPC.notFound) {
      return new AtlasError('NotFound', `The Temporal server does not know it: ${text}`, { cause: error });
    }
  }
  return undefined;
}

/** An error of the operating system, such as a full disk: its message is meant for people. */
function isSystemError(error: unknown): error is Error {
  return error instanceof Error && 'errno' in error && 'syscall' in error;
}

/**
 * A message on one line. Only a list of ours keeps its lines, which are indented by two: what was tried, or the last
 * output of a program.
 */
function oneLine(text: string): string {
  return text.replace(/\s*\n(?! {2}\S)\s*/g, ' ').trim();
}

function stackOf(error: unknown): string {
  return causes(error)
    .map((cause, depth) => `${depth === 0 ? '' : 'caused by: '}${cause.stack ?? cause.message}`)
    .join('\n');
}
