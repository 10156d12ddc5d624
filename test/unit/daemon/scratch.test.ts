import { chmod, mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Scratch, sweepByAge } from '../../../src/daemon/scratch.js';

const KEY = 's1.0190a1b2-0000-7000-8000-000000000001';
const OTHER = 's2.0190a1b2-0000-7000-8000-000000000001';
const BOOT = 'b0070000-0000-4000-8000-000000000001';
const MARKER = { epoch: 1, grantedAtMs: 1_700_000_000_000 };

let base: string;
let root: string;
let scratch: Scratch;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'atlas-scratch-'));
  root = join(base, 'scratch');
  await mkdir(root);
  scratch = new Scratch(root, BOOT);
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe('Scratch', () => {
  it('makes a private directory with a marker', async () => {
    const directory = await scratch.create(KEY, MARKER);
    expect(directory).toBe(join(root, KEY));
    expect(directory).toBe(scratch.directory(KEY));
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
    expect(JSON.parse(await readFile(join(directory, '.atlas-session'), 'utf8'))).toEqual({
      key: KEY,
      boot: BOOT,
      ...MARKER,
    });
    expect(await scratch.isIntact(KEY)).toBe(true);
  });

  it('keeps the files when the same lease makes it again, and drops those of an earlier lease', async () => {
    const directory = await scratch.create(KEY, MARKER);
    await writeFile(join(directory, 'file'), '');
    await scratch.create(KEY, MARKER);
    expect(await readdir(directory)).toEqual(['.atlas-session', 'file']);
    await scratch.create(KEY, { ...MARKER, epoch: 2 });
    expect(await readdir(directory)).toEqual(['.atlas-session']);
    expect(await readdir(root)).toEqual([KEY]);
  });

  it.each([
    ['there is no directory', async () => rm(join(root, KEY), { recursive: true })],
    ['there is no marker', async () => rm(join(root, KEY, '.atlas-session'))],
    ['the marker was cut short', async () => writeFile(join(root, KEY, '.atlas-session'), '{"key":')],
    ['the marker is no record', async () => writeFile(join(root, KEY, '.atlas-session'), 'null')],
    [
      'the marker is that of another session',
      async () => writeFile(join(root, KEY, '.atlas-session'), JSON.stringify({ key: OTHER, boot: BOOT, ...MARKER })),
    ],
    [
      'the host was restarted since, with what was not on its disk yet',
      async () => writeFile(join(root, KEY, '.atlas-session'), JSON.stringify({ key: KEY, boot: 'other', ...MARKER })),
    ],
  ])('is not intact when %s', async (_, spoil) => {
    await scratch.create(KEY, MARKER);
    await spoil();
    expect(await scratch.isIntact(KEY)).toBe(false);
    await scratch.create(KEY, MARKER);
    expect(await scratch.isIntact(KEY)).toBe(true);
  });

  it('removes a directory, and does nothing when it is gone', async () => {
    const directory = await scratch.create(KEY, MARKER);
    await mkdir(join(directory, 'a', 'b'), { recursive: true });
    await scratch.remove(KEY);
    await scratch.remove(KEY);
    expect(await readdir(root)).toEqual([]);
  });

  it('frees the name at once and deletes later', async () => {
    await scratch.create(KEY, MARKER);
    const deleteTrash = await scratch.discard(KEY);
    expect(await scratch.isIntact(KEY)).toBe(false);
    await scratch.create(KEY, MARKER);
    expect(await readdir(root)).toHaveLength(2);
    await deleteTrash();
    expect(await readdir(root)).toEqual([KEY]);
    expect(await scratch.isIntact(KEY)).toBe(true);
  });

  it('sweeps all that belongs to no session, and says what', async () => {
    await scratch.create(KEY, MARKER);
    await scratch.create(OTHER, MARKER);
    await mkdir(join(root, '.trash-0011'));
    await writeFile(join(root, 'stray'), '');
    expect(await scratch.sweep(new Set([KEY]))).toEqual([OTHER, 'stray']);
    expect(await readdir(root)).toEqual([KEY]);
    expect(await scratch.sweep(new Set([KEY]))).toEqual([]);
  });

  it('asks what to keep just before it deletes, since a session may be granted during a sweep', async () => {
    await scratch.create(KEY, MARKER);
    await scratch.create(OTHER, MARKER);
    const asked: string[] = [];
    const removed = await scratch.sweep({
      has: (key) => {
        asked.push(key);
        // Granted while the first was deleted.
        return asked.length === 2;
      },
    });
    expect(removed).toEqual(asked.slice(0, 1));
    expect(await readdir(root)).toEqual(asked.slice(1));
  });

  it('does not follow links out of the directory', async () => {
    const outside = join(base, 'outside');
    await mkdir(outside);
    await writeFile(join(outside, 'file'), '');
    await symlink(outside, join(await scratch.create(KEY, MARKER), 'link'));
    await symlink(outside, join(root, 'link'));
    await scratch.sweep(new Set());
    expect(await readdir(root)).toEqual([]);
    expect(await readdir(outside)).toEqual(['file']);
  });

  it('deletes directories that their owner may not write to', async () => {
    const inner = join(await scratch.create(KEY, MARKER), 'cache', 'module');
    await mkdir(inner, { recursive: true });
    await writeFile(join(inner, 'file'), '');
    await chmod(inner, 0o500);
    await chmod(join(inner, '..'), 0o500);
    await scratch.remove(KEY);
    expect(await readdir(root)).toEqual([]);
  });

  it.each(['', '.', '..', '../x', 'a/b', '.trash-1', 'A', 'a b', 'a\0'])('refuses the key %j', async (key) => {
    await expect(scratch.create(key, MARKER)).rejects.toThrow('can not be the name of a directory');
    await expect(scratch.remove(key)).rejects.toThrow('can not be the name of a directory');
    expect(() => scratch.directory(key)).toThrow('can not be the name of a directory');
  });
});

describe('sweepByAge', () => {
  it('removes what is older than allowed and returns its names', async () => {
    const nowMs = 1_800_000_000_000;
    for (const [name, ageMs] of [
      ['old', 1001],
      ['limit', 1000],
      ['young', 0],
    ] as const) {
      await mkdir(join(root, name));
      await writeFile(join(root, name, 'file'), '');
      const time = new Date(nowMs - ageMs);
      await utimes(join(root, name), time, time);
    }
    expect(await sweepByAge(root, 1000, nowMs)).toEqual(['old']);
    expect(await readdir(root)).toEqual(['limit', 'young']);
  });
});
