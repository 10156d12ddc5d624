/** The checks of capabilities: what is decided from their outcomes, and the processes that they are. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runCheck } from '../../../src/daemon/capability-checks.js';
import { CapabilityState } from '../../../src/daemon/capability-state.js';
import { identifyProcess } from '../../../src/daemon/process-identity.js';
import { temporaryDirectory } from '../../support/atlasd.js';

const FAILED = { passed: false, reason: 'its check ended with exit code 1' } as const;

describe('the state of checked capabilities', () => {
  it('counts each as withdrawn until it has passed once, which is not worth a line', () => {
    const state = new CapabilityState(['gpu', 'ocr'], 1_000);
    expect(state.withdrawn()).toEqual([
      { capability: 'gpu', reason: 'its check has not passed yet', sinceMs: 1_000 },
      { capability: 'ocr', reason: 'its check has not passed yet', sinceMs: 1_000 },
    ]);
    expect(state.checked('gpu', { passed: true }, 2_000)).toBeNull();
    expect(state.withdrawn().map(({ capability }) => capability)).toEqual(['ocr']);
  });

  it('tells the first failure and the first pass after it, and each once', () => {
    const state = new CapabilityState(['gpu'], 0);
    expect(state.checked('gpu', FAILED, 1)).toBe('withdrawn');
    expect(state.checked('gpu', { ...FAILED, reason: 'another' }, 2)).toBeNull();
    expect(state.withdrawn()).toEqual([{ capability: 'gpu', reason: 'another', sinceMs: 1 }]);
    expect(state.checked('gpu', { passed: true }, 3)).toBe('restored');
    expect(state.checked('gpu', { passed: true }, 4)).toBeNull();
    expect(state.withdrawn()).toEqual([]);
    expect(state.checked('gpu', FAILED, 5)).toBe('withdrawn');
    expect(state.withdrawn()).toEqual([{ capability: 'gpu', reason: FAILED.reason, sinceMs: 5 }]);
  });
});

describe('a check', () => {
  const run = (command: string, options: Partial<Parameters<typeof runCheck>[0]> = {}) =>
    runCheck({ command, capability: 'gpu', timeoutMs: 30_000, env: process.env, ...options });
  const failing = (reason: string) => ({ passed: false, reason });

  it('passes with exit code 0, and knows its capability', async () => {
    expect(await run('test "$ATLAS_CAPABILITY" = gpu')).toEqual({ passed: true });
    expect(await run('test "$ATLAS_CAPABILITY" = ocr')).toEqual(failing('its check ended with exit code 1'));
  });

  it('says how it failed, with the last line of what it wrote to stderr', async () => {
    expect(await run('echo first >&2; printf "\\033[31mno driver\\033[0m\\n\\n" >&2; exit 3')).toEqual(
      failing('its check ended with exit code 3: no driver'),
    );
    // The shell may have a word for it, too.
    expect(await run('kill -KILL $$')).toMatchObject({
      reason: expect.stringMatching(/^its check was ended by SIGKILL/) as string,
    });
    const missing = await run('no-such-program-anywhere');
    expect(missing).toMatchObject({
      reason: expect.stringMatching(/^its check ended with exit code 127: .*not found$/) as string,
    });
    const long = await run('head -c 10000 /dev/zero | tr "\\0" x >&2; exit 1');
    expect(long).toMatchObject({ reason: `its check ended with exit code 1: ${'x'.repeat(200)}` });
  });

  it('never waits for its output to be read', async () => {
    expect(await run('yes | head -c 5000000; yes | head -c 5000000 >&2')).toEqual({ passed: true });
  });

  it('is killed at its timeout with all that it has started', async () => {
    const file = join(await temporaryDirectory(), 'pids');
    // Long enough for a shell on a busy machine to have said which processes there are.
    const outcome = await run(
      `sleep 300 & echo "$! $$" > ${file}; trap '' TERM; echo stuck >&2; while :; do sleep 1; done`,
      {
        timeoutMs: 3_000,
      },
    );
    expect(outcome).toEqual(failing('its check did not end within 3s: stuck'));
    const pids = (await readFile(file, 'utf8')).trim().split(' ').map(Number);
    expect(pids).toHaveLength(2);
    for (const pid of pids) expect(identifyProcess(pid)).toBeUndefined();
  });

  it('leaves nothing in the background when it has passed', async () => {
    const file = join(await temporaryDirectory(), 'pid');
    expect(await run(`sleep 300 >/dev/null 2>&1 & echo $! > ${file}`)).toEqual({ passed: true });
    expect(identifyProcess(Number(await readFile(file, 'utf8')))).toBeUndefined();
  });

  it('ends when it is told to', async () => {
    const abort = new AbortController();
    const ended = run('sleep 300', { signal: abort.signal });
    abort.abort();
    expect(await ended).toMatchObject({ passed: false });
  });
});
