/** The list of atlas's commands, in the order in which help and man page show them. One line per command. */
import type { CommandSpec } from './spec.js';

export const COMMANDS: readonly CommandSpec[] = [];

/** Summaries of the words that only group commands. */
export const GROUPS: Readonly<Record<string, string>> = {
  workers: 'the workers of a fleet',
  sessions: 'the sessions that workers hold',
};
