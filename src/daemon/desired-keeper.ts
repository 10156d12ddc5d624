/**
 * What operators want of this worker, as its daemon knows it: the fleet's word, and orders that were given on the host
 * and that the fleet has not taken yet. Both are in the ledger, so that a cordoned worker stays cordoned over a restart,
 * also while Temporal is away.
 *
 * Owns the state and its order of precedence. Who tells the fleet, and what the gate does, is the daemon's business.
 */
import { cordoned, draining, firstNote, refusalOf, uncordoned } from '../contract/desired.js';
import { AtlasError } from '../contract/errors.js';
import { type DesiredState, type Scheduling, UNTOUCHED } from '../contract/fleet.js';
import type { LocalOrder } from '../contract/local.js';
import type { EventLog } from './ports.js';

/** As the ledger keeps it. */
export interface DesiredEntry {
  readonly fleet: DesiredState;
  /** In the order in which they were given. */
  readonly local: readonly GivenOrder[];
}

export interface GivenOrder {
  readonly given: LocalOrder;
  /** By the clock of the host. */
  readonly atMs: number;
}

export interface DesiredKeeperPorts {
  readonly worker: string;
  /** Of this life of the daemon. */
  readonly nonce: string;
  /** Resolves when the entry is on disk. */
  readonly save: (entry: DesiredEntry) => Promise<void>;
  readonly now: () => number;
  readonly log: EventLog;
  /** Called with every change, before it is on disk: a gate is to close at once. */
  readonly onChange: () => void;
}

export class DesiredKeeper {
  private entry: DesiredEntry;

  constructor(
    private readonly ports: DesiredKeeperPorts,
    saved: DesiredEntry | null,
  ) {
    this.entry = saved ?? { fleet: UNTOUCHED, local: [] };
  }

  /** What the daemon acts on: the fleet's word, changed by what was ordered on the host since. */
  effective(): DesiredState {
    return this.entry.local.reduce((desired, order) => this.after(desired, order), this.entry.fleet);
  }

  scheduling(): Scheduling {
    return this.effective().scheduling;
  }

  /** The fleet's word alone. */
  ofFleet(): DesiredState {
    return this.entry.fleet;
  }

  /** The oldest order that the fleet has not taken yet. */
  untold(): GivenOrder | undefined {
    return this.entry.local[0];
  }

  /** The fleet says what is wanted. An older word than the one known is ignored. */
  async fromFleet(desired: DesiredState): Promise<void> {
    const known = this.entry.fleet;
    if (desired.revision < known.revision) return;
    if (desired.revision === known.revision && desired.notes.length === known.notes.length) return;
    const before = this.scheduling();
    await this.change({ ...this.entry, fleet: desired });
    this.logChange(before);
  }

  /**
   * An order that was given on the host itself. Resolves when it is on disk.
   *
   * @throws {@link AtlasError} `FleetConflict`
   */
  async order(given: LocalOrder): Promise<DesiredState> {
    const { worker, nonce } = this.ports;
    const desired = this.effective();
    const refusal = refusalOf(worker, desired, given.kind === 'drain' ? { ...given, nonce } : given);
    if (refusal !== undefined) throw new AtlasError('FleetConflict', refusal);
    await this.change({ ...this.entry, local: [...this.entry.local, { given, atMs: this.ports.now() }] });
    this.logChange(desired.scheduling);
    return this.effective();
  }

  /** The fleet has taken the order, with this outcome, or refused it. */
  async told(orderId: string, outcome: DesiredState | AtlasError): Promise<void> {
    const before = this.scheduling();
    const local = this.entry.local.filter(({ given }) => given.order.orderId !== orderId);
    if (outcome instanceof AtlasError)
      this.ports.log.warn(
        { event: 'order-refused', reason: outcome.message },
        'The fleet refused an order that was given on this host',
      );
    await this.change({ fleet: outcome instanceof AtlasError ? this.entry.fleet : outcome, local });
    this.logChange(before);
  }

  private async change(entry: DesiredEntry): Promise<void> {
    this.entry = entry;
    this.ports.onChange();
    await this.ports.save(entry);
  }

  private after(desired: DesiredState, { given, atMs }: GivenOrder): DesiredState {
    if (given.kind === 'cordon') return cordoned(desired, given.order, atMs);
    if (given.kind === 'uncordon') return uncordoned(desired, given.order, atMs);
    return draining(desired, given.order, this.ports.nonce, atMs);
  }

  private logChange(before: Scheduling): void {
    const desired = this.effective();
    if (desired.scheduling === before) return;
    const note = firstNote(desired) ?? desired.notes.at(-1);
    this.ports.log.info(
      { event: 'scheduling', scheduling: desired.scheduling, who: note?.who, why: note?.why },
      desired.scheduling === 'open' ? 'The worker takes sessions again' : `The worker is ${desired.scheduling}`,
    );
  }
}
