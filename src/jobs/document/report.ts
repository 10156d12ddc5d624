/**
 * `summary.md`, for a person, and `report.json`, for whoever has to know how each page came about. Pure.
 */
import type { ArtifactFile } from '../../contract/document.js';
import type { PageRecord } from './checkpoint.js';
import type { Sentence } from './clean.js';
import type { PageCounts } from './pages.js';
import type { DownloadedDocument } from './steps.js';

/** What extractPages leaves on the scratch disk for the report. */
export interface ExtractNotes {
  readonly engine: 'native' | 'npm' | null;
  readonly language: string;
  readonly dpi: number;
  readonly ms: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly counts: PageCounts;
  readonly pages: readonly Omit<PageRecord, 'text'>[];
}

/** What downloadDocument leaves on the scratch disk: a later attempt takes the document from it. */
export interface DownloadNotes extends DownloadedDocument {
  /** What the document was fetched from, as a hash: the address may hold a secret. */
  readonly source: string;
  readonly kind: string;
  readonly ms: number;
  readonly resumedBytes: number;
  /** Whether it came from the cache of the worker. */
  readonly cached: boolean;
}

export function summaryMarkdown(
  document: DownloadedDocument,
  extract: Pick<ExtractNotes, 'counts' | 'engine'>,
  sentences: readonly Sentence[],
): string {
  const { counts } = extract;
  const methods = [
    counts.text > 0 ? `${counts.text} from the text layer` : '',
    counts.ocr > 0 ? `${counts.ocr} by OCR (${extract.engine ?? 'none'})` : '',
    counts.empty > 0 ? `${counts.empty} without text` : '',
    counts.failed > 0 ? `${counts.failed} failed` : '',
  ].filter((part) => part !== '');
  const body =
    sentences.length === 0
      ? 'The document has no sentences that a summary could be made of; see text.txt.'
      : sentences.map((sentence) => `- ${sentence.text} (page ${sentence.page})`).join('\n');
  return [
    `# ${document.name}`,
    '',
    `${counts.total} ${counts.total === 1 ? 'page' : 'pages'}: ${methods.join(', ')}.`,
    '',
    body,
    '',
  ].join('\n');
}

export function reportJson(options: {
  readonly document: DownloadedDocument;
  readonly download: DownloadNotes | undefined;
  readonly extract: ExtractNotes;
  readonly summary: { readonly sentences: number; readonly candidates: number; readonly ms: number };
  readonly artifacts: readonly ArtifactFile[];
}): string {
  const { document, download, extract, summary, artifacts } = options;
  return `${JSON.stringify(
    {
      report: 1,
      document: {
        name: document.name,
        bytes: document.bytes,
        sha256: document.sha256,
        ...(download === undefined
          ? {}
          : { source: download.kind, resumedBytes: download.resumedBytes, cached: download.cached }),
      },
      pages: extract.counts,
      engine: extract.engine,
      language: extract.language,
      dpi: extract.dpi,
      timingsMs: { download: download?.ms ?? null, pages: extract.ms, summary: summary.ms },
      versions: extract.versions,
      summary: { sentences: summary.sentences, candidates: summary.candidates },
      artifacts,
      decisions: extract.pages,
    },
    null,
    2,
  )}\n`;
}
