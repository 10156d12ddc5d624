/**
 * The one map from the error catalogue to exit codes, and what each exit code means to a reader of help and man pages.
 *
 * The map is exhaustive by its type: a code added to the catalogue does not compile until it has an exit code here.
 */
import type { ErrorCode } from '../contract/errors.js';
import { EXIT, type ExitCode } from '../contract/exit-codes.js';

export const EXIT_MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.done]: 'done',
  [EXIT.failed]: 'failed, or answered "no"',
  [EXIT.usage]: 'the command line or the configuration is not valid, or --yes is needed',
  [EXIT.deadline]: 'the deadline was reached and work remains',
  [EXIT.notFound]: 'what was asked for does not exist or can not be read',
  [EXIT.unreachable]: 'the Temporal server is unreachable or refused the call',
  [EXIT.conflict]: 'conflict with another worker, operator or process',
  [EXIT.unsupported]: 'the server or this host lacks what is needed',
  [EXIT.jobFailed]: 'the job itself failed',
  [EXIT.waitTimeout]: 'the wait timed out',
  [EXIT.interrupted]: 'interrupted or detached by a signal',
};

/** Codes that any command may return, and that a specification therefore does not list. */
export const COMMON_EXIT_CODES: readonly ExitCode[] = [EXIT.done, EXIT.failed, EXIT.usage];

export const EXIT_OF_ERROR: Readonly<Record<ErrorCode, ExitCode>> = {
  // Sessions. A command that waits for a job wraps these in JobFailed; alone they are plain failures.
  SessionLost: EXIT.failed,
  SessionExpired: EXIT.failed,
  SessionReleased: EXIT.failed,
  SessionReacquisitionsExhausted: EXIT.failed,
  AcquireTimeout: EXIT.failed,
  SessionOptionsInvalid: EXIT.usage,
  NotInSession: EXIT.failed,
  NoSessionMemory: EXIT.failed,
  NotInWorker: EXIT.failed,
  NoFreeSlot: EXIT.failed,
  CapabilityMissing: EXIT.failed,
  CapabilityWithdrawn: EXIT.failed,
  ExecutorDied: EXIT.failed,
  AsyncCompletionRefused: EXIT.failed,
  AttemptFenced: EXIT.failed,
  SessionNested: EXIT.usage,
  AttemptSuperseded: EXIT.failed,

  // Workers and configuration
  NameInvalid: EXIT.usage,
  TooManyCapabilities: EXIT.usage,
  ConfigInvalid: EXIT.usage,
  ConfigUnknownKey: EXIT.usage,
  StateDirUnwritable: EXIT.failed,
  StateDirLocked: EXIT.conflict,
  SocketPathTooLong: EXIT.usage,
  NameConflict: EXIT.conflict,
  ModuleLoadFailed: EXIT.failed,
  WorkerStartFailed: EXIT.failed,
  ReloadConflict: EXIT.conflict,
  MemorySessionsRemain: EXIT.deadline,
  ExecutorFailed: EXIT.failed,

  // The fleet
  FleetConflict: EXIT.conflict,

  // Temporal
  ServerUnreachable: EXIT.unreachable,
  ServerRefused: EXIT.unreachable,
  ServerNotFound: EXIT.unreachable,
  ServerStartFailed: EXIT.unreachable,

  // Command line
  Usage: EXIT.usage,
  NotFound: EXIT.notFound,
  Interrupted: EXIT.interrupted,
  WaitTimeout: EXIT.waitTimeout,
  IdInUse: EXIT.conflict,
  FileUnreadable: EXIT.notFound,
  JobFailed: EXIT.jobFailed,
  OutputUnwritable: EXIT.failed,
  ServeFailed: EXIT.failed,
  ConfirmationNeeded: EXIT.usage,
  Declined: EXIT.failed,

  // The document job. A document that the command line refuses before the start exits like one that the worker refuses:
  // a script must not have to know which of the two looked first.
  NotAPdf: EXIT.jobFailed,
  InvalidPdf: EXIT.jobFailed,
  EmptyFile: EXIT.jobFailed,
  TruncatedFile: EXIT.jobFailed,
  PasswordRequired: EXIT.jobFailed,
  PasswordWrong: EXIT.jobFailed,
  UnsupportedEncryption: EXIT.jobFailed,
  EmptyDocument: EXIT.jobFailed,
  TooLarge: EXIT.jobFailed,
  TooManyPages: EXIT.jobFailed,
  SourceUnreachable: EXIT.jobFailed,
  SourceRefused: EXIT.jobFailed,
  AddressRefused: EXIT.jobFailed,
  FileRefused: EXIT.jobFailed,
  DirectoryRefused: EXIT.jobFailed,
  SourceChanged: EXIT.jobFailed,
  OutOfDisk: EXIT.jobFailed,
  ToolMissing: EXIT.jobFailed,
  NothingReadable: EXIT.jobFailed,
  PageFailed: EXIT.jobFailed,
  ArtifactsGone: EXIT.notFound,
  DeliveryFailed: EXIT.failed,
};
