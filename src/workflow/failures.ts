/**
 * Failures of the catalogue as a workflow throws them.
 *
 * A plain `Error` thrown in a workflow fails the workflow task, which the server then retries for ever; everything a
 * session throws is therefore an `ApplicationFailure` whose `type` is the code of the catalogue.
 */
import { ApplicationFailure } from '@temporalio/workflow';
import { ERRORS, findError, type ErrorCode } from '../contract/errors.js';

/** A non-retryable failure of the catalogue. */
export function sessionFailure(code: ErrorCode, message: string, cause?: Error): ApplicationFailure {
  return ApplicationFailure.create({
    type: code,
    message,
    nonRetryable: true,
    details: [{ next: ERRORS[code].next }],
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Runs a function of the contract, whose errors are plain, so that they fail the workflow and not its task. */
export function failingTheWorkflow<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const found = findError(error);
    if (found === undefined) throw error;
    throw sessionFailure(found.code, found.message);
  }
}
