/**
 * Carries a drain of several workers out and watches it: looks at the fleet, asks the plan what is next, gives the orders
 * and shows what goes on. All decisions are those of `fleet/drain-plan.ts`.
 *
 * An outage of Temporal says nothing about the drains, which the fleet carries on: it is ridden out, and nothing is decided
 * by what was seen before it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Blocker } from '../../fleet/blockers.js';
import type { FleetLook, OrderResult, SessionRecord, WorkerRecord } from '../../fleet/client.js';
import {
  accepted,
  advance,
  type DrainPlan,
  ordered,
  planWorker,
  type PlanStep,
  refused,
  RELEASE_PATIENCE_MS,
} from '../../fleet/drain-plan.js';
import { isUnavailable } from '../../temporal/connect.js';
import type { DrainScreen } from '../../terminal/drain-view.js';
import { describeError, type ErrorReport } from '../report-error.js';

/** Looks follow each other this soon, and ever more slowly in a fleet that takes long to look at. */
const LOOK_INTERVAL_MS = 1_000;
const PAUSE_PER_LOOK_TIME = 4;
/** An outage that lasts for this long after the last deadline ends the watching. */
const OUTAGE_AFTER_DEADLINE_MS = 60_000;
/** Tries of an order during an outage; each rides out some seconds by itself. */
const ORDER_TRIES = 3;
/** How long orders that are under way get when the watching ends. */
const LAST_WORDS_MS = 2_000;

export interface DrainWatch {
  readonly plan: DrainPlan;
  /** What was seen before the first look of the watch. */
  readonly first: FleetLook;
  readonly monitor: boolean;
  readonly signal: AbortSignal;
  readonly look: () => Promise<FleetLook>;
  readonly blockers: (sessions: readonly SessionRecord[]) => Promise<readonly Blocker[]>;
  readonly drain: (worker: string) => Promise<OrderResult>;
  readonly show: (screen: DrainScreen) => void;
}

export interface DrainEnd {
  readonly plan: DrainPlan;
  /** Ended by a signal, or by an outage that was longer than any deadline. */
  readonly ended: 'finished' | 'interrupted' | 'unreachable';
  readonly screen: DrainScreen;
  readonly results: ReadonlyMap<string, OrderResult>;
  readonly reports: ReadonlyMap<string, ErrorReport>;
}

export async function watchDrain(watch: DrainWatch): Promise<DrainEnd> {
  return await new Watcher(watch).run();
}

class Watcher {
  private plan: DrainPlan;
  private step: PlanStep;
  private workers: ReadonlyMap<string, WorkerRecord>;
  private blockers: readonly Blocker[] = [];
  private outageSinceMs: number | null = null;
  private readonly startedAtMs = Date.now();
  private readonly results = new Map<string, OrderResult>();
  private readonly reports = new Map<string, ErrorReport>();
  private readonly underWay = new Set<Promise<void>>();

  constructor(private readonly watch: DrainWatch) {
    this.plan = watch.plan;
    this.workers = byName(watch.first.workers);
    this.step = { plan: watch.plan, start: [], waits: new Map(), finished: false };
  }

  async run(): Promise<DrainEnd> {
    const { signal } = this.watch;
    let look: FleetLook | 'unavailable' = this.watch.first;
    let lookMs = 0;
    for (;;) {
      if (look === 'unavailable') this.outageSinceMs ??= Date.now();
      else await this.decide(look);
      this.show();
      if (look !== 'unavailable' && this.step.finished) return this.end('finished');
      if (this.isHopeless()) return this.end('unreachable');
      const pauseMs = Math.max(LOOK_INTERVAL_MS, lookMs * PAUSE_PER_LOOK_TIME);
      if (await isAbortedWithin(pauseMs, signal, this.underWay)) return await this.interrupted();
      const startedAtMs = Date.now();
      look = await this.look();
      lookMs = Date.now() - startedAtMs;
      if (signal.aborted) return await this.interrupted();
    }
  }

  private async decide(look: FleetLook): Promise<void> {
    this.outageSinceMs = null;
    this.workers = byName(look.workers);
    const nowMs = Date.now();
    this.step = advance(this.plan, look.workers.map(planWorker), nowMs);
    this.plan = this.step.plan;
    for (const worker of this.step.start) {
      this.plan = ordered(this.plan, worker, nowMs);
      const order = this.order(worker);
      this.underWay.add(order);
      void order.then(() => this.underWay.delete(order));
    }
    const watched = new Set(
      this.plan.targets.filter(({ phase }) => phase === 'draining' || phase === 'overdue').map(({ worker }) => worker),
    );
    const seen = await this.throughOutage(() =>
      this.watch.blockers(look.sessions.filter(({ worker }) => watched.has(worker))),
    );
    if (seen !== 'unavailable') this.blockers = seen;
  }

  /** Never rejects: what comes of an order is told to the plan. */
  private async order(worker: string): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        const result = await this.watch.drain(worker);
        this.results.set(worker, result);
        this.plan = accepted(this.plan, worker, result.desired, Date.now());
        return;
      } catch (error) {
        if (isUnavailable(error) && tries < ORDER_TRIES && !this.watch.signal.aborted) continue;
        const report = describeError(error);
        this.reports.set(worker, report);
        this.plan = refused(this.plan, worker, report.message, Date.now());
        return;
      }
    }
  }

  private async look(): Promise<FleetLook | 'unavailable'> {
    // An order that is accepted while the look is under way is newer than what the look has seen; the plan knows by the
    // revision.
    return await this.throughOutage(() => this.watch.look());
  }

  private async throughOutage<T>(task: () => Promise<T>): Promise<T | 'unavailable'> {
    try {
      return await task();
    } catch (error) {
      if (isUnavailable(error)) return 'unavailable';
      throw error;
    }
  }

  /** Whether Temporal has been away for so long that no deadline can be waited for any more. */
  private isHopeless(): boolean {
    if (this.outageSinceMs === null) return false;
    const open = this.plan.targets.filter(
      ({ phase }) => phase === 'draining' || phase === 'ordered' || phase === 'waiting',
    );
    const { deadlineMs } = this.plan.options;
    const ends = open.map(({ deadlineAtMs, onDeadline }) => {
      const atMs = deadlineAtMs ?? (deadlineMs === null ? null : this.outageSinceMs! + deadlineMs);
      return atMs === null ? Infinity : atMs + (onDeadline === 'release' ? RELEASE_PATIENCE_MS : 0);
    });
    return Date.now() >= Math.max(...ends) + OUTAGE_AFTER_DEADLINE_MS;
  }

  private async interrupted(): Promise<DrainEnd> {
    await Promise.race([Promise.all(this.underWay), sleep(LAST_WORDS_MS, undefined, { ref: false })]);
    return this.end('interrupted');
  }

  private show(): void {
    this.watch.show(this.screen());
  }

  private screen(): DrainScreen {
    return {
      startedAtMs: this.startedAtMs,
      nowMs: Date.now(),
      targets: this.plan.targets,
      waits: this.step.waits,
      workers: this.workers,
      blockers: this.blockers,
      maxParallel: this.plan.options.maxParallel,
      monitor: this.watch.monitor,
      outageSinceMs: this.outageSinceMs,
    };
  }

  private end(ended: DrainEnd['ended']): DrainEnd {
    return { plan: this.plan, ended, screen: this.screen(), results: this.results, reports: this.reports };
  }
}

/** Waits until it is time to look again, or an order was answered. Whether the signal came. */
async function isAbortedWithin(
  pauseMs: number,
  signal: AbortSignal,
  underWay: ReadonlySet<Promise<void>>,
): Promise<boolean> {
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  try {
    await Promise.race([sleep(pauseMs, undefined, { signal: either }), ...underWay]);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    stop.abort();
  }
  return signal.aborted;
}

function byName(workers: readonly WorkerRecord[]): ReadonlyMap<string, WorkerRecord> {
  return new Map(workers.map((worker) => [worker.name, worker]));
}
