/**
 * Where a schedule happens: a server, workers behind proxies, a load of workflows, and what is needed to judge it
 * afterwards. Atlas's own logs are used only to know when a process is up; nothing is judged by them.
 */
import { readdir, readFile, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { type Client, WorkflowNotFoundError, type WorkflowHandle } from '@temporalio/client';
import { type Atlasd, type AtlasdOptions, temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { FleetClient } from '../../src/fleet/client.js';
import { eventually, sessionsOf, spawnWorker } from '../support/fixtures.js';
import { historyOf } from '../support/history.js';
import { HostFaults } from '../support/host-faults.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { connectTestClient, startPrivateServer } from '../support/server.js';
import type { Deploy, Plan, PlannedFault, WorkerFault, WorkflowFault } from './plan.js';
import { type Random, random } from './random.js';

/** How long an atlasd may take to be up again; generous, since the machine of a test run may be busy. */
const RESTART_MS = 60_000;
const CALL_PATIENCE_MS = 60_000;
/** Sessions of the load take some seconds; what drains for longer than this hangs. */
const DRAIN_WITHIN_MS = 120_000;
const OPERATOR = { who: 'chaos@test', why: 'deploy' } as const;
/** How many workflows wait for a slot beside those that can have one. */
const WAITING = 1;

/** A line that a pinned activity wrote to a file of its host. */
export interface Effect {
  readonly label: string;
  readonly what: 'begin' | 'tick' | 'end';
  readonly worker: string;
  readonly pid: number;
  readonly session: string;
  readonly runId: string;
  readonly token: number;
  readonly activityId: string;
  readonly attempt: number;
  readonly atMs: number;
}

export interface StartedWorkflow {
  readonly workflowId: string;
  /** Of the workflow, whatever its current run is. */
  readonly handle: WorkflowHandle;
  /** The first run, and those that resets have made, in order. */
  readonly roots: string[];
  /** What the schedule did to it. */
  ended?: 'terminate' | 'cancel' | 'time-out';
}

/** Server, address and client of one schedule. */
export class PrivateServer {
  private constructor(
    private server: Awaited<ReturnType<typeof startPrivateServer>>,
    private readonly dbFilename: string,
    private readonly connection: Awaited<ReturnType<typeof connectTestClient>>,
  ) {}

  static async start(): Promise<PrivateServer> {
    const dbFilename = join(await temporaryDirectory(), 'temporal.db');
    const server = await startPrivateServer({ dbFilename });
    return new PrivateServer(server, dbFilename, await connectTestClient(server.address));
  }

  get address(): string {
    return this.server.address;
  }

  get client(): Client {
    return this.connection.client;
  }

  async stop(): Promise<void> {
    await this.server.stop();
  }

  async startAgain(): Promise<void> {
    const port = Number(this.address.split(':').at(-1));
    this.server = await startPrivateServer({ dbFilename: this.dbFilename, port });
  }

  async close(): Promise<void> {
    await this.connection.close();
    await this.server.stop();
  }
}

export interface ArenaWorker {
  readonly name: string;
  readonly cap: number;
  readonly proxy: Proxy;
  readonly host: HostFaults;
  readonly stateDirectory: string;
  atlasd: Atlasd;
  /** The restart that is under way; of an embedded worker several may want one. */
  restarting?: Promise<void>;
}

export interface ArenaOptions {
  readonly client: Client;
  readonly address: string;
  readonly caps: readonly number[];
  readonly presenceTtlMs: number;
  /** Another `bin/atlasd.js` than that of the build, for mutants. */
  readonly program?: string;
  /**
   * The workers are programs that hold sessions in their own process. Where atlasd kills its executor, such a process kills
   * itself, and is started again as a service manager does it.
   */
  readonly embedded?: boolean;
}

/** A time in which a worker must take no session: from the answer to the order to the order that opens it. */
export interface Cordon {
  readonly worker: string;
  readonly fromMs: number;
  toMs: number;
}

export class Arena {
  readonly workflows: StartedWorkflow[] = [];
  readonly cordons: Cordon[] = [];
  /** When a supervisor was killed in the middle of a deploy, until it was up again. */
  readonly kills: { readonly worker: string; readonly fromMs: number; readonly toMs: number }[] = [];

  /** How often an embedded worker has killed its process at a fence. */
  selfKills = 0;
  private closed = false;

  private constructor(
    readonly options: ArenaOptions,
    readonly fleet: string,
    readonly log: string,
    readonly workers: ArenaWorker[],
  ) {}

  static async open(options: ArenaOptions): Promise<Arena> {
    const fleet = uniqueFleet('c');
    const log = join(await temporaryDirectory(), 'effects');
    const workers = await Promise.all(
      options.caps.map(async (cap, index) => {
        const stateDirectory = await temporaryDirectory();
        const place = {
          name: `w${index}`,
          cap,
          proxy: await startProxy(options.address),
          host: await HostFaults.create(stateDirectory),
          stateDirectory,
        };
        const atlasd = await (await spawnWorker(workerOptions(options, fleet, place))).ready();
        return { ...place, atlasd };
      }),
    );
    const arena = new Arena(options, fleet, log, workers);
    for (const worker of workers) arena.restartWhenItKillsItself(worker);
    return arena;
  }

  get client(): Client {
    return this.options.client;
  }

  async start(
    type: string,
    input: object,
    { timeoutMs, taskQueue = this.fleet }: { timeoutMs?: number; taskQueue?: string } = {},
  ): Promise<StartedWorkflow> {
    const workflowId = uniqueId('chaos');
    const { firstExecutionRunId } = await persistently(() =>
      this.client.workflow.start(type, {
        taskQueue,
        workflowId,
        // An answer that was lost must not start it twice.
        workflowIdConflictPolicy: 'USE_EXISTING',
        // What a dead poll has swallowed is handed out again after this.
        workflowTaskTimeout: '3s',
        ...(timeoutMs === undefined ? {} : { workflowExecutionTimeout: timeoutMs }),
        args: [input],
      }),
    );
    const handle = this.client.workflow.getHandle(workflowId);
    const started: StartedWorkflow = { workflowId, handle, roots: [firstExecutionRunId] };
    if (timeoutMs !== undefined) started.ended = 'time-out';
    this.workflows.push(started);
    return started;
  }

  /** The same worker again, whatever has become of its processes. */
  async restart(worker: ArenaWorker): Promise<void> {
    const before = worker.restarting ?? Promise.resolve();
    worker.restarting = before.then(() => this.startAgain(worker));
    await worker.restarting;
  }

  /** By its fence; every other end is that of a fault, which starts the worker again itself. */
  private restartWhenItKillsItself(worker: ArenaWorker): void {
    if (this.options.embedded !== true) return;
    const { atlasd } = worker;
    void atlasd.exited.then(async ({ signal }) => {
      if (signal !== 'SIGKILL' || atlasd.killed || this.closed || worker.atlasd !== atlasd) return;
      this.selfKills += 1;
      await this.restart(worker);
    });
  }

  private async startAgain(worker: ArenaWorker): Promise<void> {
    // It had killed itself just before a fault did, and is up again.
    if (worker.atlasd.running) await worker.atlasd.killAll();
    const options = workerOptions(this.options, this.fleet, worker);
    // Its link, or the server, may be away: it is tried again as a service manager does it.
    const deadlineMs = performance.now() + RESTART_MS;
    for (;;) {
      worker.atlasd = await spawnWorker(options);
      try {
        await worker.atlasd.event('worker-ready', () => true, { timeoutMs: RESTART_MS });
        this.restartWhenItKillsItself(worker);
        return;
      } catch (error) {
        if (performance.now() > deadlineMs) throw error;
        if (worker.atlasd.running) await worker.atlasd.killAll();
      }
    }
  }

  executorPids(worker: ArenaWorker): number[] {
    return worker.atlasd
      .processes()
      .filter(({ command }) => command.includes('executor/main.js'))
      .map(({ pid }) => pid);
  }

  async effects(): Promise<Effect[]> {
    const text = await readFile(this.log, 'utf8').catch(() => '');
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Effect);
  }

  /** What is left in the scratch directories of all workers. */
  async scratch(): Promise<string[]> {
    const roots = this.workers.map(({ stateDirectory }) => join(stateDirectory, 'scratch'));
    const found = await Promise.all(roots.map((root) => readdir(root).catch(() => [])));
    return found.flat();
  }

  async heldSessions(): Promise<number> {
    return (await sessionsOf(this.client, this.fleet)).length;
  }

  async close(): Promise<void> {
    this.closed = true;
    await Promise.all(
      this.workers.map(async (worker) => {
        await worker.restarting?.catch(() => undefined);
        if (worker.atlasd.running) await worker.atlasd.killAll();
        await worker.proxy.close();
      }),
    );
  }
}

function workerOptions(
  { presenceTtlMs, program }: ArenaOptions,
  fleet: string,
  { name, cap, proxy, host, stateDirectory }: Omit<ArenaWorker, 'atlasd'>,
): AtlasdOptions {
  return {
    fleet,
    name,
    stateDirectory,
    address: proxy.address,
    args: ['--max-sessions', String(cap), '--presence-ttl', `${presenceTtlMs}ms`],
    env: host.env,
    ...(program === undefined ? {} : { program }),
  };
}

/** gRPC's INVALID_ARGUMENT, NOT_FOUND and FAILED_PRECONDITION: the same would be answered again. */
const DEFINITE_CODES: readonly unknown[] = [3, 5, 9];

/** Tries a call again while the server is away. */
export async function persistently<T>(call: () => Promise<T>): Promise<T> {
  const deadlineMs = performance.now() + CALL_PATIENCE_MS;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const definite =
        error instanceof WorkflowNotFoundError || DEFINITE_CODES.includes((error as { code?: unknown }).code);
      if (definite || performance.now() > deadlineMs) throw error;
      await pause(200);
    }
  }
}

export async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}

/** A fault as it was done. `beganAtMs` and `endedAtMs` are times of day. */
export interface DoneFault {
  readonly fault: PlannedFault;
  readonly beganAtMs: number;
  readonly endedAtMs: number;
  /** How many calls it made to fail, or workflows it reached; undefined for faults that do neither. */
  readonly met: number | undefined;
}

/** Runs load and faults of a plan; resolves when all faults have ended and every worker is up. */
export async function runPlan(arena: Arena, server: PrivateServer, plan: Plan): Promise<DoneFault[]> {
  const beganAtMs = performance.now();
  const done: DoneFault[] = [];
  const dice = random(plan.seed ^ 0x5bd1e995);
  /** A fault that takes longer than planned, such as a slow restart, ends before the next on the same target. */
  const lastOf = new Map<number, Promise<void>>();
  const faults = plan.faults.map(async (fault) => {
    // One worker is deployed after the other.
    const target = fault.kind === 'deploy' ? -2 : 'worker' in fault ? fault.worker : -1;
    const before = lastOf.get(target);
    let ended = (): void => undefined;
    lastOf.set(target, new Promise((resolve) => (ended = resolve)));
    await pause(Math.max(0, beganAtMs + fault.atMs - performance.now()));
    await before;
    const fromMs = Date.now();
    const met = await inflict(arena, server, fault, dice).finally(ended);
    done.push({ fault, beganAtMs: fromMs, endedAtMs: Date.now(), met });
  });
  let allDone = false;
  const goesOn = (): boolean => performance.now() < beganAtMs + plan.lastsMs || (plan.kind === 'deploy' && !allDone);
  const load = keepLoaded(arena, plan, goesOn);
  await Promise.all([load, Promise.all(faults).finally(() => (allDone = true))]);
  return done.sort((one, other) => one.beganAtMs - other.beganAtMs);
}

/** Resolves to what `DoneFault.met` says. */
async function inflict(
  arena: Arena,
  server: PrivateServer,
  fault: PlannedFault,
  dice: Random,
): Promise<number | undefined> {
  if (fault.kind === 'stop-server') {
    await server.stop();
    await pause(fault.forMs);
    await server.startAgain();
  } else if (fault.kind === 'deploy') {
    return await deploy(arena, fault, fault.forMs);
  } else if ('worker' in fault) {
    return await inflictOnWorker(arena, arena.workers[fault.worker]!, fault.kind, fault.forMs, dice);
  } else {
    return await inflictOnWorkflow(arena, fault.kind, dice);
  }
  return undefined;
}

/** Resolves to how many sessions it waited for. */
async function deploy(arena: Arena, { worker: index, interrupted }: Deploy, forMs: number): Promise<number> {
  const worker = arena.workers[index]!;
  const { name } = worker;
  const fleet = new FleetClient(arena.client, { fleet: arena.fleet });
  const held = async (): Promise<number> =>
    (await fleet.listSessions()).filter((session) => session.worker === name).length;
  await eventually(async () => (await held()) > 0, { what: `a session on ${name}`, timeoutMs: DRAIN_WITHIN_MS });
  const { delivery } = await fleet.drain(name, OPERATOR);
  if (delivery !== 'applied') throw new Error(`The drain of ${name} was ${delivery}.`);
  const cordon: Cordon = { worker: name, fromMs: Date.now(), toMs: Number.POSITIVE_INFINITY };
  arena.cordons.push(cordon);
  const waitedFor = await held();
  if (interrupted) {
    const fromMs = Date.now();
    await worker.atlasd.kill();
    await arena.restart(worker);
    arena.kills.push({ worker: name, fromMs, toMs: Date.now() });
  }
  const isDrained = async (): Promise<boolean> =>
    (await fleet.listWorkers()).some((each) => each.name === name && each.state === 'drained');
  await eventually(isDrained, { what: `the end of the drain of ${name}`, timeoutMs: DRAIN_WITHIN_MS });
  await worker.atlasd.stop();
  await pause(forMs);
  await arena.restart(worker);
  // It stays drained over the restart.
  await eventually(isDrained, { what: `${name}, drained after its restart`, timeoutMs: DRAIN_WITHIN_MS });
  cordon.toMs = Date.now();
  await fleet.uncordon(name, OPERATOR);
  return waitedFor;
}

async function inflictOnWorker(
  arena: Arena,
  worker: ArenaWorker,
  kind: WorkerFault,
  forMs: number,
  dice: Random,
): Promise<number | undefined> {
  const { atlasd, proxy, host, stateDirectory } = worker;
  switch (kind) {
    case 'kill-supervisor':
      await atlasd.kill();
      break;
    case 'kill-both':
      await atlasd.killAll();
      break;
    case 'truncate-ledger': {
      await atlasd.killAll();
      const path = join(stateDirectory, 'ledger');
      await truncate(path, dice.whole(0, (await stat(path)).size));
      break;
    }
    case 'wipe-scratch': {
      await atlasd.killAll();
      const root = join(stateDirectory, 'scratch');
      for (const name of await readdir(root)) await rm(join(root, name), { recursive: true });
      break;
    }
    case 'kill-executor':
      signalAll(arena.executorPids(worker), 'SIGKILL');
      return undefined;
    case 'freeze-supervisor':
    case 'freeze-executor':
    case 'freeze-both': {
      const pids = [
        ...(kind === 'freeze-executor' ? [] : [atlasd.pid]),
        ...(kind === 'freeze-supervisor' ? [] : arena.executorPids(worker)),
      ];
      signalAll(pids, 'SIGSTOP');
      await pause(forMs);
      signalAll(pids, 'SIGCONT');
      return undefined;
    }
    case 'cut':
    case 'half-open':
    case 'slow':
      if (kind === 'cut') proxy.cut();
      else if (kind === 'half-open') proxy.halfOpen();
      else proxy.slow(150);
      await pause(forMs);
      proxy.heal();
      return undefined;
    case 'disk-full':
    case 'read-only':
    case 'clock-ahead':
    case 'clock-behind': {
      const before = (await host.hits()).length;
      const skewMs = dice.pick([20_000, 7_200_000]);
      if (kind === 'disk-full') await host.set({ disk: 'full' });
      else if (kind === 'read-only') await host.set({ disk: 'read-only' });
      else await host.set({ clockSkewMs: kind === 'clock-ahead' ? skewMs : -skewMs });
      await pause(forMs);
      await host.set();
      return kind.startsWith('clock-') ? undefined : (await host.hits()).length - before;
    }
  }
  await pause(forMs);
  await arena.restart(worker);
  return undefined;
}

async function inflictOnWorkflow(arena: Arena, kind: WorkflowFault, dice: Random): Promise<number> {
  const open = await openWorkflows(arena);
  if (open.length === 0) return 0;
  const target = dice.pick(open);
  try {
    if (kind === 'reset') {
      return await resetToRandomPoint(arena, target, dice);
    } else {
      target.ended = kind;
      await persistently(() => (kind === 'cancel' ? target.handle.cancel() : target.handle.terminate()));
      return 1;
    }
  } catch {
    return 0; // It has closed meanwhile.
  }
}

async function resetToRandomPoint(arena: Arena, target: StartedWorkflow, dice: Random): Promise<number> {
  const { client } = arena;
  const { runId, resetPoints } = await persistently(() => historyOf(client, target.workflowId));
  if (resetPoints.length === 0) return 0;
  const point = dice.pick(resetPoints);
  const answer = await persistently(() =>
    client.workflowService.resetWorkflowExecution({
      namespace: 'default',
      workflowExecution: { workflowId: target.workflowId, runId },
      workflowTaskFinishEventId: point as never,
      // An answer that was lost must not reset it twice.
      requestId: `${runId}-${point}`,
      reason: 'test',
    }),
  );
  target.roots.push(answer.runId);
  return 1;
}

function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // Ended meanwhile.
    }
  }
}

async function openWorkflows(arena: Arena): Promise<StartedWorkflow[]> {
  const candidates = arena.workflows.filter(({ ended }) => ended === undefined);
  const open = await Promise.all(
    candidates.map(async (candidate) => {
      const { status } = await persistently(() => candidate.handle.describe());
      return status.name === 'RUNNING' ? candidate : undefined;
    }),
  );
  return open.filter((candidate) => candidate !== undefined);
}

/** Keeps some more workflows open than the fleet has slots. */
async function keepLoaded(arena: Arena, plan: Plan, goesOn: () => boolean): Promise<void> {
  const lanes = plan.caps.reduce((sum, cap) => sum + cap, 0) + WAITING;
  const session = {
    leaseTtl: plan.leaseTtlMs,
    recoveryWindow: plan.recoveryWindowMs,
    maxReacquisitions: 30,
    acquireTimeout: '3 minutes',
    maxDuration: '10 minutes',
  };
  const lane = async (dice: Random): Promise<void> => {
    while (goesOn()) {
      const steps = Array.from({ length: dice.whole(1, 4) }, () => ({
        ms: dice.whole(100, 2_000),
        // Most obey; those that do not must be bounded by the protocol all the same.
        mode: dice.pick(['obedient', 'obedient', 'obedient', 'stubborn', 'busy']),
      }));
      const runs = dice.chance(0.3) ? dice.whole(2, 3) : 1;
      const timeoutMs = plan.kind === 'wild' && dice.chance(0.1) ? dice.whole(500, 4_000) : undefined;
      const { handle } = await arena.start(
        'chaosLoad',
        { session, log: arena.log, steps, runs },
        timeoutMs === undefined ? {} : { timeoutMs },
      );
      while (goesOn()) {
        const { status } = await persistently(() => handle.describe());
        if (status.name !== 'RUNNING') break;
        await pause(200);
      }
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, index) => lane(random(plan.seed * 100 + index))));
}

/** Waits until every workflow has closed; returns those that have not in time. */
export async function drain(arena: Arena, timeoutMs: number): Promise<StartedWorkflow[]> {
  const deadlineMs = performance.now() + timeoutMs;
  let open: StartedWorkflow[] = [...arena.workflows];
  while (open.length > 0 && performance.now() < deadlineMs) {
    const still = await Promise.all(
      open.map(async (workflow) => {
        const { status } = await persistently(() => workflow.handle.describe());
        return status.name === 'RUNNING' ? workflow : undefined;
      }),
    );
    open = still.filter((workflow) => workflow !== undefined);
    if (open.length > 0) await pause(250);
  }
  return open;
}
