/**
 * The live view of a run as a terminal gets it: a real pseudo-terminal around `run-view-scene.mjs`, which plays a run.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { spawn, type IPty } from '@lydell/node-pty';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';

const SCENE = fileURLToPath(new URL('run-view-scene.mjs', import.meta.url));
const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';

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
  #output = '';
  readonly #waiting = new Set<() => void>();
  readonly ended: Promise<number>;

  constructor(
    readonly pty: IPty,
    readonly control: Socket,
  ) {
    pty.onData((data) => {
      this.#output += data;
      for (const check of this.#waiting) check();
    });
    this.ended = new Promise((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  static async start(columns: number, env: NodeJS.ProcessEnv = {}): Promise<Scene> {
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const { CI: _ci, NO_COLOR: _noColor, FORCE_COLOR: _forceColor, ...inherited } = process.env;
    const pty = spawn(process.execPath, [SCENE, String((server.address() as AddressInfo).port)], {
      cols: columns,
      rows: 30,
      env: { ...inherited, TERM: 'xterm-256color', ...env },
    });
    const early: string[] = [];
    const collecting = pty.onData((data) => early.push(data));
    const [control] = await connected;
    collecting.dispose();
    scene = new Scene(pty, control);
    scene.#output = early.join('');
    return scene;
  }

  get output(): string {
    return this.#output;
  }

  /** The lines that the terminal shows at the end: after the last time the view was erased. */
  get screen(): string[] {
    const lastFrame = this.#output.split('\u001b[G').at(-1)!;
    return plain(lastFrame)
      .split('\n')
      .map((line) => line.trimEnd())
      .filter((line) => line !== '');
  }

  next(): void {
    this.control.write('next\n');
  }

  async until(text: string): Promise<void> {
    if (this.screen.join('\n').includes(text)) return;
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (!this.screen.join('\n').includes(text)) return;
        this.#waiting.delete(check);
        resolve();
      };
      this.#waiting.add(check);
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
  it('shows a run from the wait for a worker to its redo', async () => {
    const view = await Scene.start(columns);
    await view.until('Find a worker');
    view.next();
    await view.until('No worker of the fleet');
    expect(view.screen.join('\n')).toMatch(/> Find a worker +running +6\.0s\n· Download +waiting\n/);
    view.next();
    await view.until('50.0 MB of 200.0 MB (25%)');
    expect(view.screen[0]).toContain('on worker-1 · 7.0s');
    expect(view.screen.join('\n')).toMatch(/✓ Find a worker +done +7\.0s\n> Download +running/);
    expect(view.screen.join('\n').includes('[#####...............]')).toBe(columns === 200);
    view.next();
    await view.until('31 of 352 pages (8%), page 32 with OCR');
    if (columns === 200) await view.until('attempt 2 after: tesseract died with signal 9');
    view.next();
    await view.until('Temporal has not answered for 0.0s');
    view.next();
    await view.until('redone 1x');
    expect(view.screen.join('\n')).toMatch(/> Download +running +0\.0s\n· Read pages +waiting\n/);
    expect(view.screen.join('\n')).not.toContain('Temporal has not answered');
    view.control.write('end\n');
    expect(await view.ended).toBe(0);
    for (const line of plain(view.output).split('\n')) expect(displayWidth(line), line).toBeLessThanOrEqual(columns);
  });
});

describe('the terminal', () => {
  it('is redrawn to a new width', async () => {
    const view = await Scene.start(80);
    view.next();
    view.next();
    await view.until('50.0 MB');
    expect(view.screen.join('\n')).not.toContain('[#####');
    view.pty.resize(200, 30);
    await view.until('[#####...............]');
    view.pty.resize(60, 30);
    await view.until('…');
    view.next();
    await view.until('31 of 352');
    for (const line of view.screen) expect(displayWidth(line), line).toBeLessThanOrEqual(60);
  });

  it('is free again after Ctrl-C, with its cursor and the last state', async () => {
    const view = await Scene.start(80);
    view.next();
    view.next();
    await view.until('50.0 MB');
    expect(view.output).toContain(HIDE_CURSOR);
    view.pty.write('\u0003');
    expect(await view.ended).toBe(130);
    expect(view.output.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(view.output.lastIndexOf(HIDE_CURSOR));
    expect(plain(view.output)).toMatch(/Deliver +waiting *\n(\^C)?the terminal is free\n$/);
  });

  it('gets no colour with NO_COLOR, and loses nothing by it', async () => {
    const view = await Scene.start(80, { NO_COLOR: '1' });
    view.next();
    view.next();
    await view.until('50.0 MB');

    expect(view.output).not.toMatch(/\u001b\[(3[0-7]|9[0-7])m/);
    expect(view.screen.join('\n')).toMatch(/✓ Find a worker +done[^]*> Download +running[^]*· Read pages +waiting/);
  });
});
