/**
 * The folder for the artifacts of a run, and the workflow that brings artifacts which the run itself could not deliver.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Client } from '@temporalio/client';
import {
  DELIVER_ARTIFACTS_WORKFLOW,
  type ArtifactFile,
  type ArtifactsReference,
  type DeliverRequest,
} from '../../contract/document.js';
import { AtlasError, findError } from '../../contract/errors.js';
import { reasonOf } from '../report-error.js';
import type { TransferServer } from './transfer-server.js';
import { resultThroughOutages } from './watch-run.js';

/** The artifacts are text: what takes longer than this is a worker that does not answer. */
const DELIVERY_TIMEOUT_MS = 2 * 60_000;

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
  const end = await resultThroughOutages(client, handle, options.signal);
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
