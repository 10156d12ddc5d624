/**
 * The session keeper under random schedules: owners that acquire and release, a clock, an executor that dies, Temporal
 * that goes away, crashes of the daemon and of its host between any two answers. After every step the promises that a
 * worker can keep by itself must hold; at the end, with Temporal back, nothing may be left hanging.
 */
import fc from 'fast-check';
import { describe, it } from 'vitest';
import type { Grant, ReleaseRequest } from '../../src/contract/session.js';
import type { LedgerRecord } from '../../src/daemon/session-table.js';
import {
  adoptTask,
  confirmTask,
  FakeClock,
  FakeWorker,
  leaseTask,
  pinnedAttempt,
  settle,
} from '../support/fake-ports.js';

const CAP = 2;
const SESSIONS = ['a', 'b', 'c', 'd'];

/** Those whose state is in the memory of the executor. */
const IN_MEMORY = new Set(['c', 'd']);

const session = fc.constantFrom(...SESSIONS);
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('acquire' as const), session }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('acquire again' as const), session }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('release' as const), session }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('adopt' as const), session }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('confirm' as const), session }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('presence' as const), gone: fc.boolean() }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('begin' as const), session }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('end' as const), pick: fc.nat() }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.constantFrom(200, 2_000, 31_000) }) },
  { weight: 14, arbitrary: fc.record({ kind: fc.constant('answer' as const), pick: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('executor dies' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('temporal' as const), away: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('script' as const),
      what: fc.constantFrom(
        'not-found' as const,
        'cancel-requested' as const,
        'gone' as const,
        'closed' as const,
        'continued' as const,
        'asked in vain' as const,
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('disk' as const), full: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('crash' as const), host: fc.boolean(), lost: fc.nat() }) },
);

/** Answers that are on their way; the schedule decides which comes next. */
class Pending {
  private readonly waiting: (() => void)[] = [];
  /** Set when the process that waited is dead: its answers reach nobody. */
  dead = false;

  pace = async <T>(_: string, value: () => T): Promise<T> => {
    await new Promise<void>((resolve) => this.waiting.push(resolve));
    // Never settles, as nothing does in a process that is gone.
    if (this.dead) await new Promise<never>(() => undefined);
    return value();
  };

  get count(): number {
    return this.waiting.length;
  }

  async answer(pick: number): Promise<void> {
    this.waiting.splice(pick % Math.max(1, this.waiting.length), 1)[0]?.();
    await settle();
  }
}

class World {
  private readonly clock = new FakeClock();
  private pending = new Pending();
  private lives = 0;
  private worker = this.life([], new Map());
  private readonly epochs = new Map<string, number>();
  private readonly running = new Map<string, { session: string; epoch: number; incarnation: string }>();
  /** The executor that ran the first attempt of each grant in memory. */
  private readonly homes = new Map<string, string>();
  private attempts = 0;
  private grants = 0;
  private readonly signalled = new Set<string>();
  private away = false;
  private full = false;

  private life(records: readonly LedgerRecord[], directories: ReadonlyMap<string, number>): FakeWorker {
    this.pending = new Pending();
    const worker = new FakeWorker({
      rules: { cap: CAP, reserve: {} },
      clock: this.clock,
      pace: this.pending.pace,
      records,
      directories,
      newGrantId: () => `grant-${(this.grants += 1)}`,
      firstLife: (this.lives += 1) * 1_000,
    });
    worker.executor.onEnd = async () => {
      // With the process go its attempts, and only then the supervisor hears of it.
      if (this.worker === worker) this.running.clear();
      await worker.keeper.failAttempts();
    };
    return worker;
  }

  async run(each: typeof step extends fc.Arbitrary<infer S> ? S : never): Promise<void> {
    const { worker } = this;
    switch (each.kind) {
      case 'acquire':
      case 'acquire again': {
        const epoch = (this.epochs.get(each.session) ?? 0) + (each.kind === 'acquire' ? 1 : 0);
        if (epoch === 0) break;
        this.epochs.set(each.session, epoch);
        const task = leaseTask(each.session, {
          epoch,
          token: `token-${(this.attempts += 1)}`,
          leaseTtlMs: 6_000,
          state: IN_MEMORY.has(each.session) ? 'memory' : 'disk',
        });
        void worker.keeper.acquire(task).catch((error: Error & { code?: string }) => {
          if (error.code !== 'NoFreeSlot' && error.code !== 'SessionLost') this.failure ??= error;
        });
        break;
      }
      case 'release':
        void worker.keeper.release(this.releaseOf(each.session)).catch(this.note);
        break;
      case 'adopt':
      case 'confirm': {
        const entry = worker.table.session(`${each.session}.run`);
        // An owner knows no grant that it was not told.
        if (entry === undefined || !this.signalled.has(entry.grantId)) break;
        const { grantId } = entry;
        let answered: Promise<void>;
        if (each.kind === 'adopt') {
          const epoch = (this.epochs.get(each.session) ?? 0) + 1;
          this.epochs.set(each.session, epoch);
          const token = `token-${(this.attempts += 1)}`;
          answered = worker.keeper.adopt(adoptTask(each.session, { epoch, grantId, token }));
        } else answered = worker.keeper.confirm(confirmTask(each.session, grantId));
        answered.catch((error: Error & { code?: string }) => {
          if (error.code === 'SessionLost') this.checkUnknown(worker, entry.key, grantId);
          else if (error.message !== 'Unavailable') this.failure ??= error;
        });
        break;
      }
      case 'presence':
        if (each.gone) worker.keeper.presenceGone();
        else worker.keeper.presenceAnswered(this.clock.monotonicMs());
        break;
      case 'begin': {
        const epoch = this.epochs.get(each.session) ?? 1;
        const attempt = pinnedAttempt(each.session, {
          epoch,
          attempt: (this.attempts += 1),
          incarnation: worker.executor.incarnation(),
        });
        const entry = worker.table.session(`${each.session}.run`);
        const held =
          entry !== undefined && entry.acquiredEpoch <= epoch && epoch <= entry.epoch && entry.state !== 'releasing';
        // Where it is not clear whether the session is still the owner's, the answer waits for one of the server.
        worker.keeper.beginAttempt(attempt).then(
          () => {
            if (!held) this.failure ??= new Error(`An attempt of ${each.session} began.`);
            // The executor may have died since; nothing runs then.
            if (worker.executor.incarnation() === attempt.incarnation && this.worker === worker)
              this.running.set(attempt.id, { session: each.session, epoch, incarnation: attempt.incarnation });
          },
          (error: Error & { code?: string }) => {
            const allowed = held ? ['AttemptFenced', 'SessionLost', 'ExecutorDied'] : ['SessionLost'];
            if (!allowed.includes(error.code ?? '')) this.failure ??= error;
          },
        );
        break;
      }
      case 'end': {
        const id = [...this.running.keys()][each.pick % Math.max(1, this.running.size)];
        if (id === undefined) break;
        this.running.delete(id);
        void worker.keeper.endAttempt(id).catch(this.note);
        break;
      }
      case 'pass':
        await this.clock.advance(each.ms);
        void worker.keeper.tick().catch(this.note);
        break;
      case 'answer':
        await this.pending.answer(each.pick);
        break;
      case 'executor dies':
        void worker.executor.die().catch(this.note);
        break;
      case 'temporal':
        this.away = each.away;
        worker.temporal.unavailable = each.away;
        break;
      case 'script':
        if (each.what === 'gone') worker.temporal.answer('signalGrant', 'gone');
        else if (each.what === 'closed' || each.what === 'continued')
          worker.temporal.answer('describeOwner', each.what);
        else if (each.what === 'asked in vain') worker.temporal.answer('askOwner', 'gone');
        else worker.temporal.answer('heartbeat', each.what);
        break;
      case 'disk':
        this.full = each.full;
        this.applyDisk();
        break;
      case 'crash':
        await this.crash(each.host, each.lost);
        break;
    }
    await settle();
    this.check();
  }

  private failure: Error | undefined;
  private readonly note = (error: unknown): void => {
    this.failure ??= error as Error;
  };

  private releaseOf(name: string): ReleaseRequest {
    return { session: name, grantId: this.worker.table.session(`${name}.run`)?.grantId ?? 'none' };
  }

  /** An owner that was told that its session is not held runs the body again: nothing of it may run any more. */
  private checkUnknown(worker: FakeWorker, key: string, grantId: string): void {
    if (worker !== this.worker) return;
    const entry = worker.table.session(key);
    if (entry?.grantId === grantId && entry.state !== 'releasing') return;
    if (entry?.grantId === grantId) this.failure ??= new Error(`${key} was called unknown before it had ended.`);
  }

  private applyDisk(): void {
    const error = this.full ? new Error('ENOSPC') : undefined;
    this.worker.ledger.fault = () => error;
    this.worker.scratch.fault = (operation) => (operation === 'create' ? error : undefined);
  }

  /** The process dies, or its host; a new one starts from what the ledger then holds. */
  private async crash(host: boolean, lost: number): Promise<void> {
    const { ledger, scratch } = this.worker;
    this.pending.dead = true;
    const atLeast = host ? ledger.durableCount : ledger.writtenCount;
    const kept = ledger.records.length - (lost % (ledger.records.length - atLeast + 1));
    const records = [...this.worker.initialRecords, ...ledger.records.slice(0, kept)];
    // The new supervisor ends the group of the old executor before anything else.
    this.running.clear();
    this.worker = this.life(records, new Map(scratch.directories));
    this.worker.temporal.unavailable = this.away;
    this.applyDisk();
    const { keeper } = this.worker;
    let resumed = false;
    const start = (async () => {
      await keeper.failAttempts();
      await keeper.resume();
    })().then(() => {
      resumed = true;
    }, this.note);
    while (!resumed && this.failure === undefined) await this.pending.answer(0);
    await start;
    this.sweep();
  }

  /** What the daemon does after it has resumed: directories without a session are orphans. */
  private sweep(): void {
    for (const key of this.worker.scratch.directories.keys())
      if (this.worker.table.session(key) === undefined) this.worker.scratch.directories.delete(key);
  }

  /** What must hold at every moment. */
  private check(): void {
    if (this.failure !== undefined) throw this.failure as Error;
    const { table, scratch, temporal } = this.worker;
    for (const [, grant] of temporal.callsOf('signalGrant')) this.signalled.add((grant as Grant).grantId);
    if (table.sessionCount > CAP) throw new Error(`${table.sessionCount} sessions, but the cap is ${CAP}.`);
    for (const { session: owner, epoch, incarnation } of this.running.values()) {
      const entry = table.session(`${owner}.run`);
      if (entry === undefined || epoch < entry.acquiredEpoch || epoch > entry.epoch)
        throw new Error(`An attempt of ${owner} runs, but its session is gone.`);
      if (!IN_MEMORY.has(owner)) continue;
      const home = this.homes.get(entry.grantId) ?? incarnation;
      this.homes.set(entry.grantId, home);
      if (home !== incarnation) throw new Error(`An attempt of ${owner} runs in ${incarnation}, not in ${home}.`);
    }
    for (const entry of table.sessions())
      if (entry.state === 'held' && !scratch.directories.has(entry.key))
        throw new Error(`${entry.key} is held without its scratch directory.`);
  }

  /** Temporal is back, every activity honours its cancellation, every owner releases: all must be free. */
  async end(): Promise<void> {
    this.away = false;
    this.full = false;
    this.worker.temporal.unavailable = false;
    this.applyDisk();
    const drain = async (): Promise<void> => {
      while (this.pending.count > 0) await this.pending.answer(0);
    };
    await drain();
    for (const id of this.running.keys()) await Promise.race([this.worker.keeper.endAttempt(id), drain()]);
    this.running.clear();
    for (let round = 0; round < 5; round += 1) {
      await this.clock.advance(31_000);
      void this.worker.keeper.tick().catch(this.note);
      await settle();
      await drain();
    }
    for (const each of SESSIONS) void this.worker.keeper.release(this.releaseOf(each)).catch(this.note);
    await settle();
    await drain();
    this.check();
    const { table, scratch } = this.worker;
    if (table.sessionCount > 0) throw new Error(`Never ended: ${JSON.stringify(table.sessions())}`);
    if (table.attempts().length > 0) throw new Error(`Never ended: ${JSON.stringify(table.attempts())}`);
    if (scratch.directories.size > 0) throw new Error(`Left: ${[...scratch.directories.keys()].join(', ')}`);
    if (scratch.trash > 0) throw new Error('A scratch directory was moved away and never deleted.');
    if (this.clock.timerCount > 0) throw new Error('A timer was left.');
  }
}

describe('the session keeper', () => {
  it('keeps its promises under every schedule', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 120 }), async (steps) => {
        const world = new World();
        for (const each of steps) await world.run(each);
        await world.end();
      }),
      { numRuns: 3_000, interruptAfterTimeLimit: 20_000, markInterruptAsFailure: false },
    );
  });
});
