/**
 * Runs the checks of capabilities, one after the other for each capability, and tells when one is withdrawn or restored.
 *
 * Owns the processes of the checks. What follows from an outcome is decided in `capability-state.ts`.
 */
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatDurationMs } from '../contract/duration.js';
import type { WithdrawnCapability } from '../contract/fleet.js';
import { spawnGuarded } from '../temporal/guarded-process.js';
import { CapabilityState, type CheckOutcome } from './capability-state.js';
import type { EventLog } from './ports.js';

/** Of what a check writes to stderr only the end is kept; the rest is read and dropped, so that it never waits. */
const STDERR_KEPT_CHARS = 4_096;
/** Of the last line of it, which goes into presence and log. */
const REASON_CHARS = 200;
const SIGNAL_EXIT_BASE = 128;

export interface CheckOptions {
  readonly command: string;
  readonly capability: string;
  readonly timeoutMs: number;
  readonly env: NodeJS.ProcessEnv;
  /** Ends the check early; its outcome then says nothing. */
  readonly signal?: AbortSignal;
}

/** Runs one check. Resolves once it has ended, with all that it has started in its process group. */
export async function runCheck({ command, capability, timeoutMs, env, signal }: CheckOptions): Promise<CheckOutcome> {
  const check = spawnGuarded('/bin/sh', ['-c', command], { env: { ...env, ATLAS_CAPABILITY: capability } });
  let stderr = '';
  check.stdout.resume();
  check.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-STDERR_KEPT_CHARS);
  });
  let isLate = false;
  let said: string | undefined;
  const timer = setTimeout(() => {
    isLate = true;
    // What its shell says of being killed would hide it.
    said = lastLine(stderr);
    void check.stop(0);
  }, timeoutMs);
  const onAbort = (): void => void check.stop(0);
  signal?.addEventListener('abort', onAbort, { once: true });
  if (signal?.aborted === true) onAbort();
  const { code } = await check.exited;
  clearTimeout(timer);
  signal?.removeEventListener('abort', onAbort);
  // What it has left in the background, too.
  await check.stop(0);
  if (code === 0 && !isLate) return { passed: true };
  said ??= lastLine(stderr);
  const how = isLate ? `did not end within ${formatDurationMs(timeoutMs)}` : endOf(code);
  return { passed: false, reason: `its check ${how}${said === '' ? '' : `: ${said}`}` };
}

function endOf(code: number | null): string {
  if (code === null) return 'could not be run';
  const signal = Object.entries(constants.signals).find(([, number]) => number === code - SIGNAL_EXIT_BASE)?.[0];
  return signal === undefined ? `ended with exit code ${code}` : `was ended by ${signal}`;
}

/** Without what a terminal would take for more than text. */
function lastLine(text: string): string {
  const lines = text
    .replace(/\u001b\[[0-9;]*[A-Za-z]/g, '')
    .split(/[\r\n]+/)
    .map((line) => line.replace(/[\u0000-\u001f\u007f]/g, ' ').trim());
  return lines.findLast((line) => line !== '')?.slice(0, REASON_CHARS) ?? '';
}

export interface CapabilityChecksOptions {
  /** By capability, for `/bin/sh -c`. */
  readonly commands: Readonly<Record<string, string>>;
  /** From the end of a check to the begin of the next. */
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly env: NodeJS.ProcessEnv;
  readonly log: EventLog;
  /** What is withdrawn now; called at once in the constructor where there are checks, and after each that changes it. */
  readonly onChange: (withdrawn: readonly WithdrawnCapability[]) => void;
}

export class CapabilityChecks {
  private readonly state: CapabilityState;
  private readonly stopping = new AbortController();
  private loops: Promise<void>[] = [];

  constructor(private readonly options: CapabilityChecksOptions) {
    this.state = new CapabilityState(Object.keys(options.commands), Date.now());
    const withdrawn = this.state.withdrawn();
    if (withdrawn.length > 0) options.onChange(withdrawn);
  }

  /** Begins to check. Resolves when each capability was checked once, after the timeout at the latest. */
  async start(): Promise<void> {
    const firsts: Promise<void>[] = [];
    for (const [capability, command] of Object.entries(this.options.commands)) {
      const first = this.check(capability, command);
      firsts.push(first);
      this.loops.push(first.then(() => this.keepChecking(capability, command)));
    }
    await Promise.all(firsts);
  }

  private async keepChecking(capability: string, command: string): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      // It rejects when it is aborted, and then the loop ends.
      await sleep(this.options.intervalMs, undefined, { signal }).catch(() => undefined);
      await this.check(capability, command);
    }
  }

  private async check(capability: string, command: string): Promise<void> {
    const { signal } = this.stopping;
    if (signal.aborted) return;
    const { timeoutMs, env, log } = this.options;
    const outcome = await runCheck({ command, capability, timeoutMs, env, signal });
    if (signal.aborted) return;
    const before = JSON.stringify(this.state.withdrawn());
    const change = this.state.checked(capability, outcome, Date.now());
    const withdrawn = this.state.withdrawn();
    if (JSON.stringify(withdrawn) !== before) this.options.onChange(withdrawn);
    if (change === 'restored') {
      log.info({ event: 'capability-restored', capability }, `The capability ${capability} is offered again`);
    } else if (change === 'withdrawn') {
      log.warn(
        { event: 'capability-withdrawn', capability, reason: outcome.passed ? '' : outcome.reason },
        `The capability ${capability} is withdrawn until its check passes`,
      );
    }
  }

  /** Ends what runs, with all that it has started. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.loops);
    this.loops = [];
  }
}
