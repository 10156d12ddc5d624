/** What a schedule does, made from its seed before anything starts: workers, load and faults. */
import { random } from './random.js';

export type Fault =
  /** Ended by -9 and started again after `forMs`. */
  | { readonly kind: 'kill-supervisor' | 'kill-both' | 'truncate-ledger' | 'wipe-scratch'; readonly worker: number }
  | { readonly kind: 'kill-executor'; readonly worker: number }
  /** SIGSTOP, and SIGCONT after `forMs`. */
  | { readonly kind: 'freeze-supervisor' | 'freeze-executor'; readonly worker: number }
  | { readonly kind: 'cut' | 'half-open' | 'slow'; readonly worker: number }
  | { readonly kind: 'stop-server' }
  | { readonly kind: 'terminate' | 'cancel' };

export type PlannedFault = Fault & { readonly atMs: number; readonly forMs: number };

export interface Plan {
  readonly seed: number;
  /**
   * `wild`: anything. `gentle`: only restarts shorter than presence TTL + recovery window, and outages of the server of any
   * length, which must redo nothing.
   */
  readonly kind: 'wild' | 'gentle';
  readonly caps: readonly number[];
  readonly presenceTtlMs: number;
  readonly leaseTtlMs: number;
  readonly recoveryWindowMs: number;
  readonly faults: readonly PlannedFault[];
  /** How long workflows are started. */
  readonly lastsMs: number;
}

const WILD_KINDS = [
  'kill-supervisor',
  'kill-executor',
  'kill-both',
  'truncate-ledger',
  'wipe-scratch',
  'freeze-supervisor',
  'freeze-executor',
  'cut',
  'half-open',
  'slow',
  'stop-server',
  'terminate',
  'cancel',
] as const satisfies readonly Fault['kind'][];
const GENTLE_KINDS = ['kill-supervisor', 'kill-executor', 'kill-both', 'stop-server', 'slow'] as const;

export function planOf(seed: number, kind: Plan['kind']): Plan {
  const dice = random(seed);
  const wild = kind === 'wild';
  const presenceTtlMs = wild ? 3_000 : 6_000;
  const recoveryWindowMs = wild ? 3_000 : 5_000;
  const leaseTtlMs = wild ? dice.pick([3_000, 6_000, 60_000]) : 10_000;
  const caps = Array.from({ length: dice.whole(2, 3) }, () => dice.whole(1, 2));
  const patienceMs = Math.min(presenceTtlMs, leaseTtlMs) + recoveryWindowMs;
  const faults: PlannedFault[] = [];
  /** Until when each worker, and the server, has a fault of its own. */
  const busyUntilMs = new Map<number, number>();
  let atMs = 2_000;
  // Without repetition, so that few faults are many kinds of them.
  const left: PlannedFault['kind'][] = [];
  const nextKind = (): PlannedFault['kind'] => {
    if (left.length === 0) left.push(...(wild ? WILD_KINDS : GENTLE_KINDS));
    return left.splice(dice.whole(0, left.length - 1), 1)[0]!;
  };
  for (let count = 0; count < (wild ? 7 : 3); count += 1) {
    const name = nextKind();
    const worker = dice.whole(0, caps.length - 1);
    const target = name === 'stop-server' || name === 'terminate' || name === 'cancel' ? -1 : worker;
    // Two faults at once, but not on one worker.
    const fromMs = Math.max(atMs, busyUntilMs.get(target) ?? 0);
    const long = dice.chance(0.5);
    const forMs =
      name === 'terminate' || name === 'cancel' || name === 'kill-executor'
        ? 0
        : !wild && name !== 'stop-server'
          ? dice.whole(0, 1_500)
          : long
            ? patienceMs + dice.whole(1_000, 5_000)
            : dice.whole(200, 2_000);
    const fault = (target === -1 ? { kind: name } : { kind: name, worker }) as Fault;
    faults.push({ ...fault, atMs: fromMs, forMs });
    // A restart takes some seconds more; a gentle schedule gives the fleet time to notice that all is well.
    busyUntilMs.set(target, fromMs + forMs + (wild ? 4_000 : 12_000));
    atMs = wild ? atMs + dice.whole(500, 4_000) : fromMs + forMs + 12_000;
  }
  const lastsMs = Math.max(...faults.map((fault) => fault.atMs + fault.forMs)) + 2_000;
  return { seed, kind, caps, presenceTtlMs, leaseTtlMs, recoveryWindowMs, faults, lastsMs };
}

export function describeFault(fault: PlannedFault): string {
  const where = 'worker' in fault ? ` w${fault.worker}` : '';
  const time = fault.forMs === 0 ? '' : ` for ${(fault.forMs / 1_000).toFixed(1)} s`;
  return `${(fault.atMs / 1_000).toFixed(1)} s ${fault.kind}${where}${time}`;
}
