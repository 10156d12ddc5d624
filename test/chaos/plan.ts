/** What a schedule does, made from its seed before anything starts: workers and faults. */
import { type Random, random } from './random.js';

const RESTARTS = ['kill-supervisor', 'kill-both', 'truncate-ledger', 'wipe-scratch'] as const;
const FREEZES = ['freeze-supervisor', 'freeze-executor', 'freeze-both'] as const;
const LINKS = ['cut', 'half-open', 'slow'] as const;
const HOSTS = ['disk-full', 'read-only', 'clock-ahead', 'clock-behind'] as const;
const ON_WORKERS = [...RESTARTS, 'kill-executor', ...FREEZES, ...LINKS, ...HOSTS] as const;
const ON_WORKFLOWS = ['terminate', 'cancel', 'reset'] as const;

export type WorkerFault = (typeof ON_WORKERS)[number];
export type WorkflowFault = (typeof ON_WORKFLOWS)[number];

/**
 * A deploy of a worker: it is drained, stopped once it is drained, started again and uncordoned, while the others have
 * the load. `interrupted`: its supervisor is killed with -9 in the middle of the drain.
 */
export interface Deploy {
  readonly kind: 'deploy';
  readonly worker: number;
  readonly interrupted: boolean;
}

/** All but those of workflows last for `forMs`, and what was killed or stopped is started again then. */
export type Fault =
  | { readonly kind: WorkerFault; readonly worker: number }
  | Deploy
  | { readonly kind: 'stop-server' }
  | { readonly kind: WorkflowFault };

export type PlannedFault = Fault & { readonly atMs: number; readonly forMs: number };

export interface Plan {
  readonly seed: number;
  /**
   * `wild`: every kind of fault once. `gentle`: only restarts shorter than presence TTL + recovery window, slow links, and
   * outages of the server of any length, which must redo nothing. `deploy`: every worker is deployed in turn under a constant
   * load, which must redo nothing either.
   */
  readonly kind: 'wild' | 'gentle' | 'deploy';
  readonly caps: readonly number[];
  readonly presenceTtlMs: number;
  readonly leaseTtlMs: number;
  readonly recoveryWindowMs: number;
  readonly faults: readonly PlannedFault[];
  /** How long workflows are started. */
  readonly lastsMs: number;
}

/** Odd seeds are wild, even ones gentle, but those that ten divides deploy. */
export function planOf(seed: number): Plan {
  const dice = random(seed);
  if (seed % 10 === 0) return deployPlan(seed, dice);
  return seed % 2 === 1 ? wildPlan(seed, dice) : gentlePlan(seed, dice);
}

function wildPlan(seed: number, dice: Random): Plan {
  const presenceTtlMs = 3_000;
  const recoveryWindowMs = 3_000;
  const leaseTtlMs = dice.pick([3_000, 6_000, 60_000]);
  const caps = Array.from({ length: 3 }, () => dice.whole(1, 2));
  const noticedMs = presenceTtlMs + recoveryWindowMs;
  const faults: PlannedFault[] = [];
  /** Until when each worker has a fault of its own. Faults overlap, but not on one worker. */
  const freeAtMs = caps.map(() => 0);
  let atMs = 1_500;
  const kinds = shuffled(dice, [...ON_WORKERS, ...ON_WORKFLOWS, 'stop-server' as const]);
  for (const kind of kinds) {
    const long = dice.chance(0.5);
    const lastsMs = long ? noticedMs + dice.whole(500, 3_000) : dice.whole(200, 2_000);
    if (kind === 'stop-server') {
      faults.push({ kind, atMs, forMs: lastsMs });
    } else if (isWorkflowFault(kind)) {
      faults.push({ kind, atMs, forMs: 0 });
    } else {
      const soonestMs = Math.min(...freeAtMs);
      atMs = Math.max(atMs, soonestMs);
      const free = caps.map((_, index) => index).filter((index) => freeAtMs[index]! <= atMs);
      const worker = dice.pick(free);
      // A clock that steps, or a disk that fails, is to meet some grants and releases.
      const forMs = kind === 'kill-executor' ? 0 : HOSTS.some((each) => each === kind) ? Math.max(lastsMs, 4_000) : lastsMs; // prettier-ignore
      faults.push({ kind, worker, atMs, forMs });
      // A restart takes some seconds more, and the worker is to have a session again.
      freeAtMs[worker] = atMs + forMs + 3_000;
    }
    atMs += dice.whole(300, 1_500);
  }
  return { seed, kind: 'wild', caps, presenceTtlMs, leaseTtlMs, recoveryWindowMs, faults, lastsMs: endOf(faults) };
}

function gentlePlan(seed: number, dice: Random): Plan {
  const presenceTtlMs = 8_000;
  const recoveryWindowMs = 8_000;
  const leaseTtlMs = dice.pick([3_000, 6_000]);
  const caps = Array.from({ length: 2 }, () => dice.whole(1, 2));
  const faults: PlannedFault[] = [];
  const outage = (): PlannedFault => ({
    kind: 'stop-server',
    atMs,
    // Longer than either TTL and the window, or shorter than either.
    forMs: dice.chance(0.6) ? presenceTtlMs + recoveryWindowMs + dice.whole(500, 3_000) : dice.whole(500, 2_500),
  });
  let atMs = 2_000;
  const first = dice.chance(0.5);
  const addOutage = (): void => {
    faults.push(outage());
    // The fleet has time to notice that all is well, so that what is promised for one fault is judged for one.
    atMs += faults.at(-1)!.forMs + 7_000;
  };
  if (first) addOutage();
  const kinds = shuffled(dice, ['kill-supervisor', 'kill-executor', 'kill-both', 'slow'] as const).slice(0, 3);
  for (const [index, kind] of kinds.entries()) {
    const forMs = kind === 'kill-executor' ? 0 : dice.whole(0, 1_500);
    faults.push({ kind, worker: index % caps.length, atMs, forMs });
    atMs += forMs + 5_000;
  }
  if (!first) addOutage();
  return { seed, kind: 'gentle', caps, presenceTtlMs, leaseTtlMs, recoveryWindowMs, faults, lastsMs: endOf(faults) };
}

function deployPlan(seed: number, dice: Random): Plan {
  const caps = Array.from({ length: 3 }, () => dice.whole(1, 2));
  // Over what a restart takes on a busy machine: one in the middle of a drain must redo nothing.
  const presenceTtlMs = 20_000;
  const interrupted = dice.whole(0, caps.length - 1);
  const faults: PlannedFault[] = caps.map((_, worker) => ({
    kind: 'deploy',
    worker,
    interrupted: worker === interrupted,
    atMs: 2_000,
    // How long it stays away.
    forMs: dice.whole(0, 1_500),
  }));
  return {
    seed,
    kind: 'deploy',
    caps,
    presenceTtlMs,
    leaseTtlMs: 60_000,
    recoveryWindowMs: 20_000,
    faults,
    lastsMs: 5_000,
  };
}

function endOf(faults: readonly PlannedFault[]): number {
  return Math.max(...faults.map((fault) => fault.atMs + fault.forMs)) + 2_000;
}

function isWorkflowFault(kind: Fault['kind']): kind is WorkflowFault {
  return ON_WORKFLOWS.some((each) => each === kind);
}

function shuffled<T>(dice: Random, items: readonly T[]): T[] {
  const left = [...items];
  return items.map(() => left.splice(dice.whole(0, left.length - 1), 1)[0]!);
}

export function describeFault(fault: PlannedFault): string {
  const where = 'worker' in fault ? ` w${fault.worker}${'interrupted' in fault && fault.interrupted ? ', killed while it drains' : ''}` : ''; // prettier-ignore
  const time = fault.forMs === 0 ? '' : ` for ${(fault.forMs / 1_000).toFixed(1)} s`;
  return `${(fault.atMs / 1_000).toFixed(1)} s ${fault.kind}${where}${time}`;
}

/** What a fault of one of atlasd's two processes is where there is only one; the others are what they are. */
const EMBEDDED_FAULT: Partial<Record<WorkerFault, WorkerFault>> = {
  'kill-supervisor': 'kill-both',
  'kill-executor': 'kill-both',
  'freeze-supervisor': 'freeze-both',
  'freeze-executor': 'freeze-both',
};

/** The same schedule for workers that hold sessions in a process of their user's: a fault of a part is one of it all. */
export function embeddedPlan(plan: Plan): Plan {
  const faults = plan.faults.map((fault): PlannedFault => {
    if (!('worker' in fault) || fault.kind === 'deploy') return fault;
    return { ...fault, kind: EMBEDDED_FAULT[fault.kind] ?? fault.kind };
  });
  return { ...plan, faults };
}
