/** What the activities of the executor throw: errors of the catalogue keep their code on the way to the server. */
import { AtlasError } from '../contract/errors.js';
import { failure } from '../temporal/failures.js';

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
