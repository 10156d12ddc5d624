/**
 * What programs and the command line use to look at a fleet and to change it: {@link FleetClient}.
 *
 * Reads come from `observe.ts`, orders go through `orders.ts`; both know Temporal and nothing of the hosts.
 *
 * @module
 */
import type { Client } from '@temporalio/client';
import { checkName } from '../contract/names.js';
import { FleetView } from './observe.js';
import {
  type DrainTerms,
  FleetOrders,
  type OrderBy,
  type OrderResult,
  type ReleaseResult,
  type ReleaseTerms,
} from './orders.js';
import { describeSession } from './owner-run.js';
import { withOwners } from './owners.js';
import { listPools } from './pools.js';
import type { FleetLook, PoolRecord, SessionDetail, SessionRecord, WorkerRecord } from './records.js';

export type * from './records.js';
export type { DrainTerms, OrderBy, OrderResult, ReleaseResult, ReleaseTerms } from './orders.js';

export interface FleetClientOptions {
  readonly fleet: string;
  /** How many describe calls run at once. @default 16 */
  readonly concurrency?: number;
}

export interface ListSessionsOptions {
  /** Asks for the owners, too: fills `ownerStatus` and `leaked`. @default false */
  readonly owners?: boolean;
}

export class FleetClient {
  readonly fleet: string;
  private readonly view: FleetView;
  private readonly orders: FleetOrders;

  constructor(
    private readonly client: Client,
    options: FleetClientOptions,
  ) {
    this.fleet = checkName('fleet', options.fleet);
    this.view = new FleetView(client, this.fleet, options.concurrency);
    this.orders = new FleetOrders(client, this.fleet);
  }

  /** Every worker that is known to the fleet, by name. */
  listWorkers(): Promise<WorkerRecord[]> {
    return this.view.listWorkers();
  }

  /** Every session that a worker holds, or held when it was last heard of; by worker, the oldest first. */
  async listSessions({ owners = false }: ListSessionsOptions = {}): Promise<SessionRecord[]> {
    const sessions = await this.view.listSessions();
    return owners ? await this.withOwners(sessions) : sessions;
  }

  /** Workers and sessions of one look. */
  look(): Promise<FleetLook> {
    return this.view.look();
  }

  /** The sessions with `ownerStatus` and `leaked`, as of now. */
  withOwners(sessions: readonly SessionRecord[]): Promise<SessionRecord[]> {
    return withOwners(this.client, sessions);
  }

  /** The capability sets that the workers of a look serve, and what waits for each. */
  listPools(look: FleetLook): Promise<PoolRecord[]> {
    return listPools(this.client, this.fleet, look);
  }

  /** A session with what its owner knows of it: lease, running step, and where each step of it ran. */
  describeSession(session: SessionRecord, workers: readonly WorkerRecord[]): Promise<SessionDetail> {
    return describeSession(this.client, session, workers);
  }

  /** Has the worker take no new sessions. What it holds goes on. */
  cordon(worker: string, by: OrderBy): Promise<OrderResult> {
    return this.orders.cordon(worker, by);
  }

  /** Has the worker take sessions again. A conflict where another operator took it out of service, unless `ofOthers`. */
  uncordon(worker: string, by: OrderBy & { readonly ofOthers?: boolean }): Promise<OrderResult> {
    return this.orders.uncordon(worker, by);
  }

  /** Cordons the worker and has it say when its last session has ended. Returns at once; see `scheduling.drain`. */
  drain(worker: string, by: OrderBy & DrainTerms): Promise<OrderResult> {
    return this.orders.drain(worker, by);
  }

  /**
   * Ends sessions by force: each owner loses its session and follows its `onLost`, or fails with `failOwner`. Where the
   * result says `released`, slot and scratch are free. Sessions of several workers may be given.
   */
  release(sessions: readonly SessionRecord[], by: OrderBy & ReleaseTerms): Promise<ReleaseResult[]> {
    return this.orders.release(sessions, by);
  }

  /** Takes a worker that is lost or stopped off the list. It comes back by itself when its daemon does. */
  forget(worker: string, by: OrderBy & { readonly withSessions?: boolean }): Promise<void> {
    return this.orders.forget(worker, by);
  }
}
