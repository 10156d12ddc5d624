import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { keepDamaged, writeFileAtomic } from '../../../src/daemon/atomic-file.js';

let base: string;
let path: string;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'atlas-file-'));
  path = join(base, 'file');
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe('writeFileAtomic', () => {
  it('replaces content and mode, and leaves nothing beside', async () => {
    await writeFile(path, 'old', { mode: 0o644 });
    await writeFileAtomic(path, 'new', 0o600);
    expect(await readFile(path, 'utf8')).toBe('new');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(base)).toEqual(['file']);
  });

  it('leaves one whole content when several are written at once', async () => {
    const contents = Array.from({ length: 8 }, (_, n) => String(n).repeat(10_000));
    await Promise.all(contents.map((content) => writeFileAtomic(path, content, 0o600)));
    expect(contents).toContain(await readFile(path, 'utf8'));
    expect(await readdir(base)).toEqual(['file']);
  });

  it('leaves the old content and nothing beside when it fails', async () => {
    await mkdir(join(path, 'inner'), { recursive: true });
    await expect(writeFileAtomic(path, 'new', 0o600)).rejects.toMatchObject({ code: 'EISDIR' });
    expect(await readdir(base)).toEqual(['file']);
    expect(await readdir(path)).toEqual(['inner']);
  });
});

describe('keepDamaged', () => {
  it('gives a name that is not taken, and leaves the first name', async () => {
    await writeFile(path, 'damaged');
    const kept = [await keepDamaged(path), await keepDamaged(path), await keepDamaged(path)];
    expect(new Set(kept).size).toBe(3);
    for (const file of kept) expect(await readFile(file, 'utf8')).toBe('damaged');
    expect(await readFile(path, 'utf8')).toBe('damaged');
  });
});
