/** The cache of documents, alone and through the activity that fetches: what is downloaded is counted at the server. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { link, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { DocumentSource } from '../../../../src/contract/document.js';
import {
  deliverDocument,
  downloadDocument,
  extractPages,
  summarizeDocument,
} from '../../../../src/jobs/document/activities.js';
import { DocumentCache } from '../../../../src/jobs/document/fetch/cache.js';
import { diskOf, type Disk } from '../../../../src/jobs/document/fetch/disk.js';
import { openSession, type TestSession } from '../../../support/document-session.js';
import { makePdf } from '../../../support/pdf.js';

function sha256Of(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

describe('the cache', () => {
  let directory: string;
  let scratch: string;
  let problems: unknown[];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'atlas-cache-'));
    scratch = await mkdtemp(join(tmpdir(), 'atlas-cache-scratch-'));
    problems = [];
  });
  afterEach(async () => {
    await rm(directory, { recursive: true });
    await rm(scratch, { recursive: true });
  });

  function open(maxBytes = 1_000_000): Promise<DocumentCache> {
    return DocumentCache.open({ directory, maxBytes, onProblem: (error) => problems.push(error) });
  }

  /** A document on the scratch disk, put into the cache, last used this long ago. */
  async function put(cache: DocumentCache, content: Buffer, usedSecondsAgo = 0): Promise<string> {
    const sha256 = sha256Of(content);
    const path = join(scratch, sha256);
    await writeFile(path, content);
    await cache.put(path, { bytes: content.length, sha256 });
    await rm(path);
    const used = new Date(Date.now() - usedSecondsAgo * 1000);
    await utimes(join(directory, `document-${sha256}`), used, used);
    return sha256;
  }

  const target = (): string => join(scratch, 'document.pdf');
  const to = (): { target: string; disk: Disk; signal: AbortSignal } => ({
    target: target(),
    disk: diskOf(scratch),
    signal: new AbortController().signal,
  });

  it('gives back what was put, as the same file, and notes the use', async () => {
    const cache = await open();
    const content = randomBytes(300_000);
    const sha256 = await put(cache, content, 5000);
    expect(await cache.take(sha256, to())).toEqual({ bytes: content.length, sha256 });
    expect((await readFile(target())).equals(content)).toBe(true);
    const entry = await stat(join(directory, `document-${sha256}`));
    expect((await stat(target())).ino).toBe(entry.ino);
    expect(Date.now() - entry.mtimeMs).toBeLessThan(1_000_000);
    expect(entry.mode & 0o777).toBe(0o400);
    expect(await readdir(scratch)).toEqual(['document.pdf']);
    expect(problems).toEqual([]);
  });

  it('has nothing of what was not put', async () => {
    expect(await (await open()).take(sha256Of(Buffer.from('x')), to())).toBeUndefined();
    expect(problems).toEqual([]);
  });

  it('drops an entry that is damaged, and says so', async () => {
    const cache = await open();
    const content = randomBytes(1000);
    const sha256 = await put(cache, content);
    const entry = join(directory, `document-${sha256}`);
    await rm(entry);
    content[500]! ^= 1;
    await writeFile(entry, content);
    expect(await cache.take(sha256, to())).toBeUndefined();
    expect(await readdir(directory)).toEqual([]);
    expect(await readdir(scratch)).toEqual([]);
    expect(String(problems[0])).toContain('it was deleted');
  });

  it('notices bytes that were changed through the link that a session has', async () => {
    const cache = await open();
    const sha256 = await put(cache, randomBytes(1000));
    await cache.take(sha256, to());
    const { chmod } = await import('node:fs/promises');
    await chmod(target(), 0o600);
    await writeFile(target(), 'other bytes', { flag: 'r+' });
    await rm(target());
    expect(await cache.take(sha256, to())).toBeUndefined();
  });

  it('stays within its bound: what was not used for longest goes first', async () => {
    const cache = await open(2500);
    const old = await put(cache, randomBytes(1000), 30);
    const middle = await put(cache, randomBytes(1000), 20);
    await cache.take(old, to());
    const young = await put(cache, randomBytes(1000));
    expect((await readdir(directory)).toSorted()).toEqual([old, young].map((hash) => `document-${hash}`).toSorted());
    expect(await cache.take(middle, to())).toBeUndefined();
    expect(problems).toEqual([]);
  });

  it('takes nothing that is larger than its bound', async () => {
    const cache = await open(999);
    const content = randomBytes(1000);
    await writeFile(target(), content);
    await cache.put(target(), { bytes: 1000, sha256: sha256Of(content) });
    expect(await readdir(directory)).toEqual([]);
  });

  it('comes within a bound that was lowered, and leaves what is not its own', async () => {
    await put(await open(), randomBytes(1000));
    await writeFile(join(directory, 'models'), 'x'.repeat(5000));
    await open(500);
    expect(await readdir(directory)).toEqual(['models']);
  });

  it('is empty and gives nothing when it is off', async () => {
    const sha256 = await put(await open(), randomBytes(1000));
    const off = await open(0);
    expect(await readdir(directory)).toEqual([]);
    await writeFile(join(directory, `document-${sha256}`), 'x');
    expect(await off.take(sha256, to())).toBeUndefined();
    expect(await off.remembered('http://127.0.0.1/')).toBeUndefined();
  });

  it('makes room for others as far as that helps, and not more', async () => {
    const cache = await open();
    const [one, two, three] = [
      await put(cache, randomBytes(1000), 30),
      await put(cache, randomBytes(1000), 20),
      await put(cache, randomBytes(1000), 10),
    ];
    // A session has the oldest: deleting it here frees nothing.
    await link(join(directory, `document-${one}`), target());
    const free = async (): Promise<number> => 10_000 - 1000 * (await readdir(directory)).length;
    await cache.makeRoom(7500, { free });
    expect((await readdir(directory)).toSorted()).toEqual([one, three].map((hash) => `document-${hash}`).toSorted());
    await cache.makeRoom(1e9, { free });
    expect(await readdir(directory)).toEqual([`document-${one}`]);
    expect(two).not.toBe(three);
  });

  it('remembers what an address had, and gives neither the address nor a token away', async () => {
    const cache = await open();
    const sha256 = await put(cache, randomBytes(1000));
    const url = 'https://user:secret@example.org/private/name.pdf?key=hidden';
    const known = { version: { etag: '"1"', place: 'p' }, sha256, bytes: 1000 };
    await cache.remember(url, known);
    expect(await cache.remembered(url)).toEqual(known);
    expect(await cache.remembered(`${url}x`)).toBeUndefined();
    const names = await readdir(directory);
    const everything = [names, ...(await Promise.all(names.map((name) => readFile(join(directory, name), 'latin1'))))];
    expect(everything.join('\n')).not.toMatch(/secret|hidden|example|private/);
    await rm(join(directory, `document-${sha256}`));
    expect(await cache.remembered(url)).toBeUndefined();
    expect(await readdir(directory)).toEqual([]);
  });

  it('holds with several sessions at once', async () => {
    const contents = Array.from({ length: 6 }, () => randomBytes(20_000));
    const caches = await Promise.all(contents.map(() => open(70_000)));
    await Promise.all(
      caches.flatMap((cache, session) =>
        contents.map(async (content, index) => {
          const own = join(scratch, `${session}-${index}`);
          const sha256 = sha256Of(content);
          await writeFile(own, content);
          await cache.put(own, { bytes: content.length, sha256 });
          const taken = await cache.take(sha256, { ...to(), target: `${own}.taken` });
          // It may have been evicted by another; what comes is right.
          if (taken !== undefined) expect(sha256Of(await readFile(`${own}.taken`))).toBe(sha256);
        }),
      ),
    );
    const names = await readdir(directory);
    const sizes = await Promise.all(names.map(async (name) => (await stat(join(directory, name))).size));
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(70_000);
    for (const name of names) expect(name).toBe(`document-${sha256Of(await readFile(join(directory, name)))}`);
    expect(problems).toEqual([]);
  });

  it('does no harm where its directory can not be used', async () => {
    await rm(directory, { recursive: true });
    await writeFile(directory, 'a file');
    const cache = await open();
    await writeFile(target(), 'x');
    await cache.put(target(), { bytes: 1, sha256: sha256Of(Buffer.from('x')) });
    expect(await cache.take(sha256Of(Buffer.from('x')), to())).toBeUndefined();
    expect(problems.length).toBeGreaterThan(1);
    await rm(directory);
    await writeFile(directory, '');
  });

  it('ends with the reason of an abort', async () => {
    const cache = await open();
    const sha256 = await put(cache, randomBytes(1000));
    const reason = new Error('released');
    await expect(cache.take(sha256, { ...to(), signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(await readdir(scratch)).toEqual([]);
    expect(problems).toEqual([]);
  });
});

describe('a document that was fetched before', () => {
  const PDF = makePdf([['The harbour has forty berths on a coast with few safe places to land.']]);
  const OTHER = makePdf([['The harbour master is the only person who may give a berth away in a storm.']]);
  let session: TestSession;
  let server: Server;
  let url: string;
  let content: Buffer;
  let headers: Record<string, string>;
  let sentBytes: number;
  let requests: IncomingMessage[];

  beforeEach(async () => {
    session = await openSession();
    vi.stubEnv('ATLAS_DOCUMENT_ALLOW_URLS', '127.0.0.0/8');
    content = PDF;
    headers = { etag: '"one"' };
    sentBytes = 0;
    requests = [];
    server = createServer(answer);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/report.pdf?key=hidden`;
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    server.closeAllConnections();
    server.close();
    await session.close();
  });

  function answer(request: IncomingMessage, response: ServerResponse): void {
    requests.push(request);
    const { 'if-none-match': tag, 'if-modified-since': since } = request.headers;
    const isSame =
      tag === undefined ? since !== undefined && since === headers['last-modified'] : tag === headers['etag'];
    if (isSame) {
      response.writeHead(304, headers).end();
      return;
    }
    sentBytes += content.length;
    response.writeHead(200, { 'content-length': content.length, ...headers }).end(content);
  }

  /** What a new session on the same worker does; returns how many bytes it made the server send. */
  async function run(source: DocumentSource = { kind: 'url', url }): Promise<{ sent: number; cached: boolean }> {
    const before = sentBytes;
    for (const name of await readdir(session.scratch)) await rm(join(session.scratch, name), { recursive: true });
    const document = await session.run(downloadDocument, source);
    const path = join(session.scratch, 'document.pdf');
    expect(sha256Of(await readFile(path))).toBe(document.sha256);
    expect(document.sha256).toBe(sha256Of(content));
    const notes = JSON.parse(await readFile(join(session.scratch, 'document.json'), 'utf8')) as { cached: boolean };
    return { sent: sentBytes - before, cached: notes.cached };
  }

  const cached = { sent: 0, cached: true };
  const fetched = (): { sent: number; cached: boolean } => ({ sent: content.length, cached: false });

  it('is asked for by its tag and not sent again', async () => {
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(cached);
    expect(requests.map((request) => request.headers['if-none-match'])).toEqual([undefined, '"one"']);
    expect(session.reports.at(-1)).toEqual({
      done: PDF.length,
      total: PDF.length,
      unit: 'bytes',
      note: 'from the cache',
    });
    expect((await readdir(session.worker.cacheDirectory)).join()).not.toContain('hidden');
  });

  it('is asked for by its date where it has no strong tag', async () => {
    headers = { etag: 'W/"one"', 'last-modified': 'Tue, 01 Jan 2019 00:00:00 GMT' };
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(cached);
    expect(requests[1]?.headers['if-modified-since']).toBe('Tue, 01 Jan 2019 00:00:00 GMT');
  });

  it('is fetched again where nothing tells its version', async () => {
    headers = {};
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(fetched());
    expect(await readdir(session.worker.cacheDirectory).catch(() => [])).toEqual([]);
  });

  it('is fetched again when it is another one by then, and that is remembered', async () => {
    await run();
    content = OTHER;
    headers = { etag: '"two"' };
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(cached);
  });

  it('is not believed to be the same when the 304 names another version', async () => {
    await run();
    content = OTHER;
    server.removeAllListeners('request');
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (request.headers['if-none-match'] !== undefined) response.writeHead(304, { etag: '"two"' }).end();
      else response.writeHead(200, { 'content-length': content.length, etag: '"two"' }).end(content);
    });
    expect(await run()).toMatchObject({ cached: false });
  });

  it('is not asked for by the tag of the place that another redirect leads to', async () => {
    let place = '/a.pdf';
    server.removeAllListeners('request');
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (request.url?.startsWith('/report.pdf') === true) response.writeHead(302, { location: place }).end();
      else answer(request, response);
    });
    expect(await run()).toEqual(fetched());
    // A store that signs each address anew is still the same place.
    place = '/a.pdf?signature=2';
    expect(await run()).toEqual(cached);
    content = OTHER;
    place = '/b.pdf';
    expect(await run()).toEqual(fetched());
    expect(requests.map((request) => request.headers['if-none-match'])).toEqual([undefined, '"one"', undefined]);
  });

  it('is fetched again when the entry is damaged', async () => {
    await run();
    const entry = join(session.worker.cacheDirectory, `document-${sha256Of(PDF)}`);
    await rm(entry);
    await writeFile(entry, Buffer.alloc(PDF.length));
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(cached);
  });

  it('is not asked for at all when its hash is known', async () => {
    const source = { kind: 'url', url, sha256: sha256Of(PDF).toUpperCase() } as const;
    headers = {};
    expect(await run(source)).toEqual(fetched());
    expect(await run(source)).toEqual(cached);
    const served = {
      kind: 'served',
      url,
      token: 'secret',
      bytes: PDF.length,
      sha256: sha256Of(PDF),
      name: 'a.pdf',
    } as const;
    expect(await run(served)).toEqual(cached);
    expect(requests).toHaveLength(1);
  });

  it('is refused all the same where its address may not be connected to', async () => {
    const source = { kind: 'url', url, sha256: sha256Of(PDF) } as const;
    await run(source);
    vi.stubEnv('ATLAS_DOCUMENT_ALLOW_URLS', '');
    await expect(run(source)).rejects.toMatchObject({ type: 'AddressRefused' });
  });

  it('has the announced length too', async () => {
    await run({ kind: 'url', url, sha256: sha256Of(PDF) });
    const served = { kind: 'served', url, token: 'secret', bytes: 5, sha256: sha256Of(PDF), name: 'a.pdf' } as const;
    await expect(run(served)).rejects.toMatchObject({ type: 'SourceChanged' });
  });

  it('is not kept when it turns out to be none', async () => {
    content = Buffer.from('<!DOCTYPE html>');
    await expect(run()).rejects.toMatchObject({ type: 'NotAPdf' });
    expect(await readdir(session.worker.cacheDirectory).catch(() => [])).toEqual([]);
  });

  it('is not kept when the cache is off', async () => {
    vi.stubEnv('ATLAS_DOCUMENT_CACHE_BYTES', '0');
    expect(await run()).toEqual(fetched());
    expect(await run()).toEqual(fetched());
    expect(requests[1]?.headers['if-none-match']).toBeUndefined();
  });

  it('is too large when the limit was lowered since', async () => {
    await run();
    vi.stubEnv('ATLAS_DOCUMENT_MAX_BYTES', '100');
    await expect(run()).rejects.toMatchObject({ type: 'TooLarge' });
  });

  it('is said to be from the cache in the report', async () => {
    await run();
    const document = await session.run(downloadDocument, { kind: 'url', url } as const);
    await run();
    await session.run(extractPages, { document, language: 'eng' });
    await session.run(summarizeDocument, { document, sentences: 1 });
    const { artifacts } = await session.run(deliverDocument, {});
    const report = await readFile(join(session.worker.keptDirectory, artifacts.id, 'report.json'), 'utf8');
    expect(JSON.parse(report)).toMatchObject({ document: { source: 'url', cached: true } });
  });

  it.each(['../../etc/passwd', 'ab', ''])('has no hash such as %j', async (sha256) => {
    await expect(run({ kind: 'url', url, sha256 })).rejects.toMatchObject({ type: 'SourceRefused' });
  });

  it('of an unknown kind of source is refused', async () => {
    const source = { kind: 'constructor', bucket: 'b' } as unknown as DocumentSource;
    await expect(run(source)).rejects.toMatchObject({ type: 'SourceRefused' });
  });

  it('is another one than its hash says: refused, and nothing of it is left', async () => {
    await expect(run({ kind: 'url', url, sha256: sha256Of(OTHER) })).rejects.toMatchObject({
      type: 'SourceChanged',
      nonRetryable: true,
    });
    expect(await readdir(session.scratch)).toEqual([]);
  });
});
