/** Artifacts in a directory of the worker: where they may go, that they come whole or not at all, and what stays. */
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, realpath, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { deliverDocument, downloadDocument } from '../../../../src/jobs/document/activities.js';
import { ARTIFACT_NAMES } from '../../../../src/jobs/document/deliver/artifacts.js';
import {
  checkDirectory,
  fillDirectory,
  type DirectoryTarget,
} from '../../../../src/jobs/document/deliver/directory.js';
import { canMount } from '../../../support/disks.js';
import { openSession, type TestSession } from '../../../support/document-session.js';

const RUN = '0123-run';

let session: TestSession;
let results: string;

beforeEach(async () => {
  session = await openSession();
  results = join(await realpath(session.directory), 'results');
  await mkdir(results);
  for (const name of ARTIFACT_NAMES) await writeFile(join(session.scratch, name), `${name}, first`, { mode: 0o600 });
  vi.stubEnv('ATLAS_DOCUMENT_ALLOW_OUTPUT', results);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await session.close();
});

function target(path: string, options: Partial<DirectoryTarget> = {}): DirectoryTarget {
  return { path, allowed: [results], runId: RUN, fencingToken: 2, ...options };
}

async function fill(path: string, options: Partial<DirectoryTarget> = {}): Promise<void> {
  await fillDirectory(target(path, options), { scratch: session.scratch, signal: session.controller.signal });
}

async function contentOf(folder: string): Promise<Record<string, string>> {
  const names = await readdir(folder);
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name), 'utf8')] as const)),
  );
}

const ARTIFACTS = Object.fromEntries(ARTIFACT_NAMES.map((name) => [name, `${name}, first`]));

describe('the artifacts', () => {
  it('are put into the folder that was asked for, and its path is in the result', async () => {
    const folder = join(results, 'report-1a2b');
    const delivered = await session.run(deliverDocument, { deliverToDirectory: folder });
    expect(delivered).toMatchObject({ directory: folder, delivered: false, artifacts: { worker: 'worker-1' } });
    expect(await contentOf(folder)).toEqual(ARTIFACTS);
    expect(await readdir(results)).toEqual(['report-1a2b']);
  });

  it('can be read by those whom the umask of the worker lets', async () => {
    const folder = join(results, 'a');
    const umask = process.umask(0o022);
    onTestFinished(() => void process.umask(umask));
    await fill(folder);
    const modes = await Promise.all([folder, join(folder, 'summary.md')].map(async (path) => (await stat(path)).mode));
    expect(modes.map((mode) => (mode & 0o777).toString(8))).toEqual(['755', '644']);
  });

  it('replace those of an earlier attempt of the run', async () => {
    const folder = join(results, 'a');
    await fill(folder, { fencingToken: 1 });
    await writeFile(join(session.scratch, 'summary.md'), 'second');
    await fill(folder);
    expect(await contentOf(folder)).toEqual({ ...ARTIFACTS, 'summary.md': 'second' });
    expect(await readdir(results)).toEqual(['a']);
  });

  it('leave what a later session of the run writes, and clear away what an earlier one left', async () => {
    for (const token of [1, 2, 3, 10])
      await mkdir(join(results, `.atlas-${RUN}-${token}`, 'part'), { recursive: true });
    await mkdir(join(results, `.atlas-${RUN}-1.old`));
    await mkdir(join(results, '.atlas-another-run-1'));
    await fill(join(results, 'a'));
    expect((await readdir(results)).sort()).toEqual(
      ['.atlas-another-run-1', `.atlas-${RUN}-3`, `.atlas-${RUN}-10`, 'a'].sort(),
    );
  });

  it('are not there at all when the writing fails', async () => {
    const folder = join(results, 'a');
    await rm(join(session.scratch, 'summary.md'));
    await expect(fill(folder)).rejects.toThrow('ENOENT');
    expect(await readdir(results)).toEqual([]);
  });

  it('are not there at all when the session ends', async () => {
    session.controller.abort(new Error('the session ended'));
    await expect(fill(join(results, 'a'))).rejects.toThrow('the session ended');
    expect(await readdir(results)).toEqual([]);
  });

  it('take the place of an empty folder', async () => {
    await mkdir(join(results, 'a'));
    await fill(join(results, 'a'));
    expect(await contentOf(join(results, 'a'))).toEqual(ARTIFACTS);
  });

  it('may go through a link that leads to a listed directory', async () => {
    await symlink(results, join(session.directory, 'link'));
    await fill(join(session.directory, 'link', 'a'));
    expect(await readdir(join(results, 'a'))).toHaveLength(ARTIFACT_NAMES.length);
  });
});

async function thesis(path: string): Promise<void> {
  await mkdir(path);
  await writeFile(join(path, 'thesis.md'), '');
}

describe('a directory', () => {
  async function refusal(path: string, options: Partial<DirectoryTarget> = {}): Promise<string> {
    const checked = checkDirectory(target(path, options));
    await expect(checked).rejects.toMatchObject({ type: 'DirectoryRefused', nonRetryable: true });
    await expect(fill(path, options)).rejects.toMatchObject({ type: 'DirectoryRefused' });
    return await checked.then(
      () => 'not refused',
      (error: unknown) => (error as Error).message.replaceAll(path, 'PATH').replaceAll(dirname(path), 'PARENT'),
    );
  }

  it('is refused by the first step, before anything is fetched', async () => {
    const source = { kind: 'file', path: '/nowhere', bytes: 1, sha256: '0'.repeat(64) } as const;
    await expect(
      session.run(downloadDocument, source, { deliverToDirectory: join(session.directory, 'elsewhere', 'a') }),
    ).rejects.toMatchObject({
      type: 'DirectoryRefused',
      details: [{ next: expect.stringContaining('ATLAS_DOCUMENT_ALLOW_OUTPUT') as string }],
    });
  });

  it('that is not listed and one that is not there get the same answer', async () => {
    await mkdir(join(session.directory, 'private'));
    await symlink(join(session.directory, 'private'), join(results, 'way-out'));
    const answers = new Set([
      await refusal(join(session.directory, 'private', 'a')),
      await refusal(join(session.directory, 'missing', 'a')),
      await refusal(join(results, 'missing', 'a')),
      await refusal(join(results, 'way-out', 'a')),
      await refusal(`${results}/../private/a`),
      await refusal(results),
      await refusal('results/a'),
      await refusal(join(results, 'a'), { allowed: [] }),
      await refusal(join(results, 'a'), { allowed: [join(session.directory, 'missing')] }),
    ]);
    expect([...answers]).toEqual([
      'The worker does not write artifacts into PATH: PARENT is not there, or under no directory of document.allow_output.',
    ]);
    expect(await refusal('/')).toMatch(/is not there, or under no directory of document\.allow_output\.$/);
    expect(await readdir(join(session.directory, 'private'))).toEqual([]);
  });

  it.each([
    ['files of somebody', thesis],
    ['a file', async (path: string) => await writeFile(path, '')],
    ['a link', async (path: string) => await symlink(session.scratch, path)],
  ])('in which there is %s in its place stays as it is', async (_, put) => {
    const path = join(results, 'a');
    await put(path);
    expect(await refusal(path)).toBe(
      'PATH is there already on this worker, and has something else than artifacts in it.',
    );
    expect(await readdir(results)).toEqual(['a']);
  });

  it('with a name that no file system takes is refused', async () => {
    expect(await refusal(join(results, 'x'.repeat(256)))).toBe('The name of the folder PATH is too long.');
  });

  it('below which a file is in the way is refused with the reason', async () => {
    await writeFile(join(results, 'file'), '');
    expect(await refusal(join(results, 'file', 'a'))).toMatch(/^The artifacts can not be put into PATH: .*ENOTDIR/);
  });

  it('that can be written leaves nothing of the check', async () => {
    await checkDirectory(target(join(results, 'a')));
    expect(await readdir(results)).toEqual([]);
  });
});

const MAY_MOUNT = canMount();

describe.skipIf(!MAY_MOUNT)(`a file system${MAY_MOUNT ? '' : ' (needs the right to mount)'}`, () => {
  afterEach(() => void execFileSync('umount', [results]));

  function mount(options: string): void {
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', results]);
  }

  it('that is full fails the step for a while, and leaves nothing', async () => {
    mount('size=64k');
    await writeFile(join(session.scratch, 'text.txt'), 'x'.repeat(200_000));
    await expect(fill(join(results, 'a'))).rejects.toMatchObject({
      type: 'OutOfDisk',
      nonRetryable: false,
      message: `The artifacts could not be put into ${join(results, 'a')}: its disk is full (ENOSPC).`,
      details: [{ next: `Free space where ${results} is on the worker, and run again.` }],
    });
    expect(await readdir(results)).toEqual([]);
  });

  it('that can not be written is refused by the first look', async () => {
    mount('ro');
    await expect(checkDirectory(target(join(results, 'a')))).rejects.toMatchObject({
      type: 'DirectoryRefused',
      message: expect.stringContaining('(EROFS)') as string,
    });
  });
});
