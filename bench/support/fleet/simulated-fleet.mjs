/**
 * A whole fleet in one process: `node simulated-fleet.mjs SETTINGS`, where SETTINGS is the JSON of `address`, `fleet`,
 * `stages` (how many workers, such as [250, 1000]), `sessions` (of each worker) and `ttlMs`. Writes one JSON event a line:
 * `progress`, `ready` with the number of workers at the end of a stage, and `missed` for each presence that the server
 * has timed out. Waits for a line on stdin before the next stage; ends at SIGTERM, and when stdin is closed, as it is
 * when the program that measures is gone in whatever way. A failure ends it with code 1: half a fleet is none.
 *
 * What the server sees is real. The class that registers and sends presence is atlasd's own (`Presence`): an
 * update-with-start of `atlasWorker`, which runs from the prebuilt bundle, and then one heartbeat every third of the TTL
 * with a full snapshot, on the token of the presence activity. The owners in the snapshots are runs that the server knows.
 *
 * What is simulated: a worker polls its control queue by single calls, and only until it has its presence activity; it
 * has no acquire queue, no executor and no polls that stay open; its sessions were never leased and send no renewals;
 * one SDK Worker, set up like atlasd's, runs the workflows of all workers. The owners wait on a queue that nobody polls,
 * so that they run for as long as the fleet does and cost nothing; every 100th was terminated, and is an owner that has
 * closed while its session is held.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { hostname, loadavg } from 'node:os';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker, Runtime, DefaultLogger } from '@temporalio/worker';
import { PRESENCE_ACTIVITY, UNTOUCHED } from '../../../dist/contract/fleet.js';
import {
  capabilitySet,
  fleetControlQueue,
  sessionActivityId,
  sessionKey,
  workerControlQueue,
  workerQueue,
} from '../../../dist/contract/names.js';
import { VERSION } from '../../../dist/contract/version.js';
import { Presence } from '../../../dist/daemon/presence.js';
import { connectClient, connectNative, plainProfile } from '../../../dist/temporal/connect.js';

const FLEET_BUNDLE = fileURLToPath(new URL('../../../dist/bundles/worker-workflow.js', import.meta.url));
/** Registrations and starts of owners at once: more only queue up in the server. */
const LANES = 6;
const TRIES = 5;
const RETRY_MS = 1_000;
const MAX_CAUSES = 16;
const TASK_QUEUE_NORMAL = 1;
/** The server answers a poll that finds nothing before a minute has passed. */
const POLL_DEADLINE_MS = 70_000;
const PICK_UP_LIMIT_MS = 120_000;
const PROGRESS_EVERY = 100;
const TERMINATED_EVERY = 100;
const HOUR_MS = 3_600_000;
/** What the workers of a fleet have, by turns. */
const CAPABILITIES = [[], ['ocr'], ['gpu', 'ocr']];
const OWNER_WORKFLOW = 'processDocument';

const settings = JSON.parse(process.argv[2]);
const { address, fleet, stages, sessions: sessionCount, ttlMs } = settings;
const profile = plainProfile(address);
let workerCount = 0;
let ownerCount = 0;

Runtime.install({ logger: new DefaultLogger('WARN', ({ message }) => process.stderr.write(`${message}\n`)) });
const goes = createInterface({ input: process.stdin });
goes.once('close', () => process.exit(0));
process.once('SIGTERM', () => process.exit(0));

try {
  await main();
} catch (error) {
  fail(error);
}

async function main() {
  const native = await connectNative(profile);
  const worker = await Worker.create({
    connection: native,
    namespace: profile.namespace,
    identity: `simulated@${fleet} supervisor`,
    buildId: `atlas@${VERSION}`,
    taskQueue: fleetControlQueue(fleet),
    workflowBundle: { codePath: FLEET_BUNDLE },
    stickyQueueScheduleToStartTimeout: '2s',
    maxCachedWorkflows: 100,
    workflowThreadPoolSize: 1,
    maxConcurrentWorkflowTaskExecutions: 20,
  });
  worker.run().catch(fail);
  const temporal = await connectClient(profile, { identity: `simulated@${fleet} supervisor` });
  let ready = 0;
  for (const total of stages) {
    if (ready > 0) await once(goes, 'line');
    const names = Array.from({ length: total - ready }, (_, index) => `worker-${ready + index + 1}`);
    await inLanes(names, async (name) => {
      await startWorker(temporal.client, name, await startOwners(temporal.client, name));
      ready += 1;
      if (ready % PROGRESS_EVERY === 0) tell({ event: 'progress', workers: ready });
    });
    tell({ event: 'ready', workers: total });
  }
}

/** Side by side, a few at a time. */
async function inLanes(items, work) {
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const index = next;
      next += 1;
      await work(items[index]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(LANES, items.length) }, lane));
}

/**
 * A server that is busy drops calls now and then. A Worker polls again then, and a daemon whose registration fails is
 * started again by its service manager; so here, a few times.
 */
async function again(name, call) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await call();
    } catch (error) {
      if (tries === TRIES) throw error;
      tell({ event: 'unanswered', worker: name, reason: inWords(error) });
      await sleep(RETRY_MS * tries);
    }
  }
}

function tell(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function fail(error) {
  process.stderr.write(`${inWords(error)}\n`);
  process.exit(1);
}

/** The chain of causes in one line each: the last lines of this process are all that is shown of it. */
function inWords(error) {
  const lines = [];
  for (let cause = error; cause instanceof Error && lines.length < MAX_CAUSES; cause = cause.cause) {
    lines.push(`${cause.name}: ${cause.message}`);
  }
  return lines.length === 0 ? String(error) : lines.join('\n  caused by ');
}

// Owners -------------------------------------------------------------------------------------------------------------

/** The owners of the sessions of one worker. */
async function startOwners(client, name) {
  const owners = [];
  for (let number = 1; number <= sessionCount; number += 1) {
    const workflowId = `document-report-${fleet}-${name}-${number}`;
    const handle = await again(name, () =>
      client.workflow.start(OWNER_WORKFLOW, {
        taskQueue: `${fleet}-owners`,
        workflowId,
        // A start that was dropped may have been handled.
        workflowIdConflictPolicy: 'USE_EXISTING',
        args: [],
      }),
    );
    owners.push({ workflowId, runId: handle.firstExecutionRunId });
    ownerCount += 1;
    if (ownerCount % TERMINATED_EVERY === 0) await handle.terminate('an owner that has closed');
  }
  return owners;
}

// Workers ------------------------------------------------------------------------------------------------------------

async function startWorker(client, name, owners) {
  workerCount += 1;
  const identity = identityOf(name, workerCount);
  const held = owners.map((owner, number) => sessionOf(owner, number, identity));
  const ask = async () => {
    const { taskToken, request } = await presenceTask(client, identity);
    presence.pickUp(taskToken, request);
    hasPresence = true;
  };
  let hasPresence = false;
  const presence = new Presence(client, identity, () => Promise.resolve(snapshotOf(held)), eventLog(name), {
    onSent: () => undefined,
    onAnswered: () => undefined,
    onNotMissed: () => undefined,
    // The server has ended the activity, since a heartbeat came too late, and the next one waits on the control queue.
    onGone: () => {
      if (!hasPresence) return;
      hasPresence = false;
      tell({ event: 'missed', worker: name });
      ask().catch(fail);
    },
    onUnanswered: () => undefined,
    onTrusted: () => undefined,
    onSuperseded: fail,
    // No operator orders anything here.
    known: () => UNTOUCHED,
    onDesired: () => Promise.resolve(),
    monotonicMs: () => performance.now(),
  });
  await again(name, () => presence.register());
  await ask();
}

function identityOf(name, index) {
  const instance = randomBytes(4).toString('hex');
  return {
    name,
    instance,
    nonce: randomUUID(),
    fleet,
    queue: workerQueue(fleet, name, instance),
    controlQueue: workerControlQueue(fleet, name, instance),
    capabilities: capabilitySet(CAPABILITIES[index % CAPABILITIES.length]),
    maxSessions: sessionCount + (index % 3),
    version: VERSION,
    host: hostname(),
    pid: process.pid,
    machineId: randomUUID(),
    bootId: randomUUID(),
    presenceTtlMs: ttlMs,
    startedAtMs: Date.now() - index * 1_000,
  };
}

/** One call after the other, as a Worker with one poll makes them. */
async function presenceTask(client, { name, controlQueue }) {
  const deadlineMs = performance.now() + PICK_UP_LIMIT_MS;
  while (performance.now() < deadlineMs) {
    const task = await again(name, () =>
      client.withDeadline(Date.now() + POLL_DEADLINE_MS, () =>
        client.workflowService.pollActivityTaskQueue({
          namespace: profile.namespace,
          taskQueue: { name: controlQueue, kind: TASK_QUEUE_NORMAL },
          identity: `${name}@${fleet} supervisor ${process.pid}`,
        }),
      ),
    );
    if (task.taskToken.length === 0) continue;
    if (task.activityType.name !== PRESENCE_ACTIVITY)
      throw new Error(`${name} was asked for ${task.activityType.name}.`);
    const request = client.options.loadedDataConverter.payloadConverter.fromPayload(task.input.payloads[0]);
    return { taskToken: task.taskToken, request };
  }
  throw new Error(`${name} was not asked for its presence within ${PICK_UP_LIMIT_MS / 1_000} s.`);
}

/** As long as the words of a real one, with every second session in the middle of a step. */
function sessionOf({ workflowId, runId }, number, { capabilities }) {
  const session = `s${number + 1}`;
  const grantedAtMs = Date.now() - (number + 1) * 60_000;
  const busy = number % 2 === 0;
  const activityId = sessionActivityId({ session, epoch: 1, step: `2-${randomBytes(4).toString('hex')}` });
  return {
    session,
    epoch: 1,
    state: 'held',
    workflowId,
    runId,
    workflowType: OWNER_WORKFLOW,
    capabilities,
    grantedAtMs,
    expiresAtMs: grantedAtMs + HOUR_MS,
    attempts: busy ? [{ activity: 'extractText', activityId, attempt: 1, startedAtMs: grantedAtMs + 1_000 }] : [],
    key: sessionKey(session, runId),
    leaseTtlMs: 60_000,
    recoveryWindowMs: 30_000,
    idleForMs: busy ? null : 2_000,
    scratchBytes: 12_345_678,
    lastStep: { activity: 'fetchDocument', endedAtMs: grantedAtMs + 900 },
  };
}

function snapshotOf(held) {
  return {
    v: 1,
    sentAtMs: Date.now(),
    stopping: false,
    sessions: held,
    slots: { used: held.length, cap: held.length },
    executor: { state: 'ready', pid: process.pid, incarnation: 'x1', restarts: 0 },
    disk: { freeBytes: 21_474_836_480, totalBytes: 107_374_182_400 },
    load1: loadavg()[0],
    scheduling: 'open',
    desiredRevision: 0,
  };
}

function eventLog(name) {
  const warn = (fields, message) => process.stderr.write(`${name}: ${message} ${JSON.stringify(fields)}\n`);
  return { debug: () => undefined, info: () => undefined, warn, error: warn };
}
