/**
 * Programs that misbehave in every way that hostile input can make one: each is a real process, and none of it is left.
 */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { identifyProcess, killGroup, waitForGroupEnd } from '../../../../src/daemon/process-identity.js';
import { runTool, type ToolOutput, type ToolRun } from '../../../../src/jobs/document/pages/tool.js';
import { killMarked, markEnvironment, markedProcesses, newMark, until, untilGone } from '../../../support/processes.js';

const MIB = 1024 ** 2;
/** Long enough for a loaded machine, and a bound all the same. */
const GONE_MS = 20_000;

let directory: string;
let controller: AbortController;
let mark: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-tool-'));
  controller = new AbortController();
  mark = newMark();
  vi.stubEnv('TEST_PROCESS_MARK', mark);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  killMarked(mark);
  await rm(directory, { recursive: true, force: true });
});

/** Installs a script as a program, and returns its path. */
async function install(script: string): Promise<string> {
  const path = join(directory, 'tool');
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o700);
  return path;
}

/** Runs a program; one that is not given is node with a script. */
async function run(args: readonly string[], options: Partial<ToolRun> = {}): Promise<ToolOutput> {
  return await runTool({
    command: process.execPath,
    args,
    timeoutMs: 30_000,
    memoryBytes: 64 * 1024 * MIB,
    maxOutputBytes: 1000,
    signal: controller.signal,
    ...options,
  });
}

/** What is left of the programs: not this process, which has no mark of its own. */
const left = (): string[] => markedProcesses(mark).map(({ command }) => command);

describe('a native program', () => {
  it('gives what it wrote, with its arguments as they are', async () => {
    const args = ['a b', '$HOME', '"; exit 9', "'", '*', ''];
    const { stdout, stderr } = await run(['-e', 'console.log(JSON.stringify(process.argv.slice(1)))', '--', ...args]);
    expect(JSON.parse(Buffer.from(stdout).toString())).toEqual(args);
    expect(stderr).toBe('');
  });

  it('that takes too long is killed', async () => {
    const hanging = run([], {
      command: await install('trap "" TERM INT HUP\nwhile :; do sleep 60; done'),
      timeoutMs: 200,
    });
    await expect(hanging).rejects.toThrow('tool took longer than 0.2 s');
    expect(left()).toEqual([]);
  });

  it('that writes without end is killed', async () => {
    const writing = run([], { command: await install('while :; do echo xxxxxxxxxxxxxxxx; done') });
    await expect(writing).rejects.toThrow('wrote more than 1000 bytes');
    expect(left()).toEqual([]);
  });

  it('that reads its standard input finds it at its end', async () => {
    const { stdout } = await run([], { command: await install('wc -c') });
    expect(Buffer.from(stdout).toString().trim()).toBe('0');
    const fed = await run([], { command: await install('wc -c'), input: Buffer.from('12345') });
    expect(Buffer.from(fed.stdout).toString().trim()).toBe('5');
  });

  it.skipIf(process.platform !== 'linux')('that takes more memory than its limit ends, and says so', async () => {
    // awk keeps the line that it doubles: it takes memory without end, and says when it got none.
    const greedy = run([], {
      command: await install('exec awk "BEGIN { s = 1; while (1) s = s s }"'),
      memoryBytes: 64 * MIB,
    });
    await expect(greedy).rejects.toThrow(/tool ran out of its 64 MiB of memory: .+/);
    expect(left()).toEqual([]);
  });

  it('that got no memory and went on as if nothing were is not believed', async () => {
    const drawing = run([], {
      command: await install('echo "Out of memory" >&2; echo half a picture'),
      memoryBytes: 256 * MIB,
    });
    await expect(drawing).rejects.toThrow('tool ran out of its 256 MiB of memory: Out of memory');
  });

  it('that fails is quoted', async () => {
    const failing = run([], { command: await install('echo "no such page" >&2; exit 3') });
    await expect(failing).rejects.toThrow('tool ended with exit code 3: no such page');
  });

  it('that is not there is an error', async () => {
    await expect(run([], { command: 'atlas-no-such-program' })).rejects.toThrow(
      'atlas-no-such-program is not on the PATH',
    );
  });
});

describe.skipIf(process.platform !== 'linux')('what a program has started', () => {
  const CHILD = "trap '' TERM HUP INT; while :; do sleep 60; done";

  it('is killed with it when it takes too long', async () => {
    const command = await install(
      `(${CHILD}) &\n(setsid sh -c "${CHILD}" >/dev/null 2>&1 &)\nwhile :; do sleep 60; done`,
    );
    await expect(run([], { command, timeoutMs: 500 })).rejects.toThrow('took longer than 0.5 s');
    expect(left()).toEqual([]);
  });

  it('is killed when it has ended by itself, though a child holds its output', async () => {
    const command = await install(`(${CHILD}) &\necho done`);
    const { stdout } = await run([], { command });
    expect(Buffer.from(stdout).toString()).toBe('done\n');
    expect(left()).toEqual([]);
  });

  it('is killed when the signal aborts', async () => {
    const command = await install(`(${CHILD}) &\n${CHILD}`);
    const reason = new Error('released');
    const running = run([], { command });
    running.catch(() => undefined);
    await until('the program runs', () => left().some((name) => name.startsWith('sleep')));
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    expect(left()).toEqual([]);
  });

  it('goes with the executor when that is killed', async () => {
    const command = await install(`echo $$ > "${join(directory, 'pid')}"\n(${CHILD}) &\n${CHILD}`);
    // As the supervisor starts an executor: a session and a group of its own.
    const tool = new URL('../../../../dist/jobs/document/pages/tool.js', import.meta.url).href;
    const script = `import(${JSON.stringify(tool)}).then(({ runTool }) => runTool(${JSON.stringify({
      command,
      args: [],
      timeoutMs: 60_000,
      memoryBytes: 1024 * MIB,
      maxOutputBytes: 1000,
    }).slice(0, -1)}, signal: new AbortController().signal }))`;
    const executor = spawn(process.execPath, ['-e', script], {
      detached: true,
      stdio: 'ignore',
      env: markEnvironment(process.env, mark),
    });
    const identity = identifyProcess(executor.pid ?? 0);
    await until(
      'the program runs',
      async () => (await readFile(join(directory, 'pid'), 'utf8').catch(() => '')) !== '',
    );
    executor.kill('SIGKILL');
    await until('the executor is dead', () => identifyProcess(executor.pid ?? 0) === undefined);
    expect(left()).not.toEqual([]);
    expect(identity).toBeDefined();
    if (identity === undefined) return;
    expect(killGroup(identity, 'SIGKILL')).toBe(true);
    expect(await waitForGroupEnd(identity, GONE_MS)).toBe(true);
    expect(await untilGone(mark, GONE_MS)).toEqual([]);
  });
});
