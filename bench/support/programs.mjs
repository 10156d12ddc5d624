/**
 * The programs that a measurement starts: atlasd and other workers, each with its log read line by line, and all of them
 * ended and their folders removed in the end, also when the measurement is interrupted.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT, ScriptError } from '../../scripts/lib.mjs';

const ATLASD = join(ROOT, 'bin/atlasd.js');
const READY_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 20_000;
const KEPT_LINES = 20;

/** The configuration of whoever measures must not count: no ATLAS_ variables, no profile. */
export function environmentFor(address) {
  return {
    ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(ATLAS|TEMPORAL)_/.test(name))),
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: 'default',
    TEMPORAL_CONFIG_FILE: '/dev/null',
  };
}

export function exitOf(child) {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? signal));
  });
}

/** Cleans up at SIGINT or SIGTERM and ends this process then; until it is told to forget. */
export function endAtSignal(cleanUp) {
  const listener = (signal) => {
    void cleanUp().finally(() => process.exit(signal === 'SIGINT' ? 130 : 143));
  };
  process.once('SIGINT', listener);
  process.once('SIGTERM', listener);
  return {
    forget: () => {
      process.off('SIGINT', listener);
      process.off('SIGTERM', listener);
    },
  };
}

/** A folder for one run, with a short name: the path of a socket in it is limited to some hundred bytes. */
export function temporaryFolder() {
  return mkdtempSync(join(tmpdir(), 'ab-'));
}

export function removeFolder(path) {
  rmSync(path, { recursive: true, force: true, maxRetries: 3 });
}

/** A program that runs, with the lines that it has written. */
class Program {
  lines = [];
  #waiting = new Set();

  constructor(command, args, options) {
    this.child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'], ...options });
    this.pid = this.child.pid;
    this.exited = exitOf(this.child);
    // Awaited where it matters; a program that can not be started must not end this process before that.
    this.exited.catch(() => undefined);
    for (const stream of [this.child.stdout, this.child.stderr]) {
      createInterface({ input: stream }).on('line', (text) => {
        this.lines.push(text);
        for (const check of this.#waiting) check(text);
      });
    }
  }

  /** The first line, past or future, for which `find` returns something; resolves to that. */
  async until(find, what, limitMs = READY_TIMEOUT_MS) {
    for (const text of this.lines) {
      const found = find(text);
      if (found !== undefined) return found;
    }
    let check;
    const abort = new AbortController();
    try {
      return await Promise.race([
        new Promise((resolve) => {
          check = (text) => {
            const found = find(text);
            if (found !== undefined) resolve(found);
          };
          this.#waiting.add(check);
        }),
        this.exited.then((code) => this.#fail(`${what} before it ended with code ${code}`)),
        sleep(limitMs, undefined, { signal: abort.signal }).then(
          () => this.#fail(`${what} within ${limitMs / 1_000} s`),
          () => new Promise(() => undefined),
        ),
      ]);
    } finally {
      abort.abort();
      this.#waiting.delete(check);
    }
  }

  #fail(what) {
    throw new ScriptError(`${what}:\n${this.lines.slice(-KEPT_LINES).join('\n')}`);
  }

  /** Resolves when it has ended. */
  async stop(signal = 'SIGTERM') {
    this.child.kill(signal);
    const timer = setTimeout(() => this.child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await this.exited.catch(() => undefined);
    clearTimeout(timer);
  }
}

export class Programs {
  #address;
  #running = new Set();
  #folders = new Set();
  #stopped = false;

  constructor(address) {
    this.#address = address;
  }

  /** Of the Temporal server. */
  get address() {
    return this.#address;
  }

  /**
   * @param {Record<string, string>} env what the program needs beside the address of the server
   * @param {'ignore' | 'pipe'} stdin a pipe for a program that takes orders there, or ends when it is closed
   */
  start(command, args, env = {}, stdin = 'ignore') {
    if (this.#stopped) throw new ScriptError('The measurement was interrupted.');
    const program = new Program(command, args, {
      stdio: [stdin, 'pipe', 'pipe'],
      env: { ...environmentFor(this.#address), ...env },
    });
    this.#running.add(program);
    program.exited.finally(() => this.#running.delete(program)).catch(() => undefined);
    return program;
  }

  folder() {
    const folder = temporaryFolder();
    this.#folders.add(folder);
    return folder;
  }

  /** A worker of Atlas that takes sessions; `kill` is kill -9 of everything at once, as a power cut does it. */
  async startAtlasd({ fleet, name, cap, args }) {
    const folder = this.folder();
    const program = this.start(process.execPath, [
      ATLASD,
      ...['--fleet', fleet, '--name', name, '--max-sessions', String(cap), '--state-dir', folder],
      ...['--log-format', 'json', '--ephemeral', '--grace', '20s'],
      ...args,
    ]);
    const event = (wanted) => (text) => {
      const { event: found, ...fields } = parse(text);
      return found === wanted ? fields : undefined;
    };
    const executor = (await program.until(event('executor-start'), 'atlasd started no executor')).pid;
    await program.until(event('worker-ready'), 'atlasd did not get ready');
    const removed = (ended) => ended.then(() => this.#remove(folder));
    return {
      name,
      folder,
      pids: { supervisor: program.pid, executor },
      log: () => program.lines.slice(-KEPT_LINES),
      kill: () => {
        const ended = program.stop('SIGKILL');
        killGroup(executor);
        return removed(ended);
      },
      stop: () => removed(program.stop()),
    };
  }

  #remove(folder) {
    this.#folders.delete(folder);
    removeFolder(folder);
  }

  /** Nothing is started any more: a measurement that is interrupted goes on until it finds that out. */
  async stopAll() {
    this.#stopped = true;
    await Promise.all([...this.#running].map((program) => program.stop()));
    for (const folder of this.#folders) this.#remove(folder);
  }
}

function killGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
