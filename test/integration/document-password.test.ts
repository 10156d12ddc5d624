/**
 * A document that is protected by a password, through real processes of the command, of atlasd and of Temporal: who can
 * read it, what a person is told, and that the password is nowhere afterwards, nor shows while it is used.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { chmod, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startAtlasd, temporaryDirectory } from '../support/atlasd.js';
import { runAtlas, spawnAtlas, type AtlasOutcome } from '../support/cli.js';
import { eventually } from '../support/fixtures.js';
import { storedOf } from '../support/payloads.js';
import { makeEncryptedPdf, type TestPage } from '../support/pdf.js';
import { makeFakePrograms } from '../support/programs.js';
import { useClient } from '../support/server.js';

const PASSWORD = 'kelp-forest-0815';
const WRONG = 'seaweed-meadow-4711';
const LINE = 'The harbour has forty berths on a coast with few safe places to land.';
/** The second needs OCR. */
const PAGES: readonly TestPage[] = [[LINE], { image: 'stripes' }];
const LONG_TEST_MS = 180_000;

/** What `ps` shows any user of this host, until the test ends. */
function watchCommandLines(): () => string {
  const seen = new Set<string>();
  const look = (): void => {
    for (const name of readdirSync('/proc')) {
      if (!/^\d+$/.test(name)) continue;
      try {
        seen.add(readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0').join(' '));
      } catch {
        // Ended meanwhile.
      }
    }
  };
  const timer = setInterval(look, 20);
  onTestFinished(() => clearInterval(timer));
  return () => [...seen].join('\n');
}

async function untilScratchIsEmpty(stateDirectory: string): Promise<void> {
  await eventually(async () => (await readdir(join(stateDirectory, 'scratch'))).length === 0, {
    what: 'what a session had has gone with it',
  });
}

async function contentOfAll(directory: string): Promise<string> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return (await Promise.all(files.map((file) => readFile(file, 'latin1')))).join('\n');
}

describe('a protected document', { timeout: LONG_TEST_MS }, () => {
  const client = useClient();

  it('is read with its password, which is nowhere but in its file, and is not read without', async () => {
    const cwd = await temporaryDirectory();
    const programs = await makeFakePrograms(await temporaryDirectory());
    const worker = await startAtlasd({
      args: ['--document-ocr-engine', 'native', '--log-level', 'debug'],
      env: { PATH: programs.path },
    });
    await writeFile(join(cwd, 'rc4.pdf'), makeEncryptedPdf({ method: 'rc4-128', user: PASSWORD }, PAGES));
    await writeFile(join(cwd, 'aes.pdf'), makeEncryptedPdf({ method: 'aes-256', user: 'u', owner: PASSWORD }, PAGES));
    const secrets = await temporaryDirectory();
    await writeFile(join(secrets, 'right'), `${PASSWORD}\r\nanother line\n`);
    await writeFile(join(secrets, 'wrong'), WRONG);
    await chmod(join(secrets, 'right'), 0o600);
    await chmod(join(secrets, 'wrong'), 0o644);
    const commandLines = process.platform === 'linux' ? watchCommandLines() : () => '';

    const run = async (id: string, argv: readonly string[], input?: string): Promise<AtlasOutcome> =>
      await runAtlas(
        ['run', 'process-document', ...argv, '--fleet', worker.fleet, '--id', `${worker.fleet}-${id}`, '--output', id],
        { cwd, ...(input === undefined ? {} : { input }) },
      );
    const right = await run('right', ['rc4.pdf', '--password-file', join(secrets, 'right')]);
    const piped = await run('piped', ['aes.pdf', '--password-file', '-'], `${PASSWORD}\n`);
    const wrong = await run('wrong', ['rc4.pdf', '--password-file', join(secrets, 'wrong')]);
    const none = await run('none', ['rc4.pdf']);

    for (const [name, outcome] of Object.entries({ right, piped })) {
      expect(outcome, outcome.stderr).toMatchObject({ exit: 0 });
      expect(outcome.stderr).not.toContain('warning');
      expect(outcome.stdout).toContain('2 pages: 1 from the text layer, 1 by OCR (native).');
      expect(await readFile(join(cwd, name, 'text.txt'), 'utf8')).toBe(`${LINE}\n\f\nNight watch\n`);
    }
    expect(wrong).toMatchObject({ exit: 8, stdout: '' });
    expect(wrong.stderr).toMatch(
      /^warning: Other users of this host can read \S+wrong; `chmod 600 \S+wrong` ends that\.$/m,
    );
    expect(wrong.stderr).toMatch(
      /^error: The job failed at downloadDocument on worker-1: The given password does not open rc4\.pdf\.$/m,
    );
    expect(wrong.stderr).toMatch(/^ next: Check the first line of the password file\./m);
    expect(none).toMatchObject({ exit: 8, stdout: '' });
    expect(none.stderr).toMatch(
      /^error: The job failed at downloadDocument on worker-1: rc4\.pdf is protected by a password\.$/m,
    );
    expect(none.stderr).toMatch(/^ next: Give the password with --password-file/m);

    const calls = (await programs.calls()).filter((call) => !call.startsWith('tesseract'));
    expect(calls).toEqual([]);
    const stored = await Promise.all(
      ['right', 'piped', 'wrong', 'none'].map((id) => storedOf(client().workflow.getHandle(`${worker.fleet}-${id}`))),
    );
    // What is looked through does have what it must: the address of the password, and the reason of the failure.
    expect(stored[0]?.text).toMatch(/"password":\{"url":"http:\/\/127\.0\.0\.1:\d+\/password","token"/);
    expect(stored[2]?.text).toContain('The given password does not open rc4.pdf.');
    // The working files go after the end of a run, and what goes can not be read.
    await untilScratchIsEmpty(worker.stateDirectory);
    const everywhere = {
      histories: stored.map(({ text }) => text).join('\n'),
      'the log of atlasd': worker.transcript(),
      'the output of the command': [right, piped, wrong, none].map((out) => out.stdout + out.stderr).join('\n'),
      'command lines': commandLines(),
      'the files of the worker': await contentOfAll(worker.stateDirectory),
      'the artifacts': `${await contentOfAll(join(cwd, 'right'))}${await contentOfAll(join(cwd, 'piped'))}`,
    };
    expect(everywhere['command lines']).toContain(process.platform === 'linux' ? 'process-document rc4.pdf' : '');
    expect(everywhere['the files of the worker']).toContain(LINE);
    for (const [place, text] of Object.entries(everywhere)) {
      for (const secret of [PASSWORD, WRONG]) expect(text.includes(secret), `${secret} in ${place}`).toBe(false);
    }
  });

  it('is read to its end by an executor that was killed after the command has detached', async () => {
    const cwd = await temporaryDirectory();
    const programs = await makeFakePrograms(await temporaryDirectory(), { holds: true });
    const worker = await startAtlasd({ args: ['--document-ocr-engine', 'native'], env: { PATH: programs.path } });
    await writeFile(join(cwd, 'report.pdf'), makeEncryptedPdf({ method: 'aes-256', user: PASSWORD }, PAGES));
    const argv = ['run', 'process-document', 'report.pdf', '--fleet', worker.fleet, '--password-file', '-'];
    const command = await spawnAtlas(argv, { cwd, input: PASSWORD });
    const id = (await command.line(/^Run /)).slice('Run '.length);
    await command.line(/Read pages: running/);
    await eventually(async () => (await programs.calls()).some((call) => call.startsWith('tesseract stdin')));
    command.interrupt();
    const detached = await command.exited;
    expect(detached).toMatchObject({ exit: 130, stdout: '' });
    expect(detached.stderr).toContain('The run continues on worker-1');

    const { pid } = await worker.event('executor-start');
    process.kill(Number(pid), 'SIGKILL');
    await worker.event('executor-end');
    await programs.letGo();
    const attached = await runAtlas(['run', '--attach', id, '--fleet', worker.fleet, '--output', 'out'], { cwd });
    expect(attached, attached.stderr).toMatchObject({ exit: 0 });
    expect(await readFile(join(cwd, 'out', 'text.txt'), 'utf8')).toBe(`${LINE}\n\f\nNight watch\n`);
    await untilScratchIsEmpty(worker.stateDirectory);
  });
});
