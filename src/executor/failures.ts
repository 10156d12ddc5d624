/** Errors of the catalogue as activities report them: classes do not survive a Temporal boundary, types do. */
import { ApplicationFailure } from '@temporalio/common';
import { AtlasError, ERRORS, type ErrorCode } from '../contract/errors.js';

export function failure(code: ErrorCode, message: string, cause?: Error): ApplicationFailure {
  return ApplicationFailure.create({
    type: code,
    message,
    nonRetryable: !ERRORS[code].retryable,
    details: [{ next: ERRORS[code].next }],
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Runs an activity; an {@link AtlasError} that it throws, such as `NotInSession`, keeps its code. */
export async function throwingFailures<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    // By name as well: the activity may have loaded another copy of this package.
    if (!(error instanceof AtlasError) && (error as Error | undefined)?.name !== 'AtlasError') throw error;
    const { code, message } = error as AtlasError;
    throw failure(code, message, error as AtlasError);
  }
}
