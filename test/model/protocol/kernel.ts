/**
 * Virtual time, processes and the network between them: what everything in the simulation runs on.
 *
 * One event at a time, and all that follows from it by promises alone before the next. A process that is dead hears
 * nothing any more, one that is frozen hears it later: an answer, a timer and a task reach it by {@link Process.deliver}
 * only. Everything random comes from the seed.
 */

export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = (Math.imul(seed, 0x9e3779b1) ^ 0x5bd1e995) >>> 0;
  }

  /** In [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  int(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.next() * items.length)]!;
  }
}

/** Resolves once everything has run that waits for nothing but promises. */
export function settle(): Promise<void> {
  return new Promise((resolve) => {
    // The queue of ticks is looked at again only when that of promises is empty.
    process.nextTick(resolve);
  });
}

interface Event {
  readonly atMs: number;
  readonly order: number;
  run: (() => void | Promise<void>) | undefined;
}

const MAX_EVENTS = 2_000_000;

export class Simulation {
  nowMs = 0;
  readonly random: Random;
  /** What happened, for people; kept only for a seed that is looked at. */
  readonly trace: string[] | undefined;
  private readonly heap: Event[] = [];
  private order = 0;
  eventCount = 0;

  constructor(
    readonly seed: number,
    traced: boolean,
  ) {
    this.random = new Random(seed);
    this.trace = traced ? [] : undefined;
  }

  note(who: string, what: () => string): void {
    this.trace?.push(`${(this.nowMs / 1_000).toFixed(3).padStart(9)}  ${who.padEnd(14)} ${what()}`);
  }

  /** Runs it then; the returned function takes it back. */
  at(atMs: number, run: () => void | Promise<void>): () => void {
    const event: Event = { atMs: Math.max(atMs, this.nowMs), order: (this.order += 1), run };
    const { heap } = this;
    let index = heap.push(event) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = event;
    return () => {
      event.run = undefined;
    };
  }

  after(delayMs: number, run: () => void | Promise<void>): () => void {
    return this.at(this.nowMs + delayMs, run);
  }

  private pop(): Event | undefined {
    const { heap } = this;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, last)) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
    return first;
  }

  /** Until the time has come or `done` says so; returns whether it did. */
  async run(untilMs: number, done: () => boolean): Promise<boolean> {
    let sinceDone = 0;
    for (;;) {
      if ((sinceDone += 1) >= 64) {
        sinceDone = 0;
        if (done()) return true;
      }
      const next = this.heap[0];
      if (next === undefined || next.atMs > untilMs) {
        this.nowMs = Math.max(this.nowMs, untilMs);
        return done();
      }
      this.pop();
      if (next.run === undefined) continue;
      this.nowMs = next.atMs;
      if ((this.eventCount += 1) > MAX_EVENTS) throw new Error('The simulation does not come to an end.');
      currentProcess = undefined;
      const result = next.run();
      if (result !== undefined) await result;
      await settle();
    }
  }
}

function isBefore(left: Event, right: Event): boolean {
  return left.atMs < right.atMs || (left.atMs === right.atMs && left.order < right.order);
}

/** Whose code is running: timers of the code under test are those of this process. */
let currentProcess: Process | undefined;

function enter(process: Process): void {
  currentProcess = process;
}

/** Something that can be frozen together with what runs in it. */
export class Process {
  alive = true;
  private frozenBy = 0;
  private backlog: (() => void)[] = [];
  private effectsUntilCrash = Number.POSITIVE_INFINITY;
  private onEffectCrash: () => void = () => undefined;
  private readonly deathListeners: (() => void)[] = [];

  constructor(
    readonly sim: Simulation,
    readonly name: string,
  ) {}

  get frozen(): boolean {
    return this.frozenBy > 0;
  }

  onDeath(listener: () => void): void {
    if (this.alive) this.deathListeners.push(listener);
  }

  die(): void {
    if (!this.alive) return;
    this.alive = false;
    this.backlog = [];
    for (const listener of this.deathListeners.splice(0)) listener();
  }

  freeze(): void {
    this.frozenBy += 1;
  }

  /** What was missed comes now, in any order: timers and sockets do not know of each other. */
  thaw(): void {
    this.frozenBy -= 1;
    if (this.frozenBy > 0 || !this.alive) return;
    const { random } = this.sim;
    for (const missed of this.backlog.splice(0)) {
      this.sim.after(random.between(0, 5), () => {
        this.deliver(missed);
      });
    }
  }

  /** Runs it in this process: at once, when the process is thawed, or never. */
  deliver(run: () => void): void {
    if (!this.alive) return;
    if (this.frozen) {
      this.backlog.push(run);
      return;
    }
    enter(this);
    run();
  }

  timer(delayMs: number, run: () => void): () => void {
    let cancelled = false;
    const cancel = this.sim.after(delayMs, () => {
      this.deliver(() => {
        if (!cancelled) run();
      });
    });
    return () => {
      cancelled = true;
      cancel();
    };
  }

  every(intervalMs: number, run: () => void): void {
    const again = () => {
      this.timer(intervalMs, () => {
        run();
        again();
      });
    };
    again();
  }

  sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.timer(delayMs, resolve);
    });
  }

  /** The process is to die at its nth effect from now. */
  crashAtEffect(count: number, crash: () => void): void {
    this.effectsUntilCrash = count;
    this.onEffectCrash = crash;
  }

  /** To be asked before everything the process does outside of itself; false when it is dead. */
  mayAct(): boolean {
    if (this.alive && (this.effectsUntilCrash -= 1) <= 0) {
      this.effectsUntilCrash = Number.POSITIVE_INFINITY;
      this.onEffectCrash();
    }
    return this.alive;
  }
}

/** Nothing ever comes back to a process that is gone. */
export function never<T>(): Promise<T> {
  return new Promise<T>(() => undefined);
}

type Timers = Pick<typeof globalThis, 'setTimeout' | 'clearTimeout' | 'setInterval' | 'clearInterval'>;

/**
 * Runs with the timers of the code under test in virtual time.
 */
export async function inVirtualTime<T>(run: () => Promise<T>): Promise<T> {
  const real: Timers = { setTimeout, clearTimeout, setInterval, clearInterval };
  const virtual = {
    setTimeout: (callback: () => void, delayMs: number) => owner().timer(delayMs, callback),
    clearTimeout: (cancel?: () => void) => cancel?.(),
    setInterval: (callback: () => void, intervalMs: number) => {
      const running = owner();
      let cancel = (): void => undefined;
      const again = () => {
        cancel = running.timer(intervalMs, () => {
          again();
          callback();
        });
      };
      again();
      return () => {
        cancel();
      };
    },
    clearInterval: (cancel?: () => void) => cancel?.(),
  };
  Object.assign(globalThis, virtual);
  try {
    return await run();
  } finally {
    Object.assign(globalThis, real);
  }
}

function owner(): Process {
  if (currentProcess === undefined) throw new Error('A timer was set outside of every simulated process.');
  return currentProcess;
}
