/** A command context whose streams remember what was written, for tests of commands without a process. */
import { PassThrough } from 'node:stream';
import type { CommandContext, ParsedCommand } from '../../src/commands/spec.js';

export interface FakeContext extends CommandContext {
  out(): string;
  err(): string;
}

export interface FakeTerminal {
  readonly columns?: number;
  readonly isTTY?: boolean;
  readonly env?: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal;
  /** Default: that of the process. */
  readonly stdin?: NodeJS.ReadStream;
}

export function fakeContext({ columns, isTTY, env = {}, signal, stdin }: FakeTerminal = {}): FakeContext {
  const stdout = recorder(columns, isTTY);
  const stderr = recorder(columns, isTTY);
  return {
    env,
    cwd: '/nowhere',
    stdout: stdout.stream,
    stderr: stderr.stream,
    stdin: stdin ?? process.stdin,
    signal: signal ?? new AbortController().signal,
    out: stdout.text,
    err: stderr.text,
  };
}

function recorder(
  columns: number | undefined,
  isTTY: boolean | undefined,
): { stream: NodeJS.WriteStream; text: () => string } {
  const stream = new PassThrough();
  let written = '';
  stream.on('data', (chunk: Buffer) => (written += chunk.toString('utf8')));
  Object.assign(stream, { columns, isTTY });
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => written };
}

export function parsedCommand(options: Record<string, unknown> = {}, args: ParsedCommand['args'] = []): ParsedCommand {
  return { args, options, given: new Set(Object.keys(options)) };
}
