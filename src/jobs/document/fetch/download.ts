/**
 * Fetches a document over http(s) to a file, and does not call it there before it is whole.
 *
 * Owns: when a partial file is continued, ranges and validators, and the bounds of a transfer. A part is continued only
 * when the server can be held to the version it is of (a strong validator of the same resource, or a hash known
 * beforehand); in any doubt the transfer starts from zero. So what comes out is one version of the document or a
 * failure, and never a mixture.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { finished } from 'node:stream';
import { requireRoom, type Disk } from './disk.js';
import { failure, isFailure, tooLarge } from '../failure.js';
import { hashFile } from '../files.js';
import { checkIsCopy, httpGet, shown, unreachable, type GetLimits, type GetRequest } from './http-get.js';
import { beginPart, discardPart, finishPart, partOf, partSize, PartWriter, readPartNotes } from './part-file.js';

export interface DownloadLimits extends GetLimits {
  readonly maxBytes: number;
  /** How many times one call goes on after a connection that had brought bytes. */
  readonly resumes: number;
}

export const DOWNLOAD_LIMITS: Omit<DownloadLimits, 'maxBytes'> = {
  stallMs: 30_000,
  connectMs: 10_000,
  redirects: 5,
  resumes: 20,
};

/** Which version of a resource some bytes are of, as far as the server can be held to it. */
export interface Version {
  /** A strong one. */
  readonly etag?: string;
  readonly lastModified?: string;
  /** The resource that said so, as a hash: another one may use the same words for other bytes. */
  readonly place: string;
}

export interface DownloadRequest extends Pick<GetRequest, 'url' | 'policy' | 'signal' | 'token'> {
  readonly target: string;
  readonly limits: DownloadLimits;
  readonly disk: Disk;
  /** What the document must be, where that is known beforehand. */
  readonly expected?: Expected;
  /** A version that the caller has already: it is not sent again. */
  readonly known?: Version;
  readonly onProgress?: (done: number, total: number | undefined) => void;
}

interface Expected {
  readonly bytes?: number;
  readonly sha256: string;
}

export interface Downloaded {
  readonly bytes: number;
  readonly sha256: string;
  /** Bytes that an earlier connection had brought already. */
  readonly resumedBytes: number;
  /** Undefined where the server can be held to none. */
  readonly version?: Version;
}

/** The document is still the version that was known. */
export const NOT_MODIFIED = 'not modified';

/** What is known of the bytes in the partial file. */
interface PartNotes {
  /** The address that was asked for, as a hash: it may hold a secret. */
  readonly source: string;
  readonly version: Version;
  readonly total?: number;
}

interface Part {
  readonly bytes: number;
  readonly notes: PartNotes;
}

/**
 * @throws ApplicationFailure `SourceUnreachable` (retryable), `SourceRefused`, `AddressRefused`, `SourceChanged`,
 * `TooLarge`, `OutOfDisk`.
 */
export async function download(request: DownloadRequest): Promise<Downloaded | typeof NOT_MODIFIED> {
  let resumedBytes = 0;
  for (let connection = 0; ; connection += 1) {
    const before = await partSize(request.target);
    try {
      const outcome = await transfer(request, await usablePart(request));
      if (outcome === NOT_MODIFIED) return outcome;
      resumedBytes = Math.max(resumedBytes, outcome.startedAt);
      if (outcome.sha256 !== undefined) {
        await finishPart(request.target);
        const { bytes, sha256, version } = outcome;
        return { bytes, sha256, resumedBytes, ...(isHeld(version) ? { version } : {}) };
      }
      if (connection >= request.limits.resumes) {
        throw unreachable(new URL(request.url), `the server sent it in more than ${request.limits.resumes} pieces`);
      }
    } catch (error) {
      if (isFailure(error, 'OutOfDisk')) await freeDisk(request, error);
      request.signal.throwIfAborted();
      const grown = (await partSize(request.target)) > before;
      // A cut connection that brought bytes is simply continued. One that brought none is left to the retry policy.
      const resumable = isFailure(error, 'SourceUnreachable') && grown && connection < request.limits.resumes;
      if (!resumable || (await usablePart(request)) === undefined) throw error;
    }
  }
}

/** A part stays where only the reserve is short and it can be continued. A disk that is full gets its room back. */
async function freeDisk(request: DownloadRequest, error: Error): Promise<void> {
  // Only a write that failed is a cause.
  const isFull = error.cause !== undefined;
  if (isFull || (await usablePart(request)) === undefined) await discardPart(request.target);
}

/** The partial file, when the server can be held to the version it is of. */
async function usablePart(request: DownloadRequest): Promise<Part | undefined> {
  const bytes = await partSize(request.target);
  if (bytes === 0) return undefined;
  const notes = await readPartNotes(request.target);
  if (!isPartNotes(notes) || notes.source !== hashOf(request.url)) return undefined;
  if (bytes > (notes.total ?? bytes)) return undefined;
  return isHeld(notes.version) || request.expected !== undefined ? { bytes, notes } : undefined;
}

interface Transferred {
  readonly bytes: number;
  /** Undefined when there is more to come. */
  readonly sha256?: string;
  readonly startedAt: number;
  readonly version: Version;
}

/** One connection, redirects included, that brings the rest of the document or a piece of it. */
async function transfer(request: DownloadRequest, part: Part | undefined): Promise<Transferred | typeof NOT_MODIFIED> {
  const whole = part !== undefined && part.bytes === (request.expected?.bytes ?? part.notes.total) ? part : undefined;
  if (whole !== undefined && request.expected !== undefined) {
    const document = await wholePart(request, whole);
    if (document.sha256 === request.expected.sha256) return document;
    await discardPart(request.target);
    return await transfer(request, undefined);
  }
  const answer = await httpGet({
    url: request.url,
    policy: request.policy,
    limits: request.limits,
    signal: request.signal,
    ...(request.token === undefined ? {} : { token: request.token }),
    headersFor: (url) => {
      if (whole !== undefined) return ifChanged(whole.notes.version, url);
      return part === undefined ? ifChanged(request.known, url) : rangeHeaders(request, part, url);
    },
    takes: (status, sent) => {
      if (status === 304) return 'if-none-match' in sent || 'if-modified-since' in sent;
      return (status === 206 || status === 416) && 'range' in sent;
    },
  });
  const { response, status, url, release } = answer;
  try {
    if (status === 304) {
      const version = part === undefined ? request.known : part.notes.version;
      if (isSameVersion(response, version)) {
        return part === undefined ? NOT_MODIFIED : await wholePart(request, part);
      }
      await discardPart(request.target);
      // It takes another version for the one that was asked about, so it is not asked about any.
      const { known: _, ...unconditional } = request;
      release();
      return await transfer(unconditional, undefined);
    }
    if (status === 416) {
      // The part is no prefix of what is there now.
      await discardPart(request.target);
      throw unreachable(url, 'the server does not have the range that was left to fetch');
    }
    const piece = status === 206 ? continuation(request, response, part) : wholeBody(response);
    if (piece === undefined) {
      await discardPart(request.target);
      throw unreachable(url, 'the document changed while it was being fetched');
    }
    const encoding = response.headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity') {
      throw failure(
        'SourceRefused',
        `${shown(url)} answered with content encoding ${encoding}, which was not asked for.`,
      );
    }
    const { startsAt, total } = piece;
    checkTotal(request, total, url);
    const version = startsAt === 0 || part === undefined ? versionOf(response, url) : part.notes.version;
    if (startsAt === 0) {
      const notes: PartNotes = {
        source: hashOf(request.url),
        version,
        ...(total === undefined ? {} : { total }),
      };
      await beginPart(request.target, notes);
    }
    await requireRoom(request.disk, total === undefined ? 0 : total - startsAt);
    const { bytes, sha256 } = await receive(request, response, { ...piece, url });
    if (piece.endsAt !== undefined && bytes !== piece.endsAt) {
      throw unreachable(url, `the connection ended after ${bytes} of ${piece.endsAt} bytes`);
    }
    if (total !== undefined && bytes < total) return { bytes, startedAt: startsAt, version };
    await checkExpected(request, { bytes, sha256, startsAt, url });
    return { bytes, sha256, startedAt: startsAt, version };
  } finally {
    release();
  }
}

/** A part that has all its bytes, as an attempt leaves one that ends just before it can say so. */
async function wholePart(request: DownloadRequest, part: Part): Promise<Transferred> {
  const { bytes, sha256 } = await hashFile(partOf(request.target), request.signal);
  return { bytes, sha256, startedAt: bytes, version: part.notes.version };
}

function ifChanged(version: Version | undefined, url: URL): Record<string, string> {
  if (version?.place !== placeOf(url)) return {};
  if (version.etag !== undefined) return { 'if-none-match': version.etag };
  return version.lastModified === undefined ? {} : { 'if-modified-since': version.lastModified };
}

function rangeHeaders(request: DownloadRequest, { bytes, notes }: Part, url: URL): Record<string, string> {
  const { version } = notes;
  const range = `bytes=${bytes}-`;
  const validator = version.place === placeOf(url) ? (version.etag ?? version.lastModified) : undefined;
  if (validator !== undefined) return { range, 'if-range': validator };
  // Without one only the hash can tell whether the rest belongs to the part.
  return request.expected === undefined ? {} : { range };
}

/** What a response brings: from where, to where if it says so, and how long the whole document is. */
interface Piece {
  readonly startsAt: number;
  readonly endsAt: number | undefined;
  readonly total: number | undefined;
}

function wholeBody(response: IncomingMessage): Piece {
  const length = response.headers['content-length'];
  const total = length === undefined ? undefined : Number(length);
  return { startsAt: 0, endsAt: total, total };
}

/** Where a 206 continues: exactly where the part ends, in the version that the part is of, or it is not believed. */
function continuation(request: DownloadRequest, response: IncomingMessage, part: Part | undefined): Piece | undefined {
  const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers['content-range'] ?? '');
  if (part === undefined || range === null || Number(range[1]) !== part.bytes) return undefined;
  const { version, total: knownTotal } = part.notes;
  const total = range[3] === '*' ? knownTotal : Number(range[3]);
  const endsAt = Number(range[2]) + 1;
  if (total === undefined || total !== (knownTotal ?? total) || endsAt > total || endsAt <= part.bytes) {
    return undefined;
  }
  const { etag, 'last-modified': lastModified } = response.headers;
  // Where the hash is known a server need not repeat what it said before; what it says must not be something else.
  const isSilent = request.expected !== undefined && (version.etag === undefined || etag === undefined);
  const isSame = version.etag === undefined ? version.lastModified === lastModified : version.etag === etag;
  return isSame || isSilent ? { startsAt: part.bytes, endsAt, total } : undefined;
}

function checkTotal(request: DownloadRequest, total: number | undefined, url: URL): void {
  if (total === undefined) return;
  const announced = request.expected?.bytes;
  if (announced !== undefined && total !== announced) {
    throw failure('SourceChanged', `${shown(url)} has ${total} bytes, but ${announced} bytes were announced.`);
  }
  if (total > request.limits.maxBytes) {
    throw tooLarge(`${shown(url)} has ${total} bytes`, request.limits.maxBytes);
  }
}

async function checkExpected(
  request: DownloadRequest,
  came: { readonly bytes: number; readonly sha256: string; readonly startsAt: number; readonly url: URL },
): Promise<void> {
  const { expected } = request;
  if (expected === undefined) return;
  if (expected.sha256 === came.sha256 && (expected.bytes ?? came.bytes) === came.bytes) return;
  // The bytes that came are the wrong ones: nothing may continue from them.
  await discardPart(request.target);
  if (came.startsAt > 0) {
    // It may be the part that is wrong, and not what the server has.
    throw unreachable(came.url, 'what came first and what came later do not make the document that was announced');
  }
  throw failure(
    'SourceChanged',
    `${shown(new URL(request.url))} sent ${came.bytes} bytes with sha256 ${came.sha256}, but ` +
      `${expected.bytes === undefined ? '' : `${expected.bytes} bytes with `}sha256 ${expected.sha256} ` +
      `${expected.bytes === undefined ? 'was' : 'were'} announced.`,
  );
}

/** Brings the body to the part. The disk's pace holds the server back: while it is behind, nothing is read. */
async function receive(
  request: DownloadRequest,
  response: IncomingMessage,
  to: Piece & { readonly url: URL },
): Promise<{ bytes: number; sha256: string }> {
  const { limits, target, disk, signal } = request;
  const { startsAt, total, url } = to;
  const writer = await PartWriter.open({
    target,
    disk,
    startsAt,
    signal,
    ...(total === undefined ? {} : { total }),
  });
  const take = (chunk: Buffer): Promise<void> | undefined => {
    checkIsCopy(chunk, url);
    const bytes = writer.bytes + chunk.length;
    if (bytes > limits.maxBytes) throw tooLarge(`${shown(url)} has at least ${bytes} bytes`, limits.maxBytes);
    const behind = writer.add(chunk);
    request.onProgress?.(bytes, total);
    return behind;
  };
  try {
    request.onProgress?.(writer.bytes, total);
    const cut = await readBody(response, take, limits.stallMs, signal);
    // A cut connection is looked at when what arrived is written.
    const { bytes } = writer;
    const sha256 = await writer.end();
    signal.throwIfAborted();
    if (cut === 'stalled') {
      throw unreachable(url, `no byte arrived for ${limits.stallMs / 1000} s, after ${bytes} bytes`);
    }
    if (cut !== undefined) throw unreachable(url, `the connection was cut after ${bytes} bytes`, cut);
    return { bytes, sha256 };
  } finally {
    await writer.close();
  }
}

/**
 * Gives every chunk of a body away, and reads no more while a promise that it got for one is open.
 *
 * Not `for await`, which joins what has gathered, and copies it for that.
 *
 * @returns Why the body ended before its end, if it did.
 * @throws What `take` or its promise failed with, and the reason of the signal.
 */
async function readBody(
  response: IncomingMessage,
  take: (chunk: Buffer) => Promise<void> | undefined,
  stallMs: number,
  signal: AbortSignal,
): Promise<Error | 'stalled' | undefined> {
  return await new Promise((resolve, reject) => {
    let stall: NodeJS.Timeout | undefined;
    const watch = (): void => {
      stall = setTimeout(() => settle(() => resolve('stalled')), stallMs);
    };
    const onAbort = (): void => fail(signal.reason as Error);
    const settle = (outcome: () => void): void => {
      clearTimeout(stall);
      signal.removeEventListener('abort', onAbort);
      response.off('data', onData);
      outcome();
    };
    const fail = (error: Error): void => settle(() => reject(error));
    const onData = (chunk: Buffer): void => {
      stall?.refresh();
      let behind: Promise<void> | undefined;
      try {
        behind = take(chunk);
      } catch (error) {
        fail(error as Error);
        return;
      }
      if (behind === undefined) return;
      // That nothing arrives while nothing is read is not the server's fault.
      clearTimeout(stall);
      response.pause();
      behind.then(() => {
        if (response.destroyed) return;
        watch();
        response.resume();
      }, fail);
    };
    watch();
    signal.addEventListener('abort', onAbort, { once: true });
    // Also when the connection was cut before anyone listened.
    finished(response, { writable: false }, (error) => settle(() => resolve(error ?? undefined)));
    response.on('data', onData);
    if (signal.aborted) onAbort();
  });
}

/** What a server says of the version of its answer, where it promises equal bytes. */
function versionOf(response: IncomingMessage, url: URL): Version {
  const { etag, date, 'last-modified': lastModified } = response.headers;
  // A date that is younger than a minute promises nothing (RFC 9110, 8.8.2.2).
  const age = Date.parse(date ?? '') - Date.parse(lastModified ?? '');
  const strongTag = etag === undefined ? undefined : strong(etag);
  return {
    ...(strongTag === undefined ? {} : { etag: strongTag }),
    ...(lastModified !== undefined && age >= 60_000 ? { lastModified } : {}),
    place: placeOf(url),
  };
}

/** Whether a 304 speaks of the version that it was asked about; most servers repeat what names it. */
function isSameVersion(response: IncomingMessage, version: Version | undefined): boolean {
  const { etag, 'last-modified': lastModified } = response.headers;
  if (version?.etag !== undefined) return etag === undefined || etag === version.etag;
  return lastModified === undefined || lastModified === version?.lastModified;
}

/** A weak tag does not promise equal bytes. */
function strong(etag: string): string | undefined {
  return etag.startsWith('W/') ? undefined : etag;
}

function isHeld({ etag, lastModified }: Version): boolean {
  return etag !== undefined || lastModified !== undefined;
}

/** A resource without its query: stores that redirect to signed addresses sign each one anew. */
function placeOf(url: URL): string {
  return hashOf(`${url.origin}${url.pathname}`);
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function isPartNotes(value: unknown): value is PartNotes {
  if (typeof value !== 'object' || value === null || !('source' in value) || !('version' in value)) return false;
  const { source, version } = value;
  return typeof source === 'string' && typeof version === 'object' && version !== null && 'place' in version;
}
