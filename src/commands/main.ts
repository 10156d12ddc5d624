/**
 * The shell around a program: signals, broken pipes, and output that is out before the process ends.
 *
 * `src/atlas.ts` and `src/atlasd.ts` call {@link runMain}; the files in `bin/` only set the exit code.
 */
import { AtlasError } from '../contract/errors.js';
import { EXIT, type ExitCode } from '../contract/exit-codes.js';
import { runProgram } from './program.js';
import type { CommandContext, ProgramSpec } from './spec.js';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** What a test replaces; everything else comes from the process. */
export type ContextOverrides = Partial<Omit<CommandContext, 'signal'>>;

/** Runs a program as this process: the first signal aborts the context, the second ends the process at once. */
export async function runMain(
  program: ProgramSpec,
  argv: readonly string[],
  overrides: ContextOverrides = {},
): Promise<ExitCode> {
  const interrupt = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    // Whoever sends a second signal does not want to wait for anything any more.
    if (interrupt.signal.aborted) process.exit(EXIT.interrupted);
    interrupt.abort(new AtlasError('Interrupted', `Interrupted by ${signal}.`));
  };
  const releaseSignals = (): void => {
    for (const signal of SIGNALS) process.removeListener(signal, onSignal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);

  const context: CommandContext = {
    env: overrides.env ?? process.env,
    cwd: overrides.cwd ?? process.cwd(),
    stdout: overrides.stdout ?? process.stdout,
    stderr: overrides.stderr ?? process.stderr,
    stdin: overrides.stdin ?? process.stdin,
    signal: interrupt.signal,
  };
  ignoreClosedReader(context.stdout);
  ignoreClosedReader(context.stderr);
  try {
    return await runProgram(program, argv, context, { releaseSignals });
  } finally {
    releaseSignals();
    await Promise.all([flushed(context.stdout), flushed(context.stderr)]);
  }
}

/** A reader that has seen enough (`atlas workers ls | head -1`), or a terminal that was closed, is no error of ours. */
function ignoreClosedReader(stream: NodeJS.WriteStream): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE' || error.code === 'EIO' || error.code === 'ERR_STREAM_DESTROYED') return;
    throw error;
  });
}

/** Output to a pipe may still be in memory when the command returns, and `process.exit` would drop it. */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.destroyed || stream.writableLength === 0) return Promise.resolve();
  return new Promise((resolve) => {
    stream.write('', () => resolve());
  });
}
