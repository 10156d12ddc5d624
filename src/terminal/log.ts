/**
 * The log of atlasd: one line per event, JSON for machines and a readable line on a terminal.
 *
 * Owns: the form of the lines and where they go. Must not decide what is worth a line.
 */
import { createRequire } from 'node:module';
import type { DestinationStream, Logger as PinoLogger } from 'pino';

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error';
export type LogFormat = 'auto' | 'json' | 'text';

/** `event` is a stable word for machines; the other fields are what the event is about. */
export interface LogFields {
  readonly event: string;
  readonly [field: string]: unknown;
}

type LogMethod = (fields: LogFields, message: string) => void;

export interface Logger {
  readonly trace: LogMethod;
  readonly debug: LogMethod;
  readonly info: LogMethod;
  readonly warn: LogMethod;
  readonly error: LogMethod;
  isOn(level: LogLevel): boolean;
  /** A logger whose lines all have these fields too. */
  child(fields: Readonly<Record<string, unknown>>): Logger;
}

export interface LoggerOptions {
  readonly level: LogLevel;
  readonly format: LogFormat;
  readonly stream: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly fd?: number };
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const satisfies readonly LogLevel[];
const LEVEL_WIDTH = 5;
const MAX_WAITING_BYTES = 1024 * 1024;
const TERMINAL_CONTROL = /[\u0000-\u001f\u007f-\u009f]/g;

export function createLogger({ level, format, stream }: LoggerOptions): Logger {
  // Loaded here, so that whoever imports this module for its types or its formatter does not pay for pino.
  const { pino, stdTimeFunctions, stdSerializers } = createRequire(import.meta.url)('pino') as typeof import('pino');
  const sink = openSink(stream);
  const isText = format === 'text' || (format === 'auto' && stream.isTTY === true);
  const destination = isText
    ? { write: (line: string) => void sink.write(formatLine(JSON.parse(line) as Record<string, unknown>)) }
    : sink;
  const logger = pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: stdSerializers.err },
    },
    destination,
  );
  return wrap(logger);
}

/**
 * Lines of a process that crashes are the ones that matter, so that they are written before the call returns. But a log
 * that nobody reads must cost no session: where the reader is gone or slow, lines wait for the next one, within a bound.
 */
function openSink(stream: LoggerOptions['stream']): DestinationStream {
  if (stream.fd === undefined) return { write: (line) => void stream.write(line) };
  const { destination } = createRequire(import.meta.url)('pino') as typeof import('pino');
  const sink = destination({
    fd: stream.fd,
    sync: true,
    maxLength: MAX_WAITING_BYTES,
    // The default sleeps, here on the thread that renews the leases, until the reader has caught up.
    retryEAGAIN: () => false,
  });
  sink.on('error', () => undefined);
  return sink;
}

function wrap(logger: PinoLogger): Logger {
  const methods = Object.fromEntries(
    LEVELS.map((level) => [level, (fields: LogFields, message: string) => logger[level](fields, message)]),
  ) as Record<LogLevel, LogMethod>;
  return { ...methods, isOn: (level) => logger.isLevelEnabled(level), child: (fields) => wrap(logger.child(fields)) };
}

/** `12:03:04 INFO  grant  session=s1 owner=order-17 Session granted`, in local time. */
export function formatLine(record: Readonly<Record<string, unknown>>): string {
  const { time, level, event, msg, ...fields } = record;
  const words = [
    localTime(String(time)),
    String(level).toUpperCase().padEnd(LEVEL_WIDTH),
    `${String(event)} `,
    ...Object.entries(fields).map(([name, value]) => `${name}=${formatValue(value)}`),
    String(msg),
  ];
  return `${words.join(' ').replace(TERMINAL_CONTROL, ' ')}\n`;
}

function localTime(iso: string): string {
  const date = new Date(iso);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

function formatValue(value: unknown): string {
  if (typeof value === 'string') return /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  // Of a serialised error the message is enough on a terminal; the stack is in the JSON form.
  if (isSerializedError(value)) return JSON.stringify(value.message);
  return JSON.stringify(value) ?? 'undefined';
}

function isSerializedError(value: unknown): value is { readonly message: string } {
  return typeof value === 'object' && value !== null && 'stack' in value && 'message' in value;
}
