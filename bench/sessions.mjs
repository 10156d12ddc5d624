/**
 * What a session costs and how fast the promises of Atlas are kept, on one real server: latency beside the recipe that
 * one writes by hand, throughput, history, the price of idle sessions, and the times after a kill, a termination, an end
 * of a body, a full fleet and a SIGTERM. With `--peer go` the same work on the Go SDK's sessions, by turns.
 *
 * Times between events are the server's, whose clock is that of this host. Latency is that of the client. What is
 * compared runs by turns in one run, so that what else the machine does meets all alike.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { say, ScriptError } from '../scripts/lib.mjs';
import {
  bodyEndedAtMs,
  closedAtMs,
  eventsOf,
  grantedAtMs,
  heartbeatCount,
  readyAtMs,
  timeOf,
} from './support/history.mjs';
import { buildGoPeer, goSequence } from './support/peer-go.mjs';
import { cpuMs, memoryOf } from './support/process-usage.mjs';
import { line, medianOf, percentile } from './support/report.mjs';
import { partsOf, withServer } from './support/run.mjs';

export const summary = 'cost of a session, and how fast its promises are kept under faults';
export const defaultRuns = 3;
export const options = {
  only: 'PART,...   some of latency, throughput, idle, kill, slots, timeout, stop',
  peer: 'go         runs the same work on the sessions of the Go SDK by turns',
  'peer-dir': 'DIR  its program; default ../shared/peers/go',
};

const LATENCY_SAMPLES = 20;
const WARM_UP = 5;
const CONCURRENCY = 100;
const THROUGHPUT_SAMPLES = 200;
const THROUGHPUT_CAP = 50;
const IDLE_SESSIONS = 200;
/** Whole periods of the renewals of both sides: 20 s and 6.67 s. */
const IDLE_WINDOW_MS = 40_000;
const BASE_WINDOW_MS = 20_000;
const SETTLE_MS = 3_000;
/** As in the peers' measurements: a minute of work with a heartbeat every 5 s; six owners, spread over its period. */
const KILL = { owners: 6, staggerMs: 1_117, holdMs: 60_000, heartbeatMs: 5_000, heartbeatTimeoutMs: 15_000 };
const KILL_SETTLE_MS = 8_000;
const SLOT_SAMPLES_PER_RUN = 4;
const ACQUIRE_TIMEOUT_MS = 2_000;
const STOP_HOLD_MS = 4_000;
const POLL_MS = 50;
const POLL_LIMIT_MS = 60_000;

const here = (file) => fileURLToPath(new URL(`./support/sessions/${file}`, import.meta.url));
const PARTS = { latency, throughput, idle, kill, slots, timeout, stop };

export async function run({ runs, only, peer, 'peer-dir': peerFolder }) {
  const parts = partsOf(only, PARTS);
  if (peer !== undefined && peer !== 'go') throw new ScriptError('--peer takes only "go".');

  return await withServer(async ({ client, server, programs }) => {
    const folder = programs.folder();
    const contestants = [atlas(programs, await bundled(folder))];
    const program = peer === undefined ? undefined : await buildGoPeer(peerFolder, folder);
    if (program !== undefined) contestants.push(goPeer(programs, program, server.address));
    const bench = { client, server, contestants, recipe: recipe(programs), runs };
    const lines = [];
    for (const part of parts) lines.push(...(await PARTS[part](bench)));
    return lines;
  });
}

/** Bundled once: every worker would spend seconds of processor time on it. */
async function bundled(folder) {
  const { bundleWorkflowCode } = await import('@temporalio/worker');
  const quiet = () => undefined;
  const logger = { log: quiet, trace: quiet, debug: quiet, info: quiet, warn: console.warn, error: console.error };
  const { code } = await bundleWorkflowCode({ workflowsPath: here('atlas-workflows.mjs'), logger });
  const target = join(folder, 'workflows.bundle.js');
  writeFileSync(target, code);
  return target;
}

// Contestants --------------------------------------------------------------------------------------------------------

/** A fleet or queue that nothing else uses, as long as the name of the default fleet: it is in most events. */
let queueCount = 0;
function newQueue() {
  queueCount += 1;
  return `ben${String(queueCount).padStart(2, '0')}`;
}

function atlas(programs, workflows) {
  const args = ['--activities', here('atlas-activities.mjs'), '--workflows', workflows];
  return {
    name: 'Atlas',
    noops: ['noops', []],
    idle: ['idle', []],
    sequence: ({ holdMs, heartbeatTimeoutMs }) => ['sequence', [{ holdMs, heartbeatTimeout: heartbeatTimeoutMs }]],
    isHolding: (description) => description.raw.pendingActivities?.some(hasType('hold')) === true,
    /** Beside its lease an idle session has nothing pending; the owner's third workflow task has ended when it waits. */
    isIdle: (description) => description.historyLength >= 8,
    redoneOn: (result) => result.workers,
    startWorker: (queue, name, cap) => programs.startAtlasd({ fleet: queue, name, cap, args }),
    startOwners: () => undefined,
  };
}

function goPeer(programs, program, address) {
  const startWorker = async (queue, name, cap, role = 'both') => {
    const args = ['worker', '-tq', queue, '-role', role, '-cap', String(cap)];
    const process = programs.start(program, args, { TEMPORAL_ADDR: address, PEER_NAME: name });
    await untilReady(process);
    return {
      name,
      pids: { worker: process.pid },
      kill: () => process.stop('SIGKILL'),
      stop: () => process.stop(),
    };
  };
  return {
    name: 'Go SDK',
    noops: ['Basic', []],
    idle: ['Seq', [goSequence({ holdMs: 600_000 })]],
    sequence: (options) => ['Seq', [goSequence({ ...options, redo: true })]],
    isHolding: (description) => description.raw.pendingActivities?.some(hasType('Hold')) === true,
    isIdle: (description) => description.raw.pendingActivities?.some(hasType('Hold')) === true,
    redoneOn: (result) => result.Hosts.slice(-3),
    startWorker,
    /** Its workflows run apart from the worker that is killed. */
    startOwners: (queue) => startWorker(queue, 'owners', 1, 'wf'),
  };
}

function recipe(programs) {
  return {
    name: 'recipe by hand',
    noops: ['noops', []],
    async startWorker(queue) {
      const process = programs.start(globalThis.process.execPath, [here('recipe-worker.mjs'), queue]);
      await untilReady(process);
      return { stop: () => process.stop() };
    },
  };
}

function untilReady(program) {
  return program.until((text) => (text === 'READY' ? true : undefined), 'The worker did not get ready');
}

function hasType(type) {
  return (pending) => pending.activityType?.name === type;
}

let workflowCount = 0;
function start(client, queue, [type, args]) {
  workflowCount += 1;
  const workflowId = `bench-${process.pid}-${workflowCount}`;
  return client.workflow.start(type, { taskQueue: queue, workflowId, args });
}

async function until(what, condition) {
  const deadlineMs = performance.now() + POLL_LIMIT_MS;
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new ScriptError(`Not within ${POLL_LIMIT_MS / 1_000} s: ${what}.`);
    await sleep(POLL_MS);
  }
}

/** Atlas's line first, then the peer's, then their ratio by turns of the same run. */
function compared(group, name, unit, contestants, samplesOf, target) {
  const lines = contestants.map((contestant, index) =>
    line(group, `${contestant.name}: ${name}`, unit, samplesOf(contestant), index === 0 ? target : undefined),
  );
  if (lines.length === 2 && lines[0].median !== null && lines[1].median) {
    const [own, other] = contestants.map(samplesOf);
    lines.push(line(group, `ratio to Go: ${name}`, 'x', [medianOf(own) / medianOf(other)]));
  }
  return lines;
}

/** A map from contestants to lists. */
function collected(contestants) {
  return new Map(contestants.map((contestant) => [contestant, []]));
}

// Latency and history ------------------------------------------------------------------------------------------------

async function latency({ client, contestants, recipe: byHand, runs }) {
  const all = [contestants[0], byHand, ...contestants.slice(1)];
  const queues = new Map(all.map((contestant) => [contestant, newQueue()]));
  const workers = [];
  for (const contestant of all)
    workers.push(await contestant.startWorker(queues.get(contestant), 'w1', THROUGHPUT_CAP));
  const totals = collected(all);
  const readies = collected(all);
  const sizes = new Map();
  for (let turn = -1; turn < runs; turn += 1) {
    if (turn >= 0) say(`Latency, run ${turn + 1} of ${runs}`);
    const turnTotals = collected(all);
    const turnReadies = collected(all);
    for (let sample = 0; sample < (turn < 0 ? WARM_UP : LATENCY_SAMPLES); sample += 1) {
      for (const contestant of all) {
        const startedAtMs = Date.now();
        const startMs = performance.now();
        const handle = await start(client, queues.get(contestant), contestant.noops);
        await handle.result();
        turnTotals.get(contestant).push(performance.now() - startMs);
        turnReadies.get(contestant).push(readyAtMs(await eventsOf(handle)) - startedAtMs);
        sizes.set(contestant, await handle.describe());
      }
    }
    if (turn < 0) continue;
    for (const contestant of all) {
      totals.get(contestant).push(turnTotals.get(contestant));
      readies.get(contestant).push(turnReadies.get(contestant));
    }
  }
  await Promise.all(workers.map((worker) => worker.stop()));

  const group = `latency, 1 at a time, ${LATENCY_SAMPLES} a run`;
  const of = (samples, contestant, share) => samples.get(contestant).map((turn) => percentile(turn, share));
  const handP50 = medianOf(of(totals, byHand, 0.5));
  const target = { max: handP50, text: `≤ by hand: ${Math.round(handP50)} ms` };
  const lines = [
    ...all.map((each, index) =>
      line(group, `${each.name}: total p50`, 'ms', of(totals, each, 0.5), index === 0 ? target : undefined),
    ),
    ...all.map((each) => line(group, `${each.name}: total p95`, 'ms', of(totals, each, 0.95))),
    ...all.map((each) => line(group, `${each.name}: ready p50`, 'ms', of(readies, each, 0.5))),
  ];
  for (const other of all.slice(1)) {
    const own = of(totals, all[0], 0.5);
    const ratios = of(totals, other, 0.5).map((value, turn) => own[turn] / value);
    lines.push(line(group, `Atlas to ${other.name}: total p50`, 'x', ratios));
  }
  all.forEach((each, index) => {
    const { historyLength, historySize } = sizes.get(each);
    const [events, size] =
      index === 0
        ? [
            { max: 34, text: '≤ 34' },
            { max: 4, text: '≤ 4.0 KB' },
          ]
        : [];
    lines.push(line('history per session', `${each.name}: events`, 'events', [historyLength], events));
    lines.push(line('history per session', `${each.name}: size`, 'KB', [historySize / 1_000], size));
  });
  return lines;
}

// Throughput ---------------------------------------------------------------------------------------------------------

async function throughput({ client, server, contestants, runs }) {
  const lines = [];
  for (const workerCount of [1, 2]) {
    const rates = collected(contestants);
    const costs = collected(contestants);
    const fleets = new Map();
    for (const contestant of contestants) {
      const queue = newQueue();
      const workers = [];
      for (let index = 1; index <= workerCount; index += 1) {
        workers.push(await contestant.startWorker(queue, `w${index}`, THROUGHPUT_CAP));
      }
      fleets.set(contestant, { queue, workers });
      await closedLoop(client, queue, contestant.noops, CONCURRENCY);
    }
    for (let turn = 0; turn < runs; turn += 1) {
      say(`Sessions a second with ${workerCount} workers, run ${turn + 1} of ${runs}`);
      for (const contestant of contestants) {
        const beforeMs = cpuMs(server.pid);
        const elapsedMs = await closedLoop(client, fleets.get(contestant).queue, contestant.noops, THROUGHPUT_SAMPLES);
        const usedMs = beforeMs === null ? null : (cpuMs(server.pid) - beforeMs) / THROUGHPUT_SAMPLES;
        rates.get(contestant).push((THROUGHPUT_SAMPLES * 1_000) / elapsedMs);
        costs.get(contestant).push(usedMs);
      }
    }
    for (const { workers } of fleets.values()) await Promise.all(workers.map((worker) => worker.stop()));
    const group = `closed loop of ${CONCURRENCY}, cap ${THROUGHPUT_CAP}`;
    const name = `${workerCount} worker${workerCount === 1 ? '' : 's'}`;
    const other = contestants[1] === undefined ? undefined : medianOf(rates.get(contestants[1]));
    const target = other === undefined ? undefined : { min: other, text: `≥ Go: ${other.toFixed(1)} /s` };
    lines.push(
      ...compared(group, `sessions a second, ${name}`, '/s', contestants, (each) => rates.get(each), target),
      ...contestants.map((each) =>
        line(group, `${each.name}: processor of the server a session, ${name}`, 'ms', costs.get(each)),
      ),
    );
  }
  return lines;
}

async function closedLoop(client, queue, work, count) {
  let left = count;
  const startMs = performance.now();
  const lane = async () => {
    while (left > 0) {
      left -= 1;
      await (await start(client, queue, work)).result();
    }
  };
  await Promise.all(Array.from({ length: Math.min(CONCURRENCY, count) }, lane));
  return performance.now() - startMs;
}

// Idle sessions ------------------------------------------------------------------------------------------------------

async function idle({ client, server, contestants }) {
  const usage = new Map();
  for (const contestant of contestants) {
    say(`${IDLE_SESSIONS} idle sessions, ${contestant.name}`);
    const queue = newQueue();
    const worker = await contestant.startWorker(queue, 'w1', IDLE_SESSIONS);
    await sleep(SETTLE_MS);
    const empty = await observed(server, worker, BASE_WINDOW_MS);
    const handles = [];
    for (let index = 0; index < IDLE_SESSIONS; index += 1) handles.push(await start(client, queue, contestant.idle));
    for (const handle of handles) {
      await until('all sessions are held', async () => contestant.isIdle(await handle.describe()));
    }
    await sleep(SETTLE_MS);
    usage.set(contestant, { empty, full: await observed(server, worker, IDLE_WINDOW_MS) });
    for (const handle of handles) await handle.terminate();
    await worker.stop();
  }
  const group = `${IDLE_SESSIONS} idle sessions`;
  const added = (contestant, key) => {
    const { empty, full } = usage.get(contestant);
    return full[key] === null ? null : full[key] - empty[key];
  };
  const [own, other] = contestants;
  const peerCores = other === undefined ? null : added(other, 'serverCores');
  const target = peerCores === null ? undefined : { max: peerCores / 2, text: `≤ half of Go's` };
  return [
    ...compared(
      group,
      'processor of the server, added',
      'cores',
      contestants,
      (each) => [added(each, 'serverCores')],
      target,
    ),
    ...contestants.map((each) => line(group, `${each.name}: renewals a second`, '/s', [added(each, 'heartbeats')])),
    ...contestants.map((each) =>
      line(group, `${each.name}: processor of the worker, added`, 'cores', [added(each, 'workerCores')]),
    ),
    ...['supervisor', 'executor'].flatMap((process) => [
      line(group, `resident, ${process}, 0 sessions`, 'MB', [usage.get(own).empty.memory[process]]),
      line(group, `resident, ${process}, ${IDLE_SESSIONS} sessions`, 'MB', [usage.get(own).full.memory[process]]),
    ]),
    ...(other === undefined
      ? []
      : [
          line(group, 'resident, Go worker, 0 sessions', 'MB', [usage.get(other).empty.memory.worker]),
          line(group, `resident, Go worker, ${IDLE_SESSIONS} sessions`, 'MB', [usage.get(other).full.memory.worker]),
        ]),
  ];
}

/** Processor time as cores, heartbeats a second, and memory at the end of the window. */
async function observed(server, worker, windowMs) {
  const pids = Object.values(worker.pids);
  const workerMs = () => pids.reduce((sum, pid) => sum + cpuMs(pid), 0);
  const port = metricsPort(server.pid);
  const before = { server: cpuMs(server.pid), worker: workerMs(), heartbeats: await heartbeatCount(port) };
  const startMs = performance.now();
  await sleep(windowMs);
  const elapsedMs = performance.now() - startMs;
  const after = { server: cpuMs(server.pid), worker: workerMs(), heartbeats: await heartbeatCount(port) };
  return {
    serverCores: before.server === null ? null : (after.server - before.server) / elapsedMs,
    workerCores: before.server === null ? null : (after.worker - before.worker) / elapsedMs,
    heartbeats: before.heartbeats === null ? null : ((after.heartbeats - before.heartbeats) * 1_000) / elapsedMs,
    memory: Object.fromEntries(Object.entries(worker.pids).map(([name, pid]) => [name, memoryOf(pid).rssMb])),
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

// kill -9 ------------------------------------------------------------------------------------------------------------

async function kill({ client, contestants, runs }) {
  const redone = collected(contestants);
  for (let turn = 0; turn < runs; turn += 1) {
    for (const contestant of contestants) {
      say(`kill -9 of a worker with ${KILL.owners} sessions, ${contestant.name}, run ${turn + 1} of ${runs}`);
      redone.get(contestant).push(...(await killOnce(client, contestant)));
    }
  }
  const group = 'kill -9 to the whole sequence redone elsewhere';
  const seconds = (each) => redone.get(each);
  return [
    ...compared(group, 'p50', 's', contestants, seconds, { max: 12, text: 'p50 ≤ 12 s' }),
    ...contestants.map((each, index) =>
      line(
        group,
        `${each.name}: max`,
        's',
        [Math.max(...seconds(each))],
        index === 0 ? { max: 15, text: '≤ 15 s' } : undefined,
      ),
    ),
  ];
}

async function killOnce(client, contestant) {
  const queue = newQueue();
  const owners = await contestant.startOwners(queue);
  const first = await contestant.startWorker(queue, 'w1', THROUGHPUT_CAP);
  const handles = [];
  for (let index = 0; index < KILL.owners; index += 1) {
    handles.push(await start(client, queue, contestant.sequence(KILL)));
    await sleep(KILL.staggerMs);
  }
  for (const handle of handles) {
    await until('the second step runs', async () => contestant.isHolding(await handle.describe()));
  }
  const second = await contestant.startWorker(queue, 'w2', THROUGHPUT_CAP);
  await sleep(KILL_SETTLE_MS);
  const killedAtMs = Date.now();
  await first.kill();
  const seconds = [];
  for (const handle of handles) {
    const places = contestant.redoneOn(await handle.result());
    if (places.some((name) => name !== 'w2')) throw new ScriptError(`The sequence was not redone on w2: ${places}.`);
    seconds.push((closedAtMs(await eventsOf(handle)) - killedAtMs) / 1_000);
  }
  await second.stop();
  await owners?.stop();
  return seconds;
}

// Slots --------------------------------------------------------------------------------------------------------------

/** When the next owner has the only slot, after its holder was terminated or its body has ended. */
async function slots({ client, contestants, runs }) {
  const terminated = collected(contestants);
  const ended = collected(contestants);
  for (const contestant of contestants) {
    const queue = newQueue();
    const worker = await contestant.startWorker(queue, 'w1', 1);
    const count = SLOT_SAMPLES_PER_RUN * runs;
    for (let sample = 0; sample < count; sample += 1) {
      say(`Slot free after a termination and after the end of a body, ${contestant.name}, ${sample + 1} of ${count}`);
      const { holder, next } = await holderAndNext(client, queue, contestant);
      await sleep((KILL.heartbeatMs * sample) / count);
      await holder.terminate();
      await next.result();
      terminated.get(contestant).push((grantedAtMs(await eventsOf(next)) - closedAtMs(await eventsOf(holder))) / 1_000);
      ended.get(contestant).push(await afterEnd(client, queue, contestant));
    }
    await worker.stop();
  }
  return [
    ...compared('slot free, next owner waits', 'after terminate', 's', contestants, (each) => terminated.get(each), {
      max: 4,
      of: 'max',
      text: 'max ≤ 4 s',
    }),
    ...compared('slot free, next owner waits', 'after the body ends', 'ms', contestants, (each) => ended.get(each), {
      max: 200,
      text: '≤ 200 ms',
    }),
  ];
}

async function holderAndNext(client, queue, contestant) {
  const holder = await start(client, queue, contestant.sequence(KILL));
  await until('the slot is taken', async () => contestant.isHolding(await holder.describe()));
  const next = await start(client, queue, contestant.noops);
  await untilWaiting(next);
  return { holder, next };
}

/** Its request for a session has been scheduled. */
async function untilWaiting(handle) {
  await until('the next owner waits', async () => ((await handle.describe()).raw.pendingActivities ?? []).length > 0);
}

async function afterEnd(client, queue, contestant) {
  const holder = await start(client, queue, contestant.sequence({ ...KILL, holdMs: 1_000 }));
  await until('the slot is taken', async () => contestant.isHolding(await holder.describe()));
  const next = await start(client, queue, contestant.noops);
  await untilWaiting(next);
  await Promise.all([holder.result(), next.result()]);
  return grantedAtMs(await eventsOf(next)) - bodyEndedAtMs(await eventsOf(holder));
}

// Acquire timeout ----------------------------------------------------------------------------------------------------

async function timeout({ client, contestants, runs }) {
  const [contestant] = contestants;
  const queue = newQueue();
  const worker = await contestant.startWorker(queue, 'w1', 1);
  const holder = await start(client, queue, contestant.sequence(KILL));
  await until('the slot is taken', async () => contestant.isHolding(await holder.describe()));
  const samples = [];
  for (let sample = 0; sample < runs; sample += 1) {
    say(`Acquire timeout on a full fleet, run ${sample + 1} of ${runs}`);
    const handle = await start(client, queue, ['noops', [{ acquireTimeout: ACQUIRE_TIMEOUT_MS }]]);
    const error = await handle.result().then(
      () => undefined,
      (reason) => reason,
    );
    if (error?.cause?.type !== 'AcquireTimeout') {
      throw new ScriptError(`A full fleet gave no AcquireTimeout but ${error?.cause ?? error}.`);
    }
    const events = await eventsOf(handle);
    const asked = events.find((event) => event.activityTaskScheduledEventAttributes != null);
    samples.push(Math.abs(closedAtMs(events) - timeOf(asked) - ACQUIRE_TIMEOUT_MS));
  }
  await holder.terminate();
  await worker.stop();
  const target = { max: 1_000, of: 'max', text: 'max ≤ 1 s' };
  return [line('acquire timeout, full fleet', `deviation from ${ACQUIRE_TIMEOUT_MS / 1_000} s`, 'ms', samples, target)];
}

// SIGTERM ------------------------------------------------------------------------------------------------------------

async function stop({ client, contestants, runs }) {
  const redone = collected(contestants);
  for (let turn = 0; turn < runs; turn += 1) {
    for (const contestant of contestants) {
      say(`SIGTERM with a session open, ${contestant.name}, run ${turn + 1} of ${runs}`);
      const queue = newQueue();
      const first = await contestant.startWorker(queue, 'w1', 1);
      const handle = await start(client, queue, contestant.sequence({ ...KILL, holdMs: STOP_HOLD_MS }));
      await until('the second step runs', async () => contestant.isHolding(await handle.describe()));
      const second = await contestant.startWorker(queue, 'w2', 1);
      await first.stop();
      const places = contestant.redoneOn(await handle.result());
      redone.get(contestant).push(places.includes('w2') ? 1 : 0);
      await second.stop();
    }
  }
  return contestants.map((each, index) =>
    line(
      'SIGTERM with a session open',
      `${each.name}: sessions redone`,
      '',
      redone.get(each),
      index === 0 ? { max: 0, of: 'max', text: 'none' } : undefined,
    ),
  );
}
