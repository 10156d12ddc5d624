import { execFileSync } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readPasswordFile, type PasswordFile } from '../../../../src/commands/support/password-file.js';
import type { AtlasError } from '../../../../src/contract/errors.js';

let cwd: string;
const controller = new AbortController();

beforeEach(async () => {
  cwd = await mkdtemp(join(tmpdir(), 'atlas-password-'));
});
afterEach(() => rm(cwd, { recursive: true }));

async function fromFile(content: string | Buffer, mode = 0o600): Promise<PasswordFile> {
  await writeFile(join(cwd, 'secret'), content);
  await chmod(join(cwd, 'secret'), mode);
  return await readPasswordFile({ file: 'secret', cwd, stdin: Readable.from([]), signal: controller.signal });
}

async function fromStdin(stdin: Readable & { isTTY?: boolean }, signal = controller.signal): Promise<PasswordFile> {
  return await readPasswordFile({ file: '-', cwd, stdin, signal });
}

async function refusal(read: Promise<PasswordFile>): Promise<string> {
  const error = await read.then(
    () => new Error('it was read'),
    (caught: unknown) => caught as AtlasError,
  );
  return `${'code' in error ? error.code : error.name}: ${error.message}`;
}

describe('the password', () => {
  it.each([
    ['a line', 'sesame\n', 'sesame'],
    ['a line of Windows', 'sesame\r\n', 'sesame'],
    ['the first of several lines', 'sesame\nbasil\n', 'sesame'],
    ['all there is', 'sesame', 'sesame'],
    ['one with blanks, which belong to it', ' open sesame \t\n', ' open sesame \t'],
    ['UTF-8', 'caf\u00e9\n', 'caf\u00e9'],
    ['UTF-8 with a mark at its beginning', '\ufeffcaf\u00e9\n', 'caf\u00e9'],
    ['Latin-1', Buffer.from('caf\u00e9\n', 'latin1'), 'caf\u00e9'],
    ['the longest there may be', `${'x'.repeat(1024)}\r\n${'y'.repeat(5000)}`, 'x'.repeat(1024)],
  ])('is %s', async (_, content, password) => {
    expect(await fromFile(content)).toEqual({ password });
  });

  it('comes from stdin, however it is cut into pieces', async () => {
    expect(await fromStdin(Readable.from(['ses', 'ame\nba', 'sil']))).toEqual({ password: 'sesame' });
    expect(await fromStdin(Readable.from([Buffer.from('caf'), Buffer.from([0xc3]), Buffer.from([0xa9])]))).toEqual({
      password: 'caf\u00e9',
    });
  });

  it('is taken from stdin as soon as its line is whole', async () => {
    const open = new PassThrough();
    open.write('sesame\n');
    expect(await fromStdin(open)).toEqual({ password: 'sesame' });
  });

  it('is not waited for once the command is interrupted', async () => {
    const interrupt = new AbortController();
    const waiting = fromStdin(new PassThrough(), interrupt.signal);
    interrupt.abort(new Error('Ctrl-C'));
    await expect(waiting).rejects.toThrow('Ctrl-C');
  });

  it('comes from a pipe that is named', async () => {
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    await chmod(join(cwd, 'pipe'), 0o644);
    const reading = readPasswordFile({ file: 'pipe', cwd, stdin: Readable.from([]), signal: controller.signal });
    await writeFile(join(cwd, 'pipe'), 'sesame\n');
    expect(await reading).toEqual({ password: 'sesame' });
  });
});

describe('a password file', () => {
  it.each(['644', '640', '604'])('with the mode %s is warned of', async (mode) => {
    expect(await fromFile('sesame', Number.parseInt(mode, 8))).toEqual({
      password: 'sesame',
      warning: 'Other users of this host can read secret; `chmod 600 secret` ends that.',
    });
  });

  it.each([
    ['is empty', '', 'Usage: The password file secret has no password in its first line.'],
    ['begins with an empty line', '\nsesame\n', 'Usage: The password file secret has no password in its first line.'],
    ['is too long', 'x'.repeat(1025), 'Usage: The password file secret has a first line of more than 1024 bytes.'],
    ['is no text', Buffer.from([0xff, 0xfe, 0x61, 0x00]), 'Usage: The password file secret is not plain text.'],
  ])('that %s is refused', async (_, content, message) => {
    expect(await refusal(fromFile(content))).toBe(message);
  });

  it('that is none is refused', async () => {
    const read = (file: string): Promise<PasswordFile> =>
      readPasswordFile({ file, cwd, stdin: Readable.from([]), signal: controller.signal });
    expect(await refusal(read('missing'))).toBe('FileUnreadable: The password file missing does not exist.');
    expect(await refusal(read('.'))).toBe('FileUnreadable: The password file . is a directory.');
    expect(await refusal(read('/dev/zero'))).toMatch(/^Usage: The password file \/dev\/zero has a first line of more/);
  });

  it('on stdin is refused where that is a terminal or has nothing', async () => {
    const terminal = Object.assign(new PassThrough(), { isTTY: true });
    expect(await refusal(fromStdin(terminal))).toMatch(/^Usage: --password-file - .* which is a terminal\.$/);
    expect(await refusal(fromStdin(Readable.from([])))).toBe('Usage: Stdin has no password in its first line.');
  });
});
