/**
 * The doctor: looks at a fleet and at its server, asks what has to be asked, and says what is wrong. It changes nothing,
 * but that its probes are short workflows of the fleet, of which one takes a free slot for an instant.
 *
 * Owns the order and the bounds: checks run side by side, and what is not finished at the deadline says so.
 */
import type { Client } from '@temporalio/client';
import { formatDurationMs } from '../../contract/duration.js';
import { WORKER_MEMO_KEY, type WorkerMemo } from '../../contract/fleet.js';
import { VERSION } from '../../contract/version.js';
import { inLanes } from '../lanes.js';
import { FleetView, workersQuery } from '../observe.js';
import { withOwners } from '../owners.js';
import { listPools } from '../pools.js';
import { probeAcquire, probeQueues } from '../probe-client.js';
import type { FleetLook, PoolRecord } from '../records.js';
import { type AtlasCommand, bad, CHECK_NAMES, type CheckName, type Finding, ok } from './findings.js';
import {
  checkClocks,
  checkDisks,
  checkNames,
  checkReserves,
  checkSessions,
  checkVersions,
  checkWorkers,
  liveWorkers,
  type MachineOf,
} from './look.js';
import { findingsOfAcquire, findingsOfQueues, notTried } from './probes.js';
import { askServer, checkServer } from './server.js';
import { checkStranded, checkWaiting, listWaiting } from './waiting.js';

export interface ExamineOptions {
  readonly fleet: string;
  /** For the subject of what is found about the server. */
  readonly address: string;
  /** Which checks to run. @default all */
  readonly checks?: readonly CheckName[];
  /** After this the result is complete but for what was not finished. */
  readonly timeoutMs: number;
  readonly atlas?: AtlasCommand;
  /** A check has ended. */
  readonly onChecked?: (check: CheckName) => void;
}

export interface Examination {
  /** By check, in the order of the checks. */
  readonly findings: readonly Finding[];
  /** What checks threw that Temporal, or the way to it, is to blame for or not. */
  readonly errors: readonly unknown[];
}

/** Probes end before the deadline, so that there is time to read their answers: a quarter of it, and no more than this. */
const PROBE_MARGIN_MS = 3_000;
/** Each acquire probe holds one slot for an instant: few at once, so that they are not in the way. */
const ACQUIRES_AT_ONCE = 2;

export async function examine(client: Client, options: ExamineOptions): Promise<Examination> {
  const { fleet, checks = CHECK_NAMES, timeoutMs, atlas = (command) => command, onChecked } = options;
  const deadlineMs = Date.now() + timeoutMs;
  const examiner = new Examiner(
    client,
    fleet,
    options.address,
    atlas,
    deadlineMs,
    Math.min(PROBE_MARGIN_MS, timeoutMs / 4),
  );
  const errors: unknown[] = [];
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), timeoutMs);
  });
  try {
    const byCheck = await client.connection.withDeadline(deadlineMs, () =>
      Promise.all(
        CHECK_NAMES.filter((check) => checks.includes(check)).map(async (check): Promise<readonly Finding[]> => {
          const again = `\`${atlas(`atlas doctor --check ${check} --timeout ${formatDurationMs(timeoutMs * 2)}`)}\``;
          try {
            const result = await Promise.race([examiner[check](), late]);
            if (result !== 'late') return result;
          } catch (error) {
            // A call that was ended by the deadline of all is late, and no error.
            if (Date.now() < deadlineMs) {
              errors.push(error);
              const reason = error instanceof Error ? error.message : String(error);
              return [bad(check, 'fail', fleet, `it could not be checked: ${reason}`, again)];
            }
          } finally {
            onChecked?.(check);
          }
          return [bad(check, 'fail', fleet, `it was not checked within ${formatDurationMs(timeoutMs)}`, again)];
        }),
      ),
    );
    return { findings: byCheck.flat(), errors };
  } finally {
    clearTimeout(timer);
  }
}

type Checks = { readonly [Check in CheckName]: () => Promise<readonly Finding[]> };

/** Runs single checks. What several of them need is asked for once. */
class Examiner implements Checks {
  private lookAt: Promise<FleetLook> | undefined;
  private poolsAt: Promise<PoolRecord[]> | undefined;
  private waitingWork: ReturnType<typeof listWaiting> | undefined;

  constructor(
    private readonly client: Client,
    private readonly fleet: string,
    private readonly address: string,
    private readonly atlas: AtlasCommand,
    private readonly deadlineMs: number,
    private readonly probeMarginMs: number,
  ) {}

  async server(): Promise<readonly Finding[]> {
    return checkServer(await askServer(this.client, this.address));
  }

  async workers(): Promise<readonly Finding[]> {
    return checkWorkers(await this.look(), this.fleet, this.atlas, Date.now());
  }

  async queues(): Promise<readonly Finding[]> {
    const { workers } = await this.look();
    const targets = liveWorkers(workers).map(({ name, queue }) => ({ worker: name, queue }));
    return findingsOfQueues(await probeQueues(this.client, targets, this.probing()), workers, this.fleet, this.atlas);
  }

  async acquire(): Promise<readonly Finding[]> {
    const pools = (await this.pools()).filter(({ liveWorkers: live }) => live > 0);
    if (pools.length === 0) return [ok('acquire', this.fleet, 'no live worker to grant a session')];
    return await inLanes(pools, ACQUIRES_AT_ONCE, async (pool) => {
      if (pool.freeSlots === 0) return notTried(pool);
      const probed = await probeAcquire(this.client, pool.capabilities, this.probing());
      const isUnclear = probed.kind === 'answered' && !probed.answer.outcome.answered;
      const now = isUnclear ? await listPools(this.client, this.fleet, await this.lookNow()) : [];
      return findingsOfAcquire(
        pool,
        probed,
        now.find((each) => each.pool === pool.pool),
        this.fleet,
        this.atlas,
      );
    });
  }

  async waiting(): Promise<readonly Finding[]> {
    const [work, pools, { workers }] = await Promise.all([this.work(), this.pools(), this.look()]);
    return checkWaiting(work, pools, workers, this.fleet, this.atlas);
  }

  async stranded(): Promise<readonly Finding[]> {
    const [work, { workers }] = await Promise.all([this.work(), this.look()]);
    return checkStranded(work, workers, this.fleet, this.atlas);
  }

  async sessions(): Promise<readonly Finding[]> {
    const { sessions } = await this.look();
    return checkSessions(await withOwners(this.client, sessions), this.fleet, this.atlas);
  }

  async clocks(): Promise<readonly Finding[]> {
    return checkClocks((await this.look()).workers, this.fleet);
  }

  async versions(): Promise<readonly Finding[]> {
    return checkVersions((await this.look()).workers, this.fleet, VERSION);
  }

  async disks(): Promise<readonly Finding[]> {
    return checkDisks((await this.look()).workers, this.fleet);
  }

  async names(): Promise<readonly Finding[]> {
    const [{ workers }, machines] = await Promise.all([this.look(), this.machines()]);
    return checkNames(workers, machines, this.fleet);
  }

  async reserves(): Promise<readonly Finding[]> {
    return checkReserves((await this.look()).workers, this.fleet);
  }

  private look(): Promise<FleetLook> {
    this.lookAt ??= this.lookNow();
    return this.lookAt;
  }

  private lookNow(): Promise<FleetLook> {
    return new FleetView(this.client, this.fleet).look();
  }

  private pools(): Promise<PoolRecord[]> {
    this.poolsAt ??= this.look().then((look) => listPools(this.client, this.fleet, look));
    return this.poolsAt;
  }

  private work(): ReturnType<typeof listWaiting> {
    this.waitingWork ??= listWaiting(this.client);
    return this.waitingWork;
  }

  private probing() {
    return { fleet: this.fleet, deadlineMs: this.deadlineMs - this.probeMarginMs };
  }

  /** The machine ids that workers have registered with, which are in no record. */
  private async machines(): Promise<MachineOf[]> {
    const machines: MachineOf[] = [];
    for await (const { memo } of this.client.workflow.list({ query: workersQuery(this.fleet) })) {
      const identity = (memo?.[WORKER_MEMO_KEY] as WorkerMemo | undefined)?.identity;
      if (identity !== undefined) machines.push({ worker: identity.name, machineId: identity.machineId });
    }
    return machines;
  }
}
