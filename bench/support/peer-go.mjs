/**
 * The sessions of Temporal's Go SDK as a peer: a program in a folder outside this project, which is built here and run as
 * a worker (`peer worker -tq QUEUE -role ROLE -cap COUNT`, says READY). Its workflows `Basic` and `Seq` do the same work
 * as ours.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { ROOT, say } from '../../scripts/lib.mjs';

const DEFAULT_FOLDER = join(ROOT, '../shared/peers/go');
const NS_PER_MS = 1_000_000;
const HOUR_MS = 3_600_000;

/** Resolves to the program, or to undefined after saying why there is none. */
export async function buildGoPeer(folder = DEFAULT_FOLDER, target) {
  const source = resolve(folder);
  if (!existsSync(join(source, 'go.mod'))) {
    say(`--peer go: there is no Go module in ${source}, so this run is without it. Name its folder with --peer-dir.`);
    return undefined;
  }
  const program = join(target, 'peer');
  say(`Building the Go peer in ${source}`);
  try {
    await promisify(execFile)('go', ['build', '-o', program, '.'], { cwd: source });
    return program;
  } catch (error) {
    const reason = error.code === 'ENOENT' ? 'Go is not installed (no "go" on the PATH)' : error.message;
    say(`--peer go: ${reason}; this run is without it.`);
    return undefined;
  }
}

/** The argument of its workflow `Seq`: one session with a second step that takes `holdMs`. Durations are nanoseconds. */
export function goSequence({ holdMs = 0, heartbeatMs = 0, heartbeatTimeoutMs = 0, redo = false } = {}) {
  return {
    Creation: HOUR_MS * NS_PER_MS,
    Exec: HOUR_MS * NS_PER_MS,
    Hold: holdMs * NS_PER_MS,
    ActHB: heartbeatMs * NS_PER_MS,
    ActHBTimeout: heartbeatTimeoutMs * NS_PER_MS,
    Redo: redo,
  };
}
