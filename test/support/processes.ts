/**
 * Finding and ending the processes that a test has started, whatever became of their parents. Each is marked by a
 * variable in its environment, which its children inherit.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Not ATLAS_*: those are configuration, and unknown ones are refused. */
const MARK_VARIABLE = 'TEST_PROCESS_MARK';
const POLL_MS = 50;

export interface MarkedProcess {
  readonly pid: number;
  readonly command: string;
}

export function newMark(): string {
  return randomBytes(8).toString('hex');
}

export function markEnvironment(env: NodeJS.ProcessEnv, mark: string): NodeJS.ProcessEnv {
  return { ...env, [MARK_VARIABLE]: mark };
}

/** The living processes with a mark. Zombies have no environment any more, so they do not count. */
export function markedProcesses(mark: string): MarkedProcess[] {
  return process.platform === 'linux' ? fromProc(mark) : fromPs(mark);
}

function fromProc(mark: string): MarkedProcess[] {
  const found: MarkedProcess[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const environ = readFileSync(`/proc/${name}/environ`, 'utf8');
      if (!environ.split('\0').includes(`${MARK_VARIABLE}=${mark}`)) continue;
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0').join(' ').trim();
      found.push({ pid: Number(name), command });
    } catch {
      // Ended meanwhile, or another user's.
    }
  }
  return found;
}

function fromPs(mark: string): MarkedProcess[] {
  const output = execFileSync('ps', ['-Aeww', '-o', 'pid=,command='], { encoding: 'utf8' });
  return output
    .split('\n')
    .filter((line) => line.includes(`${MARK_VARIABLE}=${mark}`))
    .map((line) => ({ pid: Number.parseInt(line, 10), command: line.trim().replace(/^\d+\s+/, '') }));
}

/** Waits until no process with the mark is left; resolves to those that are after all. */
export async function untilGone(mark: string, timeoutMs: number): Promise<MarkedProcess[]> {
  const deadlineMs = Date.now() + timeoutMs;
  for (;;) {
    const left = markedProcesses(mark);
    if (left.length === 0 || Date.now() >= deadlineMs) return left;
    await sleep(POLL_MS);
  }
}

/** Kills all processes with the mark. */
export function killMarked(mark: string): void {
  for (const { pid } of markedProcesses(mark)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Ended meanwhile.
    }
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Polls until a condition holds. For what can not be awaited as an event, such as the end of a foreign process. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 60_000,
): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() >= deadlineMs) throw new Error(`Not within ${timeoutMs} ms: ${what}`);
    await sleep(POLL_MS);
  }
}
