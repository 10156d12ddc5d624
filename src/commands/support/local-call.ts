/**
 * One call to the daemon of this host over its Unix socket. Local, so that an answer that takes long is no answer.
 * See `contract/local.ts` for what there is to call.
 */
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { AtlasError, isErrorCode } from '../../contract/errors.js';

/** The daemon writes its ledger before it answers, and a disk may be slow. */
const ANSWER_WITHIN_MS = 15_000;

/**
 * The body of the answer, which is JSON.
 *
 * @throws {@link AtlasError} `NotFound` where no daemon answers there, or what the daemon refuses the call with.
 */
export async function localCall(socketPath: string, method: string, path: string, body?: unknown): Promise<unknown> {
  const { status, answer } = await exchange(socketPath, method, path, body).catch((error: unknown) => {
    throw unanswered(socketPath, error);
  });
  if (status >= 200 && status < 300) return answer === '' ? undefined : parsed(socketPath, answer);
  const refusal = answer === '' ? undefined : parsed(socketPath, answer);
  const { code, message } = (refusal ?? {}) as { code?: unknown; message?: unknown };
  if (isErrorCode(code)) throw new AtlasError(code, String(message));
  throw new AtlasError(
    'NotFound',
    `The daemon at ${socketPath} does not know ${method} ${path} (${status}${typeof message === 'string' ? `: ${message}` : ''}).`,
    { next: 'It is of another version than this command; restart it with the one that is installed.' },
  );
}

function exchange(
  socketPath: string,
  method: string,
  path: string,
  body: unknown,
): Promise<{ readonly status: number; readonly answer: string }> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    const call = request({ socketPath, method, path, headers, signal }, (response) => {
      text(response).then((answer) => resolve({ status: response.statusCode ?? 0, answer }), reject);
    });
    call.on('error', reject);
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function parsed(socketPath: string, answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch (error) {
    throw new AtlasError('NotFound', `What answers at ${socketPath} is no atlasd.`, { cause: error });
  }
}

function unanswered(socketPath: string, error: unknown): AtlasError {
  const { code, name } = error as { code?: unknown; name?: unknown };
  const why =
    code === 'ENOENT' || code === 'ECONNREFUSED'
      ? 'none runs there'
      : code === 'EACCES'
        ? 'this user may not talk to it'
        : name === 'TimeoutError' || name === 'AbortError'
          ? `it does not answer within ${ANSWER_WITHIN_MS / 1_000} s`
          : error instanceof Error
            ? error.message
            : String(error);
  return new AtlasError('NotFound', `No atlasd answers at ${socketPath}: ${why}.`, {
    cause: error,
    next: 'Run it as the user of the daemon, and name its directory with --state-dir, or its fleet with --fleet.',
  });
}
