/** What the activities of a test fleet were called with, and how the calls ended. */

/** One run of an activity. */
export interface TestCall {
  /**
   * `pinned`: in a session. `worker`: through `workerActivities`, on one worker without a session. `pooled`: on any
   * worker with the capabilities.
   */
  readonly kind: 'pinned' | 'worker' | 'pooled';
  readonly activity: string;
  /** Where it ran. */
  readonly worker: string;
  /** The id of the session, as `currentSession().id`; null for calls in no session. */
  readonly session: string | null;
  readonly workflowId: string;
  readonly runId: string;
  /** 1 for the first attempt of the activity. */
  readonly attempt: number;
  readonly args: readonly unknown[];
  /** `lost`: its worker was lost under it, and nobody heard of its end. */
  readonly outcome: 'running' | 'completed' | 'failed' | 'lost';
}

/** The calls of a fleet in the order in which they began. */
export class CallLog {
  private readonly entries: { -readonly [K in keyof TestCall]: TestCall[K] }[] = [];

  /** Copies: what a test holds does not change under it. */
  all(): TestCall[] {
    return this.entries.map((entry) => ({ ...entry }));
  }

  /** Notes the begin of a call; what is returned notes its end, of which the first counts. */
  begin(call: Omit<TestCall, 'outcome'>): (outcome: TestCall['outcome']) => void {
    const entry = { ...call, outcome: 'running' as TestCall['outcome'] };
    this.entries.push(entry);
    return (outcome) => {
      if (entry.outcome === 'running') entry.outcome = outcome;
    };
  }

  /** How many calls run on a worker now. */
  runningOn(worker: string): number {
    return this.entries.filter((entry) => entry.worker === worker && entry.outcome === 'running').length;
  }
}
