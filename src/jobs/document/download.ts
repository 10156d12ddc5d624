/**
 * Fetches a document over http(s) to a file, and does not call it there before it is whole.
 *
 * Owns: the partial file and its notes, ranges and validators, redirects, and every bound of a transfer. The bytes go
 * to `<target>.part`; `<target>.part.json` says which version of the document they belong to. A part is continued only
 * when the server can be held to that version (a strong validator with If-Range, or a hash known beforehand); in any
 * doubt the transfer starts from zero.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { open, rename, rm, stat, statfs } from 'node:fs/promises';
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { dirname } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { checkHost, guardedLookup, type AddressPolicy } from './addresses.js';
import { failure, isFailure, messageOf, systemCode } from './failure.js';
import { diskFailure, readJson, syncDirectory, writeFileAtomic } from './files.js';

export interface DownloadLimits {
  readonly maxBytes: number;
  /** How long no byte may arrive, from the request on. */
  readonly stallMs: number;
  readonly connectMs: number;
  readonly redirects: number;
  /** How many times one call continues after a cut connection that had brought bytes. */
  readonly resumes: number;
}

export const DOWNLOAD_LIMITS: Omit<DownloadLimits, 'maxBytes'> = {
  stallMs: 30_000,
  connectMs: 10_000,
  redirects: 5,
  resumes: 20,
};

/** Room that is left free on the disk for everything else: the artifacts, the ledger of the daemon. */
const DISK_RESERVE_BYTES = 64 * 1024 * 1024;
const WRITE_BUFFER_BYTES = 1024 * 1024;

export interface DownloadRequest {
  readonly url: string;
  readonly target: string;
  readonly policy: AddressPolicy;
  readonly limits: DownloadLimits;
  readonly signal: AbortSignal;
  /** Sent to the first origin only, and then no redirect is followed. */
  readonly token?: string;
  /** What the document must be, where that is known beforehand. */
  readonly expected?: { readonly bytes: number; readonly sha256: string };
  readonly onProgress?: (done: number, total: number | undefined) => void;
}

export interface Downloaded {
  readonly bytes: number;
  readonly sha256: string;
  /** Bytes that an earlier connection had brought already. */
  readonly resumedBytes: number;
}

/** What is known of the bytes in the partial file. */
interface PartNotes {
  readonly url: string;
  readonly etag?: string;
  readonly lastModified?: string;
  readonly total?: number;
}

/**
 * @throws ApplicationFailure `SourceUnreachable` (retryable), `SourceRefused`, `AddressRefused`, `SourceChanged`,
 * `TooLarge`, `OutOfDisk`.
 */
export async function download(request: DownloadRequest): Promise<Downloaded> {
  let resumedBytes = 0;
  for (let connection = 0; ; connection += 1) {
    const before = await sizeOf(partOf(request.target));
    try {
      const { bytes, sha256, startedAt } = await transfer(request, await usablePart(request, before));
      resumedBytes = Math.max(resumedBytes, startedAt);
      await finish(request.target);
      return { bytes, sha256, resumedBytes };
    } catch (error) {
      request.signal.throwIfAborted();
      const grown = (await sizeOf(partOf(request.target))) > before;
      // A cut connection that brought bytes is simply continued. One that brought none is left to the retry policy.
      const resumable = isFailure(error, 'SourceUnreachable') && grown && connection < request.limits.resumes;
      if (!resumable || (await usablePart(request, 1)) === undefined) throw error;
    }
  }
}

interface Part {
  readonly bytes: number;
  readonly notes: PartNotes;
}

/** The partial file, when the server can be held to the version it belongs to. */
async function usablePart(request: DownloadRequest, bytes: number): Promise<Part | undefined> {
  if (bytes === 0) return undefined;
  const notes = await readJson(notesOf(request.target));
  if (!isPartNotes(notes) || notes.url !== request.url) return undefined;
  const held = notes.etag !== undefined || notes.lastModified !== undefined || request.expected !== undefined;
  return held ? { bytes: await sizeOf(partOf(request.target)), notes } : undefined;
}

/** One connection, redirects included, that brings the rest of the document. */
async function transfer(
  request: DownloadRequest,
  part: Part | undefined,
): Promise<{ bytes: number; sha256: string; startedAt: number }> {
  if (part !== undefined && part.bytes === request.expected?.bytes) {
    const whole = await verifyWhole(request, part.bytes);
    if (whole !== undefined) return { ...whole, startedAt: part.bytes };
    await discard(request.target);
    part = undefined;
  }
  const { response, url, release } = await openResponse(request, part);
  try {
    const status = response.statusCode ?? 0;
    if (status === 416 && part !== undefined) {
      // The part is no prefix of what is there now.
      await discard(request.target);
      throw unreachable(url, 'the server does not have the range that was left to fetch');
    }
    const startsAt = status === 206 ? continuation(response, part) : 0;
    if (startsAt === undefined) {
      await discard(request.target);
      throw unreachable(url, 'the document changed while it was being fetched');
    }
    const encoding = response.headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity') {
      throw failure(
        'SourceRefused',
        `${shown(url)} answered with content encoding ${encoding}, which was not asked for.`,
      );
    }
    const total = totalLength(response, startsAt);
    checkTotal(request, total, url);
    await checkDisk(request.target, total === undefined ? 0 : total - startsAt);

    const hash = createHash('sha256');
    if (startsAt > 0) {
      await hashInto(hash, partOf(request.target), startsAt, request.signal);
    } else {
      await writeFileAtomic(notesOf(request.target), JSON.stringify(notesFrom(response, request.url, total)));
    }
    const bytes = await receive(request, response, { hash, startsAt, total, url });
    if (total !== undefined && bytes !== total) {
      throw unreachable(url, `the connection ended after ${bytes} of ${total} bytes`);
    }
    const sha256 = hash.digest('hex');
    await checkExpected(request, bytes, sha256);
    return { bytes, sha256, startedAt: startsAt };
  } finally {
    release();
  }
}

/** Where a 206 continues: exactly where the part ends, in the version that the part is of, or it is not believed. */
function continuation(response: IncomingMessage, part: Part | undefined): number | undefined {
  const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers['content-range'] ?? '');
  const start = range === null ? undefined : Number(range[1]);
  const total = range === null || range[3] === '*' ? undefined : Number(range[3]);
  const { etag } = response.headers;
  const same =
    part !== undefined &&
    start === part.bytes &&
    (part.notes.total === undefined || total === undefined || total === part.notes.total) &&
    (part.notes.etag === undefined || etag === undefined || etag === part.notes.etag);
  return same ? start : undefined;
}

function totalLength(response: IncomingMessage, startsAt: number): number | undefined {
  const length = response.headers['content-length'];
  return length === undefined ? undefined : startsAt + Number(length);
}

function checkTotal(request: DownloadRequest, total: number | undefined, url: URL): void {
  if (total === undefined) return;
  if (request.expected !== undefined && total !== request.expected.bytes) {
    throw failure(
      'SourceChanged',
      `${shown(url)} has ${total} bytes, but ${request.expected.bytes} bytes were announced.`,
    );
  }
  if (total > request.limits.maxBytes) throw tooLarge(url, total, request.limits.maxBytes);
}

async function checkExpected(request: DownloadRequest, bytes: number, sha256: string): Promise<void> {
  const { expected } = request;
  if (expected === undefined || (expected.bytes === bytes && expected.sha256 === sha256)) return;
  // The bytes that came are the wrong ones: nothing may continue from them.
  await discard(request.target);
  throw failure(
    'SourceChanged',
    `${shown(new URL(request.url))} sent ${bytes} bytes with sha256 ${sha256}, but ${expected.bytes} bytes with ` +
      `sha256 ${expected.sha256} were announced.`,
  );
}

/** The hash of a part that has the announced length, when it is the announced document. */
async function verifyWhole(
  request: DownloadRequest,
  bytes: number,
): Promise<{ bytes: number; sha256: string } | undefined> {
  const hash = createHash('sha256');
  await hashInto(hash, partOf(request.target), bytes, request.signal);
  const sha256 = hash.digest('hex');
  return sha256 === request.expected?.sha256 ? { bytes, sha256 } : undefined;
}

interface Reception {
  readonly hash: Hash;
  readonly startsAt: number;
  readonly total: number | undefined;
  readonly url: URL;
}

/** Streams the body to the part; the stream's back-pressure keeps the server from running ahead of the disk. */
async function receive(request: DownloadRequest, response: IncomingMessage, to: Reception): Promise<number> {
  const { limits } = request;
  let bytes = to.startsAt;
  request.onProgress?.(bytes, to.total);
  const count = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > limits.maxBytes) {
        done(tooLarge(to.url, bytes, limits.maxBytes));
        return;
      }
      to.hash.update(chunk);
      request.onProgress?.(bytes, to.total);
      done(null, chunk);
    },
  });
  const file = createWriteStream(partOf(request.target), {
    flags: to.startsAt > 0 ? 'r+' : 'w',
    start: to.startsAt,
    mode: 0o600,
    highWaterMark: WRITE_BUFFER_BYTES,
  });
  const stall = stallTimer(limits.stallMs, () => {
    response.destroy(unreachable(to.url, `no byte arrived for ${limits.stallMs / 1000} s, after ${bytes} bytes`));
  });
  response.on('data', stall.reset);
  try {
    await pipeline(response, count, file, { signal: request.signal });
  } catch (error) {
    request.signal.throwIfAborted();
    if (isFailure(error)) throw error;
    const disk = diskFailure(error, `writing ${partOf(request.target)}`);
    throw isFailure(disk) ? disk : unreachable(to.url, `the connection was cut after ${bytes} bytes`, error);
  } finally {
    stall.stop();
  }
  return bytes;
}

interface Opened {
  readonly response: IncomingMessage;
  readonly url: URL;
  /** Ends the connection, whatever is left on it. */
  release(): void;
}

/** Sends the request and follows redirects, each to a checked address. */
async function openResponse(request: DownloadRequest, part: Part | undefined): Promise<Opened> {
  let url = new URL(request.url);
  for (let redirects = 0; ; redirects += 1) {
    const opened = await openOne(request, url, part);
    const status = opened.response.statusCode ?? 0;
    if (status === 200 || (status === 206 && part !== undefined) || status === 416) return opened;
    opened.release();
    const { location } = opened.response.headers;
    if (status >= 300 && status < 400 && location !== undefined) {
      if (request.token !== undefined) {
        throw failure('SourceRefused', `${shown(url)} redirects, which the server of \`atlas run\` does not do.`);
      }
      if (redirects >= request.limits.redirects) {
        throw failure(
          'SourceRefused',
          `${shown(new URL(request.url))} redirects more than ${request.limits.redirects} times.`,
        );
      }
      url = redirected(location, url);
      continue;
    }
    if (status >= 500 || status === 408 || status === 425 || status === 429) {
      throw unreachable(url, `the server answered ${statusText(opened.response)}`);
    }
    throw failure(
      'SourceRefused',
      `${shown(url)} could not be fetched: the server answered ${statusText(opened.response)}.`,
    );
  }
}

function redirected(location: string, from: URL): URL {
  try {
    return new URL(location, from);
  } catch {
    throw failure('SourceRefused', `${shown(from)} redirects to an address that is not valid.`);
  }
}

async function openOne(request: DownloadRequest, url: URL, part: Part | undefined): Promise<Opened> {
  const client = await clientFor(url);
  checkHost(request.policy, url.hostname);
  const headers: Record<string, string> = {
    accept: 'application/pdf, */*;q=0.5',
    // A compressed body could not be continued at a byte of the document.
    'accept-encoding': 'identity',
    'user-agent': 'temporal-atlas',
  };
  if (request.token !== undefined) headers['authorization'] = `Bearer ${request.token}`;
  if (part !== undefined) {
    headers['range'] = `bytes=${part.bytes}-`;
    const validator = part.notes.etag ?? part.notes.lastModified;
    if (validator !== undefined) headers['if-range'] = validator;
  }
  const options: RequestOptions = {
    method: 'GET',
    headers,
    lookup: guardedLookup(request.policy),
    // No connection is kept: a kept one would have skipped the check of its address.
    agent: false,
    signal: request.signal,
  };
  return await new Promise<Opened>((resolve, reject) => {
    const outgoing: ClientRequest = client.request(url, options);
    let waitingFor = 'a connection';
    let limitMs = request.limits.connectMs;
    const late = (): void => {
      outgoing.destroy(unreachable(url, `${waitingFor} took longer than ${limitMs / 1000} s`));
    };
    let timer = setTimeout(late, limitMs);
    outgoing.on('socket', (socket) => {
      socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
        clearTimeout(timer);
        waitingFor = 'the answer';
        limitMs = request.limits.stallMs;
        timer = setTimeout(late, limitMs);
      });
    });
    outgoing.on('response', (response) => {
      clearTimeout(timer);
      // The body may be destroyed before anyone reads it; that must not be an unhandled error.
      response.on('error', () => undefined);
      resolve({ response, url, release: () => void outgoing.destroy() });
    });
    outgoing.on('error', (error) => {
      clearTimeout(timer);
      if (request.signal.aborted) reject(request.signal.reason as Error);
      else if (isFailure(error)) reject(error);
      else reject(unreachable(url, reasonOf(error, url), error));
    });
    outgoing.end();
  });
}

/** The client of the address's scheme. Loaded here, since a session may never need it. */
async function clientFor(url: URL): Promise<Pick<typeof import('node:http'), 'request'>> {
  if (url.protocol === 'http:') return await import('node:http');
  if (url.protocol === 'https:') return await import('node:https');
  throw failure('SourceRefused', `${shown(url)} is not an http or https address.`);
}

function reasonOf(error: Error, url: URL): string {
  switch (systemCode(error)) {
    case 'ECONNREFUSED':
      return 'the connection was refused';
    case 'ENOTFOUND':
      return `there is no host ${url.hostname}`;
    case 'EAI_AGAIN':
      return `the name ${url.hostname} could not be resolved`;
    case 'ECONNRESET':
      return 'the connection was cut before an answer came';
    default:
      return messageOf(error) === '' ? (systemCode(error) ?? 'the connection failed') : messageOf(error);
  }
}

function statusText(response: IncomingMessage): string {
  return `${response.statusCode ?? 0} ${response.statusMessage ?? ''}`.trim();
}

function unreachable(url: URL, why: string, cause?: unknown): Error {
  return failure('SourceUnreachable', `${shown(url)} could not be fetched: ${why}.`, { cause });
}

function tooLarge(url: URL, bytes: number, limit: number): Error {
  return failure('TooLarge', `${shown(url)} has at least ${bytes} bytes; this worker takes at most ${limit}.`, {
    next: 'Raise document.max_bytes (ATLAS_DOCUMENT_MAX_BYTES) of the worker, or split the document.',
  });
}

/** An address as a message shows it: without a password, and without a query, which may hold one. */
export function shown(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname}`;
}

function notesFrom(response: IncomingMessage, url: string, total: number | undefined): PartNotes {
  const { etag, date, 'last-modified': lastModified } = response.headers;
  // A weak validator does not promise equal bytes. Nor does a date that is younger than a minute (RFC 9110, 8.8.2.2).
  const strongTag = etag !== undefined && !etag.startsWith('W/') ? etag : undefined;
  const age = Date.parse(date ?? '') - Date.parse(lastModified ?? '');
  const strongDate = lastModified !== undefined && age >= 60_000 ? lastModified : undefined;
  return {
    url,
    ...(strongTag === undefined ? {} : { etag: strongTag }),
    ...(strongDate === undefined ? {} : { lastModified: strongDate }),
    ...(total === undefined ? {} : { total }),
  };
}

function isPartNotes(value: unknown): value is PartNotes {
  return typeof value === 'object' && value !== null && 'url' in value && typeof value.url === 'string';
}

function stallTimer(ms: number, onStall: () => void): { reset(): void; stop(): void } {
  const timer = setTimeout(onStall, ms);
  return { reset: () => void timer.refresh(), stop: () => clearTimeout(timer) };
}

async function hashInto(hash: Hash, path: string, bytes: number, signal: AbortSignal): Promise<void> {
  for await (const chunk of createReadStream(path, { end: bytes - 1, signal })) hash.update(chunk as Buffer);
}

/** @throws ApplicationFailure `OutOfDisk` when the disk has not the room that is needed, plus a reserve. */
export async function checkDisk(target: string, neededBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(target));
  const free = bavail * bsize;
  if (free < neededBytes + DISK_RESERVE_BYTES) {
    throw failure(
      'OutOfDisk',
      `The document needs ${neededBytes} bytes in ${dirname(target)}, which has ${free} left (${DISK_RESERVE_BYTES} are kept free).`,
    );
  }
}

/** Makes the part the document: synced first, so that a file under the final name is always whole. */
export async function finish(target: string): Promise<void> {
  const handle = await open(partOf(target), 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(partOf(target), target);
  await rm(notesOf(target), { force: true });
  await syncDirectory(dirname(target));
}

async function discard(target: string): Promise<void> {
  await rm(partOf(target), { force: true });
  await rm(notesOf(target), { force: true });
}

export function partOf(target: string): string {
  return `${target}.part`;
}

function notesOf(target: string): string {
  return `${target}.part.json`;
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return 0;
    throw error;
  }
}
