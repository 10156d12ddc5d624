/** `atlas run`: runs the document job, shows how far it is, and brings its artifacts here. */
import { EXIT } from '../contract/exit-codes.js';
import { capabilitySet } from '../contract/names.js';
import { SESSION_LIMITS } from '../contract/session.js';
import type { CommandSpec } from './spec.js';
import { CONNECTION_OPTIONS } from './support/connection.js';
import { durationBetween, parseList, parseServeAddress, parseSha256, parseSummaryLength } from './support/parse.js';

const MAX_TIMEOUT_MS = 30 * 24 * 3_600_000;

export const run: CommandSpec = {
  path: ['run'],
  summary: 'Run the document job on one worker and bring its artifacts here.',
  usage: ['process-document [options] FILE|URL', '--attach ID [options]'],
  description: [
    'process-document reads a PDF (the text layer of its pages, or OCR where a page has none) and writes a summary. All steps run on one worker; if that worker is lost, they are done again on another.',
    'A plain path is served to the worker over HTTP by this command, with a token made for this run. The default address works for a worker on this host; for one on another host give an address of this host that the worker can reach with --serve-address, and allow it in the configuration of the worker. A file:// URL is read by the worker from its own disk, under the directories that its configuration lists; size and hash are taken here, so the file must be readable at the same path here too, as on a shared file system. An http(s) URL is fetched by the worker.',
    'A document that is protected by a password needs --password-file. The password is given to the worker as a file is, over HTTP with the token of this run, and is in no history, log or command line; the worker keeps it on its disk, for itself alone, as long as the run needs it. --deliver-to puts the artifacts into a new folder NAME-ID in a directory of the worker, which must be there and lie under one that its configuration lists; they are brought here as well if --output is given.',
    'Ctrl-C before the worker has the whole document cancels the run. After that it only detaches: the run goes on, its artifacts stay on the worker for a day, and `atlas run --attach ID` shows the progress and fetches them. A second Ctrl-C ends the command at once.',
  ],
  arguments: [
    { name: 'job', description: 'the job: process-document', required: false },
    {
      name: 'source',
      description: 'the document: a path, or an http(s):// or file:// URL',
      required: false,
      completes: 'file',
    },
  ],
  options: [
    {
      flags: '-o, --format <format>',
      description: 'how to print the result',
      choices: ['text', 'json'],
      default: 'text',
    },
    {
      flags: '--output <dir>',
      description: 'the folder for the artifacts',
      defaultText: './atlas-artifacts/NAME-ID',
      completes: 'file',
    },
    {
      flags: '--deliver-to <dir>',
      description: 'a directory of the worker for the artifacts, instead of the folder here',
    },
    {
      flags: '--password-file <file>',
      description: 'the password of the document: the first line of this file, or - for stdin',
      completes: 'file',
    },
    { flags: '--dev', description: 'run on a local server and worker that are started for this run and end with it' },
    { flags: '--attach <id>', description: 'follow a run that was started before, and fetch its artifacts' },
    { flags: '--id <id>', description: 'the id of the workflow', defaultText: 'document-NAME-ID' },
    {
      flags: '--capabilities <list>',
      description: 'what the worker must have, such as gpu,ocr',
      parse: (text) => capabilitySet(parseList(text)),
    },
    { flags: '--language <code>', description: 'the language for OCR, as tesseract names it', defaultText: 'eng' },
    {
      flags: '--length <length>',
      description: 'the length of the summary: short, medium or long (3, 6 or 12 sentences), or how many sentences',
      defaultText: 'medium',
      parse: parseSummaryLength,
    },
    {
      flags: '--serve-address <host[:port]>',
      description: 'where to serve a local file and take the artifacts',
      defaultText: '127.0.0.1, any free port',
      parse: parseServeAddress,
    },
    {
      flags: '--sha256 <hex>',
      description: 'take the document of an http(s) URL only if it has this hash',
      parse: parseSha256,
    },
    {
      flags: '--timeout <duration>',
      description: 'how long to wait for the end; then do as for Ctrl-C, with exit code 124',
      defaultText: 'none',
      parse: durationBetween(1_000, MAX_TIMEOUT_MS),
    },
    {
      flags: '--lease-ttl <duration>',
      description: 'how long a silent worker keeps the session before the work is done again elsewhere',
      defaultText: '1m',
      parse: durationBetween(SESSION_LIMITS.leaseTtlMs.min, SESSION_LIMITS.leaseTtlMs.max),
    },
    ...CONNECTION_OPTIONS,
  ],
  environment: [
    { name: 'NO_COLOR', description: 'no colour' },
    { name: 'ATLAS_DEBUG', description: 'print the stack of an error' },
  ],
  examples: [
    {
      command: 'atlas run process-document report.pdf',
      explanation: 'serve the file to a worker of the fleet, wait, and print the summary',
    },
    {
      command: 'atlas run process-document --dev report.pdf',
      explanation: 'the same without any server or worker: both are started for this run',
    },
    {
      command: 'atlas run process-document https://example.org/report.pdf --capabilities ocr -o json',
      explanation: 'have a worker with "ocr" fetch it, and print one JSON document',
    },
    {
      command: 'pass show report | atlas run process-document --password-file - report.pdf',
      explanation: 'open a protected document with a password that is in no file',
    },
    { command: 'atlas run --attach document-report-3f9k2a', explanation: 'follow a run again and fetch its artifacts' },
  ],
  exitCodes: [EXIT.notFound, EXIT.unreachable, EXIT.conflict, EXIT.jobFailed, EXIT.waitTimeout, EXIT.interrupted],
  load: async () => (await import('./support/run-document.js')).runDocument,
};
