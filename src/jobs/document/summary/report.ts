/**
 * `summary.md`, for a person, and `report.json`, for whoever has to know how each page came about. Pure.
 */
import { OUTLINE_HEADING, type ArtifactFile } from '../../../contract/document.js';
import type { PageRecord } from '../pages/checkpoint.js';
import type { Sentence } from './clean.js';
import type { Outline, Section } from './outline.js';
import type { PageCounts } from '../pages/read-pages.js';
import type { DownloadedDocument } from '../steps.js';

/** What extractPages leaves on the scratch disk for the report. */
export interface ExtractNotes {
  readonly engine: 'native' | 'npm' | null;
  readonly language: string;
  readonly dpi: number;
  readonly ms: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly counts: PageCounts;
  readonly pages: readonly Omit<PageRecord, 'text'>[];
  readonly outline: Outline;
}

/** What the summary consists of. */
export interface Summary {
  readonly sentences: readonly Sentence[];
  readonly keyPhrases: readonly string[];
  /** The sections of the document, each with its best sentences; none when it has no bookmarks. */
  readonly sections: readonly SectionSummary[];
}

export interface SectionSummary extends Section {
  readonly sentences: readonly Sentence[];
}

/** More sections than this are a list and not an outline; report.json has them. */
export const MAX_SECTIONS_SHOWN = 40;

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
  { sentences, keyPhrases, sections }: Summary,
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
      ? ['The document has no sentences that a summary could be made of; see text.txt.']
      : sentences.map(quoted);
  return [
    `# ${document.name}`,
    '',
    `${counts.total} ${counts.total === 1 ? 'page' : 'pages'}: ${methods.join(', ')}.`,
    '',
    ...(keyPhrases.length === 0 ? [] : [`Key phrases: ${keyPhrases.join(', ')}`, '']),
    ...body,
    '',
    ...outlineLines(sections),
  ].join('\n');
}

function outlineLines(sections: readonly SectionSummary[]): string[] {
  if (sections.length === 0) return [];
  const shown = sections.slice(0, MAX_SECTIONS_SHOWN);
  const more = sections.length - shown.length;
  return [
    OUTLINE_HEADING,
    '',
    ...shown.flatMap(({ title, firstPage, lastPage, sentences }) => [
      `- **${title}** (${firstPage === lastPage ? `page ${firstPage}` : `pages ${firstPage}-${lastPage}`})`,
      ...sentences.map((sentence) => `  ${quoted(sentence)}`),
    ]),
    ...(more === 0 ? [] : [`- and ${more} more ${more === 1 ? 'section' : 'sections'}; see report.json`]),
    '',
  ];
}

function quoted({ text, page }: Sentence): string {
  return `- ${text} (page ${page})`;
}

export function reportJson(options: {
  readonly document: DownloadedDocument;
  readonly download: DownloadNotes | undefined;
  readonly extract: ExtractNotes;
  readonly summary: Summary;
  /** How many sentences there were to choose from, the language they are in, and how long it took. */
  readonly ranking: { readonly candidates: number; readonly language: string; readonly ms: number };
  readonly artifacts: readonly ArtifactFile[];
}): string {
  const { document, download, extract, summary, ranking, artifacts } = options;
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
      timingsMs: { download: download?.ms ?? null, pages: extract.ms, summary: ranking.ms },
      versions: extract.versions,
      summary: {
        sentences: summary.sentences.length,
        candidates: ranking.candidates,
        language: ranking.language,
      },
      keyPhrases: summary.keyPhrases,
      outline: extract.outline,
      artifacts,
      decisions: extract.pages,
    },
    null,
    2,
  )}\n`;
}
