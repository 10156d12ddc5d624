/**
 * The HTTP server that hands a local file, and the password of a document, to a worker on another host and takes the
 * artifacts back, for the length of one run.
 *
 * Owns who may talk to it (whoever has the token of this run), what can be read (one file, by byte ranges, and one
 * password) and what can
 * be written (a bounded number of bytes, under plain file names, into one folder, only with the announced hash). It
 * listens on the loopback interface unless the user chose another one.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { open, rename, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { AtlasError } from '../../contract/errors.js';
import type { ServeAddress } from './parse.js';

/** Artifacts are text of one document; what is larger than this is not one of ours. */
const MAX_ARTIFACT_BYTES = 512 * 1024 * 1024;
const MAX_ARTIFACT_COUNT = 64;
/** No leading dot, so that neither `..` nor a hidden file can be named. */
const ARTIFACT_NAME = /^[a-z0-9_-][a-z0-9._-]{0,127}$/;
const TOKEN_BYTES = 32;
/** A client that stops in the middle of a transfer must not hold the connection for ever. */
const SOCKET_IDLE_MS = 120_000;

export const DEFAULT_SERVE_ADDRESS: ServeAddress = { host: '127.0.0.1', port: 0 };

export interface ServedFile {
  readonly handle: FileHandle;
  readonly bytes: number;
  readonly sha256: string;
}

export interface TransferServerOptions {
  readonly address: ServeAddress;
  /** Absent where only artifacts are taken. */
  readonly file?: ServedFile;
  /** Of the document. */
  readonly password?: string;
  /** Where artifacts are put. It exists. Absent where none are taken. */
  readonly outputDirectory?: string;
  readonly maxArtifactBytes?: number;
  /** Called after each chunk that was sent and each artifact that was taken. */
  readonly onActivity?: () => void;
}

export interface ReceivedArtifact {
  readonly bytes: number;
  readonly sha256: string;
}

export interface TransferServer {
  readonly fileUrl: string;
  readonly passwordUrl: string;
  /** `PUT <deliverUrl>/<name>`. */
  readonly deliverUrl: string;
  readonly token: string;
  /** Bytes of the file that were sent, repeated ranges counted again. */
  bytesServed(): number;
  received(): ReadonlyMap<string, ReceivedArtifact>;
  close(): Promise<void>;
}

/** @throws {@link AtlasError} `ServeFailed` when the address can not be listened on. */
export async function startTransferServer(options: TransferServerOptions): Promise<TransferServer> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const tokenDigest = digestOf(token);
  const received = new Map<string, ReceivedArtifact>();
  const state = { bytesServed: 0, artifactBytes: 0 };

  const server = createServer((request, response) => {
    handle(request, response).catch(() => {
      // A connection that broke, or a disk that is full: the worker tries again, and says so if that does not help.
      if (response.headersSent) response.destroy();
      else answer(response, 500, 'the transfer failed');
    });
  });
  server.setTimeout(SOCKET_IDLE_MS);
  // The size of the body is bounded below; how long it takes depends on the network of the worker.
  server.requestTimeout = 0;

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!authorised(request, tokenDigest)) {
      response.setHeader('WWW-Authenticate', 'Bearer');
      answer(response, 401, 'the token of this run is missing or wrong');
      return;
    }
    const path = request.url ?? '/';
    if (path === '/file' && (request.method === 'GET' || request.method === 'HEAD')) {
      await sendFile(request, response);
    } else if (path === '/password' && request.method === 'GET' && options.password !== undefined) {
      sendPassword(response, options.password);
    } else if (path.startsWith('/artifacts/') && request.method === 'PUT') {
      await takeArtifact(path.slice('/artifacts/'.length), request, response);
    } else if (path === '/file' || path.startsWith('/artifacts/')) {
      response.setHeader('Allow', path === '/file' ? 'GET, HEAD' : 'PUT');
      answer(response, 405, 'the method is not allowed here');
    } else {
      answer(response, 404, 'there is nothing here');
    }
  }

  async function sendFile(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { file } = options;
    if (file === undefined) {
      answer(response, 404, 'this run serves no file');
      return;
    }
    const etag = `"${file.sha256}"`;
    response.setHeader('ETag', etag);
    response.setHeader('Accept-Ranges', 'bytes');
    response.setHeader('X-Atlas-Sha256', file.sha256);
    response.setHeader('Content-Type', 'application/pdf');
    response.setHeader('Cache-Control', 'no-store');
    const condition = request.headers['if-range'];
    const wanted =
      condition === undefined || condition === etag ? rangeOf(request.headers.range, file.bytes) : undefined;
    if (wanted === 'unsatisfiable') {
      response.setHeader('Content-Range', `bytes */${file.bytes}`);
      answer(response, 416, 'the range is outside the file');
      return;
    }
    const { start, end } = wanted ?? { start: 0, end: file.bytes - 1 };
    if (wanted !== undefined) response.setHeader('Content-Range', `bytes ${start}-${end}/${file.bytes}`);
    response.setHeader('Content-Length', end - start + 1);
    response.writeHead(wanted === undefined ? 200 : 206);
    if (request.method === 'HEAD') {
      response.end();
      return;
    }
    const stream = file.handle.createReadStream({ start, end, autoClose: false, highWaterMark: 256 * 1024 });
    await pipeline(
      stream,
      async function* (chunks: AsyncIterable<Buffer>) {
        for await (const chunk of chunks) {
          yield chunk;
          // Counted once the response has taken it, so that a reader that went away is not counted in full.
          state.bytesServed += chunk.length;
          options.onActivity?.();
        }
      },
      response,
    );
  }

  async function takeArtifact(name: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { outputDirectory } = options;
    if (outputDirectory === undefined) {
      refuse(request, response, 404, 'this run takes no artifacts');
      return;
    }
    if (!ARTIFACT_NAME.test(name)) {
      refuse(request, response, 400, 'the name of the artifact is not allowed');
      return;
    }
    const announced = request.headers['x-atlas-sha256'];
    if (typeof announced !== 'string' || !/^[0-9a-f]{64}$/.test(announced)) {
      refuse(request, response, 400, 'X-Atlas-Sha256 is missing or not a hash');
      return;
    }
    const limit = (options.maxArtifactBytes ?? MAX_ARTIFACT_BYTES) - state.artifactBytes;
    const length = Number(request.headers['content-length'] ?? 0);
    if (length > limit || (!received.has(name) && received.size >= MAX_ARTIFACT_COUNT)) {
      refuse(request, response, 413, 'the artifacts are over the limit');
      return;
    }
    const outcome = await store(join(outputDirectory, name), request, announced, limit);
    // Answered only now that no partial file is left: who reads the answer may look at the folder.
    if (outcome === 'too large') refuse(request, response, 413, 'the artifacts are over the limit');
    else if (outcome === 'other hash') answer(response, 422, 'the bytes that arrived do not have the announced hash');
    else answer(response, 201, 'stored');
  }

  async function store(
    path: string,
    request: IncomingMessage,
    sha256: string,
    limitBytes: number,
  ): Promise<'stored' | 'too large' | 'other hash'> {
    // In the same folder, so that the rename is atomic; the random part keeps two attempts at one name apart.
    const name = basename(path);
    const temporary = join(dirname(path), `.${name}.${randomBytes(6).toString('hex')}.part`);
    try {
      const written = await writeBody(request, temporary, limitBytes);
      if (written === 'too large') return 'too large';
      if (written.sha256 !== sha256) return 'other hash';
      await rename(temporary, path);
      state.artifactBytes += written.bytes - (received.get(name)?.bytes ?? 0);
      received.set(name, written);
      options.onActivity?.();
      return 'stored';
    } finally {
      await rm(temporary, { force: true });
    }
  }

  await listen(server, options.address);
  const base = urlOf(server, options.address.host);
  return {
    fileUrl: `${base}/file`,
    passwordUrl: `${base}/password`,
    deliverUrl: `${base}/artifacts`,
    token,
    bytesServed: () => state.bytesServed,
    received: () => received,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function sendPassword(response: ServerResponse, password: string): void {
  response.setHeader('Cache-Control', 'no-store');
  response.setHeader('Content-Type', 'text/plain; charset=utf-8');
  response.end(password);
}

async function writeBody(
  request: IncomingMessage,
  path: string,
  limitBytes: number,
): Promise<ReceivedArtifact | 'too large'> {
  const hash = createHash('sha256');
  let bytes = 0;
  // Never over something that is already there.
  const target = await open(path, 'wx', 0o644);
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > limitBytes) return 'too large';
      hash.update(chunk);
      await target.writeFile(chunk);
    }
  } finally {
    await target.close();
  }
  return { bytes, sha256: hash.digest('hex') };
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Digests have one length, which the comparison in constant time needs, and hide that of the token. */
function authorised(request: IncomingMessage, tokenDigest: Buffer): boolean {
  const given = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
  return given !== undefined && timingSafeEqual(digestOf(given), tokenDigest);
}

/** One range. Several, or a unit other than bytes, are answered with the whole file, as HTTP allows. */
function rangeOf(
  header: string | undefined,
  size: number,
): { readonly start: number; readonly end: number } | 'unsatisfiable' | undefined {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header?.trim() ?? '');
  if (match === null) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return undefined;
  if (first === '') {
    const suffix = Number(last);
    return suffix === 0 ? 'unsatisfiable' : { start: Math.max(0, size - suffix), end: size - 1 };
  }
  const start = Number(first);
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== '' && Number(last) < start) return undefined;
  return start >= size ? 'unsatisfiable' : { start, end };
}

function answer(response: ServerResponse, status: number, message: string): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' });
  response.end(`${message}\n`);
}

/** Answers without reading the body, and ends the connection so that the body is not mistaken for a next request. */
function refuse(request: IncomingMessage, response: ServerResponse, status: number, message: string): void {
  response.setHeader('Connection', 'close');
  answer(response, status, message);
  // What is on its way is read and dropped for a moment, or the client would see a broken pipe instead of the answer.
  request.resume();
}

async function listen(server: Server, { host, port }: ServeAddress): Promise<void> {
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.removeListener('error', reject);
        resolve();
      });
    });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const reason =
      code === 'EADDRINUSE'
        ? 'the port is taken'
        : code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND'
          ? 'it is no address of this host'
          : code === 'EACCES'
            ? 'this user may not use the port'
            : String(cause);
    throw new AtlasError('ServeFailed', `The file can not be served on ${host}:${port}: ${reason}.`, {
      cause,
      next: 'Choose another address with --serve-address HOST[:PORT].',
    });
  }
}

/** An unspecified address is good for listening and useless for calling: name an address that other hosts can reach. */
function urlOf(server: Server, host: string): string {
  const { port, family } = server.address() as AddressInfo;
  const name = host === '0.0.0.0' || host === '::' ? (outwardAddress() ?? '127.0.0.1') : host;
  return `http://${family === 'IPv6' && name.includes(':') ? `[${name}]` : name}:${port}`;
}

function outwardAddress(): string | undefined {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find((address) => !address.internal && address.family === 'IPv4')?.address;
}
