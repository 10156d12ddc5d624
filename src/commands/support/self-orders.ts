/**
 * Orders for the worker of this host, over the local socket of its daemon: what a unit file calls. They are followed at
 * once, also while Temporal is away; the daemon tells the fleet when it answers again.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeDesired, firstNote } from '../../contract/desired.js';
import { AtlasError } from '../../contract/errors.js';
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import type { OperatorOrder, SessionSnapshot } from '../../contract/fleet.js';
import type { LocalOrder, LocalOrderAnswer, LocalStatus } from '../../contract/local.js';
import { RELEASE_PATIENCE_MS, RETURN_PATIENCE_MS } from '../../fleet/drain-plan.js';
import { localCall } from '../../local/client.js';
import { defaultStateDirectory, socketPathIn } from '../../local/paths.js';
import { count, formatDuration, plainText } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { confirm } from './confirm.js';
import { fleetOf } from './connection.js';
import { reasonOf } from './cordon-workers.js';
import type { DrainAsked } from './drain-options.js';
import { wordsOf } from './fleet-access.js';
import { operatorOf } from './operator.js';

const LOOK_INTERVAL_MS = 500;
const REMINDER_INTERVAL_MS = 30_000;

export async function cordonSelf(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  checkAlone(parsed);
  const daemon = daemonOf(context, parsed);
  const before = await daemon.status();
  const answer = await daemon.order({ kind: 'cordon', order: orderOf(context, parsed) });
  const { name } = before.identity;
  const was = before.desired.scheduling !== 'open';
  return tell(context, parsed, 'cordon', name, answer, {
    changed: !was,
    text: was ? `out of service already: ${plainText(describeDesired(answer.desired))}` : 'cordoned',
  });
}

export async function uncordonSelf(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  checkAlone(parsed);
  const daemon = daemonOf(context, parsed);
  const before = await daemon.status();
  const ofOthers = parsed.options['yes'] === true;
  const order = { ...orderOf(context, parsed), ofOthers };
  const answer = await daemon.order({ kind: 'uncordon', order });
  const was = firstNote(before.desired) !== undefined;
  return tell(context, parsed, 'uncordon', before.identity.name, answer, {
    changed: was,
    text: was ? 'uncordoned; it takes sessions' : 'was not cordoned; it takes sessions',
  });
}

export async function drainSelf(context: CommandContext, parsed: ParsedCommand, asked: DrainAsked): Promise<ExitCode> {
  const daemon = daemonOf(context, parsed);
  const { identity, snapshot } = await daemon.status();
  const { name } = identity;
  if (asked.onDeadline === 'release') {
    const question = asked.force
      ? `Release what ${name} holds by force, now?`
      : `Release by force what ${name} still holds after ${formatDuration(asked.deadlineMs!)}?`;
    await confirm(context, parsed, { question, detailLines: snapshot.sessions.map(sessionText) });
  }
  const startedAtMs = Date.now();
  const { deadlineMs, onDeadline, stop } = asked;
  // A unit file can not ask another operator: its drain takes the place of whatever goes on.
  const order = { ...orderOf(context, parsed), deadlineMs, onDeadline, stop, replace: true };
  const answer = await daemon.order({ kind: 'drain', order });
  if (asked.mode === 'no-wait') {
    return tell(context, parsed, 'drain', name, answer, { changed: true, text: 'draining' });
  }
  return await new SelfDrain(context, asked, daemon, name, startedAtMs).wait();
}

interface LocalDaemon {
  readonly status: () => Promise<LocalStatus>;
  readonly order: (order: LocalOrder) => Promise<LocalOrderAnswer>;
}

function daemonOf({ env }: CommandContext, parsed: ParsedCommand): LocalDaemon {
  const given = parsed.options['stateDir'];
  const directory = typeof given === 'string' ? given : defaultStateDirectory(env, fleetOf(parsed));
  const socket = socketPathIn(directory);
  return {
    status: () => localCall(socket, 'GET', '/status'),
    order: (order) => localCall(socket, 'POST', '/orders', order),
  };
}

function orderOf(context: CommandContext, parsed: ParsedCommand): OperatorOrder {
  return { orderId: randomUUID(), who: operatorOf(context.env), why: reasonOf(parsed) };
}

function checkAlone(parsed: ParsedCommand): void {
  if (wordsOf(parsed).length > 0)
    throw new AtlasError('Usage', '--self is the worker of this host; it takes no names.');
}

function tell(
  { stdout }: CommandContext,
  { options }: ParsedCommand,
  order: 'cordon' | 'uncordon' | 'drain',
  worker: string,
  { desired, told }: LocalOrderAnswer,
  { changed, text }: { readonly changed: boolean; readonly text: string },
): ExitCode {
  if (options['format'] === 'json') {
    const { scheduling, revision } = desired;
    const orders = [{ order, worker, delivery: 'applied', changed, told, scheduling, revision, error: null }];
    stdout.write(`${JSON.stringify({ version: JSON_VERSION, orders }, null, 2)}\n`);
  } else {
    stdout.write(`${worker}: ${text}; ${told ? 'the fleet knows' : 'the fleet is told when Temporal answers'}\n`);
  }
  return EXIT.done;
}

type SelfEnd = 'drained' | 'overdue' | 'undone' | 'stopped';

/** Waits on the host itself until the worker holds nothing. */
class SelfDrain {
  private sessions: readonly SessionSnapshot[] = [];
  private toldSessions: string | undefined;
  private lastLineAtMs: number;

  constructor(
    private readonly context: CommandContext,
    private readonly asked: DrainAsked,
    private readonly daemon: LocalDaemon,
    private readonly name: string,
    private readonly startedAtMs: number,
  ) {
    this.lastLineAtMs = startedAtMs;
  }

  async wait(): Promise<ExitCode> {
    const { signal } = this.context;
    let awaySinceMs: number | undefined;
    for (;;) {
      let status: LocalStatus | undefined;
      try {
        status = await this.daemon.status();
        awaySinceMs = undefined;
      } catch (error) {
        awaySinceMs ??= Date.now();
        // It has ended: as it was told to, or for a restart, after which the drain goes on.
        if (this.asked.stop && this.sessions.length === 0) return this.end('drained');
        if (Date.now() - awaySinceMs >= RETURN_PATIENCE_MS) {
          if (this.sessions.length === 0) return this.end('stopped');
          throw error;
        }
      }
      if (status !== undefined) {
        const end = this.seen(status);
        if (end !== undefined) return this.end(end);
      }
      if (this.isOverdue()) return this.end('overdue');
      try {
        await sleep(LOOK_INTERVAL_MS, undefined, { signal });
      } catch (error) {
        if (!signal.aborted) throw error;
        throw new AtlasError('Interrupted', `Stopped watching; the drain of ${this.name} goes on.`, {
          next: 'Look again with `atlas drain --self`; undo with `atlas uncordon --self`.',
        });
      }
    }
  }

  private seen({ desired, snapshot }: LocalStatus): SelfEnd | undefined {
    this.sessions = snapshot.sessions;
    if (desired.scheduling !== 'draining' && desired.scheduling !== 'drained') return 'undone';
    // While Temporal is away nobody says "drained", but with the gate closed nothing can come any more.
    if (snapshot.sessions.length === 0) return 'drained';
    this.progress();
    return undefined;
  }

  private isOverdue(): boolean {
    const { deadlineMs, onDeadline } = this.asked;
    if (deadlineMs === null) return false;
    return Date.now() >= this.startedAtMs + deadlineMs + (onDeadline === 'release' ? RELEASE_PATIENCE_MS : 0);
  }

  private progress(): void {
    const nowMs = Date.now();
    const gist = this.sessions.map(({ session, attempts }) => `${session} ${attempts[0]?.activityId ?? ''}`).join();
    if (gist === this.toldSessions && nowMs - this.lastLineAtMs < REMINDER_INTERVAL_MS) return;
    this.toldSessions = gist;
    this.lastLineAtMs = nowMs;
    const elapsed = `[${formatDuration(nowMs - this.startedAtMs).padStart(6)}]`;
    const { stderr } = this.context;
    stderr.write(`${elapsed} ${this.name}: draining, ${remain(this.sessions.length)}\n`);
    for (const session of this.sessions) stderr.write(`${elapsed}   ${sessionText(session)}\n`);
  }

  private end(end: SelfEnd): ExitCode {
    const { stdout, stderr } = this.context;
    const took = formatDuration(Date.now() - this.startedAtMs);
    const left = this.sessions.length;
    if (this.asked.json) {
      const workers = [{ worker: this.name, outcome: end, remaining: this.sessions }];
      stdout.write(`${JSON.stringify({ version: JSON_VERSION, drain: { ended: 'finished', workers } }, null, 2)}\n`);
    } else if (end === 'drained') {
      stdout.write(`${this.name}: drained in ${took}\n`);
      stderr.write('It stays cordoned, also over restarts, until `atlas uncordon --self`.\n');
    } else if (end === 'stopped') {
      stdout.write(`${this.name}: its daemon has ended, holding nothing\n`);
    } else if (end === 'undone') {
      stdout.write(`${this.name}: no longer drains; an operator has uncordoned it meanwhile\n`);
    } else {
      stdout.write(`${this.name}: deadline reached after ${took}, ${remain(left)}; the drain goes on\n`);
      for (const session of this.sessions) stdout.write(`  ${sessionText(session)}\n`);
    }
    return { drained: EXIT.done, stopped: EXIT.done, undone: EXIT.conflict, overdue: EXIT.deadline }[end];
  }
}

function remain(amount: number): string {
  return count(amount, 'session remains', 'sessions remain');
}

function sessionText({ session, attempts, grantedAtMs, workflowId }: SessionSnapshot): string {
  const nowMs = Date.now();
  const [step] = [...attempts].sort((a, b) => a.startedAtMs - b.startedAtMs);
  const doing =
    step === undefined ? 'no step running' : `${plainText(step.activity)} ${formatDuration(nowMs - step.startedAtMs)}`;
  return `${session}  ${doing} · held ${formatDuration(nowMs - grantedAtMs)} · ${plainText(workflowId)}`;
}
