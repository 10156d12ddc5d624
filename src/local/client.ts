/**
 * Asks the atlasd of this host over the socket in its state directory, which answers also while Temporal is away. The
 * protocol is in `contract/local.ts`, the path of the socket comes from `paths.ts`.
 *
 * Owns: the bound on the wait, and turning what goes wrong into errors of the catalogue. It must not retry: an order that
 * may have arrived has an id of its own, and whoever gave it decides.
 */
import { request as httpRequest } from 'node:http';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { formatDurationMs } from '../contract/duration.js';
import { AtlasError, isErrorCode } from '../contract/errors.js';
import type {
  AttemptRefusal,
  LocalOrder,
  LocalOrderAnswer,
  LocalStatus,
  ReloadLine,
  ReloadRequest,
  ReloadResult,
  ReloadStep,
} from '../contract/local.js';

/** The daemon is on the same host and answers from memory or after one write: longer than this it is stopped or stuck. */
const CALL_TIMEOUT_MS = 5_000;

export interface LocalCallOptions {
  readonly timeoutMs?: number;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** What an operator may ask: the requests by method and path, with body and answer. */
export function localCall(
  socketPath: string,
  method: 'GET',
  path: '/status',
  body?: undefined,
  options?: LocalCallOptions,
): Promise<LocalStatus>;
export function localCall(
  socketPath: string,
  method: 'POST',
  path: '/orders',
  body: LocalOrder,
  options?: LocalCallOptions,
): Promise<LocalOrderAnswer>;
/**
 * @throws {@link AtlasError} `NotFound` where no atlasd runs with this directory, `FileUnreadable` where this user may
 * not ask it, `WaitTimeout` where it does not answer, and the code of its refusal, such as `FleetConflict`
 */
export async function localCall(
  socketPath: string,
  method: 'GET' | 'POST',
  path: string,
  body?: unknown,
  { timeoutMs = CALL_TIMEOUT_MS }: LocalCallOptions = {},
): Promise<unknown> {
  const asked = `${method} ${path}`;
  const answer = await exchange(socketPath, method, path, body, timeoutMs).catch((error: unknown) => {
    throw describe(error, dirname(socketPath));
  });
  if (answer.status !== 200) throw failureOf(answer, asked, dirname(socketPath));
  return parse(answer, asked);
}

async function exchange(
  socketPath: string,
  method: string,
  path: string,
  body: unknown,
  timeoutMs: number,
): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<Answer>((resolve, reject) => {
      const headers = body === undefined ? {} : { 'content-type': 'application/json' };
      const request = httpRequest({ socketPath, method, path, headers, agent: false }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') });
        });
      });
      request.on('error', reject);
      // Over the whole call: `timeout` of the request only counts silence, and starts once there is a connection.
      timer = setTimeout(() => {
        const message = `The atlasd of ${dirname(socketPath)} did not answer within ${formatDurationMs(timeoutMs)}.`;
        const next = 'It is stopped, or its host is overloaded: look at its log, and at its process with `ps`.';
        request.destroy(new AtlasError('WaitTimeout', message, { next }));
      }, timeoutMs);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Has the atlasd reload, and tells each step of it. It is as long as the reload: the daemon bounds its waits. When the signal
 * aborts the connection is closed, by which the daemon gives up a reload that has changed nothing yet.
 *
 * @throws {@link AtlasError} as {@link localCall}, with the code of the daemon's refusal, or with the reason of the signal
 */
export async function localReload(
  socketPath: string,
  body: ReloadRequest,
  signal: AbortSignal,
  onStep: (step: ReloadStep) => void,
): Promise<ReloadResult> {
  const asked = 'POST /reload';
  let last: ReloadLine | undefined;
  let isUnderWay = false;
  const answer = await new Promise<Answer>((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const options = { socketPath, method: 'POST', path: '/reload', headers, agent: false, signal };
    const request = httpRequest(options, (response) => {
      const status = response.statusCode ?? 0;
      isUnderWay = status === 200;
      const others: string[] = [];
      const lines = createInterface({ input: response });
      lines.on('line', (text) => {
        if (status !== 200) {
          others.push(text);
          return;
        }
        const line = JSON.parse(text) as ReloadLine;
        if (line.type === 'step') onStep(line);
        else last = line;
      });
      for (const source of [lines, response]) source.on('error', reject);
      lines.on('close', () => {
        resolve({ status, text: others.join('\n') });
      });
    });
    request.on('error', reject);
    request.end(JSON.stringify(body));
  }).catch((error: unknown) => {
    if (signal.aborted) throw signal.reason;
    throw isUnderWay ? endedDuringReload(dirname(socketPath), error) : describe(error, dirname(socketPath));
  });
  signal.throwIfAborted();
  if (last?.type === 'done') return last.result;
  if (last?.type === 'failed') throw new AtlasError(last.refusal.code, last.refusal.message);
  if (answer.status === 200) throw endedDuringReload(dirname(socketPath));
  throw failureOf(answer, asked, dirname(socketPath));
}

function endedDuringReload(directory: string, cause?: unknown): AtlasError {
  return new AtlasError('NotFound', `The atlasd of ${directory} ended during the reload.`, {
    next: 'Look at its log for the reason, and start it again: it loads the code on disk, and goes on with its sessions.',
    cause,
  });
}

/** Why an answer is not the one that was asked for. */
function failureOf(answer: Answer, asked: string, directory: string): Error {
  switch (answer.status) {
    case 409:
      return refusalIn(answer, asked);
    case 404:
      return new AtlasError(
        'NotFound',
        `The atlasd of ${directory} does not know ${asked}, so it is of another version than this command.`,
        { next: 'Compare `atlasd --version` with the version in `atlasd status`, and restart the older one.' },
      );
    default:
      return new Error(`atlasd answered ${answer.status} to ${asked}: ${excerpt(answer)}`);
  }
}

function describe(error: unknown, directory: string): unknown {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
    // The socket that an atlasd left when it was killed.
    case 'ECONNREFUSED':
      return new AtlasError('NotFound', `No atlasd runs with the state directory ${directory}.`, {
        next: 'Name the directory of the one that is meant with --state-dir or --fleet, or start it.',
        cause: error,
      });
    case 'ECONNRESET':
    case 'EPIPE':
      return new AtlasError('NotFound', `The atlasd of ${directory} ended before it answered.`, {
        next: 'Look at its log for the reason, and ask again once it runs.',
        cause: error,
      });
    case 'EACCES':
    case 'EPERM':
      return new AtlasError('FileUnreadable', `This user may not talk to the atlasd of ${directory}.`, {
        next: 'Run the command as the user that runs atlasd, or with sudo and --state-dir.',
        cause: error,
      });
    default:
      return error;
  }
}

function refusalIn(answer: Answer, asked: string): Error {
  const { code, message } = parse(answer, asked) as AttemptRefusal;
  // A daemon of a later version may have codes that this one has no words for.
  if (!isErrorCode(code)) return new Error(`atlasd refused ${asked}: ${excerpt(answer)}`);
  return new AtlasError(code, message);
}

function parse(answer: Answer, asked: string): unknown {
  try {
    return JSON.parse(answer.text);
  } catch (error) {
    throw new Error(`atlasd answered ${asked} with what is not JSON: ${excerpt(answer)}`, { cause: error });
  }
}

const EXCERPT_LENGTH = 200;

function excerpt({ text }: Answer): string {
  return text === '' ? 'an empty body' : text.slice(0, EXCERPT_LENGTH);
}
