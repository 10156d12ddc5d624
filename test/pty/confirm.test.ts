/** The question before something is lost, at a real terminal and without one. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { spawn, type IPty } from '@lydell/node-pty';
import { afterEach, describe, expect, it } from 'vitest';

const SCENE = fileURLToPath(new URL('confirm-scene.mjs', import.meta.url));

let running: IPty | undefined;
afterEach(() => running?.kill('SIGKILL'));

/** Waits for the question, types, and waits for the end. */
async function answer(keys: string, ...args: string[]): Promise<{ readonly exit: number; readonly screen: string }> {
  const pty = spawn(process.execPath, [SCENE, ...args], {
    cols: 100,
    rows: 20,
    env: { ...process.env, TERM: 'xterm', NO_COLOR: '1' },
  });
  running = pty;
  let screen = '';
  let typed = false;
  pty.onData((data) => {
    screen += data;
    if (typed || !screen.includes('[y/N] ')) return;
    typed = true;
    pty.write(keys);
  });
  const exit = await new Promise<number>((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  running = undefined;
  return { exit, screen: screen.replaceAll('\r', '') };
}

describe('a question at a terminal', () => {
  it('lets the command go on after a yes, which can be corrected before Enter', async () => {
    const { exit, screen } = await answer('n\u007fy\r');
    expect(exit).toBe(0);
    expect(screen).toContain('  destroy the one thing\nDestroy it? [y/N] ');
    expect(screen).toMatch(/\ndestroyed\n$/);
  });

  it.each([
    ['n', 'n\r', 1, 'The answer was no. Nothing was changed.\n next: Run it again and answer y.\n'],
    ['Enter', '\r', 1, 'The answer was no. Nothing was changed.\n next: Run it again and answer y.\n'],
    ['Ctrl-D', '\u0004', 1, '\nThe answer was no. Nothing was changed.\n next: Run it again and answer y.\n'],
    ['Ctrl-C', '\u0003', 130, '\nInterrupted at the question. Nothing was changed.\n next: Run it again.\n'],
  ])('changes nothing after %s', async (_, keys, expected, end) => {
    const { exit, screen } = await answer(keys);
    expect(exit).toBe(expected);
    expect(screen).not.toContain('destroyed');
    expect(screen).toContain(end);
  });

  it('is not asked with --yes', async () => {
    expect(await answer('', '--yes')).toEqual({ exit: 0, screen: 'destroyed\n' });
    expect(await answer('', '-y')).toEqual({ exit: 0, screen: 'destroyed\n' });
  });
});

describe('a question without a terminal', () => {
  it('is not waited for, and not answered by what is in the pipe', () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [SCENE], {
      input: 'y\n',
      encoding: 'utf8',
      env: { ...process.env, NO_COLOR: '1' },
    });
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toBe(
      'error: "Destroy it?" needs an answer, and there is no terminal to ask on. Nothing was changed. It would have done this:\n  destroy the one thing\n next: Add --yes to do it without being asked.\n',
    );
  });
});
