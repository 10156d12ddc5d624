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
import { canMount, mountDisk, unmountDisk } from '../support/disks.js';
import { closedPort, serveDocuments } from '../support/document-server.js';
import { eventually, sessionsOf } from '../support/fixtures.js';
import {
  makeDamagedPdf,
  makeEncryptedPdf,
  makePdf,
  makeUnknownEncryptionPdf,
  truncated,
  type TestPage,
} from '../support/pdf.js';
import { makeFakePrograms } from '../support/programs.js';
import { useClient } from '../support/server.js';

const SAMPLE = fileURLToPath(new URL('../../examples/sample.pdf', import.meta.url));
const RUN = ['run', 'process-document'];
const LONG_TEST_MS = 300_000;

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

const MAY_MOUNT = canMount();

/** Gives a directory with less room than a worker keeps free. What uses it ends in time. */
async function onSmallDisk(use: (directory: string) => Promise<void>): Promise<void> {
  const place = await temporaryDirectory();
  mountDisk(place, 16 * 1024 * 1024);
  try {
    await use(place);
  } finally {
    unmountDisk(place);
  }
}

describe('a bad document', { timeout: LONG_TEST_MS }, () => {
  const client = useClient();

  /** What the command line sees for itself: without a server, which is not even asked. */
  it.each([
    ['that is not a PDF', 'These are notes, and not a PDF.\n', /bad\.pdf is not a PDF/, /Give a PDF file\./],
    ['that is empty', '', /bad\.pdf has no bytes/, /Check the source of the file\./],
  ])('%s is refused before anything is started', async (_, content, message, next) => {
    const cwd = await temporaryDirectory();
    await writeFile(join(cwd, 'bad.pdf'), content);
    const outcome = await runAtlas([...RUN, 'bad.pdf'], { cwd, address: `127.0.0.1:${await closedPort()}` });
    expectMessage(outcome, 8, message, next);
    expect(outcome.stderr).not.toContain('Run document-');
    expect(await readdir(cwd)).toEqual(['bad.pdf']);
  });

  interface Case {
    /** Served to the worker by the command, or by an address. */
    readonly file?: Buffer;
    readonly at?: Buffer;
    /** Instead of either. */
    readonly source?: string;
    readonly options?: readonly string[];
    readonly step?: 'downloadDocument' | 'extractPages';
    readonly message: RegExp;
    readonly next: RegExp;
  }

  async function cases(): Promise<Record<string, Case>> {
    const sample = await readFile(SAMPLE);
    const page: TestPage = ['The harbour has forty berths.'];
    const cut = { message: /bad\.pdf ends before the PDF does/, next: /Fetch or copy the file again\./ };
    const locked = {
      message: /bad\.pdf is protected by a password\./,
      next: /Give the password with --password-file, or remove it.*qpdf --decrypt/,
    };
    const encrypted = makeEncryptedPdf({ method: 'aes-256', user: 'sesame' });
    await writeFile(passwordFile, 'basil', { mode: 0o600 });
    return {
      'is no PDF': {
        at: Buffer.from('<!DOCTYPE html><p>Please log in'),
        message: /bad\.pdf is not a PDF: it begins with "<!DOCTYPE html>/,
        next: /Give a PDF file\./,
      },
      'has no bytes': { at: Buffer.alloc(0), message: /bad\.pdf has no bytes/, next: /Check the source of the file\./ },
      'was cut off': { file: truncated(sample), ...cut },
      'was cut off at its address': { at: truncated(sample), ...cut },
      'has no structure': {
        at: Buffer.from('%PDF-1.4\n%%EOF\n'),
        message: /bad\.pdf can not be read as a PDF/,
        next: /Repair it, .*qpdf/,
      },
      'needs a password': { file: encrypted, ...locked },
      'needs a password at its address': { at: encrypted, ...locked },
      'needs another password': {
        at: encrypted,
        options: ['--password-file', passwordFile],
        message: /The given password does not open bad\.pdf\./,
        next: /first line of the password file/,
      },
      'is encrypted in an unknown way': {
        file: makeUnknownEncryptionPdf(),
        message: /bad\.pdf is encrypted in a way that/,
        next: /Remove the encryption/,
      },
      'has no pages': {
        file: makePdf([]),
        step: 'extractPages',
        message: /bad\.pdf has no pages\./,
        next: /Check the source/,
      },
      'has too many pages': {
        file: makePdf([page, page, page, page]),
        step: 'extractPages',
        message: /bad\.pdf has 4 pages; this worker takes at most 3\./,
        next: /document\.max_pages \(ATLAS_DOCUMENT_MAX_PAGES\)/,
      },
      'is too large': {
        at: Buffer.concat([sample, Buffer.alloc(MAX_BYTES)]),
        message: /\/bad\.pdf has \d+ bytes; this worker takes at most 2000000/,
        next: /document\.max_bytes \(ATLAS_DOCUMENT_MAX_BYTES\)/,
      },
      'has pages that can not be read': {
        file: makeDamagedPdf([page, page, page]),
        step: 'extractPages',
        message: /2 of the 3 pages of bad\.pdf could not be read; the first is page 2: pdfium can not load the page\./,
        next: /viewer.*qpdf/,
      },
      'shows nothing': {
        file: makePdf([{ image: 'blank' }, { image: 'stripes' }]),
        step: 'extractPages',
        message: /None of the 2 pages of bad\.pdf has readable text\./,
        next: /not blank or a photograph/,
      },
      'is in a language that no engine knows': {
        file: makePdf([page]),
        options: ['--language', 'xyz'],
        step: 'extractPages',
        message: /This worker has no OCR data for xyz\./,
        next: /Install .*--language/,
      },
      'is at an address that nobody answers': {
        source: `http://127.0.0.1:${await closedPort()}/report.pdf?signature=hidden`,
        message: /127\.0\.0\.1:\d+\/report\.pdf could not be fetched: the connection was refused\./,
        next: /address.*reach/,
      },
      'is not at its address': {
        source: `${await serveDocuments({})}/report.pdf?signature=hidden`,
        message: /\/report\.pdf could not be fetched: the server answered 404 Not Found\./,
        next: /Check the address/,
      },
      'is at an address that the worker does not fetch from': {
        source: `http://[::1]:${await closedPort()}/report.pdf?signature=hidden`,
        message: /The worker does not connect to ::1: the address is loopback\./,
        next: /document\.allow_urls \(ATLAS_DOCUMENT_ALLOW_URLS\)/,
      },
      'is on a disk that the worker does not read': {
        source: `file://${SAMPLE}`,
        message: /The worker does not read .*sample\.pdf: .*document\.allow_files/,
        next: /document\.allow_files \(ATLAS_DOCUMENT_ALLOW_FILES\)/,
      },
      'goes to a directory that the worker does not write': {
        file: makePdf([page]),
        options: ['--deliver-to', '/nowhere'],
        message:
          /The worker does not write artifacts into \/nowhere\/bad-[0-9a-f]{8}: \/nowhere is not there, or under no directory/,
        next: /document\.allow_output \(ATLAS_DOCUMENT_ALLOW_OUTPUT\)/,
      },
    };
  }

  const MAX_BYTES = 2_000_000;
  /** Commands at a time. */
  const LANES = 2;
  let passwordFile: string;

  it('fails its run at the step that finds it, says what to do, and leaves nothing behind', async () => {
    // A tesseract that finds no word on any page: OCR itself is not what this is about.
    const programs = await makeFakePrograms(await temporaryDirectory(), { words: [] });
    const worker = await startAtlasd({
      args: [
        ...['--document-allow-urls', '127.0.0.0/8', '--document-ocr-engine', 'native', '--max-sessions', '8'],
        ...['--document-max-bytes', String(MAX_BYTES), '--document-max-pages', '3'],
      ],
      env: { PATH: programs.path },
    });
    passwordFile = join(await temporaryDirectory(), 'password');
    const processes = worker.processes().map(({ pid }) => pid);
    const waiting = Object.entries(await cases());
    const lane = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await fails(worker, ...next);
    };
    await Promise.all(Array.from({ length: LANES }, lane));

    await eventually(async () => (await sessionsOf(client(), worker.fleet)).length === 0, {
      what: 'no session is held',
    });
    await eventually(async () => (await readdir(join(worker.stateDirectory, 'scratch'))).length === 0, {
      what: 'the scratch directory is empty',
    });
    expect(await readdir(join(worker.stateDirectory, 'kept'))).toEqual([]);
    expect(worker.processes().map(({ pid }) => pid)).toEqual(processes);
  });

  async function fails(worker: Atlasd, name: string, each: Case): Promise<void> {
    const cwd = await temporaryDirectory();
    if (each.file !== undefined) await writeFile(join(cwd, 'bad.pdf'), each.file);
    const files = await readdir(cwd);
    const source =
      each.source ?? (each.at === undefined ? 'bad.pdf' : `${await serveDocuments({ 'bad.pdf': each.at })}/bad.pdf`);
    const argv = [...RUN, source, '--fleet', worker.fleet, ...(each.options ?? [])];
    const { exit, stdout, stderr } = await runAtlas(argv, { cwd });
    const [error = '', next = ''] = stderr.trimEnd().split('\n').slice(-2);
    const start = `error: The job failed at ${each.step ?? 'downloadDocument'} on worker-1: `;
    // Softly, so that each that is wrong is named.
    expect
      .soft({ exit, stdout, files: await readdir(cwd) }, `${name}\n${stderr}`)
      .toEqual({ exit: 8, stdout: '', files });
    expect.soft(error.slice(0, start.length), name).toBe(start);
    expect.soft(error.slice(start.length), name).toMatch(each.message);
    expect.soft(next, name).toMatch(/^ next: /);
    expect.soft(next, name).toMatch(each.next);
    expect.soft(stderr, name).not.toMatch(/Unexpected|^ {4}at |hidden/m);
  }

  it.skipIf(!MAY_MOUNT)(
    `does not fit on the disk of the worker${MAY_MOUNT ? '' : ' (needs the right to mount)'}`,
    async () => {
      await onSmallDisk(async (place) => {
        const worker = await startAtlasd({ stateDirectory: join(place, 'state') });
        const cwd = await temporaryDirectory();
        const outcome = await runAtlas([...RUN, SAMPLE, '--fleet', worker.fleet], { cwd });
        expectMessage(
          outcome,
          8,
          /The job failed at downloadDocument on worker-1: The document needs \d+ bytes in .*, which has \d+ left/,
          /Free space on the worker/,
        );
        expect(await readdir(cwd)).toEqual([]);
        await worker.stop();
      });
    },
  );
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
