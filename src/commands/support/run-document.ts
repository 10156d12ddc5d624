/**
 * What `atlas run` does until there is a run to follow: check, serve, connect, and start it or find it.
 *
 * The order matters: whatever can be found wrong without a server is found before anything is started, and the folder
 * and the transfer server exist before the workflow that needs them. Everything opened is closed in the reverse order.
 */
import { randomBytes } from 'node:crypto';
import { isAbsolute, join, normalize, resolve } from 'node:path';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { PROCESS_DOCUMENT_WORKFLOW, type DocumentRequest, type DocumentSource } from '../../contract/document.js';
import { AtlasError } from '../../contract/errors.js';
import type { ExitCode } from '../../contract/exit-codes.js';
import { plainText } from '../../terminal/format.js';
import { styleFor } from '../../terminal/style.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { openOutputFolder, type OutputFolder } from './artifacts.js';
import { fleetOf, openConnection } from './connection.js';
import { prepareSource, type PreparedSource } from './document-source.js';
import { didYouMean } from './did-you-mean.js';
import { followRun } from './follow-run.js';
import { readPasswordFile } from './password-file.js';
import { attachCommand, isJson, serveAddressOf, textOption } from './run-options.js';
import { startTransferServer, type ServedFile, type TransferServer } from './transfer-server.js';

const JOBS = ['process-document'];
const ID_BYTES = 4;
const MAX_SLUG_LENGTH = 40;

/** What `--attach` has no use for: the run has begun with it or without. */
const ONLY_FOR_A_START = {
  dev: '--dev',
  id: '--id',
  sha256: '--sha256',
  passwordFile: '--password-file',
  deliverTo: '--deliver-to',
  language: '--language',
  length: '--length',
  capabilities: '--capabilities',
  leaseTtl: '--lease-ttl',
} as const;

type Target =
  { readonly kind: 'start'; readonly source: string } | { readonly kind: 'attach'; readonly workflowId: string };

export async function runDocument(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const target = readTarget(parsed);
  return target.kind === 'attach'
    ? attachToRun(context, parsed, target.workflowId)
    : startRun(context, parsed, target.source);
}

function readTarget({ args, options, given }: ParsedCommand): Target {
  const [job, source] = args as readonly (string | undefined)[];
  const attach = options['attach'];
  if (typeof attach === 'string') {
    const conflicting =
      source !== undefined ? 'a document' : Object.entries(ONLY_FOR_A_START).find(([name]) => given.has(name))?.[1];
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
  const directory = directoryOption(parsed);
  const password = await passwordOption(context, parsed);
  const source = await prepareSource(input, context.cwd, context.signal, textOption(parsed, 'sha256'));
  const closers: Closers = [];
  if (source.kind === 'served') closers.push(() => source.handle.close());
  try {
    const shortId = randomBytes(ID_BYTES).toString('hex');
    const name = `${slugOf(source.name)}-${shortId}`;
    const { folder, server } = await openTransfer(context, parsed, closers, {
      name,
      // What goes into a directory of the worker is brought here only where that is said.
      takesArtifacts: directory === undefined || textOption(parsed, 'output') !== undefined,
      ...(source.kind === 'served' ? { file: source } : {}),
      ...(password === undefined ? {} : { password }),
    });
    const isDev = parsed.options['dev'] === true;
    const connection = isDev
      ? await openDevConnection(context, parsed, closers)
      : await openConnection(context.env, parsed);
    const { client } = connection;
    closers.push(() => connection.close());
    context.signal.throwIfAborted();

    const workflowId = textOption(parsed, 'id') ?? `document-${name}`;
    const startedAtMs = Date.now();
    const request: DocumentRequest = {
      ...requestOf(parsed, source, server),
      ...(folder === null ? {} : { deliverTo: { url: server.deliverUrl, token: server.token } }),
      ...(directory === undefined ? {} : { deliverToDirectory: join(directory, name) }),
      ...(password === undefined ? {} : { password: { url: server.passwordUrl, token: server.token } }),
    };
    const handle = await startWorkflow(client, parsed, workflowId, request, source.name);
    return await followRun({
      context,
      parsed,
      client,
      handle,
      server,
      folder,
      startedAtMs,
      documentName: source.name,
      kind: isDev ? 'dev' : 'started',
      servesDocument: source.kind === 'served',
      isRunning: true,
      ...('failed' in connection ? { failed: connection.failed } : {}),
    });
  } finally {
    await closeAll(closers);
  }
}

async function passwordOption(context: CommandContext, parsed: ParsedCommand): Promise<string | undefined> {
  const file = textOption(parsed, 'passwordFile');
  if (file === undefined) return undefined;
  const { cwd, stdin, stderr, env, signal } = context;
  const { password, warning } = await readPasswordFile({ file, cwd, stdin, signal });
  if (warning !== undefined) {
    const style = styleFor(stderr, env);
    stderr.write(`${style.bold(style.yellow('warning:'))} ${plainText(warning)}\n`);
  }
  return password;
}

function directoryOption(parsed: ParsedCommand): string | undefined {
  const directory = textOption(parsed, 'deliverTo');
  if (directory === undefined) return undefined;
  if (!isAbsolute(directory)) {
    throw new AtlasError('Usage', `--deliver-to: ${JSON.stringify(directory)} is no absolute path.`, {
      next: 'Give the directory as the worker has it, such as /srv/results; for a folder here use --output.',
    });
  }
  return normalize(directory);
}

interface Transfer {
  /** Null where no artifacts are taken. */
  readonly folder: OutputFolder | null;
  readonly server: TransferServer;
}

/** What is needed to give a document to a worker and to take its artifacts. */
async function openTransfer(
  context: CommandContext,
  parsed: ParsedCommand,
  closers: Closers,
  options: {
    /** Of the folder, where none was chosen. */
    readonly name: string;
    readonly takesArtifacts: boolean;
    readonly file?: ServedFile;
    readonly password?: string;
  },
): Promise<Transfer> {
  const { name, takesArtifacts, ...served } = options;
  const path = resolve(context.cwd, textOption(parsed, 'output') ?? join('atlas-artifacts', name));
  const folder = takesArtifacts ? await openOutputFolder(path) : null;
  if (folder !== null) closers.push(() => folder.removeIfEmpty());
  const server = await startTransferServer({
    address: serveAddressOf(parsed),
    ...(folder === null ? {} : { outputDirectory: folder.path }),
    ...served,
  });
  closers.push(() => server.close());
  return { folder, server };
}

async function openDevConnection(
  context: CommandContext,
  parsed: ParsedCommand,
  closers: Closers,
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
    ...(typeof language === 'string' ? { language } : {}),
    ...(typeof length === 'number' ? { summarySentences: length } : {}),
    ...(Array.isArray(capabilities) ? { capabilities: capabilities as string[] } : {}),
    ...(typeof leaseTtl === 'number' ? { leaseTtlMs: leaseTtl } : {}),
  };
}

function sourceFor(source: PreparedSource, server: TransferServer): DocumentSource {
  switch (source.kind) {
    case 'url':
      return {
        kind: 'url',
        url: source.url,
        ...(source.sha256 === undefined ? {} : { sha256: source.sha256 }),
      };
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
  const closers: Closers = [() => connection.close()];
  try {
    const handle = client.workflow.getHandle(workflowId);
    const found = await describeRun(handle, workflowId);
    const shortId = /[a-z0-9]+$/i.exec(workflowId)?.[0] ?? randomBytes(ID_BYTES).toString('hex');
    const transfer = await openTransfer(context, parsed, closers, {
      name: `${slugOf(found.documentName)}-${shortId}`,
      takesArtifacts: true,
    });
    return await followRun({
      context,
      parsed,
      client,
      handle,
      ...transfer,
      ...found,
      kind: 'attached',
      servesDocument: false,
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

// Small things -------------------------------------------------------------------------------------------------------

/** A name for ids and folders: the file's, without what a shell or a queue would stumble over. */
function slugOf(name: string): string {
  const slug = name
    .replace(/\.pdf$/i, '')
    .toLowerCase()
    .normalize('NFKD')
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, MAX_SLUG_LENGTH)
    .replace(/^-+|-+$/g, '');
  return slug === '' ? 'document' : slug;
}

/** What is open, in the order in which it was opened. */
type Closers = (() => Promise<unknown>)[];

/** Closes in reverse order; what fails to close must not hide why the run ended. */
async function closeAll(closers: Closers): Promise<void> {
  for (const close of [...closers].reverse()) {
    try {
      await close();
    } catch {
      // Nothing can be done about it any more, and the process is about to end.
    }
  }
}
