import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { prepareSource } from '../../../../src/commands/support/document-source.js';

const PDF = Buffer.concat([Buffer.from('%PDF-1.7\n'), Buffer.alloc(3_000_000, 7)]);
const SHA256 = createHash('sha256').update(PDF).digest('hex');
let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-source-'));
  await writeFile(join(directory, 'report.pdf'), PDF);
  await writeFile(join(directory, 'empty.pdf'), '');
  await writeFile(join(directory, 'page.pdf'), '<!DOCTYPE html><title>Sign in</title>');
  await writeFile(join(directory, 'late.pdf'), Buffer.concat([Buffer.alloc(1_020), Buffer.from('%PDF-')]));
  await mkdir(join(directory, 'folder'));
});
afterAll(() => rm(directory, { recursive: true }));

describe('prepareSource', () => {
  it('serves a plain path, with its size and hash', async () => {
    const source = await prepareSource('report.pdf', directory);
    expect(source).toMatchObject({ kind: 'served', name: 'report.pdf', bytes: PDF.length, sha256: SHA256 });
    if (source.kind === 'served') await source.handle.close();
  });

  it('keeps the file that was hashed, even if another is put in its place', async () => {
    await writeFile(join(directory, 'swap.pdf'), PDF);
    const source = await prepareSource('swap.pdf', directory);
    await writeFile(join(directory, 'other.pdf'), '%PDF-other');
    await rename(join(directory, 'other.pdf'), join(directory, 'swap.pdf'));
    if (source.kind !== 'served') throw new Error('not served');
    expect((await source.handle.stat()).size).toBe(PDF.length);
    await source.handle.close();
  });

  it('takes a hash for an address, and none for a file, whose hash it takes itself', async () => {
    expect(await prepareSource('https://example.org/a.pdf', directory, undefined, SHA256)).toEqual({
      kind: 'url',
      url: 'https://example.org/a.pdf',
      name: 'a.pdf',
      sha256: SHA256,
    });
    for (const file of ['report.pdf', pathToFileURL(join(directory, 'report.pdf')).href]) {
      await expect(prepareSource(file, directory, undefined, SHA256)).rejects.toMatchObject({ code: 'Usage' });
    }
  });

  it('describes a file URL for the disk of the worker', async () => {
    const path = join(directory, 'report.pdf');
    expect(await prepareSource(pathToFileURL(path).href, '/')).toEqual({
      kind: 'file',
      path,
      name: 'report.pdf',
      bytes: PDF.length,
      sha256: SHA256,
    });
  });

  it('leaves an address to the worker', async () => {
    expect(await prepareSource('https://example.org/a/Q3%20report.pdf?x=1', '/')).toEqual({
      kind: 'url',
      url: 'https://example.org/a/Q3%20report.pdf?x=1',
      name: 'Q3 report.pdf',
    });
  });

  it.each([
    ['nope.pdf', 'FileUnreadable', 'nope.pdf does not exist.'],
    ['folder', 'FileUnreadable', 'folder is a directory.'],
    ['report.pdf/x', 'FileUnreadable', 'does not exist'],
    ['/dev/null', 'FileUnreadable', 'is not a regular file'],
    ['empty.pdf', 'EmptyFile', 'empty.pdf has no bytes.'],
    ['page.pdf', 'NotAPdf', 'It looks like a web page.'],
    ['late.pdf', 'NotAPdf', 'no %PDF- header'],
    ['ftp://example.org/x.pdf', 'Usage', 'not supported'],
    ['http://exa mple/x', 'Usage', 'not a valid address'],
    ['file://elsewhere/x.pdf', 'Usage', 'not a local file URL'],
  ])('refuses %s', async (input, code, message) => {
    await expect(prepareSource(input, directory)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message) as string,
    });
  });

  it.skipIf(process.getuid?.() === 0)('says when the file may not be read (not as root, who may)', async () => {
    await writeFile(join(directory, 'secret.pdf'), PDF);
    await chmod(join(directory, 'secret.pdf'), 0);
    await expect(prepareSource('secret.pdf', directory)).rejects.toMatchObject({ code: 'FileUnreadable' });
  });

  it('stops hashing when it is interrupted', async () => {
    const reason = new Error('stop');
    await expect(prepareSource('report.pdf', directory, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
