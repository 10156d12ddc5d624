import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure } from '@temporalio/common';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listedAddresses, publicAddresses } from '../../../../src/jobs/document/fetch/addresses.js';
import { DISK_RESERVE_BYTES, diskOf, type Disk } from '../../../../src/jobs/document/fetch/disk.js';
import {
  download,
  DOWNLOAD_LIMITS,
  NOT_MODIFIED,
  type Downloaded,
  type DownloadRequest,
} from '../../../../src/jobs/document/fetch/download.js';
import { canMount, mountDisk, unmountDisk } from '../../../support/disks.js';

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

describe('a part', () => {
  /** Leaves a part of the body as an attempt does that ends with the connection. */
  async function leavePart(bytes: number, headers: Record<string, string> = { etag: ETAG }): Promise<void> {
    requests = [];
    answer = (_request, response) => {
      if (requests.length === 1) cutAfter(bytes, response, headers);
      else response.writeHead(503).end();
    };
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable' });
    requests = [];
    answer = ranged;
  }

  it('that has all bytes is the document when the server still has that version', async () => {
    await leavePart(BODY.length - 1);
    await writeFile(`${target}.part`, BODY);
    answer = (request, response) => {
      if (request.headers['if-none-match'] === ETAG) response.writeHead(304, { etag: ETAG }).end();
      else ranged(request, response);
    };
    expect(await get()).toMatchObject({ bytes: BODY.length, sha256: SHA256, resumedBytes: BODY.length });
    expect(requests.map((request) => request.headers.range)).toEqual([undefined]);
  });

  it('that has all bytes is thrown away when the server has another version', async () => {
    await leavePart(BODY.length - 1);
    await writeFile(`${target}.part`, Buffer.alloc(BODY.length));
    answer = (request, response) => ranged(request, response, '"version-2"');
    expect(await get()).toMatchObject({ sha256: SHA256, resumedBytes: 0 });
  });

  it('is not continued at another place that uses the same words for its version', async () => {
    await leavePart(300_000);
    const other = randomBytes(BODY.length);
    answer = (request, response) => {
      if (request.url === '/a.pdf') {
        response.writeHead(302, { location: '/mirror.pdf' }).end();
        return;
      }
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
      response.writeHead(start === 0 ? 200 : 206, {
        'content-length': other.length - start,
        'content-range': `bytes ${start}-${other.length - 1}/${other.length}`,
        etag: ETAG,
      });
      response.end(other.subarray(start));
    };
    await get();
    expect((await readFile(target)).equals(other)).toBe(true);
  });

  it.each([
    ['tag', { etag: ETAG }],
    ['date', { 'last-modified': 'Tue, 01 Jan 2019 00:00:00 GMT' }],
  ])('is not continued with a range that does not say of which version it is (%s)', async (_what, headers) => {
    await leavePart(300_000, headers);
    // It knows ranges and no If-Range, and has another document of the same length by now.
    answer = (request, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
      response.writeHead(206, {
        'content-length': BODY.length - start,
        'content-range': `bytes ${start}-${BODY.length - 1}/${BODY.length}`,
      });
      response.end(Buffer.alloc(BODY.length - start));
    };
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable' });
    expect(await readdir(directory)).toEqual([]);
  });

  it('does not outlive the beginning of another version', async () => {
    await leavePart(300_000);
    answer = (request, response) => ranged(request, response, '"version-2"');
    const broken = { ...diskOf(directory), free: () => Promise.reject(new Error('the host ends')) };
    await expect(get({ disk: broken })).rejects.toThrow('the host ends');
    await expect(readFile(`${target}.part`)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('that turns out to be wrong does not make the server wrong', async () => {
    await leavePart(300_000);
    await writeFile(`${target}.part`, Buffer.alloc(300_000));
    await expect(get({ expected: { sha256: SHA256 } })).rejects.toMatchObject({
      type: 'SourceUnreachable',
      nonRetryable: false,
    });
    expect(await get({ expected: { sha256: SHA256 } })).toMatchObject({ sha256: SHA256, resumedBytes: 0 });
  });

  it('grows by as much as the server gives at a time', async () => {
    await leavePart(300_000);
    answer = (request, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1]);
      const end = Math.min(start + 150_000, BODY.length);
      response.writeHead(206, {
        'content-length': end - start,
        'content-range': `bytes ${start}-${end - 1}/${BODY.length}`,
        etag: ETAG,
      });
      response.end(BODY.subarray(start, end));
    };
    expect((await get()).sha256).toBe(SHA256);
    expect((await readFile(target)).equals(BODY)).toBe(true);
    expect(requests.length).toBeGreaterThan(2);
  });

  it('of an address is not that of another', async () => {
    await leavePart(300_000);
    await get({ url: `${base}/b.pdf` });
    expect(requests[0]?.headers.range).toBeUndefined();
  });

  it.each([206, 416])('that was not asked for (%i) is no document', async (status) => {
    answer = (_request, response) => void response.writeHead(status, { 'content-range': 'bytes 0-0/1' }).end('x');
    await expect(get()).rejects.toMatchObject({ type: 'SourceRefused' });
    expect(await readdir(directory)).toEqual([]);
  });

  it('of a slow source is on the disk before the connection ends', async () => {
    const written = new Promise<void>((resolve) => {
      answer = (_request, response) => {
        response.writeHead(200, { 'content-length': BODY.length, etag: ETAG });
        const drip = setInterval(() => {
          response.write(BODY.subarray(0, 100));
          void stat(`${target}.part`).then(
            ({ size }) => {
              if (size === 0) return;
              clearInterval(drip);
              resolve();
            },
            () => undefined,
          );
        }, 50);
        response.on('close', () => clearInterval(drip));
      };
    });
    const controller = new AbortController();
    const running = get({ signal: controller.signal });
    await written;
    controller.abort(new Error('enough'));
    await expect(running).rejects.toThrow('enough');
  });
});

/** For random versions, cuts and habits of a server. */
it('brings one version of the document, or says that it could not', async () => {
  const connection = fc.record({
    /** Another version from this request on. */
    changes: fc.boolean(),
    /** After how much of what it sends it cuts; 1 for not at all. */
    cutAt: fc.oneof(fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true })),
    honoursRange: fc.boolean(),
    honoursIfRange: fc.boolean(),
    /** Whether a 206 repeats what names the version. */
    repeats: fc.boolean(),
    announcesLength: fc.boolean(),
  });
  const habits = fc.constantFrom<'etag' | 'date' | 'weak' | 'none'>('etag', 'date', 'weak', 'none');
  await fc.assert(
    fc.asyncProperty(
      fc.array(connection, { minLength: 1, maxLength: 8 }),
      habits,
      fc.boolean(),
      fc.constantFrom(1, 1, 2),
      async (plan, habit, knowsHash, growth) => {
        await rm(`${target}.part`, { force: true });
        let version = 0;
        let count = 0;
        const bodyOf = (number: number): Buffer => Buffer.alloc(2000 + (number % growth) * 500, `${number}-`);
        answer = (request, response) => {
          const step = plan[count] ?? { ...plan.at(-1)!, changes: false, cutAt: 1 };
          count += 1;
          if (step.changes && !knowsHash) version += 1;
          const body = bodyOf(version);
          const etag = `"${version}"`;
          const date = new Date(Date.UTC(2019, 0, 1, 0, version)).toUTCString();
          const names: Record<string, string> =
            habit === 'etag'
              ? { etag }
              : habit === 'weak'
                ? { etag: `W/${etag}` }
                : habit === 'date'
                  ? { 'last-modified': date }
                  : {};
          const asked = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
          const condition = request.headers['if-range'];
          const holds =
            !step.honoursIfRange || condition === undefined || condition === (habit === 'date' ? date : etag);
          const start = step.honoursRange && holds ? asked : 0;
          if (start > body.length - 1) {
            response.writeHead(416, { 'content-range': `bytes */${body.length}` }).end();
            return;
          }
          const rest = body.subarray(start);
          response.writeHead(start > 0 ? 206 : 200, {
            ...(start > 0 ? { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` } : {}),
            ...(start === 0 || step.repeats ? names : {}),
            ...(step.announcesLength ? { 'content-length': rest.length } : {}),
          });
          const sent = Math.floor(rest.length * step.cutAt);
          if (step.cutAt === 1) response.end(rest);
          else if (sent === 0) response.flushHeaders();
          if (step.cutAt < 1 && sent > 0) response.write(rest.subarray(0, sent));
          if (step.cutAt < 1) setImmediate(() => response.socket?.destroySoon());
        };
        const expectedHash = createHash('sha256').update(bodyOf(0)).digest('hex');
        for (let attempt = 0; attempt < 4; attempt += 1) {
          const outcome = await get(knowsHash ? { expected: { sha256: expectedHash } } : {}).catch(
            (error: unknown) => error,
          );
          if (outcome instanceof ApplicationFailure) {
            expect(outcome.type).toBe('SourceUnreachable');
            continue;
          }
          if (outcome instanceof Error) throw outcome;
          const got = await readFile(target);
          expect(got.equals(bodyOf(version))).toBe(true);
          expect(outcome).toMatchObject({ bytes: got.length });
          expect((await readdir(directory)).filter((name) => name !== 'document.pdf')).toEqual([]);
          return;
        }
      },
    ),
    { numRuns: 150 },
  );
});

describe('the disk', () => {
  const MIB = 1024 * 1024;
  /** Never the same twice, so that a batch in the wrong place is seen. */
  function* blocks(count: number): Generator<Buffer> {
    for (let index = 0; index < count; index += 1) yield Buffer.alloc(MIB, `block ${index};`);
  }
  const stream = (count: number, headers: Record<string, string> = {}) => {
    answer = (_request, response) => {
      response.writeHead(200, headers);
      Readable.from(blocks(count)).pipe(response);
    };
  };
  const limits = { ...DOWNLOAD_LIMITS, maxBytes: 1e9 };
  /** A disk that has this much room until something is written to it. */
  const shrinking = (room: number): Disk => ({
    directory,
    free: async () => room - (await stat(`${target}.part`).catch(() => ({ size: 0 }))).size,
    makeRoom: () => Promise.resolve(),
  });

  it('takes a long document in the right order', async () => {
    stream(40);
    const { sha256 } = await get({ limits });
    const hash = createHash('sha256');
    for (const block of blocks(40)) hash.update(block);
    const wanted = hash.digest('hex');
    expect(sha256).toBe(wanted);
    expect(
      createHash('sha256')
        .update(await readFile(target))
        .digest('hex'),
    ).toBe(wanted);
  });

  it('is looked at before anything is written', async () => {
    await expect(get({ disk: shrinking(BODY.length + DISK_RESERVE_BYTES - 1) })).rejects.toMatchObject({
      type: 'OutOfDisk',
      nonRetryable: false,
    });
    expect(await readdir(directory)).toEqual([]);
    expect(await get({ disk: shrinking(BODY.length + DISK_RESERVE_BYTES) })).toMatchObject({ sha256: SHA256 });
  });

  it('is looked at again while a document of unknown length comes in, and gets its room back', async () => {
    stream(60);
    await expect(get({ limits, disk: shrinking(20 * MIB + DISK_RESERVE_BYTES) })).rejects.toMatchObject({
      type: 'OutOfDisk',
    });
    expect(await readdir(directory)).toEqual([]);
  });

  it('keeps a part that can be continued while only the reserve is short', async () => {
    stream(60, { etag: ETAG });
    await expect(get({ limits, disk: shrinking(20 * MIB + DISK_RESERVE_BYTES) })).rejects.toMatchObject({
      type: 'OutOfDisk',
    });
    expect((await readdir(directory)).toSorted()).toEqual(['document.pdf.part', 'document.pdf.part.json']);
  });

  it('is asked to make room first', async () => {
    stream(40);
    let room = 20 * MIB + DISK_RESERVE_BYTES;
    let asked = 0;
    const disk: Disk = {
      directory,
      free: () => shrinking(room).free(),
      makeRoom: () => {
        asked += 1;
        room = 1e9;
        return Promise.resolve();
      },
    };
    expect(await get({ limits, disk })).toMatchObject({ bytes: 40 * MIB });
    expect(asked).toBe(1);
  });

  it('may be slow without that being the fault of the server', async () => {
    stream(40);
    // The server runs in this process too: a pause of it must be no stall.
    const stallMs = 2_000;
    let pauseMs = 1.25 * stallMs;
    const slow: Disk = {
      ...diskOf(directory),
      free: async () => {
        await sleep(pauseMs);
        pauseMs = 0;
        return 1e12;
      },
    };
    expect(await get({ limits: { ...limits, stallMs }, disk: slow })).toMatchObject({ bytes: 40 * MIB });
  });

  describe.skipIf(!canMount())('that is a real one of 16 MiB', () => {
    beforeEach(() => mountDisk(directory, 16 * MIB));
    afterEach(() => unmountDisk(directory));
    /** As if the look at the room came too late. */
    const blind = (makeRoom: () => Promise<void> = () => Promise.resolve()): Disk => ({
      directory,
      free: () => Promise.resolve(1e12),
      makeRoom,
    });

    it('has too little room by itself', async () => {
      await expect(get()).rejects.toMatchObject({ type: 'OutOfDisk' });
    });

    it.each([{}, { etag: ETAG }])('is empty again when it was full (%o)', async (headers) => {
      stream(30, headers);
      await expect(get({ limits, disk: blind() })).rejects.toMatchObject({ type: 'OutOfDisk' });
      expect(await readdir(directory)).toEqual([]);
    });

    it('goes on when room is made while it is full', async () => {
      stream(12);
      const filler = join(directory, 'filler');
      await writeFile(filler, Buffer.alloc(8 * MIB));
      expect(await get({ limits, disk: blind(() => rm(filler, { force: true })) })).toMatchObject({ bytes: 12 * MIB });
      const hash = createHash('sha256');
      for (const block of blocks(12)) hash.update(block);
      expect(
        createHash('sha256')
          .update(await readFile(target))
          .digest('hex'),
      ).toBe(hash.digest('hex'));
    });
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

  it('announces more than it has', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': BODY.length + 1000, etag: ETAG });
      response.write(BODY, () => response.socket?.end());
    };
    await expect(get()).rejects.toMatchObject({ type: 'SourceUnreachable', nonRetryable: false });
    await expect(readFile(target)).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('announces less than it has: what is known of the document tells', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': 1000 });
      response.flushHeaders();
      response.socket?.write(BODY);
    };
    await expect(get({ expected: { sha256: SHA256 } })).rejects.toMatchObject({ type: 'SourceChanged' });
    await expect(get({ expected })).rejects.toMatchObject({ type: 'SourceChanged' });
    expect(await readdir(directory)).toEqual([]);
  });

  it('goes on sending for ever, and too little to get anywhere', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': BODY.length, etag: ETAG });
      response.write(BODY.subarray(0, 1000), () => response.socket?.end());
    };
    const resumes = 3;
    await expect(get({ limits: { ...DOWNLOAD_LIMITS, maxBytes: 10_000_000, resumes } })).rejects.toMatchObject({
      type: 'SourceUnreachable',
    });
    expect(requests.length).toBeLessThanOrEqual(resumes + 1);
  });

  it('stalls', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': BODY.length });
      response.write(BODY.subarray(0, 1000));
    };
    // Long enough for the answer to begin on a busy machine.
    await expect(get({ limits: { ...DOWNLOAD_LIMITS, maxBytes: 10_000_000, stallMs: 2_000 } })).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: expect.stringContaining('no byte arrived for 2 s') as string,
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
