/**
 * The activities of the document job: `downloadDocument`, `extractPages`, `summarizeDocument`, `deliverDocument`, all
 * pinned to one session, and `sendKeptArtifacts`, which one worker runs outside of any session.
 *
 * Each may be repeated: it finds what an earlier attempt finished on the scratch disk and goes on from there. This is
 * the edge: it reads the session, the settings and the disk, and leaves the work to the modules beside it. What is
 * heavy (pdfium, tesseract.js, execa) is loaded inside the activity that needs it, since every worker loads this module.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { currentSession, currentWorker, progress, type CurrentSession } from 'temporal-atlas/activity';
import type { ArtifactFile, DeliverRequest, DocumentSource } from '../../contract/document.js';
import { asFailure, failure, isFailure, messageOf } from './failure.js';
import { hashFile, readJson, writeFileAtomic } from './files.js';
import type { DownloadNotes, ExtractNotes } from './report.js';
import { readSettings, type DocumentSettings } from './settings.js';
import type {
  DeliveredDocument,
  DeliverStepRequest,
  DownloadedDocument,
  ExtractedPages,
  ExtractRequest,
  SentArtifacts,
  SummarizedDocument,
  SummarizeRequest,
} from './steps.js';

/** Names on the scratch disk of the session. */
const DOCUMENT = 'document.pdf';
const DOCUMENT_NOTES = 'document.json';
const CHECKPOINT = 'pages.checkpoint';
const EXTRACT_NOTES = 'extract.json';

/** How often progress is reported. Each report is a call to the server. */
const REPORT_EVERY_MS = 500;
const MAX_SUMMARY_SENTENCES = 100;

/**
 * Brings the document to the scratch directory of the session.
 *
 * Idempotent: a document that is there is not fetched again, and a part of one is continued where that is safe.
 *
 * @throws ApplicationFailure `EmptyFile`, `NotAPdf`, `TruncatedFile`, `TooLarge`, `SourceUnreachable`, `SourceRefused`,
 * `AddressRefused`, `FileRefused`, `FileUnreadable`, `SourceChanged`, `OutOfDisk`, `ConfigInvalid`.
 */
export async function downloadDocument(source: DocumentSource): Promise<DownloadedDocument> {
  return await inSession(async (session, settings) => {
    const target = join(session.scratchDirectory, DOCUMENT);
    const notesPath = join(session.scratchDirectory, DOCUMENT_NOTES);
    const key = sourceKey(source);
    const name = nameOf(source);
    const { inspectPdf } = await import('./inspect.js');
    const earlier = await downloadNotes(notesPath);
    if (earlier?.source === key && (await sizeOf(target)) === earlier.bytes) {
      await inspectPdf(target, name, session.signal);
      progress({ done: earlier.bytes, total: earlier.bytes, unit: 'bytes', note: 'already here' });
      return { name: earlier.name, bytes: earlier.bytes, sha256: earlier.sha256 };
    }
    const begunAt = performance.now();
    const report = reporter('bytes');
    const fetched = await fetchSource(source, target, session.signal, settings, report);
    const notes: DownloadNotes = {
      name,
      bytes: fetched.bytes,
      sha256: fetched.sha256,
      source: key,
      kind: source.kind,
      ms: Math.round(performance.now() - begunAt),
      resumedBytes: fetched.resumedBytes,
    };
    // Before the inspection, which an attempt may not survive: the bytes are here and need not come again.
    await writeFileAtomic(notesPath, JSON.stringify(notes));
    await inspectPdf(target, name, session.signal);
    progress({ done: fetched.bytes, total: fetched.bytes, unit: 'bytes' });
    return { name, bytes: fetched.bytes, sha256: fetched.sha256 };
  });
}

async function fetchSource(
  source: DocumentSource,
  target: string,
  signal: AbortSignal,
  settings: DocumentSettings,
  onProgress: (done: number, total: number | undefined) => void,
): Promise<{ bytes: number; sha256: string; resumedBytes: number }> {
  if (source.kind === 'file') {
    const { copyLocalFile } = await import('./local-file.js');
    return await copyLocalFile({
      path: source.path,
      target,
      expected: { bytes: source.bytes, sha256: source.sha256 },
      allowed: settings.allowFiles,
      maxBytes: settings.maxBytes,
      signal,
      onProgress,
    });
  }
  const { download, DOWNLOAD_LIMITS } = await import('./download.js');
  const { listedAddresses, publicAddresses } = await import('./addresses.js');
  if (!URL.canParse(source.url)) throw failure('SourceRefused', 'The address of the document is not a valid URL.');
  const served = source.kind === 'served';
  if (served && source.bytes === 0) throw failure('EmptyFile', `${nameOf(source)} has no bytes.`);
  return await download({
    url: source.url,
    target,
    policy: served ? listedAddresses(settings.allowServed) : publicAddresses(settings.allowUrls),
    limits: { ...DOWNLOAD_LIMITS, maxBytes: settings.maxBytes },
    signal,
    onProgress,
    ...(served ? { token: source.token, expected: { bytes: source.bytes, sha256: source.sha256 } } : {}),
  });
}

/**
 * Reads every page and writes `pages.jsonl` and `text.txt`.
 *
 * Idempotent: each finished page is in the checkpoint on the scratch disk, and an attempt goes on at the first that is
 * missing.
 *
 * @throws ApplicationFailure `PasswordRequired`, `UnsupportedEncryption`, `InvalidPdf`, `EmptyDocument`, `TooManyPages`,
 * `ToolMissing`, `PageFailed`, `NothingReadable`, `OutOfDisk`, `ConfigInvalid`.
 */
export async function extractPages(request: ExtractRequest): Promise<ExtractedPages> {
  return await inSession(async (session, settings) => {
    const { document, language } = request;
    const { scratchDirectory: scratch, signal } = session;
    const path = join(scratch, DOCUMENT);
    const begunAt = performance.now();
    const [{ openPdf }, { openOcr }, { openCheckpoint }, pages] = await Promise.all([
      import('./pdf-reader.js'),
      import('./ocr.js'),
      import('./checkpoint.js'),
      import('./pages.js'),
    ]);
    const reader = await openPdf({ path, name: document.name, signal });
    try {
      if (reader.pages === 0) throw failure('EmptyDocument', `${document.name} has no pages.`);
      if (reader.pages > settings.maxPages) {
        throw failure(
          'TooManyPages',
          `${document.name} has ${reader.pages} pages; this worker takes at most ${settings.maxPages}.`,
          {
            next: 'Raise document.max_pages (ATLAS_DOCUMENT_MAX_PAGES) of the worker, or split the document.',
          },
        );
      }
      const lanes = pages.ocrLanes();
      const ocr = await openOcr({
        engine: settings.ocrEngine,
        language,
        path,
        lanes,
        memoryBytes: settings.toolMemoryBytes,
        directory: scratch,
        signal,
      });
      try {
        const checkpoint = await openCheckpoint(join(scratch, CHECKPOINT), {
          sha256: document.sha256,
          language,
          engine: ocr.engine,
          dpi: String(settings.ocrDpi),
        });
        try {
          const report = reporter('pages');
          report(checkpoint.done.size, reader.pages);
          const records = await pages.readPages({
            reader,
            ocr,
            lanes,
            dpi: settings.ocrDpi,
            checkpoint,
            signal,
            onPage: (done, record) => report(done, reader.pages, record.method),
          });
          const counts = pages.countPages(records);
          const engine = records.some((record) => record.renderer !== undefined) ? ocr.engine : null;
          const notes: ExtractNotes = {
            engine,
            language,
            dpi: settings.ocrDpi,
            ms: Math.round(performance.now() - begunAt),
            versions: { node: process.versions.node, pdfium: packageVersion('@embedpdf/pdfium'), ...ocr.versions },
            counts,
            pages: records.map(({ text, ...decision }) => ({ ...decision, characters: text.length })),
          };
          await writeFileAtomic(join(scratch, 'pages.jsonl'), pages.pagesJsonl(records));
          await writeFileAtomic(join(scratch, 'text.txt'), pages.plainText(records));
          await writeFileAtomic(join(scratch, EXTRACT_NOTES), JSON.stringify(notes));
          pages.checkReadable(document.name, records, reader.pages);
          progress({ done: counts.total, total: counts.total, unit: 'pages' });
          return { pages: counts, engine };
        } finally {
          await checkpoint.close();
        }
      } finally {
        await ocr.close();
      }
    } finally {
      await reader.close();
    }
  });
}

/**
 * Writes `summary.md` and `report.json` from what extractPages left.
 *
 * Idempotent: the same pages give the same summary.
 */
export async function summarizeDocument(request: SummarizeRequest): Promise<SummarizedDocument> {
  return await inSession(async (session) => {
    const scratch = session.scratchDirectory;
    const begunAt = performance.now();
    const [{ sentencesOf }, { summarize }, { summaryMarkdown, reportJson }] = await Promise.all([
      import('./clean.js'),
      import('./summary.js'),
      import('./report.js'),
    ]);
    const wanted = Math.max(1, Math.min(Math.floor(request.sentences), MAX_SUMMARY_SENTENCES));
    const extract = (await readJson(join(scratch, EXTRACT_NOTES))) as ExtractNotes | undefined;
    if (extract === undefined) throw new Error(`extractPages left no ${EXTRACT_NOTES} in ${scratch}.`);
    const text = await readFile(join(scratch, 'pages.jsonl'), 'utf8');
    const pages = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { page: number; text: string });
    const candidates = sentencesOf(pages);
    session.signal.throwIfAborted();
    const sentences = summarize(candidates, wanted);
    await writeFileAtomic(join(scratch, 'summary.md'), summaryMarkdown(request.document, extract, sentences));
    const artifacts: ArtifactFile[] = [];
    for (const name of ['pages.jsonl', 'text.txt', 'summary.md']) {
      artifacts.push({ name, ...(await hashFile(join(scratch, name), session.signal)) });
    }
    await writeFileAtomic(
      join(scratch, 'report.json'),
      reportJson({
        document: request.document,
        download: await downloadNotes(join(scratch, DOCUMENT_NOTES)),
        extract,
        summary: {
          sentences: sentences.length,
          candidates: candidates.length,
          ms: Math.round(performance.now() - begunAt),
        },
        artifacts,
      }),
    );
    progress({ done: sentences.length, total: sentences.length, unit: 'sentences' });
    return { sentences: sentences.length };
  });
}

/**
 * Keeps the artifacts on the worker, and sends them to whoever waits for them. That nobody does is not a failure: they
 * may be sent later, by {@link sendKeptArtifacts}.
 *
 * Idempotent: keeping replaces what an earlier attempt kept under the same run, and sending overwrites.
 *
 * @throws ApplicationFailure `OutOfDisk`, `ConfigInvalid`.
 */
export async function deliverDocument(request: DeliverStepRequest): Promise<DeliveredDocument> {
  return await inSession(async (session, settings) => {
    const { keepArtifacts, sendArtifacts } = await import('./artifacts.js');
    const { listedAddresses } = await import('./addresses.js');
    const { name: worker, queue, keptDirectory, keptForMs } = session.worker;
    const { signal } = session;
    const id = session.runId;
    const { files, keptUntilMs } = await keepArtifacts({
      scratch: session.scratchDirectory,
      keptDirectory,
      keptForMs,
      id,
      signal,
    });
    const artifacts = { id, worker, queue, files, keptUntilMs };
    if (request.deliverTo === undefined) return { artifacts, delivered: false };
    try {
      const report = reporter('files');
      await sendArtifacts({
        folder: join(keptDirectory, id),
        files,
        target: request.deliverTo,
        policy: listedAddresses(settings.allowServed),
        signal,
        onFile: report,
      });
      return { artifacts, delivered: true };
    } catch (error) {
      signal.throwIfAborted();
      return { artifacts, delivered: false, deliveryError: messageOf(error) };
    }
  });
}

/**
 * Sends artifacts that this worker keeps. Run on that worker through its own queue, outside of any session.
 *
 * @throws ApplicationFailure `ArtifactsGone`, `DeliveryFailed`, `AddressRefused`, `ConfigInvalid`.
 */
export async function sendKeptArtifacts(request: DeliverRequest): Promise<SentArtifacts> {
  return await asFailures(async () => {
    const settings = readSettings();
    const { Context } = await import('@temporalio/activity');
    const { keptFolder, sendArtifacts } = await import('./artifacts.js');
    const { listedAddresses } = await import('./addresses.js');
    const { artifacts, deliverTo } = request;
    const folder = await keptFolder(currentWorker().keptDirectory, artifacts);
    await sendArtifacts({
      folder,
      files: artifacts.files,
      target: deliverTo,
      policy: listedAddresses(settings.allowServed),
      signal: Context.current().cancellationSignal,
      onFile: reporter('files'),
    });
    return { files: artifacts.files.length };
  });
}

async function inSession<T>(run: (session: CurrentSession, settings: DocumentSettings) => Promise<T>): Promise<T> {
  return await asFailures(async () => {
    const session = currentSession();
    session.signal.throwIfAborted();
    try {
      return await run(session, readSettings());
    } catch (error) {
      // Whatever else broke on the way down, the reason is that the session ended.
      session.signal.throwIfAborted();
      throw error;
    }
  });
}

async function asFailures<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (isFailure(error)) throw error;
    const { diskFailure } = await import('./files.js');
    throw diskFailure(asFailure(error), 'writing to the scratch directory');
  }
}

/** Reports at a bounded rate, the first and the last always. */
function reporter(unit: string): (done: number, total: number | undefined, note?: string) => void {
  let reportedAt = Number.NEGATIVE_INFINITY;
  return (done, total, note) => {
    const now = performance.now();
    if (now - reportedAt < REPORT_EVERY_MS && done !== total) return;
    reportedAt = now;
    progress({ done, unit, ...(total === undefined ? {} : { total }), ...(note === undefined ? {} : { note }) });
  };
}

/** What a document was fetched from, in a form that two attempts share and that gives away no token. */
function sourceKey(source: DocumentSource): string {
  const identity =
    source.kind === 'url' ? [source.url] : source.kind === 'file' ? [source.path, source.sha256] : [source.sha256];
  return createHash('sha256')
    .update(JSON.stringify([source.kind, ...identity]))
    .digest('hex');
}

const MAX_NAME_CHARACTERS = 120;

/** What the document is called: a plain name, whatever the request says. */
function nameOf(source: DocumentSource): string {
  let raw: string;
  if (source.kind === 'served') raw = source.name;
  else if (source.kind === 'file') raw = source.path;
  else raw = URL.canParse(source.url) ? decoded(new URL(source.url).pathname) : '';
  const last = raw.split(/[/\\]/).findLast((part) => part !== '') ?? '';
  const plain = last.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '').trim();
  return plain === '' ? 'document.pdf' : plain.slice(0, MAX_NAME_CHARACTERS);
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

async function downloadNotes(path: string): Promise<DownloadNotes | undefined> {
  const notes = await readJson(path);
  return typeof notes === 'object' && notes !== null && 'source' in notes && 'sha256' in notes
    ? (notes as DownloadNotes)
    : undefined;
}

async function sizeOf(path: string): Promise<number | undefined> {
  const { stat } = await import('node:fs/promises');
  return (await stat(path).catch(() => undefined))?.size;
}

function packageVersion(name: string): string {
  try {
    const require = createRequire(import.meta.url);
    // Its exports leave the manifest out; it is beside the file that they do name.
    const wasm = require.resolve(`${name}/pdfium.wasm`);
    const manifest = require(join(wasm, '..', '..', 'package.json')) as { readonly version?: unknown };
    return typeof manifest.version === 'string' ? manifest.version : 'unknown';
  } catch {
    return 'unknown';
  }
}
