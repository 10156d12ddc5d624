/**
 * Which process a pid means, and the end of a whole process group.
 *
 * Owns: telling a process from a later one with the same pid, signalling the group of an executor, and waiting until the
 * group has no member. Must not decide when to kill: that is the supervisor's.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { isErrno } from './atomic-file.js';

export interface ProcessIdentity {
  readonly pid: number;
  /** Opaque: equal for the same process only, over restarts of the host too. */
  readonly startedAt: string;
}

const POLL_INTERVAL_MS = 20;

interface ProcessRow {
  readonly pid: number;
  readonly group: number;
  readonly session: number;
  readonly startedAt: string;
}

/** The process that has this pid now; `undefined` when there is none or only a zombie is left of it. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  const row = readProcess(pid);
  return row === undefined ? undefined : { pid, startedAt: row.startedAt };
}

/** Whether this very process still runs. A zombie does not run, and neither does a later process with the same pid. */
export function isAlive(identity: ProcessIdentity): boolean {
  return readProcess(identity.pid)?.startedAt === identity.startedAt;
}

/** Against processes that answer a signal by forking. */
const MAX_KILL_ROUNDS = 50;

/**
 * Sends a signal to every process of the group that this process leads or led, and returns whether there was any.
 * The group outlives its leader when an executor is killed while tesseract runs, hence the leader need not be alive.
 * A pid that now belongs to another process is left alone: the kernel gives a pid out again only when no group has it.
 */
export function killGroup(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  let members = groupMembers(identity);
  if (members.length === 0) return false;
  const signalled = new Set<string>();
  // Again for those that a member of another group of the session has forked meanwhile; what is killed forks no more.
  for (let round = 0; members.length > 0 && round < MAX_KILL_ROUNDS; round += 1) {
    for (const { pid, startedAt } of members) signalled.add(`${pid} ${startedAt}`);
    signalAll(identity, members, signal);
    members = groupMembers(identity).filter(({ pid, startedAt }) => !signalled.has(`${pid} ${startedAt}`));
  }
  return true;
}

function signalAll(identity: ProcessIdentity, members: readonly ProcessRow[], signal: NodeJS.Signals): void {
  // Groups as a whole: one call that no fork in between can escape.
  const groups = new Set(members.map(({ group }) => group));
  for (const group of groups) {
    try {
      process.kill(-group, signal);
    } catch (error) {
      // Whoever ended in between is what was wanted. macOS says EPERM of a group that has only zombies left.
      if (!isErrno(error, 'ESRCH') && groupMembers(identity).length > 0) throw error;
    }
  }
}

/** Resolves to true as soon as no process of the group remains, to false after `timeoutMs`. Zombies do not count. */
export async function waitForGroupEnd(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  let members = groupMembers(identity);
  while (members.length > 0) {
    const remainingMs = deadline - performance.now();
    if (remainingMs <= 0) return false;
    await delay(Math.min(POLL_INTERVAL_MS, remainingMs));
    // All processes are looked at only when the known ones have ended: a scan of /proc costs milliseconds.
    members = members.filter((member) => readProcess(member.pid)?.startedAt === member.startedAt);
    if (members.length === 0) members = groupMembers(identity);
  }
  return true;
}

function groupMembers(identity: ProcessIdentity): ProcessRow[] {
  const { pid } = identity;
  // kill(-1) is every process of the user, kill(0) our own group: no record in a ledger may lead there.
  if (!Number.isSafeInteger(pid) || pid <= 1 || pid === process.pid) return [];
  if (process.platform === 'linux' && !identity.startedAt.startsWith(`${pidSpace()}/`)) return [];
  const rows = listProcesses();
  const leader = rows.find((row) => row.pid === pid);
  if (leader !== undefined && leader.startedAt !== identity.startedAt) return [];
  return rows.filter((row) => row.group === pid || row.session === pid);
}

function readProcess(pid: number): ProcessRow | undefined {
  if (!Number.isSafeInteger(pid) || pid < 1) return undefined;
  if (process.platform === 'linux') return readProc(pid);
  return readPs(['-p', String(pid)])[0];
}

function listProcesses(): ProcessRow[] {
  if (process.platform !== 'linux') return readPs(['-ax']);
  const rows: ProcessRow[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    const row = Number.isInteger(pid) ? readProc(pid) : undefined;
    if (row !== undefined) rows.push(row);
  }
  return rows;
}

function readProc(pid: number): ProcessRow | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined; // Gone, or never there.
  }
  // The second field is the command in parentheses, which may have spaces and parentheses itself.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state, , group, session] = fields;
  const startTicks = fields[19];
  if (state === undefined || startTicks === undefined || isZombie(state)) return undefined;
  return { pid, group: Number(group), session: Number(session), startedAt: `${pidSpace()}/${startTicks}` };
}

let cachedPidSpace: string | undefined;

/**
 * The boot and the pid namespace. Ticks since boot repeat after a reboot and pids after the restart of a container; a
 * record from before either names a process that has surely ended.
 */
function pidSpace(): string {
  cachedPidSpace ??= `${readOr(() => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim())}/${readOr(() =>
    readlinkSync('/proc/self/ns/pid').replace(/\D/g, ''),
  )}`;
  return cachedPidSpace;
}

function readOr(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}

function readPs(selection: readonly string[]): ProcessRow[] {
  let output: string;
  try {
    output = execFileSync('ps', [...selection, '-o', 'pid=,pgid=,sess=,stat=,lstart='], {
      encoding: 'utf8',
      env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  } catch {
    return []; // ps exits with 1 when no process matches.
  }
  const rows: ProcessRow[] = [];
  for (const line of output.split('\n')) {
    const match = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(.+?)\s*$/.exec(line);
    if (match === null || isZombie(match[4]!)) continue;
    rows.push({ pid: Number(match[1]), group: Number(match[2]), session: Number(match[3]), startedAt: match[5]! });
  }
  return rows;
}

function isZombie(state: string): boolean {
  return state.startsWith('Z') || state.startsWith('X');
}
