/**
 * The live view of a drain as a terminal gets it: a real pseudo-terminal around `drain-view-scene.mjs`, which plays one.
 */
import { describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';
import { plain, type Scene, useScenes } from '../support/scene.js';

const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';
const startScene = useScenes({
  script: new URL('drain-view-scene.mjs', import.meta.url),
  rows: 20,
  frameMark: '\u001b[J',
  isWhole: (screen) => /^(· worker-3|… \d+ more lines)/.test(screen.at(-1) ?? ''),
});

async function next(view: Scene, text: string): Promise<void> {
  view.next();
  await view.until(text);
}

describe.each([80, 200])('at %i columns', (columns) => {
  it('shows what goes on, what waits and why, and which session moves', async () => {
    const view = await startScene(columns);
    await next(view, 'moved 2.0s ago');
    expect(view.screen[0]).toMatch(/^Draining 3 workers, 1 at a time · 1 drained, 1 going · 14s/);
    expect(view.screen.slice(1, 4)).toEqual([
      '✓ worker-1  drained in 12s',
      '> worker-2  draining, 2 of 4 slots held · deadline in 9m46s',
      expect.stringMatching(/^ {4}06babd2d6284 {2}extractPages 1m14s · moved 2\.0s ago · 12 of 80 pages \(15%\)/),
    ]);
    expect(view.screen[4]).toBe('· worker-3  waits: 1 being drained, --max-parallel 1');
    await next(view, '77a1c2b3d4e5');
    expect(view.screen[3]).toMatch(/06babd2d6284 {2}STUCK\? extractPages 2m00s · no progress for 48s/);
    expect(view.screen[4]).toMatch(/77a1c2b3d4e5 {2}STUCK\? no step running for 5m00s · owner waits for a timer/);
    await next(view, 'Temporal has not answered for 3.0s');
    expect(view.screen.join('\n')).not.toContain('06babd2d6284');
    view.control.write('end\n');
    expect(await view.ended).toBe(0);
    for (const line of plain(view.output).split('\n')) expect(displayWidth(line), line).toBeLessThan(columns);
  });
});

describe('the terminal', () => {
  it('is not overrun by more lines than it has', async () => {
    const view = await startScene(100);
    for (const text of ['moved 2.0s', '77a1c2b3d4e5', 'has not answered']) await next(view, text);
    await next(view, 'more lines');
    expect(view.screen).toHaveLength(19);
    expect(view.screen.at(-1)).toMatch(/^… \d+ more lines$/);
  });

  it('is redrawn to a new width', async () => {
    const view = await startScene(120);
    await next(view, 'moved 2.0s ago');
    view.pty.resize(50, 20);
    // The signal that tells of the new size may come after the next step otherwise.
    await view.until((screen) => screen.length > 0 && screen.every((line) => displayWidth(line) < 50));
    await next(view, 'STUCK?');
    for (const line of view.screen) expect(displayWidth(line), line).toBeLessThan(50);
    expect(view.screen[0]).toContain('…');
  });

  it('is free again after Ctrl-C, with its cursor and the last state', async () => {
    const view = await startScene(80);
    await next(view, 'moved 2.0s ago');
    expect(view.output).toContain(HIDE_CURSOR);
    view.pty.write('\u0003');
    expect(await view.ended).toBe(130);
    expect(view.output.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(view.output.lastIndexOf(HIDE_CURSOR));
    expect(plain(view.output)).toMatch(/worker-3 {2}waits: .*\n(\^C)?the terminal is free\n$/);
  });

  it('gets no colour with NO_COLOR, and loses nothing by it', async () => {
    const view = await startScene(80, { NO_COLOR: '1' });
    await next(view, 'moved 2.0s ago');
    await next(view, '77a1c2b3d4e5');
    expect(view.output).not.toMatch(/\u001b\[(3[0-7]|9[0-7])m/);
    expect(view.screen.join('\n')).toMatch(/✓ worker-1 {2}drained[^]*> worker-2 {2}draining[^]*STUCK\?/);
  });
});
