/**
 * The supervisor of one worker, put together: the sessions and the place in the fleet (`session-worker.ts`), the executor
 * as a child process (`executor-child.ts`), and the connections to Temporal, which are this process's own.
 */
import type { WorkerIdentity } from '../contract/fleet.js';
import type { ExecutorSettings } from '../contract/local.js';
import { connectClient, connectNative, loadProfile } from '../temporal/connect.js';
import type { Logger } from '../terminal/log.js';
import { CapabilityChecks } from './capability-checks.js';
import type { Config } from './config.js';
import { ExecutorChild } from './executor-child.js';
import { modulesOf } from './modules.js';
import { type Connections, SessionWorker } from './session-worker.js';
import type { StateDirectory } from './state-directory.js';

export interface DaemonOptions {
  readonly config: Config;
  readonly directory: StateDirectory;
  readonly log: Logger;
  readonly env: NodeJS.ProcessEnv;
  readonly logFormat: 'json' | 'text';
  readonly version: string;
}

export class Daemon {
  private readonly executor: ExecutorChild;
  private readonly worker: SessionWorker;
  private readonly checks: CapabilityChecks;

  constructor(private readonly options: DaemonOptions) {
    const { config, directory, log, env, version } = options;
    this.executor = new ExecutorChild({
      socketPath: directory.socketPath,
      env: { ...env, ...config.documentEnv },
      settings: () => this.executorSettings(),
      log,
    });
    this.worker = new SessionWorker({
      config,
      directory,
      executor: this.executor,
      connect: (identity) => this.connect(identity),
      log,
      version,
      onStopStuck: () => {
        this.killNow();
        process.exit(1);
      },
    });
    this.checks = new CapabilityChecks({
      commands: config.capabilityChecks,
      intervalMs: config.capabilityCheckIntervalMs,
      timeoutMs: config.capabilityCheckTimeoutMs,
      env,
      log,
      onChange: (withdrawn) => {
        this.worker.setWithdrawn(withdrawn);
        this.executor.setWithdrawn(withdrawn.map(({ capability }) => capability));
      },
    });
  }

  /** Rejects when the daemon can not go on. */
  get failed(): Promise<never> {
    return this.worker.failed;
  }

  /** Resolves when the daemon is drained and was told to end itself then. */
  get finished(): Promise<void> {
    return this.worker.finished;
  }

  /** Resolves when the worker is registered and its executor polls. On an error everything is to be stopped. */
  async start(): Promise<void> {
    await Promise.all([this.worker.start(), this.checks.start()]);
  }

  /** As {@link SessionWorker.stop}; a stop that takes too long ends the process. */
  async stop(): Promise<void> {
    await this.checks.stop();
    await this.worker.stop();
  }

  /** Ends now: the second signal. */
  killNow(): void {
    this.executor.killNow();
  }

  private async connect({ name, fleet }: WorkerIdentity): Promise<Connections> {
    const { config, env, log } = this.options;
    const { installRuntime } = await import('../temporal/runtime.js');
    installRuntime(log);
    const profile = await loadProfile(env, config.temporal);
    const connecting = connectNative(profile);
    // When nobody answers the client says so, and better.
    connecting.catch(() => undefined);
    const closeNative = async (): Promise<void> => {
      await (await connecting).close().catch((error: unknown) => {
        log.debug({ event: 'close-failed', reason: String(error) }, 'The native connection did not close cleanly');
      });
    };
    try {
      const temporal = await connectClient(profile, { identity: `${name}@${fleet} supervisor` });
      return {
        client: temporal.client,
        native: await connecting,
        namespace: profile.namespace,
        address: profile.address,
        async close() {
          await closeNative();
          await temporal.close();
        },
      };
    } catch (error) {
      closeNative().catch(() => undefined);
      throw error;
    }
  }

  private executorSettings(): Omit<ExecutorSettings, 'withdrawn'> {
    const { config, directory, logFormat } = this.options;
    const { fleet, name, queue } = this.worker.identity;
    return {
      fleet,
      name,
      queue,
      capabilities: config.capabilities,
      checkedCapabilities: Object.keys(config.capabilityChecks),
      keptDirectory: directory.keptRoot,
      cacheDirectory: directory.cacheRoot,
      keptForMs: config.keepMs,
      ...modulesOf(config),
      graceMs: config.graceMs,
      maxActivities: config.maxActivities,
      temporal: config.temporal,
      logLevel: config.logLevel,
      logFormat,
    };
  }
}
