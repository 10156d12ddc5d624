/**
 * The executor: the child process of atlasd that runs user code. `node main.js SOCKET INCARNATION`.
 *
 * It lives as long as its supervisor: when the stream of commands ends it kills its own process group, children of
 * activities included, since a restarted supervisor fails these attempts and starts another executor.
 */
import { Worker } from 'node:worker_threads';
import { AtlasError, findError } from '../contract/errors.js';
import type { ExecutorCommand, ExecutorSettings } from '../contract/local.js';
import { optimizeLater } from '../temporal/patient-compiler.js';
import { AttemptGuard } from './attempts.js';
import type { FenceWatchData } from './fence-watch.js';
import { SessionMemories } from './memories.js';
import { SupervisorLink } from './supervisor-link.js';
import { WithdrawnCapabilities } from './withdrawn.js';

/** Distinct from what Node itself uses, so that the supervisor's log says why. */
const EXIT_FAILED = 70;

async function main(link: SupervisorLink, { socketPath, hello }: FenceWatchData): Promise<void> {
  const { incarnation } = hello;
  // Stopping is the supervisor's word, not that of a signal to the whole group of the terminal.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);

  let guard: AttemptGuard | undefined;
  let memories: SessionMemories | undefined;
  const withdrawn = new WithdrawnCapabilities();
  let stopWorkers: ((replaced: boolean) => void) | undefined;
  let stopRequested: { readonly replaced: boolean } | undefined;
  let serve: () => void = () => undefined;
  const mayServe = new Promise<void>((resolve) => {
    serve = resolve;
  });
  const settings = new Promise<ExecutorSettings>((resolve, reject) => {
    const onCommand = (command: ExecutorCommand): void => {
      switch (command.type) {
        case 'settings':
          withdrawn.set(command.settings.withdrawn);
          resolve(command.settings);
          break;
        case 'serve':
          serve();
          break;
        case 'cancel-session':
          guard?.cancelSession(command);
          break;
        case 'drop-memory':
          void memories?.drop(command.memory);
          break;
        case 'withdrawn':
          withdrawn.set(command.capabilities);
          break;
        case 'stop':
          stopRequested = { replaced: command.replaced === true };
          stopWorkers?.(stopRequested.replaced);
          serve();
          break;
      }
    };
    link.listen(onCommand).then(() => {
      killOwnGroup();
    }, reject);
  });

  const watch = new Worker(new URL('./fence-watch.js', import.meta.url), {
    workerData: { socketPath, hello } satisfies FenceWatchData,
    // It needs next to nothing, and the defaults of a thread are those of a process.
    resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 },
  });
  // Without its fence this process must not run pinned activities.
  watch.on('error', killOwnGroup);
  watch.unref();
  // Loaded while the supervisor loads the same and connects; the settings come after that.
  const loading = Promise.all([
    import('../terminal/log.js'),
    import('../temporal/runtime.js'),
    import('./workers.js'),
    import('./pinned-polls.js'),
    import('./worker-options.js'),
    import('../temporal/connect.js'),
  ]);
  loading.catch(() => undefined);
  const given = await settings;
  const [
    { createLogger },
    { installRuntime },
    { createWorkers },
    { PinnedPolls },
    { MAX_PINNED },
    { connectNative, loadProfile },
  ] = await loading;
  const log = createLogger({ level: given.logLevel, format: given.logFormat, stream: process.stderr }).child({
    process: 'executor',
  });
  installRuntime(log);
  const profile = await loadProfile(process.env, given.temporal);
  const connection = await connectNative(profile);
  const worker = {
    name: given.name,
    fleet: given.fleet,
    queue: given.queue,
    capabilities: given.capabilities,
    keptDirectory: given.keptDirectory,
    cacheDirectory: given.cacheDirectory,
    keptForMs: given.keptForMs,
  };
  memories = new SessionMemories({ dropped: (memory) => link.memoryDropped(memory), log });
  guard = new AttemptGuard(link, incarnation, worker, memories);
  const polls = new PinnedPolls(MAX_PINNED);
  const workers = await createWorkers({
    settings: given,
    polls,
    connection,
    namespace: profile.namespace,
    guard,
    worker,
    withdrawn,
    graceMs: given.graceMs,
  });
  await link.loaded();
  await mayServe;
  const runs = workers.map((each) => each.run());
  const pinned = workers.at(-1);
  const hurry = new AbortController();
  const shutdown = (each: (typeof workers)[number] | undefined): void => {
    if (each?.getState() === 'RUNNING') each.shutdown();
  };
  stopWorkers = (replaced) => {
    for (const each of workers) if (each !== pinned || !replaced) shutdown(each);
    // The word that the worker stops may come while the last polls are awaited.
    if (!replaced) hurry.abort();
    else
      polls.close(hurry.signal).then(
        () => {
          shutdown(pinned);
          link.quiet().catch((error: unknown) => {
            log.warn(
              { event: 'quiet-untold', reason: String(error) },
              'The supervisor could not be told that the polls ended',
            );
          });
        },
        () => {
          shutdown(pinned);
        },
      );
  };
  if (stopRequested !== undefined) stopWorkers(stopRequested.replaced);
  await link.ready();
  log.debug({ event: 'executor-polling', queues: workers.length }, 'The executor polls its queues');
  await Promise.all(runs);
  await guard.allTold();
  await connection.close();
}

function killOwnGroup(): void {
  try {
    process.kill(-process.pid, 'SIGKILL');
  } catch {
    // Not the leader of a group, as when started by hand.
    process.exit(EXIT_FAILED);
  }
}

optimizeLater();
const [socketPath, incarnation] = process.argv.slice(2);
if (socketPath === undefined || incarnation === undefined) {
  process.stderr.write('The executor is started by atlasd.\n');
  process.exit(EXIT_FAILED);
}
const hello = { pid: process.pid, incarnation };
const link = new SupervisorLink(socketPath, hello);
main(link, { socketPath, hello }).then(
  () => {
    process.exit(0);
  },
  async (error: unknown) => {
    const found =
      findError(error) ??
      new AtlasError('ExecutorFailed', error instanceof Error ? (error.stack ?? error.message) : String(error));
    process.stderr.write(
      `${JSON.stringify({ level: 'error', time: new Date().toISOString(), event: 'executor-failed', code: found.code, msg: found.message, next: found.next })}\n`,
    );
    // For whoever waits for this executor; one that is gone has no need of it.
    await link.failed(found.code, found.message).catch(() => undefined);
    process.exit(EXIT_FAILED);
  },
);
