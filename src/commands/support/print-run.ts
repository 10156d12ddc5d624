/** What `atlas run` prints at the end of a run: the summary and where the artifacts are, or one JSON document. */
import { readFile } from 'node:fs/promises';
import { isAbsolute, join, relative } from 'node:path';
import { OUTLINE_HEADING, type DocumentResult } from '../../contract/document.js';
import { count, formatBytes, formatDuration, plainLines, plainText, wrapLines } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import { styleFor, terminalWidth } from '../../terminal/style.js';
import type { FollowedRun } from './follow-run.js';
import { programOf } from './program-name.js';
import { connectionFlags, isJson } from './run-options.js';

/** A summary is a few sentences; more than this is not printed on a screen. */
const MAX_SUMMARY_BYTES = 64 * 1024;
const MAX_TEXT_WIDTH = 100;

/** `durationMs` is null for a run that had ended before this command looked. */
export async function printResult(run: FollowedRun, result: DocumentResult, durationMs: number | null): Promise<void> {
  const { context, parsed, folder, handle, server } = run;
  const summary = folder === null ? null : await readSummary(folder.path);
  if (isJson(parsed)) {
    const { artifacts, ...document } = result;
    const record = {
      version: JSON_VERSION,
      run: {
        workflowId: handle.workflowId,
        runId: 'firstExecutionRunId' in handle ? handle.firstExecutionRunId : null,
        ...document,
        worker: artifacts.worker,
        delivered: folder !== null,
        folder: folder?.path ?? null,
        artifacts: artifacts.files,
        artifactsKeptUntil: new Date(artifacts.keptUntilMs).toISOString(),
        summary,
        bytesServed: server.bytesServed(),
        durationMs,
      },
    };
    context.stdout.write(`${JSON.stringify(record, null, 2)}\n`);
    return;
  }
  const style = styleFor(context.stdout, context.env);
  const width = Math.min(terminalWidth(context.stdout) ?? MAX_TEXT_WIDTH, MAX_TEXT_WIDTH);
  const nameWidth = Math.max(...result.artifacts.files.map(({ name }) => name.length));
  const lines = [
    '',
    style.bold(
      `Done${durationMs === null ? '' : ` in ${formatDuration(durationMs)}`} on ${plainText(result.artifacts.worker)}${describeRedo(result)}`,
    ),
    '',
    wrapLines(
      plainLines(shownSummary(summary) ?? `${result.name}: ${count(result.pages.total, 'page')}`).trim(),
      width,
    ),
    '',
    ...placesOf(run, result).map((place, index) =>
      index === 0 ? style.bold(`Artifacts in ${place}`) : `Also in ${place}`,
    ),
    ...result.artifacts.files.map(
      ({ name, bytes }) => `  ${name.padEnd(nameWidth)}  ${formatBytes(bytes).padStart(9)}`,
    ),
    '',
    ...nextCommands(run),
  ];
  context.stdout.write(`${lines.join('\n')}\n`);
}

/** The summary without the outline, which fills several screens for a book. */
function shownSummary(summary: string | null): string | null {
  const [top, ...outline] = summary?.split(`\n${OUTLINE_HEADING}\n`) ?? [];
  if (summary === null || top === undefined || outline.length === 0) return summary;
  return `${top.trimEnd()}\n\nThe outline, with the main sentences of each section, is in summary.md.`;
}

/** Where the artifacts are, the nearest first. */
function placesOf({ folder, context }: FollowedRun, { directory, artifacts }: DocumentResult): string[] {
  return [
    ...(folder === null ? [] : [plainText(shownPath(folder.path, context.cwd))]),
    ...(directory === undefined ? [] : [`${plainText(directory)} on ${plainText(artifacts.worker)}`]),
  ];
}

function describeRedo({ sessionAttempts }: DocumentResult): string {
  return sessionAttempts > 1 ? `, begun ${sessionAttempts} times since a worker was lost` : '';
}

/** Commands that work as they stand: with the same connection, or, after `--dev`, with a server that has to be started. */
function nextCommands({ parsed, kind, context }: FollowedRun): string[] {
  if (kind === 'dev') {
    return [
      'The server and the worker of this run have ended with it. To go on, start them in one terminal:',
      '  npx atlas dev',
      'and in another, after the export line that it prints:',
      '  npx atlas run process-document FILE',
      '  npx atlas workers ls',
      '  npx atlas sessions ls',
    ];
  }
  const atlas = programOf(context.env);
  const flags = connectionFlags(parsed);
  return [
    'Next:',
    `  ${atlas} workers ls${flags}    the workers of the fleet and their free slots`,
    `  ${atlas} sessions ls${flags}   what runs where, now`,
  ];
}

async function readSummary(folder: string): Promise<string | null> {
  try {
    const text = await readFile(join(folder, 'summary.md'), 'utf8');
    return text.length <= MAX_SUMMARY_BYTES ? text : `${text.slice(0, MAX_SUMMARY_BYTES)}\n…`;
  } catch {
    // A job without a summary still has its other artifacts.
    return null;
  }
}

function shownPath(path: string, cwd: string): string {
  const fromHere = relative(cwd, path);
  return fromHere === '' || fromHere.startsWith('..') || isAbsolute(fromHere) ? path : `./${fromHere}`;
}
