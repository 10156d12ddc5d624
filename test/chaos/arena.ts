/**
 * Where a schedule happens: a server, workers behind proxies, a load of workflows, and what is needed to judge it
 * afterwards. Atlas's own logs are used only to know when a process is up; nothing is judged by them.
 */
import { readdir, readFile, rm, truncate } from 'node:fs/promises';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { type Atlasd, type AtlasdOptions, temporaryDirectory } from '../support/atlasd.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { eventually, sessionsOf, spawnWorker, startWorker } from '../support/fixtures.js';
import { startProxy, type Proxy } from '../support/proxy.js';
import { connectTestClient, startPrivateServer } from '../support/server.js';
import { describeFault, type Plan, type PlannedFault } from './plan.js';
import { type Random, random } from './random.js';

/** How long an atlasd may take to be up again; generous, since the machine of a test run may be busy. */
const RESTART_MS = 60_000;
const CALL_PATIENCE_MS = 60_000;

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
  readonly handle: WorkflowHandle;
  /** What the schedule did to it. */
  ended?: 'terminate' | 'cancel';
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
  atlasd: Atlasd;
}

export interface ArenaOptions {
  readonly client: Client;
  readonly address: string;
  readonly caps: readonly number[];
  readonly presenceTtlMs: number;
  /** Another `bin/atlasd.js` than that of the build, for mutants. */
  readonly program?: string;
}

export class Arena {
  readonly workflows: StartedWorkflow[] = [];

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
        const proxy = await startProxy(options.address);
        const name = `w${index}`;
        const atlasd = await startWorker(workerOptions(options, fleet, name, cap, proxy));
        return { name, cap, proxy, atlasd };
      }),
    );
    return new Arena(options, fleet, log, workers);
  }

  get client(): Client {
    return this.options.client;
  }

  async start(type: string, input: object): Promise<StartedWorkflow> {
    const workflowId = uniqueId('chaos');
    const handle = await persistently(() =>
      this.client.workflow.start(type, {
        taskQueue: this.fleet,
        workflowId,
        // An answer that was lost must not start it twice.
        workflowIdConflictPolicy: 'USE_EXISTING',
        // What a dead poll has swallowed is handed out again after this.
        workflowTaskTimeout: '3s',
        args: [input],
      }),
    );
    const started: StartedWorkflow = { handle };
    this.workflows.push(started);
    return started;
  }

  /** The same worker again, whatever has become of its processes. */
  async restart(worker: ArenaWorker): Promise<void> {
    const { name, cap, proxy, atlasd } = worker;
    const options = {
      ...workerOptions(this.options, this.fleet, name, cap, proxy),
      stateDirectory: atlasd.stateDirectory,
    };
    // Its link, or the server, may be away: it is tried again as a service manager does it.
    const deadlineMs = performance.now() + RESTART_MS;
    for (;;) {
      worker.atlasd = await spawnWorker(options);
      try {
        await worker.atlasd.event('worker-ready', () => true, { timeoutMs: RESTART_MS });
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
    const roots = this.workers.map(({ atlasd }) => join(atlasd.stateDirectory, 'scratch'));
    const found = await Promise.all(roots.map((root) => readdir(root).catch(() => [])));
    return found.flat();
  }

  async heldSessions(): Promise<number> {
    return (await sessionsOf(this.client, this.fleet)).length;
  }

  async close(): Promise<void> {
    await Promise.all(
      this.workers.map(async ({ atlasd, proxy }) => {
        if (atlasd.running) await atlasd.killAll();
        await proxy.close();
      }),
    );
  }
}

function workerOptions(options: ArenaOptions, fleet: string, name: string, cap: number, proxy: Proxy): AtlasdOptions {
  const args = ['--max-sessions', String(cap), '--presence-ttl', `${options.presenceTtlMs}ms`];
  return {
    fleet,
    name,
    address: proxy.address,
    args,
    ...(options.program === undefined ? {} : { program: options.program }),
  };
}

/** Tries a call again while the server is away. */
export async function persistently<T>(call: () => Promise<T>): Promise<T> {
  const deadlineMs = performance.now() + CALL_PATIENCE_MS;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
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
}

/** Runs load and faults of a plan; resolves when all faults have ended and every worker is up. */
export async function runPlan(arena: Arena, server: PrivateServer, plan: Plan): Promise<DoneFault[]> {
  const beganAtMs = performance.now();
  const done: DoneFault[] = [];
  const dice = random(plan.seed ^ 0x5bd1e995);
  /** A fault that takes longer than planned, such as a slow restart, ends before the next on the same target. */
  const lastOf = new Map<number, Promise<void>>();
  const faults = plan.faults.map(async (fault) => {
    const target = 'worker' in fault ? fault.worker : -1;
    const before = lastOf.get(target);
    let ended = (): void => undefined;
    lastOf.set(target, new Promise((resolve) => (ended = resolve)));
    await pause(Math.max(0, beganAtMs + fault.atMs - performance.now()));
    await before;
    const fromMs = Date.now();
    await inflict(arena, server, fault, dice).finally(ended);
    done.push({ fault, beganAtMs: fromMs, endedAtMs: Date.now() });
  });
  const load = keepLoaded(arena, plan, dice, () => performance.now() < beganAtMs + plan.lastsMs);
  await Promise.all([load, ...faults]);
  return done.sort((one, other) => one.beganAtMs - other.beganAtMs);
}

async function inflict(arena: Arena, server: PrivateServer, fault: PlannedFault, dice: Random): Promise<void> {
  const worker = 'worker' in fault ? arena.workers[fault.worker]! : undefined;
  const proxied = async (begin: (proxy: Proxy) => void): Promise<void> => {
    begin(worker!.proxy);
    await pause(fault.forMs);
    worker!.proxy.heal();
  };
  switch (fault.kind) {
    case 'kill-supervisor':
      await worker!.atlasd.kill();
      await pause(fault.forMs);
      await arena.restart(worker!);
      return;
    case 'kill-both':
    case 'truncate-ledger':
    case 'wipe-scratch':
      await worker!.atlasd.killAll();
      if (fault.kind === 'truncate-ledger') {
        const path = join(worker!.atlasd.stateDirectory, 'ledger');
        const { size } = await stat(path);
        await truncate(path, dice.whole(0, size));
      } else if (fault.kind === 'wipe-scratch') {
        const root = join(worker!.atlasd.stateDirectory, 'scratch');
        for (const name of await readdir(root)) await rm(join(root, name), { recursive: true });
      }
      await pause(fault.forMs);
      await arena.restart(worker!);
      return;
    case 'kill-executor':
      signalAll(arena.executorPids(worker!), 'SIGKILL');
      return;
    case 'freeze-supervisor':
      worker!.atlasd.signal('SIGSTOP');
      await pause(fault.forMs);
      worker!.atlasd.signal('SIGCONT');
      return;
    case 'freeze-executor': {
      const pids = arena.executorPids(worker!);
      signalAll(pids, 'SIGSTOP');
      await pause(fault.forMs);
      signalAll(pids, 'SIGCONT');
      return;
    }
    case 'cut':
      await proxied((proxy) => {
        proxy.cut();
      });
      return;
    case 'half-open':
      await proxied((proxy) => {
        proxy.halfOpen();
      });
      return;
    case 'slow':
      await proxied((proxy) => {
        proxy.slow(150);
      });
      return;
    case 'stop-server':
      await server.stop();
      await pause(fault.forMs);
      await server.startAgain();
      return;
    case 'terminate':
    case 'cancel': {
      const open = await openWorkflows(arena);
      if (open.length === 0) return;
      const target = dice.pick(open);
      target.ended = fault.kind;
      const call = () => (fault.kind === 'cancel' ? target.handle.cancel() : target.handle.terminate());
      await persistently(call).catch(() => undefined);
    }
  }
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
async function keepLoaded(arena: Arena, plan: Plan, dice: Random, goesOn: () => boolean): Promise<void> {
  const wanted = plan.caps.reduce((sum, cap) => sum + cap, 0) + 1;
  const session = {
    leaseTtl: plan.leaseTtlMs,
    recoveryWindow: plan.recoveryWindowMs,
    maxReacquisitions: 30,
    acquireTimeout: '3 minutes',
    maxDuration: '10 minutes',
  };
  const lane = async (): Promise<void> => {
    while (goesOn()) {
      const steps = Array.from({ length: dice.whole(1, 4) }, () => ({
        ms: dice.whole(100, 2_500),
        // Most obey; those that do not must be bounded by the protocol all the same.
        mode: dice.pick(['obedient', 'obedient', 'obedient', 'stubborn', 'busy']),
      }));
      const runs = dice.chance(0.3) ? dice.whole(2, 3) : 1;
      const { handle } = await arena.start('chaosLoad', { session, log: arena.log, steps, runs });
      while (goesOn()) {
        const { status } = await persistently(() => handle.describe());
        if (status.name !== 'RUNNING') break;
        await pause(200);
      }
    }
  };
  await Promise.all(Array.from({ length: wanted }, lane));
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

export { eventually };
export { describeFault };
