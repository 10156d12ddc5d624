/** What became of each of several things that one command did: all are told, and the worst decides the exit code. */
import type { ExitCode } from '../../contract/exit-codes.js';
import { EXIT } from '../../contract/exit-codes.js';
import { describeError, type ErrorReport } from '../report-error.js';
import { styleFor } from '../../terminal/style.js';
import type { CommandContext } from '../spec.js';

export type Outcome<T> =
  | { readonly name: string; readonly value: T; readonly report?: undefined }
  | { readonly name: string; readonly report: ErrorReport; readonly value?: undefined };

/** Orders are given this many at once. */
const CONCURRENCY = 8;

/**
 * Does something for each name, and goes on after one that failed. The only one that fails is thrown, so that it is
 * reported like every other error.
 */
export async function outcomesOf<T>(
  names: readonly string[],
  act: (name: string) => Promise<T>,
): Promise<readonly Outcome<T>[]> {
  const outcomes: Outcome<T>[] = [];
  const left = [...names.entries()];
  const lane = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [index, name] = next;
      try {
        outcomes[index] = { name, value: await act(name) };
      } catch (error) {
        if (names.length === 1) throw error;
        outcomes[index] = { name, report: describeError(error) };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(CONCURRENCY, names.length) }, lane));
  return outcomes;
}

/** The outcomes that went wrong, on stderr. */
export function reportFailures<T>({ stderr, env }: CommandContext, outcomes: readonly Outcome<T>[]): void {
  const style = styleFor(stderr, env);
  for (const { name, report } of outcomes) {
    if (report === undefined) continue;
    stderr.write(
      `${style.bold(style.red('error:'))} ${name}: ${report.message}\n${style.bold(' next:')} ${report.next}\n`,
    );
  }
}

/** What scripts most need to know comes first: that something was refused, is missing, or is not done. */
const WORST_FIRST: readonly ExitCode[] = [
  EXIT.conflict,
  EXIT.notFound,
  EXIT.unreachable,
  EXIT.deadline,
  EXIT.unsupported,
  EXIT.usage,
  EXIT.failed,
];

export function worstExit(codes: readonly ExitCode[]): ExitCode {
  return WORST_FIRST.find((code) => codes.includes(code)) ?? EXIT.done;
}

/** The error of an outcome as the JSON output has it. */
export function errorRecord(report: ErrorReport): Record<string, unknown> {
  const { code, message, next, exitCode } = report;
  return { code: code ?? null, message, next, exitCode };
}
