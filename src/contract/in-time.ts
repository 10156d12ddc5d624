/** A bound on waiting. Imports nothing. */

/**
 * What `work` gives, or what `late` gives where that takes longer than `timeoutMs`; `late` may throw. The work goes on: whoever
 * starts it ends it.
 */
export async function inTime<Result, Late>(
  work: PromiseLike<Result>,
  timeoutMs: number,
  late: () => Late,
): Promise<Result | Late> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, Math.max(0, timeoutMs));
  });
  try {
    return await Promise.race([work, timeout.then(late)]);
  } finally {
    clearTimeout(timer);
  }
}
