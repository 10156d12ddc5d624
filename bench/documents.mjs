/**
 * How fast the document job reads, how many characters it gets wrong, what it holds in memory and how fast it downloads:
 * whole runs on a real server and a real atlasd, the document from a server of its own. Beside each figure stands what
 * the machine can do at all, measured by turns with it in the same run: tesseract and pdftoppm without the job, and
 * curl.
 *
 * Without `--file` the bench makes its documents from the text of the sample. Processor time stands beside the wall
 * time, since on a busy machine only the first can be compared between runs.
 */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { makeDocument, SAMPLE_PAGES, textOf } from '../examples/make-sample.mjs';
import { say, ScriptError } from '../scripts/lib.mjs';
import { countErrors } from './support/documents/edit-distance.mjs';
import { eventsOf, timeOf } from './support/history.mjs';
import { cpuWithChildrenMs, endedChildrenCpuMs, memoryOf, peakRssMb } from './support/process-usage.mjs';
import { line, notMeasured } from './support/report.mjs';
import { partsOf, withServer } from './support/run.mjs';

export const summary = 'pages a second, errors, memory and download of the document job, against the bare programs';
export const defaultRuns = 3;
export const options = {
  file: 'PDF         the scan to read, instead of one that is made',
  truth: 'DIR        what its pages say: a file per page, in the order of their names',
  pages: 'N          of the scan that is made; default 12',
  'text-file': 'PDF    with text layers, instead of one of 500 pages that is made',
  only: 'PART,...    some of native, npm, text, download',
};

const DEFAULT_PAGES = 12;
const MAX_PAGES = 200;
const TEXT_PAGES = 500;
/** As large as a long scan, when none is given. */
const DOWNLOAD_BYTES = 200_000_000;
/** Bytes that no link and no disk can compress, again and again. */
const DOWNLOAD_BLOCK_BYTES = 1_000_000;
const DPI = 200;
const MEMORY_POLL_MS = 100;
const READ_LIMIT_MS = 3_600_000;
const DOWNLOAD_POLL_MS = 50;

const RATIO_TARGET = 0.9;
/** Of the npm packages, with two cores to run on. */
const NPM_RATE_TARGET = 0.45;
const NPM_RATE_CORES = 2;
const TEXT_RATE_TARGET = 200;
const ERRORS_TARGET_PERCENT = 0.1;
const MEMORY_TARGET_MB = 600;
/** What may come and go with the garbage collector. */
const GROWTH_TARGET_MB = 50;
const DOWNLOAD_RATIO_TARGET = 0.8;

const FILE_SERVER = fileURLToPath(new URL('./support/documents/file-server.mjs', import.meta.url));
const PARTS = { native, npm, text, download };

export async function run({ runs, file, truth, pages, 'text-file': textFile, only }) {
  const parts = partsOf(only, PARTS);
  if (pages !== undefined && file !== undefined)
    throw new ScriptError('--pages is of the scan that is made: give no --file.');
  if (truth !== undefined && file === undefined) throw new ScriptError('--truth is of a --file.');
  const count = pages === undefined ? DEFAULT_PAGES : Number(pages);
  if (!Number.isInteger(count) || count < 1 || count > MAX_PAGES) {
    throw new ScriptError(`--pages takes a whole number from 1 to ${MAX_PAGES}.`);
  }

  return await withServer(async ({ client, programs }) => {
    const folder = programs.folder();
    const bench = {
      client,
      programs,
      runs,
      folder,
      documents: documentsIn(folder, { file, truth, count, textFile }),
    };
    const lines = [];
    for (const part of parts) lines.push(...(await PARTS[part](bench)));
    return lines;
  });
}

// Documents ----------------------------------------------------------------------------------------------------------

/** The documents to read, each made when it is first asked for; with `truth`, what its pages say. */
function documentsIn(folder, { file, truth, count, textFile }) {
  const given = (path) => {
    const absolute = resolve(path);
    if (statSync(absolute, { throwIfNoEntry: false })?.isFile() !== true)
      throw new ScriptError(`${path} is not a file.`);
    return { name: basename(absolute), path: absolute };
  };
  const made = async (name, pages) => {
    const path = join(folder, name);
    writeFileSync(path, await makeDocument(pages));
    return { name, path, truth: pages.map((page, index) => textOf(page, index + 1)) };
  };
  return {
    scan: once(async () => {
      if (file !== undefined) {
        return { ...given(file), ...(truth === undefined ? {} : { truth: truthIn(truth) }) };
      }
      say(`Making a scan of ${count} pages`);
      return await made('scan.pdf', samplePages(count, true));
    }),
    text: once(async () => {
      if (textFile !== undefined) return given(textFile);
      say(`Making a document of ${TEXT_PAGES} pages with text layers`);
      return await made('text.pdf', samplePages(TEXT_PAGES, false));
    }),
    large: once(async () => {
      if (file !== undefined) return given(file);
      const path = join(folder, 'large.pdf');
      writeFileSync(path, await withPadding(await makeDocument(samplePages(1, false)), DOWNLOAD_BYTES));
      return { name: 'large.pdf', path };
    }),
  };
}

function once(make) {
  let made;
  return () => (made ??= make());
}

function samplePages(count, scanned) {
  return Array.from({ length: count }, (_, index) => ({
    ...SAMPLE_PAGES[index % SAMPLE_PAGES.length],
    scanned,
    // tesseract drops a digit that stands alone, whoever runs it.
    foot: `Page ${index + 1}`,
  }));
}

function truthIn(folder) {
  const names = readdirSync(folder).filter((name) => name.endsWith('.txt'));
  if (names.length === 0) throw new ScriptError(`${folder} has no .txt files.`);
  return names.sort().map((name) => readFileSync(join(folder, name), 'utf8'));
}

/** Adds an object that no page has, as an update of the file does it. */
function withPadding(pdf, bytes) {
  const end = pdf.subarray(-1_024).toString('latin1');
  const [size, xref] = [/\/Size (\d+)/, /startxref\s+(\d+)/].map((pattern) => Number(pattern.exec(end)?.[1]));
  const block = randomBytes(DOWNLOAD_BLOCK_BYTES);
  const blocks = Array.from({ length: Math.ceil(bytes / block.length) }, () => block);
  const length = blocks.length * block.length;
  const before = Buffer.from(`${size} 0 obj\n<< /Length ${length} >>\nstream\n`);
  const after = '\nendstream\nendobj\n';
  const newXref = pdf.length + before.length + length + after.length;
  const table =
    `xref\n${size} 1\n${String(pdf.length).padStart(10, '0')} 00000 n \n` +
    `trailer\n<< /Size ${size + 1} /Root 1 0 R /Prev ${xref} >>\nstartxref\n${newXref}\n%%EOF\n`;
  return Buffer.concat([pdf, before, ...blocks, Buffer.from(after + table)]);
}

// Reading ------------------------------------------------------------------------------------------------------------

async function native(bench) {
  const group = 'scan, native OCR';
  if (!isInstalled('tesseract', '--version'))
    return [notMeasured(group, 'pages a second', 'tesseract is not installed')];
  const scan = await bench.documents.scan();
  const hasLimit = isInstalled('pdftoppm', '-v') && isInstalled('xargs', '--version');
  const limits = [];
  const reads = await readScan(bench, scan, 'native', async (pages) => {
    if (!hasLimit) return;
    say(`${scan.name} by pdftoppm and tesseract alone`);
    limits.push(await bareOcr(bench, scan, pages));
  });
  const rates = reads.map(rateOf);
  const lines = [line(group, 'pages a second', 'pages/s', rates)];
  if (hasLimit) {
    lines.push(
      line(
        group,
        `pages a second of pdftoppm | tesseract, ${availableParallelism()} at a time`,
        'pages/s',
        limits.map(rateOf),
      ),
      line(
        group,
        'ratio of the two',
        'x',
        rates.map((rate, turn) => rate / rateOf(limits[turn])),
        {
          min: RATIO_TARGET,
          text: `≥ ${RATIO_TARGET}`,
        },
      ),
      line(
        group,
        'the same in processor time a page',
        'x',
        reads.map((read, turn) => ratio(cpuOf(limits[turn]), cpuOf(read))),
      ),
    );
  } else {
    lines.push(notMeasured(group, 'ratio to the bare programs', 'pdftoppm or xargs is not installed'));
  }
  lines.push(line(group, 'processor a page', 's', reads.map(cpuOf)));
  if (hasLimit) lines.push(line(group, 'processor a page of pdftoppm | tesseract', 's', limits.map(cpuOf)));
  lines.push(...errorLines(group, scan, reads, 'characters that are wrong'));
  if (hasLimit) lines.push(...errorLines(group, scan, limits, 'characters wrong by pdftoppm | tesseract', false));
  return [...lines, ...memoryLines('memory, native OCR', reads), ...restLines('a run with native OCR', reads)];
}

async function npm(bench) {
  const group = 'scan, OCR by npm packages';
  const scan = await bench.documents.scan();
  const reads = await readScan(bench, scan, 'npm');
  const cores = availableParallelism();
  const target = NPM_RATE_TARGET * Math.min(1, cores / NPM_RATE_CORES);
  return [
    line(group, 'pages a second', 'pages/s', reads.map(rateOf), {
      min: target,
      text: `≥ ${target.toFixed(2)} pages/s with ${cores} ${cores === 1 ? 'core' : 'cores'}`,
    }),
    line(group, 'processor a page', 's', reads.map(cpuOf)),
    ...errorLines(group, scan, reads, 'characters that are wrong'),
    ...memoryLines('memory, npm packages', reads),
    ...restLines('a run with npm packages', reads),
  ];
}

/** The document again and again on one worker, each time after `before`. */
async function readScan(bench, scan, engine, before = () => undefined) {
  const fileServer = await serve(bench, scan);
  const fleet = newFleet();
  const worker = await startWorker(bench, fleet, engine);
  const reads = [];
  for (let turn = 0; turn < bench.runs; turn += 1) {
    await before(scan.pages ?? (scan.pages = await pageCount(scan)));
    say(`${scan.name}, engine ${engine}, run ${turn + 1} of ${bench.runs}`);
    reads.push(await read(bench, fleet, worker, fileServer.url()));
  }
  await worker.stop();
  await fileServer.stop();
  return reads;
}

async function text(bench) {
  const group = 'text layers';
  const document = await bench.documents.text();
  const fileServer = await serve(bench, document);
  const fleet = newFleet();
  const worker = await startWorker(bench, fleet, 'auto');
  // The first loads the code of the job.
  await read(bench, fleet, worker, fileServer.url());
  const reads = [];
  for (let turn = 0; turn < bench.runs; turn += 1) {
    say(`${document.name}, run ${turn + 1} of ${bench.runs}`);
    reads.push(await read(bench, fleet, worker, fileServer.url()));
  }
  await worker.stop();
  await fileServer.stop();
  return [
    line(group, `pages a second, of ${reads[0].pages} pages`, 'pages/s', reads.map(rateOf), {
      min: TEXT_RATE_TARGET,
      text: `≥ ${TEXT_RATE_TARGET} pages/s`,
    }),
    line(
      group,
      'processor a page',
      'ms',
      reads.map((each) => (each.cpuMs === null ? null : each.cpuMs / each.pages)),
    ),
    ...errorLines(group, document, reads, 'characters that are wrong', false),
    ...restLines('a run with text layers', reads),
  ];
}

/** One run of the workflow: times by the server's history, memory and processor time while the pages were read. */
async function read({ client }, fleet, worker, url) {
  const { executor } = worker.pids;
  const cpuBeforeMs = cpuWithChildrenMs(executor);
  const memory = watchMemory(Object.values(worker.pids));
  let events;
  let result;
  try {
    const handle = await client.workflow.start('processDocument', {
      taskQueue: fleet,
      workflowId: `bench-${process.pid}-${(workflowCount += 1)}`,
      args: [{ source: { kind: 'url', url } }],
      workflowExecutionTimeout: READ_LIMIT_MS,
    });
    result = await handle.result();
    events = await eventsOf(handle);
  } finally {
    memory.stop();
  }
  if (memory.hasEnded) throw new ScriptError(`The executor ended in the middle:\n${worker.log().join('\n')}`);
  const cpuAfterMs = cpuWithChildrenMs(executor);
  const folder = join(worker.folder, 'kept', result.artifacts.id);
  const steps = stepsOf(events);
  return {
    pages: result.pages.total,
    failed: result.pages.failed,
    elapsedMs: steps.extractPages,
    steps,
    totalMs: timeOf(events.at(-1)) - timeOf(events[0]),
    cpuMs: cpuBeforeMs === null || cpuAfterMs === null ? null : cpuAfterMs - cpuBeforeMs,
    peakMb: memory.peakMb,
    sharedOnceMb: memory.sharedOnceMb,
    executorPeakMb: peakRssMb(executor),
    supervisorPeakMb: peakRssMb(worker.pids.supervisor),
    texts: readFileSync(join(folder, 'pages.jsonl'), 'utf8')
      .split('\n')
      .filter((each) => each !== '')
      .map((each) => JSON.parse(each).text),
  };
}

let workflowCount = 0;
let fleetCount = 0;

function newFleet() {
  fleetCount += 1;
  return `bench${process.pid}d${fleetCount}`;
}

function startWorker({ programs }, fleet, engine) {
  const args = ['--document-allow-urls', '127.0.0.0/8', '--document-ocr-engine', engine];
  return programs.startAtlasd({ fleet, name: 'w', cap: 1, args });
}

/** Milliseconds of each step, from when its activity was started to its end. */
function stepsOf(events) {
  const scheduled = new Map();
  const started = new Map();
  const steps = {};
  for (const event of events) {
    const type = event.activityTaskScheduledEventAttributes?.activityType?.name;
    if (type !== undefined) scheduled.set(String(event.eventId), type);
    const start = event.activityTaskStartedEventAttributes;
    if (start != null) started.set(String(start.scheduledEventId), timeOf(event));
    const end = event.activityTaskCompletedEventAttributes;
    if (end == null) continue;
    const id = String(end.scheduledEventId);
    steps[scheduled.get(id)] = timeOf(event) - started.get(id);
  }
  return steps;
}

/** Each request has an address of its own, so that nothing that was kept of an earlier one is taken for it. */
async function serve({ programs }, { path, name }) {
  const program = programs.start(process.execPath, [FILE_SERVER, path]);
  const port = await program.until((each) => /^PORT (\d+)$/.exec(each)?.[1], 'The file server did not start');
  let requests = 0;
  return {
    url: () => `http://127.0.0.1:${port}/${encodeURIComponent(name)}?${(requests += 1)}`,
    stop: () => program.stop(),
  };
}

async function pageCount({ path }) {
  const { Pdf } = await import('../dist/jobs/document/pages/pdf.js');
  const pdf = await Pdf.open(path);
  try {
    return pdf.pages;
  } finally {
    pdf.close();
  }
}

/** The same pages by the programs alone, one lane per core: what a shell script on this machine would get. */
async function bareOcr({ programs, folder }, { path }, pages) {
  const out = join(folder, 'bare');
  mkdirSync(out, { recursive: true });
  const command = `pdftoppm -r ${DPI} -gray -f "$1" -l "$1" "$2" | tesseract stdin stdout > "$3/$1.txt"`;
  const cpuBeforeMs = endedChildrenCpuMs();
  const startMs = performance.now();
  const program = programs.start(
    'xargs',
    ['-P', String(availableParallelism()), '-I{}', 'sh', '-c', command, 'sh', '{}', path, out],
    { OMP_THREAD_LIMIT: '1' },
    'pipe',
  );
  const numbers = Array.from({ length: pages }, (_, index) => index + 1);
  program.child.stdin.end(numbers.map((number) => `${number}\n`).join(''));
  const code = await program.exited;
  const elapsedMs = performance.now() - startMs;
  if (code !== 0) throw new ScriptError(`pdftoppm | tesseract failed:\n${program.lines.join('\n')}`);
  const cpuAfterMs = endedChildrenCpuMs();
  return {
    pages,
    elapsedMs,
    cpuMs: cpuBeforeMs === null || cpuAfterMs === null ? null : cpuAfterMs - cpuBeforeMs,
    texts: numbers.map((number) => readFileSync(join(out, `${number}.txt`), 'utf8')),
  };
}

function isInstalled(command, argument) {
  return spawnSync(command, [argument], { stdio: 'ignore' }).status === 0;
}

function rateOf({ pages, elapsedMs }) {
  return (pages * 1_000) / elapsedMs;
}

/** Seconds a page. */
function cpuOf({ pages, cpuMs }) {
  return cpuMs === null ? null : cpuMs / 1_000 / pages;
}

function ratio(left, right) {
  return left === null || right === null ? null : left / right;
}

function errorLines(group, { truth }, reads, name, isTarget = true) {
  if (truth === undefined) return isTarget ? [notMeasured(group, name, 'no --truth was given')] : [];
  const shares = reads.map(({ texts }) => {
    if (texts.length !== truth.length) {
      throw new ScriptError(`The document has ${texts.length} pages, and the truth ${truth.length}.`);
    }
    const counts = texts.map((page, index) => countErrors(page, truth[index]));
    const sum = (key) => counts.reduce((total, count) => total + count[key], 0);
    return (100 * sum('errors')) / sum('characters');
  });
  const target = { max: ERRORS_TARGET_PERCENT, text: `≤ ${ERRORS_TARGET_PERCENT} %` };
  return [line(group, name, '%', shares, isTarget ? target : undefined)];
}

// Memory -------------------------------------------------------------------------------------------------------------

/** The most that processes have together, looked at again and again. */
function watchMemory(pids) {
  const watch = { peakMb: 0, sharedOnceMb: null, hasEnded: false, stop: () => clearInterval(timer) };
  const look = () => {
    let all;
    try {
      all = pids.map(memoryOf);
    } catch {
      // One of them has ended: what is left is no figure of this run.
      watch.hasEnded = true;
      watch.stop();
      return;
    }
    watch.peakMb = Math.max(
      watch.peakMb,
      all.reduce((total, { rssMb }) => total + rssMb, 0),
    );
    if (all.some(({ pssMb }) => pssMb === null)) return;
    const sharedOnce = all.reduce((total, { pssMb }) => total + pssMb, 0);
    watch.sharedOnceMb = Math.max(watch.sharedOnceMb ?? 0, sharedOnce);
  };
  const timer = setInterval(look, MEMORY_POLL_MS);
  look();
  return watch;
}

function memoryLines(group, reads) {
  const [first, last] = [reads[0], reads.at(-1)];
  const lines = [
    line(
      group,
      'executor and supervisor, peak of a run',
      'MB',
      reads.map((each) => each.peakMb),
      {
        max: MEMORY_TARGET_MB,
        of: 'max',
        text: `each ≤ ${MEMORY_TARGET_MB} MB`,
      },
    ),
    line(
      group,
      'the same, what they share counted once',
      'MB',
      reads.map((each) => each.sharedOnceMb),
    ),
    line(group, 'executor, peak of all runs', 'MB', [last.executorPeakMb]),
    line(group, 'supervisor, peak of all runs', 'MB', [last.supervisorPeakMb]),
  ];
  if (reads.length > 1) {
    lines.push(
      line(group, `growth of the peak from run 1 to ${reads.length}`, 'MB', [last.peakMb - first.peakMb], {
        max: GROWTH_TARGET_MB,
        text: `≤ ${GROWTH_TARGET_MB} MB`,
      }),
    );
  }
  return lines;
}

/** What a run spends on anything but its pages. */
function restLines(group, reads) {
  const step = (name) => reads.map(({ steps }) => steps[name] / 1_000);
  return [
    line(group, 'download', 's', step('downloadDocument')),
    line(
      group,
      'summary and delivery',
      's',
      reads.map(({ steps }) => (steps.summarizeDocument + steps.deliverDocument) / 1_000),
    ),
    line(
      group,
      'between and around the steps',
      's',
      reads.map(({ totalMs, steps }) => (totalMs - sumOfSteps(steps)) / 1_000),
    ),
  ];
}

function sumOfSteps(steps) {
  return ['downloadDocument', 'extractPages', 'summarizeDocument', 'deliverDocument'].reduce(
    (sum, name) => sum + steps[name],
    0,
  );
}

// Download -----------------------------------------------------------------------------------------------------------

/**
 * curl and the job by turns, from one server to one disk. The file is in the memory of the system by then, so that what
 * is measured is the way and not the disk that it lies on.
 */
async function download(bench) {
  const group = 'download';
  if (!isInstalled('curl', '--version')) return [notMeasured(group, 'ratio to curl', 'curl is not installed')];
  const document = await bench.documents.large();
  const { size } = statSync(document.path);
  const fileServer = await serve(bench, document);
  const fleet = newFleet();
  const worker = await startWorker(bench, fleet, 'auto');
  const target = join(bench.folder, 'curl.pdf');
  const hashed = 'curl -s -S -f "$1" | tee "$2" | sha256sum';
  const byCurl = [];
  const byCurlWithHash = [];
  const byJob = [];
  // The first turn fills the caches.
  for (let turn = -1; turn < bench.runs; turn += 1) {
    if (turn >= 0) say(`Download of ${document.name}, run ${turn + 1} of ${bench.runs}`);
    const curlMs = await timed(bench, 'curl', ['-s', '-S', '-f', '-o', target, fileServer.url()]);
    const withHashMs = await timed(bench, 'sh', ['-c', hashed, 'sh', fileServer.url(), target]);
    const jobMs = await downloadByJob(bench, fleet, fileServer.url());
    if (turn < 0) continue;
    byCurl.push(size / 1_000 / curlMs);
    byCurlWithHash.push(size / 1_000 / withHashMs);
    byJob.push(size / 1_000 / jobMs);
  }
  await worker.stop();
  await fileServer.stop();
  return [
    line(group, `${Math.round(size / 1_000_000)} MB by the job, with its hash, on the disk`, 'MB/s', byJob),
    line(group, 'the same by curl -o', 'MB/s', byCurl),
    line(
      group,
      'ratio of the two',
      'x',
      byJob.map((rate, turn) => rate / byCurl[turn]),
      {
        min: DOWNLOAD_RATIO_TARGET,
        text: `≥ ${DOWNLOAD_RATIO_TARGET}`,
      },
    ),
    line(group, 'curl | tee | sha256sum, which also hashes', 'MB/s', byCurlWithHash),
    line(
      group,
      'ratio to that',
      'x',
      byJob.map((rate, turn) => rate / byCurlWithHash[turn]),
    ),
  ];
}

async function timed({ programs }, command, args) {
  const startMs = performance.now();
  const program = programs.start(command, args);
  const code = await program.exited;
  if (code !== 0) throw new ScriptError(`${command} ended with code ${code}:\n${program.lines.join('\n')}`);
  return performance.now() - startMs;
}

/** The run is ended after the step: its pages are another measurement. */
async function downloadByJob({ client }, fleet, url) {
  const handle = await client.workflow.start('processDocument', {
    taskQueue: fleet,
    workflowId: `bench-${process.pid}-${(workflowCount += 1)}`,
    args: [{ source: { kind: 'url', url } }],
    workflowExecutionTimeout: READ_LIMIT_MS,
  });
  const deadlineMs = performance.now() + READ_LIMIT_MS;
  while (performance.now() < deadlineMs) {
    const { downloadDocument: ms } = stepsOf(await eventsOf(handle));
    if (ms === undefined) {
      await sleep(DOWNLOAD_POLL_MS);
      continue;
    }
    await handle.terminate('the bench has seen the download');
    return ms;
  }
  throw new ScriptError('The download did not end.');
}
