/**
 * The owner's side of the session protocol with a scripted outside: leases that end as the test says, a worker that
 * answers as the test says, and a clock that stands still until a test advances it.
 */
import { describe, expect, it } from 'vitest';
import type { Grant, SessionHandle } from '../../../src/contract/session.js';
import {
  ownSession,
  type BodyEnd,
  type HeldSession,
  type Lease,
  type Confirmation,
  type LeaseEnd,
  type LeaseSpec,
  type OwnerInbox,
  type OwnerRuntime,
  type SessionContract,
} from '../../../src/workflow/owner.js';
import { settle } from '../../support/fake-ports.js';

const CONTRACT: SessionContract = {
  fleet: 'atlas',
  capabilities: [],
  leaseTtlMs: 60_000,
  maxDurationMs: 3_600_000,
  acquireTimeoutMs: 600_000,
  recoveryWindowMs: 5_000,
  idleTimeoutMs: null,
  state: 'disk',
  onLost: 'redo',
  maxReacquisitions: 3,
  priority: undefined,
};
const PRESENCE_TTL_MS = 6_000;

class Failure extends Error {
  constructor(
    readonly code: string,
    message: string,
    cause?: Error,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

interface FakeLease extends Lease {
  readonly spec: LeaseSpec;
  cancelled: boolean;
  ended: LeaseEnd | undefined;
}

interface Waiter {
  readonly done: () => boolean;
  readonly atMs: number;
  readonly cancellable: boolean;
  readonly resolve: (inTime: boolean) => void;
  readonly reject: (error: Error) => void;
}

/** A workflow without Temporal: conditions are looked at after everything that happens. */
class FakeRuntime implements OwnerRuntime {
  readonly leases: FakeLease[] = [];
  readonly journal: string[] = [];
  inbox: OwnerInbox | undefined;
  /** What a worker answers to the next questions; without one it says that it holds the session. */
  readonly confirmations: (Confirmation | Promise<Confirmation>)[] = [];
  /** Whether a release is answered. */
  releaseAnswers = true;
  private readonly waiters = new Set<Waiter>();
  private elapsedMs = 0;
  private epoch = 0;
  private cancelled = false;

  now(): number {
    return this.elapsedMs;
  }
  newSessionId(): string {
    return 's';
  }
  nextEpoch(): number {
    return (this.epoch += 1);
  }
  raiseEpoch(epoch: number): void {
    this.epoch = Math.max(this.epoch, epoch);
  }
  scheduleLease(spec: LeaseSpec): Lease {
    this.journal.push(`${spec.kind} ${spec.epoch}`);
    const lease: FakeLease = {
      spec,
      epoch: spec.epoch,
      cancelled: false,
      ended: undefined,
      end: () => lease.ended,
      cancel: () => {
        lease.cancelled = true;
        this.journal.push(`cancel ${spec.epoch}`);
      },
    };
    this.leases.push(lease);
    return lease;
  }
  async confirm(grant: Grant, timeoutMs: number): Promise<Confirmation> {
    this.journal.push(`confirm ${grant.grantId} ${timeoutMs}`);
    return await (this.confirmations.shift() ?? 'held');
  }
  async release(grant: Grant): Promise<boolean> {
    this.journal.push(`release ${grant.grantId}`);
    return this.releaseAnswers;
  }
  until(done: () => boolean, timeoutMs: number): Promise<boolean> {
    if (this.cancelled) return Promise.reject(new Failure('Cancelled', 'cancelled'));
    return this.wait(done, timeoutMs, true);
  }
  untilEvenIfCancelled(done: () => boolean, timeoutMs: number): Promise<boolean> {
    return this.wait(done, timeoutMs, false);
  }
  listen(_: string, inbox: OwnerInbox): void {
    this.inbox = inbox;
  }
  stopListening(): void {
    this.inbox = undefined;
  }
  failure(code: string, message: string, cause?: Error): Error {
    return new Failure(code, message, cause);
  }
  log(): void {
    // Not what is tested.
  }

  private wait(done: () => boolean, timeoutMs: number, cancellable: boolean): Promise<boolean> {
    if (done()) return Promise.resolve(true);
    return new Promise((resolve, reject) => {
      this.waiters.add({ done, atMs: this.elapsedMs + timeoutMs, cancellable, resolve, reject });
    });
  }

  get timerCount(): number {
    return [...this.waiters].filter(({ atMs }) => Number.isFinite(atMs)).length;
  }

  /** How many conditions are waited for without end or with one; a session that is over leaves none. */
  get waiterCount(): number {
    return this.waiters.size;
  }

  /** Lets everything run that can. */
  async turn(): Promise<void> {
    for (let changed = true; changed;) {
      changed = false;
      await settle();
      for (const waiter of [...this.waiters]) {
        const inTime = waiter.done();
        if (!inTime && waiter.atMs > this.elapsedMs) continue;
        this.waiters.delete(waiter);
        waiter.resolve(inTime);
        changed = true;
      }
    }
  }

  async advance(durationMs: number): Promise<void> {
    await this.turn();
    const untilMs = this.elapsedMs + durationMs;
    for (;;) {
      const nextMs = Math.min(...[...this.waiters].map(({ atMs }) => atMs), untilMs);
      this.elapsedMs = nextMs;
      await this.turn();
      if (nextMs >= untilMs) return;
    }
  }

  /** The owner is cancelled. */
  async cancel(): Promise<void> {
    this.cancelled = true;
    for (const waiter of [...this.waiters]) {
      if (!waiter.cancellable) continue;
      this.waiters.delete(waiter);
      waiter.reject(new Failure('Cancelled', 'cancelled'));
    }
    await this.turn();
  }

  /** A worker grants the newest lease, or another; returns whether the owner took it. */
  async grant(grantId: string, changes: Partial<Grant> = {}): Promise<boolean> {
    const taken = this.inbox?.granted(grantOf(grantId, { epoch: this.leases.at(-1)!.epoch, ...changes })) ?? false;
    await this.turn();
    return taken;
  }

  async endLease(end: LeaseEnd | LeaseEnd['kind'], lease = this.leases.at(-1)!): Promise<void> {
    lease.ended = typeof end === 'string' ? leaseEnd(end) : end;
    await this.turn();
  }

  async suspect(queue = 'queue-w'): Promise<void> {
    this.inbox?.suspected(queue);
    await this.turn();
  }
}

function grantOf(grantId: string, changes: Partial<Grant> = {}): Grant {
  return {
    session: 's',
    epoch: 1,
    grantId,
    worker: 'w',
    queue: 'queue-w',
    presenceTtlMs: PRESENCE_TTL_MS,
    ...changes,
  };
}

function leaseEnd(kind: LeaseEnd['kind']): LeaseEnd {
  return { kind, message: `It is ${kind}.`, cause: new Error(kind) };
}

interface RunningBody {
  readonly held: HeldSession;
  readonly attempt: number;
  /** Ends the body. */
  readonly end: (end: BodyEnd<string>, hitByLoss?: boolean) => Promise<void>;
}

/** A session under test. Its body ends when it is lost, or when the test says so. */
function own(changes: Partial<SessionContract> = {}, handle?: SessionHandle) {
  const runtime = new FakeRuntime();
  const bodies: RunningBody[] = [];
  const result: { outcome: unknown } = { outcome: 'pending' };
  ownSession<string>(
    runtime,
    { ...CONTRACT, ...changes },
    (held, attempt) =>
      new Promise((resolve) => {
        held.onLoss((loss) => {
          resolve({ kind: 'threw', error: loss.failure, continuesAsNew: false, hitByLoss: true });
        });
        bodies.push({
          held,
          attempt,
          end: async (end, hitByLoss = false) => {
            resolve({ ...end, hitByLoss });
            await runtime.turn();
          },
        });
      }),
    handle,
  ).then(
    (value) => (result.outcome = value),
    (error: unknown) => (result.outcome = error),
  );
  return { runtime, bodies, result };
}

/** The same, with the first lease granted by worker `w`. */
async function held(changes: Partial<SessionContract> = {}) {
  const owner = own(changes);
  await owner.runtime.turn();
  expect(await owner.runtime.grant('g1')).toBe(true);
  expect(owner.bodies).toHaveLength(1);
  owner.runtime.journal.splice(0);
  return owner;
}

const RETURNED: BodyEnd<string> = { kind: 'returned', value: 'done' };

/** Ends the newest body well, which must end the session well and leave nothing. */
async function endsWell({ runtime, bodies, result }: ReturnType<typeof own>): Promise<void> {
  await bodies.at(-1)!.end(RETURNED);
  expect(result.outcome).toBe('done');
  expect([runtime.waiterCount, runtime.inbox]).toEqual([0, undefined]);
}

describe('an acquisition', () => {
  it('schedules a lease, takes its grant, runs the body and gives the slot back', async () => {
    const owner = await held();
    const { runtime, bodies } = owner;
    expect(bodies[0]).toMatchObject({ attempt: 1, held: { grant: { grantId: 'g1' }, expiresAtMs: 3_600_000 } });
    await endsWell(owner);
    expect(runtime.journal).toEqual(['release g1']);
    expect(runtime.leases[0]!.cancelled).toBe(false);
  });

  it('takes the same grant twice and no other that is not of its lease', async () => {
    const { runtime, bodies } = await held();
    expect(await runtime.grant('g1')).toBe(true);
    expect(await runtime.grant('g0', { epoch: 0 })).toBe(false);
    expect(bodies[0]!.held.lost()).toBeUndefined();
  });

  it('that no worker grants fails with AcquireTimeout in time, and cancels its lease', async () => {
    const { runtime, result } = own({ acquireTimeoutMs: 5_000, capabilities: ['ocr', 'gpu'] });
    await runtime.advance(4_999);
    expect(result.outcome).toBe('pending');
    await runtime.advance(1);
    expect(result.outcome).toMatchObject({ code: 'AcquireTimeout' });
    expect((result.outcome as Error).message).toContain('"gpu+ocr"');
    expect(runtime.journal).toEqual(['acquire 1', 'cancel 1']);
    // A grant that was on its way finds nobody, which has it released.
    expect(runtime.inbox).toBeUndefined();
  });

  it('that is cancelled cancels its lease, and a grant that is on its way finds nobody', async () => {
    const { runtime, result } = own();
    await runtime.turn();
    await runtime.cancel();
    expect(result.outcome).toMatchObject({ code: 'Cancelled' });
    expect([runtime.journal, runtime.inbox]).toEqual([['acquire 1', 'cancel 1'], undefined]);
    expect(await runtime.grant('g1')).toBe(false);
  });

  it('that is cancelled together with its grant releases that', async () => {
    const { runtime, result } = own();
    await runtime.turn();
    // Both in one activation: the grant is there when the wait is cancelled.
    expect(runtime.inbox!.granted(grantOf('g1'))).toBe(true);
    await runtime.cancel();
    expect(result.outcome).toMatchObject({ code: 'Cancelled' });
    expect(runtime.journal).toEqual(['acquire 1', 'cancel 1', 'release g1']);
  });

  it.each(['silent', 'given-up'] as const)('whose lease is %s before its grant asks another worker', async (kind) => {
    const owner = own({ acquireTimeoutMs: 5_000 });
    const { runtime, bodies } = owner;
    await runtime.advance(2_000);
    await runtime.endLease(kind);
    // Not at once where the worker had an answer: it would have the same one again.
    if (kind === 'given-up') expect(runtime.journal).toEqual(['acquire 1']);
    await runtime.advance(1_000);
    expect(runtime.journal).toEqual(['acquire 1', 'acquire 2']);
    expect(await runtime.grant('late', { epoch: 1 })).toBe(false);
    expect(await runtime.grant('g2')).toBe(true);
    expect(bodies).toMatchObject([{ attempt: 1, held: { grant: { grantId: 'g2' } } }]);
    await endsWell(owner);
  });

  it('is tried once without a timer where there is time, and then for as long as it takes', async () => {
    const owner = own({ acquireTimeoutMs: 600_000, leaseTtlMs: 60_000 });
    const { runtime, result } = owner;
    await runtime.turn();
    expect(runtime.leases.map(({ spec }) => spec)).toMatchObject([{ scheduleToStartMs: 60_000 }]);
    expect(runtime.timerCount).toBe(0);
    await runtime.advance(60_000);
    await runtime.endLease('not-taken');
    expect(runtime.leases.map(({ spec }) => spec)).toMatchObject([{}, { scheduleToStartMs: null }]);
    await runtime.advance(539_999);
    expect(result.outcome).toBe('pending');
    await runtime.advance(1);
    expect(result.outcome).toMatchObject({ code: 'AcquireTimeout' });
    // A fleet that is full costs no lease beside the one that waits in the queue.
    expect(runtime.journal).toEqual(['acquire 1', 'acquire 2', 'cancel 2']);
  });

  it('has a timer from the start where a lease that falls silent would outlast it', async () => {
    const { runtime } = own({ acquireTimeoutMs: 179_999, leaseTtlMs: 60_000 });
    await runtime.turn();
    expect(runtime.leases.map(({ spec }) => spec)).toMatchObject([{ scheduleToStartMs: null }]);
    expect(runtime.timerCount).toBe(1);
  });

  it('after a loss asks for further leases beside the first, which a dead worker may have taken', async () => {
    const owner = own();
    const { runtime, bodies } = owner;
    await runtime.turn();
    await runtime.grant('g1');
    await runtime.endLease('given-up');
    await runtime.advance(4_999);
    expect(runtime.journal).toEqual(['acquire 1', 'cancel 1', 'acquire 2']);
    await runtime.advance(1);
    expect(runtime.journal.at(-1)).toBe('acquire 3');
    await runtime.advance(10_000);
    expect(runtime.journal.at(-1)).toBe('acquire 4');
    await runtime.advance(60_000);
    expect(runtime.journal.at(-1)).toBe('acquire 4');
    // Any of them may be granted; the others are given back, also those that are granted later.
    expect(await runtime.grant('g3', { epoch: 3 })).toBe(true);
    expect(runtime.journal.slice(-2)).toEqual(['cancel 2', 'cancel 4']);
    expect(await runtime.grant('g2', { epoch: 2 })).toBe(false);
    expect(bodies).toMatchObject([{ attempt: 1 }, { attempt: 2, held: { grant: { grantId: 'g3' } } }]);
    await endsWell(owner);
  });

  it('has one timeout, however many leases it needs', async () => {
    const { runtime, result } = own({ acquireTimeoutMs: 5_000 });
    await runtime.advance(3_000);
    await runtime.endLease('silent');
    await runtime.advance(2_000);
    expect(result.outcome).toMatchObject({ code: 'AcquireTimeout' });
  });

  it('that will never be granted fails with the reason', async () => {
    const { runtime, result } = own();
    await runtime.turn();
    await runtime.endLease('refused');
    expect(result.outcome).toMatchObject({ message: 'refused' });
  });
});

describe('a body', () => {
  it('that throws ends the session with its error', async () => {
    const { runtime, bodies, result } = await held();
    const error = new Error('business');
    await bodies[0]!.end({ kind: 'threw', error, continuesAsNew: false });
    expect(result.outcome).toBe(error);
    expect(runtime.journal).toEqual(['release g1']);
  });

  it('whose slot can not be given back cancels the lease, and its value stands without a wait', async () => {
    const { runtime, bodies, result } = await held();
    runtime.releaseAnswers = false;
    await bodies[0]!.end(RETURNED);
    expect(result.outcome).toBe('done');
    expect(runtime.journal).toEqual(['release g1', 'cancel 1']);
  });

  it('that continues as new with a handle keeps the slot', async () => {
    const { runtime, bodies, result } = await held();
    const handle = bodies[0]!.held.handle(1);
    expect(handle).toMatchObject({
      version: 1,
      epoch: 1,
      attempt: 1,
      grant: { grantId: 'g1' },
      expiresAtMs: 3_600_000,
    });
    const error = new Error('continue as new');
    await bodies[0]!.end({ kind: 'threw', error, continuesAsNew: true });
    expect(result.outcome).toBe(error);
    expect(runtime.journal).toEqual([]);
  });

  it.each([
    ['without a handle', false, true],
    ['that takes a handle but fails', true, false],
  ])('%s gives the slot back', async (_, takesHandle, continuesAsNew) => {
    const { runtime, bodies } = await held();
    if (takesHandle) bodies[0]!.held.handle(1);
    await bodies[0]!.end({ kind: 'threw', error: new Error('any'), continuesAsNew });
    expect(runtime.journal).toEqual(['release g1']);
  });

  it.each([
    [true, 2],
    [false, 1],
  ])('that swallowed a loss (an activity was hit: %s) is run %d times', async (hitByLoss, runs) => {
    const { runtime, bodies, result } = await held();
    // It returns in the same activation in which it learns of the loss.
    const ended = bodies[0]!.end(RETURNED, hitByLoss);
    bodies[0]!.held.lose('SessionLost', new Error('lost'), true);
    await ended;
    await runtime.turn();
    expect(result.outcome).toBe(runs === 1 ? 'done' : 'pending');
    expect(runtime.journal.filter((line) => line.startsWith('acquire'))).toHaveLength(runs - 1);
  });
});

describe('a second grant', () => {
  it('in the same moment as the first has both released, too', async () => {
    const { runtime, bodies } = own();
    await runtime.turn();
    expect(runtime.inbox!.granted(grantOf('g1'))).toBe(true);
    expect(runtime.inbox!.granted(grantOf('g2', { worker: 'x' }))).toBe(true);
    await runtime.advance(65_000);
    expect(runtime.journal.slice(0, 3)).toEqual(['acquire 1', 'release g1', 'release g2']);
    await runtime.grant('g3');
    expect(bodies.map(({ attempt }) => attempt)).toEqual([1, 2]);
  });

  it('of an owner that is cancelled just then has both released', async () => {
    const { runtime } = own();
    await runtime.turn();
    expect(runtime.inbox!.granted(grantOf('g1'))).toBe(true);
    expect(runtime.inbox!.granted(grantOf('g2', { worker: 'x' }))).toBe(true);
    await runtime.cancel();
    expect(runtime.journal).toEqual(['acquire 1', 'cancel 1', 'release g1', 'release g2']);
  });

  it('by another worker has both released and the body run again', async () => {
    const owner = await held();
    const { runtime, bodies } = owner;
    expect(await runtime.grant('g2', { worker: 'x' })).toBe(true);
    expect(runtime.journal).toEqual(['release g1', 'release g2', 'acquire 2']);
    await runtime.grant('g3');
    expect(bodies.map(({ attempt }) => attempt)).toEqual([1, 2]);
    await endsWell(owner);
  });

  it('waits for the fence where a release is not answered, also when the lease was ended: the other worker had it', async () => {
    const { runtime } = await held();
    runtime.releaseAnswers = false;
    await runtime.grant('g2', { worker: 'x' });
    await runtime.endLease('given-up');
    await runtime.advance(64_999);
    expect(runtime.journal.at(-1)).toBe('cancel 1');
    await runtime.advance(1);
    expect(runtime.journal.at(-1)).toBe('acquire 2');
  });
});

describe('a suspicion', () => {
  it('that the worker denies changes nothing, and the next is looked into again', async () => {
    const owner = await held();
    const { runtime, bodies } = owner;
    runtime.confirmations.push('held', 'held');
    await runtime.suspect();
    await runtime.suspect();
    expect(runtime.journal).toEqual(['confirm g1 5000', 'confirm g1 5000']);
    expect(bodies).toHaveLength(1);
    await endsWell(owner);
  });

  it('of another worker is not looked into', async () => {
    const { runtime } = await held();
    await runtime.suspect('queue-x');
    expect(runtime.journal).toEqual([]);
  });

  it('is looked into once, however often it is raised', async () => {
    const { runtime } = await held();
    runtime.confirmations.push(new Promise(() => undefined));
    await runtime.suspect();
    await runtime.suspect();
    expect(runtime.journal).toEqual(['confirm g1 5000']);
  });

  it.each([
    ['unknown', 'The worker no longer holds it.'],
    ['no-answer', 'The worker was suspected, and did not answer within 5s.'],
  ] as const)('that ends with %s redoes at once: the fence has fallen', async (answer, reason) => {
    const owner = await held();
    const { runtime, bodies } = owner;
    runtime.confirmations.push(answer);
    await runtime.suspect();
    expect(bodies[0]!.held.lost()?.failure.message).toBe(`The session s on w was lost. ${reason}`);
    // The lease is cancelled: the worker may live and would renew it for ever.
    expect(runtime.journal).toEqual(['confirm g1 5000', 'cancel 1', 'acquire 2']);
    await runtime.grant('g2');
    expect(bodies.map(({ attempt }) => attempt)).toEqual([1, 2]);
    await endsWell(owner);
  });

  it('that the body outlives does not end it', async () => {
    const owner = await held();
    owner.runtime.confirmations.push(new Promise(() => undefined));
    await owner.runtime.suspect();
    await endsWell(owner);
  });

  it.each(['asked', 'suspected'] as const)('comes from a worker that asks, too (%s)', async (how) => {
    const { runtime } = await held();
    runtime.confirmations.push('held');
    if (how === 'asked') expect(runtime.inbox!.asked(grantOf('g1'))).toBe(true);
    else runtime.inbox!.suspected('queue-w');
    await runtime.turn();
    expect(runtime.journal).toEqual(['confirm g1 5000']);
  });

  it('of a grant that is not held any more is answered with a release', async () => {
    const { runtime, bodies } = await held();
    expect(runtime.inbox!.asked(grantOf('g0'))).toBe(false);
    const { inbox } = runtime;
    bodies[0]!.held.lose('SessionLost', new Error('lost'), true);
    expect(inbox!.asked(grantOf('g1'))).toBe(false);
  });
});

describe('a lease that is silent', () => {
  it('is replaced by an adoption, and nothing is redone', async () => {
    const owner = await held();
    const { runtime, bodies } = owner;
    await runtime.advance(10_000);
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual(['confirm g1 11000', 'adopt 2']);
    expect(runtime.leases[1]!.spec).toEqual({
      kind: 'adopt',
      epoch: 2,
      grant: grantOf('g1'),
      scheduleToStartMs: PRESENCE_TTL_MS + 5_000,
      durationMs: 3_590_000,
    });
    expect(await runtime.grant('g1')).toBe(true);
    expect(bodies).toHaveLength(1);
    expect(bodies[0]!.held.grant).toMatchObject({ grantId: 'g1', epoch: 2 });
    expect(bodies[0]!.held.handle(1).epoch).toBe(2);
    await endsWell(owner);
    expect(runtime.journal).toEqual(['confirm g1 11000', 'adopt 2', 'release g1']);
  });

  it('that an operator ended together with its owner is not acquired again', async () => {
    const { runtime, bodies, result } = await held();
    await runtime.endLease({ kind: 'released', message: 'ops released it by force.', cause: new Error('released') });
    expect(bodies).toHaveLength(1);
    expect(result.outcome).toMatchObject({
      code: 'SessionReleased',
      message: 'The session s on w was ended by an operator. ops released it by force.',
    });
    // The worker has let go of it already: nothing is asked of it, and no fence is waited for.
    expect(runtime.journal).toEqual(['cancel 1']);
    expect([runtime.now(), runtime.waiterCount]).toEqual([0, 0]);
  });

  it('that an operator ended before its grant fails the acquisition', async () => {
    const { runtime, bodies, result } = own();
    await runtime.turn();
    const cause = new Failure('SessionReleased', 'ops released it by force.');
    await runtime.endLease({ kind: 'released', message: cause.message, cause });
    expect([bodies.length, result.outcome]).toEqual([0, cause]);
  });

  it('is watched again after its adoption', async () => {
    const { runtime } = await held();
    await runtime.endLease('silent');
    await runtime.grant('g1');
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual(['confirm g1 11000', 'adopt 2', 'confirm g1 11000', 'adopt 3']);
  });

  it('is adopted when the suspicion came first', async () => {
    const { runtime, bodies } = await held();
    let answer: (confirmation: Confirmation) => void = () => undefined;
    runtime.confirmations.push(new Promise((resolve) => (answer = resolve)));
    await runtime.suspect();
    await runtime.endLease('silent');
    answer('no-answer');
    await runtime.turn();
    expect(runtime.journal).toEqual(['confirm g1 5000', 'confirm g1 11000', 'adopt 2']);
    await runtime.grant('g1');
    expect(bodies[0]!.held.lost()).toBeUndefined();
  });

  it('is adopted when it fell silent while the worker said that it holds the session', async () => {
    const { runtime } = await held();
    let answer: (confirmation: Confirmation) => void = () => undefined;
    runtime.confirmations.push(new Promise((resolve) => (answer = resolve)));
    await runtime.suspect();
    await runtime.endLease('silent');
    answer('held');
    await runtime.turn();
    expect(runtime.journal).toEqual(['confirm g1 5000', 'adopt 2']);
  });

  it.each([
    // The window has passed with nobody to take it.
    ['not-taken', ['confirm g1 11000', 'adopt 2', 'cancel 1', 'cancel 2', 'acquire 3']],
    // The worker itself says that nothing is left.
    ['given-up', ['confirm g1 11000', 'adopt 2', 'cancel 1', 'cancel 2', 'acquire 3']],
    ['refused', ['confirm g1 11000', 'adopt 2', 'cancel 1', 'cancel 2', 'acquire 3']],
  ] as const)('and whose adoption is %s redoes at once', async (kind, journal) => {
    const { runtime, bodies } = await held();
    await runtime.endLease('silent');
    await runtime.endLease(kind);
    expect(runtime.journal).toEqual(journal);
    expect(bodies[0]!.held.lost()).toMatchObject({ code: 'SessionLost', failure: { cause: { message: kind } } });
  });

  it.each([
    ['unknown', 'The worker no longer holds it.'],
    ['no-answer', 'The worker was suspected, and did not answer within 11s.'],
  ] as const)('and whose worker says %s is not adopted, and is redone at once', async (answer, reason) => {
    const { runtime, bodies } = await held();
    runtime.confirmations.push(answer);
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual(['confirm g1 11000', 'cancel 1', 'acquire 2']);
    expect(bodies[0]!.held.lost()?.failure.message).toBe(`The session s on w was lost. ${reason}`);
  });

  it('and whose adoption falls silent is asked for again before the next one', async () => {
    const { runtime } = await held();
    await runtime.endLease('silent');
    runtime.confirmations.push('no-answer');
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual([
      'confirm g1 11000',
      'adopt 2',
      'confirm g1 11000',
      'cancel 1',
      'cancel 2',
      'acquire 3',
    ]);
  });

  it('is adopted again for as long as the worker takes the question, five times; then the fence is waited out', async () => {
    const { runtime } = await held();
    await runtime.endLease('silent');
    for (let tries = 1; tries <= 5; tries += 1) await runtime.endLease('silent');
    expect(runtime.journal.filter((line) => line.startsWith('adopt'))).toHaveLength(5);
    expect(runtime.journal.filter((line) => line.startsWith('acquire'))).toEqual([]);
    await runtime.advance(64_999);
    expect(runtime.journal.filter((line) => line.startsWith('acquire'))).toEqual([]);
    await runtime.advance(1);
    expect(runtime.journal.at(-1)).toBe('acquire 7');
  });

  it('is not adopted once its time is over', async () => {
    const { runtime, result } = await held({ maxDurationMs: 20_000 });
    await runtime.advance(20_000);
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual(['confirm g1 11000', 'release g1']);
    expect(result.outcome).toMatchObject({ code: 'SessionExpired' });
    expect((result.outcome as Error).message).toContain('maximum duration of 20s');
  });

  it('of an older epoch does not matter any more', async () => {
    const owner = await held();
    const { runtime, bodies } = owner;
    await runtime.endLease('silent');
    await runtime.grant('g1');
    await runtime.endLease('given-up', runtime.leases[0]);
    expect(bodies[0]!.held.lost()).toBeUndefined();
    await endsWell(owner);
  });
});

describe('a lease that the worker ends', () => {
  it('by giving the session up redoes the body', async () => {
    const { runtime, bodies } = await held();
    await runtime.endLease('given-up');
    expect(runtime.journal).toEqual(['cancel 1', 'acquire 2']);
    await runtime.grant('g2');
    expect(bodies.map(({ attempt }) => attempt)).toEqual([1, 2]);
  });

  it('because it has expired fails, and is not redone', async () => {
    const { runtime, result } = await held();
    await runtime.endLease({ kind: 'expired', message: 'No pinned activity ran for 10s.', cause: new Error('cause') });
    expect(runtime.journal).toEqual(['release g1']);
    expect(result.outcome).toMatchObject({
      code: 'SessionExpired',
      message: 'The session s on w has expired. No pinned activity ran for 10s.',
    });
  });

  it('because it has expired fails also when the worker was suspected just then', async () => {
    const { runtime, result } = await held();
    let answer: (confirmation: Confirmation) => void = () => undefined;
    runtime.confirmations.push(new Promise((resolve) => (answer = resolve)));
    await runtime.suspect();
    await runtime.endLease('expired');
    answer('unknown');
    await runtime.turn();
    expect(runtime.journal).toEqual(['confirm g1 5000', 'release g1']);
    expect(result.outcome).toMatchObject({ code: 'SessionExpired' });
  });
});

describe('a loss', () => {
  it('whose release is not answered cancels the lease and waits the fence out before the redo', async () => {
    const { runtime, bodies } = await held();
    runtime.releaseAnswers = false;
    bodies[0]!.held.lose('SessionLost', new Error('refused'), true);
    await runtime.advance(64_999);
    expect(runtime.journal).toEqual(['release g1', 'cancel 1']);
    await runtime.advance(1);
    expect(runtime.journal.at(-1)).toBe('acquire 2');
  });

  it('waits for no fence once the cancelled lease was ended by the worker, but for one that is silent', async () => {
    const { runtime, bodies } = await held();
    runtime.releaseAnswers = false;
    bodies[0]!.held.lose('SessionLost', new Error('refused'), true);
    await runtime.advance(1_000);
    await runtime.endLease('silent');
    expect(runtime.journal).toEqual(['release g1', 'cancel 1']);
    await runtime.endLease('given-up');
    expect(runtime.journal.at(-1)).toBe('acquire 2');
  });

  it('waits for the fence also when the owner is cancelled meanwhile', async () => {
    const { runtime, bodies, result } = await held();
    runtime.releaseAnswers = false;
    bodies[0]!.held.lose('SessionLost', new Error('refused'), true);
    await runtime.turn();
    await runtime.cancel();
    expect(result.outcome).toBe('pending');
    await runtime.advance(65_000);
    expect(result.outcome).toMatchObject({ code: 'Cancelled' });
    expect(runtime.inbox).toBeUndefined();
  });

  it('with onLost fail fails with what was lost', async () => {
    const { runtime, result } = await held({ onLost: 'fail' });
    runtime.confirmations.push('unknown');
    await runtime.suspect();
    expect(result.outcome).toMatchObject({ code: 'SessionLost' });
    expect(runtime.journal).toEqual(['confirm g1 5000', 'cancel 1']);
  });

  it('is redone as often as maxReacquisitions says', async () => {
    const { runtime, bodies, result } = await held({ maxReacquisitions: 2 });
    for (const next of ['g2', 'g3']) {
      await runtime.endLease('given-up');
      await runtime.grant(next);
    }
    expect(bodies.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    await runtime.endLease('given-up');
    expect(result.outcome).toMatchObject({
      code: 'SessionReacquisitionsExhausted',
      cause: { code: 'SessionLost', cause: { message: 'given-up' } },
    });
    expect((result.outcome as Error).message).toContain('lost 3 times');
    expect(runtime.waiterCount).toBe(0);
  });
});

describe('a session of the run before', () => {
  const handle: SessionHandle = {
    version: 1,
    grant: grantOf('g1', { epoch: 2 }),
    epoch: 4,
    attempt: 2,
    expiresAtMs: 50_000,
  };

  it('is adopted with what remains of its duration, and its body goes on with its attempt', async () => {
    const owner = own({}, handle);
    const { runtime, bodies } = owner;
    await runtime.turn();
    // Epochs go on after those of the run before.
    expect(runtime.leases[0]!.spec).toMatchObject({
      kind: 'adopt',
      epoch: 5,
      scheduleToStartMs: PRESENCE_TTL_MS + 5_000,
      durationMs: 50_000,
    });
    await runtime.grant('g1');
    expect(bodies).toMatchObject([{ attempt: 2, held: { expiresAtMs: 50_000, grant: { epoch: 5 } } }]);
    await endsWell(owner);
    expect(runtime.journal).toEqual(['adopt 5', 'release g1']);
  });

  it('that is lost is acquired again, as the next attempt', async () => {
    const { runtime, bodies } = own({}, handle);
    await runtime.turn();
    await runtime.endLease('not-taken');
    expect(runtime.journal).toEqual(['adopt 5', 'cancel 5', 'acquire 6']);
    await runtime.grant('g2');
    expect(bodies).toMatchObject([{ attempt: 3, held: { grant: { grantId: 'g2' } } }]);
  });

  it.each([
    [{ onLost: 'fail' as const }, 'SessionLost'],
    [{ maxReacquisitions: 1 }, 'SessionReacquisitionsExhausted'],
  ])('that is lost fails with %j', async (changes, code) => {
    const { runtime, result } = own(changes, handle);
    await runtime.turn();
    await runtime.endLease('given-up');
    expect(result.outcome).toMatchObject({ code });
    expect(runtime.journal).toEqual(['adopt 5', 'cancel 5']);
  });

  it('that has expired fails, and its slot is given back', async () => {
    const { runtime, result } = own({}, { ...handle, expiresAtMs: 0 });
    await runtime.turn();
    expect(result.outcome).toMatchObject({ code: 'SessionExpired' });
    expect(runtime.journal).toEqual(['release g1']);
  });

  it('that the worker has expired fails', async () => {
    const { runtime, result } = own({}, handle);
    await runtime.turn();
    await runtime.endLease('expired');
    expect(result.outcome).toMatchObject({ code: 'SessionExpired' });
  });
});
