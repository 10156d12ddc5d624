import { describe, expect, it } from 'vitest';
import { AtlasError } from '../../../../src/contract/errors.js';
import { type Selected, watchList } from '../../../../src/commands/support/watch-list.js';
import { WORKER_VIEW } from '../../../../src/commands/support/worker-view.js';
import type { WorkerRecord } from '../../../../src/fleet/client.js';
import type { RecordFormat } from '../../../../src/terminal/records.js';
import { fakeContext, type FakeTerminal } from '../../../support/fake-context.js';
import { workerRecord } from '../../../support/records.js';

const UNREACHABLE = new AtlasError('ServerUnreachable', 'It does not answer.');
type Look = readonly WorkerRecord[] | Error;

/** Watches through the given looks and is interrupted after the last. */
async function watch(looks: readonly Look[], format: RecordFormat, terminal: FakeTerminal = {}, notes: string[] = []) {
  const interrupt = new AbortController();
  const context = fakeContext({ ...terminal, signal: interrupt.signal });
  let index = 0;
  const look = (): Promise<Selected<WorkerRecord>> => {
    const next = looks[index]!;
    index += 1;
    if (index === looks.length) setTimeout(() => interrupt.abort(new Error('Ctrl-C')), 0);
    return next instanceof Error ? Promise.reject(next) : Promise.resolve({ rows: next, notes });
  };
  const options = { context, view: WORKER_VIEW, headers: true, title: 'fleet atlas', intervalMs: 5, format, look };
  const exit = await watchList(options);
  return { exit, out: context.out(), err: context.err() };
}

const [a, b] = [workerRecord('a'), workerRecord('b')];

describe('a watch without a terminal', () => {
  it('prints one line of JSON for each record that was added, changed or removed', async () => {
    const later = { ...a, heartbeatAgeMs: 1, load1: 9, disk: null };
    const { exit, out } = await watch([[a], [later, b], [{ ...a, state: 'lost' }]], 'jsonl');
    expect(exit).toBe(130);
    const lines = out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { change: string; worker: WorkerRecord });
    expect(lines.map(({ change, worker }) => `${change} ${worker.name} ${worker.state}`)).toEqual([
      'added a ready',
      'added b ready',
      'changed a lost',
      'removed b ready',
    ]);
    expect(lines[0]).toEqual({ version: 1, change: 'added', worker: a });
  });

  it('prints a table at each look, under the time', async () => {
    const { out } = await watch([[a], [a, b]], 'table');
    expect(out).toMatch(/^# \S+Z\nNAME .*\na .*\n# \S+Z\nNAME .*\na .*\nb .*\n$/);
    expect(out).not.toContain('\u001b');
  });

  it('rides out a server that does not answer, and says so once', async () => {
    const { exit, out, err } = await watch([[a], UNREACHABLE, UNREACHABLE, [a]], 'name');
    expect({ exit, out }).toEqual({ exit: 130, out: 'a\na\n' });
    expect(err).toBe(
      'The Temporal server does not answer; it is tried again every 0.0s.\nThe Temporal server answers again.\n',
    );
  });

  it('ends with an error that waiting can not cure', async () => {
    await expect(watch([[a], new Error('a defect'), [a]], 'name')).rejects.toThrow('a defect');
  });

  it('does not repeat what it has said', async () => {
    expect((await watch([[], [], []], 'table', {}, ['There is none.'])).err).toBe('There is none.\n');
  });
});

describe('a watch on a terminal', () => {
  const terminal = { isTTY: true, columns: 80, env: { NO_COLOR: '1' } };
  /** What is on the screen after some output that only moves up and clears below. */
  const screen = (out: string): string[] => {
    let lines: string[] = [];
    let row = 0;
    for (const part of out.split(/(\u001b\[\d*[AJ]|\n)/)) {
      const move = /^\u001b\[(\d*)([AJ])$/.exec(part);
      if (move?.[2] === 'A') row -= Number(move[1]);
      else if (move?.[2] === 'J') lines = lines.slice(0, row);
      else if (part === '\n') row += 1;
      else if (part.replace('\r', '') !== '') lines[row] = part.replace('\r', '');
    }
    return lines;
  };

  it('redraws one table in place, with its age', async () => {
    const { exit, out } = await watch([[a, b], [b]], 'table', terminal);
    expect(exit).toBe(130);
    const lines = screen(out);
    expect(lines[0]).toMatch(/^as of \d\d:\d\d:\d\dZ, 0s ago - fleet atlas - every 0\.0s - Ctrl-C ends$/);
    expect(lines[1]).toMatch(/^NAME /);
    expect(lines[2]).toMatch(/^b /);
    expect(lines).toHaveLength(3);
  });

  it('keeps the table while the server is away, and says that it is', async () => {
    const { out, err } = await watch([[a], UNREACHABLE], 'table', terminal);
    const lines = screen(out);
    expect(lines[0]).toMatch(/^as of .* ago - THE SERVER DOES NOT ANSWER since 0s - fleet/);
    expect(lines[2]).toMatch(/^a /);
    expect(err).toBe('');
  });

  it('fits the screen, and says what does not', async () => {
    const many = Array.from({ length: 40 }, (_, index) => workerRecord(`w-${index}`));
    const lines = screen((await watch([many, many], 'table', terminal)).out);
    expect(lines.length).toBeLessThanOrEqual(24);
    expect(lines.at(-1)).toBe('... 20 more lines: choose by --selector or --limit');
  });

  it('is a stream where the terminal can not move the cursor', async () => {
    const { out } = await watch([[a]], 'table', { ...terminal, env: { TERM: 'dumb' } });
    expect(out).not.toContain('\u001b');
    expect(out).toMatch(/^# /);
  });
});
