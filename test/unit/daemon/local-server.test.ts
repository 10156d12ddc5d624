/** The local server over a real Unix socket, by the executor's own client and by requests that no executor makes. */
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import { UNTOUCHED } from '../../../src/contract/fleet.js';
import {
  KEPT_RESULT_LIMIT_BYTES,
  LOCAL_BODY_LIMIT_BYTES,
  type BeginAttempt,
  type ExecutorCommand,
  type ReloadResult,
  type ReloadStep,
} from '../../../src/contract/local.js';
import { LocalServer, type LocalHandlers } from '../../../src/daemon/local-server.js';
import { localReload } from '../../../src/local/client.js';
import { SupervisorLink } from '../../../src/executor/supervisor-link.js';
import { deferred, fakeLog, pinnedAttempt, type LogLine } from '../../support/fake-ports.js';

const SETTINGS = { type: 'settings', settings: { fleet: 'atlas' } } as unknown as ExecutorCommand;
const CANCEL: ExecutorCommand = {
  type: 'cancel-session',
  key: 's.run',
  session: 's',
  runId: 'run',
  code: 'SessionLost',
  reason: 'released',
};
const HELLO = { pid: 7, incarnation: 'life-1' };
const RELOADED: ReloadResult = {
  executor: { pid: 8, incarnation: 'life-2' },
  replaced: { pid: 7, incarnation: 'life-1' },
  interruptedAttempts: 0,
  lostSessions: 0,
  tookMs: 1,
};

let directory: string;
let path: string;
let server: LocalServer;
let log: LogLine[];
let asked: unknown[];
let handlers: { -readonly [K in keyof LocalHandlers]: LocalHandlers[K] };

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-local-'));
  path = join(directory, 's');
  log = [];
  asked = [];
  handlers = {
    firstCommands: () => Promise.resolve([SETTINGS]),
    isExecutor: ({ incarnation }) => incarnation === 'life-1',
    executorLoaded: (incarnation) => asked.push(['loaded', incarnation]),
    executorQuiet: (incarnation) => asked.push(['quiet', incarnation]),
    executorFailed: (failure) => asked.push(['failed', failure]),
    executorReady: (incarnation) => asked.push(['ready', incarnation]),
    beginAttempt: async (attempt) => {
      asked.push(['begin', attempt]);
      return { sessionKey: 's.run', scratchDirectory: '/scratch', capabilities: ['gpu'], fencingToken: 7 };
    },
    endAttempt: async (id, result) => {
      asked.push(['end', id, result]);
    },
    memoryDropped: (dropped) => asked.push(['memory dropped', dropped]),
    reload: async (request) => {
      asked.push(['reload', request]);
      return RELOADED;
    },
    order: async (order) => {
      asked.push(['order', order]);
      return { desired: UNTOUCHED, told: false };
    },
    status: () => ({ identity: { name: 'w' }, snapshot: { v: 1 } }) as never,
  };
  server = new LocalServer(handlers, fakeLog(log));
  await server.listen(path);
});

afterEach(async () => {
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly body: string;
}

/** One request with any body, on a connection of its own. */
async function send(method: string, url: string, body: string | Buffer = ''): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    const request = httpRequest({ socketPath: path, method, path: url, agent: false }, (response: IncomingMessage) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** An executor that has connected; resolves with its commands and the end of the stream. */
async function connect(link = new SupervisorLink(path, HELLO)) {
  const commands: ExecutorCommand[] = [];
  const heard = { promise: deferred<undefined>() };
  const ended = link.listen((command) => {
    commands.push(command);
    heard.promise.resolve(undefined);
    heard.promise = deferred();
  });
  await Promise.race([heard.promise.promise, ended]);
  return { commands, ended, next: () => heard.promise.promise };
}

describe('the local server', () => {
  it('is for the user of the daemon alone', async () => {
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('takes the place of a socket that a dead daemon left', async () => {
    await server.close();
    const left = new LocalServer(handlers, fakeLog(log));
    await left.listen(path);
    server = new LocalServer(handlers, fakeLog(log));
    await server.listen(path);
    expect((await send('GET', '/status')).status).toBe(200);
    await left.close();
  });

  it('sends the settings first and then each command, until it closes', async () => {
    const { commands, ended, next } = await connect();
    expect(commands).toEqual([SETTINGS]);
    const heard = next();
    server.send('life-1', CANCEL);
    await heard;
    expect(commands[1]).toEqual(CANCEL);
    await server.close();
    await ended;
    expect(commands).toHaveLength(2);
  });

  it('lets an executor wait for its settings, and sends it no other command before', async () => {
    const due = deferred<readonly ExecutorCommand[]>();
    const asking = deferred<undefined>();
    handlers.firstCommands = () => {
      asking.resolve(undefined);
      return due.promise;
    };
    const connecting = connect();
    await asking.promise;
    server.send('life-1', CANCEL);
    due.resolve([SETTINGS]);
    expect((await connecting).commands).toEqual([SETTINGS]);
  });

  it('refuses an executor of another life, and goes on to command the current one', async () => {
    const current = await connect();
    const old = new SupervisorLink(path, { pid: 6, incarnation: 'life-0' });
    await expect(old.listen(() => undefined)).rejects.toMatchObject({
      code: 'ExecutorFailed',
      message: 'The supervisor refused this executor (409).',
    });
    const heard = current.next();
    server.send('life-1', { type: 'stop' });
    await heard;
    expect(current.commands).toEqual([SETTINGS, { type: 'stop' }]);
  });

  it('tells each of two executors what is for it, and both what is for all', async () => {
    handlers.isExecutor = () => true;
    const heard = new Map<string, ExecutorCommand[]>();
    const connectAs = (incarnation: string): Promise<void> =>
      new Promise((resolve) => {
        const commands: ExecutorCommand[] = [];
        heard.set(incarnation, commands);
        void new SupervisorLink(path, { pid: 7, incarnation }).listen((command) => {
          commands.push(command);
          resolve();
        });
      });
    await Promise.all([connectAs('life-1'), connectAs('life-2')]);
    server.send('life-2', { type: 'serve' });
    server.sendToAll({ type: 'stop' });
    await vi.waitFor(
      () => {
        expect(heard.get('life-1')).toEqual([SETTINGS, { type: 'stop' }]);
        expect(heard.get('life-2')).toEqual([SETTINGS, { type: 'serve' }, { type: 'stop' }]);
      },
      { timeout: 30_000 },
    );
  });

  it('hears what an executor has loaded, or why it could not', async () => {
    const link = new SupervisorLink(path, HELLO);
    await link.loaded();
    await link.failed('ModuleLoadFailed', 'a'.repeat(20_000));
    expect(asked).toEqual([
      ['loaded', 'life-1'],
      ['failed', { ...HELLO, code: 'ModuleLoadFailed', message: 'a'.repeat(8_000) }],
    ]);
  });

  it('answers a reload step by step, refuses it at once or later, and notices when nobody waits', async () => {
    const { signal } = new AbortController();
    const request = { timeoutMs: 1, force: false };
    const steps: ReloadStep[] = [];
    const ask = (by = signal) => localReload(path, request, by, (step) => steps.push(step));
    expect(await ask()).toEqual(RELOADED);
    expect(asked).toEqual([['reload', request]]);
    const refusal = new AtlasError('ReloadConflict', 'Not now.');
    handlers.reload = () => Promise.reject(refusal);
    await expect(ask()).rejects.toMatchObject({ code: 'ReloadConflict', message: 'Not now.' });
    handlers.reload = async (_, _signal, onStep) => {
      onStep({ step: 'loading', atMostMs: 1 });
      throw refusal;
    };
    await expect(ask()).rejects.toMatchObject({ code: 'ReloadConflict', message: 'Not now.' });
    expect(steps).toEqual([expect.objectContaining({ step: 'loading' })]);

    const gone = deferred<undefined>();
    handlers.reload = async (_, by, onStep) => {
      onStep({ step: 'loading', atMostMs: 1 });
      await new Promise((resolve) => by.addEventListener('abort', resolve));
      gone.resolve(undefined);
      throw refusal;
    };
    const leaving = new AbortController();
    const left = localReload(path, request, leaving.signal, () => {
      leaving.abort(new AtlasError('Interrupted', 'Ctrl-C'));
    });
    await expect(left).rejects.toMatchObject({ code: 'Interrupted' });
    await gone.promise;
  });

  it('forgets an executor that is gone', async () => {
    const gone = createConnection(path);
    const body = JSON.stringify(HELLO);
    const first = deferred<Buffer>();
    gone.on('data', first.resolve);
    gone.write(`POST /executor HTTP/1.1\r\nhost: a\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    expect((await first.promise).toString()).toContain('200 OK');
    gone.destroy();
    const { commands, next } = await connect();
    const heard = next();
    server.send('life-1', { type: 'stop' });
    await heard;
    expect(commands).toEqual([SETTINGS, { type: 'stop' }]);
  });

  it('drops a command when there is no executor', async () => {
    server.send('life-1', { type: 'stop' });
    expect((await connect()).commands).toEqual([SETTINGS]);
  });

  it('answers for attempts', async () => {
    const link = new SupervisorLink(path, HELLO);
    await link.ready();
    const { session: _, ...unpinned } = pinnedAttempt('s', { step: 2 });
    expect(await link.beginAttempt(pinnedAttempt('s'))).toEqual({
      sessionKey: 's.run',
      scratchDirectory: '/scratch',
      capabilities: ['gpu'],
      fencingToken: 7,
    });
    await link.beginAttempt(unpinned);
    await link.endAttempt('id');
    await link.endAttempt('id', { json: '[1]' });
    // What an activity returned that returned nothing.
    await link.endAttempt('id', {});
    expect(asked).toEqual([
      ['ready', 'life-1'],
      ['begin', pinnedAttempt('s')],
      ['begin', unpinned],
      ['end', 'id', undefined],
      ['end', 'id', { json: '[1]' }],
      ['end', 'id', {}],
    ]);
  });

  it('takes the largest result that is kept, whatever its letters', async () => {
    const result = { json: JSON.stringify('"'.repeat(KEPT_RESULT_LIMIT_BYTES / 2 - 1)) };
    expect(result.json).toHaveLength(KEPT_RESULT_LIMIT_BYTES);
    await new SupervisorLink(path, HELLO).endAttempt('id', result);
    expect(asked).toEqual([['end', 'id', result]]);
  });

  it('passes a refusal on with its code', async () => {
    handlers.beginAttempt = () => {
      throw new AtlasError('SessionLost', 'not held here');
    };
    await expect(new SupervisorLink(path, HELLO).beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({
      code: 'SessionLost',
      message: 'not held here',
    });
    expect(log).toEqual([]);
  });

  it('answers 500 to a fault of its own, and says so in the log', async () => {
    handlers.beginAttempt = () => {
      throw new TypeError('a bug');
    };
    await expect(new SupervisorLink(path, HELLO).beginAttempt(pinnedAttempt('s'))).rejects.toMatchObject({
      code: 'ExecutorFailed',
    });
    expect(log).toMatchObject([
      { level: 'error', fields: { event: 'local-request-failed', reason: 'TypeError: a bug' } },
    ]);
  });

  it('tells its status, and nothing under a name it does not know', async () => {
    const { status, body } = await send('GET', '/status');
    expect([status, JSON.parse(body)]).toEqual([200, { identity: { name: 'w' }, snapshot: { v: 1 } }]);
    for (const [method, url] of [
      ['POST', '/status'],
      ['GET', '/'],
      ['GET', '/attempts'],
    ] as const)
      expect((await send(method, url)).status).toBe(404);
  });

  const attempt: BeginAttempt = pinnedAttempt('s');
  it.each<[string, string, string]>([
    ['/executor', 'no JSON', '{'],
    ['/executor', 'nothing', ''],
    ['/executor', 'a field that is missing', JSON.stringify({ pid: 7 })],
    ['/executor/ready', 'a list', '[]'],
    ['/attempts', 'a field of another type', JSON.stringify({ ...attempt, attempt: 'first' })],
    ['/attempts', 'half a session', JSON.stringify({ ...attempt, session: { session: 's', runId: 'run' } })],
    ['/attempts/end', 'null', 'null'],
    ['/attempts/end', 'a result that is not encoded', JSON.stringify({ id: 'id', result: { json: 7 } })],
    ['/executor/fence', 'nothing', ''],
  ])('answers 400 to %s with %s, and goes on', async (url, _, body) => {
    const answer = await send('POST', url, body);
    expect(answer.status).toBe(400);
    expect((JSON.parse(answer.body) as { message: string }).message).not.toBe('');
    expect(log).toMatchObject([{ level: 'warn', fields: { event: 'local-request-refused', url } }]);
    expect(asked).toEqual([]);
    expect((await send('GET', '/status')).status).toBe(200);
  });

  it('answers 413 to a body over the limit and takes one of just that length', async () => {
    const filled = (bytes: number): string => {
      const bare = JSON.stringify({ id: '' });
      return JSON.stringify({ id: 'x'.repeat(bytes - bare.length) });
    };
    expect((await send('POST', '/attempts/end', filled(LOCAL_BODY_LIMIT_BYTES))).status).toBe(204);
    expect((await send('POST', '/attempts/end', filled(LOCAL_BODY_LIMIT_BYTES + 1))).status).toBe(413);
    // Far more than the buffers of a socket hold: who is still sending must get the answer too.
    expect((await send('POST', '/attempts/end', Buffer.alloc(8 * 1024 * 1024, 'x'))).status).toBe(413);
    expect(asked).toHaveLength(1);
    expect((await send('GET', '/status')).status).toBe(200);
  });

  it('goes on when a client dies in the middle of its body', async () => {
    const client = createConnection(path);
    const refused = new Promise<void>((resolve) => {
      const push = log.push.bind(log);
      log.push = (...lines) => {
        const length = push(...lines);
        resolve();
        return length;
      };
    });
    await new Promise<void>((resolve) =>
      client.write('POST /attempts HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{"id":', () => resolve()),
    );
    client.destroy();
    await refused;
    expect([...log]).toMatchObject([{ level: 'warn', fields: { event: 'local-request-refused' } }]);
    expect((await send('GET', '/status')).status).toBe(200);
  });
});

describe('the link of the executor', () => {
  it('takes an answer that is neither success nor refusal for a fault', async () => {
    const link = new SupervisorLink(path, HELLO);
    await expect(link.beginAttempt({ ...attemptWithout('activity') })).rejects.toMatchObject({
      code: 'ExecutorFailed',
    });
  });

  it('says so when nobody listens', async () => {
    await server.close();
    const link = new SupervisorLink(path, HELLO);
    await expect(link.ready()).rejects.toThrow(/ENOENT|ECONNREFUSED/);
    await expect(link.listen(() => undefined)).rejects.toThrow(/ENOENT|ECONNREFUSED/);
  });
});

function attemptWithout(field: keyof BeginAttempt): BeginAttempt {
  return Object.fromEntries(Object.entries(pinnedAttempt('s')).filter(([name]) => name !== field)) as never;
}
