import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, open, readdir, readFile, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import {
  DEFAULT_SERVE_ADDRESS,
  startTransferServer,
  type TransferServer,
} from '../../../../src/commands/support/transfer-server.js';

const CONTENT = randomBytes(1_500_000);
const hash = (bytes: string | Buffer): string => createHash('sha256').update(bytes).digest('hex');

let directory: string;
let handle: FileHandle;
let server: TransferServer;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-transfer-'));
  await writeFile(join(directory, 'source'), CONTENT);
  handle = await open(join(directory, 'source'));
  await rm(join(directory, 'source'));
  server = await startTransferServer({
    address: DEFAULT_SERVE_ADDRESS,
    file: { handle, bytes: CONTENT.length, sha256: hash(CONTENT) },
    outputDirectory: directory,
    maxArtifactBytes: 1_000,
  });
});
afterEach(async () => {
  await server.close();
  await handle.close();
  await rm(directory, { recursive: true });
});

function get(headers: Record<string, string> = {}, method = 'GET'): Promise<Response> {
  return fetch(server.fileUrl, { method, headers: { authorization: `Bearer ${server.token}`, ...headers } });
}

function put(name: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${server.deliverUrl}/${name}`, {
    method: 'PUT',
    body,
    headers: { authorization: `Bearer ${server.token}`, 'x-atlas-sha256': hash(body), ...headers },
  });
}

/** Sends a path as it is: fetch would resolve `..` before it leaves. */
async function putRaw(path: string, body: string): Promise<number> {
  const { hostname, port } = new URL(server.deliverUrl);
  const outgoing = request({
    hostname,
    port,
    path,
    method: 'PUT',
    headers: { authorization: `Bearer ${server.token}`, 'x-atlas-sha256': hash(body) },
  });
  outgoing.end(body);
  const [response] = (await once(outgoing, 'response')) as [{ statusCode: number; resume(): void }];
  response.resume();
  return response.statusCode;
}

describe('the served file', () => {
  it('is sent whole, with what is needed to continue and to check it', async () => {
    const response = await get();
    expect(response.status).toBe(200);
    expect(Buffer.from(await response.arrayBuffer()).equals(CONTENT)).toBe(true);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'accept-ranges': 'bytes',
      'content-length': String(CONTENT.length),
      etag: `"${hash(CONTENT)}"`,
      'x-atlas-sha256': hash(CONTENT),
    });
    expect(server.bytesServed()).toBe(CONTENT.length);
  });

  it.each([
    ['bytes=1000000-', 1_000_000, 1_499_999],
    ['bytes=0-0', 0, 0],
    ['bytes=5-9999999', 5, 1_499_999],
    ['bytes=-100', 1_499_900, 1_499_999],
    ['bytes=-9999999', 0, 1_499_999],
  ])('is sent in part for %s', async (range, start, end) => {
    const response = await get({ range });
    expect(response.status).toBe(206);
    expect(response.headers.get('content-range')).toBe(`bytes ${start}-${end}/${CONTENT.length}`);
    expect(Buffer.from(await response.arrayBuffer()).equals(CONTENT.subarray(start, end + 1))).toBe(true);
    expect(server.bytesServed()).toBe(end - start + 1);
  });

  it.each(['bytes=1500000-', 'bytes=-0'])('has no part for %s', async (range) => {
    const response = await get({ range });
    expect(response.status).toBe(416);
    expect(response.headers.get('content-range')).toBe(`bytes */${CONTENT.length}`);
    await response.text();
  });

  it.each(['bytes=0-1,5-6', 'pages=1-2', 'bytes=9-5', 'bytes=-'])('is sent whole for the range %s', async (range) => {
    const response = await get({ range });
    expect(response.status).toBe(200);
    await response.arrayBuffer();
  });

  it('is sent whole when the part that the client has is of another version', async () => {
    const other = await get({ range: 'bytes=10-', 'if-range': '"other"' });
    expect(other.status).toBe(200);
    await other.arrayBuffer();
    const same = await get({ range: 'bytes=10-', 'if-range': `"${hash(CONTENT)}"` });
    expect(same.status).toBe(206);
    await same.arrayBuffer();
  });

  it('tells its size without being sent', async () => {
    const response = await get({}, 'HEAD');
    expect([response.status, response.headers.get('content-length')]).toEqual([200, String(CONTENT.length)]);
    expect(server.bytesServed()).toBe(0);
  });

  it.each([undefined, 'Bearer x', 'Basic abc', 'Bearer '])(
    'is refused with the credentials %j',
    async (authorization) => {
      const response = await fetch(server.fileUrl, authorization === undefined ? {} : { headers: { authorization } });
      expect(response.status).toBe(401);
      expect(await response.text()).not.toContain(server.token);
      expect(server.bytesServed()).toBe(0);
    },
  );

  it('does not count what a reader that went away did not take', async () => {
    const { hostname, port } = new URL(server.fileUrl);
    const outgoing = request({ hostname, port, path: '/file', headers: { authorization: `Bearer ${server.token}` } });
    outgoing.end();
    const [response] = (await once(outgoing, 'response')) as [NodeJS.ReadableStream & { destroy(): void }];
    await once(response, 'readable');
    response.destroy();
    await server.close();
    expect(server.bytesServed()).toBeLessThanOrEqual(CONTENT.length);
  });

  it('is the only thing there', async () => {
    const base = new URL('/', server.fileUrl).href;
    const headers = { authorization: `Bearer ${server.token}` };
    expect((await fetch(base, { headers })).status).toBe(404);
    expect((await fetch(`${base}artifacts/summary.md`, { headers })).status).toBe(405);
    expect((await fetch(server.fileUrl, { headers, method: 'DELETE' })).status).toBe(405);
  });
});

describe('artifacts', () => {
  it('are stored under their names', async () => {
    expect((await put('summary.md', '# Hi')).status).toBe(201);
    expect(await readFile(join(directory, 'summary.md'), 'utf8')).toBe('# Hi');
    expect(server.received().get('summary.md')).toEqual({ bytes: 4, sha256: hash('# Hi') });
  });

  it('may be sent again, and the last one counts', async () => {
    await put('text.txt', 'x'.repeat(900));
    expect((await put('text.txt', 'y'.repeat(100))).status).toBe(201);
    expect((await put('pages.jsonl', 'z'.repeat(800))).status).toBe(201);
    expect(await readFile(join(directory, 'text.txt'), 'utf8')).toBe('y'.repeat(100));
  });

  it.each([
    '/artifacts/../evil',
    '/artifacts/..',
    '/artifacts/%2e%2e%2fevil',
    '/artifacts/a/b',
    '/artifacts/.hidden',
    '/artifacts/',
    '/artifacts/UPPER',
    '/artifacts/a%00b',
    `/artifacts/${'a'.repeat(200)}`,
  ])('are refused at %s', async (path) => {
    expect(await putRaw(path, 'x')).toBe(400);
    expect(await readdir(directory)).toEqual([]);
  });

  it('are refused with another hash than announced, and leave nothing', async () => {
    expect((await put('text.txt', 'x', { 'x-atlas-sha256': hash('y') })).status).toBe(422);
    expect((await put('text.txt', 'x', { 'x-atlas-sha256': 'no' })).status).toBe(400);
    expect(await readdir(directory)).toEqual([]);
    expect(server.received().size).toBe(0);
  });

  it('are refused when they are too large, announced or not', async () => {
    expect(await putRaw('/artifacts/text.txt', 'x'.repeat(1_001))).toBe(413);
    await put('a.txt', 'x'.repeat(600));
    expect((await put('b.txt', 'x'.repeat(600))).status).toBe(413);
    const chunked = await fetch(`${server.deliverUrl}/c.txt`, {
      method: 'PUT',
      duplex: 'half',
      body: new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode('x'.repeat(900)));
          controller.close();
        },
      }),
      headers: { authorization: `Bearer ${server.token}`, 'x-atlas-sha256': hash('x'.repeat(900)) },
    });
    expect(chunked.status).toBe(413);
    expect(await readdir(directory)).toEqual(['a.txt']);
  });

  it('are refused without the token', async () => {
    expect((await put('text.txt', 'x', { authorization: 'Bearer no' })).status).toBe(401);
    expect(await readdir(directory)).toEqual([]);
  });
});

describe('the address', () => {
  it('is the loopback interface by default', () => {
    expect(server.fileUrl).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/file$/);
  });

  it('that is taken or not ours is a clear error', async () => {
    const port = Number(new URL(server.fileUrl).port);
    const options = { outputDirectory: directory };
    await expect(startTransferServer({ ...options, address: { host: '127.0.0.1', port } })).rejects.toMatchObject({
      code: 'ServeFailed',
      message: `The file can not be served on 127.0.0.1:${port}: the port is taken.`,
    });
  });

  it('that means every interface is named by one that can be called', async () => {
    const open = await startTransferServer({ outputDirectory: directory, address: { host: '0.0.0.0', port: 0 } });
    expect(open.fileUrl).not.toContain('0.0.0.0');
    await open.close();
  });

  it('serves no file where there is none to serve', async () => {
    const only = await startTransferServer({ outputDirectory: directory, address: DEFAULT_SERVE_ADDRESS });
    const response = await fetch(only.fileUrl, { headers: { authorization: `Bearer ${only.token}` } });
    expect(response.status).toBe(404);
    await only.close();
  });
});

describe('a password', () => {
  async function serve(password?: string): Promise<TransferServer> {
    const started = await startTransferServer({
      address: DEFAULT_SERVE_ADDRESS,
      ...(password === undefined ? {} : { password }),
    });
    onTestFinished(() => started.close());
    return started;
  }

  it('is given to whoever has the token, and is not to be stored on its way', async () => {
    const { passwordUrl, token } = await serve('open sesame \u00e9');
    const answer = await fetch(passwordUrl, { headers: { authorization: `Bearer ${token}` } });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await answer.text()).toBe('open sesame \u00e9');
  });

  it('is not given without the token, nor by another method', async () => {
    const { passwordUrl, token } = await serve('sesame');
    for (const headers of [{}, { authorization: 'Bearer wrong' }]) {
      const answer = await fetch(passwordUrl, { headers });
      expect(answer.status).toBe(401);
      expect(await answer.text()).not.toContain('sesame');
    }
    const put = await fetch(passwordUrl, { method: 'PUT', body: 'x', headers: { authorization: `Bearer ${token}` } });
    expect(put.status).toBe(404);
  });

  it('is not there when the document has none', async () => {
    const { passwordUrl, token } = await serve();
    expect((await fetch(passwordUrl, { headers: { authorization: `Bearer ${token}` } })).status).toBe(404);
  });

  it('is all there is where no artifacts are taken', async () => {
    const { deliverUrl, token } = await serve('sesame');
    const headers = { authorization: `Bearer ${token}`, 'x-atlas-sha256': hash('x') };
    expect((await fetch(`${deliverUrl}/a.txt`, { method: 'PUT', body: 'x', headers })).status).toBe(404);
  });
});
