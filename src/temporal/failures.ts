/** Errors of the catalogue as they cross a Temporal boundary, which classes do not survive and types do. */
import { ApplicationFailure } from '@temporalio/common';
import { ERRORS, type ErrorCode } from '../contract/errors.js';

/** The failure whose type is the code; retryable where the catalogue says so. */
export function failure(code: ErrorCode, message: string, cause?: Error): ApplicationFailure {
  return ApplicationFailure.create({
    type: code,
    message,
    nonRetryable: !ERRORS[code].retryable,
    details: [{ next: ERRORS[code].next }],
    ...(cause === undefined ? {} : { cause }),
  });
}
