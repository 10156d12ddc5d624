/**
 * What `atlas run` does, from the command line to the summary on the screen: check, connect, serve, start, watch, and
 * bring the artifacts.
 *
 * The order matters: whatever can be found wrong without a server is found before anything is started, and the folder
 * and the transfer server exist before the workflow that needs them. Everything opened is closed in the reverse order.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isAbsolute, join, relative, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client, WorkflowHandle } from '@temporalio/client';
import {
  OUTLINE_HEADING,
  PROCESS_DOCUMENT_WORKFLOW,
  type DocumentRequest,
  type DocumentResult,
  type DocumentSource,
} from '../../contract/document.js';
import { AtlasError, findError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { capabilityLabel } from '../../contract/names.js';
import { isUnavailable } from '../../temporal/connect.js';
import { count, formatBytes, formatDuration, plainLines, plainText, wrapLines } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import { currentStage, stageLabel } from '../../terminal/run-view.js';
import { styleFor, terminalWidth } from '../../terminal/style.js';
import { reasonOf, stepOf, workerOf } from '../report-error.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { allArrived, fetchArtifacts, openOutputFolder, type OutputFolder } from './artifacts.js';
import { fleetOf, openConnection } from './connection.js';
import { prepareSource, type PreparedSource } from './document-source.js';
import { didYouMean } from './did-you-mean.js';
import type { ServeAddress } from './parse.js';
import { programOf } from './program-name.js';
import { openRunDisplay, type RunDisplay } from './run-display.js';
import { closeRun, startOfRun, workerHasDocument, type RunState } from './run-progress.js';
import { DEFAULT_SERVE_ADDRESS, startTransferServer, type TransferServer } from './transfer-server.js';
import { watchRun, type RunEnd } from './watch-run.js';

const JOBS = ['process-document'];
const ID_BYTES = 4;
const MAX_SLUG_LENGTH = 40;
/** How long Ctrl-C waits for a cancelled run to close, so that no slot is left behind when the command returns. */
const CANCEL_WAIT_MS = 20_000;
/** A summary is a few sentences; more than this is not printed on a screen. */
const MAX_SUMMARY_BYTES = 64 * 1024;
const MAX_TEXT_WIDTH = 100;

type Target =
  { readonly kind: 'start'; readonly source: string } | { readonly kind: 'attach'; readonly workflowId: string };

export async function runDocument(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const target = readTarget(parsed);
  return target.kind === 'attach'
    ? attachToRun(context, parsed, target.workflowId)
    : startRun(context, parsed, target.source);
}

function readTarget({ args, options }: ParsedCommand): Target {
  const [job, source] = args as readonly (string | undefined)[];
  const attach = options['attach'];
  if (typeof attach === 'string') {
    const conflicting = source !== undefined ? 'a document' : options['dev'] === true ? '--dev' : undefined;
    if (conflicting !== undefined) {
      throw new AtlasError('Usage', `--attach follows a run that exists; it does not go with ${conflicting}.`, {
        next: `Run \`atlas run --attach ${attach}\`.`,
      });
    }
    return { kind: 'attach', workflowId: attach };
  }
  if (job === undefined) {
    throw new AtlasError('Usage', 'atlas run needs a job and a document.', {
      next: 'Run `atlas run process-document FILE`, or `atlas run --help`.',
    });
  }
  if (!JOBS.includes(job)) {
    const looksLikeDocument = source === undefined && /[./]/.test(job);
    throw new AtlasError('Usage', `There is no job "${plainText(job)}".${didYouMean(job, JOBS)}`, {
      next: looksLikeDocument
        ? `Run \`atlas run process-document ${job}\`.`
        : `The jobs are: ${JOBS.join(', ')}; see \`atlas run --help\`.`,
    });
  }
  if (source === undefined) {
    throw new AtlasError('Usage', `${job} needs a document.`, { next: `Run \`atlas run ${job} FILE\`.` });
  }
  return { kind: 'start', source };
}

// Starting -----------------------------------------------------------------------------------------------------------

async function startRun(context: CommandContext, parsed: ParsedCommand, input: string): Promise<ExitCode> {
  const source = await prepareSource(input, context.cwd, context.signal);
  const closers: (() => Promise<unknown>)[] = [];
  if (source.kind === 'served') closers.push(() => source.handle.close());
  try {
    const shortId = randomBytes(ID_BYTES).toString('hex');
    const slug = slugOf(source.name);
    const folder = await openOutputFolder(
      resolve(context.cwd, textOption(parsed, 'output') ?? join('atlas-artifacts', `${slug}-${shortId}`)),
    );
    closers.push(() => folder.removeIfEmpty());
    const isDev = parsed.options['dev'] === true;
    const dev = isDev ? await openDevConnection(context, parsed, closers) : undefined;
    const connection = dev ?? (await openConnection(context.env, parsed));
    const { client } = connection;
    closers.push(() => connection.close());
    const server = await startTransferServer({
      address: serveAddressOf(parsed),
      outputDirectory: folder.path,
      ...(source.kind === 'served' ? { file: source } : {}),
    });
    closers.push(() => server.close());
    context.signal.throwIfAborted();

    const workflowId = textOption(parsed, 'id') ?? `document-${slug}-${shortId}`;
    const startedAtMs = Date.now();
    const handle = await startWorkflow(client, parsed, workflowId, requestOf(parsed, source, server), source.name);
    return await followRun({
      context,
      parsed,
      client,
      handle,
      server,
      folder,
      documentName: source.name,
      startedAtMs,
      kind: isDev ? 'dev' : 'started',
      servesDocument: source.kind === 'served',
      isRunning: true,
      ...(dev === undefined ? {} : { failed: dev.failed }),
    });
  } finally {
    await closeAll(closers);
  }
}

async function openDevConnection(
  context: CommandContext,
  parsed: ParsedCommand,
  closers: (() => Promise<unknown>)[],
): Promise<{ client: Client; close(): Promise<void>; failed: Promise<never> }> {
  const { describeDevStep, startDevEnvironment } = await import('./dev-environment.js');
  const { RESOLVE_STEP_LABELS } = await import('../../temporal/resolve-server.js');
  const { connectClient, plainProfile } = await import('../../temporal/connect.js');
  const isSilent = isJson(parsed);
  const style = styleFor(context.stderr, context.env);
  const environment = await startDevEnvironment({
    env: context.env,
    signal: context.signal,
    // The worker must have what the run asks for, or it would wait for ever.
    worker: { fleet: fleetOf(parsed), capabilities: parsed.options['capabilities'] as string[] | undefined },
    onStep: (step) => {
      const line = isSilent ? undefined : describeDevStep(step, RESOLVE_STEP_LABELS);
      if (line !== undefined) context.stderr.write(`${style.dim(line)}\n`);
    },
  });
  closers.push(() => environment.stop());
  const connection = await connectClient(plainProfile(environment.address, environment.namespace));
  return { client: connection.client, close: () => connection.close(), failed: environment.failed };
}

function requestOf(parsed: ParsedCommand, source: PreparedSource, server: TransferServer): DocumentRequest {
  const { language, length, capabilities, leaseTtl } = parsed.options;
  return {
    source: sourceFor(source, server),
    deliverTo: { url: server.deliverUrl, token: server.token },
    ...(typeof language === 'string' ? { language } : {}),
    ...(typeof length === 'number' ? { summarySentences: length } : {}),
    ...(Array.isArray(capabilities) ? { capabilities: capabilities as string[] } : {}),
    ...(typeof leaseTtl === 'number' ? { leaseTtlMs: leaseTtl } : {}),
  };
}

function sourceFor(source: PreparedSource, server: TransferServer): DocumentSource {
  switch (source.kind) {
    case 'url':
      return { kind: 'url', url: source.url };
    case 'file':
      return { kind: 'file', path: source.path, bytes: source.bytes, sha256: source.sha256 };
    case 'served':
      return {
        kind: 'served',
        url: server.fileUrl,
        token: server.token,
        bytes: source.bytes,
        sha256: source.sha256,
        name: source.name,
      };
  }
}

async function startWorkflow(
  client: Client,
  parsed: ParsedCommand,
  workflowId: string,
  request: DocumentRequest,
  documentName: string,
): Promise<WorkflowHandle> {
  try {
    return await client.workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
      taskQueue: fleetOf(parsed),
      workflowId,
      args: [request],
      // For whoever attaches later: the request itself is in the history, which is expensive to read.
      memo: { document: documentName },
    });
  } catch (cause) {
    if (cause instanceof Error && cause.name === 'WorkflowExecutionAlreadyStartedError') {
      throw new AtlasError('IdInUse', `A workflow with the id ${workflowId} is running.`, {
        cause,
        next: `Attach to it with \`${attachCommand(parsed, workflowId)}\`, or choose another --id.`,
      });
    }
    throw cause;
  }
}

// Attaching ----------------------------------------------------------------------------------------------------------

async function attachToRun(context: CommandContext, parsed: ParsedCommand, workflowId: string): Promise<ExitCode> {
  const connection = await openConnection(context.env, parsed);
  const { client } = connection;
  const closers: (() => Promise<unknown>)[] = [() => connection.close()];
  try {
    const handle = client.workflow.getHandle(workflowId);
    const { documentName, startedAtMs, isRunning } = await describeRun(handle, workflowId);
    const shortId = /[a-z0-9]+$/i.exec(workflowId)?.[0] ?? randomBytes(ID_BYTES).toString('hex');
    const folder = await openOutputFolder(
      resolve(
        context.cwd,
        textOption(parsed, 'output') ?? join('atlas-artifacts', `${slugOf(documentName)}-${shortId}`),
      ),
    );
    closers.push(() => folder.removeIfEmpty());
    const server = await startTransferServer({ address: serveAddressOf(parsed), outputDirectory: folder.path });
    closers.push(() => server.close());
    return await followRun({
      context,
      parsed,
      client,
      handle,
      server,
      folder,
      documentName,
      startedAtMs,
      kind: 'attached',
      servesDocument: false,
      isRunning,
    });
  } finally {
    await closeAll(closers);
  }
}

async function describeRun(
  handle: WorkflowHandle,
  workflowId: string,
): Promise<{ documentName: string; startedAtMs: number; isRunning: boolean }> {
  let description;
  try {
    description = await handle.describe();
  } catch (cause) {
    if (!(cause instanceof Error) || cause.name !== 'WorkflowNotFoundError') throw cause;
    throw new AtlasError('NotFound', `There is no run with the id ${workflowId} in this namespace.`, {
      cause,
      next: 'Check the id, and --namespace; `atlas sessions ls` shows the workflows that hold a session.',
    });
  }
  if (description.type !== PROCESS_DOCUMENT_WORKFLOW) {
    throw new AtlasError('NotFound', `${workflowId} is a workflow of type ${description.type}, not a document job.`, {
      next: 'Give the id that `atlas run process-document` printed.',
    });
  }
  const name = description.memo?.['document'];
  return {
    documentName: typeof name === 'string' ? name : workflowId,
    startedAtMs: description.startTime.getTime(),
    isRunning: description.status.name === 'RUNNING',
  };
}

// Following ----------------------------------------------------------------------------------------------------------

interface Following {
  readonly context: CommandContext;
  readonly parsed: ParsedCommand;
  readonly client: Client;
  readonly handle: WorkflowHandle;
  readonly server: TransferServer;
  readonly folder: OutputFolder;
  readonly documentName: string;
  readonly startedAtMs: number;
  readonly kind: 'started' | 'dev' | 'attached';
  readonly servesDocument: boolean;
  /** False for a run that had ended before this command looked: there is no progress to show. */
  readonly isRunning: boolean;
  /** Rejects when the server or worker of `--dev` ends by itself: waiting for the run has no sense then. */
  readonly failed?: Promise<never>;
}

async function followRun(run: Following): Promise<ExitCode> {
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
    const { delivered, artifacts, sessionAttempts } = end.result;
    return { failed: false, delivered, worker: artifacts.worker, redos: sessionAttempts - 1 };
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
function waitHint(parsed: ParsedCommand, kind: Following['kind']): string {
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
async function stopWatching(run: Following, state: RunState, reason: 'interrupt' | 'timeout'): Promise<AtlasError> {
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
}: Following): Promise<'closed' | 'asked' | 'not reached'> {
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
function jobFailure(run: Following, state: RunState, error: unknown): AtlasError {
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
async function bringArtifacts(run: Following, result: DocumentResult, display: RunDisplay): Promise<void> {
  const { client, handle, parsed, server, context } = run;
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
    attachCommand: attachCommand(parsed, handle.workflowId),
  });
}

// Printing -----------------------------------------------------------------------------------------------------------

/** `durationMs` is null for a run that had ended before this command looked. */
async function printResult(run: Following, result: DocumentResult, durationMs: number | null): Promise<void> {
  const { context, parsed, folder, handle, server } = run;
  const summary = await readSummary(folder.path);
  if (isJson(parsed)) {
    const { artifacts, ...document } = result;
    const record = {
      version: JSON_VERSION,
      run: {
        workflowId: handle.workflowId,
        runId: 'firstExecutionRunId' in handle ? handle.firstExecutionRunId : null,
        ...document,
        worker: artifacts.worker,
        delivered: true,
        folder: folder.path,
        artifacts: artifacts.files,
        artifactsKeptUntil: new Date(artifacts.keptUntilMs).toISOString(),
        summary,
        bytesServed: server.bytesServed(),
        durationMs,
      },
    };
    context.stdout.write(`${JSON.stringify(record, null, 2)}\n`);
    return;
  }
  const style = styleFor(context.stdout, context.env);
  const width = Math.min(terminalWidth(context.stdout) ?? MAX_TEXT_WIDTH, MAX_TEXT_WIDTH);
  const shownFolder = shownPath(folder.path, context.cwd);
  const nameWidth = Math.max(...result.artifacts.files.map(({ name }) => name.length));
  const lines = [
    '',
    style.bold(
      `Done${durationMs === null ? '' : ` in ${formatDuration(durationMs)}`} on ${plainText(result.artifacts.worker)}${describeRedo(result)}`,
    ),
    '',
    wrapLines(
      plainLines(shownSummary(summary) ?? `${result.name}: ${count(result.pages.total, 'page')}`).trim(),
      width,
    ),
    '',
    style.bold(`Artifacts in ${plainText(shownFolder)}`),
    ...result.artifacts.files.map(
      ({ name, bytes }) => `  ${name.padEnd(nameWidth)}  ${formatBytes(bytes).padStart(9)}`,
    ),
    '',
    ...nextCommands(run),
  ];
  context.stdout.write(`${lines.join('\n')}\n`);
}

/** The summary without the outline, which fills several screens for a book. */
function shownSummary(summary: string | null): string | null {
  const [top, ...outline] = summary?.split(`\n${OUTLINE_HEADING}\n`) ?? [];
  if (summary === null || top === undefined || outline.length === 0) return summary;
  return `${top.trimEnd()}\n\nThe outline, with the main sentences of each section, is in summary.md.`;
}

function describeRedo({ sessionAttempts }: DocumentResult): string {
  return sessionAttempts > 1 ? `, begun ${sessionAttempts} times since a worker was lost` : '';
}

/** Commands that work as they stand: with the same connection, or, after `--dev`, with a server that has to be started. */
function nextCommands({ parsed, kind, context }: Following): string[] {
  if (kind === 'dev') {
    return [
      'The server and the worker of this run have ended with it. To go on, start them in one terminal:',
      '  npx atlas dev',
      'and in another, after the export line that it prints:',
      '  npx atlas run process-document FILE',
      '  npx atlas workers ls',
      '  npx atlas sessions ls',
    ];
  }
  const atlas = programOf(context.env);
  const flags = connectionFlags(parsed);
  return [
    'Next:',
    `  ${atlas} workers ls${flags}    the workers of the fleet and their free slots`,
    `  ${atlas} sessions ls${flags}   what runs where, now`,
  ];
}

async function readSummary(folder: string): Promise<string | null> {
  try {
    const text = await readFile(join(folder, 'summary.md'), 'utf8');
    return text.length <= MAX_SUMMARY_BYTES ? text : `${text.slice(0, MAX_SUMMARY_BYTES)}\n…`;
  } catch {
    // A job without a summary still has its other artifacts.
    return null;
  }
}

// Small things -------------------------------------------------------------------------------------------------------

function isJson(parsed: ParsedCommand): boolean {
  return parsed.options['format'] === 'json';
}

function textOption(parsed: ParsedCommand, name: string): string | undefined {
  const value = parsed.options[name];
  return typeof value === 'string' ? value : undefined;
}

function serveAddressOf(parsed: ParsedCommand): ServeAddress {
  return (parsed.options['serveAddress'] as ServeAddress | undefined) ?? DEFAULT_SERVE_ADDRESS;
}

/** The connection flags that were given, so that a printed command reaches the same server and fleet. */
function connectionFlags({ options, given }: ParsedCommand): string {
  return ['address', 'namespace', 'profile', 'fleet']
    .filter((name) => given.has(name))
    .map((name) => ` --${name} ${String(options[name])}`)
    .join('');
}

function attachCommand(parsed: ParsedCommand, workflowId: string): string {
  return `${programOf(process.env)} run --attach ${workflowId}${connectionFlags(parsed)}`;
}

/** A name for ids and folders: the file's, without what a shell or a queue would stumble over. */
export function slugOf(name: string): string {
  const slug = name
    .replace(/\.pdf$/i, '')
    .toLowerCase()
    .normalize('NFKD')
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, MAX_SLUG_LENGTH)
    .replace(/^-+|-+$/g, '');
  return slug === '' ? 'document' : slug;
}

function shownPath(path: string, cwd: string): string {
  const fromHere = relative(cwd, path);
  return fromHere === '' || fromHere.startsWith('..') || isAbsolute(fromHere) ? path : `./${fromHere}`;
}

/** Closes in reverse order; what fails to close must not hide why the run ended. */
async function closeAll(closers: readonly (() => Promise<unknown>)[]): Promise<void> {
  for (const close of [...closers].reverse()) {
    try {
      await close();
    } catch {
      // Nothing can be done about it any more, and the process is about to end.
    }
  }
}
