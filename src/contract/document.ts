/**
 * What the client of the document job and the job itself agree on. The command line imports this and not the job, so
 * that the job stays an ordinary customer of the public library. Imports nothing.
 *
 * Document text never travels through Temporal: the result carries references to artifacts on the worker.
 */

export const PROCESS_DOCUMENT_WORKFLOW = 'processDocument';
export const DELIVER_ARTIFACTS_WORKFLOW = 'deliverArtifacts';

/** The line of `summary.md` below which the sections of the document are; what is above it fits on a screen. */
export const OUTLINE_HEADING = '## Outline';

/** The pinned steps of the job, in order; also the names of its activities. */
export const DOCUMENT_STEPS = ['downloadDocument', 'extractPages', 'summarizeDocument', 'deliverDocument'] as const;
export type DocumentStep = (typeof DOCUMENT_STEPS)[number];

/** Where the worker gets the document from. Each kind has its own allow rule in the worker's configuration. */
export type DocumentSource =
  /** Fetched from a public http(s) address. With a hash only the document that has it is taken. */
  | { readonly kind: 'url'; readonly url: string; readonly sha256?: string }
  /** Served by the command line for the length of the run; byte ranges are supported. */
  | {
      readonly kind: 'served';
      readonly url: string;
      readonly token: string;
      readonly bytes: number;
      readonly sha256: string;
      readonly name: string;
    }
  /** Read from the worker's own disk, under a directory that its configuration lists. */
  | { readonly kind: 'file'; readonly path: string; readonly bytes: number; readonly sha256: string };

/** Where artifacts are sent: `PUT <url>/<file name>` with `Authorization: Bearer <token>` and `X-Atlas-Sha256`. */
export interface DeliveryTarget {
  readonly url: string;
  readonly token: string;
}

/**
 * Where the worker gets the password of the document: the answer to `GET <url>` with `Authorization: Bearer <token>`.
 * The password itself is in no request, so that it is in no history.
 */
export interface PasswordSource {
  readonly url: string;
  readonly token: string;
}

export type OcrEngine = 'auto' | 'native' | 'npm';

export interface DocumentRequest {
  readonly source: DocumentSource;
  readonly deliverTo?: DeliveryTarget;
  /** A directory of the worker, under one that its configuration lists, into which the artifacts are put as well. */
  readonly deliverToDirectory?: string;
  /** For a document that is protected by a password. */
  readonly password?: PasswordSource;
  /** A tesseract language code. Default `eng`. */
  readonly language?: string;
  /** How many sentences the summary has. Default 6. */
  readonly summarySentences?: number;
  /** Asked of the worker's session. Default none. */
  readonly capabilities?: readonly string[];
  /** Lease TTL of the session in milliseconds; the default is that of withSession. */
  readonly leaseTtlMs?: number;
  readonly acquireTimeoutMs?: number;
}

export interface ArtifactFile {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** Artifacts that a worker keeps for a day. */
export interface ArtifactsReference {
  readonly id: string;
  readonly worker: string;
  /** The unique queue of that worker. */
  readonly queue: string;
  readonly files: readonly ArtifactFile[];
  readonly keptUntilMs: number;
}

export interface DocumentResult {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly pages: {
    readonly total: number;
    readonly text: number;
    readonly ocr: number;
    readonly failed: number;
    /** Pages with nothing on them that could be read: blank ones, photographs. */
    readonly empty?: number;
  };
  /** The engine that read pages without a text layer, or null where there was none. */
  readonly engine: 'native' | 'npm' | null;
  readonly artifacts: ArtifactsReference;
  readonly delivered: boolean;
  /** The directory of the worker that has them, where one was asked for. */
  readonly directory?: string;
  /** Why the artifacts were not delivered, where a target was given. */
  readonly deliveryError?: string;
  /** How many times the sequence was begun: 1 unless a worker was lost. */
  readonly sessionAttempts: number;
}

/** Argument of the workflow that sends kept artifacts to a client that asks for them later. */
export interface DeliverRequest {
  readonly artifacts: ArtifactsReference;
  readonly deliverTo: DeliveryTarget;
}
