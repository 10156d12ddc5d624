/**
 * The one catalogue of everything Atlas reports as an error: a stable code, what the user can do next, and whether
 * trying the same thing again can help.
 *
 * Owns: codes, next steps, retryability. Does not know Temporal, terminals or exit codes (those are in
 * `commands/exit-codes.ts`). Classes do not survive a Temporal boundary, so workflows and activities throw
 * `ApplicationFailure` whose `type` is the code; {@link findErrorCode} recognises it again on the other side.
 */

interface CatalogueEntry {
  /** One sentence for the documentation. */
  readonly summary: string;
  /** What the user does next; one command where there is one. */
  readonly next: string;
  /** Whether the same call may succeed later without anything being changed. */
  readonly retryable: boolean;
}

function entry(summary: string, next: string, retryable = false): CatalogueEntry {
  return { summary, next, retryable };
}

export const ERRORS = {
  // Sessions
  SessionLost: entry(
    'The worker that held the session is gone, or no longer holds it.',
    'With onLost "redo" the sequence runs again elsewhere; see `atlas workers ls` for the state of the worker.',
  ),
  SessionExpired: entry(
    'The session was open for longer than its maximum duration, or idle for longer than its idle timeout.',
    'Raise `maxDuration` or `idleTimeout` in the options of withSession, whichever the message names, or split the sequence.',
  ),
  SessionNested: entry(
    'A workflow asked for a session while it held or awaited another.',
    'Use one session after the other, or set `allowConcurrentSessions` if the fleet can not fill up with half-served owners.',
  ),
  SessionReleased: entry(
    'An operator ended the session and with it its owner.',
    'Ask who is named in the message; then run the workflow again.',
  ),
  SessionReacquisitionsExhausted: entry(
    'The session was lost more often than `maxReacquisitions` allows.',
    'Look at why workers are lost with `atlas workers ls`, then run the workflow again.',
  ),
  AcquireTimeout: entry(
    'No worker granted a session within `acquireTimeout`.',
    'See `atlas workers ls` for workers with free slots and these capabilities; start one with `atlasd --capabilities ...`.',
  ),
  SessionOptionsInvalid: entry(
    'The options given to withSession or to a session are not valid.',
    'Correct the option named in the message.',
  ),
  NotInSession: entry(
    'currentSession() was called outside an activity that is pinned to a session.',
    'Call the activity through session.proxyActivities() inside withSession().',
  ),
  NoSessionMemory: entry(
    'currentSession().memory was read in a session whose state is on disk.',
    "Ask for a session with `state: 'memory'` in the options of withSession, or keep the value in a file of the scratch directory.",
  ),
  NotInWorker: entry(
    'currentWorker() was called outside an activity run by atlasd.',
    'Run the activity on a worker started with atlasd.',
  ),
  NoFreeSlot: entry(
    'Every session slot of this worker is taken.',
    'Nothing: the server offers the session to the next worker.',
    true,
  ),
  CapabilityMissing: entry(
    'The worker that a session prefers does not advertise what the session asks for.',
    'Nothing: the session goes to another worker at once. Correct `prefer` or `capabilities` in the options of withSession.',
    true,
  ),
  CapabilityWithdrawn: entry(
    'The check of a capability fails on this worker, which takes nothing that asks for it until the check passes.',
    'Nothing: the server offers it to another worker. See `atlas workers show WORKER` for what the check says.',
    true,
  ),
  ExecutorDied: entry(
    'The executor process ended while the activity was running.',
    'Nothing: the activity is attempted again.',
    true,
  ),
  AttemptFenced: entry(
    'The worker could not reach Temporal, and ended the activity before its session could be given to another worker.',
    'Nothing: the activity is attempted again.',
    true,
  ),
  AttemptSuperseded: entry(
    'A newer attempt of the same activity has started.',
    'Nothing: the newer attempt goes on.',
    true,
  ),

  AsyncCompletionRefused: entry(
    'A pinned activity tried to complete asynchronously.',
    'Return the result from the activity itself: a session must know when its activities have ended.',
  ),

  // Workers and configuration
  NameInvalid: entry(
    'A name does not follow the rules for names.',
    'Choose a name that follows the rule in the message.',
  ),
  TooManyCapabilities: entry(
    'A worker advertises more than three capabilities.',
    'Advertise at most three: each subset needs an acquire queue of its own.',
  ),
  ConfigInvalid: entry(
    'A configuration value is not valid.',
    'Correct the value named in the message; `atlasd --help` lists what is allowed.',
  ),
  ConfigUnknownKey: entry(
    'The configuration has a key that Atlas does not know.',
    'Correct or remove the key; `atlasd --help` lists them all.',
  ),
  StateDirUnwritable: entry(
    'The state directory can not be created or written.',
    'Choose another with --state-dir, or correct its owner and mode.',
  ),
  StateDirLocked: entry(
    'Another atlasd uses this state directory.',
    'Stop that process, or choose another directory with --state-dir.',
  ),
  SocketPathTooLong: entry(
    'The path of the local socket is over the limit of the system.',
    'Choose a shorter --state-dir.',
  ),
  NameConflict: entry(
    'Another live worker of the fleet has this name.',
    'Choose another with --name, or stop the other worker; see `atlas workers ls`.',
  ),
  ModuleLoadFailed: entry(
    'A module with workflows or activities could not be loaded.',
    'Correct the path given with --activities or --workflows, or the error named.',
  ),
  WorkerStartFailed: entry(
    'The worker that a command starts beside its local server did not become ready.',
    'Read the lines of the worker in the message; `atlasd --log-level debug` says more.',
  ),
  ReloadConflict: entry(
    'The worker can not reload now: it reloads, stops or drains already, or its executor is not ready.',
    'Look at what it does with `atlasd status`, and reload it after that.',
  ),
  MemorySessionsRemain: entry(
    'A reload was given up, since sessions whose state is in memory had not ended in time. Nothing was changed.',
    'Wait longer with --timeout, or end them with --force: their workflows redo them.',
  ),
  ExecutorFailed: entry(
    'The executor process could not be started.',
    'Read the executor lines in the log; `atlasd --log-level debug` says more.',
  ),

  // The fleet
  FleetConflict: entry(
    'Another operator has ordered something else of this worker, or its state forbids the order.',
    'Look at it with `atlas workers show WORKER`, and agree with who is named in the message.',
  ),

  // Temporal
  ServerUnreachable: entry(
    'The Temporal server does not answer at the configured address.',
    'Check TEMPORAL_ADDRESS, or start a local server and worker with `atlas dev`.',
    true,
  ),
  ServerRefused: entry(
    'The Temporal server refused the call.',
    'Check the namespace, the API key and the TLS settings of the profile.',
  ),
  ServerNotFound: entry(
    'No Temporal server could be found or fetched.',
    'Install the `temporal` command, or set TEMPORAL_ADDRESS to a server that runs.',
  ),
  ServerStartFailed: entry(
    'The local Temporal server did not start.',
    'Read the lines of the server above; try another --port.',
  ),

  // Command line
  Usage: entry('The command line is not valid.', 'Run the command with --help.'),
  NotFound: entry(
    'What was asked for does not exist.',
    'List what exists with `atlas workers ls` or `atlas sessions ls`.',
  ),
  Interrupted: entry('The command was interrupted.', 'Run it again.'),
  WaitTimeout: entry(
    'What was waited for did not happen in time.',
    'Wait longer, or look at why it takes so long.',
    true,
  ),
  IdInUse: entry(
    'A workflow with this id is running.',
    'Attach to it with `atlas run --attach ID`, or choose another --id.',
  ),
  FileUnreadable: entry('A local file can not be read.', 'Check the path and its permissions.'),
  JobFailed: entry('The job failed.', 'Read the step and the reason in the message.'),
  OutputUnwritable: entry('The folder for the artifacts can not be written.', 'Choose another with --output.'),
  ServeFailed: entry(
    'The file could not be served to the worker.',
    'Choose an interface that the worker can reach with --serve-address.',
  ),
  ConfirmationNeeded: entry(
    'The command asks before it goes on, and there is no terminal to ask on. Nothing was changed.',
    'Add --yes to do it without being asked.',
  ),
  Declined: entry(
    'The question of the command was answered with no. Nothing was changed.',
    'Run it again and answer y.',
  ),

  // The document job
  NotAPdf: entry('The file is not a PDF.', 'Give a PDF file.'),
  InvalidPdf: entry(
    'The file claims to be a PDF but its structure can not be read.',
    'Repair it, for example with `qpdf IN OUT`, and run again.',
  ),
  EmptyFile: entry('The file has no bytes.', 'Check the source of the file.'),
  TruncatedFile: entry('The file ends before the PDF does.', 'Fetch or copy the file again.'),
  PasswordRequired: entry(
    'The PDF is protected by a password.',
    'Give the password with --password-file, or remove it, for example with `qpdf --decrypt`.',
  ),
  PasswordWrong: entry(
    'The given password does not open the PDF.',
    'Check the first line of the password file. If a viewer opens the document with it, save it there without a password.',
  ),
  UnsupportedEncryption: entry(
    'The PDF is encrypted in a way that is not supported.',
    'Remove the encryption with the program that made the file.',
  ),
  EmptyDocument: entry('The PDF has no pages.', 'Check the source of the file.'),
  TooLarge: entry('The document is over the size limit.', 'Raise the limit of the worker, or split the document.'),
  TooManyPages: entry(
    'The document has more pages than the limit.',
    'Raise the limit of the worker, or split the document.',
  ),
  SourceUnreachable: entry(
    'The document could not be fetched.',
    'Check that the address is right and that the worker can reach it.',
    true,
  ),
  SourceRefused: entry('The server of the document refused to send it.', 'Check the address and the permissions.'),
  AddressRefused: entry('The worker does not fetch from this address.', 'Allow it in the configuration of the worker.'),
  FileRefused: entry(
    'The worker does not read this file.',
    'List its directory under document.allow_files in the configuration of the worker.',
  ),
  DirectoryRefused: entry(
    'The worker does not write artifacts into this directory.',
    'List it under document.allow_output in the configuration of the worker.',
  ),
  SourceChanged: entry(
    'The document is not the one that was announced: its size or hash differs.',
    'Run again with the file as it is now.',
  ),
  OutOfDisk: entry(
    'The disk of the worker has too little room.',
    'Free space on the worker, or move its --state-dir.',
    true,
  ),
  ToolMissing: entry('A program or language that the job needs is not installed.', 'Install what the message names.'),
  NothingReadable: entry(
    'No page of the document has readable text.',
    'Check that the document is not blank or a photograph.',
  ),
  PageFailed: entry('Too many pages of the document could not be read.', 'See report.json for the error of each page.'),
  ArtifactsGone: entry(
    'The artifacts are no longer on the worker.',
    'Run the job again; artifacts are kept for a day.',
  ),
  DeliveryFailed: entry('The artifacts could not be delivered.', 'Fetch them with `atlas run --attach ID`.', true),
} as const satisfies Record<string, CatalogueEntry>;

/** A code of the catalogue, such as `SessionLost`. Stable over versions. */
export type ErrorCode = keyof typeof ERRORS;

/** Whether a string is a code of the catalogue. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(ERRORS, value);
}

export interface AtlasErrorOptions {
  readonly cause?: unknown;
  /** Overrides the catalogue's next step where the situation allows a more exact one. */
  readonly next?: string;
}

/**
 * An error of the catalogue, for code that runs outside workflows.
 * `message` says what failed, with its ids and limits; `next` says what to do.
 */
export class AtlasError extends Error {
  override readonly name = 'AtlasError';
  readonly code: ErrorCode;
  readonly next: string;

  constructor(code: ErrorCode, message: string, options: AtlasErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.next = options.next ?? ERRORS[code].next;
  }
}

/** The bound on how many causes are walked: a cause chain may be cyclic. */
const MAX_CAUSES = 16;

export interface FoundError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly next: string;
  readonly error: Error;
}

/**
 * Walks an error and its causes and returns the first that carries a code of the catalogue, whether it is an
 * {@link AtlasError} or an `ApplicationFailure` whose `type` is the code.
 */
export function findError(error: unknown): FoundError | undefined {
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && current instanceof Error; depth += 1) {
    const candidate = current as Error & { code?: unknown; type?: unknown; next?: unknown; details?: unknown };
    const code = isErrorCode(candidate.code)
      ? candidate.code
      : isErrorCode(candidate.type)
        ? candidate.type
        : undefined;
    if (code !== undefined) {
      return { code, message: candidate.message, next: nextStepOf(candidate) ?? ERRORS[code].next, error: candidate };
    }
    current = candidate.cause;
  }
  return undefined;
}

function nextStepOf(error: { next?: unknown; details?: unknown }): string | undefined {
  if (typeof error.next === 'string') return error.next;
  if (!Array.isArray(error.details)) return undefined;
  const first: unknown = error.details[0];
  if (typeof first !== 'object' || first === null || !('next' in first)) return undefined;
  return typeof first.next === 'string' ? first.next : undefined;
}

/** The code of the catalogue that an error or one of its causes carries. */
export function findErrorCode(error: unknown): ErrorCode | undefined {
  return findError(error)?.code;
}
