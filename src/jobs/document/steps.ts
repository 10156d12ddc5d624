/**
 * What the steps of the job hand to each other through Temporal: references and counts, never text. Types only, so that
 * the workflow and the activities can both have it.
 */
import type { ArtifactsReference, DeliveryTarget, PasswordSource } from '../../contract/document.js';
import type { PageCounts } from './pages/read-pages.js';

/** What the first step needs beside the source. */
export interface DownloadOptions {
  readonly password?: PasswordSource;
  /** Looked at before the work, so that a refusal does not come after it. */
  readonly deliverToDirectory?: string;
}

export interface DownloadedDocument {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface ExtractRequest {
  readonly document: DownloadedDocument;
  readonly language: string;
}

export interface ExtractedPages {
  readonly pages: PageCounts;
  readonly engine: 'native' | 'npm' | null;
}

export interface SummarizeRequest {
  readonly document: DownloadedDocument;
  readonly sentences: number;
}

export interface SummarizedDocument {
  /** How many sentences the summary has. */
  readonly sentences: number;
}

export interface DeliverStepRequest {
  readonly deliverTo?: DeliveryTarget;
  readonly deliverToDirectory?: string;
}

export interface DeliveredDocument {
  readonly artifacts: ArtifactsReference;
  readonly delivered: boolean;
  /** The directory of this worker that has the artifacts, where one was asked for. */
  readonly directory?: string;
  readonly deliveryError?: string;
}

export interface SentArtifacts {
  readonly files: number;
}
