/** `atlasd reload` in a real terminal, asked of a socket on which the test answers. */
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, it } from 'vitest';
import type { ReloadLine, ReloadStep } from '../../src/contract/local.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { type PtyProgram, startInPty } from '../support/pty.js';

const ATLASD = fileURLToPath(new URL('../../bin/atlasd.js', import.meta.url));
const COLUMNS = 80;
const RESULT = {
  executor: { pid: 4711, incarnation: 'new' },
  replaced: { pid: 4710, incarnation: 'old' },
  interruptedAttempts: 0,
  lostSessions: 0,
  tookMs: 12_000,
};

const servers: ReturnType<typeof createServer>[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

interface Reloading {
  readonly program: PtyProgram;
  readonly step: (step: ReloadStep) => void;
  readonly done: () => void;
}

async function reloading(env: NodeJS.ProcessEnv): Promise<Reloading> {
  const directory = await temporaryDirectory();
  const server = createServer();
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(join(directory, 'atlasd.sock'), resolve));
  const asked = new Promise<ServerResponse>((resolve) => {
    server.once('request', (_, response) => resolve(response.writeHead(200)));
  });
  const program = startInPty([ATLASD, 'reload', '--state-dir', directory], { columns: COLUMNS, rows: 20, env });
  const response = await asked;
  const say = (line: ReloadLine): void => void response.write(`${JSON.stringify(line)}\n`);
  return {
    program,
    step: (step) => say({ type: 'step', ...step }),
    done: () => {
      say({ type: 'done', result: RESULT });
      response.end();
    },
  };
}

it('says what it waits for, for how long at most, and how long that has taken', async () => {
  const { program, step, done } = await reloading({ NO_COLOR: '1' });
  step({ step: 'loading', atMostMs: 120_000 });
  await program.shows(/A new executor loads the code \(at most 2m\)\. \d+s/);
  step({ step: 'memory', sessions: 12, atMostMs: 604_800_000 });
  await program.shows(/Waiting for 12 sessions in memory to end \(at most 7d\)\. [1-9]\d*s/);
  step({ step: 'memory', sessions: 1, atMostMs: 59_100 });
  await program.shows(/Waiting for 1 session in memory to end \(at most 1m\)\. \d+s/);
  step({ step: 'switching', atMostMs: 30_000 });
  step({ step: 'retiring', attempts: 12, atMostMs: 115_000 });
  await program.shows(/12 steps of the old one may end \(at most 1m55s\)\. \d+s/);
  done();
  expect(await program.ended).toMatchObject({ exitCode: 0 });
  expect(program.terminal.lines.slice(0, 5)).toEqual([
    'A new executor loads the code (at most 2m).',
    'Waiting for 1 session in memory to end (at most 1m).',
    'The new executor begins to poll (at most 30s).',
    expect.stringMatching(/^The new executor serves; 12 steps of the old one may end \(at most 1m55s\)\. \d+s$/),
    'Reloaded in 12s: the executor is process 4711.',
  ]);
  expect(program.terminal.cursorShown).toBe(true);
  expect(program.output).not.toMatch(/\u001b\[[0-9;]*m/);
});

it('writes a line for each step where nothing can be drawn again', async () => {
  const { program, step, done } = await reloading({ TERM: 'dumb' });
  step({ step: 'loading', atMostMs: 120_000 });
  step({ step: 'retiring', attempts: 0, atMostMs: 115_000 });
  done();
  expect(await program.ended).toMatchObject({ exitCode: 0 });
  expect(program.output).not.toContain('\u001b');
  expect(program.terminal.lines.slice(0, 2)).toEqual([
    'A new executor loads the code (at most 2m).',
    'The new executor serves; the old one ends (at most 1m55s).',
  ]);
});
