/**
 * Random fleets under random drains, against a fleet of the test's own that is changed at random between two looks: never
 * more than `maxParallel` at once, never fewer than `minReady` others ready by what was seen, and it comes to an end.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DesiredState, Scheduling } from '../../src/contract/fleet.js';
import {
  accepted,
  advance,
  type DrainPlanOptions,
  ordered,
  type PlanWorker,
  refused,
  RELEASE_PATIENCE_MS,
  RETURN_PATIENCE_MS,
  startPlan,
} from '../../src/fleet/drain-plan.js';

const LOOK_MS = 1_000;
const FLEET = 5;

interface FakeWorker {
  alive: boolean;
  stopped: boolean;
  scheduling: Scheduling;
  revision: number;
  sessions: number;
  silentForMs: number;
  deadlineAtMs: number | null;
  overdue: boolean;
  /** How many looks pass until one more of its sessions ends; 0: they never do. */
  pace: number;
  /** Whether its orders are refused, and whether they are only left with the server. */
  refuses: boolean;
  unheard: boolean;
}

const fakeWorker = fc.record({
  alive: fc.boolean(),
  sessions: fc.integer({ min: 0, max: 3 }),
  pace: fc.integer({ min: 0, max: 4 }),
  cordoned: fc.boolean(),
  refuses: fc.integer({ min: 0, max: 5 }).map((value) => value === 0),
  unheard: fc.boolean(),
});

const options = fc.record({
  maxParallel: fc.integer({ min: 1, max: 3 }),
  minReady: fc.integer({ min: 0, max: 3 }),
  deadlineMs: fc.option(fc.integer({ min: 0, max: 60_000 })),
  onDeadline: fc.constantFrom('report' as const, 'release' as const),
});

/** What happens between two looks, to the worker of an index. */
const event = fc.record({
  kind: fc.constantFrom('nothing', 'nothing', 'die', 'return', 'stop', 'uncordon', 'forget-look'),
  index: fc.nat({ max: FLEET - 1 }),
});

function seen(fleet: readonly FakeWorker[]): PlanWorker[] {
  return fleet.map((worker, index) => ({
    name: `w${index}`,
    state: worker.stopped
      ? 'stopped'
      : !worker.alive
        ? 'lost'
        : worker.scheduling === 'open'
          ? 'ready'
          : worker.scheduling,
    sessions: worker.sessions,
    silentForMs: worker.alive ? 0 : worker.silentForMs,
    ready: worker.alive && !worker.stopped && worker.scheduling === 'open',
    scheduling: worker.scheduling,
    revision: worker.revision,
    who: worker.scheduling === 'open' ? null : 'ops@a',
    drain:
      worker.scheduling === 'draining'
        ? { deadlineAtMs: worker.deadlineAtMs, onDeadline: 'report', overdue: worker.overdue }
        : null,
  }));
}

function order(worker: FakeWorker, { deadlineMs, onDeadline }: DrainPlanOptions, nowMs: number): DesiredState {
  worker.revision += 1;
  worker.scheduling = worker.sessions === 0 && worker.alive ? 'drained' : 'draining';
  worker.deadlineAtMs = deadlineMs === null ? null : nowMs + deadlineMs;
  const drain = {
    who: 'ops@a',
    startedAtMs: nowMs,
    deadlineAtMs: worker.deadlineAtMs,
    onDeadline,
    overdue: false,
    stopNonce: null,
  };
  return { revision: worker.revision, scheduling: worker.scheduling, sinceMs: nowMs, drain, notes: [] };
}

describe('a drain of several workers', () => {
  it('keeps to its limits whatever the fleet does, and ends', () => {
    let whole = 0;
    fc.assert(
      fc.property(
        fc.array(fakeWorker, { minLength: FLEET, maxLength: FLEET }),
        fc.subarray([0, 1, 2, 3, 4], { minLength: 1 }),
        options,
        fc.array(event, { maxLength: 40 }),
        (shapes, chosen, opts, events) => {
          const fleet = shapes.map((shape): FakeWorker => ({
            ...shape,
            stopped: false,
            scheduling: shape.cordoned ? 'cordoned' : 'open',
            revision: shape.cordoned ? 1 : 0,
            silentForMs: 0,
            deadlineAtMs: null,
            overdue: false,
          }));
          let nowMs = 1_000_000;
          let plan = startPlan(
            chosen.map((index) => `w${index}`),
            opts,
            nowMs,
          );
          // Without a deadline an end needs sessions that end, and room.
          const mustEnd = opts.deadlineMs !== null || (opts.minReady === 0 && shapes.every(({ pace }) => pace > 0));
          const bound =
            chosen.length * ((opts.deadlineMs ?? 0) + RELEASE_PATIENCE_MS + RETURN_PATIENCE_MS + 60_000) +
            events.length * LOOK_MS;
          let finished = false;
          for (let look = 0; !finished; look += 1) {
            const happens = events[look];
            const hit = happens === undefined ? undefined : fleet[happens.index]!;
            if (happens?.kind === 'die') hit!.alive = false;
            if (happens?.kind === 'return') Object.assign(hit!, { alive: true, stopped: false, silentForMs: 0 });
            if (happens?.kind === 'stop') hit!.stopped = true;
            if (happens?.kind === 'uncordon')
              Object.assign(hit!, { scheduling: 'open', revision: hit!.revision + 1, overdue: false });
            for (const worker of fleet) {
              if (!worker.alive) worker.silentForMs += LOOK_MS;
              if (worker.pace > 0 && look % worker.pace === 0 && worker.sessions > 0) worker.sessions -= 1;
              if (worker.scheduling !== 'draining' || !worker.alive || worker.stopped) continue;
              const isLate = worker.deadlineAtMs !== null && nowMs >= worker.deadlineAtMs;
              if (isLate && opts.onDeadline === 'release') worker.sessions = 0;
              if (isLate) worker.overdue = true;
              if (worker.sessions === 0) worker.scheduling = 'drained';
            }
            const all = seen(fleet);
            const visible = happens?.kind === 'forget-look' ? all.filter((_, i) => i !== happens.index) : all;
            const before = plan;
            const step = advance(plan, visible, nowMs);
            // Looking twice at the same changes nothing.
            expect(advance(step.plan, visible, nowMs)).toEqual(step);
            plan = step.plan;
            finished = step.finished;
            const going = plan.targets.filter(({ phase }) => phase === 'ordered' || phase === 'draining');
            expect(going.length + step.start.length).toBeLessThanOrEqual(opts.maxParallel);
            const out = new Set([...going.map(({ worker }) => worker), ...step.start]);
            const ready = visible.filter((worker) => worker.ready && !out.has(worker.name)).length;
            if (step.start.some((name) => visible.find((worker) => worker.name === name)?.ready === true)) {
              expect(ready).toBeGreaterThanOrEqual(opts.minReady);
            }
            for (const target of plan.targets) {
              const isWaiting = target.phase === 'waiting' && !step.start.includes(target.worker);
              expect(step.waits.has(target.worker)).toBe(isWaiting);
              const old = before.targets.find(({ worker }) => worker === target.worker)!;
              const isEnd = !['waiting', 'ordered', 'draining'].includes(old.phase);
              // An end stays, except that an overdue drain may still come to its own.
              if (isEnd && old.phase !== 'overdue') expect(target.phase).toBe(old.phase);
            }
            for (const name of step.start) {
              const worker = fleet[Number(name.slice(1))]!;
              plan = ordered(plan, name, nowMs);
              if (worker.refuses) {
                plan = refused(plan, name, 'another operator', nowMs);
                continue;
              }
              const desired = order(worker, opts, nowMs);
              plan = accepted(plan, name, worker.unheard ? null : desired, nowMs);
            }
            nowMs += LOOK_MS;
            if (nowMs - 1_000_000 > bound) {
              expect(mustEnd, JSON.stringify(plan.targets)).toBe(false);
              return;
            }
          }
          whole += 1;
        },
      ),
      { numRuns: 250 },
    );
    // Most of them must have come to their end for this to say anything.
    expect(whole).toBeGreaterThan(100);
  });
});
