/**
 * The command lines of atlasd, from which help and man pages are made.
 *
 * Owns: summaries, examples, exit codes. The options are those of `config.ts`; the daemon itself is loaded only when it runs.
 */
import type { CommandSpec } from '../commands/spec.js';
import { durationBetween } from '../commands/support/parse.js';
import { EXIT } from '../contract/exit-codes.js';
import { configOptionSpecs } from './config.js';

export const atlasdSpec: CommandSpec = {
  path: [],
  summary: 'Run a worker that holds sessions.',
  description: [
    'atlasd serves the queues of a fleet on this host: it grants sessions as far as it has slots, pins their activities to itself, and runs the activities and workflows of the given modules in a process of their own. Without modules it serves the document job.',
    'Every option can be given as a flag, as an environment variable and in the configuration file, and counts in this order. In the file --max-sessions is max_sessions, and --document-allow-files is allow_files in the table [document]. A key or an ATLAS_ variable that does not exist is refused. Durations have a unit: 500ms, 30s, 10m, 1h30m.',
    'The connection to Temporal comes from the profiles and TEMPORAL_ variables that the temporal command uses too.',
    'With --check it looks, and neither serves nor changes anything: the configuration, the state directory and its disk, Temporal with namespace and version, the modules, and the programs for OCR where it serves the document job. Where an atlasd runs with the directory already, that one is asked too, over its socket and by a workflow on its two queues. Each line begins with ok, warn or fail; below a finding is what to do. It exits with 0 if nothing fails, with 5 if only Temporal does, and else with 1.',
    'SIGTERM stops granting, waits up to --grace for the sessions to end, and exits; sessions that remain are resumed by the next start. A second SIGTERM exits at once.',
  ],
  usage: ['[options]', '--check [options]'],
  arguments: [],
  options: [
    {
      flags: '--check',
      description: 'look whether a start with these options would go well, say what is wrong, and exit',
    },
    {
      flags: '-o, --format <format>',
      description: 'with --check: how to print what was found',
      choices: ['text', 'json'],
      defaultText: 'text',
    },
    ...configOptionSpecs(),
  ],
  examples: [
    { command: 'atlasd', explanation: 'a worker named after the host, with four slots, for the document job' },
    { command: 'atlasd --capabilities gpu', explanation: 'also takes sessions that ask for gpu' },
    {
      command: 'atlasd --capabilities gpu,ocr --max-sessions 4 --reserve gpu=2',
      explanation: 'keeps two of its four slots for sessions that ask for gpu',
    },
    {
      command: 'atlasd --name worker-7 --activities ./dist/activities.js --workflows ./dist/workflows.js',
      explanation: 'serves your own modules',
    },
    { command: 'atlasd --check --config /etc/atlas/atlasd.toml', explanation: 'would a start with this file go well?' },
  ],
  exitCodes: [EXIT.unreachable, EXIT.conflict],
  handlesSignals: true,
  load: async () => (await import('./main.js')).run,
};

export const statusSpec: CommandSpec = {
  path: ['status'],
  summary: 'Show what the worker of this host does.',
  description: [
    'Asks the atlasd that runs on this host over the socket in its state directory, and nobody else: it also answers while Temporal is away.',
    'The state directory is the one that an atlasd with the same configuration and variables would use. Where --state-dir names it, nothing else is read.',
    'The state is ready, or why it takes no session: cordoned, draining, drained, stopping, or that its executor is starting, down or degraded. STEP is the pinned activity that runs now.',
  ],
  arguments: [],
  options: [
    {
      flags: '-o, --format <format>',
      description: 'how to print the status',
      choices: ['table', 'json'],
      default: 'table',
    },
    ...configOptionSpecs(['state-dir', 'fleet', 'config']),
  ],
  examples: [
    { command: 'atlasd status', explanation: 'the worker that this user runs here, with its sessions' },
    {
      command: 'sudo atlasd status --state-dir /var/lib/atlas/atlas',
      explanation: 'the worker that another user runs, by its state directory',
    },
    {
      command: `atlasd status -o json | jq '.status.snapshot.sessions | length'`,
      explanation: 'how many sessions it holds, for a script',
    },
  ],
  exitCodes: [EXIT.notFound, EXIT.waitTimeout],
  load: async () => (await import('./status.js')).run,
};

const MAX_RELOAD_TIMEOUT_MS = 7 * 24 * 3_600_000;

export const reloadSpec: CommandSpec = {
  path: ['reload'],
  summary: 'Have the worker of this host run the code that is on disk now.',
  description: [
    'The atlasd that runs on this host starts another executor, which loads the modules as they are now, and has it take the place of the current one once it polls. The old one takes nothing new and ends when its activities have ended. No session is lost and no step is interrupted, unless it runs for longer than the --grace of atlasd after the change: then it is ended, and attempted again by the new executor.',
    'Sessions that ask for their state in memory live in the old executor. They are waited for, up to --timeout, and none is granted meanwhile; sessions with their state on disk begin and go on all the time. When some are left then, nothing is changed and the exit code is 3. With --force they are ended at once, and their workflows redo them.',
    'When the code can not be loaded the error is shown, the exit code is 1, and the old code goes on. Ctrl-C gives up a reload that still loads or waits; one that has changed the executor is finished by atlasd.',
    'Only the code is loaded anew. Settings of atlasd, and atlasd itself, change with a restart. Whether a changed workflow can go on with histories that the old code has begun is up to the workflow, as in every deploy of Temporal workflows.',
  ],
  arguments: [],
  options: [
    {
      flags: '--timeout <duration>',
      description: 'how long to wait for sessions whose state is in memory',
      parse: durationBetween(0, MAX_RELOAD_TIMEOUT_MS),
      default: 600_000,
      defaultText: '10m',
    },
    { flags: '--force', description: 'end sessions whose state is in memory instead of waiting for them' },
    {
      flags: '-o, --format <format>',
      description: 'how to print the result',
      choices: ['text', 'json'],
      default: 'text',
    },
    ...configOptionSpecs(['state-dir', 'fleet', 'config']),
  ],
  examples: [
    { command: 'atlasd reload', explanation: 'after a deploy of new code on this host' },
    {
      command: 'sudo atlasd reload --state-dir /var/lib/atlas/atlas',
      explanation: 'the worker that another user runs',
    },
    { command: 'ExecReload=/usr/bin/atlasd reload --timeout 1m', explanation: 'in a systemd unit' },
  ],
  exitCodes: [EXIT.deadline, EXIT.notFound, EXIT.conflict, EXIT.waitTimeout, EXIT.interrupted],
  load: async () => (await import('./reload-command.js')).run,
};
