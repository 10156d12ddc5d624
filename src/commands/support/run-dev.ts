/** What `atlas dev` does, apart from its specification so that `atlas --help` does not load it. */
import { resolve } from 'node:path';
import { DEFAULT_FLEET } from '../../contract/names.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { styleFor } from '../../terminal/style.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { describeDevStep, startDevEnvironment, type DevEnvironment, type WorkerLogLine } from './dev-environment.js';
import { programOf } from './program-name.js';

export async function runDev(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const { RESOLVE_STEP_LABELS } = await import('../../temporal/resolve-server.js');
  const style = styleFor(context.stderr, context.env);
  const say = (line: string): void => void context.stderr.write(`${line}\n`);
  const option = <T>(name: string): T | undefined => parsed.options[name] as T | undefined;
  const path = (name: string): string | undefined => {
    const given = option<string>(name);
    return given === undefined ? undefined : resolve(context.cwd, given);
  };

  const environment = await startDevEnvironment({
    env: context.env,
    signal: context.signal,
    port: option('port'),
    ip: option('ip'),
    dbFilename: path('dbFilename'),
    namespace: option('namespace'),
    worker:
      option('worker') === false
        ? false
        : {
            fleet: option('fleet'),
            name: option('name'),
            capabilities: option('capabilities'),
            maxSessions: option('maxSessions'),
            stateDirectory: path('stateDir'),
          },
    onStep: (step) => {
      const line = describeDevStep(step, RESOLVE_STEP_LABELS);
      if (line !== undefined) say(style.dim(line));
    },
    onWorkerLog: (line) => {
      const text = describeLogLine(line);
      if (text !== undefined) say(style.dim(text));
    },
  });
  try {
    announce(environment, context, say);
    await Promise.race([environment.failed, aborted(context.signal)]);
    say('Stopping.');
    return EXIT.done;
  } finally {
    await environment.stop();
  }
}

/** Ctrl-C is how this command ends, not an error of it. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) done();
    else signal.addEventListener('abort', () => done(), { once: true });
  });
}

function announce(environment: DevEnvironment, context: CommandContext, say: (line: string) => void): void {
  const { address, namespace, worker, serverVersion } = environment;
  const { bold } = styleFor(context.stderr, context.env);
  say('');
  say(bold(`Temporal server ${serverVersion} at ${address}, namespace ${namespace}`));
  if (worker !== undefined) say(bold(`Worker ${worker.name} of the fleet ${worker.fleet} is ready`));
  say('\nIn another terminal:\n');
  context.stdout.write(`export TEMPORAL_ADDRESS=${address}\n`);
  if (namespace !== 'default') context.stdout.write(`export TEMPORAL_NAMESPACE=${namespace}\n`);
  if (worker !== undefined && worker.fleet !== DEFAULT_FLEET) {
    context.stdout.write(`export ATLAS_FLEET=${worker.fleet}\n`);
  }
  const program = programOf(context.env);
  say(`${program} workers ls`);
  if (worker !== undefined) say(`${program} run process-document FILE`);
  say('\nCtrl-C stops the server' + (worker === undefined ? '.' : ' and the worker.'));
}

/** The fields that tell whom a line is about. */
const SHOWN_FIELDS = ['session', 'owner', 'workflowId', 'activity', 'reason', 'error'] as const;

/** A line of the worker's log as a person reads it; undefined for what was announced already. */
function describeLogLine(line: WorkerLogLine): string | undefined {
  if (line.event === 'worker-ready' || line['level'] === 'debug' || line['level'] === 'trace') return undefined;
  const fields = SHOWN_FIELDS.flatMap((field) => {
    const value = line[field];
    if (typeof value === 'string' || typeof value === 'number') return [`${field}=${value}`];
    if (typeof value === 'object' && value !== null && 'message' in value) return [`${field}=${String(value.message)}`];
    return [];
  });
  return `worker: ${line.msg ?? line.event ?? ''}${fields.length === 0 ? '' : ` (${fields.join(', ')})`}`;
}
