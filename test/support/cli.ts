/**
 * The built `atlas` as a person or a script uses it: a real process, its two outputs read as lines. After every test each
 * is ended, and a process that one has left behind fails the test.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach } from 'vitest';
import { temporaryDirectory } from './atlasd.js';
import { killMarked, markEnvironment, newMark, untilGone, type MarkedProcess } from './processes.js';
import { temporalEnvironment } from './server.js';

const ATLAS = fileURLToPath(new URL('../../bin/atlas.js', import.meta.url));
/** A guard against hanging. */
const LINE_WAIT_MS = 90_000;
/** How long the children of a command that has ended may take to end. */
const LEFTOVER_GRACE_MS = 30_000;

export interface AtlasOptions {
  /** Over the environment of the shared Temporal server. */
  readonly env?: NodeJS.ProcessEnv;
  /** The address of another server. */
  readonly address?: string;
  /** Default: a new temporary directory. */
  readonly cwd?: string;
  /** What comes in through stdin. Default: nothing is connected to it. */
  readonly input?: string;
}

export interface AtlasOutcome {
  readonly exit: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class AtlasCommand {
  stdout = '';
  stderr = '';
  readonly exited: Promise<AtlasOutcome>;
  private hasExited = false;
  private readonly listeners = new Set<() => void>();

  constructor(
    readonly child: ChildProcess,
    readonly mark: string,
    readonly cwd: string,
  ) {
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
      this.wake();
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.wake();
    });
    this.exited = new Promise((resolve) => {
      child.once('close', (exit) => {
        this.hasExited = true;
        this.wake();
        resolve({ exit, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  private wake(): void {
    for (const listener of this.listeners) listener();
  }

  /** The first whole line of stderr that matches, past or future. */
  async line(pattern: RegExp): Promise<string> {
    return await new Promise((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        this.listeners.delete(check);
        act();
      };
      const check = (): void => {
        const found = this.stderr
          .split('\n')
          .slice(0, -1)
          .find((line) => pattern.test(line));
        if (found !== undefined) settle(() => resolve(found));
        else if (this.hasExited)
          settle(() => reject(new Error(`It ended without ${String(pattern)}:\n${this.stderr}`)));
      };
      const timer = setTimeout(
        () => settle(() => reject(new Error(`No ${String(pattern)} within ${LINE_WAIT_MS} ms:\n${this.stderr}`))),
        LINE_WAIT_MS,
      );
      this.listeners.add(check);
      check();
    });
  }

  /** Ctrl-C. */
  interrupt(): void {
    this.child.kill('SIGINT');
  }

  /** Its processes that are left, once they have had a moment to end. */
  async leftovers(): Promise<MarkedProcess[]> {
    return await untilGone(this.mark, LEFTOVER_GRACE_MS);
  }
}

const started: AtlasCommand[] = [];

/** Starts `atlas` without a terminal. */
export async function spawnAtlas(argv: readonly string[], options: AtlasOptions = {}): Promise<AtlasCommand> {
  const cwd = options.cwd ?? (await temporaryDirectory());
  const mark = newMark();
  const child = spawn(process.execPath, [ATLAS, ...argv], {
    cwd,
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    // As typed in a shell: the command calls itself otherwise when npm has started it.
    env: markEnvironment({ ...temporalEnvironment(options.address), npm_command: undefined, ...options.env }, mark),
  });
  child.stdin?.end(options.input);
  const command = new AtlasCommand(child, mark, cwd);
  started.push(command);
  return command;
}

/** Runs `atlas` to its end. */
export async function runAtlas(argv: readonly string[], options: AtlasOptions = {}): Promise<AtlasOutcome> {
  return await (
    await spawnAtlas(argv, options)
  ).exited;
}

afterEach(async () => {
  const left: MarkedProcess[] = [];
  for (const command of started.splice(0)) {
    // One that has ended must have ended its children; one that a failing test has left is not at fault.
    if (command.child.exitCode !== null) left.push(...(await command.leftovers()));
    killMarked(command.mark);
    await command.exited;
  }
  if (left.length > 0) {
    throw new Error(`Processes were left behind:\n${left.map(({ pid, command }) => `${pid} ${command}`).join('\n')}`);
  }
});
