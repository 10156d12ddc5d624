/**
 * A reload: another executor, which loads the code as it is on disk now, takes the place of the current one, and no session
 * is lost. Decides the order of the steps and what ends a reload that does not go well; processes and sockets are behind
 * {@link ReloadPorts}.
 *
 * Up to the moment in which the new executor is the current one, whatever goes wrong ends the new one and changes nothing.
 */
import { formatDurationMs } from '../contract/duration.js';
import { AtlasError } from '../contract/errors.js';
import type { ReloadRequest, ReloadResult, ReloadStep } from '../contract/local.js';

/** Loading the code includes bundling the workflows; a host that needs longer than this is in trouble. */
const LOAD_TIMEOUT_MS = 120_000;
/** From the word to poll to the answer that it polls: nothing is loaded any more. */
const SERVE_TIMEOUT_MS = 30_000;
/** How long the last polls of an executor that retires may be out: longer than that it waits itself. */
const LAST_POLLS_MS = 75_000;
/** Over the grace of an executor that retires: Core ends its activities then, and it reports and exits. */
const RETIRE_EXTRA_MS = 10_000;
const LOOK_EVERY_MS = 200;

/** An executor beside the current one. */
export interface NewExecutor {
  readonly incarnation: string;
  readonly pid: number | null;
  /** Resolves when it has loaded the code, or has told why it could not. */
  readonly loaded: Promise<AtlasError | undefined>;
  /** Resolves when it polls. */
  readonly ready: Promise<void>;
  readonly ended: Promise<void>;
}

export interface OldExecutor {
  readonly incarnation: string;
  readonly pid: number | null;
  /** Resolves when its process group has ended and its attempts have been failed. */
  readonly ended: Promise<void>;
}

export interface ReloadPorts {
  /** Why the worker can not reload now, as a sentence; undefined where it can. */
  readonly objection: () => string | undefined;
  readonly current: () => OldExecutor;
  readonly startBeside: () => NewExecutor;
  readonly serve: (incarnation: string) => void;
  /** From then on no session is granted in the memory of the current executor, or they are again. */
  readonly holdMemory: (held: boolean) => void;
  readonly memorySessions: (incarnation: string) => number;
  readonly loseMemory: (incarnation: string, reason: string) => Promise<void>;
  /** Makes it the current one. False where it, or the current one, has ended. */
  readonly promote: (incarnation: string) => boolean;
  /** Has it stop. Resolves when its last polls have come back, from when on it takes nothing. */
  readonly retire: (incarnation: string) => Promise<void>;
  readonly attempts: (incarnation: string) => number;
  readonly kill: (incarnation: string, reason: string) => Promise<void>;
  readonly graceMs: number;
  readonly nowMs: () => number;
  readonly sleep: (ms: number) => Promise<void>;
}

export async function reload(
  ports: ReloadPorts,
  { timeoutMs, force }: ReloadRequest,
  signal: AbortSignal,
  onStep: (step: ReloadStep) => void,
): Promise<ReloadResult> {
  const startedAtMs = ports.nowMs();
  checkObjection(ports);
  const old = ports.current();
  const next = ports.startBeside();
  let lostSessions = 0;
  try {
    onStep({ step: 'loading', atMostMs: LOAD_TIMEOUT_MS });
    await untilLoaded(ports, old, next, signal);
    ports.holdMemory(true);
    if (force) {
      lostSessions = ports.memorySessions(old.incarnation);
      const ending = ports.loseMemory(old.incarnation, 'The worker was reloaded by force.');
      await orTrouble(ports, ending, old, next, signal);
    } else await untilNoMemory(ports, timeoutMs, old, next, signal, onStep);
    onStep({ step: 'switching', atMostMs: SERVE_TIMEOUT_MS });
    ports.serve(next.incarnation);
    await orTrouble(ports, bounded(ports, next.ready, SERVE_TIMEOUT_MS, 'poll its queues'), old, next, signal);
    checkObjection(ports);
    if (!ports.promote(next.incarnation)) throw ended(old);
  } catch (error) {
    // Attempts that it has begun meanwhile are failed with it, and are attempted again by the current one.
    await ports.kill(next.incarnation, 'it does not take the place of the current executor');
    ports.holdMemory(false);
    throw error;
  }
  // Nobody who goes away stops it from here on: the new executor serves.
  const interruptedAttempts = await untilRetired(ports, old, onStep);
  return {
    executor: { pid: next.pid ?? 0, incarnation: next.incarnation },
    replaced: { pid: old.pid, incarnation: old.incarnation },
    interruptedAttempts,
    lostSessions,
    tookMs: Math.round(ports.nowMs() - startedAtMs),
  };
}

function checkObjection(ports: ReloadPorts): void {
  const objection = ports.objection();
  if (objection !== undefined) throw new AtlasError('ReloadConflict', `${objection} Nothing was changed.`);
}

async function untilLoaded(
  ports: ReloadPorts,
  old: OldExecutor,
  next: NewExecutor,
  signal: AbortSignal,
): Promise<void> {
  const loading = bounded(ports, next.loaded, LOAD_TIMEOUT_MS, 'load the code');
  const problem = await orTrouble(ports, loading, old, next, signal);
  if (problem !== undefined) {
    throw new AtlasError(problem.code, `The new executor can not run the code on disk: ${problem.message} ${GOES_ON}`, {
      cause: problem,
    });
  }
}

const GOES_ON = 'The executor that runs goes on with the code that it has.';

/** Sessions in memory live as long as their executor. */
async function untilNoMemory(
  ports: ReloadPorts,
  timeoutMs: number,
  old: OldExecutor,
  next: NewExecutor,
  signal: AbortSignal,
  onStep: (step: ReloadStep) => void,
): Promise<void> {
  const deadlineMs = ports.nowMs() + timeoutMs;
  let said = 0;
  for (;;) {
    const sessions = ports.memorySessions(old.incarnation);
    if (sessions === 0) return;
    const leftMs = deadlineMs - ports.nowMs();
    if (leftMs <= 0) {
      throw new AtlasError(
        'MemorySessionsRemain',
        `${sessions === 1 ? 'One session' : `${sessions} sessions`} whose state is in memory ${sessions === 1 ? 'has' : 'have'} not ended within ${formatDurationMs(timeoutMs)}. Nothing was changed.`,
      );
    }
    if (sessions !== said) onStep({ step: 'memory', sessions, atMostMs: leftMs });
    said = sessions;
    await orTrouble(ports, ports.sleep(LOOK_EVERY_MS), old, next, signal);
    checkObjection(ports);
  }
}

/** Resolves to how many attempts had to be interrupted. */
async function untilRetired(ports: ReloadPorts, old: OldExecutor, onStep: (step: ReloadStep) => void): Promise<number> {
  const { graceMs } = ports;
  onStep({
    step: 'retiring',
    attempts: ports.attempts(old.incarnation),
    atMostMs: LAST_POLLS_MS + graceMs + RETIRE_EXTRA_MS,
  });
  await within(ports, Promise.race([ports.retire(old.incarnation), old.ended]), LAST_POLLS_MS);
  // Not before: a step of a session in the memory of the new one might come to a poll of the old one.
  ports.holdMemory(false);
  if (await within(ports, old.ended, graceMs)) return 0;
  // Core cancels them now. What ends by that is interrupted as well as what has to be killed.
  const interrupted = ports.attempts(old.incarnation);
  if (!(await within(ports, old.ended, RETIRE_EXTRA_MS))) {
    await ports.kill(old.incarnation, 'it was replaced, and its activities went on for longer than the grace');
    await old.ended;
  }
  return interrupted;
}

async function within(ports: ReloadPorts, done: Promise<void>, timeoutMs: number): Promise<boolean> {
  return await Promise.race([done.then(() => true), ports.sleep(timeoutMs).then(() => false)]);
}

async function bounded<T>(ports: ReloadPorts, work: Promise<T>, timeoutMs: number, what: string): Promise<T> {
  const late = ports.sleep(timeoutMs).then(() => {
    throw new AtlasError(
      'ExecutorFailed',
      `The new executor did not ${what} within ${formatDurationMs(timeoutMs)}. ${GOES_ON}`,
    );
  });
  // What loses the race has no one who listens.
  late.catch(() => undefined);
  return await Promise.race([work, late]);
}

/** What is waited for, or what makes it pointless. */
async function orTrouble<T>(
  ports: ReloadPorts,
  work: Promise<T>,
  old: OldExecutor,
  next: NewExecutor,
  signal: AbortSignal,
): Promise<T> {
  let stopListening = (): void => undefined;
  const trouble = new Promise<never>((_, reject) => {
    const onAbort = (): void => {
      reject(new AtlasError('Interrupted', 'Whoever asked for the reload is gone. Nothing was changed.'));
    };
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    stopListening = () => {
      signal.removeEventListener('abort', onAbort);
    };
    void next.ended.then(() => {
      reject(new AtlasError('ExecutorFailed', `The new executor has ended before it polled its queues. ${GOES_ON}`));
    });
    void old.ended.then(() => {
      reject(ended(old));
    });
  });
  trouble.catch(() => undefined);
  try {
    return await Promise.race([work, trouble]);
  } finally {
    stopListening();
  }
}

function ended({ incarnation }: OldExecutor): AtlasError {
  return new AtlasError(
    'ReloadConflict',
    `The executor ${incarnation} has ended during the reload, and is started again with the code on disk.`,
  );
}
