/**
 * The Unix socket in the state directory: the executor asks here before each attempt and takes commands from here, and
 * `GET /status` answers also while Temporal is away. The protocol is in `contract/local.ts`.
 */
import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { z } from 'zod';
import { findError } from '../contract/errors.js';
import {
  LOCAL_BODY_LIMIT_BYTES,
  type AttemptFacts,
  type AttemptRefusal,
  type BeginAttempt,
  type EncodedResult,
  type ExecutorCommand,
  type ExecutorHello,
  type FenceLine,
  type LocalOrder,
  type LocalOrderAnswer,
  type LocalStatus,
  type MemoryDropped,
} from '../contract/local.js';
import type { EventLog } from './ports.js';

export interface LocalHandlers {
  /** The first command the executor gets; it waits for it. */
  readonly settings: () => Promise<ExecutorCommand>;
  readonly isCurrentExecutor: (hello: ExecutorHello) => boolean;
  readonly executorReady: (incarnation: string) => void;
  readonly beginAttempt: (attempt: BeginAttempt) => Promise<AttemptFacts>;
  readonly endAttempt: (id: string, result?: EncodedResult) => Promise<void>;
  readonly memoryDropped: (dropped: MemoryDropped) => void;
  readonly status: () => LocalStatus;
  readonly order: (order: LocalOrder) => Promise<LocalOrderAnswer>;
}

const hello = z.object({ pid: z.number(), incarnation: z.string() });
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
  private commands: ServerResponse | undefined;
  private fence: ServerResponse | undefined;

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
    this.commands?.end();
    this.fence?.end();
    await new Promise<void>((resolve) => {
      this.server.close(() => {
        resolve();
      });
      this.server.closeAllConnections();
    });
  }

  /** Sends a command to the executor; without one there is nothing to command. */
  send(command: ExecutorCommand): void {
    this.commands?.write(`${JSON.stringify(command)}\n`);
  }

  /** Tells the executor's fence how long pinned attempts may go on. */
  sendFence(forMs: number | null): void {
    this.fence?.write(`${JSON.stringify({ forMs } satisfies FenceLine)}\n`);
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const route = `${request.method ?? ''} ${request.url ?? ''}`;
    switch (route) {
      case 'POST /executor': {
        const from = await readBody(request, hello);
        if (!this.handlers.isCurrentExecutor(from)) {
          response.writeHead(409).end();
          return;
        }
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        response.flushHeaders();
        const settings = await this.handlers.settings();
        // Any other command comes after the first; and it may have ended meanwhile.
        if (response.destroyed || !this.handlers.isCurrentExecutor(from)) return;
        this.commands = response;
        this.send(settings);
        response.on('close', () => {
          if (this.commands === response) this.commands = undefined;
        });
        return;
      }
      case 'POST /executor/fence': {
        const from = await readBody(request, hello);
        if (!this.handlers.isCurrentExecutor(from)) {
          response.writeHead(409).end();
          return;
        }
        this.fence = response;
        response.writeHead(200, { 'content-type': 'application/x-ndjson' });
        this.sendFence(null);
        response.on('close', () => {
          if (this.fence === response) this.fence = undefined;
        });
        return;
      }
      case 'POST /executor/ready':
        this.handlers.executorReady((await readBody(request, hello)).incarnation);
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
      case 'POST /orders': {
        const order = await readBody(request, localOrder);
        await answerOrRefuse(response, () => this.handlers.order(order as LocalOrder));
        return;
      }
      default:
        response.writeHead(404).end();
    }
  }
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
