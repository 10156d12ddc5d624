/**
 * `atlasd --check`: whether a start with this configuration would go well. Looks only: it creates no directory, takes no
 * identity and registers nowhere. Where an atlasd runs with the directory already, that one is asked too.
 */
import { execFile, fork } from 'node:child_process';
import { statfs } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { EXIT_OF_ERROR } from '../commands/exit-codes.js';
import { describeError } from '../commands/report-error.js';
import type { CommandContext, RunCommand } from '../commands/spec.js';
import { AtlasError, type ErrorCode } from '../contract/errors.js';
import { EXIT, type ExitCode } from '../contract/exit-codes.js';
import type { LocalStatus } from '../contract/local.js';
import { VERSION } from '../contract/version.js';
import type { ModuleFindings } from '../executor/check-modules.js';
import { probeQueues } from '../fleet/probe-client.js';
import { localCall } from '../local/client.js';
import { socketPathIn } from '../local/paths.js';
import { connectClient, loadProfile, toServerError, type TemporalClient } from '../temporal/connect.js';
import { compareVersions, MIN_SERVER_VERSION } from '../temporal/server-versions.js';
import { count, formatBytes, plainText, wrapLines } from '../terminal/format.js';
import { JSON_VERSION } from '../terminal/records.js';
import { styleFor, terminalWidth } from '../terminal/style.js';
import { runCheck } from './capability-checks.js';
import type { Config } from './config.js';
import { configOf, stateDirectoryOf } from './inputs.js';
import { modulesOf } from './modules.js';
import { probeStateDirectory } from './state-directory.js';
import { workerState } from './status.js';

/** Below this a session is likely to fail for want of room; the ledger and the identity take next to nothing. */
const LOW_DISK_BYTES = 1_000_000_000;
/** The server of a busy machine is not away. */
const CALL_TIMEOUT_MS = 10_000;
/** Bundling workflows takes some seconds, on a busy host many. */
const MODULES_TIMEOUT_MS = 60_000;
/** What the probe may take by its own limits, and for its workflow tasks. */
const PROBE_TIMEOUT_MS = 15_000;
const TOOL_TIMEOUT_MS = 10_000;
const STDERR_KEPT = 2_000;
const STDERR_LINES_SHOWN = 5;
const MODULE_CHECK = fileURLToPath(new URL('../executor/check-modules.js', import.meta.url));

export const check: RunCommand = async (context, parsed) => {
  const report = new Report(context, parsed.options['format'] === 'json' ? 'json' : 'text');
  const config = await report.of('configuration', () => {
    const found = configOf(context, parsed);
    return Promise.resolve({ value: found, detail: describeConfig(found) });
  });
  if (config !== undefined) await checkAll(context, config, report);
  return report.end();
};

async function checkAll(context: CommandContext, config: Config, report: Report): Promise<void> {
  const directory = stateDirectoryOf(context, config);
  const running = await checkStateDirectory(report, config, directory);
  const temporal = await checkServer(report, context, config);
  try {
    const isKnown = temporal !== undefined && (await checkNamespace(report, temporal));
    if (isKnown && running !== undefined) await checkQueues(report, temporal, running);
  } finally {
    await temporal?.close();
  }
  await checkCapabilities(report, context, config);
  await checkModules(report, context, config);
  if (config.activitiesPath === undefined) await checkOcr(report, context, config);
}

function describeConfig({ fleet, name, maxSessions, capabilities, sources }: Config): string {
  const given = (['flag', 'env', 'file'] as const).flatMap((source) => {
    const values = Object.values(sources).filter((each) => each === source).length;
    const from = { flag: 'flags', env: 'variables', file: 'the file' }[source];
    return values === 0 ? [] : [`${count(values, 'value')} from ${from}`];
  });
  return [
    `fleet ${fleet}`,
    ...(name === undefined ? [] : [`worker ${name}`]),
    count(maxSessions, 'slot'),
    ...(capabilities.length === 0 ? [] : [`capabilities ${capabilities.join(' ')}`]),
    ...given,
  ].join(', ');
}

// ---- This host ----

async function checkStateDirectory(
  report: Report,
  config: Config,
  directory: string,
): Promise<LocalStatus | undefined> {
  const probe = await report.of('state directory', async () => {
    socketPathIn(directory);
    const found = await probeStateDirectory(directory);
    const pid = found.heldBy === '' ? '' : `, process ${found.heldBy}`;
    const state = !found.exists
      ? 'is not there yet and can be created'
      : found.heldBy === null
        ? 'can be used'
        : `is used by an atlasd that runs${pid}`;
    return { value: found, detail: `${directory} ${state}` };
  });
  if (probe === undefined) return undefined;
  await report.of('disk', async () => {
    const { bavail, blocks, bsize } = await statfs(probe.nearest);
    const detail = `${formatBytes(bavail * bsize)} of ${formatBytes(blocks * bsize)} free below ${probe.nearest}`;
    if (bavail * bsize >= LOW_DISK_BYTES) return { value: undefined, detail };
    const next = 'Free space there, or choose a larger disk with --state-dir: the files of sessions are kept in it.';
    return { value: undefined, level: 'warn', detail, next };
  });
  return probe.heldBy === null ? undefined : await checkRunning(report, config, directory);
}

/** The atlasd that uses the directory: this command takes the place of none. */
async function checkRunning(report: Report, config: Config, directory: string): Promise<LocalStatus | undefined> {
  return await report.of('running atlasd', async () => {
    const status = await localCall(socketPathIn(directory), 'GET', '/status');
    const { identity, snapshot } = status;
    const { text, colour } = workerState(status);
    const differences = [
      ...(identity.version === VERSION ? [] : [`it is version ${identity.version} and this is ${VERSION}`]),
      ...(identity.fleet === config.fleet ? [] : [`its fleet is ${identity.fleet}`]),
      ...(config.name === undefined || identity.name === config.name ? [] : [`its name is ${identity.name}`]),
    ];
    const facts = [`${identity.name}: ${text}`, `${snapshot.slots.used} of ${snapshot.slots.cap} slots taken`];
    const detail = [...facts, ...differences].join('; ');
    if (colour === 'green' && differences.length === 0) return { value: status, detail };
    const next =
      differences.length === 0
        ? `Run \`atlasd status --state-dir ${directory}\` for who ordered it, or read its log.`
        : 'Restart it to run what was checked here.';
    return { value: status, level: 'warn', detail, next };
  });
}

// ---- Temporal ----

async function checkServer(
  report: Report,
  context: CommandContext,
  config: Config,
): Promise<TemporalClient | undefined> {
  return await report.of('Temporal', async () => {
    const profile = await loadProfile(context.env, config.temporal);
    const temporal = await connectClient(profile, { checkNamespace: false });
    try {
      const { serverVersion } = await answered(temporal, () => temporal.connection.workflowService.getSystemInfo({}));
      const detail = `${profile.address} (from ${profile.addressOrigin}), server ${serverVersion}`;
      if (serverVersion !== '' && compareVersions(serverVersion, MIN_SERVER_VERSION) < 0) {
        const next = `Upgrade the server to ${MIN_SERVER_VERSION} or later: what sessions are made of is not in this one.`;
        return { value: temporal, level: 'fail', detail, next };
      }
      return { value: temporal, detail };
    } catch (error) {
      await temporal.close();
      throw error;
    }
  });
}

/** Whether it is there. */
async function checkNamespace(report: Report, temporal: TemporalClient): Promise<boolean> {
  const { namespace } = temporal.profile;
  const found = await report.of('namespace', async () => {
    await answered(temporal, () => temporal.connection.workflowService.describeNamespace({ namespace }));
    return { value: true, detail: `${namespace} exists` };
  });
  return found === true;
}

/** Whether what the fleet asks of the running worker reaches its supervisor and its executor: both have a queue. */
async function checkQueues(report: Report, temporal: TemporalClient, { identity }: LocalStatus): Promise<void> {
  const { name: worker, queue, fleet } = identity;
  const probed = await report.of('probe', async () => {
    const deadlineMs = Date.now() + PROBE_TIMEOUT_MS;
    const [answer] = await probeQueues(temporal.client, [{ worker, queue }], { fleet, deadlineMs });
    if (answer!.probed.kind === 'answered')
      return {
        value: answer!.probed.answer,
        detail: `a workflow of the fleet ${fleet} asked both queues of ${worker}`,
      };
    const detail = `the queues of ${worker} could not be asked: ${answer!.probed.reason}`;
    const next = 'Compare address and namespace with those that the running atlasd has, and read its log.';
    return { value: undefined, level: 'fail', detail, next };
  });
  if (probed === undefined) return;
  for (const [name, { answered: isAnswered, tookMs, reason }] of [
    ['control queue', probed.control],
    ['unique queue', probed.pinned],
  ] as const) {
    await report.of(name, () => {
      if (isAnswered) return Promise.resolve({ value: undefined, detail: `answered within ${tookMs} ms` });
      const next = 'Read the log of the running atlasd; if it says nothing, restart it: its sessions are resumed.';
      return Promise.resolve({ value: undefined, level: 'fail', detail: reason ?? 'no answer', next });
    });
  }
}

async function answered<T>({ connection, profile }: TemporalClient, call: () => Promise<T>): Promise<T> {
  try {
    return await connection.withDeadline(Date.now() + CALL_TIMEOUT_MS, call);
  } catch (error) {
    throw toServerError(error, profile) ?? error;
  }
}

// ---- What it would serve ----

/** A start goes well all the same; only the capability is not offered. */
async function checkCapabilities(report: Report, context: CommandContext, config: Config): Promise<void> {
  for (const [capability, command] of Object.entries(config.capabilityChecks)) {
    await report.of(`capability ${capability}`, async () => {
      const outcome = await runCheck({
        ...{ capability, command, env: context.env },
        timeoutMs: config.capabilityCheckTimeoutMs,
      });
      if (outcome.passed) return { value: undefined, detail: 'its check passes' };
      const next = `Run it by hand: \`ATLAS_CAPABILITY=${capability} sh -c '${command.replaceAll("'", "'\\''")}'\`; until it passes the worker takes nothing that asks for ${capability}.`;
      return { value: undefined, level: 'warn', detail: outcome.reason, next };
    });
  }
}

async function checkModules(report: Report, context: CommandContext, config: Config): Promise<void> {
  const env = { ...context.env, ...config.documentEnv };
  let findings: ModuleFindings;
  try {
    findings = await loadedInChild(JSON.stringify(modulesOf(config)), env);
  } catch (error) {
    await report.of('modules', () => Promise.reject(error as Error));
    return;
  }
  for (const name of ['activities', 'workflows'] as const) {
    const { found, error } = findings[name];
    await report.of(name, () => {
      if (error !== undefined) throw new AtlasError('ModuleLoadFailed', error.message, { next: error.next });
      return Promise.resolve({ value: undefined, detail: found ?? '' });
    });
  }
}

function loadedInChild(modules: string, env: NodeJS.ProcessEnv): Promise<ModuleFindings> {
  const child = fork(MODULE_CHECK, [modules], { env, execArgv: [], stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-STDERR_KEPT);
  });
  return new Promise<ModuleFindings>((resolve, reject) => {
    const timer = setTimeout(() => {
      const next = 'Look for what the modules do when they are loaded, such as connecting somewhere.';
      reject(
        new AtlasError('ModuleLoadFailed', `The modules did not load within ${MODULES_TIMEOUT_MS / 1_000} s.`, {
          next,
        }),
      );
    }, MODULES_TIMEOUT_MS);
    child.once('message', (findings) => {
      clearTimeout(timer);
      resolve(findings as ModuleFindings);
    });
    child.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
      const said = stderr
        .trim()
        .split('\n')
        .filter((line) => line !== '')
        .slice(-STDERR_LINES_SHOWN);
      const message = [
        `The process that loads the modules ${how} before they were.`,
        ...said.map((line) => `  ${line}`),
      ];
      reject(new AtlasError('ModuleLoadFailed', message.join('\n')));
    });
  }).finally(() => {
    // What a module has started in it must not keep it alive.
    child.kill('SIGKILL');
  });
}

/** Scanned pages need it. A warning at most: other documents do without, and so do other jobs. */
async function checkOcr(report: Report, context: CommandContext, config: Config): Promise<void> {
  const engine = config.documentEnv['ATLAS_DOCUMENT_OCR_ENGINE'] ?? 'auto';
  if (engine === 'npm') return;
  await report.of('OCR', async () => {
    let listed: { stdout: string; stderr: string };
    try {
      listed = await promisify(execFile)('tesseract', ['--list-langs'], {
        env: context.env,
        timeout: TOOL_TIMEOUT_MS,
        killSignal: 'SIGKILL',
      });
    } catch (error) {
      const reason = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'is not on the PATH' : 'does not work';
      const detail =
        engine === 'native'
          ? `tesseract ${reason}, and document.ocr_engine is native: scanned pages can not be read`
          : `tesseract ${reason}: scanned pages are read by the npm packages, more slowly and in fewer languages`;
      return { value: undefined, level: 'warn', detail, next: 'Install tesseract (Debian: `tesseract-ocr`).' };
    }
    // Which of the two it writes to differs between versions.
    const languages = `${listed.stdout}\n${listed.stderr}`.split('\n').filter((line) => /^[A-Za-z0-9_/]+$/.test(line));
    return { value: undefined, detail: `tesseract with ${languages.join(' ') || 'no language'}` };
  });
}

// ---- The report ----

type Level = 'ok' | 'warn' | 'fail';

interface Finding {
  readonly check: string;
  readonly level: Level;
  readonly detail: string;
  readonly next: string | null;
  readonly code: ErrorCode | null;
}

interface Found<T> {
  readonly value: T;
  /** Default: ok. */
  readonly level?: Level;
  readonly detail: string;
  readonly next?: string;
}

const NAME_WIDTH = 'state directory'.length;
const MIN_TEXT_WIDTH = 30;

class Report {
  private readonly findings: Finding[] = [];

  constructor(
    private readonly context: CommandContext,
    private readonly format: 'text' | 'json',
  ) {}

  /** Runs one check and reports it; undefined when it could not give its value. A defect of ours is thrown on. */
  async of<T>(name: string, find: () => Promise<Found<T>>): Promise<T | undefined> {
    try {
      const { value, level = 'ok', detail, next = null } = await find();
      this.add({ check: name, level, detail, next, code: null });
      return value;
    } catch (error) {
      const { message, next, code = null, unexpected } = describeError(error);
      if (unexpected) throw error;
      this.add({ check: name, level: 'fail', detail: message, next, code });
      return undefined;
    }
  }

  end(): ExitCode {
    const failed = this.findings.filter(({ level }) => level === 'fail');
    const warned = this.findings.filter(({ level }) => level === 'warn');
    if (this.format === 'json') {
      const level: Level = failed.length > 0 ? 'fail' : warned.length > 0 ? 'warn' : 'ok';
      const document = { version: JSON_VERSION, check: { level, findings: this.findings } };
      this.context.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
    } else {
      const warnings = warned.length === 0 ? '' : `, ${count(warned.length, 'warning')}`;
      this.context.stdout.write(
        failed.length === 0 ? `Nothing failed${warnings}.\n` : `${count(failed.length, 'check')} failed${warnings}.\n`,
      );
    }
    if (failed.length === 0) return EXIT.done;
    // Only Temporal: trying again later may be all that is needed.
    const onlyTemporal = failed.every(({ code }) => code !== null && EXIT_OF_ERROR[code] === EXIT.unreachable);
    return onlyTemporal ? EXIT.unreachable : EXIT.failed;
  }

  private add(finding: Finding): void {
    this.findings.push(finding);
    if (this.format === 'json') return;
    const { stdout, env } = this.context;
    const style = styleFor(stdout, env);
    const { check: name, level, detail, next } = finding;
    const paint = { ok: style.green, warn: style.yellow, fail: style.red }[level];
    const indent = ' '.repeat('fail'.length + 2 + NAME_WIDTH + 2);
    const lines = [...this.fitted(detail, indent), ...(next === null ? [] : this.fitted(`next: ${next}`, indent))];
    stdout.write(`${paint(level.padEnd(4))}  ${name.padEnd(NAME_WIDTH)}  ${lines.join(`\n${indent}`)}\n`);
  }

  private fitted(text: string, indent: string): string[] {
    const width = terminalWidth(this.context.stdout);
    const lines = text.split('\n').map(plainText);
    if (width === undefined) return lines;
    return lines.flatMap((line) => wrapLines(line, Math.max(MIN_TEXT_WIDTH, width - indent.length)).split('\n'));
  }
}
