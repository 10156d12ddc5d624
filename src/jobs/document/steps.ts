/**
 * What the steps of the job hand to each other through Temporal: references and counts, never text. Types only, so that
 * the workflow and the activities can both have it.
 */
import type { ArtifactsReference, DeliveryTarget } from '../../contract/document.js';
import type { PageCounts } from './pages.js';

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
}

export interface DeliveredDocument {
  readonly artifacts: ArtifactsReference;
  readonly delivered: boolean;
  readonly deliveryError?: string;
}

export interface SentArtifacts {
  readonly files: number;
}
