/**
 * Real `atlasd` processes in tests: each with a state directory of its own, its log lines read as events. After every
 * test all are stopped, and a process that is left over fails the test.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach } from 'vitest';
import { uniqueFleet } from './fleet.js';
import { killMarked, markEnvironment, markedProcesses, newMark, untilGone, type MarkedProcess } from './processes.js';
import { temporalAddress, temporalEnvironment } from './server.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));
/** A guard against hanging; atlasd is ready within two or three seconds on a quiet machine. */
const DEFAULT_WAIT_MS = 90_000;
/** A guard against hanging; one that is killed for it leaves a worker that is lost instead of stopped. */
const STOP_GRACE_MS = 60_000;
/** How long the children of a stopped atlasd may take to end. */
const LEFTOVER_GRACE_MS = 30_000;

/** A line of the log. `event` names it; the other fields depend on it. */
export interface LogEvent {
  readonly event?: string;
  readonly msg?: string;
  readonly [field: string]: unknown;
}

export interface AtlasdOptions {
  /** Default: a fleet that no other test uses. */
  readonly fleet?: string;
  readonly name?: string;
  readonly capabilities?: readonly string[];
  /** Default: a new temporary directory, removed after the test. */
  readonly stateDirectory?: string;
  readonly address?: string;
  /** Further arguments. */
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Another program than the build's `bin/atlasd.js`, such as a changed copy. */
  readonly program?: string;
}

export class Atlasd {
  readonly events: LogEvent[] = [];
  /** What it wrote to stderr that is not JSON, such as an error before the log begins. */
  plainOutput = '';
  stdout = '';
  /** Whether the test killed it with -9; its children may then outlive it for a while. */
  killed = false;
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  private hasExited = false;
  private readonly listeners = new Set<() => void>();
  private rest = '';

  constructor(
    readonly child: ChildProcess,
    readonly mark: string,
    readonly fleet: string,
    readonly name: string,
    readonly stateDirectory: string,
    readonly address: string,
  ) {
    child.stdout?.on('data', (chunk: Buffer) => {
      this.stdout += chunk.toString();
    });
    child.stderr?.on('data', (chunk: Buffer) => this.read(chunk.toString()));
    this.exited = new Promise((resolve) => {
      child.once('error', (error) => {
        this.plainOutput += String(error);
      });
      child.once('close', (code, signal) => {
        this.hasExited = true;
        this.wake();
        resolve({ code, signal });
      });
    });
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error('atlasd could not be started.');
    return this.child.pid;
  }

  get running(): boolean {
    return !this.hasExited;
  }

  private read(text: string): void {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() ?? '';
    for (const line of lines) {
      try {
        this.events.push(JSON.parse(line) as LogEvent);
      } catch {
        this.plainOutput += `${line}\n`;
      }
    }
    this.wake();
  }

  private wake(): void {
    for (const listener of this.listeners) listener();
  }

  /**
   * The first event with this name that matches, past or future. `after` skips events up to an index, such as
   * `events.length` before an action.
   */
  async event(
    name: string,
    matches: (event: LogEvent) => boolean = () => true,
    { timeoutMs = DEFAULT_WAIT_MS, after = 0 }: { timeoutMs?: number; after?: number } = {},
  ): Promise<LogEvent> {
    const find = (): LogEvent | undefined =>
      this.events.slice(after).find((event) => event.event === name && matches(event));
    return await new Promise((resolve, reject) => {
      const check = (): void => {
        const found = find();
        if (found === undefined && !this.hasExited) return;
        clearTimeout(timer);
        this.listeners.delete(check);
        if (found !== undefined) resolve(found);
        else reject(new Error(`atlasd ended before its event "${name}".\n${this.transcript()}`));
      };
      const timer = setTimeout(() => {
        this.listeners.delete(check);
        reject(new Error(`No event "${name}" within ${timeoutMs} ms.\n${this.transcript()}`));
      }, timeoutMs);
      this.listeners.add(check);
      check();
    });
  }

  /** Resolves when it takes sessions. */
  async ready(): Promise<this> {
    await this.event('worker-ready');
    return this;
  }

  /** The end of its log, for the message of a failing test. */
  transcript(): string {
    const lines = this.events.slice(-40).map((event) => JSON.stringify(event));
    return [this.plainOutput.trim(), ...lines].filter((line) => line !== '').join('\n');
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** SIGTERM and wait; SIGKILL when that takes too long. Resolves to the exit code. */
  async stop(graceMs = STOP_GRACE_MS): Promise<number | null> {
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), graceMs);
    const { code } = await this.exited;
    clearTimeout(timer);
    return code;
  }

  /** kill -9 of the supervisor alone, as the out-of-memory killer does it. */
  async kill(): Promise<void> {
    this.killed = true;
    this.child.kill('SIGKILL');
    await this.exited;
  }

  /** kill -9 of everything at once, as a power cut does it. */
  async killAll(): Promise<void> {
    this.killed = true;
    killMarked(this.mark);
    await this.exited;
    // A child that was being started just then.
    killMarked(this.mark);
  }

  /** Its processes, the supervisor included. */
  processes(): MarkedProcess[] {
    return markedProcesses(this.mark);
  }
}

const started: Atlasd[] = [];
const directories: string[] = [];

/** A short path: the socket in the state directory is limited to some hundred bytes. */
export async function temporaryDirectory(prefix = 'at-'): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), prefix));
  directories.push(directory);
  return directory;
}

/** Starts atlasd; does not wait until it is ready. */
export async function spawnAtlasd(options: AtlasdOptions = {}): Promise<Atlasd> {
  const stateDirectory = options.stateDirectory ?? (await temporaryDirectory());
  const fleet = options.fleet ?? uniqueFleet();
  const name = options.name ?? 'worker-1';
  const address = options.address ?? temporalAddress();
  const mark = newMark();
  const args = [
    options.program ?? ATLASD,
    ...['--fleet', fleet],
    ...['--name', name],
    ...['--state-dir', stateDirectory],
    ...(options.capabilities === undefined ? [] : ['--capabilities', options.capabilities.join(',')]),
    ...(options.args ?? []),
  ];
  const child = spawn(process.execPath, args, {
    // A group of its own, so that a Ctrl-C on the test run lets the clean-up below happen.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: markEnvironment({ ...temporalEnvironment(address), ...options.env }, mark),
  });
  const atlasd = new Atlasd(child, mark, fleet, name, stateDirectory, address);
  started.push(atlasd);
  return atlasd;
}

/** Starts atlasd and waits until it takes sessions. */
export async function startAtlasd(options: AtlasdOptions = {}): Promise<Atlasd> {
  return await (await spawnAtlasd(options)).ready();
}

/** The same worker again: same directory, name and fleet. */
export async function restartAtlasd(previous: Atlasd, options: AtlasdOptions = {}): Promise<Atlasd> {
  const { stateDirectory, fleet, name, address } = previous;
  return await startAtlasd({ stateDirectory, fleet, name, address, ...options });
}

/** Stops everything that was started and says what did not end by itself. */
async function cleanUp(): Promise<void> {
  const processes = started.splice(0);
  await Promise.all(
    processes.map(async (atlasd) => {
      // Children of one that was killed may stand still, and what they hold of its output keeps it from closing.
      if (atlasd.killed) killMarked(atlasd.mark);
      // A stopped process handles no signal.
      if (atlasd.running) atlasd.signal('SIGCONT');
      if (atlasd.running) await atlasd.stop();
    }),
  );
  const leftovers: string[] = [];
  for (const atlasd of processes) {
    // With a supervisor killed by -9 a busy executor may stay at work: a restarted supervisor ends it.
    const left = await untilGone(atlasd.mark, atlasd.killed ? 0 : LEFTOVER_GRACE_MS);
    killMarked(atlasd.mark);
    // One that still writes would put files into the directories that are removed below.
    await untilGone(atlasd.mark, LEFTOVER_GRACE_MS);
    if (!atlasd.killed) leftovers.push(...left.map(({ pid, command }) => `${pid} ${command}`));
  }
  await Promise.all(directories.splice(0).map((path) => rm(path, { recursive: true, force: true, maxRetries: 3 })));
  if (leftovers.length > 0) throw new Error(`Processes were left behind:\n${leftovers.join('\n')}`);
}

afterEach(cleanUp);
