/**
 * A document whose executor is killed with -9 while its pages are read, against the same document in peace: no page that
 * was done is read again, nothing is fetched again, and the text is the same to the byte.
 *
 * What is read is not taken from what the job says: the checkpoint is looked at where it lies, and each picture is
 * counted where it is given to OCR, at the programs of the native engine and at the threads of tesseract.js. With
 * DOCUMENT_TEST_FILE the document is that file, however long it takes; DOCUMENT_TEST_SEED chooses the page.
 */
import { link, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PROCESS_DOCUMENT_WORKFLOW, type DocumentResult } from '../../src/contract/document.js';
import { ocrLanes } from '../../src/jobs/document/pages/read-pages.js';
import { random } from '../chaos/random.js';
import { startAtlasd, temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { serveFile } from '../support/document-server.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { activitiesOf, type RunActivity } from '../support/history.js';
import { makeStampedPdf } from '../support/pdf.js';
import { isAlive, until } from '../support/processes.js';
import { programPath, watchOcr, type OcrWatch, type Recognition } from '../support/recognitions.js';
import { useClient } from '../support/server.js';

const GIVEN_FILE = process.env['DOCUMENT_TEST_FILE'];
const SEED = Number(process.env['DOCUMENT_TEST_SEED'] ?? Math.floor(Math.random() * 1_000_000));
/** One run of a scan of 80 pages takes three minutes by tesseract.js, on two cores that have nothing else to do. */
const RUN_LIMIT_MS = GIVEN_FILE === undefined ? 180_000 : 3_600_000;
const PAGES = 8;

async function documentPath(): Promise<string> {
  if (GIVEN_FILE !== undefined) return GIVEN_FILE;
  const path = join(await temporaryDirectory(), 'scan.pdf');
  const lines = (page: number): string[] => [
    `This is page ${page} of a document that only OCR can read.`,
    'No line of it is in a text layer, and each page is another picture.',
    `Whoever reads page ${page} twice has lost what was done before.`,
  ];
  await writeFile(path, makeStampedPdf(Array.from({ length: PAGES }, (_, index) => lines(index + 1))));
  return path;
}

/** The pages that are in a checkpoint, whatever is torn at its end left out. */
function pagesIn(checkpoint: string): number[] {
  const lines = checkpoint.split('\n').slice(1, -1);
  return lines.map((line) => (JSON.parse(line) as { page: number }).page);
}

interface Kill {
  /** The checkpoint as the dead executor left it, to the end of its last whole line. */
  readonly checkpoint: string;
  readonly restartedAs: number;
  /** A second name of the checkpoint: the first goes with the session. */
  readonly witness: string;
}

interface Run {
  readonly result: DocumentResult;
  readonly activities: RunActivity[];
  readonly files: ReadonlyMap<string, string>;
  readonly kill?: Kill & { readonly checkpointAtEnd: string };
  readonly recognitions: readonly Recognition[];
}

/** Kills the executor, and it alone, once so many pages are done. */
async function killOnce(worker: Atlasd, pages: number, watch: OcrWatch): Promise<Kill> {
  const executor = (await worker.event('executor-start'))['pid'] as number;
  const after = worker.events.length;
  const scratch = join(worker.stateDirectory, 'scratch');
  const witness = join(await temporaryDirectory(), 'pages.checkpoint');
  await until(
    'there is a checkpoint',
    async () => {
      const entries = await readdir(scratch, { recursive: true });
      const found = entries.find((entry) => entry.endsWith('pages.checkpoint'));
      if (found !== undefined) await link(join(scratch, found), witness);
      return found !== undefined;
    },
    RUN_LIMIT_MS,
  );
  const enough = async (): Promise<boolean> => pagesIn(await readFile(witness, 'utf8')).length >= pages;
  await until(`${pages} pages are done`, enough, RUN_LIMIT_MS);
  process.kill(executor, 'SIGKILL');
  await until('the executor is dead', () => !isAlive(executor));
  const left = await readFile(witness, 'utf8');
  const restarted = await worker.event('executor-start', ({ pid }) => pid !== executor, { after });
  await watch.letGo();
  return {
    checkpoint: left.slice(0, left.lastIndexOf('\n') + 1),
    restartedAs: restarted['pid'] as number,
    witness,
  };
}

describe.each(['native', 'npm'] as const)(
  `an executor killed with -9 while it reads by %s (seed ${SEED})`,
  (engine) => {
    const client = useClient();

    /**
     * One run on a worker of its own, killed once so many pages are done. The last picture waits for the kill, however late
     * that comes: there is always a page that is missing.
     */
    async function run(path: string, killed?: { readonly after: number; readonly total: number }): Promise<Run> {
      const watch = await watchOcr(engine, killed === undefined ? {} : { holdsFrom: killed.total });
      const { url, sent, size } = await serveFile(path);
      const fleet = uniqueFleet();
      const args = ['--document-allow-urls', '127.0.0.0/8', '--document-ocr-engine', engine];
      const worker = await startAtlasd({ fleet, args, env: watch.env });
      const handle = await client().workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
        taskQueue: fleet,
        workflowId: uniqueId('document'),
        args: [{ source: { kind: 'url', url } }],
        workflowExecutionTimeout: RUN_LIMIT_MS,
      });

      const kill = killed === undefined ? undefined : await killOnce(worker, killed.after, watch);
      const result = (await handle.result()) as DocumentResult;
      expect(sent()).toBe(size);
      const files = new Map<string, string>();
      for (const { name } of result.artifacts.files) {
        files.set(name, await readFile(join(worker.stateDirectory, 'kept', result.artifacts.id, name), 'utf8'));
      }
      const activities = await activitiesOf(handle);
      const recognitions = await watch.recognitions();
      expect(await worker.stop(60_000)).toBe(0);
      if (kill === undefined) return { result, activities, files, recognitions };
      const checkpointAtEnd = await readFile(kill.witness, 'utf8');
      return { result, activities, files, recognitions, kill: { ...kill, checkpointAtEnd } };
    }

    it('reads no page again that was done, and loses none', { timeout: 2 * RUN_LIMIT_MS }, async ({ skip }) => {
      if (engine === 'native' && programPath('tesseract') === undefined) skip('tesseract is not installed');
      const path = await documentPath();
      const whole = await run(path);
      const { total } = whole.result.pages;
      expect(whole.result).toMatchObject({ engine, pages: { ocr: total, failed: 0 }, sessionAttempts: 1 });
      const pictures = whole.recognitions.map(({ picture }) => picture);
      expect(new Set(pictures).size).toBe(total);
      expect(pictures).toHaveLength(total);

      // Early enough that there is something left of a small document when the signal comes.
      const last = GIVEN_FILE === undefined ? total / 2 : total - 2 * ocrLanes();
      const page = random(SEED).whole(1, last);
      const broken = await run(path, { after: page, total });
      const { kill } = broken;
      if (kill === undefined) throw new Error('It was not killed.');
      const done = pagesIn(kill.checkpoint);
      if (GIVEN_FILE !== undefined) console.log(`${engine}: killed with ${done.length} of ${total} pages done`);
      expect(done.length).toBeGreaterThanOrEqual(page);
      expect(done.length).toBeLessThan(total);

      // What was done is as it was, and each page is there once.
      const everyPage = Array.from({ length: total }, (_, index) => index + 1);
      expect(kill.checkpointAtEnd.startsWith(kill.checkpoint)).toBe(true);
      expect(pagesIn(kill.checkpointAtEnd).sort((a, b) => a - b)).toEqual(everyPage);
      // After the restart as many pictures went to OCR as pages were missing, and what went there twice was in a lane when
      // the executor died. Then a picture may have been cut, too, on its way to the program.
      const isAfter = ({ pid }: Recognition): boolean => pid === kill.restartedAs;
      const again = broken.recognitions.filter(isAfter).map(({ picture }) => picture);
      const before = broken.recognitions.filter((each) => !isAfter(each)).map(({ picture }) => picture);
      expect(again).toHaveLength(total - done.length);
      expect(new Set([...before.filter((picture) => pictures.includes(picture)), ...again])).toEqual(new Set(pictures));
      expect(again.filter((picture) => before.includes(picture)).length).toBeLessThanOrEqual(ocrLanes());

      expect(broken.files.get('text.txt')).toBe(whole.files.get('text.txt'));
      expect(broken.files.get('pages.jsonl')).toBe(whole.files.get('pages.jsonl'));
      const { decisions } = JSON.parse(broken.files.get('report.json') ?? '') as { decisions: { page: number }[] };
      expect(decisions.map((decision) => decision.page)).toEqual(everyPage);
      expect(broken.result).toMatchObject({ pages: whole.result.pages, sessionAttempts: 1 });
      const attempts = broken.activities.filter(({ type }) => !type.startsWith('atlas:'));
      expect(attempts.map(({ type, attempt }) => `${type} ${attempt}`)).toEqual([
        'downloadDocument 1',
        'extractPages 2',
        'summarizeDocument 1',
        'deliverDocument 1',
      ]);
      expect(broken.activities.filter(({ type }) => type === 'atlas:acquireWorker')).toHaveLength(1);
    });
  },
);
