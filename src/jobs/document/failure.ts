/**
 * How the activities of the job fail: with a code of the catalogue, in the one form that survives Temporal.
 */
import { ApplicationFailure } from '@temporalio/common';
import { AtlasError, ERRORS, type ErrorCode } from '../../contract/errors.js';

export interface FailureOptions {
  readonly cause?: unknown;
  /** Overrides the catalogue's next step where the situation allows a more exact one. */
  readonly next?: string;
}

/**
 * As much of a text as goes into a history. Paths, addresses and what servers and programs say have no bound of their
 * own.
 */
const MAX_CHARACTERS = 1_000;

/** A failure of the catalogue. Whether it is retried follows from the catalogue alone. */
export function failure(code: ErrorCode, message: string, options: FailureOptions = {}): ApplicationFailure {
  return ApplicationFailure.create({
    type: code,
    message: bounded(message),
    nonRetryable: !ERRORS[code].retryable,
    details: [{ next: bounded(options.next ?? ERRORS[code].next) }],
    ...(options.cause instanceof Error ? { cause: boundedError(options.cause) } : {}),
  });
}

/** @param found What is too large, as the beginning of a sentence. */
export function tooLarge(found: string, maxBytes: number): ApplicationFailure {
  return failure('TooLarge', `${found}; this worker takes at most ${maxBytes}.`, {
    next: 'Raise document.max_bytes (ATLAS_DOCUMENT_MAX_BYTES) of the worker, or split the document.',
  });
}

function bounded(text: string): string {
  return text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS)}…`;
}

/** An error as the history has it: the stack begins with the message, which must not come back through it. */
function boundedError(error: Error): Error {
  if (error.message.length <= MAX_CHARACTERS) return error;
  const short = new Error(bounded(error.message));
  short.name = error.name;
  return short;
}

/** An {@link AtlasError} in the form of a failure, since its class would not survive; anything else as it is. */
export function asFailure(error: unknown): unknown {
  return error instanceof AtlasError ? failure(error.code, error.message, { cause: error, next: error.next }) : error;
}

/** Whether an error is one that this job has already put into the catalogue's form. */
export function isFailure(error: unknown, code?: ErrorCode): error is ApplicationFailure {
  return error instanceof ApplicationFailure && (code === undefined || error.type === code);
}

/** The code of an error of Node or of a system call, such as `ENOSPC`. */
export function systemCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
