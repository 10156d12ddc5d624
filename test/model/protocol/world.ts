/**
 * A fleet under a random schedule, made from a seed: hosts, owners and faults; and the six promises of a session, checked
 * from what the server and the hosts did, never from what the code under test believes.
 */
import { currentSession } from '../../../src/activity/index.js';
import { SUSPECTED_SIGNAL, type Grant } from '../../../src/contract/session.js';
import type { SessionContract } from '../../../src/workflow/owner.js';
import { type FaultKind, type Mix, planFaults } from './faults.js';
import { Host, type HostMutation } from './host.js';
import { inVirtualTime, Simulation } from './kernel.js';
import {
  isDocumented,
  OwnerExecution,
  OwnerFailure,
  type OwnerPlan,
  type RunInput,
  type RuntimeMutation,
  type Step,
} from './owner.js';
import { type ActivitySpec, type Run, Server } from './server.js';

export interface WorldOptions {
  readonly host?: HostMutation;
  readonly runtime?: RuntimeMutation;
  readonly lease?: (spec: ActivitySpec, contract: SessionContract) => ActivitySpec;
  readonly pinned?: (spec: ActivitySpec) => ActivitySpec;
}

export interface Violation {
  readonly invariant: 1 | 2 | 3 | 4 | 5 | 6;
  readonly what: string;
  readonly atMs: number;
}

export interface Outcome {
  readonly seed: number;
  readonly mix: string;
  readonly violation: Violation | undefined;
  /** The faults that came while a session was wanted or held. */
  readonly hits: ReadonlyMap<FaultKind | 'lost poll', number>;
  readonly trace: readonly string[];
  readonly virtualMs: number;
  readonly redoCount: number;
  readonly repeatCount: number;
}

/** Faults have ended and links are healed by then; an owner may still wait for its slot, and redo its steps. */
const OWNERS_END_WITHIN_MS = 900_000;
/** The kill of a stubborn activity, the time an owner is asked for, and a lease TTL, one after the other. */
const FREE_WITHIN_MS = 180_000;
/** Beyond the timer itself: workflow tasks, a slow start, a grant that comes in the same moment. */
const ACQUIRE_SLACK_MS = 10_000;
/** Beyond this a freeze of both processes of a host is the documented exception to the third promise. */
const FREEZE_OF_BOTH_MS = 3_200;
const LINGER_MS = 2_000_000;
const BUSY_ACQUIRES = 6;

interface PinnedCall {
  readonly workflowId: string;
  readonly grant: Grant;
  readonly step: number;
  readonly attempt: number;
}

interface Owner {
  readonly plan: OwnerPlan;
  execution: OwnerExecution;
  /** Whether its session is behind it, or it has closed. */
  over: boolean;
}

export class World {
  readonly sim: Simulation;
  readonly server: Server;
  readonly fleet: Fleet;
  readonly hosts: Host[] = [];
  readonly owners: Owner[] = [];
  readonly presenceTtlMs = 6_000;
  incarnations = 0;
  private ownerCount = 0;
  violation: Violation | undefined;
  readonly hits = new Map<FaultKind | 'lost poll', number>();
  private readonly pinnedCalls = new Map<string, PinnedCall>();
  /** The executor that ran the first step of each acquisition whose state is in memory. */
  private readonly homes = new Map<string, string>();
  private readonly givenUp = new Map<string, number>();
  /** Steps whose result was kept or answered, by workflow and step. */
  private readonly stepsDone = new Set<string>();
  private redoCount = 0;
  /** Steps that a body which runs once had to schedule again. */
  private repeatCount = 0;
  faultsEndMs = 0;
  /** The server was down or links cut for so long in all; waits of owners stretch by it. */
  outageMs = 0;

  constructor(
    seed: number,
    readonly mix: Mix,
    readonly options: WorldOptions,
    traced: boolean,
  ) {
    this.sim = new Simulation(seed, traced);
    this.server = new Server(this.sim);
    this.fleet = new Fleet(this);
    this.server.onFailedTask = (run, reason) => {
      this.violate(5, `a workflow task of ${run.workflowId} fails: ${reason}`);
    };
  }

  async run(): Promise<Outcome> {
    const { sim, mix } = this;
    const { random } = sim;
    const { aim } = mix;
    const hostCount = random.int(...(aim.hosts ?? ([1, 3] as const)));
    for (let index = 1; index <= hostCount; index += 1) {
      const host = new Host(this, `w${index}`, random.int(1, 2));
      this.hosts.push(host);
      sim.at(random.between(0, 500), () => {
        host.start();
      });
    }
    this.ownerCount = random.int(...(aim.owners ?? ([1, 4] as const)));
    for (let index = 1; index <= this.ownerCount; index += 1) {
      const plan = planOwner(this, `o${index}`);
      const startAtMs = random.between(...(aim.ownersStartMs ?? ([500, 8_000] as const)));
      sim.at(startAtMs, async () => {
        await this.startOwner(plan, { firstStep: 0, generation: 1, handle: undefined });
      });
    }
    planFaults(this, mix);
    const isOver = () => this.violation !== undefined || this.isOver;
    if (!(await sim.run(this.faultsEndMs + OWNERS_END_WITHIN_MS, isOver))) this.violate(5, this.hanging());
    const isFree = () => this.violation !== undefined || this.hosts.every((host) => host.isFree());
    const freeBy = Math.max(sim.nowMs, this.faultsEndMs) + FREE_WITHIN_MS;
    if (this.violation === undefined && !(await sim.run(freeBy, isFree))) this.violate(4, this.leftOver());
    if (this.server.lostPolls > 0) this.hit('lost poll', this.server.lostPolls);
    return {
      seed: sim.seed,
      mix: mix.name,
      violation: this.violation,
      hits: this.hits,
      trace: sim.trace ?? [],
      virtualMs: sim.nowMs,
      redoCount: this.redoCount,
      repeatCount: this.repeatCount,
    };
  }

  violate(invariant: Violation['invariant'], what: string): void {
    if (this.violation !== undefined) return;
    this.violation = { invariant, what, atMs: this.sim.nowMs };
    this.sim.note('VIOLATION', () => `promise ${invariant}: ${what}`);
  }

  hit(kind: FaultKind | 'lost poll', count = 1): void {
    this.hits.set(kind, (this.hits.get(kind) ?? 0) + count);
  }

  /** Whether a session is wanted or held. */
  get isActive(): boolean {
    return this.owners.some(({ over }) => !over);
  }

  /** What goes wrong when nobody wants a session any more shows nothing. */
  get isOver(): boolean {
    return this.owners.length === this.ownerCount && !this.isActive;
  }

  private hanging(): string {
    const names = this.owners.filter(({ over }) => !over).map(({ plan }) => plan.workflowId);
    return `the owners ${names.join(', ')} neither completed nor failed`;
  }

  private leftOver(): string {
    return this.hosts
      .filter((host) => !host.isFree())
      .map(
        (host) =>
          `${host.name} (${host.supervisor?.process.alive === true ? 'up' : 'down'}) still has sessions ${JSON.stringify(
            host.supervisor?.table.sessions().map(({ key, state, epoch }) => `${key} ${state} ${epoch}`),
          )}, scratch ${JSON.stringify([...host.disk.scratch.keys()])}, trash ${host.disk.trash}`,
      )
      .join('; ');
  }

  // ---- Owners ----

  private async startOwner(plan: OwnerPlan, input: RunInput): Promise<void> {
    const execution = new OwnerExecution(this, plan, input, this.sim.nowMs);
    const known = this.owners.find((owner) => owner.plan === plan);
    if (known === undefined) this.owners.push({ plan, execution, over: false });
    else known.execution = execution;
    await execution.start();
  }

  private ownerOf(execution: OwnerExecution): Owner | undefined {
    return this.owners.find((owner) => owner.execution === execution);
  }

  ownerContinued(execution: OwnerExecution, input: RunInput): void {
    this.sim.after(this.sim.random.between(2, 60), async () => {
      if (this.ownerOf(execution) !== undefined) await this.startOwner(execution.plan, input);
    });
  }

  ownerClosed(execution: OwnerExecution, status: 'completed' | 'failed' | 'cancelled', error: unknown): void {
    this.server.closeRun(execution.run, status);
    const owner = this.ownerOf(execution);
    if (owner === undefined) return;
    owner.over = true;
    this.checkEnd(execution, error);
  }

  /** The session of the owner is over, which may go on for long with other things. */
  sessionOver(execution: OwnerExecution, error: unknown): void {
    const owner = this.ownerOf(execution);
    this.checkAcquire(execution);
    if (owner !== undefined) owner.over = true;
    this.sim.note(execution.plan.workflowId, () => `its session is over: ${describe(error)}`);
    if (execution.plan.contract.onLost === 'rediscover') this.checkSteps(execution, error);
    this.checkEnd(execution, error);
  }

  private checkEnd(execution: OwnerExecution, error: unknown): void {
    const { workflowId } = execution.plan;
    if (error !== undefined && !isDocumented(error))
      this.violate(5, `${workflowId} failed with ${describe(error)}, which is not documented`);
    if (error !== undefined && this.mix.gentle) this.violate(6, `${workflowId} failed: ${describe(error)}`);
  }

  /** A body that runs once runs every step to its end, and no loss is a reason for it to fail. */
  private checkSteps(execution: OwnerExecution, error: unknown): void {
    const { workflowId, steps } = execution.plan;
    if (error instanceof OwnerFailure && error.type === 'SessionLost')
      this.violate(6, `${workflowId} failed with the loss that it was to outlive: ${describe(error)}`);
    const missing = steps.findIndex(
      (_, step) => step >= execution.input.firstStep && !execution.stepsReturned.has(step),
    );
    if (error === undefined && missing !== -1) this.violate(6, `${workflowId} is done without its step ${missing + 1}`);
  }

  private checkAcquire(execution: OwnerExecution): void {
    const sinceMs = execution.acquiringSinceMs;
    if (sinceMs === undefined) return;
    const waitedMs = this.sim.nowMs - sinceMs;
    if (waitedMs > execution.plan.contract.acquireTimeoutMs + ACQUIRE_SLACK_MS + this.outageMs)
      this.violate(5, `${execution.plan.workflowId} waited ${Math.round(waitedMs)} ms for a worker`);
  }

  /** An owner asks for a worker, as often as it takes but not in a busy loop. */
  acquires({ plan, acquiredAtMs }: OwnerExecution): void {
    acquiredAtMs.push(this.sim.nowMs);
    const before = acquiredAtMs.at(-BUSY_ACQUIRES);
    if (before !== undefined && this.sim.nowMs - before < 1_000)
      this.violate(5, `${plan.workflowId} asked for a worker ${BUSY_ACQUIRES} times within a second`);
  }

  bodyStarts(execution: OwnerExecution, grant: Grant, attempt: number): void {
    const { workflowId } = execution.plan;
    this.checkAcquire(execution);
    this.sim.note(workflowId, () => `attempt ${attempt} of the body on ${grant.worker} (${grant.grantId})`);
    if (attempt <= 1) return;
    this.redoCount += 1;
    if (this.mix.gentle) this.violate(6, `${workflowId} lost its session, and runs its body again`);
  }

  gaveUp(execution: OwnerExecution, grant: Grant): void {
    if (this.givenUp.has(grant.grantId)) return;
    this.givenUp.set(grant.grantId, this.sim.nowMs);
    this.sim.note(execution.plan.workflowId, () => `has moved on from ${grant.grantId}`);
  }

  pinnedScheduled(execution: OwnerExecution, activityId: string, grant: Grant, step: number, attempt: number): void {
    if (execution.stepsReturned.has(step))
      this.violate(6, `step ${step + 1} of ${execution.plan.workflowId} had returned and is scheduled again`);
    if (execution.plan.contract.onLost === 'rediscover') {
      if (execution.stepsScheduled.has(step)) this.repeatCount += 1;
      execution.stepsScheduled.add(step);
    }
    this.pinnedCalls.set(`${execution.run.runId}/${activityId}`, {
      workflowId: execution.plan.workflowId,
      grant,
      step,
      attempt,
    });
  }

  stepAnswered(execution: OwnerExecution, step: number, _result: unknown): void {
    this.sim.note(execution.plan.workflowId, () => `step ${step + 1} is done`);
    this.stepsDone.add(`${execution.plan.workflowId}/${step}`);
  }

  // ---- Hosts ----

  grantOf(activityKey: string): string {
    return this.pinnedCalls.get(activityKey)?.grant.grantId ?? activityKey;
  }

  stepOf(workflowId: string, step: number): Step {
    return this.owners.find(({ plan }) => plan.workflowId === workflowId)!.plan.steps[step]!;
  }

  checkCap(host: Host): void {
    const used = host.sessionsInUse();
    if (used.size > host.cap) this.violate(2, `${host.name} has ${[...used].join(', ')}, its cap is ${host.cap}`);
  }

  stepStarted(host: Host, activityKey: string, incarnation: string): void {
    const call = this.pinnedCalls.get(activityKey)!;
    this.checkMemory(call, incarnation);
    this.sim.note(host.name, () => `runs step ${call.step + 1} of ${call.workflowId} (${activityKey})`);
    if (this.mix.gentle && this.stepsDone.has(`${call.workflowId}/${call.step}`))
      this.violate(6, `step ${call.step + 1} of ${call.workflowId} had finished and is run again`);
  }

  /** A session in memory is in the memory of one executor, and finds there what its own steps have left. */
  private checkMemory({ workflowId, grant, step }: PinnedCall, incarnation: string): void {
    const { contract } = this.owners.find(({ plan }) => plan.workflowId === workflowId)!.plan;
    const session = currentSession();
    if (session.state !== contract.state) this.violate(1, `${workflowId} is in a session with state ${session.state}`);
    if (contract.state !== 'memory') return;
    const home = this.homes.get(grant.grantId) ?? incarnation;
    if (home !== incarnation)
      this.violate(1, `step ${step + 1} of ${workflowId} ran in ${incarnation}, but its memory is in ${home}`);
    const { memory } = session;
    const known = this.homes.has(grant.grantId) ? grant.grantId : undefined;
    if (memory.get('grant') !== known)
      this.violate(1, `step ${step + 1} of ${workflowId} found the memory of ${String(memory.get('grant'))}`);
    this.homes.set(grant.grantId, incarnation);
    memory.set('grant', grant.grantId);
  }

  /** The result of a step is on disk, or on its way to the server. */
  resultKept(activityKey: string): void {
    const call = this.pinnedCalls.get(activityKey);
    if (call !== undefined) this.stepsDone.add(`${call.workflowId}/${call.step}`);
  }

  stepFinished(activityKey: string): void {
    const call = this.pinnedCalls.get(activityKey)!;
    this.sim.note(call.grant.worker, () => `has finished step ${call.step + 1} of ${call.workflowId}`);
  }

  effect(host: Host, activityKey: string, attempt: number): void {
    const call = this.pinnedCalls.get(activityKey);
    if (call === undefined) {
      this.violate(1, `${activityKey} ran on ${host.name}, and nobody scheduled it`);
      return;
    }
    const { grant, workflowId, step } = call;
    if (grant.worker !== host.name || !host.granted.has(grant.grantId))
      this.violate(1, `step ${step + 1} of ${workflowId} ran on ${host.name}, but ${grant.worker} was granted it`);
    if (this.hosts.some((each) => each.runsAnother(activityKey, attempt)))
      this.violate(1, `two attempts of step ${step + 1} of ${workflowId} ran at once, one of them on ${host.name}`);
    const acquisition = host.acquisitionOf(`${activityKey}#${attempt}`);
    if (acquisition !== undefined && acquisition !== grant.grantId)
      this.violate(1, `step ${step + 1} of ${workflowId} was scheduled on ${grant.grantId} and ran in ${acquisition}`);
    const upMs = this.givenUp.get(grant.grantId);
    if (upMs !== undefined && host.frozenTogetherMs < FREEZE_OF_BOTH_MS)
      this.violate(
        3,
        `attempt ${attempt} of step ${step + 1} of ${workflowId} had an effect on ${host.name} ${Math.round(this.sim.nowMs - upMs)} ms after its owner had moved on`,
      );
    this.checkCap(host);
  }

  closedRuns(runIds: readonly string[]): string[] {
    const lagMs = this.sim.random.between(0, 2_000);
    return runIds.filter((runId) => {
      const run = this.server.runs.get(runId);
      return run === undefined || run.closedAtMs + lagMs < this.sim.nowMs;
    });
  }

  // ---- What operators and users do to owners ----

  runningOwner(): Owner | undefined {
    const running = this.owners.filter(({ execution, over }) => !over && execution.run.status === 'running');
    return running.length === 0 ? undefined : this.sim.random.pick(running);
  }

  terminate(owner: Owner): void {
    this.server.closeRun(owner.execution.run, 'terminated');
    owner.over = true;
  }

  cancel(owner: Owner): void {
    this.sim.note(owner.plan.workflowId, () => 'is cancelled');
    this.server.toRun(owner.execution.run, { kind: 'cancel' });
  }

  /** A new run with a part of the history of this one; what was signalled after that part is signalled to it again. */
  async reset(owner: Owner): Promise<void> {
    const old = owner.execution;
    const { history, inbox } = old.run;
    const count = this.sim.random.int(0, history.length);
    this.sim.note(owner.plan.workflowId, () => `is reset to event ${count} of ${history.length}`);
    const later = [...history.slice(count).map(({ event }) => event), ...inbox].filter(({ kind }) => kind === 'signal');
    this.server.closeRun(old.run, 'reset');
    const execution = new OwnerExecution(this, owner.plan, old.input, old.startedAtMs);
    owner.execution = execution;
    await execution.start(history.slice(0, count));
    for (const event of later) this.server.toRun(execution.run, event);
  }
}

function describe(error: unknown): string {
  return error === undefined ? 'done' : error instanceof Error ? error.message : JSON.stringify(error);
}

function planOwner({ sim, mix }: World, workflowId: string): OwnerPlan {
  const { random } = sim;
  const steps = Array.from({ length: random.int(1, 4) }, (): Step => {
    const quick = random.chance(mix.strained ? 0.1 : 0.4);
    return {
      durationMs: quick ? random.between(20, 1_000) : random.between(1_000, mix.strained ? 25_000 : 15_000),
      heartbeatMs: random.between(3_000, 12_000),
      stopsAfterMs: random.chance(mix.strained ? 0.4 : 0.12) ? null : random.between(0, 1_000),
      busy: random.chance(0.06),
      pauseMs: random.chance(mix.strained ? 0.5 : 0.3) ? random.between(100, 8_000) : 0,
      ...mix.aim.step?.(random),
    };
  });
  const continues = mix.owners && random.chance(0.3);
  return {
    workflowId,
    contract: {
      fleet: 'atlas',
      capabilities: [],
      leaseTtlMs: mix.strained ? 6_000 : random.pick([6_000, 10_000, 20_000]),
      maxDurationMs:
        mix.gentle || random.chance(mix.strained ? 0.75 : 0.85) ? 3_600_000 : random.between(12_000, 40_000),
      acquireTimeoutMs: mix.gentle ? 3_600_000 : random.pick([20_000, 120_000, 600_000]),
      recoveryWindowMs: mix.gentle ? 5_000 : random.pick(mix.strained ? [5_000, 2_000, 1_000] : [5_000, 5_000, 2_000]),
      idleTimeoutMs: !mix.gentle && random.chance(0.1) ? random.between(4_000, 10_000) : null,
      state: 'disk',
      onLost: random.chance(0.85) || mix.gentle ? 'redo' : 'fail',
      maxReacquisitions: 3,
      priority: undefined,
      prefer: null,
      preferForMs: 5_000,
      ...(mix.aim.capabilities === undefined ? {} : { capabilities: random.chance(0.5) ? mix.aim.capabilities : [] }),
      ...mix.aim.contract?.(random),
    },
    steps,
    continueAfter: continues ? random.int(0, steps.length - 1) : null,
    withHandle: random.chance(0.7),
    dropsHandle: random.chance(0.15),
    lingerMs: random.chance(0.4) ? LINGER_MS : 0,
  };
}

/** The workflows that represent workers, as far as owners hear of them: they watch presence, and tell suspicions. */
class Fleet {
  private readonly members = new Map<
    Host,
    { run: Run; nonce: string; lost: boolean; count: number; presenceId: string; suspectedAtMs: number }
  >();

  constructor(private readonly world: World) {}

  /** Returns whether owners were told lately that the worker may be gone. */
  register(host: Host, nonce: string): boolean {
    const { server } = this.world;
    const member = this.members.get(host);
    if (member === undefined) {
      const run = server.startRun(`atlas:worker/${host.name}`, () => Promise.resolve());
      const created = { run, nonce, lost: false, count: 0, presenceId: '', suspectedAtMs: Number.NEGATIVE_INFINITY };
      this.members.set(host, created);
      run.deliver = (event) => {
        if (event.kind === 'activity' && event.activityId === created.presenceId) this.ended(host, event);
        return Promise.resolve();
      };
      this.watch(host);
      return false;
    }
    member.lost = false;
    if (member.nonce !== nonce) {
      member.nonce = nonce;
      server.requestCancel(member.run, member.presenceId);
      this.watch(host);
    }
    return this.world.sim.nowMs - member.suspectedAtMs < 60_000;
  }

  private watch(host: Host): void {
    const member = this.members.get(host)!;
    const { world } = this;
    member.count += 1;
    member.presenceId = `presence-${member.count}`;
    world.server.schedule(member.run, {
      activityId: member.presenceId,
      type: 'atlas:presence',
      queue: host.controlQueue,
      request: { nonce: member.nonce, lost: member.lost },
      heartbeatMs: world.presenceTtlMs,
      ...(member.lost ? {} : { scheduleToStartMs: world.presenceTtlMs + 10_000 }),
      startToCloseMs: 7 * 24 * 3_600_000,
      retry: { initialMs: 1_000, factor: 2, maximumMs: 100_000, notRetried: ['HEARTBEAT'] },
    });
  }

  private ended(host: Host, event: Extract<Run['inbox'][number], { kind: 'activity' }>): void {
    const { world } = this;
    const member = this.members.get(host)!;
    // Some supervisor of the fleet has to run this workflow.
    const isRunnable = world.hosts.some(
      ({ supervisor, supervisorLink: link }) =>
        supervisor?.process.alive === true && !supervisor.process.frozen && !link.inCut && !link.outCut,
    );
    if (!isRunnable || world.server.down) {
      world.sim.after(500, () => {
        if (event.activityId === member.presenceId) this.ended(host, event);
      });
      return;
    }
    if (event.end.kind === 'timed-out') {
      const runIds = (event.end.details as string[] | undefined) ?? [];
      world.sim.note('fleet', () => `suspects ${host.name}; owners: ${runIds.join(', ')}`);
      for (const runId of runIds)
        world.server.signal(runId, SUSPECTED_SIGNAL, { worker: host.name, queue: host.queue });
      member.lost = true;
      if (runIds.length > 0) member.suspectedAtMs = world.sim.nowMs;
    }
    this.watch(host);
  }
}

export async function simulate(seed: number, mix: Mix, options: WorldOptions = {}, traced = false): Promise<Outcome> {
  return await inVirtualTime(() => new World(seed, mix, options, traced).run());
}
