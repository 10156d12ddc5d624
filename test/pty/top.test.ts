/**
 * `atlas top` as a terminal gets it: a real pseudo-terminal around `top-scene.mjs`, which makes up a fleet and takes the
 * orders.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';
import type { TopOrder } from '../../src/terminal/top-model.js';
import { startInPty, type PtyOptions, type PtyProgram } from '../support/pty.js';
import { heldBack, largeFleet, smallFleet } from '../support/fleet-records.js';

const SCENE = fileURLToPath(new URL('top-scene.mjs', import.meta.url));
const ESCAPE = '\u001b';
const DOWN = '\u001b[B';
const PAGE_DOWN = '\u001b[6~';
const END = '\u001b[F';
const CTRL_C = '\u0003';

let server: Server;
let control: Socket | undefined;
let told: AsyncIterator<string>;

beforeEach(async () => {
  server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  control?.destroy();
  server.close();
});

async function start(options: Partial<PtyOptions> = {}, first: object = { data: smallFleet() }): Promise<PtyProgram> {
  const program = startInPty([SCENE, String((server.address() as AddressInfo).port)], {
    columns: 80,
    rows: 24,
    ...options,
  });
  [control] = (await once(server, 'connection')) as [Socket];
  const lines: Interface = createInterface({ input: control });
  told = lines[Symbol.asyncIterator]();
  tell(first);
  return program;
}

function tell(message: object): void {
  control!.write(`${JSON.stringify(message)}\n`);
}

async function nextOrder(): Promise<TopOrder> {
  return JSON.parse(String((await told.next()).value)) as TopOrder;
}

function expectSize({ terminal }: PtyProgram, columns: number, rows: number): void {
  expect(terminal.lines).toHaveLength(rows);
  for (const line of terminal.lines) expect(displayWidth(line), line).toBeLessThan(columns);
}

/** The ordinary screen again, with what was there before and after, and nothing of the view. */
function expectCleanTerminal({ terminal, failure, output }: PtyProgram): void {
  expect(failure).toBeUndefined();
  expect({ alternate: terminal.alternate, cursorShown: terminal.cursorShown, styled: terminal.styled }).toEqual({
    alternate: false,
    cursorShown: true,
    styled: false,
  });
  expect(output.match(/\u001b\[\?1049h/g)).toHaveLength(1);
  expect(output.match(/\u001b\[\?1049l/g)).toHaveLength(1);
  expect(terminal.lines[0]).toBe('before');
  expect(terminal.text).not.toContain('atlas top');
}

describe('the screen', () => {
  it('shows workers, sessions and pools at 80 columns', async () => {
    const top = await start();
    await top.shows('12 workers: 1 lost, 1 stopped, 1 draining, 1 cordoned…');
    await top.shows('q quit');
    expectSize(top, 80, 24);
    const { lines } = top.terminal;
    expect(lines[0]).toMatch(/^atlas top {2}fleet atlas {2}127\.0\.0\.1:7233 +updated \S+ ago$/);
    expect(lines[1]).toMatch(/^sessions 4\/48 {2}leaked 1 {2}12 workers: /);
    expect(lines[2]).toMatch(/^\[1 workers 12\] 2 sessions 4 {2}3 pools 2 +by NAME↑$/);
    expect(lines[3]).toMatch(/^ {2}NAME↑ +STATE +SESSIONS/);
    expect(lines[4]).toMatch(/^> gpu-1 +ready +2\/4/);
    expect(lines[5]).toMatch(/^ {2}gpu-2 +lost +0\/4/);
    expect(lines.at(-1)).toContain('? help  q quit');
    top.press('2');
    await top.shows('[2 sessions 4]');
    expect(top.terminal.text).toMatch(/gpu-1 +bb22 +held, le/);
    top.press('\t');
    await top.shows('[3 pools 2]');
    expect(top.terminal.text).toMatch(/gpu +7 +[45]\ds +2 +1\/1/);
    top.press('q');
    expect(await top.ended).toEqual({ exitCode: 0, signal: 0 });
    expectCleanTerminal(top);
  });

  it('follows the size of the terminal', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.resize(200, 50);
    await top.shows(/NAME↑ .* HOST .* DISK .* AGE .* REASON[^]*q quit/);
    expect(top.terminal.lines[1]).toMatch(/1 cordoned, 8 ready$/);
    expectSize(top, 200, 50);
    expect(top.terminal.lines[49]).toContain('q quit');
    top.resize(40, 10);
    // The address has no room any more.
    await top.shows(/^atlas top {2}fleet atlas +updated \d\.\ds ago$[^]*Enter look/m);
    await top.shows(/^> gpu-1 +ready/m);
    expectSize(top, 40, 10);
    expect(top.terminal.lines[0]).toContain('atlas top');
    top.press('c');
    await top.shows('Reason');
    top.press('\r');
    await top.shows('Cordon gpu-1? y/N');
    expect(top.terminal.text).toContain('It takes no new sessions');
    expectSize(top, 40, 10);
    top.press('n');
    await top.shows('Nothing was ordered');
    top.resize(12, 3);
    await top.shows('> gpu-1');
    expectSize(top, 12, 3);
  });

  it('sorts, filters, and keeps the selected record selected', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press(DOWN + DOWN);
    await top.shows(/^> worker-1 /m);
    top.press('s');
    await top.shows('by STATE↑');
    expect(top.terminal.lines[4]).toMatch(/gpu-2 +lost/);
    await top.shows(/^> worker-1 /m);
    top.press('S');
    await top.shows('by STATE↓');
    top.press('/');
    await top.shows(/^\/_/m);
    // In one piece, as it comes when it is pasted.
    top.press('rack gpu\r');
    await top.shows('filter "rack gpu": 2 of 12');
    expect(top.terminal.text).not.toContain('worker-');
    top.press(ESCAPE);
    await top.shows('by STATE↓');
    await top.shows('worker-1');
    top.press('/nothing-like-it');
    await top.shows('Nothing matches the filter');
    top.press('\u007f\u007f\u0015lost');
    await top.shows('/lost_  1 of 12');
    top.press(ESCAPE);
    await top.shows('worker-1');
    // The filter knows what is read later, too.
    top.press('/swap\r');
    await top.shows('0 of 12');
    tell({ data: { ...smallFleet(), workers: [heldBack('worker-8', 'draining', { who: 'eve@swap', why: null })] } });
    await top.shows('filter "swap": 1 of 1');
  });

  it('looks at a worker and at a session', async () => {
    const data = smallFleet();
    const top = await start({ rows: 30 }, { data });
    await top.shows('12 workers');
    top.press('/draining\r');
    await top.shows('1 of 12');
    top.press('\r');
    await top.shows('worker worker-8');
    expect(top.terminal.text).toMatch(/Scheduling +draining by bob@there, \d+\w ago: disk swap/);
    expect(top.terminal.text).toMatch(/Drain +by bob@there, \d+\w ago; no deadline/);
    expect(top.terminal.text).toMatch(/1 session\n +dd44|1 session\ndd44/);
    top.press(ESCAPE);
    await top.shows('> worker-8');
    top.press('2/cc33\r\r');
    await top.shows('session cc33');
    expect(top.terminal.text).toMatch(/Step +summarizeDocument, running for \S+, attempt 3/);
    expect(top.terminal.text).toMatch(/Last step +downloadDocument/);
    expect(top.terminal.text).toMatch(/Lease +epoch 1, lost after 1m00s of silence/);
    expect(top.terminal.text).toMatch(/Owner +document-cc33 \(processDocument\)/);
    expect(top.terminal.text).toMatch(/Scratch +1\.5 MB/);
    tell({ data: { ...data, sessions: [] } });
    await top.shows('session cc33, no longer listed');
    top.press(ESCAPE);
    await top.shows('0 of 0');
  });

  it('scrolls through a thousand workers and four thousand sessions', async () => {
    const top = await start({}, { data: largeFleet(1_000, 4) });
    await top.shows('sessions 4000/4000  leaked 0  1000 workers: 1000 ready');
    top.press(PAGE_DOWN);
    await top.shows(/^> worker-19 /m);
    top.press('2');
    await top.shows('[2 sessions 4000]');
    top.press(END);
    await top.shows(/^> worker-1000 +s1000x4 /m);
    expectSize(top, 80, 24);
    top.press('/s500x\r');
    await top.shows('filter "s500x": 4 of 4000');
    expect(top.terminal.text).toMatch(/worker-500 +s500x1/);
  });

  it('says for how long the server has been silent, keeps what it knows, and goes on trying', async () => {
    const top = await start();
    await top.shows('12 workers');
    tell({ failure: 'connection refused' });
    await top.shows(/^! No answer for \d\.\ds; this is \d\.\ds old\. Trying again\. connection refused/m);
    expect(top.terminal.text).toContain('> gpu-1');
    tell({ data: smallFleet() });
    await top.shows('12 workers');
  });

  it('lists its keys', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press('?');
    await top.shows(/r +release the session by force/);
    top.press('?');
    await top.shows('> gpu-1');
  });

  it('gets no colour with NO_COLOR, and loses nothing by it', async () => {
    const top = await start({ env: { NO_COLOR: '1' } });
    await top.shows('12 workers: 1 lost');
    await top.shows(/^> gpu-1/m);
    expect(top.output).not.toMatch(/\u001b\[(3[0-7]|9[0-7])m/);
  });
});

describe('an order', () => {
  it('says what will happen, asks for a reason, and is given on the state that was seen', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press('/gpu-1\rd');
    await top.shows('and is drained once 2 sessions on it have ended');
    expect(top.terminal.text).toContain('Drain gpu-1.');
    top.press('new cards\r');
    await top.shows('Drain gpu-1? y/N');
    expect(top.terminal.text).toContain('Reason: new cards');
    top.press('y');
    expect(await nextOrder()).toMatchObject({
      action: { kind: 'drain', worker: { name: 'gpu-1' } },
      who: 'me@here',
      why: 'new cards',
      ifRevision: 0,
    });
    await top.shows('Waiting for the answer');
    tell({ outcome: { kind: 'done', text: 'Applied: the drain of gpu-1.' } });
    await top.shows('Applied: the drain of gpu-1.');
  });

  it('is given up by anything but y, and nothing is sent', async () => {
    const top = await start();
    await top.shows('12 workers');
    for (const no of ['n', '\r', ESCAPE]) {
      top.press('c');
      await top.shows('Reason');
      top.press('\r');
      await top.shows('Cordon gpu-1? y/N');
      top.press(no);
      await top.shows('Nothing was ordered: the cordon of gpu-1 was given up.');
    }
    // The first order that arrives is this one.
    top.press('2r');
    await top.shows('Release session aa11 of gpu-1 by force.');
    expect(top.terminal.text).toContain('document-aa11 (processDocument, run run-aa11)');
    top.press('stuck\r');
    await top.shows('Type y and Enter');
    top.press('y');
    await top.shows('give up: y_');
    top.press('\r');
    expect(await nextOrder()).toMatchObject({
      action: { kind: 'release', session: { session: 'aa11' } },
      why: 'stuck',
    });
  });

  it('shows a conflict plainly', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press('/worker-8\ru');
    await top.shows('It was draining by bob@there, another operator: disk swap.');
    top.press('\ry');
    expect(await nextOrder()).toMatchObject({ action: { kind: 'uncordon' }, ifRevision: 3, ofOthers: true, why: null });
    tell({
      outcome: {
        kind: 'conflict',
        text: 'Conflict, nothing was changed: The worker worker-8 was changed meanwhile: drained by bob@there since 2026-03-01T10:00:00Z ("disk swap").',
      },
    });
    await top.shows('Conflict, nothing was changed');
    // All of it, over two lines.
    await top.shows('("disk swap").');
  });

  it('is not left without its answer by one q', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press('c\ry');
    await nextOrder();
    top.press('q');
    await top.shows('press q again to leave without its answer');
    top.press('q');
    expect((await top.ended).exitCode).toBe(0);
    expectCleanTerminal(top);
    expect(top.terminal.text).toContain('The answer to the cordon of gpu-1 was not waited for');
  });
});

describe('the terminal is left as it was', () => {
  it('after Ctrl-C', async () => {
    const top = await start();
    await top.shows('12 workers');
    top.press(CTRL_C);
    expect((await top.ended).exitCode).toBe(130);
    expectCleanTerminal(top);
    expect(top.terminal.lines.slice(0, 3)).toEqual(['before', 'after', '']);
  });

  it.each(['SIGTERM', 'SIGHUP', 'SIGINT'])('after %s', async (signal) => {
    const top = await start();
    await top.shows('12 workers');
    top.pty.kill(signal);
    expect((await top.ended).exitCode).toBe(130);
    expectCleanTerminal(top);
    expect(top.terminal.lines.slice(0, 4)).toEqual([
      'before',
      `Interrupted by ${signal}.`,
      ' next: Run it again.',
      'after',
    ]);
  });

  it('after an error of what it reads', async () => {
    const top = await start();
    await top.shows('12 workers');
    tell({ reject: true });
    expect((await top.ended).exitCode).toBe(1);
    expectCleanTerminal(top);
    expect(top.terminal.text).toContain('Unexpected: the scene is broken');
  });

  it('after an error while drawing', async () => {
    const top = await start();
    await top.shows('12 workers');
    tell({ data: { ...smallFleet(), workers: [{}] } });
    expect((await top.ended).exitCode).toBe(1);
    expectCleanTerminal(top);
    expect(top.terminal.text).toContain('Unexpected: ');
  });

  it('after an error that nobody catches, which is printed where it stays', async () => {
    const top = await start();
    await top.shows('12 workers');
    tell({ crash: true });
    expect((await top.ended).exitCode).toBe(1);
    expectCleanTerminal(top);
    expect(top.terminal.text).toContain('a defect in the scene');
  });
});
