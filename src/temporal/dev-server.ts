/**
 * A local Temporal server for development, the demo and tests.
 *
 * Owns starting it on a free port, waiting until it can really be used, and ending it: on request, and when this
 * process dies in whatever way. Never touches a server that it did not start. Ephemeral unless a file is given.
 */
import { mkdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { dirname, resolve } from 'node:path';
import { AtlasError } from '../contract/errors.js';
import { inTime } from '../contract/in-time.js';
import { isUnavailable, MAX_RECONNECT_BACKOFF_MS } from './connect.js';
import { spawnGuarded, type GuardedProcess } from './guarded-process.js';
import { resolveServer, type ResolvedServer, type ResolveEvent } from './resolve-server.js';
import type { ServerVersion } from './server-versions.js';

/** The default of 20 polls a second puts every task on a 50 ms tick: a session with three activities took 550 ms
 * instead of 150 ms. */
const DYNAMIC_CONFIG = ['history.transferProcessorMaxPollRPS=2000', 'history.timerProcessorMaxPollRPS=2000'] as const;

/** From the start of the process until a workflow could be started and listed. */
const READY_TIMEOUT_MS = 30_000;
const READY_CALL_TIMEOUT_MS = 2_000;
const READY_RETRY_MS = 50;
/** With a database file the server is given time to close it; without one there is nothing to lose. */
const STOP_GRACE_MS = 5_000;
const EPHEMERAL_STOP_GRACE_MS = 200;
/** A port that was free a moment ago may be taken by the time the server binds it. */
const START_ATTEMPTS = 3;
const KEPT_OUTPUT_LINES = 20;
const KEPT_LINE_CHARS = 500;

export type DevServerStep =
  ResolveEvent | { readonly step: 'start'; readonly state: 'trying' | 'done'; readonly detail: string };

export interface DevServerOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Free when left out. A port that is taken is an error: what listens there is left alone. */
  readonly port?: number | undefined;
  /** Default 127.0.0.1: the dev server has no authentication. */
  readonly ip?: string | undefined;
  /** Keeps the state in this file between runs. */
  readonly dbFilename?: string | undefined;
  /** Default `default`, which always exists too. */
  readonly namespace?: string | undefined;
  readonly logLevel?: 'debug' | 'info' | 'warn' | 'error' | 'never' | undefined;
  readonly version?: ServerVersion | undefined;
  /** A program that was resolved before. */
  readonly program?: ResolvedServer | undefined;
  /** Further `KEY=VALUE` pairs of dynamic configuration, for tests. */
  readonly dynamicConfig?: readonly string[] | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onStep?: ((event: DevServerStep) => void) | undefined;
}

export interface DevServer {
  /** `127.0.0.1:41234`. */
  readonly address: string;
  readonly namespace: string;
  readonly pid: number;
  readonly program: ResolvedServer;
  /** Resolves when the server has ended, for whatever reason. */
  readonly exited: Promise<void>;
  /** The last lines that the server printed. */
  output(): string;
  /** SIGTERM, then SIGKILL: after 5 s with a database file, after 0.2 s without. May be called more than once. */
  stop(): Promise<void>;
}

/**
 * Starts a server and waits until it can be used.
 *
 * @throws {@link AtlasError} `ServerStartFailed` with the server's last lines, `ServerNotFound` when there is no
 * program, `Interrupted` on abort.
 */
export async function startDevServer(options: DevServerOptions): Promise<DevServer> {
  const ip = options.ip ?? '127.0.0.1';
  if (options.port !== undefined) await requireFree(options.port, ip);
  const program =
    options.program ??
    (await resolveServer({
      env: options.env,
      signal: options.signal,
      onStep: options.onStep,
      version: options.version,
    }));
  if (options.dbFilename !== undefined) await prepareDatabase(options.dbFilename);

  for (let attempt = 1; ; attempt += 1) {
    throwIfInterrupted(options.signal);
    try {
      return await startOnce(program, ip, options);
    } catch (error) {
      const lostPort = error instanceof PortLostError;
      if (!lostPort) throw error;
      if (options.port !== undefined || attempt === START_ATTEMPTS) throw error.failure;
    }
  }
}

/** The server ended because a port that was chosen for it was taken meanwhile. */
class PortLostError extends Error {
  constructor(readonly failure: AtlasError) {
    super(failure.message);
  }
}

async function startOnce(program: ResolvedServer, ip: string, options: DevServerOptions): Promise<DevServer> {
  const namespace = options.namespace ?? 'default';
  const ports = await freePorts(3, ip);
  const port = options.port ?? ports[0];
  const address = `${ip.includes(':') ? `[${ip}]` : ip}:${port}`;
  options.onStep?.({ step: 'start', state: 'trying', detail: `server ${program.serverVersion} at ${address}` });

  const child = spawnGuarded(
    program.path,
    [
      'server',
      'start-dev',
      '--headless',
      ...['--ip', ip],
      ...['--port', String(port)],
      // Named although the program would find free ones: it looks for them one by one, so that servers started side by
      // side now and then choose the same.
      ...['--http-port', String(ports[1])],
      ...['--metrics-port', String(ports[2])],
      ...['--log-level', options.logLevel ?? 'error'],
      ...['--namespace', namespace],
      ...(options.dbFilename === undefined ? [] : ['--db-filename', resolve(options.dbFilename)]),
      ...[...DYNAMIC_CONFIG, ...(options.dynamicConfig ?? [])].flatMap((pair) => ['--dynamic-config-value', pair]),
    ],
    { env: withoutTemporalVariables(options.env) },
  );
  const graceMs = options.dbFilename === undefined ? EPHEMERAL_STOP_GRACE_MS : STOP_GRACE_MS;
  const output = keepLastLines(child);
  let ended = false;
  const exited = child.exited.then(() => {
    ended = true;
  });

  try {
    const pid = await child.pid;
    await untilUsable({ address, namespace, hasEnded: () => ended, exited, signal: options.signal });
    options.onStep?.({ step: 'start', state: 'done', detail: `pid ${pid}` });
    return { address, namespace, pid, program, exited, output, stop: () => child.stop(graceMs) };
  } catch (error) {
    const endedByItself = ended;
    await child.stop(graceMs);
    throwIfInterrupted(options.signal);
    const failure = new AtlasError(
      'ServerStartFailed',
      `The Temporal server (${program.path}) ${endedByItself ? 'ended' : 'was not ready'} while starting at ${address}: ${error instanceof Error ? error.message : String(error)}\n${indent(output()) || '  (it printed nothing)'}`,
      { cause: error },
    );
    if (endedByItself && /address already in use/i.test(output())) throw new PortLostError(failure);
    throw failure;
  }
}

interface Waiting {
  readonly address: string;
  readonly namespace: string;
  readonly hasEnded: () => boolean;
  readonly exited: Promise<void>;
  readonly signal: AbortSignal | undefined;
}

/**
 * The port answers before the server can be used. Each of its services is asked something: frontend and namespace,
 * visibility and its search attributes, history, matching.
 */
async function untilUsable({ address, namespace, hasEnded, exited, signal }: Waiting): Promise<void> {
  const { Connection } = await import('@temporalio/client');
  const connection = Connection.lazy({
    address,
    channelArgs: {
      'grpc.initial_reconnect_backoff_ms': READY_RETRY_MS,
      'grpc.max_reconnect_backoff_ms': Math.min(MAX_RECONNECT_BACKOFF_MS, 4 * READY_RETRY_MS),
    },
    // The loop below retries; the client's own retries would only hide the reason.
    interceptors: [],
  });
  const { workflowService } = connection;
  const checks: readonly (() => Promise<unknown>)[] = [
    () => workflowService.describeNamespace({ namespace }),
    () => connection.operatorService.listSearchAttributes({ namespace }),
    () => workflowService.countWorkflowExecutions({ namespace, query: `ExecutionStatus = 'Running'` }),
    () => workflowService.describeTaskQueue({ namespace, taskQueue: { name: 'atlas-ready' }, taskQueueType: 1 }),
    () =>
      workflowService
        .describeWorkflowExecution({ namespace, execution: { workflowId: 'atlas-ready' } })
        .catch((error: unknown) => {
          if (!isMissingWorkflow(error)) throw error;
        }),
  ];

  const deadlineMs = Date.now() + READY_TIMEOUT_MS;
  try {
    for (const check of checks) {
      for (;;) {
        if (hasEnded()) throw new Error('the process ended');
        signal?.throwIfAborted();
        try {
          await connection.withDeadline(Date.now() + READY_CALL_TIMEOUT_MS, check);
          break;
        } catch (error) {
          const late = Date.now() >= deadlineMs;
          if (late) throw new Error(`not usable within ${READY_TIMEOUT_MS / 1_000} s`, { cause: error });
          if (!isUnavailable(error) && !isStartingUp(error)) throw error;
          await inTime(exited, READY_RETRY_MS, () => undefined);
        }
      }
    }
  } finally {
    await connection.close();
  }
}

const GRPC_CANCELLED = 1;
const GRPC_NOT_FOUND = 5;

function isMissingWorkflow(error: unknown): boolean {
  return hasCode(error, GRPC_NOT_FOUND) && !/namespace/i.test((error as Error).message);
}

/**
 * A namespace given with --namespace is created after the port has opened, and a service that is not up yet drops calls
 * that others, such as workers that come back at once, have made slow.
 */
function isStartingUp(error: unknown): boolean {
  return hasCode(error, GRPC_NOT_FOUND) || hasCode(error, GRPC_CANCELLED);
}

function hasCode(error: unknown, code: number): boolean {
  return error instanceof Error && (error as Error & { code?: unknown }).code === code;
}

/** The program reads TEMPORAL_* itself; a profile for another server must not reach the one that is started here. */
function withoutTemporalVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('TEMPORAL_')));
}

async function prepareDatabase(dbFilename: string): Promise<void> {
  try {
    await mkdir(dirname(resolve(dbFilename)), { recursive: true });
  } catch (error) {
    throw new AtlasError(
      'ServerStartFailed',
      `The folder of the database file ${dbFilename} can not be created: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error, next: 'Choose another file with --db-filename.' },
    );
  }
}

// Ports ---------------------------------------------------------------------------------------------------------------

async function requireFree(port: number, ip: string): Promise<void> {
  try {
    const server = await listen(port, ip);
    await closeServer(server);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const reason =
      code === 'EADDRINUSE'
        ? 'something listens there already, and is left alone'
        : error instanceof Error
          ? error.message
          : String(error);
    throw new AtlasError('ServerStartFailed', `The server can not listen on ${ip}:${port}: ${reason}.`, {
      cause: error,
      next: 'Choose another with --port, leave --port out to get a free one, or set TEMPORAL_ADDRESS to use what runs there.',
    });
  }
}

/** Several at once, all held until all are known, so that they differ. */
async function freePorts(count: 3, ip: string): Promise<[number, number, number]> {
  const servers: Server[] = [];
  try {
    for (let index = 0; index < count; index += 1) servers.push(await listen(0, ip));
    return servers.map((server) => {
      const address = server.address();
      if (address === null || typeof address === 'string') throw new TypeError('a TCP server has a port');
      return address.port;
    }) as [number, number, number];
  } catch (error) {
    throw new AtlasError(
      'ServerStartFailed',
      `No port can be opened on ${ip}: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error, next: 'Give an address of this host with --ip.' },
    );
  } finally {
    await Promise.all(servers.map(closeServer));
  }
}

function listen(port: number, host: string): Promise<Server> {
  return new Promise((done, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ port, host, exclusive: true }, () => done(server));
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((done) => server.close(() => done()));
}

// Output --------------------------------------------------------------------------------------------------------------

/** Reads both streams, which must not fill up, and remembers the end. */
function keepLastLines(child: GuardedProcess): () => string {
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    let rest = '';
    stream.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split('\n');
      rest = (parts.pop() ?? '').slice(-KEPT_LINE_CHARS);
      for (const part of parts) if (part.trim() !== '') lines.push(part.slice(0, KEPT_LINE_CHARS));
      lines.splice(0, Math.max(0, lines.length - KEPT_OUTPUT_LINES));
    });
    stream.once('end', () => {
      if (rest.trim() !== '') lines.push(rest);
    });
  }
  return () => lines.join('\n');
}

function indent(text: string): string {
  return text === '' ? '' : text.replace(/^/gm, '  ');
}

function throwIfInterrupted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) {
    throw new AtlasError('Interrupted', 'The start of the Temporal server was interrupted.', { cause: signal.reason });
  }
}
