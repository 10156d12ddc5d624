/**
 * One http(s) answer: the request is sent, redirects are followed, each to a checked address, and every wait until the
 * headers are there is bounded. What the body is and where it goes is the caller's.
 */
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { connect, type Socket } from 'node:net';
import { checkHost, guardedLookup, type AddressPolicy } from './addresses.js';
import { failure, isFailure, messageOf, systemCode } from '../failure.js';

export interface GetLimits {
  /** How long no byte may arrive, from the request on. */
  readonly stallMs: number;
  readonly connectMs: number;
  readonly redirects: number;
}

export interface GetRequest {
  readonly url: string;
  readonly policy: AddressPolicy;
  readonly limits: GetLimits;
  readonly signal: AbortSignal;
  /** Sent to the first origin only, and then no redirect is followed. */
  readonly token?: string;
  /** Headers that depend on the address that is asked: what is known of one resource says nothing of another. */
  readonly headersFor?: (url: URL) => Readonly<Record<string, string>>;
  /** Statuses that are an answer although they are neither 200 nor a redirect, given the headers that were sent. */
  readonly takes?: (status: number, sent: Readonly<Record<string, string>>) => boolean;
}

export interface Answer {
  readonly response: IncomingMessage;
  readonly status: number;
  /** Where the answer came from, after all redirects. */
  readonly url: URL;
  /** What `headersFor` gave for it. */
  readonly sent: Readonly<Record<string, string>>;
  /** Ends the connection, whatever is left on it. */
  release(): void;
}

/**
 * @throws ApplicationFailure `SourceUnreachable` (retryable), `SourceRefused`, `AddressRefused`.
 */
export async function httpGet(request: GetRequest): Promise<Answer> {
  const first = new URL(request.url);
  let url = first;
  for (let redirects = 0; ; redirects += 1) {
    const sent = request.headersFor?.(url) ?? {};
    const answer = await getOne(request, url, sent);
    const { response, status } = answer;
    if (status === 200 || request.takes?.(status, sent) === true) return answer;
    answer.release();
    const { location } = response.headers;
    if (status >= 300 && status < 400 && location !== undefined) {
      if (request.token !== undefined) {
        throw failure('SourceRefused', `${shown(url)} redirects, which the server of \`atlas run\` does not do.`);
      }
      if (redirects >= request.limits.redirects) {
        throw failure('SourceRefused', `${shown(first)} redirects more than ${request.limits.redirects} times.`);
      }
      url = redirected(location, url);
      continue;
    }
    if (status >= 500 || status === 408 || status === 425 || status === 429) {
      throw unreachable(url, `the server answered ${statusText(response)}`);
    }
    throw failure('SourceRefused', `${shown(url)} could not be fetched: the server answered ${statusText(response)}.`);
  }
}

function redirected(location: string, from: URL): URL {
  try {
    return new URL(location, from);
  } catch {
    throw failure('SourceRefused', `${shown(from)} redirects to an address that is not valid.`);
  }
}

async function getOne(request: GetRequest, url: URL, sent: Readonly<Record<string, string>>): Promise<Answer> {
  checkUrl(request.policy, url);
  const client = url.protocol === 'https:' ? await import('node:https') : await import('node:http');
  const headers: Record<string, string> = {
    accept: 'application/pdf, */*;q=0.5',
    // A compressed body could not be continued at a byte of the document.
    'accept-encoding': 'identity',
    'user-agent': 'temporal-atlas',
    ...sent,
  };
  if (request.token !== undefined) headers['authorization'] = `Bearer ${request.token}`;
  const options: RequestOptions = {
    method: 'GET',
    headers,
    lookup: guardedLookup(request.policy),
    // No connection is kept: a kept one would have skipped the check of its address.
    ...(url.protocol === 'http:' ? { createConnection: plainConnection } : { agent: false }),
    signal: request.signal,
  };
  return await new Promise<Answer>((resolve, reject) => {
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
      resolve({ response, status: response.statusCode ?? 0, url, sent, release: () => void outgoing.destroy() });
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

/**
 * What can be said of an address without resolving its name.
 *
 * @throws ApplicationFailure `SourceRefused`, `AddressRefused`.
 */
export function checkUrl(policy: AddressPolicy, url: URL): void {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw failure('SourceRefused', `${shown(url)} is not an http or https address.`);
  }
  checkHost(policy, url.hostname);
}

/** What one read from a connection brings at most. */
const READ_BYTES = 64 * 1024;
/** The memory that connections read into, to tell whether a body was given as a part of it. */
const readBuffers = new WeakSet<ArrayBufferLike>();
let mayShareReadBuffer = true;

/**
 * A connection that reads into the same memory again and again: new memory for every read is a fifth of what a
 * download costs. The parser of Node copies what is of the body; see {@link checkIsCopy}.
 */
function plainConnection({ host, port, lookup }: RequestOptions): Socket {
  const address = { host: host ?? 'localhost', port: Number(port ?? 80), ...(lookup === undefined ? {} : { lookup }) };
  if (!mayShareReadBuffer) return connect(address);
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  readBuffers.add(buffer.buffer);
  const socket: Socket = connect({
    ...address,
    onread: {
      buffer,
      callback: (bytes: number) => {
        socket.emit('data', buffer.subarray(0, bytes));
        return true;
      },
    },
  });
  return socket;
}

/**
 * Refuses a chunk of a body that lies in the memory that is read into, as it would be overwritten. That is for a version
 * of Node that does not copy; from then on connections read as usual.
 *
 * @throws ApplicationFailure `SourceUnreachable`, as it is not so the next time.
 */
export function checkIsCopy(chunk: Buffer, url: URL): void {
  if (!readBuffers.has(chunk.buffer)) return;
  mayShareReadBuffer = false;
  throw unreachable(url, 'its bytes could not be read the fast way');
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

export function unreachable(url: URL, why: string, cause?: unknown): Error {
  return failure('SourceUnreachable', `${shown(url)} could not be fetched: ${why}.`, { cause });
}

/** An address as a message shows it: without a password, and without a query, which may hold one. */
export function shown(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname}`;
}
