import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { createLogger, formatLine, type LogFormat, type Logger, type LogLevel } from '../../../src/terminal/log.js';

/** What a logger writes to a stream without a file descriptor. */
function logged(
  options: { readonly level?: LogLevel; readonly format?: LogFormat; readonly isTTY?: boolean },
  run: (log: Logger) => void,
): string[] {
  const stream = Object.assign(new PassThrough(), { isTTY: options.isTTY ?? false });
  run(createLogger({ level: options.level ?? 'info', format: options.format ?? 'auto', stream }));
  const output = stream.read() as Buffer | null;
  return output === null ? [] : output.toString().split('\n').slice(0, -1);
}

describe('createLogger', () => {
  it('writes one JSON record per event where there is no terminal', () => {
    const [line, ...rest] = logged({}, (log) => log.info({ event: 'grant', session: 's1', n: 1 }, 'Session granted'));
    expect(rest).toEqual([]);
    expect(JSON.parse(line!)).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      event: 'grant',
      session: 's1',
      n: 1,
      msg: 'Session granted',
    });
  });

  it('drops what is below its level', () => {
    const write = (log: Logger): void => {
      for (const level of ['trace', 'debug', 'info', 'warn', 'error'] as const) log[level]({ event: level }, level);
    };
    expect(logged({ level: 'warn' }, write)).toHaveLength(2);
    expect(logged({ level: 'trace' }, write)).toHaveLength(5);
  });

  it('writes a readable line on a terminal, unless told otherwise', () => {
    const write = (log: Logger): void => log.info({ event: 'grant', session: 's1', owner: 'a b' }, 'Session granted');
    const readable = /^\d\d:\d\d:\d\d INFO {2}grant {2}session=s1 owner="a b" Session granted$/;
    expect(logged({ isTTY: true }, write)[0]).toMatch(readable);
    expect(logged({ format: 'text' }, write)[0]).toMatch(readable);
    expect(logged({ isTTY: true, format: 'json' }, write)[0]).toMatch(/^\{"level":"info"/);
  });

  it('adds the fields of a child to each of its lines', () => {
    const [line] = logged({}, (log) => log.child({ session: 's1' }).child({ owner: 'o' }).warn({ event: 'x' }, 'm'));
    expect(JSON.parse(line!)).toMatchObject({ level: 'warn', session: 's1', owner: 'o', event: 'x', msg: 'm' });
  });

  it('writes errors with their stack for machines, and with their message for people', () => {
    const write = (log: Logger): void => log.error({ event: 'x', error: new Error('no room') }, 'Failed');
    expect(JSON.parse(logged({}, write)[0]!)).toMatchObject({
      error: { type: 'Error', message: 'no room', stack: expect.stringContaining('log.test') },
    });
    expect(logged({ format: 'text' }, write)[0]).toMatch(/ ERROR x {2}error="no room" Failed$/);
  });

  it('has written a line to a file descriptor when the call returns', () => {
    const directory = mkdtempSync(join(tmpdir(), 'atlas-log-'));
    const file = join(directory, 'log');
    const fd = openSync(file, 'w');
    try {
      const stream = Object.assign(new PassThrough(), { fd });
      for (const format of ['json', 'text'] as const) {
        createLogger({ level: 'info', format, stream }).info({ event: 'last' }, 'Last words');
      }
      const [first, second] = readFileSync(file, 'utf8').split('\n');
      expect(JSON.parse(first!)).toMatchObject({ event: 'last' });
      expect(second).toMatch(/ INFO {2}last {2}Last words$/);
    } finally {
      closeSync(fd);
      rmSync(directory, { recursive: true });
    }
  });
});

it('goes on when the log can not be written', () => {
  const fd = openSync('/dev/null', 'r');
  try {
    const log = createLogger({ level: 'info', format: 'json', stream: Object.assign(new PassThrough(), { fd }) });
    expect(() => log.info({ event: 'x' }, 'm')).not.toThrow();
  } finally {
    closeSync(fd);
  }
});

describe('formatLine', () => {
  it('keeps to one line and lets no control character reach the terminal', () => {
    const line = formatLine({
      time: 0,
      level: 'info',
      event: 'x',
      owner: '\u001b[2J\n',
      list: [1, 'a'],
      msg: 'a\nb\u009b',
    });
    expect(line).toMatch(/ INFO {2}x {2}owner="\\u001b\[2J\\n" list=\[1,"a"\] a b \n$/);
  });
});
