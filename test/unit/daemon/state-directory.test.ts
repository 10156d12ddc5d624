import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  defaultWorkerName,
  openStateDirectory,
  probeStateDirectory,
  type StateDirectory,
} from '../../../src/daemon/state-directory.js';

const WORKER = { fleet: 'atlas', name: 'worker-7', machineId: 'machine-a' };

let base: string;
let path: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'atlas-state-'));
  path = join(base, 'a', 'state');
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await rm(base, { recursive: true, force: true });
});

async function openOnce(of: string = path, options: typeof WORKER = WORKER): Promise<StateDirectory> {
  const directory = await openStateDirectory(of, options);
  await directory.release();
  return directory;
}

async function modeOf(of: string): Promise<number> {
  return (await stat(of)).mode & 0o777;
}

/** Another process that holds the lock of the directory, with a child of its own that would inherit a leaked handle. */
async function lockElsewhere(): Promise<ChildProcess> {
  const script = `
    const { tryLock } = require('fs-native-extensions');
    const fs = require('node:fs');
    const fd = fs.openSync(process.argv[1], 'r+');
    if (!tryLock(fd)) throw new Error('not locked');
    fs.ftruncateSync(fd);
    fs.writeSync(fd, process.pid + '\\n', 0);
    const child = require('node:child_process').spawn('sleep', ['600'], { stdio: 'ignore' });
    console.log(child.pid);
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ['-e', script, join(path, 'lock')], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  const [output] = (await once(child.stdout!, 'data')) as [Buffer];
  grandchildPid = Number(output.toString());
  return child;
}

let grandchildPid = 0;

describe('openStateDirectory', () => {
  it('creates a private directory with its parents and says where everything is', async () => {
    const directory = await openStateDirectory(path, WORKER);
    expect(directory).toMatchObject({
      path,
      socketPath: join(path, 'atlasd.sock'),
      ledgerPath: join(path, 'ledger'),
      scratchRoot: join(path, 'scratch'),
      keptRoot: join(path, 'kept'),
      cacheRoot: join(path, 'cache'),
      copied: false,
      renamed: false,
      damaged: null,
    });
    expect(directory.identity).toMatchObject({ name: 'worker-7', fleet: 'atlas', machineId: 'machine-a' });
    expect(directory.identity.instance).toMatch(/^[a-z][a-z0-9]{5}$/);
    expect(directory.identity.queue).toBe(`atlas-worker-7.${directory.identity.instance}`);
    expect(directory.identity.controlQueue).toBe(`${directory.identity.queue}:control`);
    for (const of of [path, directory.scratchRoot, directory.keptRoot, directory.cacheRoot])
      expect(await modeOf(of)).toBe(0o700);
    for (const of of ['queue', 'lock']) expect(await modeOf(join(path, of))).toBe(0o600);
    expect(await readdir(path)).toEqual(['cache', 'kept', 'lock', 'queue', 'scratch']);
    await directory.release();
  });

  it('keeps the instance over restarts, and when the directory is moved', async () => {
    const first = await openOnce();
    const second = await openOnce();
    expect(second).toMatchObject({ copied: false, renamed: false });
    expect(second.identity.instance).toBe(first.identity.instance);
    const moved = join(base, 'moved');
    await rename(path, moved);
    const third = await openOnce(moved);
    expect(third.copied).toBe(false);
    expect(third.identity.instance).toBe(first.identity.instance);
  });

  it('takes a new instance in a copy, and leaves the original as it is', async () => {
    const first = await openOnce();
    const copy = join(base, 'copy');
    await cp(path, copy, { recursive: true });
    const copied = await openOnce(copy);
    expect(copied.copied).toBe(true);
    expect(copied.identity.instance).not.toBe(first.identity.instance);
    expect(await openOnce(copy)).toMatchObject({ copied: false, identity: { instance: copied.identity.instance } });
    expect(await openOnce()).toMatchObject({ copied: false, identity: { instance: first.identity.instance } });
  });

  it('takes a new instance on another machine, but not when one of the machines is unknown', async () => {
    const first = await openOnce();
    const unknown = await openOnce(path, { ...WORKER, machineId: '' });
    expect(unknown).toMatchObject({ copied: false, identity: { instance: first.identity.instance } });
    await openOnce();
    const other = await openOnce(path, { ...WORKER, machineId: 'machine-b' });
    expect(other.copied).toBe(true);
    expect(other.identity.instance).not.toBe(first.identity.instance);
  });

  it.each([
    ['name', { ...WORKER, name: 'worker-8' }],
    ['fleet', { ...WORKER, fleet: 'other' }],
  ])('takes a new instance for another %s', async (_, options) => {
    const first = await openOnce();
    const second = await openOnce(path, options);
    expect(second.renamed).toBe(true);
    expect(second.identity.instance).not.toBe(first.identity.instance);
    expect(second.identity.queue).toBe(`${options.fleet}-${options.name}.${second.identity.instance}`);
    expect(await openOnce(path, options)).toMatchObject({ renamed: false });
  });

  it.each([
    ['is not JSON', '{"version":1'],
    ['lacks a field', '{"version":1,"name":"worker-7"}'],
    ['is of a newer version', '{"version":2}'],
    ['is empty', ''],
  ])('moves a queue file aside that %s', async (_, content) => {
    const first = await openOnce();
    await writeFile(join(path, 'queue'), content);
    const second = await openOnce();
    expect(second.identity.instance).not.toBe(first.identity.instance);
    expect(await readFile(second.damaged!, 'utf8')).toBe(content);
    expect(await openOnce()).toMatchObject({ damaged: null, identity: { instance: second.identity.instance } });
  });

  it('is refused while another process has it, naming that process, and is free once that is killed', async () => {
    await openOnce();
    const holder = await lockElsewhere();
    await expect(openStateDirectory(path, WORKER)).rejects.toMatchObject({
      code: 'StateDirLocked',
      message: `The state directory ${path} is used by another atlasd, process ${holder.pid}.`,
    });
    const exited = once(holder, 'exit');
    holder.kill('SIGKILL');
    await exited;
    try {
      await (await openStateDirectory(path, WORKER)).release();
    } finally {
      process.kill(grandchildPid, 'SIGKILL');
    }
  });

  it('is refused twice in one process too, and the refusal does not drop the lock', async () => {
    const directory = await openStateDirectory(path, WORKER);
    for (let n = 0; n < 2; n += 1) {
      await expect(openStateDirectory(path, WORKER)).rejects.toMatchObject({ code: 'StateDirLocked' });
    }
    await directory.release();
    await openOnce();
  });

  it('holds no lock after it has failed', async () => {
    await expect(openStateDirectory(path, { ...WORKER, name: 'Bad Name' })).rejects.toMatchObject({
      code: 'NameInvalid',
    });
    await openOnce();
  });

  it('refuses a path that is a file, saying so', async () => {
    await writeFile(join(base, 'file'), '');
    await expect(openStateDirectory(join(base, 'file'), WORKER)).rejects.toMatchObject({
      code: 'StateDirUnwritable',
      message: expect.stringMatching(new RegExp(`^The state directory ${base}/file can not be used by uid .*EEXIST`)),
    });
    await expect(openStateDirectory(join(base, 'file', 'below'), WORKER)).rejects.toMatchObject({
      code: 'StateDirUnwritable',
      message: expect.stringContaining('ENOTDIR'),
    });
  });

  it.skipIf(process.getuid?.() === 0)('refuses a directory that it may not write', async () => {
    await mkdir(path, { recursive: true });
    await chmod(path, 0o500);
    await expect(openStateDirectory(path, WORKER)).rejects.toMatchObject({
      code: 'StateDirUnwritable',
      message: expect.stringContaining(`uid ${process.getuid?.()}: EACCES`),
    });
  });

  it.skipIf(process.platform !== 'linux')('says what the system says where nothing can be created', async () => {
    await expect(openStateDirectory('/proc/atlas', WORKER)).rejects.toMatchObject({
      code: 'StateDirUnwritable',
      message: expect.stringMatching(/\/proc\/atlas can not be used by uid \d+: E[A-Z]+: /),
    });
  });

  it('makes an empty directory private, and leaves one with foreign files as it is', async () => {
    const empty = join(base, 'empty');
    await mkdir(empty);
    await chmod(empty, 0o755);
    await openOnce(empty);
    expect(await modeOf(empty)).toBe(0o700);
    const shared = join(base, 'shared');
    await mkdir(shared);
    await writeFile(join(shared, 'foreign'), '');
    await chmod(shared, 0o777);
    await expect(openStateDirectory(shared, WORKER)).rejects.toMatchObject({
      code: 'StateDirUnwritable',
      message: expect.stringContaining('other users may write to it'),
    });
    expect(await modeOf(shared)).toBe(0o777);
    expect(await readdir(shared)).toEqual(['foreign']);
  });

  it('refuses a path too long for the socket before it creates anything', async () => {
    const limit = process.platform === 'linux' ? 107 : 103;
    const fitting = join(base, 'x'.repeat(limit - Buffer.byteLength(join(base, '', 'atlasd.sock')) - 1));
    expect((await openOnce(fitting)).socketPath).toHaveLength(limit);
    await expect(openStateDirectory(`${fitting}x`, WORKER)).rejects.toMatchObject({
      code: 'SocketPathTooLong',
      message: expect.stringContaining(`which is ${limit + 1} bytes; this system allows ${limit}`),
    });
    await expect(stat(`${fitting}x`)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('probeStateDirectory', () => {
  it('creates nothing', async () => {
    expect(await probeStateDirectory(path)).toEqual({ nearest: base, exists: false, heldBy: null });
    expect(await readdir(base)).toEqual([]);
  });

  it('says who uses the directory, and does not keep the lock of one that nobody uses', async () => {
    const directory = await openStateDirectory(path, WORKER);
    // Locks of Linux are of the open file, so that a second one in this process is refused too.
    expect(await probeStateDirectory(path)).toEqual({ nearest: path, exists: true, heldBy: String(process.pid) });
    await directory.release();
    expect(await probeStateDirectory(path)).toEqual({ nearest: path, exists: true, heldBy: null });
    await openOnce();
  });

  it('refuses what a start would refuse', async () => {
    const file = join(base, 'file');
    await writeFile(file, '');
    await expect(probeStateDirectory(file)).rejects.toMatchObject({ code: 'StateDirUnwritable' });
    await expect(probeStateDirectory(join(file, 'state'))).rejects.toMatchObject({ code: 'StateDirUnwritable' });
    const shared = join(base, 'shared');
    await mkdir(shared);
    await writeFile(join(shared, 'notes'), '');
    await chmod(shared, 0o777);
    await expect(probeStateDirectory(shared)).rejects.toMatchObject({ code: 'StateDirUnwritable' });
    await expect(openOnce(shared)).rejects.toMatchObject({ code: 'StateDirUnwritable' });
  });
});

describe('defaultWorkerName', () => {
  it.each([
    ['Build Box.local', /^build-box\.local-[a-z0-9]{4}$/],
    ['--__', /^worker-[a-z0-9]{4}$/],
    ['', /^worker-[a-z0-9]{4}$/],
    ['a'.repeat(70), /^a{58}-[a-z0-9]{4}$/],
  ])('makes a name from the host %j', async (host, expected) => {
    expect(await defaultWorkerName(path, host)).toMatch(expected);
  });

  it('stays once the directory has it, but does not follow a copy', async () => {
    const name = await defaultWorkerName(path, 'host');
    await (await openStateDirectory(path, { fleet: 'atlas', name })).release();
    expect(await defaultWorkerName(path, 'renamed-host')).toBe(name);
    const copy = join(base, 'copy');
    await cp(path, copy, { recursive: true });
    expect(await defaultWorkerName(copy, 'other')).toMatch(/^other-/);
  });
});
