/** Check a repository out once, then run several things in it. Needs `git` on the workers. */
import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ApplicationFailure } from '@temporalio/common';
import { currentSession, currentWorker } from 'temporal-atlas/activity';

const run = promisify(execFile);
const repository = () => join(currentSession().scratchDirectory, 'repository');

/** Clones into the session's directory. A clone that was interrupted is begun anew; a complete one is used. */
export async function checkOut(url, revision) {
  const { scratchDirectory, signal } = currentSession();
  const git = async (...args) => (await run('git', args, { cwd: scratchDirectory, signal })).stdout.trim();
  const complete = join(scratchDirectory, 'repository', '.git', 'checked-out');
  if (!(await exists(complete))) {
    await run('rm', ['-rf', repository()], { signal });
    await git('clone', '--quiet', '--no-checkout', url, repository());
    await git('-C', repository(), 'checkout', '--quiet', '--detach', revision);
    await run('touch', [complete], { signal });
  }
  return { commit: await git('-C', repository(), 'rev-parse', 'HEAD'), worker: currentWorker().name };
}

/** Runs a program in the repository. A program that fails is an answer of the repository, not a fault of the worker. */
export async function runIn(program, args) {
  const { signal } = currentSession();
  try {
    const { stdout } = await run(program, args, { cwd: repository(), signal, maxBuffer: 1024 ** 2 });
    return { output: stdout.slice(-2_000), worker: currentWorker().name };
  } catch (error) {
    // Of a program that could not be run, or was ended with the session, there is no exit code: that is tried again.
    if (typeof error.code !== 'number') throw error;
    throw ApplicationFailure.nonRetryable(
      `${program} exited with ${error.code}: ${error.stderr.slice(-500)}`,
      'CheckFailed',
    );
  }
}

async function exists(path) {
  return access(path).then(
    () => true,
    () => false,
  );
}
