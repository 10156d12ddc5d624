/**
 * Runs a native program on hostile input: bounded in time, memory and output, its standard input closed, and killed
 * with everything it has started.
 *
 * The limits are set by a shell that becomes the program (`exec`): Node can not set them, and this takes 1 ms. The
 * program and its arguments are arguments of that shell and no part of its script, so nothing in them is ever parsed.
 *
 * The program stays in the executor's session and process group. After the death of the executor the supervisor kills
 * those, and a program with a session of its own (`detached`) would be left over; a group of its own inside the session
 * can be had neither from Node nor, without a terminal, from `sh` (`set -m` is ignored by dash). So every run has a
 * mark in its environment, which whatever it starts inherits, its orphans too; when the program has ended, however it
 * did, what still has the mark is killed, again and again until nothing has. That costs a look at the few processes
 * that are younger than the program, and at all of them where it was killed.
 *
 * Without /proc (macOS) neither holds: the kernel accepts a limit of the address space and does not heed it, and what a
 * program left behind lives until the supervisor ends the executor's group. pdftoppm and tesseract start nothing.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';

export interface ToolRun {
  readonly command: string;
  readonly args: readonly string[];
  readonly input?: Uint8Array;
  readonly timeoutMs: number;
  /** How much address space the program may take. */
  readonly memoryBytes: number;
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

export interface ToolOutput {
  readonly stdout: Uint8Array;
  readonly stderr: string;
}

/**
 * `$0` is the memory in KiB. A limit that is lower already, and can not be raised, is good as well. No core file: it
 * would be as large as the memory, and in the working directory.
 */
const LIMITED = 'ulimit -v "$0" 2>/dev/null; ulimit -c 0 2>/dev/null; exec "$@"';
/** How long after the end of a program its output may be held open by what it has started. */
const HELD_MS = 5_000;
const SHELL_FOUND_NOTHING = 127;
/** Not `ATLAS_…`: those are settings. */
const MARK = 'DOCUMENT_TOOL_RUN';
/** The part of stderr that an error quotes. */
const QUOTED_CHARACTERS = 300;
/** How programs say that they were given no memory. pdftoppm says it, draws half a page, and ends with exit code 0. */
const NO_MEMORY =
  /out of memory|bad_?alloc|cannot allocate memory|failed to map segment|malloc\w* fail|insufficient memory/i;

export class ToolError extends Error {
  override readonly name = 'ToolError';
}

/** @throws {@link ToolError} that says which program failed and how; the reason of the signal when it aborted. */
export async function runTool(run: ToolRun): Promise<ToolOutput> {
  run.signal.throwIfAborted();
  const mark = `${process.pid}.${randomBytes(12).toString('hex')}`;
  const kibibytes = Math.floor(run.memoryBytes / 1024);
  const program = execa('/bin/sh', ['-c', LIMITED, String(kibibytes), run.command, ...run.args], {
    ...(run.input === undefined ? { stdin: 'ignore' as const } : { input: run.input }),
    encoding: 'buffer',
    // Of a picture too it would take the last byte away, where that is 10.
    stripFinalNewline: false,
    maxBuffer: run.maxOutputBytes,
    timeout: run.timeoutMs,
    cancelSignal: run.signal,
    // SIGKILL at once: these programs have nothing to clean up, and a stuck one does not heed anything else.
    killSignal: 'SIGKILL',
    reject: false,
    env: {
      [MARK]: mark,
      // Each page has its own process; threads inside it only cost (2.5 times the CPU, measured).
      OMP_THREAD_LIMIT: '1',
      LC_ALL: 'C.UTF-8',
    },
  });
  // At its end, and not after the result: that waits for everybody who holds the other end of a pipe.
  let killed: Promise<void> | undefined;
  let held: NodeJS.Timeout | undefined;
  program.once('exit', (code) => {
    killed = killMarked(mark, code === null ? 0 : (program.pid ?? 0));
    // Should one of those live on, its output is not waited for.
    held = setTimeout(() => {
      program.stdout.destroy();
      program.stderr.destroy();
    }, HELD_MS);
  });
  const result = await program;
  clearTimeout(held);
  await killed;
  run.signal.throwIfAborted();
  const stderr = Buffer.from(result.stderr).toString('utf8').trim();
  const noMemory = NO_MEMORY.test(stderr);
  if (result.failed || noMemory) {
    const how = result.timedOut
      ? `took longer than ${run.timeoutMs / 1000} s`
      : result.isMaxBuffer
        ? `wrote more than ${run.maxOutputBytes} bytes`
        : noMemory
          ? `ran out of its ${Math.floor(run.memoryBytes / 1024 ** 2)} MiB of memory`
          : result.exitCode === SHELL_FOUND_NOTHING
            ? 'is not on the PATH'
            : result.exitCode === undefined
              ? `ended by ${result.signal ?? result.code ?? 'an unknown cause'}`
              : `ended with exit code ${result.exitCode}`;
    const said = stderr === '' ? '' : `: ${stderr.slice(0, QUOTED_CHARACTERS)}`;
    throw new ToolError(`${run.command} ${how}${said}`);
  }
  return { stdout: result.stdout, stderr };
}

/** Against a program that forks faster than it is killed; what is left then is left to the supervisor. */
const MAX_ROUNDS = 100;
const ROUND_MS = 10;

/**
 * Kills what has the mark until nothing has. Whatever a process starts has a later pid than it; that the numbers can
 * begin again from 1 in between is left to the supervisor.
 *
 * @param after Only processes with a later pid are looked at.
 */
async function killMarked(mark: string, after: number): Promise<void> {
  if (process.platform !== 'linux') return;
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const pids = markedPids(mark, after);
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // Ended meanwhile, or not ours to kill; the next round sees which.
      }
    }
    await delay(ROUND_MS);
  }
}

/** A zombie has no environment any more, so it does not count. */
function markedPids(mark: string, after: number): number[] {
  const entry = `${MARK}=${mark}`;
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      if (!Number.isInteger(pid) || pid <= after) return false;
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(entry);
      } catch {
        return false; // Ended meanwhile, or of another user.
      }
    });
}
