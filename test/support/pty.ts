/** A program in a pseudo-terminal, and what that terminal shows. After every test each is ended. */
import { spawn, type IPty } from '@lydell/node-pty';
import { afterEach } from 'vitest';
import { FakeTerminal } from './terminal.js';

/** A guard against hanging. */
const WAIT_MS = 60_000;

export interface PtyOptions {
  readonly columns: number;
  readonly rows: number;
  readonly env?: NodeJS.ProcessEnv;
}

export class PtyProgram {
  readonly terminal: FakeTerminal;
  output = '';
  readonly ended: Promise<{ readonly exitCode: number; readonly signal: number }>;
  #failure: unknown;
  #hasEnded = false;
  readonly #waiting = new Set<() => void>();

  constructor(
    readonly pty: IPty,
    { columns, rows }: PtyOptions,
  ) {
    this.terminal = new FakeTerminal(columns, rows);
    pty.onData((data) => {
      this.output += data;
      try {
        this.terminal.write(data);
      } catch (error) {
        this.#failure ??= error;
      }
      for (const check of this.#waiting) check();
    });
    this.ended = new Promise((resolve) =>
      pty.onExit(({ exitCode, signal }) => {
        this.#hasEnded = true;
        for (const check of this.#waiting) check();
        resolve({ exitCode, signal: signal ?? 0 });
      }),
    );
  }

  /** Resolves once the terminal shows it. */
  async shows(expected: string | RegExp): Promise<void> {
    await this.until(
      (text) => (typeof expected === 'string' ? text.includes(expected) : expected.test(text)),
      String(expected),
    );
  }

  async until(holds: (text: string) => boolean, what: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        this.#waiting.delete(check);
        act();
      };
      const fail = (why: string): void =>
        settle(() => reject(new Error(`${why} ${what}. The terminal shows:\n${this.terminal.text}`)));
      const check = (): void => {
        if (this.#failure !== undefined) settle(() => reject(this.#failure as Error));
        // Not in the middle of a frame, which a terminal may get in pieces: what is looked at next may be in a later one.
        else if ((this.#hasEnded || !this.terminal.updating) && holds(this.terminal.text)) settle(resolve);
        else if (this.#hasEnded) fail('It ended without');
      };
      const timer = setTimeout(() => fail(`Not within ${WAIT_MS} ms:`), WAIT_MS);
      this.#waiting.add(check);
      check();
    });
  }

  press(keys: string): void {
    this.pty.write(keys);
  }

  resize(columns: number, rows: number): void {
    // The terminal first: what is written from now on is for the new size.
    this.terminal.resize(columns, rows);
    this.pty.resize(columns, rows);
  }

  /** What went wrong with what it wrote. */
  get failure(): unknown {
    return this.#failure;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }
}

const started: PtyProgram[] = [];

/** Starts a Node program. The settings of the person who runs the tests about colour and CI are left out. */
export function startInPty(argv: readonly string[], options: PtyOptions): PtyProgram {
  const { CI: _ci, NO_COLOR: _noColor, FORCE_COLOR: _forceColor, ...inherited } = process.env;
  const pty = spawn(process.execPath, [...argv], {
    cols: options.columns,
    rows: options.rows,
    env: { ...inherited, TERM: 'xterm-256color', ...options.env },
  });
  const program = new PtyProgram(pty, options);
  started.push(program);
  return program;
}

afterEach(async () => {
  for (const program of started.splice(0)) {
    if (!program.hasEnded) program.pty.kill('SIGKILL');
    await program.ended;
  }
});
