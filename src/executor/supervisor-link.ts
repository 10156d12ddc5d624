/**
 * The executor's end of the Unix socket: asks before attempts, tells their end, and hears commands. The protocol is in
 * `contract/local.ts`.
 */
import { Agent, request as httpRequest } from 'node:http';
import { createInterface } from 'node:readline';
import { AtlasError, type ErrorCode } from '../contract/errors.js';
import type {
  AttemptFacts,
  AttemptRefusal,
  BeginAttempt,
  EncodedResult,
  ExecutorCommand,
  ExecutorFailure,
  ExecutorHello,
  MemoryDropped,
  SessionMemoryName,
} from '../contract/local.js';

/** The supervisor is on the same host and runs no user code: silence for this long means that it is gone or stopped. */
const CALL_TIMEOUT_MS = 10_000;
/** An error of the bundler may quote whole files. */
const FAILURE_MESSAGE_LENGTH = 8_000;

export class SupervisorLink {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 32 });

  constructor(
    private readonly socketPath: string,
    private readonly hello: ExecutorHello,
  ) {}

  /**
   * Opens the stream of commands. Resolves when it ends, which means that the supervisor is gone; rejects when it can
   * not be opened.
   */
  async listen(onCommand: (command: ExecutorCommand) => void): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest({ socketPath: this.socketPath, method: 'POST', path: '/executor' }, (response) => {
        if (response.statusCode !== 200) {
          reject(new AtlasError('ExecutorFailed', `The supervisor refused this executor (${response.statusCode}).`));
          response.resume();
          return;
        }
        const lines = createInterface({ input: response });
        lines.on('line', (line) => {
          onCommand(JSON.parse(line) as ExecutorCommand);
        });
        // Node 20 gives the reader the errors of its input too, and an error that nobody hears would end this process
        // without its children.
        for (const source of [lines, response]) source.on('error', () => undefined);
        response.on('close', resolve);
      });
      // Before the answer the stream could not be opened; after it, 'close' follows and says the same.
      request.on('error', reject);
      request.end(JSON.stringify(this.hello));
    });
  }

  async loaded(): Promise<void> {
    await this.call('/executor/loaded', this.hello);
  }

  async failed(code: ErrorCode, message: string): Promise<void> {
    const failure: ExecutorFailure = { ...this.hello, code, message: message.slice(0, FAILURE_MESSAGE_LENGTH) };
    await this.call('/executor/failed', failure);
  }

  async quiet(): Promise<void> {
    await this.call('/executor/quiet', this.hello);
  }

  async ready(): Promise<void> {
    await this.call('/executor/ready', this.hello);
  }

  /** Throws the supervisor's refusal, with its code. */
  async beginAttempt(attempt: BeginAttempt): Promise<AttemptFacts> {
    const { status, body } = await this.call('/attempts', attempt);
    if (status === 200) return body as AttemptFacts;
    const refusal = body as AttemptRefusal;
    throw new AtlasError(refusal.code, refusal.message);
  }

  async endAttempt(id: string, result?: EncodedResult): Promise<void> {
    await this.call('/attempts/end', { id, ...(result === undefined ? {} : { result }) });
  }

  async memoryDropped(memory: SessionMemoryName): Promise<void> {
    const { incarnation } = this.hello;
    await this.call('/memory/dropped', { incarnation, memory } satisfies MemoryDropped);
  }

  private async call(path: string, body: unknown): Promise<{ status: number; body: unknown }> {
    return new Promise((resolve, reject) => {
      const request = httpRequest(
        { socketPath: this.socketPath, method: 'POST', path, agent: this.agent, timeout: CALL_TIMEOUT_MS },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', reject);
          response.on('end', () => {
            const status = response.statusCode ?? 0;
            const text = Buffer.concat(chunks).toString('utf8');
            // 409 is a refusal with a code; anything else that is no success is a fault of one of the two.
            if (status >= 400 && status !== 409)
              reject(new AtlasError('ExecutorFailed', `The supervisor answered ${status} to ${path}.`));
            else resolve({ status, body: text === '' ? undefined : JSON.parse(text) });
          });
        },
      );
      request.on('timeout', () =>
        request.destroy(
          new AtlasError('ExecutorFailed', `The supervisor did not answer ${path} in ${CALL_TIMEOUT_MS} ms.`),
        ),
      );
      request.on('error', reject);
      request.end(JSON.stringify(body));
    });
  }
}
