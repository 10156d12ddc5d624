/** What the doctor says: findings, each of one check. Imports nothing. */

export type Level = 'ok' | 'warn' | 'fail';

/** Every check, in the order in which they are printed, and the question that it answers. */
export const CHECKS = {
  server: 'Does the Temporal server have what Atlas needs?',
  workers: 'Are the workers alive, up, and as operators want them?',
  queues: 'Do supervisor and executor of every live worker answer?',
  acquire: 'Is a session granted wherever a slot is free?',
  waiting: 'Does every session that is waited for have a worker that may grant it?',
  stranded: 'Does work wait for a worker that is gone?',
  sessions: 'Is every session used by its owner?',
  clocks: 'Do the clocks of the workers agree with the server?',
  versions: 'Do workers and this command have one version?',
  disks: 'Have the workers room on their disks?',
  names: 'Are workers told apart?',
  reserves: 'Can every slot be used?',
} as const;

export type CheckName = keyof typeof CHECKS;
export const CHECK_NAMES = Object.keys(CHECKS) as CheckName[];

export interface Finding {
  readonly check: CheckName;
  readonly level: Level;
  /** What it is about: a worker, a capability set, a workflow, the fleet or the server. */
  readonly subject: string;
  readonly message: string;
  /** What to run or do about it; null for `ok`. */
  readonly next: string | null;
}

/** A check that found nothing wrong. */
export function ok(check: CheckName, subject: string, message: string): Finding {
  return { check, level: 'ok', subject, message, next: null };
}

export function bad(
  check: CheckName,
  level: Exclude<Level, 'ok'>,
  subject: string,
  message: string,
  next: string,
): Finding {
  return { check, level, subject, message, next };
}

/** The findings, or the one that says that there are none. */
export function orElse(findings: readonly Finding[], good: Finding): readonly Finding[] {
  return findings.length > 0 ? findings : [good];
}

/** `a`, `a and b`, `a, b, c and 4 more`. */
export function listed(words: readonly string[], atMost = 3): string {
  if (words.length > atMost) return `${words.slice(0, atMost).join(', ')} and ${words.length - atMost} more`;
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)!}`;
}

export function counted(amount: number, singular: string): string {
  return `${amount} ${singular}${amount === 1 ? '' : 's'}`;
}

/** Writes a command of atlas so that it means the same fleet and server as this one. */
export type AtlasCommand = (command: string) => string;
