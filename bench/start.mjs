/**
 * How long things take to start and what they hold when idle, as whole processes: help of the command line, atlasd with
 * the prebuilt bundles until it takes sessions, and the demo. Everything on a real server, with one atlasd at a time.
 *
 * Processor time stands beside the wall time, since on a busy machine only the first can be compared between runs.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT, say, ScriptError } from '../scripts/lib.mjs';
import { cpuMs, endedChildrenCpuMs, memoryOf } from './support/process-usage.mjs';
import { environmentFor, exitOf, removeFolder, temporaryFolder } from './support/programs.mjs';
import { line } from './support/report.mjs';
import { withServer } from './support/run.mjs';

export const summary = 'start time and idle memory of atlas and atlasd, and the steps of the demo';
export const defaultRuns = 5;

/** A help is so short that more runs than of the rest cost little and are needed. */
const HELP_RUNS_PER_RUN = 4;
const IDLE_MS = 5_000;
const READY_TARGET_MS = 2_500;
const MEMORY_TARGET_MB = 200;
const READY_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 20_000;
const DEMO_TIMEOUT_MS = 180_000;
const POLLER_INTERVAL_MS = 25;
/** Of a Temporal task queue in its API. */
const TASK_QUEUE_TYPE_ACTIVITY = 2;

const ATLAS = join(ROOT, 'bin/atlas.js');
const ATLASD = join(ROOT, 'bin/atlasd.js');
const CAPABILITIES = [[], ['gpu', 'ocr', 'ssd']];

export async function run({ runs }) {
  const lines = [];
  say('Help of the command line');
  lines.push(...(await measureHelp(runs * HELP_RUNS_PER_RUN)));
  lines.push(...(await measureWorkers(runs)));
  lines.push(...(await measureDemo(Math.min(runs, 3))));
  return lines;
}

// Help ---------------------------------------------------------------------------------------------------------------

async function measureHelp(runs) {
  const commands = [
    { name: 'node -e 0', args: ['-e', '0'] },
    { name: 'atlas --help', args: [ATLAS, '--help'] },
    { name: 'atlas workers ls --help', args: [ATLAS, 'workers', 'ls', '--help'] },
  ].map((command) => ({ ...command, wall: [], cpu: [] }));
  // By turns, so that what else the machine does meets all alike; the first turn only fills the caches of the disk.
  for (let turn = -1; turn < runs; turn += 1) {
    for (const command of commands) {
      const { wallMs, cpuMs: usedMs } = await runToEnd(command.args);
      if (turn < 0) continue;
      command.wall.push(wallMs);
      command.cpu.push(usedMs);
    }
  }
  const bare = line('', '', 'ms', commands[0].wall).median;
  const target = { max: 1.3 * bare + 60, text: `1.3 × node -e 0 + 60 ms: ≤ ${Math.round(1.3 * bare + 60)} ms` };
  return commands.flatMap(({ name, wall, cpu }, index) => [
    line('help', name, 'ms', wall, index === 0 ? undefined : target),
    // Ticks of 10 ms: only the mean of many says anything.
    line('help', `${name}, processor, mean`, 'ms', [mean(cpu)]),
  ]);
}

function mean(samples) {
  return samples.includes(null) ? null : samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
}

async function runToEnd(args) {
  const before = endedChildrenCpuMs();
  const startMs = performance.now();
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.resume();
  const code = await exitOf(child);
  const wallMs = performance.now() - startMs;
  if (code !== 0) throw new ScriptError(`node ${args.join(' ')} ended with code ${code}.`);
  const after = endedChildrenCpuMs();
  return { wallMs, cpuMs: after === null || before === null ? null : after - before };
}

// atlasd -------------------------------------------------------------------------------------------------------------

async function measureWorkers(runs) {
  return await withServer(async ({ temporal, server }) => {
    const lines = [];
    for (const capabilities of CAPABILITIES) {
      const samples = [];
      for (let turn = 0; turn < runs; turn += 1) {
        say(`atlasd with ${capabilities.length} capabilities, run ${turn + 1} of ${runs}`);
        samples.push(await measureWorker(temporal, server.address, capabilities));
      }
      lines.push(...workerLines(capabilities, samples));
    }
    return lines;
  });
}

function workerLines(capabilities, samples) {
  const of = (key) => samples.map((sample) => sample[key]);
  const start = `atlasd, ${capabilities.length} capabilities`;
  const memory = `idle memory, ${capabilities.length} capabilities`;
  const limit = { max: MEMORY_TARGET_MB, text: `≤ ${MEMORY_TARGET_MB} MB` };
  const ready = { max: READY_TARGET_MS, text: `≤ ${READY_TARGET_MS / 1_000} s` };
  return [
    line(start, 'to worker-ready', 'ms', of('readyMs'), ready),
    line(start, 'to the first poll, as the server sees it', 'ms', of('polledMs'), ready),
    line(start, 'processor until ready, supervisor', 'ms', of('supervisorCpuMs')),
    line(start, 'processor until ready, executor', 'ms', of('executorCpuMs')),
    line(memory, 'supervisor, resident', 'MB', of('supervisorRssMb'), limit),
    line(memory, 'supervisor, proportional', 'MB', of('supervisorPssMb')),
    line(memory, 'executor, resident', 'MB', of('executorRssMb'), limit),
    line(memory, 'executor, proportional', 'MB', of('executorPssMb')),
  ];
}

let fleetCount = 0;

async function measureWorker(temporal, address, capabilities) {
  const { acquireQueue, pooledQueue } = await import('../dist/contract/names.js');
  const directory = temporaryFolder();
  fleetCount += 1;
  const fleet = `bench${process.pid}x${fleetCount}`;
  // The last queues that are polled: sessions of all capabilities, which wait for the executor, and its own.
  const queues = [acquireQueue(fleet, []), acquireQueue(fleet, capabilities), pooledQueue(fleet, capabilities)];
  const startMs = performance.now();
  const child = spawn(
    process.execPath,
    [
      ATLASD,
      ...['--fleet', fleet, '--name', 'w', '--state-dir', directory, '--log-format', 'json', '--ephemeral'],
      ...(capabilities.length === 0 ? [] : ['--capabilities', capabilities.join(',')]),
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env: environmentFor(address) },
  );
  const exited = exitOf(child);
  const log = readEvents(child);
  try {
    const polled = untilPolled(temporal, queues, log).then(() => performance.now() - startMs);
    polled.catch(() => undefined);
    await bounded(log.event('worker-ready'), exited, 'atlasd did not get ready', log);
    const readyMs = performance.now() - startMs;
    const executor = log.find('executor-start').pid;
    const usedMs = { supervisorCpuMs: cpuMs(child.pid), executorCpuMs: cpuMs(executor) };
    const polledMs = await bounded(polled, exited, 'the server saw no poll', log);
    await sleep(IDLE_MS);
    const supervisor = memoryOf(child.pid);
    const child2 = memoryOf(executor);
    return {
      readyMs,
      polledMs,
      ...usedMs,
      supervisorRssMb: supervisor.rssMb,
      supervisorPssMb: supervisor.pssMb,
      executorRssMb: child2.rssMb,
      executorPssMb: child2.pssMb,
    };
  } finally {
    log.ended = true;
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await exited;
    clearTimeout(timer);
    removeFolder(directory);
  }
}

function readEvents(child) {
  const events = [];
  const waiting = [];
  const text = [];
  createInterface({ input: child.stderr }).on('line', (each) => {
    text.push(each);
    let event;
    try {
      event = JSON.parse(each);
    } catch {
      return;
    }
    events.push(event);
    for (const check of waiting) check(event);
  });
  return {
    ended: false,
    text,
    find: (name) => events.find((event) => event.event === name),
    event: (name) =>
      new Promise((resolve) => {
        waiting.push((event) => {
          if (event.event === name) resolve(event);
        });
      }),
  };
}

async function untilPolled(temporal, queues, log) {
  for (const name of queues) {
    while (!log.ended) {
      const { pollers } = await temporal.client.workflowService.describeTaskQueue({
        namespace: 'default',
        taskQueue: { name },
        taskQueueType: TASK_QUEUE_TYPE_ACTIVITY,
      });
      if (pollers.length > 0) break;
      await sleep(POLLER_INTERVAL_MS);
    }
  }
}

async function bounded(promise, exited, what, log) {
  const abort = new AbortController();
  const timeout = sleep(READY_TIMEOUT_MS, undefined, { signal: abort.signal }).then(
    () => `within ${READY_TIMEOUT_MS / 1_000} s`,
    () => new Promise(() => undefined),
  );
  const ended = exited.then((code) => `before it ended with code ${code}`);
  try {
    const outcome = await Promise.race([
      promise.then((value) => ({ value })),
      Promise.race([timeout, ended]).then((reason) => ({ reason })),
    ]);
    if (outcome.reason === undefined) return outcome.value;
    throw new ScriptError(`${what} ${outcome.reason}:\n${log.text.slice(-20).join('\n')}`);
  } finally {
    abort.abort();
  }
}

// The demo -----------------------------------------------------------------------------------------------------------

/** By when each line of the demo appears, what it says, and the name of the step that it ends. */
const DEMO_LINES = [
  { starts: /^starting server /, step: 'find the server program' },
  { starts: /^starting a worker /, step: 'start the server' },
  { starts: /^Run /, step: 'start the worker' },
  { starts: /Find a worker: (?!waiting)/, step: 'job: find a worker' },
  { starts: /Download: done/, step: 'job: download' },
  { starts: /Read pages: done/, step: 'job: read pages' },
  { starts: /Summarise: done/, step: 'job: summarise' },
  { starts: /Deliver: done/, step: 'job: deliver' },
];

async function measureDemo(runs) {
  const samples = new Map();
  const add = (step, ms) => samples.set(step, [...(samples.get(step) ?? []), ms]);
  for (let turn = 0; turn < runs; turn += 1) {
    say(`Demo, run ${turn + 1} of ${runs}`);
    for (const [step, ms] of await demoOnce()) add(step, ms);
  }
  return [...samples].map(([step, times]) => line('demo', step, 'ms', times));
}

async function demoOnce() {
  const directory = temporaryFolder();
  try {
    const startMs = performance.now();
    const child = spawn(
      process.execPath,
      [ATLAS, 'run', 'process-document', 'examples/sample.pdf', '--dev', '--output', join(directory, 'out')],
      { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] },
    );
    const timer = setTimeout(() => child.kill('SIGTERM'), DEMO_TIMEOUT_MS);
    child.stdout.resume();
    const steps = [];
    const text = [];
    let next = 0;
    let lastMs = startMs;
    createInterface({ input: child.stderr }).on('line', (each) => {
      text.push(each);
      const found = DEMO_LINES.findIndex(({ starts }, index) => index >= next && starts.test(each));
      if (found === -1) return;
      const nowMs = performance.now();
      steps.push([DEMO_LINES[found].step, nowMs - lastMs]);
      lastMs = nowMs;
      next = found + 1;
    });
    const code = await exitOf(child);
    clearTimeout(timer);
    const endMs = performance.now();
    if (code !== 0) throw new ScriptError(`The demo ended with code ${code}:\n${text.slice(-20).join('\n')}`);
    steps.push(['show the result and stop', endMs - lastMs], ['total', endMs - startMs]);
    return steps;
  } finally {
    removeFolder(directory);
  }
}
