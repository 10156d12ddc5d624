/**
 * Runs a native program on hostile input: bounded in time and output, without a shell, killed with the signal.
 *
 * The child stays in the executor's process group: after the death of the executor the supervisor kills that group,
 * and a child with a group of its own would be left over. The programs run here start no children themselves, so
 * killing the one process is killing all of it.
 */
import { execa } from 'execa';

export interface ToolRun {
  readonly command: string;
  readonly args: readonly string[];
  readonly input?: Uint8Array;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

export interface ToolOutput {
  readonly stdout: Uint8Array;
  readonly stderr: string;
}

/** The part of stderr that an error quotes. */
const QUOTED_CHARACTERS = 300;

export class ToolError extends Error {
  override readonly name = 'ToolError';
}

/** @throws {@link ToolError} that says which program failed and how; the reason of the signal when it aborted. */
export async function runTool(run: ToolRun): Promise<ToolOutput> {
  run.signal.throwIfAborted();
  const result = await execa(run.command, run.args, {
    ...(run.input === undefined ? { stdin: 'ignore' as const } : { input: run.input }),
    encoding: 'buffer',
    maxBuffer: run.maxOutputBytes,
    timeout: run.timeoutMs,
    cancelSignal: run.signal,
    // SIGKILL at once: these programs have nothing to clean up, and a stuck one does not heed anything else.
    killSignal: 'SIGKILL',
    reject: false,
    env: {
      // Each page has its own process; threads inside it only cost (2.5 times the CPU, measured).
      OMP_THREAD_LIMIT: '1',
      LC_ALL: 'C.UTF-8',
    },
  });
  run.signal.throwIfAborted();
  const stderr = Buffer.from(result.stderr).toString('utf8').trim();
  if (result.failed) {
    const how = result.timedOut
      ? `took longer than ${run.timeoutMs / 1000} s`
      : result.isMaxBuffer
        ? `wrote more than ${run.maxOutputBytes} bytes`
        : result.exitCode === undefined
          ? `ended by ${result.signal ?? result.code ?? 'an unknown cause'}`
          : `ended with exit code ${result.exitCode}`;
    const said = stderr === '' ? '' : `: ${stderr.slice(0, QUOTED_CHARACTERS)}`;
    throw new ToolError(`${run.command} ${how}${said}`);
  }
  return { stdout: result.stdout, stderr };
}
