/** The exit codes of both programs. Stable: scripts rely on them. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  deadline: 3,
  notFound: 4,
  unreachable: 5,
  conflict: 6,
  unsupported: 7,
  jobFailed: 8,
  waitTimeout: 124,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];
