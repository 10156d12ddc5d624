/** The list of atlas's commands, in the order in which help and man page show them. One line per command. */
import { complete } from './complete.js';
import { completion } from './completion.js';
import { dev } from './dev.js';
import { doctor } from './doctor.js';
import { run } from './run.js';
import { sessionsLs } from './sessions-ls.js';
import type { CommandSpec } from './spec.js';
import { workersLs } from './workers-ls.js';

export const COMMANDS: readonly CommandSpec[] = [run, workersLs, sessionsLs, doctor, dev, completion];

/** What only other programs call; in no help, man page or suggestion. */
export const HIDDEN_COMMANDS: readonly CommandSpec[] = [complete];

/** Summaries of the words that only group commands. */
export const GROUPS: Readonly<Record<string, string>> = {
  workers: 'the workers of a fleet',
  sessions: 'the sessions that workers hold',
};
