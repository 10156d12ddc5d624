/**
 * The folder for the artifacts of a run, and the workflow that brings artifacts which the run itself could not deliver.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import {
  DELIVER_ARTIFACTS_WORKFLOW,
  type ArtifactFile,
  type ArtifactsReference,
  type DeliverRequest,
} from '../../contract/document.js';
import { AtlasError, findError } from '../../contract/errors.js';
import type { WorkerRecord } from '../../fleet/client.js';
import { FleetView } from '../../fleet/observe.js';
import { reasonOf } from '../report-error.js';
import type { TransferServer } from './transfer-server.js';
import { resultThroughOutages, type RunEnd } from './watch-run.js';

/** The artifacts are text: what takes longer than this is a worker that does not answer. */
const DELIVERY_TIMEOUT_MS = 2 * 60_000;
/** A worker that is there answers at once; after this long it is worth a word whom the command waits for. */
const SILENT_WAIT_MS = 3_000;
const LOOK_INTERVAL_MS = 1_000;
const LOOK_DEADLINE_MS = 5_000;
/** A worker that is away for this long is not just being restarted. */
const AWAY_WAIT_MS = 10_000;

export interface OutputFolder {
  readonly path: string;
  /** Removes the folders that were made and are still empty, so that a failed run leaves nothing behind. */
  removeIfEmpty(): Promise<void>;
}

/** @throws {@link AtlasError} `OutputUnwritable`. */
export async function openOutputFolder(path: string): Promise<OutputFolder> {
  let firstMade: string | undefined;
  try {
    firstMade = await mkdir(path, { recursive: true });
    // Asking for permission is not enough: a read-only file system only says no to a write.
    const probe = join(path, `.atlas-${randomBytes(6).toString('hex')}`);
    await (await open(probe, 'wx')).close();
    await rm(probe);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new AtlasError('OutputUnwritable', `The folder ${path} can not be written (${code ?? String(cause)}).`, {
      cause,
    });
  }
  return {
    path,
    async removeIfEmpty() {
      if (firstMade === undefined) return;
      for (let folder = path; folder.length >= firstMade.length; folder = dirname(folder)) {
        try {
          await rmdir(folder);
        } catch {
          // Not empty: something was delivered, or someone else uses it.
          return;
        }
      }
    },
  };
}

/** Whether every file of the result has arrived as the result describes it. */
export function allArrived(files: readonly ArtifactFile[], server: TransferServer): boolean {
  const received = server.received();
  return files.every(({ name, sha256 }) => received.get(name)?.sha256 === sha256);
}

export interface FetchOptions {
  readonly client: Client;
  readonly fleet: string;
  /** Of the run whose artifacts they are. */
  readonly workflowId: string;
  readonly artifacts: ArtifactsReference;
  readonly server: TransferServer;
  readonly signal: AbortSignal;
  /** Called once when the worker lets this command wait, with a sentence on whom it waits for. */
  readonly onWaiting: (why: string) => void;
  /** How to ask for them again. */
  readonly attachCommand: string;
}

/**
 * Has the worker send its artifacts to this command's server.
 *
 * @throws {@link AtlasError} `ArtifactsGone` when the worker does not have them any more, `DeliveryFailed` when it does
 * not answer or can not reach this command.
 */
export async function fetchArtifacts(options: FetchOptions): Promise<void> {
  const { client, artifacts, server } = options;
  if (artifacts.keptUntilMs < Date.now()) {
    throw new AtlasError(
      'ArtifactsGone',
      `The artifacts of ${options.workflowId} were kept on ${artifacts.worker} until ${new Date(artifacts.keptUntilMs).toISOString()}.`,
    );
  }
  const request: DeliverRequest = { artifacts, deliverTo: { url: server.deliverUrl, token: server.token } };
  const handle = await client.workflow.start(DELIVER_ARTIFACTS_WORKFLOW, {
    taskQueue: options.fleet,
    workflowId: `${options.workflowId}:deliver-${randomBytes(4).toString('hex')}`,
    args: [request],
    workflowExecutionTimeout: DELIVERY_TIMEOUT_MS,
  });
  const stop = new AbortController();
  const signal = AbortSignal.any([options.signal, stop.signal]);
  const ended = resultThroughOutages(client, handle, signal);
  ended.catch(() => undefined);
  let end: RunEnd<unknown>;
  try {
    end = await Promise.race([ended, untilKeeperIsGone(options, signal)]);
  } catch (error) {
    // Nobody waits for it any more. It ends by itself as well.
    await client
      .withDeadline(Date.now() + LOOK_DEADLINE_MS, () => handle.terminate('the command gave up'))
      .catch(() => undefined);
    options.signal.throwIfAborted();
    throw error;
  } finally {
    stop.abort();
  }
  if (end.kind === 'failed') {
    const found = findError(end.error);
    // The worker's own words: it tells artifacts that were deleted from a worker that is away.
    if (found?.code === 'ArtifactsGone') {
      throw new AtlasError('ArtifactsGone', found.message, { cause: end.error, next: found.next });
    }
    throw new AtlasError(
      'DeliveryFailed',
      `The artifacts of ${options.workflowId} are on ${artifacts.worker}, which did not deliver them: ${reasonOf(end.error)}`,
      {
        cause: end.error,
        next: `See \`atlas workers ls\` for the state of ${artifacts.worker}, then run \`${options.attachCommand}\`.`,
      },
    );
  }
  if (!allArrived(artifacts.files, server)) {
    throw new AtlasError(
      'DeliveryFailed',
      `${artifacts.worker} reports the artifacts of ${options.workflowId} as delivered, but not all of them arrived here.`,
      { next: `Run \`${options.attachCommand}\`.` },
    );
  }
}

/**
 * Watches the worker that keeps the artifacts while it is asked for them. Rejects when it is away for longer than a
 * restart takes, so that nobody waits for what can not come; never resolves.
 */
async function untilKeeperIsGone(options: FetchOptions, signal: AbortSignal): Promise<never> {
  const { client, fleet, artifacts } = options;
  const { worker, queue } = artifacts;
  const view = new FleetView(client, fleet);
  const begunAt = Date.now();
  let awaySince: number | undefined;
  let hasSaid = false;
  for (;;) {
    // A look that fails says nothing: the workflow ends by itself.
    const found = await client
      .withDeadline(Date.now() + LOOK_DEADLINE_MS, () => view.findWorker(worker))
      .catch(() => 'not known' as const);
    signal.throwIfAborted();
    if (found !== 'not known') {
      const away = whyAway(found, queue);
      awaySince = away === null ? undefined : (awaySince ?? Date.now());
      if (awaySince !== undefined && Date.now() - awaySince >= AWAY_WAIT_MS) {
        throw new AtlasError('ArtifactsGone', `Worker ${worker}, which keeps the artifacts, ${away ?? 'is away'}.`, {
          next: `Start worker ${worker} again and run \`${options.attachCommand}\`, or run the job again.`,
        });
      }
      if (!hasSaid && (away !== null || Date.now() - begunAt >= SILENT_WAIT_MS)) {
        hasSaid = true;
        options.onWaiting(`Waiting for ${worker}, which keeps the artifacts${away === null ? '' : ` and ${away}`}`);
      }
    }
    await sleep(LOOK_INTERVAL_MS, undefined, { signal });
  }
}

/** Why a worker can not answer now, as the end of a sentence; null for one that can. */
function whyAway(found: WorkerRecord | undefined, queue: string): string | null {
  if (found === undefined) return 'is not known to the fleet any more';
  if (found.state === 'stopped') return 'has stopped';
  if (found.state === 'lost') return 'is lost';
  return found.queue === queue ? null : 'runs with another state directory now';
}
