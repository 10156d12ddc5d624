/**
 * What a person or a script gets for a command line: stdout, stderr and exit code of the built program, compared with
 * the transcripts beside this file. `npx vitest run test/golden -u` writes them anew; read the difference aloud.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ATLASD } from '../../src/atlasd.js';
import { COMMANDS } from '../../src/commands/index.js';
import { VERSION } from '../../src/contract/version.js';

const ATLAS = fileURLToPath(new URL('../../bin/atlas.js', import.meta.url));
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ATLASD_PROGRAM = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));

let directory: string;
/** A port of the loopback interface on which nothing listens. */
let closedPort: number;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-golden-'));
  await writeFile(join(directory, 'empty.pdf'), '');
  await writeFile(join(directory, 'notes.pdf'), 'These are notes, and not a PDF.\n');
  await writeFile(join(directory, 'report.pdf'), '%PDF-1.7\n%%EOF\n');
  await writeFile(join(directory, 'file'), '');
  await writeFile(join(directory, 'exits.mjs'), `console.error('No licence.'); process.exit(3);`);
  await writeFile(join(directory, 'none.mjs'), 'export const limit = 3;');
  await writeFile(join(directory, 'broken.mjs'), `import './nope.js'; export async function order() {}`);
  await mkdir(join(directory, 'folder'));
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closedPort = (server.address() as AddressInfo).port;
  server.close();
  await once(server, 'close');
});
afterAll(() => rm(directory, { recursive: true }));

interface Outcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly exit: number | null;
}

async function atlas(argv: readonly string[], env: NodeJS.ProcessEnv = {}, program: string = ATLAS): Promise<Outcome> {
  const child = spawn(process.execPath, [program, ...argv], {
    cwd: directory,
    // Nothing of the machine that runs the tests: a profile or a colour setting would be in the transcript.
    env: { PATH: process.env['PATH'], HOME: directory, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr, [exit]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  return { stdout, stderr, exit };
}

function transcript(command: string, argv: readonly string[], { stdout, stderr, exit }: Outcome): string {
  const lines = [`$ ${command} ${argv.join(' ')}`, `exit ${exit}`, '--- stdout', stdout, '--- stderr', stderr];
  return lines
    .join('\n')
    .replaceAll(directory, 'DIR')
    .replaceAll(String(closedPort), 'PORT')
    .replaceAll(VERSION, 'VERSION')
    .replaceAll(ROOT, 'ROOT/')
    .replace(/[\d.]+ \w+ of [\d.]+ \w+ free/g, 'FREE of TOTAL free')
    .replace(/\buid \d+/g, 'uid UID');
}

const CASES: Readonly<Record<string, readonly string[]>> = {
  help: ['--help'],
  'no-arguments': [],
  version: ['--version'],
  ...Object.fromEntries(
    COMMANDS.map(({ path }) => [`help-${path.join('-')}`, [...path, '--help']] as [string, string[]]),
  ),
  'help-group': ['workers', '--help'],
  'help-word': ['help', 'sessions', 'ls'],
  'unknown-command': ['wrokers', 'ls'],
  'unknown-command-help': ['frobnicate', '--help'],
  'unknown-subcommand': ['workers', 'lss'],
  'group-alone': ['workers'],
  'unknown-option': ['workers', 'ls', '--namespac', 'x'],
  'selector-unknown-field': ['workers', 'ls', '-l', 'cap=gpu,sate=lost'],
  'selector-unknown-value': ['sessions', 'ls', '--selector', 'state=helt'],
  'selector-not-valid': ['pools', 'ls', '-l', 'gpu'],
  'sort-unknown-field': ['sessions', 'ls', '--sort-by', '-held'],
  'interval-without-watch': ['workers', 'ls', '--interval', '5s'],
  'limit-not-a-number': ['workers', 'ls', '--limit', 'few'],
  'show-nothing': ['sessions', 'show'],
  'bad-choice': ['sessions', 'ls', '-o', 'jsno'],
  'bad-fleet': ['workers', 'ls', '--fleet', 'My-Fleet'],
  'missing-value': ['workers', 'ls', '--fleet'],
  'too-many-arguments': ['workers', 'ls', 'worker-7'],
  'usage-json': ['workers', 'ls', '--nope', '-o', 'json'],
  'run-nothing': ['run'],
  'run-no-document': ['run', 'process-document'],
  'run-unknown-job': ['run', 'proces-document', 'report.pdf'],
  'run-document-as-job': ['run', 'report.pdf'],
  'run-missing-file': ['run', 'process-document', 'missing.pdf'],
  'run-missing-file-json': ['run', 'process-document', 'missing.pdf', '-o', 'json'],
  'run-directory': ['run', 'process-document', 'folder'],
  'run-empty-file': ['run', 'process-document', 'empty.pdf'],
  'run-not-a-pdf': ['run', 'process-document', 'notes.pdf'],
  'run-unknown-scheme': ['run', 'process-document', 'ftp://127.0.0.1/report.pdf'],
  'run-timeout-without-unit': ['run', 'process-document', 'report.pdf', '--timeout', '5'],
  'run-bad-serve-address': ['run', 'process-document', 'report.pdf', '--serve-address', 'http://127.0.0.1'],
  'run-bad-sha256': ['run', 'process-document', 'https://127.0.0.1/report.pdf', '--sha256', 'beef'],
  'run-sha256-of-a-file': ['run', 'process-document', 'report.pdf', '--sha256', 'A'.repeat(64)],
  'run-attach-with-sha256': ['run', '--attach', 'x', '--sha256', 'A'.repeat(64)],
  'run-output-is-a-file': ['run', 'process-document', 'report.pdf', '--output', 'file/artifacts'],
  'run-attach-with-document': ['run', 'process-document', 'report.pdf', '--attach', 'x'],
  'run-attach-with-password': ['run', '--attach', 'x', '--password-file', 'notes.pdf'],
  'run-missing-password-file': ['run', 'process-document', 'report.pdf', '--password-file', 'missing'],
  'run-empty-password-file': ['run', 'process-document', 'report.pdf', '--password-file', 'empty.pdf'],
  'run-deliver-to-relative': ['run', 'process-document', 'report.pdf', '--deliver-to', 'results'],
  'cordon-nothing': ['cordon'],
  'cordon-names-and-selector': ['cordon', 'worker-7', '-l', 'cap=gpu'],
  'cordon-unknown-field': ['cordon', '-l', 'capp=gpu'],
  'uncordon-no-server': ['uncordon', 'worker-7', '--address', 'CLOSED'],
  'drain-nothing': ['drain'],
  'drain-force-without-reason': ['drain', 'worker-7', '--force'],
  'drain-release-without-deadline': ['drain', 'worker-7', '--on-deadline', 'release'],
  'drain-deadline-without-unit': ['drain', 'worker-7', '--deadline', '10'],
  'drain-monitor-with-terms': ['drain', '--monitor', '--deadline', '10m'],
  'drain-self-with-names': ['drain', '--self', 'worker-7'],
  'drain-self-no-daemon': ['drain', '--self', '--state-dir', 'folder', '-o', 'json'],
  'drain-self-no-daemon-text': ['cordon', '--self', '--state-dir', 'folder'],
  'sessions-release-nothing': ['sessions', 'release'],
  'sessions-release-names-and-filter': ['sessions', 'release', '06ba', '--leaked'],
  'workers-forget-nothing': ['workers', 'forget'],
  'wait-no-state': ['wait', 'worker', 'worker-7'],
  'wait-unknown-state': ['wait', 'worker', 'worker-7', '--for', 'redy'],
  'wait-state-of-the-other': ['wait', 'session', '06ba', '--for', 'ready'],
  'wait-unknown-kind': ['wait', 'wroker', 'worker-7', '--for', 'ready'],
  'completion-no-shell': ['completion'],
  'completion-unknown-shell': ['completion', 'bsh'],
  'hidden-command-misspelt': ['__complet'],
  'server-unreachable': ['workers', 'ls', '--address', 'CLOSED'],
  'server-unreachable-json': ['sessions', 'ls', '--address', 'CLOSED', '-o', 'json'],
  'server-address-not-valid': ['workers', 'ls', '--address', 'http://127.0.0.1:7233'],
  'top-no-terminal': ['top'],
  'top-interval-without-unit': ['top', '--interval', '2'],
  'top-interval-too-short': ['top', '--interval', '10ms'],
  'doctor-unknown-check': ['doctor', '--check', 'clock'],
  'doctor-short-timeout': ['doctor', '--timeout', '1s'],
  'doctor-unreachable': ['doctor', '--address', 'CLOSED'],
  'run-no-server': ['run', 'process-document', 'report.pdf', '--address', 'CLOSED'],
};

const NPM_OCR = ['--document-ocr-engine', 'npm'];

/** Every state directory is named: that of root is not below the home. */
const ATLASD_CASES: Readonly<Record<string, readonly string[]>> = {
  'atlasd-help': ['--help'],
  'atlasd-help-status': ['status', '--help'],
  'atlasd-help-reload': ['reload', '--help'],
  'atlasd-reload-nothing': ['reload', '--state-dir', 'state'],
  'atlasd-reload-nothing-json': ['reload', '--state-dir', 'state', '-o', 'json'],
  'atlasd-reload-bad-timeout': ['reload', '--state-dir', 'state', '--timeout', 'soon'],
  'atlasd-capability-check-of-none': ['--capabilities', 'gpu', '--capability-check', 'ocr=true'],
  'atlasd-capability-check-no-command': ['--capabilities', 'gpu', '--capability-check', 'gpu'],
  'atlasd-version': ['--version'],
  'atlasd-unknown-command': ['statsu'],
  'atlasd-unknown-command-after-option': ['--name', 'worker-7', 'statsu'],
  'atlasd-unknown-command-help': ['nope', '--help'],
  'atlasd-option-before-command': ['--state-dir', 'state', 'status'],
  'atlasd-option-not-of-command': ['--max-sessions', '2', 'status'],
  'atlasd-status-nothing': ['status', '--state-dir', 'state'],
  'atlasd-status-nothing-json': ['status', '--state-dir', 'state', '-o', 'json'],
  'atlasd-status-bad-choice': ['status', '-o', 'yaml'],
  'atlasd-status-bad-fleet': ['status', '--fleet', 'My-Fleet'],
  'atlasd-format-without-check': ['-o', 'json'],
  // The engine of npm, since what else it says depends on what is installed.
  'atlasd-check-no-server': ['--check', '--address', 'CLOSED', '--state-dir', 'state', ...NPM_OCR],
  'atlasd-check-failures': [
    ...['--check', '--address', 'CLOSED', '--state-dir', 'file/state'],
    ...['--activities', 'exits.mjs', '--workflows', 'broken.mjs'],
  ],
  'atlasd-check-modules': [
    ...['--check', '--address', 'CLOSED', '--state-dir', 'state'],
    ...['--activities', 'none.mjs', '--workflows', 'broken.mjs'],
  ],
  'atlasd-check-missing-modules': [
    ...['--check', '--address', 'CLOSED', '--state-dir', 'state'],
    ...['--activities', 'missing.mjs', '--workflows', 'missing.bundle.js'],
  ],
  'atlasd-check-config': ['--check', '--reserve', 'gpu=1'],
  'atlasd-check-config-json': ['--check', '--reserve', 'gpu=1', '-o', 'json'],
  'atlasd-status-no-config': ['status', '--config', 'missing.toml'],
};

const resolveAddress = (argv: readonly string[]): string[] =>
  argv.map((word) => (word === 'CLOSED' ? `127.0.0.1:${closedPort}` : word));

describe('atlas', () => {
  it.each(Object.entries(CASES))('%s', async (name, argv) => {
    const resolved = resolveAddress(argv);
    const outcome = await atlas(resolved);
    await expect(transcript('atlas', resolved, outcome)).toMatchFileSnapshot(`transcripts/${name}.txt`);
    if (outcome.exit !== 0) expect(outcome.stdout).toBe('');
  });

  it('reads the address of the environment, and says so when it is wrong', async () => {
    const { exit, stderr } = await atlas(['workers', 'ls'], { TEMPORAL_ADDRESS: `127.0.0.1:${closedPort}` });
    expect(exit).toBe(5);
    expect(stderr).toContain('TEMPORAL_ADDRESS');
  });

  it('leaves no folder behind when a run could not start', async () => {
    const before = await readdir(directory);
    const { exit } = await atlas(['run', 'process-document', 'report.pdf', '--address', `127.0.0.1:${closedPort}`]);
    expect(exit).toBe(5);
    expect(await readdir(directory)).toEqual(before);
  });

  it('ends quietly when nobody reads its output any more', async () => {
    const child = spawn(process.execPath, [ATLAS, 'run', '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    const [stderr, [exit]] = await Promise.all([text(child.stderr), once(child, 'exit') as Promise<[number | null]>]);
    expect({ stderr, exit }).toEqual({ stderr: '', exit: 0 });
  });

  it.each([['--help'], ['run', '--help'], ['--version']])('loads no library but commander for %s', async (...argv) => {
    const { stderr, exit } = await atlas(argv, { NODE_DEBUG: 'module,esm' });
    expect(exit).toBe(0);
    const packages = [...stderr.matchAll(/node_modules\/((?:@[a-z0-9-]+\/)?[a-z0-9-]+)/g)].map((match) => match[1]);
    expect([...new Set(packages)]).toEqual(['commander']);
  });
});

describe('atlasd', () => {
  it.each(Object.entries(ATLASD_CASES))('%s', async (name, argv) => {
    const resolved = resolveAddress(argv);
    const before = await readdir(directory);
    const outcome = await atlas(resolved, {}, ATLASD_PROGRAM);
    await expect(transcript('atlasd', resolved, outcome)).toMatchFileSnapshot(`transcripts/${name}.txt`);
    // Who only asks makes no state directory.
    expect(await readdir(directory)).toEqual(before);
  });

  it.each([['--help'], ['status', '--help']])('loads only what its options need for %s', async (...argv) => {
    const { stderr, exit } = await atlas(argv, { NODE_DEBUG: 'module,esm' }, ATLASD_PROGRAM);
    expect(exit).toBe(0);
    const packages = [...stderr.matchAll(/node_modules\/((?:@[a-z0-9-]+\/)?[a-z0-9-]+)/g)].map((match) => match[1]);
    expect([...new Set(packages)].sort()).toEqual(['commander', 'smol-toml', 'zod']);
  });
});

describe('transcripts', () => {
  it('belong to a case each', async () => {
    const files = await readdir(new URL('transcripts/', import.meta.url));
    expect(files.sort()).toEqual(
      Object.keys({ ...CASES, ...ATLASD_CASES })
        .map((name) => `${name}.txt`)
        .sort(),
    );
  });

  it.each(COMMANDS.map((spec) => [spec.path.join(' '), spec] as const))('atlas %s has an example', (_, spec) => {
    expect(spec.examples.length).toBeGreaterThan(0);
    for (const { command } of spec.examples) expect(command).toContain(`atlas ${spec.path.join(' ')}`);
  });

  it.each(ATLASD.commands.map((spec) => [['atlasd', ...spec.path].join(' '), spec] as const))(
    '%s has an example',
    (name, spec) => {
      expect(spec.examples.length).toBeGreaterThan(0);
      for (const { command } of spec.examples) expect(command).toContain(name);
    },
  );
});
