import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { workerWorkflowId } from '../../src/contract/names.js';
import { EXIT } from '../../src/contract/exit-codes.js';
import { connectClient, plainProfile } from '../../src/temporal/connect.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet } from '../support/fleet.js';
import { killMarked, markEnvironment, markedProcesses, newMark, untilGone } from '../support/processes.js';
import { temporalEnvironment } from '../support/server.js';

const ATLAS = fileURLToPath(new URL('../../bin/atlas.js', import.meta.url));
/** How long the processes of one that has ended may take to end, on a busy machine. */
const GONE_MS = 30_000;

interface Running {
  readonly child: ChildProcess;
  readonly mark: string;
  readonly exited: Promise<number | null>;
  /** Resolves to the line of stdout or stderr that matches. */
  line(pattern: RegExp): Promise<string>;
  output(): string;
}

async function atlasDev(...args: string[]): Promise<Running> {
  const mark = newMark();
  const child = spawn(process.execPath, [ATLAS, 'dev', ...args], {
    // A wrong address: `atlas dev` must use its own server whatever is configured.
    env: markEnvironment({ ...temporalEnvironment('127.0.0.1:1'), TMPDIR: await temporaryDirectory() }, mark),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => killMarked(mark));
  let text = '';
  const listeners = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      for (const listener of listeners) listener();
    });
  }
  const exited = new Promise<number | null>((done) => child.once('close', (code) => done(code)));
  return {
    child,
    mark,
    exited,
    output: () => text,
    line: (pattern) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          const found = text.split('\n').find((line) => pattern.test(line));
          if (found !== undefined) resolve(found);
        };
        listeners.add(check);
        void exited.then(() => reject(new Error(`atlas dev ended before ${String(pattern)}:\n${text}`)));
        check();
      }),
  };
}

describe('atlas dev', () => {
  it('starts both, says how to reach them, and leaves nothing behind at Ctrl-C', async () => {
    const fleet = uniqueFleet();
    const dev = await atlasDev('--fleet', fleet, '--name', 'dev-1', '--capabilities', 'gpu', '--max-sessions', '2');
    const address = (await dev.line(/^export TEMPORAL_ADDRESS=/)).split('=')[1] ?? '';
    await dev.line(/^Ctrl-C stops the server and the worker/);
    expect(dev.output()).toContain(`export ATLAS_FLEET=${fleet}`);
    expect(dev.output()).toContain('atlas workers ls');

    const { client, close } = await connectClient(plainProfile(address));
    onTestFinished(close);
    const description = await client.workflow.getHandle(workerWorkflowId(fleet, 'dev-1')).describe();
    expect(description.status.name).toBe('RUNNING');
    const stateDirectory = /state in (\S+)\)/.exec(dev.output())?.[1] ?? '';
    expect(existsSync(stateDirectory)).toBe(true);

    dev.child.kill('SIGINT');
    expect(await dev.exited).toBe(0);
    expect(await untilGone(dev.mark, GONE_MS)).toEqual([]);
    expect(existsSync(stateDirectory)).toBe(false);
  });

  it('takes the server and the worker with it when it is killed with -9', async () => {
    const dev = await atlasDev('--fleet', uniqueFleet());
    await dev.line(/^Ctrl-C stops/);
    expect(markedProcesses(dev.mark).length).toBeGreaterThan(2);
    dev.child.kill('SIGKILL');
    expect(await untilGone(dev.mark, GONE_MS)).toEqual([]);
  });

  it('ends with the reason, and without the server, when the worker does not start', async () => {
    const dev = await atlasDev('--fleet', uniqueFleet(), '--state-dir', '/dev/null/nowhere');
    expect(await dev.exited).not.toBe(0);
    expect(dev.output()).toMatch(/error: The worker ended before it was ready: .*\/dev\/null\/nowhere/);
    expect(dev.output()).toMatch(/next: .*--state-dir/);
    expect(await untilGone(dev.mark, GONE_MS)).toEqual([]);
  });

  it('keeps the state of both with a database file', async () => {
    const directory = await temporaryDirectory();
    const dbFilename = join(directory, 'temporal.db');
    const start = async (): Promise<string> => {
      const dev = await atlasDev('--fleet', 't1', '--db-filename', dbFilename);
      const worker = await dev.line(/^Worker \S+ of the fleet/);
      await dev.line(/^Ctrl-C stops/);
      dev.child.kill('SIGTERM');
      expect(await dev.exited).toBe(0);
      return worker;
    };
    const first = await start();
    expect(await start()).toBe(first);
    expect(existsSync(`${dbFilename}.worker`)).toBe(true);
  });

  it('leaves alone a server that listens on the port asked for', async () => {
    const port = inject('temporalAddress').split(':')[1] ?? '';
    const dev = await atlasDev('--no-worker', '--port', port);
    expect(await dev.exited).toBe(EXIT.unreachable);
    expect(dev.output()).toContain('something listens there already, and is left alone');
  });
});
