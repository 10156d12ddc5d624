/**
 * The live view of a drain as a terminal gets it: a real pseudo-terminal around `drain-view-scene.mjs`, which plays one.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { spawn, type IPty } from '@lydell/node-pty';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';

const SCENE = fileURLToPath(new URL('drain-view-scene.mjs', import.meta.url));
const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';
const ERASE_BELOW = '\u001b[J';

let server: Server;
let scene: Scene | undefined;

beforeEach(async () => {
  server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  scene?.kill();
  scene = undefined;
  server.close();
});

class Scene {
  output = '';
  readonly ended: Promise<number>;
  private readonly waiting = new Set<() => void>();

  constructor(
    readonly pty: IPty,
    readonly control: Socket,
    early: string,
  ) {
    this.output = early;
    pty.onData((data) => {
      this.output += data;
      for (const check of this.waiting) check();
    });
    this.ended = new Promise((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  static async start(columns: number, env: NodeJS.ProcessEnv = {}): Promise<Scene> {
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const { CI: _ci, NO_COLOR: _noColor, FORCE_COLOR: _forceColor, ...inherited } = process.env;
    const pty = spawn(process.execPath, [SCENE, String((server.address() as AddressInfo).port)], {
      cols: columns,
      rows: 20,
      env: { ...inherited, TERM: 'xterm-256color', ...env },
    });
    const early: string[] = [];
    const collecting = pty.onData((data) => early.push(data));
    const [control] = await connected;
    collecting.dispose();
    scene = new Scene(pty, control, early.join(''));
    return scene;
  }

  /** What is shown since the view was last erased. */
  get screen(): string[] {
    return plain(this.output.split(ERASE_BELOW).at(-1)!)
      .split('\n')
      .map((line) => line.trimEnd())
      .filter((line) => line !== '');
  }

  async next(text: string): Promise<void> {
    this.control.write('next\n');
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (!this.screen.join('\n').includes(text)) return;
        this.waiting.delete(check);
        resolve();
      };
      this.waiting.add(check);
      check();
    });
  }

  kill(): void {
    this.control.destroy();
    try {
      this.pty.kill('SIGKILL');
    } catch {
      // It has ended by itself.
    }
  }
}

function plain(text: string): string {
  return text.replace(/\u001b\[[0-9;?]*[a-zA-Z]/g, '').replaceAll('\r', '');
}

describe.each([80, 200])('at %i columns', (columns) => {
  it('shows what goes on, what waits and why, and which session moves', async () => {
    const view = await Scene.start(columns);
    await view.next('moved 2.0s ago');
    expect(view.screen[0]).toMatch(/^Draining 3 workers, 1 at a time · 1 drained, 1 going · 14s/);
    expect(view.screen.slice(1, 4)).toEqual([
      '✓ worker-1  drained in 12s',
      '> worker-2  draining, 2 of 4 slots held · deadline in 9m46s',
      expect.stringMatching(/^ {4}06babd2d6284 {2}extractPages 1m14s · moved 2\.0s ago · 12 of 80 pages \(15%\)/),
    ]);
    expect(view.screen[4]).toBe('· worker-3  waits: 1 being drained, --max-parallel 1');
    await view.next('77a1c2b3d4e5');
    expect(view.screen[3]).toMatch(/06babd2d6284 {2}STUCK\? extractPages 2m00s · no progress for 48s/);
    expect(view.screen[4]).toMatch(/77a1c2b3d4e5 {2}STUCK\? no step running for 5m00s · owner waits for a timer/);
    await view.next('Temporal has not answered for 3.0s');
    expect(view.screen.join('\n')).not.toContain('06babd2d6284');
    view.control.write('end\n');
    expect(await view.ended).toBe(0);
    for (const line of plain(view.output).split('\n')) expect(displayWidth(line), line).toBeLessThan(columns);
  });
});

describe('the terminal', () => {
  it('is not overrun by more lines than it has', async () => {
    const view = await Scene.start(100);
    for (const text of ['moved 2.0s', '77a1c2b3d4e5', 'has not answered']) await view.next(text);
    await view.next('more lines');
    expect(view.screen).toHaveLength(19);
    expect(view.screen.at(-1)).toMatch(/^… \d+ more lines$/);
  });

  it('is redrawn to a new width', async () => {
    const view = await Scene.start(120);
    await view.next('moved 2.0s ago');
    view.pty.resize(50, 20);
    await view.next('STUCK?');
    for (const line of view.screen) expect(displayWidth(line), line).toBeLessThan(50);
    expect(view.screen[0]).toContain('…');
  });

  it('is free again after Ctrl-C, with its cursor and the last state', async () => {
    const view = await Scene.start(80);
    await view.next('moved 2.0s ago');
    expect(view.output).toContain(HIDE_CURSOR);
    view.pty.write('\u0003');
    expect(await view.ended).toBe(130);
    expect(view.output.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(view.output.lastIndexOf(HIDE_CURSOR));
    expect(plain(view.output)).toMatch(/worker-3 {2}waits: .*\n(\^C)?the terminal is free\n$/);
  });

  it('gets no colour with NO_COLOR, and loses nothing by it', async () => {
    const view = await Scene.start(80, { NO_COLOR: '1' });
    await view.next('moved 2.0s ago');
    await view.next('77a1c2b3d4e5');
    expect(view.output).not.toMatch(/\u001b\[(3[0-7]|9[0-7])m/);
    expect(view.screen.join('\n')).toMatch(/✓ worker-1 {2}drained[^]*> worker-2 {2}draining[^]*STUCK\?/);
  });
});
