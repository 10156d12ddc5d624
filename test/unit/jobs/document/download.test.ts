import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listedAddresses, publicAddresses } from '../../../../src/jobs/document/addresses.js';
import { diskOf } from '../../../../src/jobs/document/disk.js';
import {
  download,
  DOWNLOAD_LIMITS,
  NOT_MODIFIED,
  type Downloaded,
  type DownloadRequest,
} from '../../../../src/jobs/document/download.js';

const BODY = randomBytes(700_000);
const SHA256 = createHash('sha256').update(BODY).digest('hex');
const ETAG = '"version-1"';

let directory: string;
let target: string;
let server: Server;
let base: string;
let requests: IncomingMessage[];
let answer: (request: IncomingMessage, response: ServerResponse) => void;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-download-'));
  target = join(directory, 'document.pdf');
  requests = [];
  answer = whole;
  server = createServer((request, response) => {
    requests.push(request);
    answer(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await rm(directory, { recursive: true, force: true });
});

function whole(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-length': BODY.length, etag: ETAG });
  response.end(BODY);
}

/** Answers ranges of the body, as a server does that keeps its version. */
function ranged(request: IncomingMessage, response: ServerResponse, etag = ETAG): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  const held = request.headers['if-range'] === undefined || request.headers['if-range'] === etag;
  if (start === 0 || !held) {
    response.writeHead(200, { 'content-length': BODY.length, etag });
    response.end(BODY);
    return;
  }
  response.writeHead(206, {
    'content-length': BODY.length - start,
    'content-range': `bytes ${start}-${BODY.length - 1}/${BODY.length}`,
    etag,
  });
  response.end(BODY.subarray(start));
}

/** Sends this much and then cuts the connection, once it has been handed to the system. */
function cutAfter(
  bytes: number,
  response: ServerResponse,
  headers: Record<string, string | number> = { etag: ETAG },
): void {
  response.writeHead(200, { 'content-length': BODY.length, ...headers });
  response.write(BODY.subarray(0, bytes), () => response.socket?.end());
}

async function get(overrides: Partial<DownloadRequest> = {}): Promise<Downloaded> {
  const result = await download({
    url: `${base}/a.pdf`,
    target,
    policy: publicAddresses(['127.0.0.1']),
    limits: { ...DOWNLOAD_LIMITS, maxBytes: 10_000_000 },
    disk: diskOf(directory),
    signal: new AbortController().signal,
    ...overrides,
  });
  if (result === NOT_MODIFIED) throw new Error(result);
  return result;
}

const expected = { bytes: BODY.length, sha256: SHA256 };

describe('a download', () => {
  it('brings the document, and leaves nothing else', async () => {
    const seen: number[] = [];
    const result = await get({ onProgress: (done) => seen.push(done) });
    expect(result).toMatchObject({ bytes: BODY.length, sha256: SHA256, resumedBytes: 0, version: { etag: ETAG } });
    expect((await readFile(target)).equals(BODY)).toBe(true);
    expect(await readdir(directory)).toEqual(['document.pdf']);
    expect(seen.at(-1)).toBe(BODY.length);
  });

  it('sends the token, and asks for no encoding', async () => {
    await get({ token: 'secret', expected, policy: listedAddresses(['127.0.0.0/8']) });
    expect(requests[0]?.headers.authorization).toBe('Bearer secret');
    expect(requests[0]?.headers['accept-encoding']).toBe('identity');
  });

  it('follows redirects', async () => {
    answer = (request, response) => {
      if (request.url === '/real.pdf') whole(request, response);
      else response.writeHead(302, { location: '/real.pdf' }).end();
    };
    expect((await get()).sha256).toBe(SHA256);
  });
});

describe('a cut connection', () => {
  it('is continued in the same call where the server has a strong validator', async () => {
    answer = (request, response) => (requests.length === 1 ? cutAfter(300_000, response) : ranged(request, response));
    const result = await get();
    expect(result.sha256).toBe(SHA256);
    expect(result.resumedBytes).toBeGreaterThan(0);
    expect(requests[1]?.headers).toMatchObject({ range: `bytes=${result.resumedBytes}-`, 'if-range': ETAG });
    expect((await readFile(target)).equals(BODY)).toBe(true);
  });

  it('is continued by a later call', async () => {
    answer = (_request, response) => {
      if (requests.length === 1) cutAfter(300_000, response);
      else response.writeHead(503).end();
    };
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable', nonRetryable: false });
    answer = ranged;
    const result = await get();
    expect(result.resumedBytes).toBeGreaterThan(0);
    expect((await readFile(target)).equals(BODY)).toBe(true);
  });

  it('starts from zero when the document is another one by then', async () => {
    answer = (request, response) =>
      requests.length === 1 ? cutAfter(300_000, response, { etag: '"old"' }) : ranged(request, response);
    const result = await get();
    expect(requests[1]?.headers['if-range']).toBe('"old"');
    expect((await readFile(target)).equals(BODY)).toBe(true);
    expect(result.sha256).toBe(SHA256);
  });

  it('does not believe a range of another version', async () => {
    answer = (request, response) => {
      if (requests.length === 1) cutAfter(300_000, response, { etag: '"old"' });
      else {
        delete request.headers['if-range'];
        ranged(request, response);
      }
    };
    await expect(get()).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: expect.stringContaining('changed') as string,
    });
    expect(await readdir(directory)).toEqual([]);
    expect((await get()).sha256).toBe(SHA256);
  });

  it.each([
    ['a weak validator', { etag: 'W/"1"' }],
    ['no validator', {}],
    ['a date younger than a minute', { 'last-modified': new Date().toUTCString() }],
  ])('is not continued with %s', async (_what, headers) => {
    answer = (request, response) =>
      requests.length === 1 ? cutAfter(300_000, response, headers) : whole(request, response);
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable' });
    expect((await get()).resumedBytes).toBe(0);
    expect(requests[1]?.headers.range).toBeUndefined();
  });

  it('is continued without a validator when the hash is known', async () => {
    answer = (request, response) =>
      requests.length === 1 ? cutAfter(300_000, response, {}) : ranged(request, response);
    const result = await get({ expected });
    expect(result.resumedBytes).toBeGreaterThan(0);
    expect((await readFile(target)).equals(BODY)).toBe(true);
  });
});

describe('a server that does not keep to its word', () => {
  it('has another length than announced', async () => {
    await expect(get({ expected: { bytes: 10, sha256: SHA256 } })).rejects.toMatchObject({
      type: 'SourceChanged',
      nonRetryable: true,
    });
  });

  it('has another hash than announced, and its bytes are thrown away', async () => {
    await expect(get({ expected: { bytes: BODY.length, sha256: '0'.repeat(64) } })).rejects.toMatchObject({
      type: 'SourceChanged',
    });
    expect(await readdir(directory)).toEqual([]);
  });

  it('stalls', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': BODY.length });
      response.write(BODY.subarray(0, 1000));
    };
    await expect(get({ limits: { ...DOWNLOAD_LIMITS, maxBytes: 10_000_000, stallMs: 100 } })).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: expect.stringContaining('no byte arrived for 0.1 s') as string,
    });
  });

  it('never answers', async () => {
    answer = () => undefined;
    await expect(get({ limits: { ...DOWNLOAD_LIMITS, maxBytes: 10_000_000, stallMs: 100 } })).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: expect.stringContaining('the answer took longer') as string,
    });
  });

  it('sends more than the limit, announced or not', async () => {
    const limits = { ...DOWNLOAD_LIMITS, maxBytes: 500_000 };
    await expect(get({ limits })).rejects.toMatchObject({ type: 'TooLarge', nonRetryable: true });
    answer = (_request, response) => void response.writeHead(200).end(BODY);
    await expect(get({ limits })).rejects.toMatchObject({ type: 'TooLarge' });
  });

  it('redirects without end', async () => {
    answer = (_request, response) => void response.writeHead(302, { location: '/again' }).end();
    await expect(get()).rejects.toMatchObject({
      type: 'SourceRefused',
      message: expect.stringContaining('more than 5 times') as string,
    });
    expect(requests).toHaveLength(6);
  });

  it('redirects although it is the command line, which gets no second request with the token', async () => {
    answer = (_request, response) => void response.writeHead(302, { location: '/elsewhere' }).end();
    await expect(get({ token: 'secret', expected })).rejects.toMatchObject({ type: 'SourceRefused' });
    expect(requests).toHaveLength(1);
  });

  it('compresses although it was not asked to', async () => {
    answer = (_request, response) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end('x');
    await expect(get()).rejects.toMatchObject({ type: 'SourceRefused' });
  });
});

describe('a refusal', () => {
  it.each([401, 403, 404, 410])('with status %i is final', async (status) => {
    answer = (_request, response) => void response.writeHead(status).end();
    await expect(get()).rejects.toMatchObject({ type: 'SourceRefused', nonRetryable: true });
  });

  it.each([429, 500, 503])('with status %i may pass', async (status) => {
    answer = (_request, response) => void response.writeHead(status).end();
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable', nonRetryable: false });
  });

  it('of the connection says so', async () => {
    server.close();
    await once(server, 'close');
    await expect(get()).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: `${base}/a.pdf could not be fetched: the connection was refused.`,
    });
  });

  it('of an address needs no connection', async () => {
    await expect(get({ policy: publicAddresses([]) })).rejects.toMatchObject({
      type: 'AddressRefused',
      nonRetryable: true,
    });
    await expect(
      get({ policy: publicAddresses([]), url: base.replace('127.0.0.1', 'localhost') }),
    ).rejects.toMatchObject({
      type: 'AddressRefused',
    });
    expect(requests).toHaveLength(0);
  });

  it('of the address that a redirect leads to', async () => {
    const port = (server.address() as AddressInfo).port;
    answer = (_request, response) =>
      void response.writeHead(302, { location: `http://127.0.0.2:${port}/metadata` }).end();
    await expect(get()).rejects.toMatchObject({
      type: 'AddressRefused',
      message: expect.stringContaining('127.0.0.2') as string,
    });
    expect(requests).toHaveLength(1);
  });

  it.each(['ftp://127.0.0.1/a.pdf', 'file:///etc/passwd'])('of %s', async (url) => {
    await expect(get({ url })).rejects.toMatchObject({ type: 'SourceRefused' });
  });

  it('keeps a password and a query out of its message', async () => {
    answer = (_request, response) => void response.writeHead(404).end();
    const url = `${base.replace('//', '//user:hidden@')}/a.pdf?key=hidden`;
    await expect(get({ url })).rejects.toThrow(/^(?!.*hidden).*404/);
  });
});

it('an abort ends the transfer with the reason', async () => {
  const controller = new AbortController();
  answer = (_request, response) => {
    response.writeHead(200, { 'content-length': BODY.length });
    response.write(BODY.subarray(0, 1000));
  };
  const reason = new Error('released');
  const running = get({
    signal: controller.signal,
    onProgress: (done) => {
      if (done > 0) controller.abort(reason);
    },
  });
  await expect(running).rejects.toBe(reason);
});
