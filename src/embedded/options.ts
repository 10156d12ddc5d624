/** The options of the plugin: atlasd's, by the same table with the same defaults and bounds, under the names of code. */
import type { Client } from '@temporalio/client';
import type { WorkerOptions } from '@temporalio/worker';
import { AtlasError } from '../contract/errors.js';
import { checkName } from '../contract/names.js';
import { nearestName } from '../contract/nearest.js';
import { type Config, loadConfig } from '../daemon/config.js';
import { defaultStateDirectory } from '../local/paths.js';

/** What a session worker inside a process of its user's own is given. Defaults are those of atlasd's flags. */
export interface SessionWorkerPluginOptions {
  /**
   * For the calls about sessions: of the Worker's namespace, without a data converter of its own. Connect it with
   * {@link SESSION_CHANNEL_ARGS}, or it comes back from an outage up to 15 s later than the server.
   */
  readonly client: Client;
  /** The fleet to join. Default: the task queue of the Worker, which is then the fleet's. */
  readonly fleet?: string;
  /** Of this worker in the fleet. Default: made from the host's name, once, and kept in the state directory. */
  readonly name?: string;
  /** What this worker offers beyond the ordinary, such as `gpu`; at most three. Default: none. */
  readonly capabilities?: readonly string[];
  /** How many sessions it holds at once. Default 4. */
  readonly maxSessions?: number;
  /** Slots that are kept for sessions which ask for a capability: `{ gpu: 2 }`. Default: none. */
  readonly reserve?: Readonly<Record<string, number>>;
  /** Pooled activities at once, on each queue that the plugin serves. Default 16. */
  readonly maxActivities?: number;
  /** Of this process alone. Default: as for atlasd. */
  readonly stateDirectory?: string;
  /** How long a shutdown waits for sessions to end, as milliseconds or `'2m'`. Default `'30s'`. */
  readonly grace?: string | number;
  /** Release the sessions that remain then, since the state directory will be gone. Default false. */
  readonly ephemeral?: boolean;
  /** How long kept and cached files are kept when nobody uses them, as milliseconds or `'24h'`. Default `'24h'`. */
  readonly keep?: string | number;
  /** How long this worker may be silent before the fleet takes it for lost, as milliseconds or `'6s'`. Default `'6s'`. */
  readonly presenceTtl?: string | number;
}

/** The options by the keys of the configuration. */
const KEYS = {
  name: 'name',
  fleet: 'fleet',
  capabilities: 'capabilities',
  'max-sessions': 'maxSessions',
  reserve: 'reserve',
  'max-activities': 'maxActivities',
  'state-dir': 'stateDirectory',
  grace: 'grace',
  ephemeral: 'ephemeral',
  keep: 'keep',
  'presence-ttl': 'presenceTtl',
} as const satisfies Record<string, Exclude<keyof SessionWorkerPluginOptions, 'client'>>;
const DURATIONS: readonly string[] = ['grace', 'keep', 'presenceTtl'];

export interface EmbeddedConfig extends Config {
  readonly stateDirectory: string;
}

/**
 * @throws {@link AtlasError} `ConfigUnknownKey`, or `ConfigInvalid`, `NameInvalid` and `TooManyCapabilities`, as atlasd
 */
export function configOfPlugin(options: SessionWorkerPluginOptions, taskQueue: string): EmbeddedConfig {
  refuseUnknown(options);
  const flags: Record<string, unknown> = {};
  for (const [key, name] of Object.entries(KEYS)) {
    const given = options[name];
    if (given === undefined) continue;
    const flag = key.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
    // SDK users give a duration as milliseconds, too.
    flags[flag] = DURATIONS.includes(name) && typeof given === 'number' ? `${given}ms` : given;
  }
  flags['fleet'] ??= fleetOfQueue(taskQueue);
  const config = loadConfig({
    flags,
    // What this program is given is its own affair: neither atlasd's variables nor its file count here.
    env: {},
    readFile: () => {
      throw Object.assign(new Error('The plugin has no configuration file.'), { code: 'ENOENT' });
    },
    nameOf: (key) => KEYS[key as keyof typeof KEYS],
  });
  return { ...config, stateDirectory: config.stateDirectory ?? defaultStateDirectory(process.env, config.fleet) };
}

function refuseUnknown(options: SessionWorkerPluginOptions): void {
  const known: readonly string[] = ['client', ...Object.values(KEYS)];
  const unknown = Object.keys(options).filter((name) => !known.includes(name));
  if (unknown.length === 0) return;
  const complaints = unknown.map((name) => {
    const nearest = nearestName(name, known);
    return `${name} is not known${nearest === undefined ? '' : ` (did you mean ${nearest}?)`}`;
  });
  throw new AtlasError('ConfigUnknownKey', `SessionWorkerPlugin: ${complaints.join(', ')}.`, {
    next: `Its options are ${known.join(', ')}.`,
  });
}

function fleetOfQueue(taskQueue: string): string {
  try {
    return checkName('fleet', taskQueue);
  } catch (error) {
    throw new AtlasError(
      'ConfigInvalid',
      `The task queue ${JSON.stringify(taskQueue)} of the Worker can not be that of a fleet: ${(error as Error).message}`,
      {
        next: 'Name the task queue as a fleet is named, or say which fleet to join with the option `fleet`.',
        cause: error,
      },
    );
  }
}

/**
 * What must be so for sessions to be held beside a Worker.
 *
 * @throws {@link AtlasError} `ConfigInvalid`
 */
export function checkWorker(
  { connection, namespace = 'default', activities, dataConverter }: WorkerOptions,
  client: Client,
  pid: number,
): void {
  const refuse = (what: string, next: string): never => {
    throw new AtlasError('ConfigInvalid', `SessionWorkerPlugin: ${what}`, { next });
  };
  if (pid === 1)
    refuse(
      'this process is the first of its container (pid 1), which can not be killed from inside it; an activity that ignores its cancellation could not be ended before its session goes to another worker.',
      'Start it under an init: `docker run --init`, tini, or `shareProcessNamespace: true` in Kubernetes.',
    );
  if (connection === undefined)
    refuse(
      'the Worker has no `connection`, which the Workers for sessions share.',
      'Pass a NativeConnection to Worker.create().',
    );
  if (activities === undefined || Object.keys(activities).length === 0)
    refuse('the Worker has no activities, so nothing could be pinned.', 'Pass `activities` to Worker.create().');
  if (client.options.namespace !== namespace)
    refuse(
      `the client is of the namespace ${JSON.stringify(client.options.namespace)} and the Worker of ${JSON.stringify(namespace)}.`,
      'Give both the same namespace.',
    );
  const converts =
    dataConverter?.payloadConverterPath !== undefined ||
    (dataConverter?.payloadCodecs ?? []).length > 0 ||
    client.options.loadedDataConverter.payloadCodecs.length > 0;
  if (converts)
    refuse(
      'the Worker or the client has a data converter of its own, and the commands and other workers of the fleet could not read what it writes.',
      'Use the default data converter for Workers and clients of a fleet.',
    );
}
