/** What the plugin takes and refuses: the options of atlasd, and what has to be so of the Worker that it is given to. */
import type { Client } from '@temporalio/client';
import type { NativeConnection, WorkerOptions } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/daemon/config.js';
import { checkWorker, configOfPlugin, type SessionWorkerPluginOptions } from '../../../src/embedded/options.js';
import { SessionWorkerPlugin } from '../../../src/embedded/plugin.js';

type Given = Omit<SessionWorkerPluginOptions, 'client'>;

function clientOf(namespace = 'default', payloadCodecs: unknown[] = []): Client {
  return { options: { namespace, loadedDataConverter: { payloadCodecs } } } as unknown as Client;
}

const configOf = (options: Given, taskQueue = 'atlas') => configOfPlugin({ client: clientOf(), ...options }, taskQueue);

function failure(run: () => unknown): { readonly code: unknown; readonly message: string } {
  try {
    run();
  } catch (error) {
    return error as { code: unknown; message: string };
  }
  throw new Error('It was not refused.');
}

describe('the options of the plugin', () => {
  it('have the defaults of atlasd', () => {
    const { sources: _, stateDirectory, ...config } = configOf({});
    const readFile = () => {
      throw Object.assign(new Error('no file'), { code: 'ENOENT' });
    };
    const { sources: __, stateDirectory: ___, ...daemon } = loadConfig({ flags: {}, env: {}, readFile });
    expect(config).toEqual(daemon);
    expect(stateDirectory).toMatch(/\/atlas$/);
  });

  it('take durations as milliseconds or text, and lists as they are', () => {
    const config = configOf({
      grace: 90_000,
      keep: '2h',
      presenceTtl: '3s',
      capabilities: ['ocr', 'gpu'],
      reserve: { gpu: 1 },
      maxSessions: 2,
      maxActivities: 3,
      ephemeral: true,
      name: 'worker-7',
      stateDirectory: '/var/lib/mine',
    });
    expect(config).toMatchObject({
      graceMs: 90_000,
      keepMs: 7_200_000,
      presenceTtlMs: 3_000,
      capabilities: ['gpu', 'ocr'],
      reserve: { gpu: 1 },
      maxSessions: 2,
      maxActivities: 3,
      ephemeral: true,
      name: 'worker-7',
      stateDirectory: '/var/lib/mine',
    });
  });

  it('have the task queue of the Worker for their fleet, unless another is named', () => {
    expect(configOf({}, 'jobs').fleet).toBe('jobs');
    expect(configOf({ fleet: 'jobs' }, 'Any Queue').fleet).toBe('jobs');
    expect(failure(() => configOf({}, 'My-Queue'))).toMatchObject({
      code: 'ConfigInvalid',
      message: expect.stringContaining('The task queue "My-Queue" of the Worker can not be that of a fleet') as string,
      next: expect.stringContaining('option `fleet`') as string,
    });
  });

  it.each<{ given: Given; code: string; message: string }>([
    {
      given: { maxSessions: 0 },
      code: 'ConfigInvalid',
      message: 'maxSessions: 0 is not valid; the value must be a whole number from 1 to 1000.',
    },
    { given: { presenceTtl: 10 }, code: 'ConfigInvalid', message: 'presenceTtl: "10ms" is out of bounds' },
    { given: { name: 'Worker 7' }, code: 'NameInvalid', message: 'name: ' },
    { given: { capabilities: ['a', 'b', 'c', 'd'] }, code: 'TooManyCapabilities', message: 'capabilities: ' },
    { given: { reserve: { gpu: 1 } }, code: 'ConfigInvalid', message: 'reserve: slots can not be kept for "gpu"' },
    {
      given: { maxSesions: 3 } as Given,
      code: 'ConfigUnknownKey',
      message: 'SessionWorkerPlugin: maxSesions is not known (did you mean maxSessions?).',
    },
  ])('are refused as those of atlasd: $message', ({ given, code, message }) => {
    const found = failure(() => configOf(given));
    expect(found.code).toBe(code);
    expect(found.message).toContain(message);
  });

  it('do not depend on the variables of atlasd', () => {
    process.env['ATLAS_MAX_SESSIONS'] = '9';
    try {
      expect(configOf({}).maxSessions).toBe(4);
    } finally {
      delete process.env['ATLAS_MAX_SESSIONS'];
    }
  });
});

describe('the Worker of the plugin', () => {
  const connection = { plugins: [] } as unknown as NativeConnection;
  const worker: WorkerOptions = { connection, taskQueue: 'atlas', activities: { step: () => undefined } };

  it.each<{ what: string; options: Partial<WorkerOptions>; client?: Client; pid?: number }>([
    { what: 'has no `connection`', options: { connection: undefined } as unknown as Partial<WorkerOptions> },
    { what: 'has no activities', options: { activities: {} } },
    { what: 'the client is of the namespace "default" and the Worker of "other"', options: { namespace: 'other' } },
    { what: 'data converter of its own', options: { dataConverter: { payloadConverterPath: '/converter.js' } } },
    { what: 'data converter of its own', options: {}, client: clientOf('default', [{}]) },
    { what: 'the first of its container (pid 1)', options: {}, pid: 1 },
  ])('is refused when $what', ({ what, options, client = clientOf(), pid = 42 }) => {
    const found = failure(() => {
      checkWorker({ ...worker, ...options }, client, pid);
    });
    expect(found.code).toBe('ConfigInvalid');
    expect(found.message).toContain(what);
  });

  it('is one: a plugin is not given to a second Worker, or to the connection', () => {
    const plugin = new SessionWorkerPlugin({ client: clientOf() });
    expect(plugin.configureWorker(worker).interceptors?.activity).toHaveLength(1);
    expect(failure(() => plugin.configureWorker(worker)).message).toContain('more than one Worker');
    const ofConnection = new SessionWorkerPlugin({ client: clientOf() });
    const shared = { ...worker, connection: { plugins: [ofConnection] } as unknown as NativeConnection };
    expect(failure(() => ofConnection.configureWorker(shared)).message).toContain('more than one Worker');
  });
});
