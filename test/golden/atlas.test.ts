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
import { COMMANDS } from '../../src/commands/index.js';
import { VERSION } from '../../src/contract/version.js';

const ATLAS = fileURLToPath(new URL('../../bin/atlas.js', import.meta.url));

let directory: string;
/** A port of the loopback interface on which nothing listens. */
let closedPort: number;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atlas-golden-'));
  await writeFile(join(directory, 'empty.pdf'), '');
  await writeFile(join(directory, 'notes.pdf'), 'These are notes, and not a PDF.\n');
  await writeFile(join(directory, 'report.pdf'), '%PDF-1.7\n%%EOF\n');
  await writeFile(join(directory, 'file'), '');
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

async function atlas(argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
  const child = spawn(process.execPath, [ATLAS, ...argv], {
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

function transcript(argv: readonly string[], { stdout, stderr, exit }: Outcome): string {
  const lines = [`$ atlas ${argv.join(' ')}`, `exit ${exit}`, '--- stdout', stdout, '--- stderr', stderr];
  return lines
    .join('\n')
    .replaceAll(directory, 'DIR')
    .replaceAll(String(closedPort), 'PORT')
    .replaceAll(VERSION, 'VERSION');
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
  'unknown-command-help': ['nope', '--help'],
  'unknown-subcommand': ['workers', 'lss'],
  'group-alone': ['workers'],
  'unknown-option': ['workers', 'ls', '--namespac', 'x'],
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
  'run-output-is-a-file': ['run', 'process-document', 'report.pdf', '--output', 'file/artifacts'],
  'run-attach-with-document': ['run', 'process-document', 'report.pdf', '--attach', 'x'],
  'completion-no-shell': ['completion'],
  'completion-unknown-shell': ['completion', 'bsh'],
  'hidden-command-misspelt': ['__complet'],
  'server-unreachable': ['workers', 'ls', '--address', 'CLOSED'],
  'server-unreachable-json': ['sessions', 'ls', '--address', 'CLOSED', '-o', 'json'],
  'server-address-not-valid': ['workers', 'ls', '--address', 'http://127.0.0.1:7233'],
  'doctor-unknown-check': ['doctor', '--check', 'clock'],
  'doctor-short-timeout': ['doctor', '--timeout', '1s'],
  'doctor-unreachable': ['doctor', '--address', 'CLOSED'],
  'run-no-server': ['run', 'process-document', 'report.pdf', '--address', 'CLOSED'],
};

describe('atlas', () => {
  it.each(Object.entries(CASES))('%s', async (name, argv) => {
    const resolved = argv.map((word) => (word === 'CLOSED' ? `127.0.0.1:${closedPort}` : word));
    const outcome = await atlas(resolved);
    await expect(transcript(resolved, outcome)).toMatchFileSnapshot(`transcripts/${name}.txt`);
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

describe('transcripts', () => {
  it('belong to a case each', async () => {
    const files = await readdir(new URL('transcripts/', import.meta.url));
    expect(files.sort()).toEqual(
      Object.keys(CASES)
        .map((name) => `${name}.txt`)
        .sort(),
    );
  });

  it.each(COMMANDS.map((spec) => [spec.path.join(' '), spec] as const))('atlas %s has an example', (_, spec) => {
    expect(spec.examples.length).toBeGreaterThan(0);
    for (const { command } of spec.examples) expect(command).toContain(`atlas ${spec.path.join(' ')}`);
  });
});
