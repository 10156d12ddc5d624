/**
 * Notices owners that have closed without a release: one visibility query per worker every few seconds while sessions are
 * held, however many they are, instead of waiting for each lease's next renewal.
 */
import type { Client } from '@temporalio/client';
import { WORKER_WORKFLOW_TYPE } from '../contract/fleet.js';
import { fleetControlQueue } from '../contract/names.js';
import type { EventLog } from './ports.js';

const INTERVAL_MS = 3_000;
const RUNS_PER_QUERY = 200;
const CALL_DEADLINE_MS = 5_000;
/**
 * Visibility queries a second that the whole fleet allows itself. Hosted Temporal gives a namespace some tens; lease
 * renewals remain the safety net where the interval is long.
 */
export const FLEET_QUERIES_PER_SECOND = 10;
const COUNT_WORKERS_EVERY_MS = 60_000;
/** After an error, such as an exhausted budget, up to this. */
const MAX_BACKOFF_MS = 60_000;

export interface OwnerCheckOptions {
  readonly client: Client;
  readonly namespace: string;
  readonly fleet: string;
  /** The runs that own a session here. */
  readonly owners: () => readonly string[];
  readonly onClosed: (runIds: readonly string[]) => Promise<void>;
  readonly log: EventLog;
}

/** How long to wait between two checks in a fleet of this size, so that it keeps within its budget. Pure. */
export function checkIntervalMs(workerCount: number): number {
  return Math.max(INTERVAL_MS, (workerCount / FLEET_QUERIES_PER_SECOND) * 1_000);
}

export class OwnerCheck {
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;
  private backoffMs = 0;
  private workerCount = 1;
  private countedAtMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: OwnerCheckOptions) {}

  start(): void {
    this.schedule();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private schedule(): void {
    if (this.stopped) return;
    this.timer = setTimeout(
      () => {
        void this.check().finally(() => {
          this.schedule();
        });
      },
      checkIntervalMs(this.workerCount) + this.backoffMs,
    );
  }

  private async check(): Promise<void> {
    const runIds = [...new Set(this.options.owners())];
    // Nothing is asked while no session is held.
    if (runIds.length === 0) return;
    try {
      await this.countWorkers();
      const closed: string[] = [];
      for (let from = 0; from < runIds.length; from += RUNS_PER_QUERY) {
        closed.push(...(await this.closedOf(runIds.slice(from, from + RUNS_PER_QUERY))));
      }
      this.backoffMs = 0;
      if (closed.length > 0) await this.options.onClosed(closed);
    } catch (error) {
      this.backoffMs = Math.min(MAX_BACKOFF_MS, Math.max(INTERVAL_MS, this.backoffMs * 2));
      this.options.log.debug(
        {
          event: 'owner-check-failed',
          backoffMs: this.backoffMs,
          reason: error instanceof Error ? error.message : String(error),
        },
        'The check for closed owners failed; lease renewals notice them too',
      );
    }
  }

  private async closedOf(runIds: readonly string[]): Promise<string[]> {
    const { client, namespace } = this.options;
    const list = runIds.map((runId) => `'${runId}'`).join(', ');
    const response = await client.connection.withDeadline(Date.now() + CALL_DEADLINE_MS, () =>
      client.connection.workflowService.listWorkflowExecutions({
        namespace,
        pageSize: runIds.length,
        query: `RunId IN (${list}) AND ExecutionStatus != 'Running'`,
      }),
    );
    return (response.executions ?? []).flatMap(({ execution }) => (execution?.runId == null ? [] : [execution.runId]));
  }

  private async countWorkers(): Promise<void> {
    const nowMs = performance.now();
    if (nowMs - this.countedAtMs < COUNT_WORKERS_EVERY_MS) return;
    const { client, fleet } = this.options;
    const { count } = await client.connection.withDeadline(Date.now() + CALL_DEADLINE_MS, () =>
      client.workflow.count(
        `WorkflowType = '${WORKER_WORKFLOW_TYPE}' AND ExecutionStatus = 'Running' AND TaskQueue = '${fleetControlQueue(fleet)}'`,
      ),
    );
    this.countedAtMs = nowMs;
    this.workerCount = Math.max(1, count);
  }
}
