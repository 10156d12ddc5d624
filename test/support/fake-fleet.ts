/** A fleet of records for tests of commands: orders change the records, and are remembered. */
import type { FleetLook, OrderResult, ReleaseResult, SessionRecord, WorkerRecord } from '../../src/fleet/client.js';
import type { Fleet } from '../../src/commands/support/fleet-access.js';
import type { DesiredState, Scheduling } from '../../src/contract/fleet.js';
import type { AtlasError } from '../../src/contract/errors.js';

type Delivery = OrderResult['delivery'];

export class FakeFleet implements Fleet {
  readonly fleet = 'atlas';
  readonly given: { readonly order: string; readonly worker: string; readonly by: unknown }[] = [];
  /** By worker. */
  readonly deliveries = new Map<string, Delivery>();
  readonly refusals = new Map<string, AtlasError>();
  releaseOutcome: ReleaseResult['outcome'] = 'released';

  constructor(
    public workers: WorkerRecord[],
    public sessions: SessionRecord[] = [],
  ) {}

  async look(): Promise<FleetLook> {
    await Promise.resolve();
    return { workers: [...this.workers], sessions: [...this.sessions] };
  }

  async listWorkers(): Promise<WorkerRecord[]> {
    return [...(await this.look()).workers];
  }

  async listSessions(): Promise<SessionRecord[]> {
    return [...(await this.look()).sessions];
  }

  cordon: Fleet['cordon'] = (worker, by) => this.order('cordon', worker, by, 'cordoned');
  uncordon: Fleet['uncordon'] = (worker, by) => this.order('uncordon', worker, by, 'open');
  drain: Fleet['drain'] = (worker, by) =>
    this.order('drain', worker, by, this.heldBy(worker) === 0 ? 'drained' : 'draining');

  release: Fleet['release'] = async (sessions, by) => {
    const worker = sessions[0]!.worker;
    await this.note('release', worker, by);
    return sessions.map((session) => ({ session, outcome: this.releaseOutcome }));
  };

  forget: Fleet['forget'] = async (worker, by) => {
    await this.note('forget', worker, by);
    this.workers = this.workers.filter(({ name }) => name !== worker);
  };

  /** The sessions of a worker end. */
  finish(worker: string): void {
    this.sessions = this.sessions.filter((session) => session.worker !== worker);
    this.change(worker, ({ scheduling }) => (scheduling.scheduling === 'draining' ? 'drained' : scheduling.scheduling));
  }

  change(name: string, to: (worker: WorkerRecord) => Scheduling, who: string | null = 'ops@a'): DesiredState {
    const before = this.workers.find((worker) => worker.name === name)!;
    const scheduling = to(before);
    const changed = scheduling !== before.scheduling.scheduling;
    const revision = before.scheduling.revision + (changed ? 1 : 0);
    const isAlive = before.state !== 'lost' && before.state !== 'stopped';
    const after: WorkerRecord = {
      ...before,
      state: !isAlive ? before.state : scheduling === 'open' ? 'ready' : scheduling,
      sessions: this.heldBy(name),
      reason: scheduling === 'open' ? null : `${scheduling} by ${who ?? 'ops@a'}`,
      scheduling: { ...before.scheduling, scheduling, revision, who: scheduling === 'open' ? null : who },
    };
    this.workers = this.workers.map((worker) => (worker.name === name ? after : worker));
    return { revision, scheduling, sinceMs: 0, drain: null, notes: [] };
  }

  private heldBy(worker: string): number {
    return this.sessions.filter((session) => session.worker === worker).length;
  }

  private async order(order: string, worker: string, by: unknown, to: Scheduling): Promise<OrderResult> {
    await this.note(order, worker, by);
    const before = this.workers.find(({ name }) => name === worker)!.scheduling.revision;
    const desired = this.change(worker, () => to);
    const delivery = this.deliveries.get(worker) ?? 'applied';
    const isSent = delivery === 'sent';
    return { worker, delivery, changed: desired.revision !== before, desired: isSent ? null : desired };
  }

  private async note(order: string, worker: string, by: unknown): Promise<void> {
    await Promise.resolve();
    const refusal = this.refusals.get(worker);
    if (refusal !== undefined) throw refusal;
    this.given.push({ order, worker, by });
  }
}
