/**
 * The Unix socket in the state directory: the executor asks here before each attempt and takes commands from here, and
 * `GET /status` answers also while Temporal is away. The protocol is in `contract/local.ts`.
 */
import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { z } from 'zod';
import { findError, isErrorCode } from '../contract/errors.js';
import {
  LOCAL_BODY_LIMIT_BYTES,
  type AttemptFacts,
  type AttemptRefusal,
  type BeginAttempt,
  type EncodedResult,
  type ExecutorCommand,
  type ExecutorFailure,
  type ExecutorHello,
  type FenceLine,
  type LocalOrder,
  type LocalOrderAnswer,
  type LocalStatus,
  type MemoryDropped,
  type ReloadLine,
  type ReloadRequest,
  type ReloadResult,
  type ReloadStep,
} from '../contract/local.js';
import type { EventLog } from './ports.js';

export interface LocalHandlers {
  /** The first commands that an executor gets; it waits for them. */
  readonly firstCommands: (hello: ExecutorHello) => Promise<readonly ExecutorCommand[]>;
  /** Whether it is the current one, or one beside it. */
  readonly isExecutor: (hello: ExecutorHello) => boolean;
  readonly executorLoaded: (incarnation: string) => void;
  readonly executorFailed: (failure: ExecutorFailure) => void;
  readonly executorReady: (incarnation: string) => void;
  readonly executorQuiet: (incarnation: string) => void;
  readonly beginAttempt: (attempt: BeginAttempt) => Promise<AttemptFacts>;
  readonly endAttempt: (id: string, result?: EncodedResult) => Promise<void>;
  readonly memoryDropped: (dropped: MemoryDropped) => void;
  readonly status: () => LocalStatus;
  readonly order: (order: LocalOrder) => Promise<LocalOrderAnswer>;
  /** Throws where it is refused; the signal aborts when whoever asked is gone. */
  readonly reload: (
    request: ReloadRequest,
    signal: AbortSignal,
    onStep: (step: ReloadStep) => void,
  ) => Promise<ReloadResult>;
}

const hello = z.object({ pid: z.number(), incarnation: z.string() });
const failed = z.object({
  pid: z.number(),
  incarnation: z.string(),
  code: z.string().refine(isErrorCode, 'not a code of the catalogue'),
  message: z.string(),
});
const reloadRequest = z.object({ timeoutMs: z.number().nonnegative(), force: z.boolean() });
const begin = z.object({
  id: z.string(),
  incarnation: z.string(),
  session: z
    .object({ session: z.string(), runId: z.string(), epoch: z.number(), grantId: z.string().optional() })
    .optional(),
  activity: z.string(),
  activityId: z.string(),
  attempt: z.number(),
  taskToken: z.string(),
});
const end = z.object({ id: z.string(), result: z.object({ json: z.string().optional() }).optional() });

const dropped = z.object({
  incarnation: z.string(),
  memory: z.object({ key: z.string(), fencingToken: z.number() }),
});

const operatorOrder = {
  orderId: z.string().min(1).max(100),
  who: z.string().min(1).max(200),
  why: z.string().max(1_000).nullable(),
  ifRevision: z.number().optional(),
};
const localOrder = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('cordon'), order: z.object(operatorOrder) }),
  z.object({ kind: z.literal('uncordon'), order: z.object({ ...operatorOrder, ofOthers: z.boolean() }) }),
  z.object({
    kind: z.literal('drain'),
    order: z.object({
      ...operatorOrder,
      deadlineMs: z.number().nonnegative().nullable(),
      onDeadline: z.enum(['report', 'release']),
      stop: z.boolean(),
      replace: z.boolean(),
    }),
  }),
]);

export class LocalServer {
  private readonly server: Server;
  /** By the incarnation of the executor. */
  private readonly commands = new Map<string, ServerResponse>();
  private readonly fences = new Map<string, ServerResponse>();

  constructor(
    private readonly handlers: LocalHandlers,
    private readonly log: EventLog,
  ) {
    this.server = createServer((request, response) => {
      this.handle(request, response).catch((error: unknown) => {
        if (error instanceof BadRequest) {
          this.log.warn(
            { event: 'local-request-refused', url: request.url, reason: error.message },
            'A request on the local socket was refused',
          );
          // Read to its end, so that who sends too much still gets the answer.
          request.resume();
          answer(response, error.status, { message: error.message });
          return;
        }
        this.log.error(
          { event: 'local-request-failed', url: request.url, reason: String(error) },
          'A request on the local socket failed',
        );
        if (!response.headersSent) response.writeHead(500);
        response.end();
      });
    });
    // The executor keeps its connections open for as long as it lives.
    this.server.keepAliveTimeout = 0;
    this.server.requestTimeout = 0;
  }

  /** Listens. The caller holds the lock of the state directory, so a socket file that is there is a dead one. */
  async listen(path: string): Promise<void> {
    await rm(path, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(path, resolve);
    });
    await chmod(path, 0o600);
  }

  async close(): Promise<void> {
    for (const stream of [...this.commands.values(), ...this.fences.values()]) stream.end();
    await new Promise<void>((resolve) => {
      this.server.close(() => {
        resolve();
      });
      this.server.closeAllConnections();
    });
  }

  /** Sends a command to one executor; one that is not there has nothing to be told. */
  send(incarnation: string, command: ExecutorCommand): void {
    this.commands.get(incarnation)?.write(`${JSON.stringify(command)}\n`);
  }

  sendToAll(command: ExecutorCommand): void {
    for (const incarnation of this.commands.keys()) this.send(incarnation, command);
  }

  /** Tells the fence of every executor how long pinned attempts may go on. */
  sendFence(forMs: number | null): void {
    for (const fence of this.fences.values()) fence.write(fenceLine(forMs));
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const route = `${request.method ?? ''} ${request.url ?? ''}`;
    switch (route) {
      case 'POST /executor': {
        const from = await readBody(request, hello);
        if (!this.handlers.isExecutor(from)) {
          response.writeHead(409).end();
          return;
        }
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        response.flushHeaders();
        const first = await this.handlers.firstCommands(from);
        // Any other command comes after the first; and it may have ended meanwhile.
        if (response.destroyed || !this.handlers.isExecutor(from)) return;
        keepStream(this.commands, from.incarnation, response);
        for (const command of first) this.send(from.incarnation, command);
        return;
      }
      case 'POST /executor/fence': {
        const from = await readBody(request, hello);
        if (!this.handlers.isExecutor(from)) {
          response.writeHead(409).end();
          return;
        }
        keepStream(this.fences, from.incarnation, response);
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        // None of its attempts has begun.
        response.write(fenceLine(null));
        return;
      }
      case 'POST /executor/loaded':
        this.handlers.executorLoaded((await readBody(request, hello)).incarnation);
        response.writeHead(204).end();
        return;
      case 'POST /executor/failed':
        this.handlers.executorFailed(await readBody(request, failed));
        response.writeHead(204).end();
        return;
      case 'POST /executor/ready':
        this.handlers.executorReady((await readBody(request, hello)).incarnation);
        response.writeHead(204).end();
        return;
      case 'POST /executor/quiet':
        this.handlers.executorQuiet((await readBody(request, hello)).incarnation);
        response.writeHead(204).end();
        return;
      case 'POST /attempts': {
        const attempt = await readBody(request, begin);
        await answerOrRefuse(response, () => this.handlers.beginAttempt(attempt as BeginAttempt));
        return;
      }
      case 'POST /attempts/end': {
        const { id, result } = await readBody(request, end);
        await this.handlers.endAttempt(id, result === undefined ? undefined : encoded(result));
        response.writeHead(204).end();
        return;
      }
      case 'POST /memory/dropped':
        this.handlers.memoryDropped(await readBody(request, dropped));
        response.writeHead(204).end();
        return;
      case 'GET /status':
        answer(response, 200, this.handlers.status());
        return;
      case 'POST /reload':
        await this.reload(await readBody(request, reloadRequest), response);
        return;
      case 'POST /orders': {
        const order = await readBody(request, localOrder);
        await answerOrRefuse(response, () => this.handlers.order(order as LocalOrder));
        return;
      }
      default:
        response.writeHead(404).end();
    }
  }

  /** A refusal at once is an answer like any other; what comes later is the last line of the stream. */
  private async reload(request: ReloadRequest, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => {
      gone.abort();
    });
    const write = (line: ReloadLine): void => {
      if (!response.headersSent) response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      response.write(`${JSON.stringify(line)}\n`);
    };
    try {
      const result = await this.handlers.reload(request, gone.signal, (step) => {
        write({ type: 'step', ...step });
      });
      write({ type: 'done', result });
    } catch (error) {
      const found = findError(error);
      if (found === undefined) throw error;
      const refusal: AttemptRefusal = { code: found.code, message: found.message };
      if (!response.headersSent) {
        answer(response, 409, refusal);
        return;
      }
      write({ type: 'failed', refusal });
    }
    response.end();
  }
}

function fenceLine(forMs: number | null): string {
  return `${JSON.stringify({ forMs } satisfies FenceLine)}\n`;
}

function keepStream(streams: Map<string, ServerResponse>, incarnation: string, response: ServerResponse): void {
  streams.set(incarnation, response);
  response.on('close', () => {
    if (streams.get(incarnation) === response) streams.delete(incarnation);
  });
}

function encoded({ json }: { json?: string | undefined }): EncodedResult {
  return json === undefined ? {} : { json };
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** An error of the catalogue is an answer too. */
async function answerOrRefuse(response: ServerResponse, handle: () => Promise<unknown>): Promise<void> {
  try {
    answer(response, 200, await handle());
  } catch (error) {
    const found = findError(error);
    if (found === undefined) throw error;
    answer(response, 409, { code: found.code, message: found.message } satisfies AttemptRefusal);
  }
}

/** What a client of the socket did wrong; nothing of ours failed. */
class BadRequest extends Error {
  constructor(
    readonly status: 400 | 413,
    message: string,
  ) {
    super(message);
  }
}

async function readBody<T>(request: IncomingMessage, schema: z.ZodType<T>): Promise<T> {
  let size = 0;
  const chunks: Buffer[] = [];
  try {
    // Not destroyed when the loop is left: the answer still has to go out by the same connection.
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > LOCAL_BODY_LIMIT_BYTES) break;
      chunks.push(chunk);
    }
  } catch (error) {
    // An executor that is killed in the middle of a request.
    throw new BadRequest(400, `The body broke off: ${String(error)}`);
  }
  if (size > LOCAL_BODY_LIMIT_BYTES)
    throw new BadRequest(413, `The body is longer than ${LOCAL_BODY_LIMIT_BYTES} bytes.`);
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new BadRequest(400, 'The body is not JSON.');
  }
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw new BadRequest(400, z.prettifyError(parsed.error));
  return parsed.data;
}
