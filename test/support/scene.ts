/**
 * A view that is played by a script of its own in a real pseudo-terminal, step by step as the test says over a socket;
 * and what the terminal shows of it.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { spawn, type IPty } from '@lydell/node-pty';
import { afterEach, beforeEach } from 'vitest';

export interface SceneOptions {
  /** The script, which connects to the port that it is given and reads lines: `next`, `end`. */
  readonly script: URL;
  readonly rows: number;
  /** What the view writes before each frame. */
  readonly frameMark: string;
  /** Whether the lines are all of a frame, by the last of them: a terminal may get a frame in pieces. */
  readonly isWhole: (screen: readonly string[]) => boolean;
}

export class Scene {
  readonly ended: Promise<number>;
  private readonly waiting = new Set<() => void>();

  constructor(
    readonly pty: IPty,
    readonly control: Socket,
    private readonly frameMark: string,
    private readonly isWhole: SceneOptions['isWhole'],
    public output: string,
  ) {
    pty.onData((data) => {
      this.output += data;
      for (const check of this.waiting) check();
    });
    this.ended = new Promise((resolve) => pty.onExit(({ exitCode }) => resolve(exitCode)));
  }

  /** The lines that the terminal shows at the end: after the last time the view was erased. */
  get screen(): string[] {
    return plain(this.output.split(this.frameMark).at(-1)!)
      .split('\n')
      .map((line) => line.trimEnd())
      .filter((line) => line !== '');
  }

  #hasWholeFrame(): boolean {
    return plain(this.output).endsWith('\n') && this.isWhole(this.screen);
  }

  next(): void {
    this.control.write('next\n');
  }

  /** Resolves once the last frame is there as a whole and has the text, or is as it should. */
  async until(expected: string | ((screen: string[]) => boolean)): Promise<void> {
    const holds = typeof expected === 'string' ? (screen: string[]) => screen.join('\n').includes(expected) : expected;
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (!this.#hasWholeFrame() || !holds(this.screen)) return;
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

/** Text without what moves the cursor or colours it. */
export function plain(text: string): string {
  return text.replace(/\u001b\[[0-9;?]*[a-zA-Z]/g, '').replaceAll('\r', '');
}

/** Call at the top of a file; starts a scene with a width, and settings beside those of the run of the tests. */
export function useScenes({
  script,
  rows,
  frameMark,
  isWhole,
}: SceneOptions): (columns: number, env?: NodeJS.ProcessEnv) => Promise<Scene> {
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
  return async (columns, env = {}) => {
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const { CI: _ci, NO_COLOR: _noColor, FORCE_COLOR: _forceColor, ...inherited } = process.env;
    const pty = spawn(process.execPath, [fileURLToPath(script), String((server.address() as AddressInfo).port)], {
      cols: columns,
      rows,
      env: { ...inherited, TERM: 'xterm-256color', ...env },
    });
    const early: string[] = [];
    const collecting = pty.onData((data) => early.push(data));
    const [control] = await connected;
    collecting.dispose();
    scene = new Scene(pty, control, frameMark, isWhole, early.join(''));
    return scene;
  };
}
