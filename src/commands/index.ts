/** The list of atlas's commands, in the order in which help and man page show them. One line per command. */
import { complete } from './complete.js';
import { completion } from './completion.js';
import { cordon } from './cordon.js';
import { dev } from './dev.js';
import { doctor } from './doctor.js';
import { drain } from './drain.js';
import { poolsLs } from './pools-ls.js';
import { run } from './run.js';
import { sessionsLs } from './sessions-ls.js';
import { sessionsRelease } from './sessions-release.js';
import { sessionsShow } from './sessions-show.js';
import type { CommandSpec } from './spec.js';
import { top } from './top.js';
import { uncordon } from './uncordon.js';
import { wait } from './wait.js';
import { workersForget } from './workers-forget.js';
import { workersLs } from './workers-ls.js';
import { workersShow } from './workers-show.js';

export const COMMANDS: readonly CommandSpec[] = [
  run,
  workersLs,
  workersShow,
  workersForget,
  sessionsLs,
  sessionsShow,
  sessionsRelease,
  poolsLs,
  top,
  cordon,
  uncordon,
  drain,
  wait,
  doctor,
  dev,
  completion,
];

/** What only other programs call; in no help, man page or suggestion. */
export const HIDDEN_COMMANDS: readonly CommandSpec[] = [complete];

/** Summaries of the words that only group commands. */
export const GROUPS: Readonly<Record<string, string>> = {
  workers: 'the workers of a fleet',
  sessions: 'the sessions that workers hold',
  pools: 'the capability sets that workers serve',
};
