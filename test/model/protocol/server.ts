/**
 * A small model of the Temporal server: task queues with long polls, activities with their timeouts and retries, runs
 * with their histories. What is in here outlives every crash; while the server is down nothing of it moves.
 *
 * Only what the protocol of sessions relies on, and there as nasty as the real one is: a poll answer may be lost with the
 * task marked as started, schedule-to-start begins anew at every attempt, and an activity that is over is "not found".
 */
import type { Process, Simulation } from './kernel.js';
import { never } from './kernel.js';

export interface Failure {
  readonly type: string;
  readonly message: string;
  readonly nonRetryable: boolean;
}

export type TimeoutType = 'HEARTBEAT' | 'START_TO_CLOSE' | 'SCHEDULE_TO_START' | 'SCHEDULE_TO_CLOSE';

/** How an activity ended, as its workflow sees it. */
export type ActivityEnd =
  | { readonly kind: 'completed'; readonly result: unknown }
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'timed-out'; readonly timeout: TimeoutType; readonly details: unknown }
  | { readonly kind: 'cancelled' };

export interface ActivitySpec {
  readonly activityId: string;
  readonly type: string;
  readonly queue: string;
  readonly request: unknown;
  readonly heartbeatMs?: number;
  readonly startToCloseMs?: number;
  readonly scheduleToStartMs?: number;
  readonly scheduleToCloseMs?: number;
  readonly retry: {
    readonly initialMs: number;
    readonly factor: number;
    readonly maximumMs: number;
    readonly attempts?: number;
    readonly notRetried?: readonly TimeoutType[];
  };
}

/** What a poll brings. */
export interface Task {
  readonly token: string;
  readonly workflowId: string;
  readonly runId: string;
  readonly spec: ActivitySpec;
  readonly attempt: number;
  readonly scheduledAtMs: number;
  readonly heartbeatDetails: unknown;
}

interface Activity {
  readonly run: Run;
  readonly spec: ActivitySpec;
  readonly number: number;
  readonly firstScheduledAtMs: number;
  attempt: number;
  state: 'scheduled' | 'started' | 'backoff' | 'closed';
  scheduledAtMs: number;
  cancelRequested: boolean;
  details: unknown;
  timers: (() => void)[];
  heartbeatTimer: (() => void) | undefined;
}

export type RunStatus = 'running' | 'completed' | 'failed' | 'terminated' | 'cancelled' | 'continued' | 'reset';

/** What happens to a run from outside; its history. A reset replays a part of it. */
export type RunEvent =
  | { readonly kind: 'signal'; readonly name: string; readonly argument: unknown }
  | { readonly kind: 'activity'; readonly activityId: string; readonly end: ActivityEnd }
  | { readonly kind: 'timer'; readonly timer: number }
  | { readonly kind: 'cancel' };

export interface Run {
  readonly workflowId: string;
  readonly runId: string;
  status: RunStatus;
  closedAtMs: number;
  readonly history: { readonly atMs: number; readonly event: RunEvent }[];
  /** Gives the event to the code of the workflow; set by whoever started the run. */
  deliver: (event: RunEvent) => Promise<void>;
  /** What waits for a workflow task. */
  readonly inbox: RunEvent[];
  taskDue: boolean;
}

interface Poll {
  readonly queue: string;
  readonly process: Process;
  readonly link: Link;
  readonly answer: (task: Task | undefined) => void;
  cancelExpiry: () => void;
}

/** A way between a process and the server; each direction can be cut. */
export class Link {
  /** Counted, since faults overlap. */
  outCuts = 0;
  inCuts = 0;
  /** Added to every way. */
  slowMs = 0;
  private readonly parts: readonly Link[];

  constructor(...parts: Link[]) {
    this.parts = parts;
  }

  get outCut(): boolean {
    return this.outCuts > 0 || this.parts.some((part) => part.outCut);
  }

  get inCut(): boolean {
    return this.inCuts > 0 || this.parts.some((part) => part.inCut);
  }

  get delayMs(): number {
    return this.parts.reduce((sum, part) => sum + part.delayMs, this.slowMs);
  }
}

export class Unavailable extends Error {}

const CALL_DEADLINE_MS = 5_000;
const POLL_MS = 20_000;

export class Server {
  /** Counted, since outages overlap. */
  private outages = 0;
  private outageCount = 0;
  /** The share of answers that reach nobody. */
  lostAnswers = 0;
  private readonly queues = new Map<string, { tasks: Activity[]; polls: Poll[] }>();
  private readonly activities = new Map<string, Activity>();
  readonly runs = new Map<string, Run>();
  private readonly overdue: (() => void)[] = [];
  private activityCount = 0;
  private runCount = 0;
  /** How much longer a workflow task may take; a fault of the fleet's executors. */
  taskSlowMs = 0;

  /** A workflow task fails, and will for as long as the cause is there. */
  onFailedTask: (run: Run, reason: string) => void = () => undefined;

  constructor(private readonly sim: Simulation) {}

  get down(): boolean {
    return this.outages > 0;
  }

  stop(): void {
    this.outages += 1;
    this.outageCount += 1;
    for (const queue of this.queues.values()) {
      for (const poll of queue.polls.splice(0)) {
        poll.cancelExpiry();
        poll.answer(undefined);
      }
    }
  }

  start(): void {
    this.outages -= 1;
    if (this.down) return;
    // What should have happened meanwhile happens now, beside the first calls that get through.
    for (const run of this.overdue.splice(0)) this.timer(this.sim.random.between(0, 1_500), run);
    for (const run of this.runs.values()) if (run.inbox.length > 0 && !run.taskDue) this.scheduleTask(run);
  }

  private timer(delayMs: number, run: () => void): () => void {
    let cancelled = false;
    const fire = () => {
      if (cancelled) return;
      if (this.down) this.overdue.push(fire);
      else run();
    };
    const cancel = this.sim.after(delayMs, fire);
    return () => {
      cancelled = true;
      cancel();
    };
  }

  // ---- Calls ----

  /** A call from a process; the answer may be lost although the server has done what was asked. */
  call<T>(process: Process, link: Link, serve: () => T, deadlineMs = CALL_DEADLINE_MS): Promise<T> {
    if (!process.mayAct()) return never();
    const { sim } = this;
    const { random } = sim;
    return new Promise<T>((resolve, reject) => {
      let settled = false;
      const settleBy = (act: () => void) => () => {
        if (settled) return;
        settled = true;
        cancelDeadline();
        act();
      };
      const cancelDeadline = process.timer(
        deadlineMs,
        settleBy(() => {
          reject(new Unavailable('The deadline of the call has passed.'));
        }),
      );
      const way = () => link.delayMs + (random.chance(0.02) ? random.between(20, 1_500) : random.between(1, 15));
      sim.after(way(), () => {
        if (link.outCut) return;
        if (this.down) {
          // Refused at once, like a port nobody listens on.
          process.deliver(
            settleBy(() => {
              reject(new Unavailable('The server is down.'));
            }),
          );
          return;
        }
        let outcome: () => void;
        try {
          const value = serve();
          outcome = () => {
            resolve(value);
          };
        } catch (error) {
          outcome = () => {
            reject(error as Error);
          };
        }
        const { outageCount } = this;
        const lost = random.chance(this.lostAnswers);
        sim.after(way(), () => {
          if (link.inCut) return;
          // The connection broke when the server went, or a proxy gave up: the call was served all the same.
          const broken = lost || this.outageCount !== outageCount;
          process.deliver(
            settleBy(
              broken
                ? () => {
                    reject(new Unavailable('The connection broke.'));
                  }
                : outcome,
            ),
          );
        });
      });
    });
  }

  /** A report of Core: tried again for about 10 s, then dropped. */
  async report(process: Process, link: Link, serve: () => void): Promise<void> {
    const untilMs = this.sim.nowMs + 10_000;
    for (let backoffMs = 100; ; backoffMs = Math.min(2_000, backoffMs * 2)) {
      try {
        await this.call(process, link, serve);
        return;
      } catch (error) {
        if (!(error instanceof Unavailable) || this.sim.nowMs + backoffMs > untilMs) return;
        await process.sleep(backoffMs);
      }
    }
  }

  // ---- Polls ----

  private queue(name: string): { tasks: Activity[]; polls: Poll[] } {
    let queue = this.queues.get(name);
    if (queue === undefined) this.queues.set(name, (queue = { tasks: [], polls: [] }));
    return queue;
  }

  /**
   * One long poll. The process may give up on it, as when its link is cut; the server does not know, and may still hand
   * a task to it.
   */
  poll(process: Process, link: Link, queueName: string): Promise<Task | undefined> {
    if (!process.mayAct()) return never();
    const { sim } = this;
    const { random } = sim;
    return new Promise((resolve) => {
      let settled = false;
      const answer = (task: Task | undefined) => {
        process.deliver(() => {
          if (settled) return;
          settled = true;
          resolve(task);
        });
      };
      // The client side notices a dead connection by its keep-alive, or by its own deadline.
      const watch = () => {
        process.timer(random.between(1_000, 9_000), () => {
          if (settled) return;
          if (link.inCut || link.outCut || sim.nowMs - sentAtMs > POLL_MS + 2_000) answer(undefined);
          else watch();
        });
      };
      const sentAtMs = sim.nowMs;
      watch();
      sim.after(random.between(1, 15) + link.delayMs, () => {
        if (link.outCut) return;
        if (this.down) {
          answer(undefined);
          return;
        }
        const poll: Poll = {
          queue: queueName,
          process,
          link,
          cancelExpiry: () => undefined,
          answer: (task) => {
            sim.after(random.between(1, 15) + link.delayMs, () => {
              if (link.inCut || !process.alive) {
                if (task !== undefined) this.lostPolls += 1;
                return;
              }
              answer(task);
            });
          },
        };
        poll.cancelExpiry = this.timer(POLL_MS, () => {
          this.dropPoll(poll);
          poll.answer(undefined);
        });
        // The server notices a broken connection, but not at once.
        process.onDeath(() => {
          this.timer(random.chance(0.8) ? random.between(1, 300) : random.between(300, 5_000), () => {
            this.dropPoll(poll);
          });
        });
        this.queue(queueName).polls.push(poll);
        this.match(queueName);
      });
    });
  }

  /** Tasks that were taken by a poll whose answer reached nobody. */
  lostPolls = 0;

  private dropPoll(poll: Poll): void {
    poll.cancelExpiry();
    const { polls } = this.queue(poll.queue);
    const index = polls.indexOf(poll);
    if (index >= 0) polls.splice(index, 1);
  }

  private match(queueName: string): void {
    const queue = this.queue(queueName);
    while (queue.tasks.length > 0 && queue.polls.length > 0 && !this.down) {
      const activity = queue.tasks.shift()!;
      if (activity.state !== 'scheduled') continue;
      const poll = queue.polls.splice(this.sim.random.int(0, queue.polls.length - 1), 1)[0]!;
      poll.cancelExpiry();
      this.started(activity);
      poll.answer({
        token: tokenOf(activity),
        workflowId: activity.run.workflowId,
        runId: activity.run.runId,
        spec: activity.spec,
        attempt: activity.attempt,
        scheduledAtMs: activity.scheduledAtMs,
        heartbeatDetails: activity.details,
      });
    }
  }

  // ---- Activities ----

  /** The command of a workflow. An id that is open already fails the workflow task. */
  schedule(run: Run, spec: ActivitySpec): void {
    if (run.status !== 'running') return;
    const key = keyOf(run, spec.activityId);
    if (this.activities.has(key)) {
      this.onFailedTask(run, `the activity id ${spec.activityId} is in use`);
      return;
    }
    const activity: Activity = {
      run,
      spec,
      number: (this.activityCount += 1),
      firstScheduledAtMs: this.sim.nowMs,
      attempt: 0,
      state: 'backoff',
      scheduledAtMs: 0,
      cancelRequested: false,
      details: undefined,
      timers: [],
      heartbeatTimer: undefined,
    };
    this.activities.set(key, activity);
    if (spec.scheduleToCloseMs !== undefined) {
      this.timer(spec.scheduleToCloseMs, () => {
        this.timedOut(activity, 'SCHEDULE_TO_CLOSE');
      });
    }
    this.dispatch(activity);
  }

  private dispatch(activity: Activity): void {
    if (activity.state !== 'backoff') return;
    activity.attempt += 1;
    activity.state = 'scheduled';
    activity.scheduledAtMs = this.sim.nowMs;
    const { scheduleToStartMs, queue } = activity.spec;
    if (scheduleToStartMs !== undefined) {
      activity.timers.push(
        this.timer(scheduleToStartMs, () => {
          if (activity.state === 'scheduled') this.timedOut(activity, 'SCHEDULE_TO_START');
        }),
      );
    }
    this.queue(queue).tasks.push(activity);
    this.match(queue);
  }

  private started(activity: Activity): void {
    activity.state = 'started';
    this.clearTimers(activity);
    const { startToCloseMs } = activity.spec;
    if (startToCloseMs !== undefined) {
      activity.timers.push(
        this.timer(startToCloseMs, () => {
          this.timedOut(activity, 'START_TO_CLOSE');
        }),
      );
    }
    this.expectHeartbeat(activity);
  }

  private expectHeartbeat(activity: Activity): void {
    activity.heartbeatTimer?.();
    const { heartbeatMs } = activity.spec;
    if (heartbeatMs === undefined) return;
    activity.heartbeatTimer = this.timer(heartbeatMs, () => {
      this.timedOut(activity, 'HEARTBEAT');
    });
  }

  private clearTimers(activity: Activity): void {
    for (const cancel of activity.timers.splice(0)) cancel();
    activity.heartbeatTimer?.();
    activity.heartbeatTimer = undefined;
  }

  private timedOut(activity: Activity, timeout: TimeoutType): void {
    if (activity.state === 'closed') return;
    const { retry } = activity.spec;
    const final =
      timeout === 'SCHEDULE_TO_START' || timeout === 'SCHEDULE_TO_CLOSE' || (retry.notRetried ?? []).includes(timeout);
    if (!final && this.retried(activity)) return;
    this.close(activity, { kind: 'timed-out', timeout, details: activity.details });
  }

  private retried(activity: Activity): boolean {
    const { retry, scheduleToCloseMs } = activity.spec;
    if (activity.cancelRequested) return false;
    if (retry.attempts !== undefined && activity.attempt >= retry.attempts) return false;
    const delayMs = Math.min(retry.maximumMs, retry.initialMs * retry.factor ** (activity.attempt - 1));
    if (scheduleToCloseMs !== undefined && this.sim.nowMs + delayMs >= activity.firstScheduledAtMs + scheduleToCloseMs)
      return false;
    this.clearTimers(activity);
    activity.state = 'backoff';
    this.timer(delayMs, () => {
      this.dispatch(activity);
    });
    return true;
  }

  private close(activity: Activity, end: ActivityEnd): void {
    if (activity.state === 'closed') return;
    activity.state = 'closed';
    this.clearTimers(activity);
    this.activities.delete(keyOf(activity.run, activity.spec.activityId));
    this.toRun(activity.run, { kind: 'activity', activityId: activity.spec.activityId, end });
  }

  /** By a task token; an attempt that is over, or whose run has closed, is not found. */
  private byToken(token: string): Activity | undefined {
    const [key, number, attempt] = token.split('#') as [string, string, string];
    const activity = this.activities.get(key);
    return activity?.number === Number(number) &&
      activity.attempt === Number(attempt) &&
      activity.state === 'started' &&
      activity.run.status === 'running'
      ? activity
      : undefined;
  }

  heartbeat(token: string, details?: unknown): 'renewed' | 'not-found' | 'cancel-requested' {
    const activity = this.byToken(token);
    if (activity === undefined) return 'not-found';
    activity.details = details;
    this.expectHeartbeat(activity);
    return activity.cancelRequested ? 'cancel-requested' : 'renewed';
  }

  /** Returns whether the attempt was still open. */
  complete(token: string, result: unknown): boolean {
    const activity = this.byToken(token);
    if (activity === undefined) return false;
    this.close(activity, { kind: 'completed', result });
    return true;
  }

  fail(token: string, failure: Failure): void {
    const activity = this.byToken(token);
    if (activity === undefined) return;
    if (!failure.nonRetryable && this.retried(activity)) return;
    this.close(activity, { kind: 'failed', failure });
  }

  cancelled(token: string): void {
    const activity = this.byToken(token);
    if (activity?.cancelRequested === true) this.close(activity, { kind: 'cancelled' });
  }

  requestCancel(run: Run, activityId: string): void {
    const activity = this.activities.get(keyOf(run, activityId));
    if (activity === undefined) return;
    activity.cancelRequested = true;
    if (activity.state !== 'started') this.close(activity, { kind: 'cancelled' });
  }

  isOpen(run: Run, activityId: string): boolean {
    return this.activities.has(keyOf(run, activityId));
  }

  // ---- Runs ----

  startRun(workflowId: string, deliver: Run['deliver']): Run {
    const run: Run = {
      workflowId,
      runId: `run${(this.runCount += 1)}`,
      status: 'running',
      closedAtMs: Number.POSITIVE_INFINITY,
      history: [],
      deliver,
      inbox: [],
      taskDue: false,
    };
    this.runs.set(run.runId, run);
    return run;
  }

  closeRun(run: Run, status: Exclude<RunStatus, 'running'>): void {
    if (run.status !== 'running') return;
    run.status = status;
    run.closedAtMs = this.sim.nowMs;
    for (const activity of [...this.activities.values()]) {
      if (activity.run !== run) continue;
      activity.state = 'closed';
      this.clearTimers(activity);
      this.activities.delete(keyOf(run, activity.spec.activityId));
    }
    this.sim.note(run.workflowId, () => `${run.runId} is ${status}`);
  }

  signal(runId: string, name: string, argument: unknown): 'delivered' | 'gone' {
    const run = this.runs.get(runId);
    if (run?.status !== 'running') return 'gone';
    this.toRun(run, { kind: 'signal', name, argument });
    return 'delivered';
  }

  describe(runId: string): 'running' | 'continued' | 'closed' {
    const status = this.runs.get(runId)?.status;
    if (status === 'running') return 'running';
    return status === 'continued' ? 'continued' : 'closed';
  }

  workflowTimer(run: Run, timer: number, delayMs: number): void {
    this.timer(delayMs, () => {
      this.toRun(run, { kind: 'timer', timer });
    });
  }

  /** An event for a workflow: it is in the history at once, and its code gets it with the next workflow task. */
  toRun(run: Run, event: RunEvent): void {
    if (run.status !== 'running') return;
    run.inbox.push(event);
    if (!run.taskDue) this.scheduleTask(run);
  }

  private scheduleTask(run: Run): void {
    const { random } = this.sim;
    run.taskDue = true;
    const delayMs = random.chance(0.03) ? random.between(100, 2_000) : random.between(2, 40);
    this.sim.after(delayMs + this.taskSlowMs, async () => {
      run.taskDue = false;
      if (this.down || run.status !== 'running') return;
      // Signals of a task come before what else it brings.
      const events = run.inbox.splice(0);
      events.sort((left, right) => Number(right.kind === 'signal') - Number(left.kind === 'signal'));
      for (const event of events) {
        if ((run.status as RunStatus) !== 'running') return;
        run.history.push({ atMs: this.sim.nowMs, event });
        await run.deliver(event);
      }
    });
  }
}

function keyOf(run: Run, activityId: string): string {
  return `${run.runId}/${activityId}`;
}

function tokenOf(activity: Activity): string {
  return `${keyOf(activity.run, activity.spec.activityId)}#${activity.number}#${activity.attempt}`;
}
