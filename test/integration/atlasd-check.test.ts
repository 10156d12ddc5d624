/** `atlasd --check` against a real server, beside a worker that runs and without one. */
import { execFile } from 'node:child_process';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { localCall } from '../../src/local/client.js';
import { socketPathIn } from '../../src/local/paths.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { fixtureArgs, startWorker } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { SLOW } from '../support/promises.js';
import { temporalEnvironment } from '../support/server.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));

interface Check {
  readonly exit: number;
  /** By name, such as `{ Temporal: 'ok' }`. */
  readonly levels: Readonly<Record<string, string>>;
  readonly details: Readonly<Record<string, string>>;
}

async function check(argv: readonly string[]): Promise<Check> {
  const { exit, stdout, stderr } = await new Promise<{ exit: number; stdout: string; stderr: string }>((resolve) => {
    execFile(
      process.execPath,
      [ATLASD, '--check', '-o', 'json', ...argv],
      { env: temporalEnvironment() },
      (error, out, err) => {
        resolve({ exit: error === null ? 0 : Number(error.code), stdout: out, stderr: err });
      },
    );
  });
  expect(stderr).toBe('');
  const { findings } = (
    JSON.parse(stdout) as { check: { findings: { check: string; level: string; detail: string }[] } }
  ).check;
  return {
    exit,
    levels: Object.fromEntries(findings.map(({ check: name, level }) => [name, level])),
    details: Object.fromEntries(findings.map(({ check: name, detail }) => [name, detail])),
  };
}

const SOUND = {
  configuration: 'ok',
  'state directory': 'ok',
  disk: expect.stringMatching(/ok|warn/) as string,
  Temporal: 'ok',
  namespace: 'ok',
  activities: 'ok',
  workflows: 'ok',
};

const ANSWERS = { probe: 'ok', 'control queue': 'ok', 'unique queue': 'ok' };

describe('atlasd --check', () => {
  it('finds nothing wrong where a start would go well, and leaves nothing behind', SLOW, async () => {
    const base = await temporaryDirectory();
    const found = await check(['--state-dir', join(base, 'state'), ...fixtureArgs()]);
    expect(found).toMatchObject({ exit: 0, levels: SOUND });
    expect(found.details['Temporal']).toMatch(/server \d+\.\d+\.\d+/);
    expect(await readdir(base)).toEqual([]);
  });

  it('asks the atlasd that runs with the directory, and leaves it at work', SLOW, async () => {
    const fleet = uniqueFleet();
    const worker = await startWorker({ fleet, name: 'worker-7' });
    const args = ['--state-dir', worker.stateDirectory, '--fleet', fleet, ...fixtureArgs()];
    const found = await check(args);
    expect(found).toMatchObject({ exit: 0, levels: { ...SOUND, 'running atlasd': 'ok', ...ANSWERS } });
    expect(found.details['state directory']).toContain(`process ${worker.child.pid}`);
    expect(found.details['running atlasd']).toBe('worker-7: ready; 0 of 4 slots taken');
    expect((await check([...args, '--name', 'worker-8'])).levels).toMatchObject({ 'running atlasd': 'warn' });
    expect(worker.running).toBe(true);

    // It answers on its socket, and the executor takes nothing from its queue.
    const { executor } = (await localCall(socketPathIn(worker.stateDirectory), 'GET', '/status')).snapshot;
    process.kill(executor.pid!, 'SIGSTOP');
    try {
      const frozen = await check(args);
      expect(frozen).toMatchObject({ exit: 1, levels: { ...SOUND, ...ANSWERS, 'unique queue': 'fail' } });
    } finally {
      process.kill(executor.pid!, 'SIGCONT');
    }
  });

  it('runs the checks of capabilities once, of which one that fails is a warning', SLOW, async () => {
    const checks = ['gpu=echo "no device" >&2; false', 'ocr=test "$ATLAS_CAPABILITY" = ocr'];
    const found = await check([
      ...['--state-dir', join(await temporaryDirectory(), 'state'), '--capabilities', 'gpu,ocr'],
      ...checks.flatMap((each) => ['--capability-check', each]),
      ...fixtureArgs(),
    ]);
    expect(found).toMatchObject({ exit: 0, levels: { ...SOUND, 'capability gpu': 'warn', 'capability ocr': 'ok' } });
    expect(found.details['capability gpu']).toBe('its check ended with exit code 1: no device');
  });

  it('ends with 5 where only the namespace is missing, and with 1 where more fails', SLOW, async () => {
    const args = ['--state-dir', await temporaryDirectory(), '--namespace', 'nope', ...fixtureArgs()];
    expect(await check(args)).toMatchObject({ exit: 5, levels: { ...SOUND, namespace: 'fail' } });
    const folder = await temporaryDirectory();
    await writeFile(join(folder, 'none.mjs'), 'export const limit = 3;');
    const more = await check([...args, '--activities', join(folder, 'none.mjs')]);
    expect(more).toMatchObject({ exit: 1, levels: { ...SOUND, namespace: 'fail', activities: 'fail' } });
  });
});
