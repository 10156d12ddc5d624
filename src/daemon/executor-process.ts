/**
 * The executor as a process: started detached in a process group of its own, restarted with backoff when it ends, killed
 * with all its children when it must, and known to the ledger, so that a restarted supervisor can find what is left of it.
 *
 * Owns the processes: while one takes the place of another there are two. What an executor says is heard by `local-server.ts`.
 */
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import type { EventLog } from './ports.js';
import { identifyProcess, killGroup, type ProcessIdentity, waitForGroupEnd } from './process-identity.js';

/**
 * For glibc; others do not look at them. By default it keeps what threads have freed in a heap for each, and large
 * buffers as well once some were freed: reading a long scan left 80 MB behind and took 130 MB more at its peak.
 */
const ALLOCATOR = { MALLOC_ARENA_MAX: '2', MALLOC_MMAP_THRESHOLD_: '131072' };
const MAIN = fileURLToPath(new URL('../executor/main.js', import.meta.url));
/** How long the kernel may take to end a killed process group; a process in uninterruptible I/O can take long. */
const GROUP_END_TIMEOUT_MS = 30_000;
const BACKOFF_FIRST_MS = 200;
const BACKOFF_MAX_MS = 10_000;
/** An executor that lived this long was sound: the next restart is immediate again. */
const SOUND_AFTER_MS = 60_000;
/** This many ends within the time are a crash loop. */
const CRASH_LOOP_ENDS = 5;
const CRASH_LOOP_WITHIN_MS = 60_000;

export interface ExecutorHooks {
  /** An executor has been started; to be written to the ledger before it runs anything. */
  readonly onStart: (process: ProcessIdentity) => Promise<void>;
  /** It has ended too often in a short time: the worker can not serve until it stays up. */
  readonly onCrashLoop: () => void;
  /** The executor and all its children have ended. `process` is absent for one that could not be started. */
  readonly onEnd: (incarnation: string, process: ProcessIdentity | undefined) => Promise<void>;
}

/** One executor, from its start to the end of its process group. */
export interface ExecutorLife {
  readonly incarnation: string;
  /** Undefined where it could not be started. */
  readonly identity: ProcessIdentity | undefined;
  /** Resolves once `onEnd` has run for it. */
  readonly ended: Promise<void>;
}

interface Life extends ExecutorLife {
  /** Resolves when another one has taken its place; it may go on for a while. */
  readonly replaced: Promise<void>;
  readonly replace: () => void;
}

export class ExecutorProcess {
  /** Every one whose process group has not ended: the current one, one that is to take its place, those that retire. */
  private readonly lives = new Map<string, Life>();
  private current: Life | undefined;
  private nextIncarnation = newIncarnation();
  private restartCount = 0;
  private backoffMs = BACKOFF_FIRST_MS;
  private readonly endedAtMs: number[] = [];
  private stopping = false;
  private keeping: Promise<void> | undefined;
  private wake: (() => void) | undefined;

  constructor(
    private readonly socketPath: string,
    private readonly env: NodeJS.ProcessEnv,
    private readonly hooks: ExecutorHooks,
    private readonly log: EventLog,
    /** Another program than the executor, for tests. */
    private readonly program = MAIN,
  ) {}

  /** The current life, or the one that is started next. */
  incarnation(): string {
    return this.current?.incarnation ?? this.nextIncarnation;
  }

  /** Whether it is the current life, or the one that is started next, or one beside it. */
  knows(incarnation: string): boolean {
    return incarnation === this.incarnation() || this.lives.has(incarnation);
  }

  /** The life that runs now; undefined while there is none. */
  running(): ExecutorLife | undefined {
    return this.current;
  }

  pid(): number | null {
    return this.current?.identity?.pid ?? null;
  }

  /** How often the current one has ended by itself or was killed. One that takes the place of another is no restart. */
  restarts(): number {
    return this.restartCount;
  }

  /** Starts the executor and keeps it started until {@link stop}. */
  start(): void {
    this.keeping ??= this.keepStarted();
  }

  /** Starts one beside the current one, which is not kept started before {@link promote}. */
  startBeside(): ExecutorLife {
    return this.launch(newIncarnation());
  }

  /**
   * Has one that was started beside the current one take its place, which goes on until it ends. Returns false where one of
   * the two has ended.
   */
  promote(incarnation: string): boolean {
    const next = this.lives.get(incarnation);
    const { current } = this;
    if (next === undefined || current === undefined || this.stopping) return false;
    this.current = next;
    current.replace();
    return true;
  }

  private async keepStarted(): Promise<void> {
    while (!this.stopping) {
      this.current = this.launch(this.nextIncarnation);
      // The end of one that was replaced is not that of the executor.
      while (this.current !== undefined) await Promise.race([this.current.ended, this.current.replaced]);
      if (this.stopping) break;
      this.endedAtMs.push(performance.now());
      if (this.endedAtMs.length > CRASH_LOOP_ENDS) this.endedAtMs.shift();
      const span = performance.now() - (this.endedAtMs[0] ?? 0);
      if (this.endedAtMs.length === CRASH_LOOP_ENDS && span < CRASH_LOOP_WITHIN_MS) this.hooks.onCrashLoop();
      this.restartCount += 1;
      this.log.warn(
        { event: 'executor-restart', restarts: this.restartCount, backoffMs: this.backoffMs },
        'The executor ended and is started again',
      );
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, this.backoffMs);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.backoffMs = Math.min(this.backoffMs * 2, BACKOFF_MAX_MS);
    }
  }

  private launch(incarnation: string): Life {
    const child = execa(process.execPath, [this.program, this.socketPath, incarnation], {
      env: { ...ALLOCATOR, ...this.env },
      extendEnv: false,
      detached: true,
      // The supervisor ends the whole group itself; execa would only end the leader.
      cleanup: false,
      reject: false,
      stdin: 'ignore',
      stdout: 'inherit',
      stderr: 'inherit',
    });
    const identity = child.pid === undefined ? undefined : identifyProcess(child.pid);
    let replace: () => void = () => undefined;
    const replaced = new Promise<void>((resolve) => {
      replace = resolve;
    });
    const ended = this.follow(incarnation, identity, child);
    const life = { incarnation, identity, ended, replaced, replace };
    this.lives.set(incarnation, life);
    return life;
  }

  /** From the start of an executor to its end; resolves once that has been told. */
  private async follow(
    incarnation: string,
    identity: ProcessIdentity | undefined,
    child: PromiseLike<{ exitCode?: number | undefined; signal?: string | undefined }>,
  ): Promise<void> {
    const startedAtMs = performance.now();
    if (identity !== undefined) {
      try {
        await this.hooks.onStart(identity);
        this.log.info({ event: 'executor-start', pid: identity.pid, incarnation }, 'Executor started');
      } catch (error) {
        // What the ledger does not name, a restarted supervisor could not end.
        this.failedHook('start', incarnation, error);
        await endGroup(identity, this.log);
      }
    }
    const result = await child;
    this.log.info(
      {
        event: 'executor-end',
        pid: identity?.pid ?? null,
        incarnation,
        exitCode: result.exitCode ?? null,
        signal: result.signal ?? null,
      },
      'Executor ended',
    );
    if (identity !== undefined) await endGroup(identity, this.log);
    this.lives.delete(incarnation);
    if (this.current?.incarnation === incarnation) {
      if (identity !== undefined && performance.now() - startedAtMs >= SOUND_AFTER_MS)
        this.backoffMs = BACKOFF_FIRST_MS;
      this.nextIncarnation = newIncarnation();
      this.current = undefined;
    }
    try {
      await this.hooks.onEnd(incarnation, identity);
    } catch (error) {
      this.failedHook('end', incarnation, error);
    }
  }

  private failedHook(what: 'start' | 'end', incarnation: string, error: unknown): void {
    this.log.error(
      {
        event: 'executor-hook-failed',
        what,
        incarnation,
        reason: error instanceof Error ? error.message : String(error),
      },
      `The ${what} of the executor could not be recorded`,
    );
  }

  /**
   * Kills executors with all their children, all of them unless some are named; the current one is started again unless it
   * is being stopped. Resolves once they have ended and `onEnd` has run for them, so that whoever waits finds their
   * attempts failed.
   */
  async kill(reason: string, incarnations: readonly string[] = [...this.lives.keys()]): Promise<void> {
    await Promise.all(
      incarnations.map(async (incarnation) => {
        const life = this.lives.get(incarnation);
        if (life?.identity === undefined) return;
        const { identity, ended } = life;
        this.log.warn({ event: 'executor-kill', pid: identity.pid, incarnation, reason }, 'The executor is killed');
        await endGroup(identity, this.log);
        await ended;
      }),
    );
  }

  /** No restart any more; resolves when all have ended, which they are given `timeoutMs` for before they are killed. */
  async stop(timeoutMs: number): Promise<void> {
    this.stopping = true;
    this.wake?.();
    const { keeping } = this;
    if (keeping === undefined) return;
    const timer = setTimeout(() => {
      void this.kill('it did not stop in time');
    }, timeoutMs);
    await Promise.all([keeping, ...[...this.lives.values()].map(({ ended }) => ended)]);
    clearTimeout(timer);
  }

  /** Kills without waiting, for the watchdog of the process. */
  killNow(): void {
    this.stopping = true;
    for (const { identity } of this.lives.values()) if (identity !== undefined) killGroup(identity, 'SIGKILL');
  }
}

/** Kills what is left of a process group and waits for its end. */
export async function endGroup(identity: ProcessIdentity, log: EventLog): Promise<void> {
  killGroup(identity, 'SIGKILL');
  if (!(await waitForGroupEnd(identity, GROUP_END_TIMEOUT_MS))) {
    log.error(
      { event: 'executor-stuck', pid: identity.pid },
      'The process group of the executor does not end although it was killed',
    );
  }
}

function newIncarnation(): string {
  return randomBytes(6).toString('hex');
}
