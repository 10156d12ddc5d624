/**
 * The outside of a session keeper without any I/O: a ledger and scratch space in memory, a Temporal with scripted answers,
 * an executor that does what it is told, and a clock that stands still until a test advances it.
 *
 * Everything that is asked of the ports is written to one journal, so that a test can read in which order it was.
 */
import type { BeginAttempt, SessionEndCode, SessionMemoryName } from '../../src/contract/local.js';
import { sessionKey } from '../../src/contract/names.js';
import type { AdoptRequest, ConfirmRequest, ReleaseRequest } from '../../src/contract/session.js';
import type { Clock, EventLog, ExecutorPort, LedgerPort, ScratchPort, TemporalPort } from '../../src/daemon/ports.js';
import { SessionKeeper, type KeeperIdentity, type LeaseTask, type OwnerTask } from '../../src/daemon/session-keeper.js';
import { SessionTable, type LedgerRecord } from '../../src/daemon/session-table.js';
import { SlotGate, type SlotRules } from '../../src/daemon/slots.js';

export const FAKE_IDENTITY: KeeperIdentity = {
  worker: 'w',
  queue: 'atlas-w.i',
  presenceTtlMs: 6_000,
};

/** Lets everything run that waits for nothing but promises. The fakes do no I/O, so one turn of the loop is enough. */
export async function settle(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

export function deferred<T>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

export class FakeClock implements Clock {
  private elapsedMs = 0;
  private readonly timers = new Set<{ atMs: number; callback: () => void }>();

  constructor(private readonly startedAtMs = 1_700_000_000_000) {}

  now(): number {
    return this.startedAtMs + this.elapsedMs;
  }

  monotonicMs(): number {
    return this.elapsedMs;
  }

  timer(delayMs: number, callback: () => void): () => void {
    const timer = { atMs: this.elapsedMs + delayMs, callback };
    this.timers.add(timer);
    return () => {
      this.timers.delete(timer);
    };
  }

  get timerCount(): number {
    return this.timers.size;
  }

  /** Moves the time on and runs what has become due, in order, with all that follows from it. */
  async advance(durationMs: number): Promise<void> {
    // What was begun before may be on its way to its timer.
    await settle();
    const untilMs = this.elapsedMs + durationMs;
    for (;;) {
      const due = [...this.timers].filter(({ atMs }) => atMs <= untilMs).sort((a, b) => a.atMs - b.atMs)[0];
      if (due === undefined) break;
      this.timers.delete(due);
      this.elapsedMs = Math.max(this.elapsedMs, due.atMs);
      due.callback();
      await settle();
    }
    this.elapsedMs = untilMs;
  }
}

type Pace = <T>(what: string, value: () => T) => Promise<T>;

/** Every answer comes at once, in the order of the calls. */
const atOnce: Pace = async (_, value) => value();

export class FakeLedger implements LedgerPort {
  readonly records: LedgerRecord[] = [];
  /** How many of the records survive a crash of the host, and of the process alone. */
  durableCount = 0;
  writtenCount = 0;
  /** Makes appends fail. */
  fault: ((record: LedgerRecord) => Error | undefined) | undefined;

  constructor(
    private readonly journal: string[],
    private readonly pace: Pace = atOnce,
  ) {}

  async append(record: LedgerRecord, { durable }: { durable: boolean }): Promise<void> {
    this.journal.push(`ledger ${durable ? 'durable' : 'buffered'} ${describe(record)}`);
    const error = this.fault?.(record);
    if (error !== undefined) throw error;
    const position = this.records.push(record);
    await this.pace('ledger', () => undefined);
    this.writtenCount = Math.max(this.writtenCount, position);
    if (durable) this.durableCount = Math.max(this.durableCount, position);
  }
}

function describe(record: LedgerRecord): string {
  switch (record.type) {
    case 'session':
      return `${record.entry.state} ${record.entry.key}`;
    case 'session-state':
      return `${record.state} ${record.key}`;
    case 'session-gone':
      return `gone ${record.key}`;
    case 'attempt':
      return `attempt ${record.entry.id}`;
    case 'attempt-ended':
      return `attempt-ended ${record.id}`;
    case 'result':
      return `result ${record.entry.activity}`;
    case 'result-gone':
      return `result-gone ${record.activity}`;
    default:
      return record.type;
  }
}

export class FakeScratch implements ScratchPort {
  /** The epoch for which each directory was made. */
  readonly directories = new Map<string, number>();
  /** Given up and not deleted yet. */
  trash = 0;
  fault: ((operation: 'create' | 'intact' | 'discard' | 'delete') => Error | undefined) | undefined;

  constructor(
    private readonly journal: string[],
    private readonly pace: Pace = atOnce,
  ) {}

  async create(key: string, marker: { key: string; epoch: number; grantedAtMs: number }): Promise<string> {
    this.journal.push(`scratch create ${key}`);
    return await this.pace('scratch create', () => {
      this.failing('create');
      this.directories.set(key, marker.epoch);
      return this.directory(key);
    });
  }

  async isIntact(key: string): Promise<boolean> {
    return await this.pace('scratch intact', () => {
      this.failing('intact');
      return this.directories.has(key);
    });
  }

  directory(key: string): string {
    return `/scratch/${key}`;
  }

  async discard(key: string): Promise<() => Promise<void>> {
    this.journal.push(`scratch discard ${key}`);
    return await this.pace('scratch discard', () => {
      this.failing('discard');
      if (this.directories.delete(key)) this.trash += 1;
      return async () => {
        await this.pace('scratch delete', () => undefined);
        this.journal.push(`scratch delete ${key}`);
        this.failing('delete');
        this.trash -= 1;
      };
    });
  }

  private failing(operation: 'create' | 'intact' | 'discard' | 'delete'): void {
    const error = this.fault?.(operation);
    if (error !== undefined) throw error;
  }
}

type Method = keyof TemporalPort;
type AnswerOf<M extends Method> = Awaited<ReturnType<TemporalPort[M]>>;
type Scripted<M extends Method> = AnswerOf<M> | Error | Promise<AnswerOf<M>>;

export interface TemporalCall {
  readonly method: Method;
  readonly args: readonly unknown[];
}

/** Answers what was scripted for a method, the first first, and then that all is well. */
export class FakeTemporal implements TemporalPort {
  readonly calls: TemporalCall[] = [];
  /** While set no call is answered. */
  unavailable = false;
  private readonly scripts = new Map<Method, unknown[]>();

  constructor(
    private readonly journal: string[],
    private readonly pace: Pace = atOnce,
  ) {}

  /** Scripts the next answer of a method; an Error is thrown. */
  answer<M extends Method>(method: M, ...answers: Scripted<M>[]): void {
    this.scripts.set(method, [...(this.scripts.get(method) ?? []), ...answers]);
  }

  callsOf(method: Method): (readonly unknown[])[] {
    return this.calls.filter((call) => call.method === method).map(({ args }) => args);
  }

  heartbeat: TemporalPort['heartbeat'] = (token) => this.call('heartbeat', 'renewed', token);
  completeLease: TemporalPort['completeLease'] = (token) => this.call('completeLease', undefined, token);
  answerConfirm: TemporalPort['answerConfirm'] = (token) => this.call('answerConfirm', 'answered', token);
  cancelLease: TemporalPort['cancelLease'] = (token) => this.call('cancelLease', undefined, token);
  failLease: TemporalPort['failLease'] = (...args) => this.call('failLease', undefined, ...args);
  failAttempt: TemporalPort['failAttempt'] = (...args) => this.call('failAttempt', undefined, ...args);
  completeAttempt: TemporalPort['completeAttempt'] = (...args) => this.call('completeAttempt', undefined, ...args);
  describeOwner: TemporalPort['describeOwner'] = (owner) => this.call('describeOwner', 'running', owner);
  askOwner: TemporalPort['askOwner'] = (owner, grant) => this.call('askOwner', 'delivered', owner, grant);
  signalGrant: TemporalPort['signalGrant'] = (owner, grant) => this.call('signalGrant', 'delivered', owner, grant);

  private async call<M extends Method>(method: M, fallback: AnswerOf<M>, ...args: unknown[]): Promise<AnswerOf<M>> {
    this.journal.push(method);
    this.calls.push({ method, args });
    const script = this.scripts.get(method) ?? [];
    const answer = script.length > 0 ? script.shift() : fallback;
    return await this.pace(method, async () => {
      if (this.unavailable) throw new Error('Unavailable');
      if (answer instanceof Error) throw answer;
      return (await answer) as AnswerOf<M>;
    });
  }
}

export class FakeExecutor implements ExecutorPort {
  readonly cancelled: { key: string; code: SessionEndCode; reason: string }[] = [];
  /** What the executor was last told about how long its attempts may go on; undefined before. */
  localLeaseMs: number | null | undefined;
  /** Makes a kill fail. */
  killFault: Error | undefined;
  readonly kills: string[] = [];
  /** What the daemon does when the executor has ended. */
  onEnd: () => Promise<void> = () => Promise.resolve();

  constructor(
    private readonly journal: string[],
    private life: number,
  ) {}

  incarnation(): string {
    return `life-${this.life}`;
  }

  /** Lives beside the current one. */
  readonly others = new Set<string>();

  isAlive(incarnation: string): boolean {
    return incarnation === this.incarnation() || this.others.has(incarnation);
  }

  /** Whether a session may be granted in the memory of the current life. */
  takesMemory = true;

  memoryHome(): string | null {
    return this.takesMemory ? this.incarnation() : null;
  }

  async dropMemory(incarnation: string, { key, fencingToken }: SessionMemoryName): Promise<void> {
    this.journal.push(`drop memory ${key}@${fencingToken} of ${incarnation}`);
    await this.dropping;
  }

  /** What a `dropMemory` waits for. */
  dropping: Promise<void> = Promise.resolve();

  cancelSession({ session, runId }: { session: string; runId: string }, code: SessionEndCode, reason: string): void {
    const key = sessionKey(session, runId);
    this.journal.push(`cancel ${key}`);
    this.cancelled.push({ key, code, reason });
  }

  renewLocalLease(forMs: number | null): void {
    this.localLeaseMs = forMs;
  }

  async kill(reason: string): Promise<void> {
    this.journal.push('kill');
    this.kills.push(reason);
    if (this.killFault !== undefined) throw this.killFault;
    await this.die();
  }

  /** The executor ends, for whatever reason, and is started again. */
  async die(): Promise<void> {
    this.life += 1;
    await this.onEnd();
  }
}

export interface LogLine {
  readonly level: keyof EventLog;
  readonly fields: { readonly event?: string; readonly [field: string]: unknown };
}

export function fakeLog(lines: LogLine[]): EventLog {
  const at = (level: keyof EventLog) => (fields: object) => {
    lines.push({ level, fields: fields as LogLine['fields'] });
  };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

export interface FakeWorkerOptions {
  readonly rules?: SlotRules;
  /** What the ledger held at the start. */
  readonly records?: readonly LedgerRecord[];
  /** Scratch space that an earlier life left. */
  readonly directories?: ReadonlyMap<string, number>;
  readonly pace?: Pace;
  readonly clock?: FakeClock;
  /** The number of the first executor; 1 unless given. */
  readonly firstLife?: number;
  /** Unique within one life unless given. */
  readonly newGrantId?: () => string;
}

/** One life of a daemon, as far as a keeper sees it. */
export class FakeWorker {
  readonly journal: string[] = [];
  readonly log: LogLine[] = [];
  readonly clock: FakeClock;
  readonly ledger: FakeLedger;
  readonly scratch: FakeScratch;
  readonly temporal: FakeTemporal;
  readonly executor: FakeExecutor;
  readonly table: SessionTable;
  readonly gate: SlotGate;
  readonly keeper: SessionKeeper;
  /** What the ledger held at the start. */
  readonly initialRecords: readonly LedgerRecord[];
  changes = 0;
  private grants = 0;

  constructor(options: FakeWorkerOptions = {}) {
    const { rules = { cap: 2, reserve: {} }, records = [], directories, pace, clock, firstLife = 1 } = options;
    this.executor = new FakeExecutor(this.journal, firstLife);
    this.clock = clock ?? new FakeClock();
    this.ledger = new FakeLedger(this.journal, pace);
    this.scratch = new FakeScratch(this.journal, pace);
    this.temporal = new FakeTemporal(this.journal, pace);
    for (const [key, epoch] of directories ?? []) this.scratch.directories.set(key, epoch);
    this.initialRecords = records;
    this.table = SessionTable.replay(records);
    this.gate = new SlotGate(rules, () => this.table.sessions().map(({ capabilities }) => capabilities));
    this.gate.setClosed(false);
    this.keeper = new SessionKeeper(
      FAKE_IDENTITY,
      {
        temporal: this.temporal,
        ledger: this.ledger,
        scratch: this.scratch,
        executor: this.executor,
        clock: this.clock,
        log: fakeLog(this.log),
        newGrantId: options.newGrantId ?? (() => `grant-${(this.grants += 1)}`),
      },
      this.gate,
      this.table,
      () => {
        this.changes += 1;
      },
    );
    this.executor.onEnd = () => this.keeper.failAttempts();
  }

  /** What the timer of the daemon does: moves the time on in its steps, with a tick after each. */
  async run(durationMs: number, stepMs = 200): Promise<void> {
    for (let elapsedMs = 0; elapsedMs < durationMs; elapsedMs += stepMs) {
      await this.clock.advance(Math.min(stepMs, durationMs - elapsedMs));
      await this.keeper.tick();
    }
  }

  events(event: string): LogLine[] {
    return this.log.filter(({ fields }) => fields.event === event);
  }
}

/** A lease task for `<session>.run`. */
export function leaseTask(
  session: string,
  changes: Partial<LeaseTask['request']> & { token?: string } = {},
): LeaseTask {
  const { token, ...request } = changes;
  return {
    ...ownerTask(session, token ?? `token-${session}-${request.epoch ?? 1}`),
    request: {
      session,
      epoch: 1,
      capabilities: [],
      leaseTtlMs: 60_000,
      maxDurationMs: 3_600_000,
      recoveryWindowMs: 5_000,
      idleTimeoutMs: null,
      state: 'disk',
      ...request,
    },
  };
}

function ownerTask(session: string, leaseToken: string): Omit<LeaseTask, 'request'> {
  return {
    workflowId: `workflow-${session}`,
    runId: 'run',
    workflowType: 'sequence',
    leaseToken,
    scheduledAtMs: 1_699_999_999_000,
  };
}

/** The question of an owner whether the session of this grant is still held. */
export function confirmTask(session: string, grantId = 'grant-1'): OwnerTask<ConfirmRequest> {
  return { ...ownerTask(session, 'none'), request: { session, grantId } };
}

export interface AdoptChanges {
  readonly epoch?: number;
  readonly grantId?: string;
  readonly runId?: string;
  readonly token?: string;
  readonly leaseTtlMs?: number;
}

/** A new lease for the session of this grant, of the run that acquired it or of a later one. */
export function adoptTask(
  session: string,
  { epoch = 2, grantId = 'grant-1', runId = 'run', token, leaseTtlMs = 60_000 }: AdoptChanges = {},
): OwnerTask<AdoptRequest> {
  return {
    ...ownerTask(session, token ?? `token-${session}-${epoch}`),
    runId,
    request: { session, epoch, grantId, leaseTtlMs, recoveryWindowMs: 5_000, idleTimeoutMs: null },
  };
}

/** What an owner asks that gives the session of this grant back. */
export function releaseOf(session: string, { grantId = 'grant-1' } = {}): ReleaseRequest {
  return { session, grantId };
}

/** An attempt of a pinned activity as the executor announces it. */
export function pinnedAttempt(
  session: string,
  { epoch = 1, step = 1, attempt = 1, incarnation = 'life-1', runId = 'run' } = {},
): BeginAttempt {
  return {
    id: `${runId}/${session}.${epoch}:${step}#${attempt}`,
    incarnation,
    session: { session, runId, epoch },
    activity: 'work',
    activityId: `${session}.${epoch}:${step}`,
    attempt,
    taskToken: `attempt-token-${session}-${epoch}-${step}-${attempt}`,
  };
}

/** The worker of a daemon that is started after this one has died: what was on its disk, and another executor. */
export function restarted({ ledger, scratch }: FakeWorker): FakeWorker {
  return new FakeWorker({ records: ledger.records, directories: scratch.directories, firstLife: 2 });
}
