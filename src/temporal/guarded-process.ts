/**
 * Child processes that can not outlive this one, not even when it is killed with -9.
 *
 * Owns spawning under a guard, bounded runs and killing whole process groups. Used for the dev server and for every
 * program the resolver runs. Needs `sh`, so Linux and macOS; knows nothing of Temporal.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

/** How long a guarded program may take to end after its parent has vanished. */
const ORPHAN_GRACE_SECONDS = 3;
/** How long output is awaited after the guard has ended. */
const OUTPUT_GRACE_MS = 2_000;
/** The bound on waiting for killed processes to be reaped; in a container nobody may do that. */
const REAP_TIMEOUT_MS = 1_000;
const REAP_POLL_MS = 5;

/**
 * A pipe ends when its last writer is gone, however that came about: this is the one notice of a parent's death that
 * works on Linux and macOS alike. The guard runs the program beside a reader of that pipe, in a process group of its
 * own, so that a Ctrl-C in the terminal reaches only the parent, which decides the order of stopping.
 *
 * `read` and `kill` are builtins: the reader is one process, and killing it leaves nothing behind.
 */
const GUARD_SCRIPT = `
pid=
stopped=
trap 'stopped=1; [ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null' TERM INT HUP
exec 4<&0
"$@" </dev/null 3>&- 4<&- &
pid=$!
[ -z "$stopped" ] || kill -TERM "$pid" 2>/dev/null
echo "$pid" >&3
exec 3>&-
(
  read -r _ <&4
  kill -TERM "$pid"
  ticks=0
  while kill -0 "$pid" && [ "$ticks" -lt ${ORPHAN_GRACE_SECONDS * 10} ]; do sleep 0.1; ticks=$((ticks + 1)); done
  kill -KILL "$pid"
) >/dev/null 2>&1 &
reader=$!
exec 4<&-
wait "$pid"
code=$?
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
kill -KILL "$reader" 2>/dev/null
wait "$reader" 2>/dev/null
exit "$code"
`;

export interface GuardedExit {
  /** The program's exit code; 128 plus the signal's number when a signal ended it; null when the guard was killed. */
  readonly code: number | null;
}

export interface GuardedProcess {
  /** The pid of the program itself, not of its guard. Rejects when it could not be started. */
  readonly pid: Promise<number>;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Resolves when the program has ended and its output has been read. Never rejects. */
  readonly exited: Promise<GuardedExit>;
  /** SIGTERM; after `graceMs` SIGKILL to the whole group. Resolves when all of it has ended. */
  stop(graceMs: number): Promise<void>;
}

export interface GuardedOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
}

/** Starts a program that dies with this process. */
export function spawnGuarded(command: string, args: readonly string[], options: GuardedOptions): GuardedProcess {
  const child: ChildProcess = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'atlas-guard', command, ...args], {
    env: options.env,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  });
  const [stdin, stdout, stderr, pidPipe] = child.stdio;
  // With every stream asked for as a pipe these exist; the check is for the type checker.
  if (!stdin || !stdout || !stderr || !pidPipe) throw new Error('The guard has no pipes.');

  // The guard may be gone before it read its stdin; that is seen through its exit.
  stdin.on('error', () => undefined);

  let spawnError: Error | undefined;
  const exited = new Promise<GuardedExit>((resolve) => {
    child.once('error', (error) => {
      spawnError = error;
      if (child.pid === undefined) resolve({ code: null });
    });
    // Should the guard alone have been killed, closing the pipe makes the reader end the program.
    child.once('exit', () => {
      stdin.destroy();
      // A grandchild that has left the group may hold the output open for ever.
      setTimeout(() => {
        stdout.destroy();
        stderr.destroy();
      }, OUTPUT_GRACE_MS).unref();
    });
    child.once('close', (code) => resolve({ code }));
  });

  const pid = new Promise<number>((resolve, reject) => {
    let text = '';
    pidPipe.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    pidPipe.once('close', () => {
      const value = Number.parseInt(text, 10);
      if (Number.isInteger(value)) resolve(value);
      else reject(spawnError ?? new Error(`${command} could not be started`));
    });
  });
  // Whoever only waits for the exit must not get an unhandled rejection.
  pid.catch(() => undefined);

  let stopping: Promise<void> | undefined;
  const stop = (graceMs: number): Promise<void> => {
    stopping ??= (async () => {
      if (child.pid === undefined) return;
      child.kill('SIGTERM');
      const group = child.pid;
      const timer = setTimeout(() => killGroup(group), graceMs);
      await exited;
      clearTimeout(timer);
      // What the program itself has started may still be there: the group's id stays reserved as long as it is.
      killGroup(group);
      await untilGroupIsGone(group);
    })();
    return stopping;
  };

  return { pid, stdout: stdout, stderr: stderr, exited, stop };
}

/** Kills a process group; one that is gone already is what was wanted. */
export function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // ESRCH: nothing left. EPERM on macOS: only zombies left.
  }
}

async function untilGroupIsGone(group: number): Promise<void> {
  const deadlineMs = Date.now() + REAP_TIMEOUT_MS;
  while (Date.now() < deadlineMs) {
    try {
      process.kill(-group, 0);
    } catch {
      return;
    }
    await sleep(REAP_POLL_MS);
  }
}

export interface BoundedRun {
  readonly code: number | null;
  /** The end of each stream, at most {@link OUTPUT_LIMIT_CHARS}. */
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
}

const OUTPUT_LIMIT_CHARS = 64 * 1024;
const STOP_GRACE_MS = 1_000;

export interface BoundedOptions extends GuardedOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs a program to its end within a time. A program that fails, or can not be started, is an answer and not an
 * error; only an abort rejects, with the signal's reason and after everything has ended.
 */
export async function runBounded(
  command: string,
  args: readonly string[],
  options: BoundedOptions,
): Promise<BoundedRun> {
  options.signal?.throwIfAborted();
  const child = spawnGuarded(command, args, options);
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout = (stdout + chunk.toString()).slice(-OUTPUT_LIMIT_CHARS);
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr = (stderr + chunk.toString()).slice(-OUTPUT_LIMIT_CHARS);
  });

  let timedOut = false;
  const stop = (): void => void child.stop(STOP_GRACE_MS);
  const timer = setTimeout(() => {
    timedOut = true;
    stop();
  }, options.timeoutMs);
  options.signal?.addEventListener('abort', stop, { once: true });
  try {
    const { code } = await child.exited;
    await child.stop(STOP_GRACE_MS);
    options.signal?.throwIfAborted();
    return { code, stdout, stderr, timedOut };
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener('abort', stop);
  }
}
