import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  identifyProcess,
  isAlive,
  killGroup,
  waitForGroupEnd,
  type ProcessIdentity,
} from '../../../src/daemon/process-identity.js';

const LONG_MS = 30_000;
const started: number[] = [];

afterEach(() => {
  for (const pid of started.splice(0)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended, as it should.
    }
  }
});

interface Spawned {
  readonly child: ChildProcess;
  readonly identity: ProcessIdentity;
  /** The pids that the script prints, one a line. */
  readonly pids: readonly number[];
}

/** A process that leads a group of its own, as the executor does, once it has printed this many pids. */
async function spawnLeader(script: string, pidCount: number): Promise<Spawned> {
  const child = spawn('sh', ['-c', script], { detached: true, stdio: ['ignore', 'pipe', 'inherit'] });
  started.push(child.pid!);
  const pids: number[] = [];
  for await (const line of createInterface({ input: child.stdout! })) {
    pids.push(Number(line));
    if (pids.length === pidCount) break;
  }
  started.push(...pids);
  return { child, identity: identifyProcess(child.pid!)!, pids };
}

async function kill(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2)[0]!;
  } catch {
    return 'gone';
  }
}

/** Resolves once a shell has become the sleep that ends its script: until then it would still look after its children. */
async function hasBecomeSleep(pid: number): Promise<void> {
  await vi.waitFor(() => expect(readFileSync(`/proc/${pid}/cmdline`, 'latin1')).toMatch(/^sleep/), LONG_MS);
}

describe('identifyProcess and isAlive', () => {
  it('know a process as long as it runs', async () => {
    const { child, identity } = await spawnLeader('echo $$; exec sleep 600', 1);
    expect(identity.pid).toBe(child.pid);
    expect(identifyProcess(child.pid!)).toEqual(identity);
    expect(isAlive(identity)).toBe(true);
    await kill(child);
    expect(identifyProcess(child.pid!)).toBeUndefined();
    expect(isAlive(identity)).toBe(false);
  });

  it('tell a process from another with the same pid', () => {
    const self = identifyProcess(process.pid)!;
    expect(isAlive(self)).toBe(true);
    expect(isAlive({ ...self, startedAt: `${self.startedAt}0` })).toBe(false);
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 31 - 1])('find no process with the pid %d', (pid) => {
    expect(identifyProcess(pid)).toBeUndefined();
    expect(isAlive({ pid, startedAt: '' })).toBe(false);
  });

  it.skipIf(process.platform !== 'linux')('do not take a zombie for a process', async () => {
    // The shell becomes a sleep, which never asks how its child ended.
    const { child, pids } = await spawnLeader('sleep 600 & echo $!; exec sleep 600', 1);
    await hasBecomeSleep(child.pid!);
    const identity = identifyProcess(pids[0]!)!;
    process.kill(pids[0]!, 'SIGKILL');
    await vi.waitFor(() => expect(stateOf(pids[0]!)).toBe('Z'), { timeout: LONG_MS });
    expect(isAlive(identity)).toBe(false);
    expect(identifyProcess(pids[0]!)).toBeUndefined();
  });

  it.skipIf(process.platform !== 'linux')('read the start of a process whose name looks like fields', async () => {
    const name = 'a) R 1 (b';
    const script = `process.title = ${JSON.stringify(name)}; console.log(process.pid); setInterval(() => {}, 1000)`;
    const { pids } = await spawnLeader(`exec ${process.execPath} -e '${script}'`, 1);
    expect(readFileSync(`/proc/${pids[0]!}/comm`, 'utf8')).toBe(`${name}\n`);
    const identity = identifyProcess(pids[0]!)!;
    expect(identity.startedAt).toMatch(/\/\d+$/);
    expect(isAlive(identity)).toBe(true);
  });
});

describe('killGroup and waitForGroupEnd', () => {
  it('end a leader and its children', async () => {
    const { identity, pids } = await spawnLeader('sleep 600 & echo $!; sleep 600 & echo $!; wait', 2);
    expect(killGroup(identity, 'SIGKILL')).toBe(true);
    expect(await waitForGroupEnd(identity, LONG_MS)).toBe(true);
    for (const pid of [identity.pid, ...pids]) expect(identifyProcess(pid)).toBeUndefined();
    expect(killGroup(identity, 'SIGKILL')).toBe(false);
  });

  it('end the children of a leader that has died', async () => {
    const { child, identity, pids } = await spawnLeader('sleep 600 & echo $!; wait', 1);
    await kill(child);
    expect(isAlive(identity)).toBe(false);
    expect(await waitForGroupEnd(identity, 0)).toBe(false);
    expect(killGroup(identity, 'SIGTERM')).toBe(true);
    expect(await waitForGroupEnd(identity, LONG_MS)).toBe(true);
    expect(identifyProcess(pids[0]!)).toBeUndefined();
  });

  it.skipIf(process.platform !== 'linux')('end a child that made a group of its own in the session', async () => {
    // timeout(1) does it, so that it can signal what it runs.
    const { identity, pids } = await spawnLeader('timeout 600 sleep 600 & echo $!; wait', 1);
    const groupOf = (pid: number): number => Number(readFileSync(`/proc/${pid}/stat`, 'latin1').split(' ')[4]);
    await vi.waitFor(() => expect(groupOf(pids[0]!)).toBe(pids[0]), LONG_MS);
    killGroup(identity, 'SIGKILL');
    expect(await waitForGroupEnd(identity, LONG_MS)).toBe(true);
    expect(identifyProcess(pids[0]!)).toBeUndefined();
  });

  it('leave a process alone that has the pid now', async () => {
    const { identity } = await spawnLeader('echo $$; exec sleep 600', 1);
    const earlier = { ...identity, startedAt: `${identity.startedAt}0` };
    expect(killGroup(earlier, 'SIGKILL')).toBe(false);
    expect(await waitForGroupEnd(earlier, 0)).toBe(true);
    expect(isAlive(identity)).toBe(true);
  });

  it.skipIf(process.platform !== 'linux')('leave the group of a leader from before a reboot alone', async () => {
    const { child, identity, pids } = await spawnLeader('sleep 600 & echo $!; wait', 1);
    await kill(child);
    expect(killGroup({ ...identity, startedAt: `another-boot/${identity.startedAt}` }, 'SIGKILL')).toBe(false);
    expect(identifyProcess(pids[0]!)).toBeDefined();
  });

  it('wait until the group has ended by itself, for as long as they are told', async () => {
    const { child, identity } = await spawnLeader('echo $$; exec sleep 600', 1);
    expect(await waitForGroupEnd(identity, 50)).toBe(false);
    const ended = waitForGroupEnd(identity, LONG_MS);
    child.kill('SIGTERM');
    expect(await ended).toBe(true);
  });

  it.skipIf(process.platform !== 'linux')('do not wait for a zombie', async () => {
    const { child, pids } = await spawnLeader('setsid sleep 600 & echo $!; exec sleep 600', 1);
    const pid = pids[0]!;
    await hasBecomeSleep(child.pid!);
    await hasBecomeSleep(pid);
    const identity = identifyProcess(pid)!;
    expect(killGroup(identity, 'SIGKILL')).toBe(true);
    expect(await waitForGroupEnd(identity, LONG_MS)).toBe(true);
    expect(stateOf(pid)).toBe('Z');
  });

  it.each([-1, 0, 1, process.pid])('never signal the pid %d, whatever the ledger says', (pid) => {
    const startedAt = identifyProcess(pid)?.startedAt ?? identifyProcess(process.pid)!.startedAt;
    expect(killGroup({ pid, startedAt }, 'SIGKILL')).toBe(false);
  });
});
