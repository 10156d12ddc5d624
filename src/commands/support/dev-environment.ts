/**
 * A Temporal server and one worker on this host, for `atlas dev` and `atlas run --dev`.
 *
 * Owns the order of starting and stopping the two and the temporary directories they use. Nothing of it is left when it
 * has stopped, failed to start, or its process was killed. The worker is started as a process: commands never import
 * the daemon.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AtlasError } from '../../contract/errors.js';
import type { DevServer, DevServerStep } from '../../temporal/dev-server.js';
import type { GuardedProcess } from '../../temporal/guarded-process.js';

/** atlasd needs two or three seconds; a laptop that has just woken up needs more. */
const WORKER_READY_TIMEOUT_MS = 60_000;
/** How long sessions may take to end on Ctrl-C: a person waits for the prompt. */
const WORKER_GRACE_SECONDS = 2;
/** Beyond its grace atlasd ends attempts, releases sessions and says goodbye. */
const WORKER_STOP_MS = (WORKER_GRACE_SECONDS + 8) * 1_000;
const KEPT_OUTPUT_LINES = 30;

const ATLASD = fileURLToPath(new URL('../../../bin/atlasd.js', import.meta.url));

/** A line of the worker's log. */
export type WorkerLogLine = Readonly<Record<string, unknown>> & {
  readonly event?: string;
  readonly level?: string;
  readonly msg?: string;
};

export type DevStep =
  DevServerStep | { readonly step: 'worker'; readonly state: 'trying' | 'done'; readonly detail: string };

export interface DevWorkerOptions {
  readonly fleet?: string | undefined;
  readonly name?: string | undefined;
  readonly capabilities?: readonly string[] | undefined;
  readonly maxSessions?: number | undefined;
  /** Default: a temporary directory; beside the database file when there is one, as both are kept together. */
  readonly stateDirectory?: string | undefined;
  /** Further arguments of atlasd. */
  readonly args?: readonly string[] | undefined;
}

export interface DevEnvironmentOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  readonly port?: number | undefined;
  readonly ip?: string | undefined;
  readonly dbFilename?: string | undefined;
  readonly namespace?: string | undefined;
  /** `false`: only the server. */
  readonly worker?: DevWorkerOptions | false | undefined;
  readonly onStep?: ((step: DevStep) => void) | undefined;
  readonly onWorkerLog?: ((line: WorkerLogLine) => void) | undefined;
}

export interface DevWorker {
  readonly name: string;
  readonly fleet: string;
  readonly pid: number;
  readonly stateDirectory: string;
}

export interface DevEnvironment {
  readonly address: string;
  readonly namespace: string;
  readonly serverVersion: string;
  /** Absent when none was asked for. */
  readonly worker?: DevWorker;
  /** Rejects when the server or the worker ends although nobody stopped it. Never resolves. */
  readonly failed: Promise<never>;
  /** First the worker, which still has to talk to the server, then the server. May be called more than once. */
  stop(): Promise<void>;
}

/**
 * Starts the server and the worker, and resolves when the worker takes sessions.
 *
 * @throws {@link AtlasError} `ServerNotFound`, `ServerStartFailed`, `WorkerStartFailed`, or `Interrupted` on abort;
 * nothing is left running then.
 */
export async function startDevEnvironment(options: DevEnvironmentOptions): Promise<DevEnvironment> {
  const { startDevServer } = await import('../../temporal/dev-server.js');
  /** Undone in reverse order. */
  const cleanups: (() => Promise<void>)[] = [];
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    stopping ??= (async () => {
      for (const cleanup of cleanups.reverse()) await cleanup();
    })();
    return stopping;
  };
  const failures = new Failures(() => stopping !== undefined);

  try {
    const server = await startDevServer({
      env: options.env,
      port: options.port,
      ip: options.ip,
      dbFilename: options.dbFilename,
      namespace: options.namespace,
      signal: options.signal,
      onStep: options.onStep,
    });
    cleanups.push(() => server.stop());
    failures.watch(server.exited, () => serverEnded(server));

    const worker =
      options.worker === false
        ? undefined
        : await startWorker(server, options.worker ?? {}, options, cleanups, failures);
    return {
      address: server.address,
      namespace: server.namespace,
      serverVersion: server.program.serverVersion,
      ...(worker === undefined ? {} : { worker }),
      failed: failures.failed,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startWorker(
  server: DevServer,
  worker: DevWorkerOptions,
  options: DevEnvironmentOptions,
  cleanups: (() => Promise<void>)[],
  failures: Failures,
): Promise<DevWorker> {
  const { spawnGuarded } = await import('../../temporal/guarded-process.js');
  let stateDirectory = worker.stateDirectory;
  if (stateDirectory === undefined && options.dbFilename !== undefined) {
    stateDirectory = `${resolve(options.dbFilename)}.worker`;
  }
  const temporary = stateDirectory === undefined;
  if (stateDirectory === undefined) {
    // A short path, as the socket in it is limited to some hundred bytes.
    const directory = await mkdtemp(join(tmpdir(), 'atlas-dev-'));
    cleanups.push(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }));
    stateDirectory = directory;
  }

  options.onStep?.({ step: 'worker', state: 'trying', detail: stateDirectory });
  const child = spawnGuarded(
    process.execPath,
    [
      ATLASD,
      ...['--state-dir', stateDirectory],
      ...['--grace', `${WORKER_GRACE_SECONDS}s`],
      ...['--log-format', 'json'],
      ...(temporary ? ['--ephemeral'] : []),
      ...(worker.fleet === undefined ? [] : ['--fleet', worker.fleet]),
      ...(worker.name === undefined ? [] : ['--name', worker.name]),
      ...((worker.capabilities ?? []).length === 0 ? [] : ['--capabilities', (worker.capabilities ?? []).join(',')]),
      ...(worker.maxSessions === undefined ? [] : ['--max-sessions', String(worker.maxSessions)]),
      ...(worker.args ?? []),
    ],
    { env: environmentFor(server, options.env) },
  );
  cleanups.push(() => child.stop(WORKER_STOP_MS));
  const log = readLog(child, options.onWorkerLog);

  const ready = await untilReady(child, log, options.signal);
  failures.watch(child.exited, () => workerEnded('ended', log));
  const { worker: name, fleet } = ready;
  options.onStep?.({ step: 'worker', state: 'done', detail: String(name) });
  return { name: String(name), fleet: String(fleet), pid: await child.pid, stateDirectory };
}

async function untilReady(
  child: GuardedProcess,
  log: WorkerLog,
  signal: AbortSignal | undefined,
): Promise<WorkerLogLine> {
  const abort = new AbortController();
  const bounded = AbortSignal.any([AbortSignal.timeout(WORKER_READY_TIMEOUT_MS), abort.signal]);
  const stopped = new Promise<never>((_, reject) => {
    const fail = (error: AtlasError) => (): void => reject(error);
    signal?.addEventListener(
      'abort',
      fail(new AtlasError('Interrupted', 'The start of the worker was interrupted.', { cause: signal.reason })),
      { signal: abort.signal },
    );
    bounded.addEventListener('abort', () => {
      if (!abort.signal.aborted) reject(workerEnded(`was not ready within ${WORKER_READY_TIMEOUT_MS / 1_000} s`, log));
    });
    void child.exited.then(() => reject(workerEnded('ended before it was ready', log)));
  });
  if (signal?.aborted === true) throw new AtlasError('Interrupted', 'The start of the worker was interrupted.');
  try {
    return await Promise.race([log.ready, stopped]);
  } finally {
    abort.abort();
  }
}

/**
 * The worker's own configuration from the environment stays; a connection profile for another server must not reach it:
 * its TLS settings and key would go with our address.
 */
function environmentFor(server: DevServer, env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return {
    ...Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('TEMPORAL_'))),
    TEMPORAL_ADDRESS: server.address,
    TEMPORAL_NAMESPACE: server.namespace,
    TEMPORAL_CONFIG_FILE: '/dev/null',
  };
}

interface WorkerLog {
  /** The line that says that the worker takes sessions. */
  readonly ready: Promise<WorkerLogLine>;
  /** What it wrote last, for the message of an error. */
  tail(): string;
}

function readLog(child: GuardedProcess, onLine: ((line: WorkerLogLine) => void) | undefined): WorkerLog {
  const tail: string[] = [];
  let rest = '';
  child.stdout.resume();
  const ready = new Promise<WorkerLogLine>((resolveReady) => {
    const take = (text: string): void => {
      if (text.trim() === '') return;
      const line = parseLine(text);
      tail.push(line === undefined ? text : `${line.level ?? ''} ${line.msg ?? ''}`.trim());
      tail.splice(0, Math.max(0, tail.length - KEPT_OUTPUT_LINES));
      if (line === undefined) return;
      if (line.event === 'worker-ready') resolveReady(line);
      onLine?.(line);
    };
    child.stderr.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) take(line);
    });
    child.stderr.once('end', () => take(rest));
  });
  return { ready, tail: () => tail.join('\n') };
}

function parseLine(text: string): WorkerLogLine | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as WorkerLogLine) : undefined;
  } catch {
    return undefined;
  }
}

/** atlasd ends with an error as every program of Atlas does: `error: ...`, then `next: ...`. */
const REPORTED_ERROR = /^error: ([^]+?)\n\s*next: (.+)$/m;

function workerEnded(what: string, log: WorkerLog): AtlasError {
  const [, message, next] = REPORTED_ERROR.exec(log.tail()) ?? [];
  if (message !== undefined && next !== undefined) {
    return new AtlasError('WorkerStartFailed', `The worker ${what}: ${message}`, { next });
  }
  return new AtlasError(
    'WorkerStartFailed',
    `The worker ${what}:\n${log.tail().replace(/^/gm, '  ') || '  (it printed nothing)'}`,
  );
}

function serverEnded(server: DevServer): AtlasError {
  return new AtlasError(
    'ServerUnreachable',
    `The Temporal server at ${server.address} has ended:\n${server.output().replace(/^/gm, '  ') || '  (it printed nothing)'}`,
    { next: 'Run the command again.' },
  );
}

/** The first end of a part that nobody asked for. */
class Failures {
  readonly failed: Promise<never>;
  private reject!: (error: AtlasError) => void;

  constructor(private readonly isStopping: () => boolean) {
    this.failed = new Promise((_, reject) => {
      this.reject = reject;
    });
    // Whoever does not wait for failures must not be ended by one.
    this.failed.catch(() => undefined);
  }

  watch(ended: Promise<unknown>, failure: () => AtlasError): void {
    void ended.then(() => {
      if (!this.isStopping()) this.reject(failure());
    });
  }
}

/** One line of progress, or undefined for what a person need not see. */
export function describeDevStep(step: DevStep, labels: Readonly<Record<string, string>>): string | undefined {
  switch (step.step) {
    case 'start':
      return step.state === 'trying' ? `starting ${step.detail}` : undefined;
    case 'worker':
      return step.state === 'trying' ? `starting a worker (state in ${step.detail})` : undefined;
    default: {
      const label = labels[step.step] ?? step.step;
      if (step.state === 'trying') {
        // Looking is quick and its result follows; what takes long says what it does.
        if (step.step === 'path' || step.step === 'cache') return undefined;
        return `${label}: ${step.detail === '' ? 'trying' : step.detail}`;
      }
      return step.state === 'done' ? `${label}: ${step.detail}` : `${label}: ${step.state}: ${step.detail}`;
    }
  }
}
