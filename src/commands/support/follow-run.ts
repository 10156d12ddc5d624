/**
 * Follows a run from its start, or from wherever it is, to its end: shows it, leaves or cancels it at Ctrl-C, says why it
 * failed, and brings its artifacts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { DocumentResult } from '../../contract/document.js';
import { AtlasError, findError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { capabilityLabel } from '../../contract/names.js';
import { isUnavailable } from '../../temporal/connect.js';
import { plainText } from '../../terminal/format.js';
import { currentStage, stageLabel } from '../../terminal/run-view.js';
import { reasonOf, stepOf, workerOf } from '../report-error.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { allArrived, fetchArtifacts, type OutputFolder } from './artifacts.js';
import { fleetOf } from './connection.js';
import { printResult } from './print-run.js';
import { openRunDisplay, type RunDisplay } from './run-display.js';
import { attachCommand, connectionFlags, isJson } from './run-options.js';
import { closeRun, startOfRun, workerHasDocument, type RunState } from './run-progress.js';
import type { TransferServer } from './transfer-server.js';
import { watchRun, type RunEnd } from './watch-run.js';

/** How long Ctrl-C waits for a cancelled run to close, so that no slot is left behind when the command returns. */
const CANCEL_WAIT_MS = 20_000;

export interface FollowedRun {
  readonly context: CommandContext;
  readonly parsed: ParsedCommand;
  readonly client: Client;
  readonly handle: WorkflowHandle;
  readonly server: TransferServer;
  /** Where the artifacts are brought; null where they only go into a directory of the worker. */
  readonly folder: OutputFolder | null;
  readonly documentName: string;
  readonly startedAtMs: number;
  readonly kind: 'started' | 'dev' | 'attached';
  readonly servesDocument: boolean;
  /** False for a run that had ended before this command looked: there is no progress to show. */
  readonly isRunning: boolean;
  /** Rejects when the server or worker of `--dev` ends by itself: waiting for the run has no sense then. */
  readonly failed?: Promise<never>;
}

export async function followRun(run: FollowedRun): Promise<ExitCode> {
  const { context, parsed, client, handle, documentName } = run;
  const { workflowId } = handle;
  const nowMs = Date.now();
  let state = startOfRun({
    document: documentName,
    workflowId,
    atMs: run.kind === 'attached' ? nowMs : run.startedAtMs,
  });
  const isSilent = isJson(parsed);
  if (!isSilent) context.stderr.write(`Run ${plainText(workflowId)}\n`);
  const display = await openRunDisplay(context, state.view, {
    silent: isSilent || !run.isRunning,
    startedAtMs: run.startedAtMs,
  });
  const wait = new WaitLimit(context.signal, parsed.options['timeout'], run.failed);
  let end: RunEnd<DocumentResult>;
  try {
    end = await watchRun<DocumentResult>({
      client,
      handle,
      state,
      fleet: fleetOf(parsed),
      waitHint: waitHint(parsed, run.kind),
      signal: wait.signal,
      onState: (next) => {
        state = next;
        display.update(next.view);
      },
    });
  } catch (error) {
    await display.end();
    if (wait.failure !== undefined) throw wait.failure as Error;
    if (wait.signal.aborted) throw await stopWatching(run, state, wait.reason());
    throw error;
  } finally {
    wait.clear();
  }
  state = closeRun(state, Date.now(), endFacts(end));
  display.update(state.view);
  try {
    if (end.kind === 'failed') throw jobFailure(run, state, end.error);
    await bringArtifacts(run, end.result, display);
  } finally {
    await display.end();
  }
  await printResult(run, end.result, run.isRunning ? Date.now() - run.startedAtMs : null);
  return EXIT.done;
}

function endFacts(end: RunEnd<DocumentResult>): Parameters<typeof closeRun>[2] {
  if (end.kind === 'completed') {
    const { delivered, directory, artifacts, sessionAttempts } = end.result;
    return {
      failed: false,
      delivered: delivered || directory !== undefined,
      worker: artifacts.worker,
      redos: sessionAttempts - 1,
    };
  }
  const failedStep = stepOf(end.error);
  // A run may fail between two looks at it: only its failure tells then who had it.
  const worker = workerOf(end.error);
  return {
    failed: true,
    ...(failedStep === undefined ? {} : { failedStep }),
    ...(worker === undefined ? {} : { worker }),
  };
}

/** What may be missing when no worker takes the run. */
function waitHint(parsed: ParsedCommand, kind: FollowedRun['kind']): string {
  if (kind === 'dev') return 'No worker has taken the run yet; the local worker may still be starting.';
  const capabilities = (parsed.options['capabilities'] as string[] | undefined) ?? [];
  const wanted = capabilities.length === 0 ? '' : ` with ${capabilityLabel(capabilities)}`;
  const flags = connectionFlags(parsed);
  const start = `atlasd${flags}${capabilities.length === 0 ? '' : ` --capabilities ${capabilities.join(',')}`}`;
  return `No worker${wanted} of the fleet "${fleetOf(parsed)}" has taken the run yet. See \`atlas workers ls${flags}\`; start one with \`${start}\`.`;
}

/** What ends the waiting before the run ends: the user's Ctrl-C, `--timeout`, or the death of the servers of `--dev`. */
class WaitLimit {
  readonly signal: AbortSignal;
  /** Why the servers of `--dev` ended. */
  failure: Error | undefined;
  readonly #timeout = new AbortController();
  readonly #dead = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(interrupt: AbortSignal, timeoutMs: unknown, failed: Promise<never> | undefined) {
    this.signal = AbortSignal.any([interrupt, this.#timeout.signal, this.#dead.signal]);
    if (typeof timeoutMs === 'number') this.#timer = setTimeout(() => this.#timeout.abort(), timeoutMs);
    failed?.catch((error: unknown) => {
      this.failure = error instanceof Error ? error : new Error(String(error));
      this.#dead.abort();
    });
  }

  reason(): 'interrupt' | 'timeout' {
    return this.#timeout.signal.aborted ? 'timeout' : 'interrupt';
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}

/**
 * Ctrl-C or `--timeout` while the run goes on. As long as the worker does not have the document the run is lost without
 * this command, so it is cancelled; afterwards it is left alone. What runs on the servers of `--dev` ends with them.
 */
async function stopWatching(run: FollowedRun, state: RunState, reason: 'interrupt' | 'timeout'): Promise<AtlasError> {
  const { handle, parsed, kind } = run;
  const { workflowId } = handle;
  const code = reason === 'timeout' ? 'WaitTimeout' : 'Interrupted';
  const why = reason === 'timeout' ? 'The run did not end in time' : 'Interrupted';
  const stage = currentStage(state.view);
  const at = stage === undefined ? '' : ` at "${stageLabel(stage.name)}"`;
  const attach = attachCommand(parsed, workflowId);
  if (kind === 'attached' || (kind === 'started' && workerHasDocument(state))) {
    const { worker } = state.view;
    const goesOn =
      worker === null
        ? 'The run goes on; its worker keeps the artifacts for a day.'
        : `The run continues on ${worker}, which keeps the artifacts for a day.`;
    return new AtlasError(code, `${why}${at}. ${goesOn}`, {
      next: `\`${attach}\` shows its progress and fetches the artifacts.`,
    });
  }
  const outcome = await cancelAndWait(run);
  if (outcome === 'closed') {
    return new AtlasError(code, `${why}${at}. The run was cancelled; nothing of it is left on a worker.`, {
      next:
        reason === 'timeout'
          ? 'Run it again with a longer --timeout, or without one.'
          : 'Run the same command again to start over.',
    });
  }
  const waited = `${CANCEL_WAIT_MS / 1_000} s`;
  const what =
    outcome === 'asked'
      ? `The run was asked to cancel but had not ended after ${waited}.`
      : `The run could not be cancelled, as Temporal did not answer for ${waited}; it will fail without this command.`;
  return new AtlasError(code, `${why}${at}. ${what}`, { next: `See how it ends with \`${attach}\`.` });
}

/** Whether the run has closed within the bound. Temporal may be away just now: asked again until then. */
async function cancelAndWait({
  client,
  handle,
  context,
  parsed,
}: FollowedRun): Promise<'closed' | 'asked' | 'not reached'> {
  if (!isJson(parsed)) context.stderr.write('Cancelling the run; Ctrl-C again to leave at once.\n');
  const deadline = Date.now() + CANCEL_WAIT_MS;
  const signal = AbortSignal.timeout(CANCEL_WAIT_MS);
  let isAsked = false;
  while (Date.now() < deadline) {
    try {
      await client.withDeadline(deadline, async () => {
        await handle.cancel();
        isAsked = true;
        if (await isUntouched(handle)) await handle.terminate('cancelled before any worker had begun it');
      });
      await client.withAbortSignal(signal, () => handle.result());
      return 'closed';
    } catch (error) {
      if (error instanceof Error && ['WorkflowFailedError', 'WorkflowNotFoundError'].includes(error.name)) {
        return 'closed';
      }
      if (!isUnavailable(error) || signal.aborted) break;
      await sleep(500);
    }
  }
  return isAsked ? 'asked' : 'not reached';
}

/** Of a run that was started and asked to cancel, and that no worker has ever looked at. */
const UNTOUCHED_HISTORY_LENGTH = 3;

/**
 * Whether no worker has ever run the workflow. A fleet without workers can not act on a cancellation; a run that has not
 * begun holds nothing, so that it may be terminated instead.
 */
async function isUntouched(handle: WorkflowHandle): Promise<boolean> {
  const { historyLength } = await handle.describe();
  return historyLength <= UNTOUCHED_HISTORY_LENGTH;
}

/** The failure of the job with its step and reason, and the next step for that reason. */
function jobFailure(run: FollowedRun, state: RunState, error: unknown): AtlasError {
  const found = findError(error);
  const step = stepOf(error);
  const worker = state.view.worker === null ? '' : ` on ${state.view.worker}`;
  const where = step === undefined ? '' : ` at ${step}${worker}`;
  const reason = found?.message ?? reasonOf(error);
  // The worker could not reach this command, which the job can only report as an address that does not answer.
  const isOurServer = run.servesDocument && found?.code === 'SourceUnreachable';
  const next = isOurServer
    ? 'Choose an address of this host that the worker can reach with --serve-address, and allow it on the worker.'
    : (found?.next ?? 'The history of the workflow has every attempt; run the command again when the reason is gone.');
  return new AtlasError('JobFailed', `The job failed${where}: ${reason}`, { cause: error, next });
}

/** Whatever the run itself did not deliver is asked for once more, from the worker that keeps it. */
async function bringArtifacts(run: FollowedRun, result: DocumentResult, display: RunDisplay): Promise<void> {
  const { client, handle, parsed, server, context } = run;
  if (run.folder === null) {
    if (result.directory !== undefined) return;
    throw new AtlasError(
      'DeliveryFailed',
      `${result.artifacts.worker} did not put the artifacts into the directory: its version of Atlas is older than that.`,
      { next: `Run \`${attachCommand(parsed, handle.workflowId)}\` to fetch them.` },
    );
  }
  if (run.kind !== 'attached' && result.delivered && allArrived(result.artifacts.files, server)) return;
  await display.end();
  if (!isJson(parsed)) {
    const why = result.deliveryError === undefined ? '' : ` (the run could not deliver them: ${result.deliveryError})`;
    context.stderr.write(`Fetching the artifacts from ${plainText(result.artifacts.worker)}${plainText(why)}\n`);
  }
  await fetchArtifacts({
    client,
    fleet: fleetOf(parsed),
    workflowId: handle.workflowId,
    artifacts: result.artifacts,
    server,
    signal: context.signal,
    onWaiting: (why) => {
      if (!isJson(parsed)) context.stderr.write(`${plainText(why)}\n`);
    },
    attachCommand: attachCommand(parsed, handle.workflowId),
  });
}
