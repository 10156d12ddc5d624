/**
 * The activities of the document job: `downloadDocument`, `extractPages`, `summarizeDocument`, `deliverDocument`, all
 * pinned to one session, and `sendKeptArtifacts`, which one worker runs outside of any session.
 *
 * Each may be repeated: it finds what an earlier attempt finished on the scratch disk and goes on from there. This is
 * the edge: it reads the session, the settings and the disk, and leaves the work to the modules beside it. What is
 * heavy (pdfium, tesseract.js, execa) is loaded inside the activity that needs it, since every worker loads this module.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { currentSession, currentWorker, progress, type CurrentSession } from 'temporal-atlas/activity';
import type { ArtifactFile, DeliverRequest, DocumentSource, PasswordSource } from '../../contract/document.js';
import { VERSION } from '../../contract/version.js';
import type { DocumentCache } from './fetch/cache.js';
import type { DirectoryTarget } from './deliver/directory.js';
import { asFailure, failure, isFailure, messageOf } from './failure.js';
import { diskFailure, hashFile, isDiskFull, readJson, writeFileAtomic } from './files.js';
import type { DownloadNotes, ExtractNotes } from './summary/report.js';
import { readSettings, type DocumentSettings } from './settings.js';
import type {
  DeliveredDocument,
  DeliverStepRequest,
  DownloadedDocument,
  DownloadOptions,
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
 * When it ends nothing more is needed from whoever gave the document: its password is here too, and opens it.
 *
 * Idempotent: a document that is there is not fetched again, and a part of one is continued where that is safe.
 *
 * @throws ApplicationFailure `EmptyFile`, `NotAPdf`, `TruncatedFile`, `InvalidPdf`, `PasswordRequired`, `PasswordWrong`,
 * `UnsupportedEncryption`, `TooLarge`, `SourceUnreachable`, `SourceRefused`, `AddressRefused`, `FileRefused`,
 * `FileUnreadable`, `DirectoryRefused`, `SourceChanged`, `OutOfDisk`, `ConfigInvalid`.
 */
export async function downloadDocument(
  source: DocumentSource,
  options: DownloadOptions = {},
): Promise<DownloadedDocument> {
  return await inSession(async (session, settings) => {
    const target = join(session.scratchDirectory, DOCUMENT);
    const notesPath = join(session.scratchDirectory, DOCUMENT_NOTES);
    const [{ openSource }, { inspectPdf }] = await Promise.all([
      import('./fetch/sources.js'),
      import('./fetch/inspect.js'),
    ]);
    const { name, key, fetch } = openSource(source);
    // What may be refused comes before what takes long.
    if (options.deliverToDirectory !== undefined) {
      const { checkDirectory } = await import('./deliver/directory.js');
      await checkDirectory(directoryOf(options.deliverToDirectory, session, settings));
    }
    const password = await passwordFrom(options.password, session, settings);
    const inspection = { path: target, name, password, signal: session.signal };
    const earlier = await downloadNotes(notesPath);
    if (earlier?.source === key && (await isFile(target, earlier, session.signal))) {
      await inspectPdf(inspection);
      progress({ done: earlier.bytes, total: earlier.bytes, unit: 'bytes', note: 'already here' });
      return { name: earlier.name, bytes: earlier.bytes, sha256: earlier.sha256 };
    }
    const begunAt = performance.now();
    const cache = await openCache(session, settings);
    const { diskOf } = await import('./fetch/disk.js');
    const { bytes, sha256, resumedBytes, cached, keep } = await fetch({
      target,
      settings,
      cache,
      disk: diskOf(session.scratchDirectory, (wanted, disk) => cache.makeRoom(wanted, disk)),
      signal: session.signal,
      onProgress: reporter('bytes'),
    });
    const notes: DownloadNotes = {
      name,
      bytes,
      sha256,
      source: key,
      kind: source.kind,
      ms: Math.round(performance.now() - begunAt),
      resumedBytes,
      cached,
    };
    // Before the inspection, which an attempt may not survive: the bytes are here and need not come again.
    await writeFileAtomic(notesPath, JSON.stringify(notes), { sync: false });
    await inspectPdf(inspection);
    await keep?.();
    progress({ done: bytes, total: bytes, unit: 'bytes', ...(cached ? { note: 'from the cache' } : {}) });
    return { name, bytes, sha256 };
  });
}

async function passwordFrom(
  source: PasswordSource | undefined,
  { scratchDirectory, signal }: CurrentSession,
  settings: DocumentSettings,
): Promise<string | undefined> {
  if (source === undefined) return undefined;
  const { obtainPassword } = await import('./fetch/password.js');
  const { listedAddresses } = await import('./fetch/addresses.js');
  return await obtainPassword(scratchDirectory, { source, policy: listedAddresses(settings.allowServed), signal });
}

function directoryOf(path: string, session: CurrentSession, settings: DocumentSettings): DirectoryTarget {
  const { runId, fencingToken } = session;
  return { path, allowed: settings.allowOutput, runId, fencingToken };
}

/** Documents of earlier runs on this worker. */
async function openCache({ worker }: CurrentSession, settings: DocumentSettings): Promise<DocumentCache> {
  const { DocumentCache } = await import('./fetch/cache.js');
  const { log } = await import('@temporalio/activity');
  return await DocumentCache.open({
    directory: worker.cacheDirectory,
    maxBytes: settings.cacheBytes,
    onProblem: (error) => {
      log.warn(`The cache of documents is not used: ${messageOf(error)}`);
    },
  });
}

/**
 * Reads every page and writes `pages.jsonl` and `text.txt`.
 *
 * Idempotent: each finished page is in the checkpoint on the scratch disk, and an attempt goes on at the first that is
 * missing.
 *
 * @throws ApplicationFailure `InvalidPdf`, `EmptyDocument`, `TooManyPages`, `ToolMissing`, `PageFailed`,
 * `NothingReadable`, `OutOfDisk`, `ConfigInvalid`.
 */
export async function extractPages(request: ExtractRequest): Promise<ExtractedPages> {
  return await inSession(async (session, settings) => {
    const { document, language } = request;
    const { scratchDirectory: scratch, signal } = session;
    const path = join(scratch, DOCUMENT);
    const begunAt = performance.now();
    const [{ openPdf, readOutline }, { keptPassword }, { openOcr }, { openCheckpoint }, pages] = await Promise.all([
      import('./pages/pdf-reader.js'),
      import('./fetch/password.js'),
      import('./pages/ocr.js'),
      import('./pages/checkpoint.js'),
      import('./pages/read-pages.js'),
    ]);
    const reader = await openPdf({ path, name: document.name, password: await keptPassword(scratch), signal });
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
        ...(reader.needsPassword ? {} : { path }),
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
          const outline = await readOutline(reader, signal);
          const engine = records.some((record) => record.renderer !== undefined) ? ocr.engine : null;
          const notes: ExtractNotes = {
            engine,
            language,
            dpi: settings.ocrDpi,
            ms: Math.round(performance.now() - begunAt),
            versions: {
              atlas: VERSION,
              node: process.versions.node,
              pdfium: packageVersion('@embedpdf/pdfium'),
              ...ocr.versions,
            },
            counts,
            pages: records.map(({ text, ...decision }) => ({ ...decision, characters: text.length })),
            outline,
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
    const { signal } = session;
    const [{ summarizePages }, { runSliced }, { summaryMarkdown, reportJson }] = await Promise.all([
      import('./summary/summarize.js'),
      import('./summary/slices.js'),
      import('./summary/report.js'),
    ]);
    const wanted = Math.max(1, Math.min(Math.floor(request.sentences), MAX_SUMMARY_SENTENCES));
    const extract = (await readJson(join(scratch, EXTRACT_NOTES))) as ExtractNotes | undefined;
    if (extract === undefined) throw new Error(`extractPages left no ${EXTRACT_NOTES} in ${scratch}.`);
    const text = await readFile(join(scratch, 'pages.jsonl'), 'utf8');
    const { candidates, language, ...summary } = await runSliced(summarizePages(text, extract.outline, wanted), signal);
    await writeFileAtomic(join(scratch, 'summary.md'), summaryMarkdown(request.document, extract, summary));
    const artifacts: ArtifactFile[] = [];
    for (const name of ['pages.jsonl', 'text.txt', 'summary.md']) {
      artifacts.push({ name, ...(await hashFile(join(scratch, name), signal)) });
    }
    await writeFileAtomic(
      join(scratch, 'report.json'),
      reportJson({
        document: request.document,
        download: await downloadNotes(join(scratch, DOCUMENT_NOTES)),
        extract,
        summary,
        ranking: { candidates, language, ms: Math.round(performance.now() - begunAt) },
        artifacts,
      }),
    );
    const { length } = summary.sentences;
    progress({ done: length, total: length, unit: 'sentences' });
    return { sentences: length };
  });
}

/**
 * Puts the artifacts into the directory that was asked for, keeps them on the worker, and sends them to whoever waits for
 * them. That nobody does is not a failure: they may be sent later, by {@link sendKeptArtifacts}.
 *
 * Idempotent: the directory and what is kept under the same run replace those of an earlier attempt, and sending
 * overwrites.
 *
 * @throws ApplicationFailure `DirectoryRefused`, `OutOfDisk`, `ConfigInvalid`.
 */
export async function deliverDocument(request: DeliverStepRequest): Promise<DeliveredDocument> {
  return await inSession(async (session, settings) => {
    const { keepArtifacts, sendArtifacts } = await import('./deliver/artifacts.js');
    const { listedAddresses } = await import('./fetch/addresses.js');
    const { name: worker, queue, keptDirectory, keptForMs } = session.worker;
    const { signal } = session;
    const id = session.runId;
    const { deliverTo, deliverToDirectory } = request;
    if (deliverToDirectory !== undefined) {
      const { fillDirectory } = await import('./deliver/directory.js');
      const target = directoryOf(deliverToDirectory, session, settings);
      await fillDirectory(target, { scratch: session.scratchDirectory, signal });
    }
    const directory = deliverToDirectory === undefined ? {} : { directory: deliverToDirectory };
    const { files, keptUntilMs } = await keepArtifacts({
      scratch: session.scratchDirectory,
      keptDirectory,
      keptForMs,
      id,
      signal,
    });
    const artifacts = { id, worker, queue, files, keptUntilMs };
    if (deliverTo === undefined) return { artifacts, delivered: false, ...directory };
    try {
      const report = reporter('files');
      await sendArtifacts({
        folder: join(keptDirectory, id),
        files,
        target: deliverTo,
        policy: listedAddresses(settings.allowServed),
        signal,
        onFile: report,
      });
      return { artifacts, delivered: true, ...directory };
    } catch (error) {
      signal.throwIfAborted();
      return { artifacts, delivered: false, deliveryError: messageOf(error), ...directory };
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
    const { keptFolder, sendArtifacts } = await import('./deliver/artifacts.js');
    const { listedAddresses } = await import('./fetch/addresses.js');
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
      if (isFailure(error, 'OutOfDisk') || isDiskFull(error)) {
        // The next attempt finds the room that earlier documents had.
        const { diskOf } = await import('./fetch/disk.js');
        const cache = await openCache(session, readSettings());
        await cache.makeRoom(Number.POSITIVE_INFINITY, diskOf(session.scratchDirectory));
      }
      throw error;
    }
  });
}

async function asFailures<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (isFailure(error)) throw error;
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

async function downloadNotes(path: string): Promise<DownloadNotes | undefined> {
  const notes = await readJson(path);
  return typeof notes === 'object' && notes !== null && 'source' in notes && 'sha256' in notes
    ? (notes as DownloadNotes)
    : undefined;
}

/** Whether the file is the one that an earlier attempt left. Cheap where it is not: the size is looked at first. */
async function isFile(path: string, { bytes, sha256 }: DownloadNotes, signal: AbortSignal): Promise<boolean> {
  const { stat } = await import('node:fs/promises');
  const found = await stat(path).catch(() => undefined);
  return found?.size === bytes && (await hashFile(path, signal)).sha256 === sha256;
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
