/** The client of the local socket against the daemon's own server, and against everything that is no such server. */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import { UNTOUCHED } from '../../../src/contract/fleet.js';
import type { LocalOrder } from '../../../src/contract/local.js';
import { LocalServer, type LocalHandlers } from '../../../src/daemon/local-server.js';
import { localCall } from '../../../src/local/client.js';
import { fakeLog } from '../../support/fake-ports.js';

const ORDER: LocalOrder = { kind: 'cordon', order: { orderId: 'order-1', who: 'ops@host', why: null } };

let directory: string;
let path: string;
const closers: (() => Promise<void>)[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-client-'));
  path = join(directory, 'atlasd.sock');
});
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  await chmod(directory, 0o700);
  await rm(directory, { recursive: true });
});

async function daemon(handlers: Partial<LocalHandlers>): Promise<void> {
  const server = new LocalServer(handlers as LocalHandlers, fakeLog([]));
  await server.listen(path);
  closers.push(() => server.close());
}

/** Anything else that listens there. */
async function listening(listener: RequestListener): Promise<Server> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  closers.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return server;
}

async function status(timeoutMs?: number): Promise<unknown> {
  return await localCall(path, 'GET', '/status', undefined, timeoutMs === undefined ? {} : { timeoutMs });
}

describe('localCall', () => {
  it('gives the status', async () => {
    const answer = { identity: { name: 'worker-7' }, told: true };
    await daemon({ status: () => answer as never });
    expect(await status()).toEqual(answer);
  });

  it('takes an order there and its answer back', async () => {
    const orders: LocalOrder[] = [];
    await daemon({
      order: (order) => {
        orders.push(order);
        return Promise.resolve({ desired: UNTOUCHED, told: false });
      },
    });
    expect(await localCall(path, 'POST', '/orders', ORDER)).toEqual({ desired: UNTOUCHED, told: false });
    expect(orders).toEqual([ORDER]);
  });

  it('throws the refusal of the daemon with its code', async () => {
    await daemon({ order: () => Promise.reject(new AtlasError('FleetConflict', 'ops@other drains worker-7.')) });
    await expect(localCall(path, 'POST', '/orders', ORDER)).rejects.toMatchObject({
      code: 'FleetConflict',
      message: 'ops@other drains worker-7.',
    });
  });

  it('says that no atlasd runs where there is no socket', async () => {
    await expect(status()).rejects.toMatchObject({
      code: 'NotFound',
      message: `No atlasd runs with the state directory ${directory}.`,
    });
  });

  it('says so where the directory is a file', async () => {
    await writeFile(path, '');
    await expect(localCall(join(path, 'atlasd.sock'), 'GET', '/status')).rejects.toMatchObject({ code: 'NotFound' });
  });

  it('says so where only the socket of a dead one is left', async () => {
    // A file that nothing listens on is refused in the same way.
    await writeFile(path, '');
    await expect(status()).rejects.toMatchObject({ code: 'NotFound' });
  });

  it.skipIf(process.getuid?.() === 0)('says whom to be where this user may not ask (root may always)', async () => {
    await daemon({});
    await chmod(directory, 0o000);
    await expect(status()).rejects.toMatchObject({ code: 'FileUnreadable' });
  });

  it('does not wait for one that is stopped', async () => {
    await listening(() => undefined);
    await expect(status(50)).rejects.toMatchObject({
      code: 'WaitTimeout',
      message: `The atlasd of ${directory} did not answer within 50ms.`,
    });
  });

  it('bounds the whole answer, and not each pause in it', async () => {
    await listening((_, response) => {
      const trickle = setInterval(() => response.write(' '), 10);
      response.on('close', () => clearInterval(trickle));
    });
    await expect(status(100)).rejects.toMatchObject({ code: 'WaitTimeout' });
  });

  it('says that the daemon ended while it was asked', async () => {
    await listening((request) => request.socket.destroy());
    await expect(status()).rejects.toMatchObject({
      code: 'NotFound',
      message: `The atlasd of ${directory} ended before it answered.`,
    });
  });

  it('says that the versions differ where the daemon does not know the request', async () => {
    await listening((_, response) => response.writeHead(404).end());
    await expect(status()).rejects.toMatchObject({ code: 'NotFound', message: /another version/ });
  });

  it.each([
    [500, '', /answered 500 to GET \/status: an empty body/],
    [400, '{"message":"The body is not JSON."}', /answered 400 to GET \/status: .*The body is not JSON/],
    [200, 'hello', /answered GET \/status with what is not JSON: hello/],
    [409, '{"code":"OfALaterVersion","message":"no"}', /refused GET \/status: .*OfALaterVersion/],
  ])('shows an answer that it does not understand: %d %s', async (code, body, expected) => {
    await listening((_, response) => response.writeHead(code).end(body));
    const error: unknown = await status().catch((thrown: unknown) => thrown);
    expect(error).not.toBeInstanceOf(AtlasError);
    expect((error as Error).message).toMatch(expected);
  });
});
