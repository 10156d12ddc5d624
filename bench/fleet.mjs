/**
 * What a fleet costs the server, and what it costs to look at one: a simulated fleet of many workers on one real server,
 * and the commands of `atlas` that read it, each as a whole process. What of the fleet is real and what is simulated is
 * said in `support/fleet/simulated-fleet.mjs`; in short, what the server holds and is sent by workers is real, and there
 * are no hosts, no polls that stay open and no leases.
 *
 * The presence TTL is chosen so that presence takes the server about half a core, which is what a list then competes
 * with. Processor time stands beside the wall time, since on a busy machine only the first can be compared between runs.
 */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ROOT, say, ScriptError } from '../scripts/lib.mjs';
import { heartbeatCount } from './support/history.mjs';
import { cpuMs, endedChildrenCpuMs, memoryOf, peakRssMb } from './support/process-usage.mjs';
import { environmentFor, exitOf } from './support/programs.mjs';
import { line, medianOf } from './support/report.mjs';
import { partsOf, withServer } from './support/run.mjs';

export const summary = 'what a fleet of many workers costs the server, and how fast atlas reads it';
export const defaultRuns = 3;
export const options = {
  only: 'PART,...   some of help, small, large',
  workers: 'N       of the large fleet; default 1000',
  sessions: 'N      of each worker; default 4',
  cores:
    'N         of the server for presence, by the choice of its TTL; default 0.5, less where others need the machine',
};

const DEFAULT_WORKERS = 1_000;
const DEFAULT_SESSIONS = 4;
const MAX_WORKERS = 10_000;
const MAX_SESSIONS = 100;
const SMALL_WORKERS = 3;
/** A help is so short that more runs than of the rest cost little and are needed. */
const HELP_RUNS_PER_RUN = 4;
const SMALL_RUNS_PER_RUN = 2;
/** The targets of the large fleet are meant for this many. */
const TARGET_WORKERS = 1_000;
const LARGE_TARGET_S = 3;
const SMALL_TARGET_MS = 700;
const MEMORY_TARGET_KB = 100;

/** How busy presence keeps the server, unless told otherwise. */
const DEFAULT_CORES = 0.5;
const MIN_CORES = 0.05;
const MAX_CORES = 64;
/** As atlasd: a heartbeat in every third of the TTL. */
const HEARTBEATS_PER_TTL = 3;
const DEFAULT_TTL_MS = 6_000;
const MAX_TTL_MS = 600_000;
/** Many heartbeats in a short time, to know the price of one. */
const CALIBRATION = { workers: 100, ttlMs: 6_000, windowMs: 12_000 };
const IDLE_WINDOW_MS = 10_000;
const MIN_WINDOW_MS = 20_000;
const SETTLE_MS = 3_000;
/** Registrations of a thousand workers with their owners take a minute or two; also on a machine that is busy. */
const START_LIMIT_MS_PER_WORKER = 500;
const START_LIMIT_BASE_MS = 60_000;
const COMMAND_LIMIT_MS = 120_000;
const MEMORY_POLL_MS = 10;
const KEPT_LINES = 10;
const DESCRIBE_SAMPLES = 1_000;
const DESCRIBE_AT_ONCE = [1, 16];
const TOP_FIRST_LIMIT_MS = 60_000;
const TOP_WINDOW_MS = 20_000;

const ATLAS = join(ROOT, 'bin/atlas.js');
const SIMULATED_FLEET = fileURLToPath(new URL('./support/fleet/simulated-fleet.mjs', import.meta.url));
const PARTS = { help, small, large };
/** Ends a command that runs while the measurement is interrupted. */
const interruption = new AbortController();
/** The lists. One that this build does not have is skipped with a word. */
const LISTS = [
  { words: ['workers', 'ls'], args: [] },
  { words: ['sessions', 'ls'], args: [] },
  { words: ['sessions', 'ls'], args: ['-o', 'json'] },
  { words: ['pools', 'ls'], args: [] },
];

export async function run({ runs, only, workers, sessions, cores }) {
  const parts = partsOf(only, PARTS);
  const size = {
    workers: wholeNumber('workers', workers, DEFAULT_WORKERS, MAX_WORKERS),
    sessions: wholeNumber('sessions', sessions, DEFAULT_SESSIONS, MAX_SESSIONS),
    busyCores: cores === undefined ? DEFAULT_CORES : Number(cores),
  };

  if (!(size.busyCores >= MIN_CORES && size.busyCores <= MAX_CORES)) {
    throw new ScriptError(`--cores takes a number from ${MIN_CORES} to ${MAX_CORES}.`);
  }

  return await withServer(
    async ({ client, server, programs }) => {
      const bench = { client, server, programs, runs, ...size, commands: await commandsOf(server) };
      const lines = [];
      for (const part of parts) lines.push(...(await PARTS[part](bench)));
      return lines;
    },
    { onInterrupt: () => interruption.abort() },
  );
}

function wholeNumber(option, text, otherwise, max) {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new ScriptError(`--${option} takes a whole number from 1 to ${max}.`);
}

// Commands -----------------------------------------------------------------------------------------------------------

/** The commands that this build has, as its help lists them: two spaces, the words, then their options and what they do. */
async function commandsOf(server) {
  const { stdout } = await runToEnd(server, [ATLAS, '--help']);
  const found = [...stdout.matchAll(/^ {2}([a-z]+(?: [a-z]+)*)(?= |$)/gm)].map((match) => match[1]);
  if (!found.includes('workers ls')) throw new ScriptError(`The help of atlas lists no \`workers ls\`:\n${stdout}`);
  return new Set(found);
}

function isThere(commands, words) {
  const name = words.join(' ');
  if (commands.has(name)) return true;
  say(`atlas ${name}: skipped, since \`atlas --help\` of this build does not list it.`);
  return false;
}

/**
 * One whole process, from its start to its end with all of its output read.
 *
 * @returns wall and processor time, the peak of its resident memory and what it wrote
 */
async function runToEnd(server, args) {
  const before = endedChildrenCpuMs();
  const startMs = performance.now();
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: environmentFor(server.address),
    signal: interruption.signal,
    timeout: COMMAND_LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  const text = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr']) {
    child[stream].setEncoding('utf8').on('data', (chunk) => {
      text[stream] += chunk;
    });
  }
  // A high-water mark, so that the last look before its end misses little.
  let rssMb = null;
  const look = setInterval(() => {
    rssMb = peakRssMb(child.pid) ?? rssMb;
  }, MEMORY_POLL_MS);
  let code;
  try {
    code = await exitOf(child);
  } finally {
    clearInterval(look);
  }
  const wallMs = performance.now() - startMs;
  if (code !== 0) throw new ScriptError(`node ${args.join(' ')} ended with ${code}:\n${text.stderr}`);
  const after = endedChildrenCpuMs();
  return { ...text, wallMs, rssMb, ownCpuMs: after === null || before === null ? null : after - before };
}

/** One command by its runs, with the server's time beyond `idleCores`, which is what presence takes meanwhile. */
async function runsOf({ server, idleCores }, runs, args) {
  const samples = [];
  for (let turn = 0; turn < runs; turn += 1) {
    const beforeMs = cpuMs(server.pid);
    const sample = await runToEnd(server, args);
    const usedMs = beforeMs === null || idleCores === null ? null : cpuMs(server.pid) - beforeMs;
    samples.push({ ...sample, serverCpuMs: usedMs === null ? null : Math.max(0, usedMs - idleCores * sample.wallMs) });
  }
  return samples;
}

function all(samples, key, scale = 1) {
  return samples.map((sample) => (sample[key] === null ? null : sample[key] * scale));
}

// The fleet ----------------------------------------------------------------------------------------------------------

let fleetCount = 0;

/** Resolves when the first stage is ready. */
async function startFleet({ programs, sessions }, { stages, ttlMs, fleet = newFleet() }) {
  const settings = { address: programs.address, fleet, stages, sessions, ttlMs };
  const program = programs.start(process.execPath, [SIMULATED_FLEET, JSON.stringify(settings)], {}, 'pipe');
  const untilStage = async (workers) => {
    const limitMs = START_LIMIT_BASE_MS + workers * START_LIMIT_MS_PER_WORKER;
    await program.until(
      (text) => (parse(text)?.event === 'ready' && parse(text).workers === workers ? true : undefined),
      `The fleet of ${workers} workers was not ready`,
      limitMs,
    );
  };
  await untilStage(stages[0]);
  let ended;
  program.exited.then(
    (code) => {
      ended = code;
    },
    (error) => {
      ended = error.message;
    },
  );
  return {
    fleet,
    pid: program.pid,
    /** Throws when it has ended: what is measured then is a fleet of lost workers. */
    check: () => {
      if (ended === undefined) return;
      const last = program.lines.slice(-KEPT_LINES).join('\n');
      throw new ScriptError(`The simulated fleet has ended with ${ended}:\n${last}`);
    },
    grow: async (workers) => {
      program.child.stdin.write('\n');
      await untilStage(workers);
    },
    missed: () => program.lines.filter((text) => parse(text)?.event === 'missed').length,
    stop: () => program.stop(),
  };
}

function newFleet() {
  fleetCount += 1;
  return `ben${String(fleetCount).padStart(2, '0')}`;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Cores of the server and heartbeats a second over a window. */
async function serverUse(server, windowMs) {
  const port = metricsPort(server.pid);
  const before = { cpu: cpuMs(server.pid), heartbeats: await heartbeatCount(port) };
  const startMs = performance.now();
  await sleep(windowMs);
  const elapsedMs = performance.now() - startMs;
  const after = { cpu: cpuMs(server.pid), heartbeats: await heartbeatCount(port) };
  return {
    cores: before.cpu === null ? null : (after.cpu - before.cpu) / elapsedMs,
    heartbeats: before.heartbeats === null ? null : ((after.heartbeats - before.heartbeats) * 1_000) / elapsedMs,
  };
}

function metricsPort(pid) {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return args[args.indexOf('--metrics-port') + 1];
  } catch {
    return undefined;
  }
}

/** The TTL at which presence of all workers takes `busyCores`; the default where even that takes less. */
async function chooseTtl(bench) {
  const workers = Math.min(CALIBRATION.workers, bench.workers);
  say(`The price of a heartbeat, with ${workers} workers`);
  const empty = await serverUse(bench.server, IDLE_WINDOW_MS);
  const fleet = await startFleet(bench, { stages: [workers], ttlMs: CALIBRATION.ttlMs });
  await sleep(SETTLE_MS);
  const busy = await serverUse(bench.server, CALIBRATION.windowMs);
  await fleet.stop();
  const rate = (workers * HEARTBEATS_PER_TTL * 1_000) / CALIBRATION.ttlMs;
  if (busy.cores === null) {
    say('The system does not tell what the server uses, so presence is sent by a TTL of a minute.');
    return { ttlMs: 60_000, emptyCores: null };
  }
  const msPerHeartbeat = ((busy.cores - empty.cores) * 1_000) / (busy.heartbeats ?? rate);
  const wanted =
    (bench.workers * HEARTBEATS_PER_TTL * msPerHeartbeat) / Math.max(MIN_CORES / 2, bench.busyCores - empty.cores);
  const ttlMs = Math.min(MAX_TTL_MS, Math.max(DEFAULT_TTL_MS, Math.ceil(wanted / 1_000) * 1_000));
  say(
    `A heartbeat takes ${msPerHeartbeat.toFixed(2)} ms of the server; presence TTL of ${bench.workers} workers: ${ttlMs / 1_000} s`,
  );
  return { ttlMs, emptyCores: empty.cores };
}

// Help ---------------------------------------------------------------------------------------------------------------

async function help({ server, runs }) {
  say('Help of the command line');
  const commands = [
    { name: 'node -e 0', args: ['-e', '0'], samples: [] },
    { name: 'atlas --help', args: [ATLAS, '--help'], samples: [] },
  ];
  // By turns, so that what else the machine does meets both alike; the first turn only fills the caches of the disk.
  for (let turn = -1; turn < runs * HELP_RUNS_PER_RUN; turn += 1) {
    for (const { args, samples } of commands) {
      const sample = await runToEnd(server, args);
      if (turn >= 0) samples.push(sample);
    }
  }
  const [bare, own] = commands.map(({ samples }) => all(samples, 'wallMs'));
  const max = 1.3 * medianOf(bare) + 60;
  return [
    line('help', 'node -e 0', 'ms', bare),
    line('help', 'atlas --help', 'ms', own, { max, text: `1.3 × node -e 0 + 60 ms: ≤ ${Math.round(max)} ms` }),
  ];
}

// A small fleet ------------------------------------------------------------------------------------------------------

async function small(bench) {
  const { server, runs } = bench;
  say(`A fleet of ${SMALL_WORKERS} workers`);
  const fleet = await startFleet(bench, { stages: [SMALL_WORKERS], ttlMs: DEFAULT_TTL_MS });
  await sleep(SETTLE_MS);
  const group = `${SMALL_WORKERS} workers`;
  const args = [ATLAS, 'sessions', 'ls', '--fleet', fleet.fleet];
  await runToEnd(server, args);
  const bare = [];
  const samples = [];
  for (let turn = 0; turn < runs * SMALL_RUNS_PER_RUN; turn += 1) {
    bare.push(await runToEnd(server, ['-e', '0']));
    samples.push(await runToEnd(server, args));
  }
  await fleet.stop();
  const ratios = samples.map(({ wallMs }, turn) => wallMs / bare[turn].wallMs);
  return [
    line(group, 'sessions ls', 'ms', all(samples, 'wallMs'), {
      max: SMALL_TARGET_MS,
      text: `≤ ${SMALL_TARGET_MS / 1_000} s`,
    }),
    line(group, 'sessions ls, to node -e 0', 'x', ratios),
    line(group, 'sessions ls, processor of atlas', 'ms', all(samples, 'ownCpuMs')),
    line(group, 'sessions ls, peak of resident memory', 'MB', all(samples, 'rssMb')),
  ];
}

// A large fleet ------------------------------------------------------------------------------------------------------

async function large(bench) {
  const { server, workers, sessions } = bench;
  const { ttlMs, emptyCores } = await chooseTtl(bench);
  const firstStage = Math.max(1, Math.floor(workers / 4));
  say(`A fleet of ${workers} workers with ${sessions} sessions each`);
  const startMs = performance.now();
  const startCpuMs = cpuMs(server.pid);
  const fleet = await startFleet(bench, { stages: [firstStage, workers], ttlMs });
  const startedMs = performance.now() - startMs;
  const startedCpuMs = startCpuMs === null ? null : cpuMs(server.pid) - startCpuMs;
  const early = await runsOf({ server, idleCores: null }, bench.runs, [
    ATLAS,
    'sessions',
    'ls',
    '--fleet',
    fleet.fleet,
  ]);
  await fleet.grow(workers);
  await sleep(SETTLE_MS);

  // Whole periods of presence, so that a burst counts as often as a pause.
  const periodMs = ttlMs / HEARTBEATS_PER_TTL;
  const windowMs = periodMs * Math.max(1, Math.ceil(MIN_WINDOW_MS / periodMs));
  say(`The server, with presence only, for ${Math.round(windowMs / 1_000)} s`);
  const simulatorMs = cpuMs(fleet.pid);
  const idle = await serverUse(server, windowMs);
  const simulatorCores = simulatorMs === null ? null : (cpuMs(fleet.pid) - simulatorMs) / windowMs;
  const perHeartbeat =
    idle.cores === null || idle.heartbeats === null ? null : ((idle.cores - emptyCores) * 1_000) / idle.heartbeats;
  const presence = `presence of ${workers} workers`;
  const lines = [
    line(presence, `registration of a worker and its ${sessions} owners, first ${firstStage}`, 'ms', [
      startedMs / firstStage,
    ]),
    line(presence, 'the same, processor of the server', 'ms', [
      startedCpuMs === null ? null : startedCpuMs / firstStage,
    ]),
    line(presence, `presence TTL, so that it takes about ${bench.busyCores} cores`, 's', [ttlMs / 1_000]),
    line(presence, 'heartbeats a second', '/s', [idle.heartbeats]),
    line(presence, 'server without workers', 'cores', [emptyCores]),
    line(presence, 'server, nobody lists', 'cores', [idle.cores]),
    line(presence, 'a heartbeat, processor of the server', 'ms', [perHeartbeat]),
    line(presence, 'the simulated fleet itself', 'cores', [simulatorCores]),
  ];

  fleet.check();
  const measured = { ...bench, fleet, idleCores: idle.cores };
  lines.push(...(await describes(measured)));
  lines.push(...(await lists(measured, early, firstStage)));
  lines.push(...(await top(measured)));
  lines.push(line(presence, 'presences that the server missed', '', [fleet.missed()]));
  await fleet.stop();
  return lines.sort((left, right) => groupOrder(lines, left) - groupOrder(lines, right));
}

function groupOrder(lines, { group }) {
  return lines.findIndex((each) => each.group === group);
}

/** What the one call that a list makes for each worker costs, with nothing of ours around it. */
async function describes({ client, server, fleet, workers, idleCores }) {
  const { workerWorkflowId } = await import('../dist/contract/names.js');
  const ids = Array.from({ length: workers }, (_, index) => workerWorkflowId(fleet.fleet, `worker-${index + 1}`));
  const lines = [];
  for (const atOnce of DESCRIBE_AT_ONCE) {
    const count = Math.min(DESCRIBE_SAMPLES, workers);
    say(`${count} describe calls, ${atOnce} at a time`);
    let next = 0;
    const lane = async () => {
      while (next < count) {
        const workflowId = ids[next];
        next += 1;
        await client.workflowService.describeWorkflowExecution({ namespace: 'default', execution: { workflowId } });
      }
    };
    const beforeMs = cpuMs(server.pid);
    const startMs = performance.now();
    await Promise.all(Array.from({ length: atOnce }, lane));
    const elapsedMs = performance.now() - startMs;
    const usedMs = beforeMs === null ? null : cpuMs(server.pid) - beforeMs - idleCores * elapsedMs;
    lines.push(
      line('one describe', `${atOnce} at a time: calls a second`, '/s', [(count * 1_000) / elapsedMs]),
      line('one describe', `${atOnce} at a time: processor of the server`, 'ms', [
        usedMs === null ? null : usedMs / count,
      ]),
    );
  }
  return lines;
}

async function lists(measured, early, firstStage) {
  const { runs, workers, fleet, commands } = measured;
  const lines = [];
  for (const { words, args } of LISTS) {
    if (!isThere(commands, words)) continue;
    const name = [...words, ...args].join(' ');
    say(`${name}, ${runs} runs`);
    const samples = await runsOf(measured, runs, [ATLAS, ...words, ...args, '--fleet', fleet.fleet]);
    fleet.check();
    checkOutput(words, args, samples, measured);
    const isTarget = name === 'sessions ls';
    const target =
      isTarget && workers >= TARGET_WORKERS ? { max: LARGE_TARGET_S, text: `≤ ${LARGE_TARGET_S} s` } : undefined;
    const group = `lists of ${workers} workers`;
    lines.push(
      line(group, name, 's', all(samples, 'wallMs', 1 / 1_000), target),
      line(group, `${name}: processor of atlas`, 's', all(samples, 'ownCpuMs', 1 / 1_000)),
      line(group, `${name}: processor of the server`, 's', all(samples, 'serverCpuMs', 1 / 1_000)),
      line(group, `${name}: peak of resident memory`, 'MB', all(samples, 'rssMb')),
    );
    if (!isTarget) continue;
    const memory = [...all(early, 'rssMb'), ...all(samples, 'rssMb')];
    if (workers === firstStage || memory.includes(null)) continue;
    const grown = (medianOf(all(samples, 'rssMb')) - medianOf(all(early, 'rssMb'))) * 1_000;
    lines.push(
      line(group, `${name}: memory a worker, beyond the first ${firstStage}`, 'KB', [grown / (workers - firstStage)], {
        max: MEMORY_TARGET_KB,
        text: `≤ ${MEMORY_TARGET_KB} KB`,
      }),
    );
  }
  return lines;
}

/** A list that is fast because it is not whole is no result. */
function checkOutput(words, args, samples, { workers, sessions, fleet }) {
  const missed = fleet.missed();
  const expected = { 'workers ls': workers, 'sessions ls': workers * sessions }[words.join(' ')];
  if (expected === undefined) return;
  for (const { stdout } of samples) {
    const found = args.includes('json') ? JSON.parse(stdout)[words[0]].length : stdout.trimEnd().split('\n').length - 1;
    if (found !== expected) {
      throw new ScriptError(
        `\`atlas ${[...words, ...args].join(' ')}\` listed ${found} of ${expected}; presences missed: ${missed}.`,
      );
    }
  }
}

/** The live view in a terminal of its own: until it shows a worker, and what its refreshes cost both sides. */
async function top({ server, fleet, commands, workers, idleCores }) {
  if (!isThere(commands, ['top'])) return [];
  say(`top, for ${TOP_WINDOW_MS / 1_000} s`);
  const { spawn: spawnInTerminal } = await import('@lydell/node-pty');
  const startMs = performance.now();
  const terminal = spawnInTerminal(process.execPath, [ATLAS, 'top', '--fleet', fleet.fleet], {
    cwd: ROOT,
    cols: 120,
    rows: 40,
    env: { ...environmentFor(server.address), TERM: 'xterm-256color', CI: '' },
  });
  let text = '';
  let ended;
  terminal.onData((chunk) => {
    text += chunk;
  });
  const exited = new Promise((resolve) => {
    terminal.onExit(({ exitCode }) => {
      ended = exitCode;
      resolve();
    });
  });
  const check = () => {
    if (ended !== undefined) throw new ScriptError(`\`atlas top\` ended with ${ended}:\n${text.slice(-1_000)}`);
  };
  try {
    while (!text.includes('worker-')) {
      check();
      if (performance.now() - startMs > TOP_FIRST_LIMIT_MS) {
        throw new ScriptError(`\`atlas top\` showed no worker within ${TOP_FIRST_LIMIT_MS / 1_000} s.`);
      }
      await sleep(MEMORY_POLL_MS);
    }
    const firstMs = performance.now() - startMs;
    const beforeMs = cpuMs(terminal.pid);
    const use = await serverUse(server, TOP_WINDOW_MS);
    check();
    const group = `top of ${workers} workers`;
    return [
      line(group, 'until it shows a worker', 's', [firstMs / 1_000]),
      line(group, 'server, added', 'cores', [use.cores === null ? null : use.cores - idleCores]),
      line(group, 'processor of atlas', 'cores', [
        beforeMs === null ? null : (cpuMs(terminal.pid) - beforeMs) / TOP_WINDOW_MS,
      ]),
      line(group, 'resident memory', 'MB', [memoryOf(terminal.pid).rssMb]),
    ];
  } finally {
    terminal.kill('SIGKILL');
    await exited;
  }
}
