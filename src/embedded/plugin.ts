/** The plugin: what it adds to the user's Worker, and the session worker that runs beside it. */
import { type Worker, type WorkerOptions, type WorkerPlugin, Runtime } from '@temporalio/worker';
import type { CurrentWorker } from '../activity/index.js';
import { AtlasError } from '../contract/errors.js';
import { VERSION } from '../contract/version.js';
import type { EventLog } from '../daemon/ports.js';
import { SessionWorker } from '../daemon/session-worker.js';
import { defaultWorkerName, openStateDirectory, type StateDirectory } from '../daemon/state-directory.js';
import { providingWorker } from '../executor/worker-options.js';
import { EmbeddedExecutor } from './embedded-executor.js';
import { HeldShutdown } from './held-shutdown.js';
import { checkWorker, configOfPlugin, type EmbeddedConfig, type SessionWorkerPluginOptions } from './options.js';

/**
 * Makes a Worker hold sessions, inside the process that runs it: its activities can be pinned, and it is a worker of its
 * fleet like any that atlasd runs.
 *
 * ```ts
 * const worker = await Worker.create({
 *   connection, taskQueue: 'atlas', workflowsPath, activities,
 *   plugins: [new SessionWorkerPlugin({ client, name: 'worker-7', maxSessions: 4, stateDirectory: '/var/lib/atlas' })],
 * });
 * await worker.run();
 * ```
 *
 * - Put it last, so that it sees what other plugins add.
 * - `worker.shutdown()`, and a signal, first wait for the sessions that are held, for `grace` at most. The Worker serves
 *   them meanwhile, and its own shutdown begins after that.
 * - `worker.run()` rejects when the session worker can not go on, with `NameConflict` for example.
 * - **It kills the process with SIGKILL** where nothing less is sure to end an activity before its session goes to another
 *   worker: one that ignores its cancellation, or keeps the event loop busy. `atlasd` kills only a child process then.
 *   Programs that its activities have started are not ended by that.
 */
export class SessionWorkerPlugin implements WorkerPlugin {
  private configured: { readonly config: EmbeddedConfig; readonly workerOptions: WorkerOptions } | undefined;
  private tellOwnWorker: (worker: CurrentWorker | Promise<never>) => void = () => undefined;
  /** Known once the state directory is open. */
  private readonly ownWorker = new Promise<CurrentWorker>((resolve) => {
    this.tellOwnWorker = resolve;
  });

  constructor(private readonly options: SessionWorkerPluginOptions) {
    this.ownWorker.catch(() => undefined);
  }

  get name(): string {
    return 'temporal-atlas/worker';
  }

  /**
   * @throws {@link AtlasError} `ConfigInvalid` and others, for options that are not valid or do not go with the Worker
   */
  configureWorker(workerOptions: WorkerOptions): WorkerOptions {
    const isOfConnection = workerOptions.connection?.plugins.includes(this) === true;
    if (isOfConnection || this.configured !== undefined)
      throw new AtlasError('ConfigInvalid', 'SessionWorkerPlugin: the plugin was given to more than one Worker.', {
        next: 'Give one to the `plugins` of the Worker on the queue of the fleet, and none to the connection.',
      });
    const config = configOfPlugin(this.options, workerOptions.taskQueue);
    checkWorker(workerOptions, this.options.client, process.pid);
    this.configured = { config, workerOptions };
    const { interceptors } = workerOptions;
    return {
      ...workerOptions,
      interceptors: {
        ...interceptors,
        activity: [providingWorker(this.ownWorker), ...(interceptors?.activity ?? [])],
      },
    };
  }

  /** Runs the Worker, and the session worker beside it. */
  async runWorker(worker: Worker, next: (worker: Worker) => Promise<void>): Promise<void> {
    const shutdown = new HeldShutdown(worker);
    const running = next(worker);
    let ended: 'well' | 'failed' | undefined;
    const over = running.then(
      () => {
        ended = 'well';
      },
      () => {
        ended = 'failed';
      },
    );
    let failure: { readonly error: unknown } | undefined;
    try {
      // Steps are cancelled at once when the Worker is gone: its process has more to worry about than a grace.
      await this.serve(Promise.race([shutdown.requested, over]), () => (ended === 'failed' ? 0 : undefined));
    } catch (error) {
      failure = { error };
    }
    await shutdown.letGo(over);
    if (failure !== undefined && ended === 'failed')
      runtimeLog().error(
        { event: 'session-worker-failed', reason: String(failure.error) },
        'The session worker has failed beside its Worker',
      );
    await running;
    if (failure !== undefined) throw failure.error;
  }

  /** Holds sessions until the Worker is to stop, or the worker was drained for good, or it can not go on. */
  private async serve(workerStops: Promise<void>, graceMs: () => number | undefined): Promise<void> {
    const log = runtimeLog();
    const { config, workerOptions } = this.configured!;
    let directory: StateDirectory;
    try {
      directory = await openStateDirectory(config.stateDirectory, {
        fleet: config.fleet,
        name: config.name ?? (await defaultWorkerName(config.stateDirectory)),
      });
    } catch (error) {
      this.tellOwnWorker(Promise.reject(error as Error));
      throw error;
    }
    const own: CurrentWorker = {
      name: directory.identity.name,
      fleet: directory.identity.fleet,
      queue: directory.identity.queue,
      capabilities: config.capabilities,
      keptDirectory: directory.keptRoot,
      cacheDirectory: directory.cacheRoot,
      keptForMs: config.keepMs,
    };
    this.tellOwnWorker(own);
    const { maxActivities, graceMs: grace } = config;
    const executor = new EmbeddedExecutor({
      worker: own,
      socketPath: directory.socketPath,
      workerOptions,
      maxActivities,
      graceMs: grace,
      log,
    });
    let stuck: () => void = () => undefined;
    const stopStuck = new Promise<void>((resolve) => {
      stuck = resolve;
    });
    const { client } = this.options;
    const session = new SessionWorker({
      config,
      directory,
      executor,
      connect: () =>
        Promise.resolve({
          client,
          native: workerOptions.connection!,
          namespace: client.options.namespace,
          // Both are the user's.
          close: () => Promise.resolve(),
        }),
      log,
      version: VERSION,
      onStopStuck: stuck,
      embedded: true,
    });
    const starting = session.start();
    let failure: { readonly error: unknown } | undefined;
    try {
      const finished = starting.then(() => session.finished);
      await Promise.race([finished, workerStops, session.failed, executor.failed]);
    } catch (error) {
      failure = { error };
    }
    // A start that went on beside the stop would leave behind what it makes after it.
    await Promise.race([settled(starting), settled(session.failed), settled(executor.failed)]);
    const stopped = session.stop(graceMs()).then(() => true);
    const isStopped = await Promise.race([stopped, stopStuck.then(() => false)]);
    try {
      await giveUp(isStopped, executor, directory, log);
    } catch (error) {
      failure ??= { error };
    }
    if (failure !== undefined) throw failure.error;
  }
}

/**
 * The directory is given up once no activity of its sessions runs: until then a second process must not take them up,
 * and the thread of the executor still ends this one at their fence.
 */
async function giveUp(
  isStopped: boolean,
  executor: EmbeddedExecutor,
  directory: StateDirectory,
  log: EventLog,
): Promise<void> {
  const next = 'End the process; until then its state directory stays locked.';
  const { runningCount } = executor;
  if (!isStopped && runningCount === 0)
    throw new AtlasError('ExecutorFailed', 'The session worker did not stop in time.', { next });
  const gone = executor.settled().then(() => (isStopped ? directory.release() : undefined));
  if (runningCount === 0) {
    await gone;
    return;
  }
  gone.catch((error: unknown) => {
    log.error({ event: 'close-failed', reason: String(error) }, 'The state directory could not be given up');
  });
  throw new AtlasError(
    'ExecutorFailed',
    `The session worker has stopped, but ${runningCount} of its activities ignore their cancellation and still run.`,
    { next },
  );
}

async function settled(promise: Promise<unknown>): Promise<void> {
  await promise.then(
    () => undefined,
    () => undefined,
  );
}

/** Log lines go where those of the SDK go; the user has said where that is, and from which level on. */
function runtimeLog(): EventLog {
  const { logger } = Runtime.instance();
  const meta = (fields: object) => ({ sdkComponent: 'temporal-atlas', ...fields });
  return {
    debug: (fields, message) => {
      logger.debug(message, meta(fields));
    },
    info: (fields, message) => {
      logger.info(message, meta(fields));
    },
    warn: (fields, message) => {
      logger.warn(message, meta(fields));
    },
    error: (fields, message) => {
      logger.error(message, meta(fields));
    },
  };
}
