/**
 * Bad input: each ends with one message that says what to do, with the right exit code, and with no slot, working file
 * or process left behind. What the command line can see for itself never reaches a worker; the same mistake behind an
 * address is the worker's to find.
 */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { spawnAtlasd, startAtlasd, temporaryDirectory, type Atlasd, type AtlasdOptions } from '../support/atlasd.js';
import { runAtlas, type AtlasOutcome } from '../support/cli.js';
import { closedPort, serveDocuments } from '../support/document-server.js';
import { eventually, sessionsOf } from '../support/fixtures.js';
import { makeEncryptedPdf, truncated } from '../support/pdf.js';
import { useClient } from '../support/server.js';

const SAMPLE = fileURLToPath(new URL('../../examples/sample.pdf', import.meta.url));
const RUN = ['run', 'process-document'];
const LONG_TEST_MS = 180_000;

/** The command failed with one message, which has this reason and this next step, and printed no result. */
function expectMessage(outcome: AtlasOutcome, exit: number, message: RegExp, next: RegExp): void {
  expect({ exit: outcome.exit, stdout: outcome.stdout }, outcome.stderr).toEqual({ exit, stdout: '' });
  const lines = outcome.stderr.trimEnd().split('\n');
  expect(lines.filter((line) => line.startsWith('error: '))).toHaveLength(1);
  const [error, step] = lines.slice(-2);
  expect(error).toMatch(/^error: /);
  expect(error).toMatch(message);
  expect(step).toMatch(/^ next: /);
  expect(step).toMatch(next);
  expect(outcome.stderr).not.toMatch(/Unexpected|^ {4}at /m);
}

describe('a bad document', { timeout: LONG_TEST_MS }, () => {
  const client = useClient();

  interface Case {
    readonly content: (sample: Buffer) => Buffer;
    /** Whether the command line sees it before anything is started. */
    readonly seenHere: boolean;
    readonly message: RegExp;
    readonly next: RegExp;
    readonly step?: string;
  }

  const CASES: Readonly<Record<string, Case>> = {
    'that is not a PDF': {
      content: () => Buffer.from('These are notes, and not a PDF.\n'.repeat(100)),
      seenHere: true,
      message: /bad\.pdf is not a PDF/,
      next: /Give a PDF file\./,
    },
    'that is empty': {
      content: () => Buffer.alloc(0),
      seenHere: true,
      message: /bad\.pdf has no bytes/,
      next: /Check the source of the file\./,
    },
    'that was cut off': {
      content: (sample) => truncated(sample),
      seenHere: false,
      message: /bad\.pdf ends before the PDF does/,
      next: /Fetch or copy the file again\./,
    },
    'that is protected by a password': {
      content: () => makeEncryptedPdf({ method: 'rc4-128', user: 'secret' }),
      seenHere: false,
      step: 'extractPages',
      message: /bad\.pdf.*password/,
      next: /qpdf --decrypt/,
    },
  };

  describe.each(Object.entries(CASES))('%s', (_, { content, seenHere, message, next, step = 'downloadDocument' }) => {
    it(seenHere ? 'is refused before anything is started' : 'fails the run of a file that is served', async () => {
      const cwd = await temporaryDirectory();
      await writeFile(join(cwd, 'bad.pdf'), content(await readFile(SAMPLE)));
      // Without a server: it is not even asked.
      if (seenHere) {
        const address = `127.0.0.1:${await closedPort()}`;
        const outcome = await runAtlas([...RUN, 'bad.pdf'], { cwd, address });
        expectMessage(outcome, 8, message, next);
        expect(outcome.stderr).not.toContain('Run document-');
      } else {
        const worker = await startAtlasd();
        const outcome = await runOn(worker, 'bad.pdf', cwd);
        expectMessage(outcome, 8, message, next);
        expect(outcome.stderr).toMatch(new RegExp(`^error: The job failed at ${step} on worker-1: `, 'm'));
      }
      expect(await readdir(cwd)).toEqual(['bad.pdf']);
    });

    it('fails the run of an address', async () => {
      const worker = await startAtlasd({ args: ['--document-allow-urls', '127.0.0.0/8'] });
      const base = await serveDocuments({ 'bad.pdf': content(await readFile(SAMPLE)) });
      const outcome = await runOn(worker, `${base}/bad.pdf`);
      expectMessage(outcome, 8, message, next);
      expect(outcome.stderr).toMatch(new RegExp(`^error: The job failed at ${step} on worker-1: `, 'm'));
    });
  });

  /** Runs to a failure, after which nothing may be left on the worker or in the folder of the command. */
  async function runOn(worker: Atlasd, source: string, directory?: string): Promise<AtlasOutcome> {
    const cwd = directory ?? (await temporaryDirectory());
    const files = await readdir(cwd);
    const processes = worker.processes().map(({ pid }) => pid);
    const outcome = await runAtlas([...RUN, source, '--fleet', worker.fleet], { cwd });
    await eventually(async () => (await sessionsOf(client(), worker.fleet)).length === 0, {
      what: 'no session is held',
    });
    await eventually(async () => (await readdir(join(worker.stateDirectory, 'scratch'))).length === 0, {
      what: 'the scratch directory is empty',
    });
    const kept = await readdir(join(worker.stateDirectory, 'kept'));
    expect(kept).toEqual([]);
    expect(worker.processes().map(({ pid }) => pid)).toEqual(processes);
    expect(await readdir(cwd)).toEqual(files);
    return outcome;
  }

  it('at an address that nobody answers fails the run with what was tried', async () => {
    const worker = await startAtlasd({ args: ['--document-allow-urls', '127.0.0.0/8'] });
    const port = await closedPort();
    const outcome = await runOn(worker, `http://127.0.0.1:${port}/report.pdf`);
    expectMessage(outcome, 8, /at downloadDocument on worker-1: .*127\.0\.0\.1:\d+.*refused/, /address.*reach/);
  });

  it('that is not at its address fails the run with the answer of the server', async () => {
    const worker = await startAtlasd({ args: ['--document-allow-urls', '127.0.0.0/8'] });
    const base = await serveDocuments({});
    const outcome = await runOn(worker, `${base}/report.pdf`);
    expectMessage(outcome, 8, /at downloadDocument on worker-1: .*\/report\.pdf .*404 Not Found/, /Check the address/);
  });

  it('at an address that the worker may not fetch from fails the run with the setting that allows it', async () => {
    const worker = await startAtlasd();
    const base = await serveDocuments({ 'report.pdf': await readFile(SAMPLE) });
    const outcome = await runOn(worker, `${base}/report.pdf`);
    expectMessage(
      outcome,
      8,
      /at downloadDocument on worker-1: The worker does not connect to 127\.0\.0\.1: the address is loopback/,
      /document\.allow_urls \(ATLAS_DOCUMENT_ALLOW_URLS\)/,
    );
  });

  it('on a disk that the worker may not read fails the run with the setting that allows it', async () => {
    const worker = await startAtlasd();
    const outcome = await runOn(worker, `file://${SAMPLE}`);
    expectMessage(
      outcome,
      8,
      /at downloadDocument on worker-1: The worker does not read .*sample\.pdf: .*document\.allow_files/,
      /document\.allow_files \(ATLAS_DOCUMENT_ALLOW_FILES\)/,
    );
  });

  it('in a language that no engine knows fails the run with what to install', async () => {
    const worker = await startAtlasd();
    const cwd = await temporaryDirectory();
    const argv = [...RUN, SAMPLE, '--fleet', worker.fleet, '--language', 'xyz'];
    const outcome = await runAtlas(argv, { cwd });
    expectMessage(
      outcome,
      8,
      /at extractPages on worker-1: This worker has no OCR data for xyz/,
      /Install .*--language/,
    );
    expect(await readdir(cwd)).toEqual([]);
  });
});

describe('a wrong command line of atlas', () => {
  /** Nothing answers there: whatever gets as far as the server fails with another code. */
  const CASES: Readonly<
    Record<string, readonly [argv: readonly string[], exit: number, message: RegExp, next: RegExp]>
  > = {
    'a file that is not there': [[...RUN, 'missing.pdf'], 4, /missing\.pdf does not exist/, /Check the path/],
    'a directory instead of a file': [[...RUN, 'folder'], 4, /folder is a directory/, /Give one PDF file in it/],
    'a file: URL of a file that is not there': [
      [...RUN, 'file:///nowhere/a.pdf'],
      4,
      /\/nowhere\/a\.pdf does not exist/,
      /Check the path/,
    ],
    'a bad flag': [[...RUN, 'a.pdf', '--ouput', 'x'], 2, /Unknown option .*--ouput.*--output/, /--help/],
    'a bad value': [
      [...RUN, 'a.pdf', '--length', 'many'],
      2,
      /--length: "many" is neither short, medium, long nor a number of sentences from 1 to 100/,
      /--help/,
    ],
    'an output folder that can not be made': [
      [...RUN, SAMPLE, '--output', 'file/out'],
      1,
      /file\/out can not be written/,
      /--output/,
    ],
  };
  it.each(Object.entries(CASES))('%s', async (_, [argv, exit, message, next]) => {
    const cwd = await temporaryDirectory();
    await mkdir(join(cwd, 'folder'));
    await writeFile(join(cwd, 'file'), '');
    const outcome = await runAtlas(argv, { cwd, address: `127.0.0.1:${await closedPort()}` });
    expectMessage(outcome, exit, message, next);
    expect((await readdir(cwd)).sort()).toEqual(['file', 'folder']);
  });

  it('a wrong address of Temporal', async () => {
    const cwd = await temporaryDirectory();
    const address = `127.0.0.1:${await closedPort()}`;
    const outcome = await runAtlas([...RUN, SAMPLE], { cwd, address });
    expectMessage(outcome, 5, new RegExp(`${address} \\(from TEMPORAL_ADDRESS\\) does not answer`), /atlas dev/);
    expect(await readdir(cwd)).toEqual([]);
  });

  it('a namespace that does not exist', async () => {
    const cwd = await temporaryDirectory();
    const outcome = await runAtlas([...RUN, SAMPLE, '--namespace', 'nowhere'], { cwd });
    expectMessage(outcome, 5, /nowhere/, /namespace/);
    expect(await readdir(cwd)).toEqual([]);
  });
});

describe('a wrong start of atlasd', () => {
  /** Starts it and waits for its end; it has left no process. */
  async function failingStart(options: AtlasdOptions): Promise<AtlasOutcome> {
    const atlasd = await spawnAtlasd(options);
    const { code } = await atlasd.exited;
    expect(atlasd.processes()).toEqual([]);
    return { exit: code, stdout: atlasd.stdout, stderr: atlasd.plainOutput };
  }

  it('a state directory that can not be written', async () => {
    const file = join(await temporaryDirectory(), 'file');
    await writeFile(file, '');
    const outcome = await failingStart({ stateDirectory: join(file, 'state') });
    expectMessage(outcome, 1, /The state directory .*\/file\/state can not be used by uid \d+: /, /--state-dir/);
  });

  it('a state directory that another atlasd uses', async () => {
    const first = await startAtlasd();
    const outcome = await failingStart({ stateDirectory: first.stateDirectory, fleet: first.fleet });
    const used = `The state directory ${first.stateDirectory} is used by another atlasd, process ${first.pid}`;
    expectMessage(outcome, 6, new RegExp(used), /Stop that process, or choose another directory with --state-dir/);
    expect(first.running).toBe(true);
  });

  it('a wrong address of Temporal', async () => {
    const address = `127.0.0.1:${await closedPort()}`;
    const outcome = await failingStart({ address });
    expectMessage(outcome, 5, new RegExp(`${address} \\(from TEMPORAL_ADDRESS\\) does not answer`), /atlas dev/);
  });

  it('a namespace that does not exist', async () => {
    const outcome = await failingStart({ args: ['--namespace', 'nowhere'] });
    expectMessage(outcome, 5, /nowhere/, /namespace/);
  });

  it('a bad flag', async () => {
    const outcome = await failingStart({ args: ['--max-session', '4'] });
    expectMessage(outcome, 2, /Unknown option .*--max-session.*--max-sessions/, /--help/);
  });

  it('a bad value', async () => {
    const outcome = await failingStart({ args: ['--grace', 'soon'] });
    expectMessage(outcome, 2, /--grace.*soon/, /atlasd --help/);
  });

  it('a key of the configuration file that does not exist', async () => {
    const config = join(await temporaryDirectory(), 'atlasd.toml');
    await writeFile(config, 'max_sesions = 2\n');
    const outcome = await failingStart({ args: ['--config', config] });
    expectMessage(
      outcome,
      2,
      /atlasd\.toml: max_sesions is not known \(did you mean max_sessions\?\)/,
      /atlasd --help/,
    );
  });

  it('a variable that does not exist', async () => {
    const outcome = await failingStart({ env: { ATLAS_MAX_SESION: '2' } });
    expectMessage(outcome, 2, /ATLAS_MAX_SESION is not known \(did you mean ATLAS_MAX_SESSIONS\?\)/, /atlasd --help/);
  });
});
