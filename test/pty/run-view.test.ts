/**
 * The live view of a run as a terminal gets it: a real pseudo-terminal around `run-view-scene.mjs`, which plays a run.
 */
import { describe, expect, it } from 'vitest';
import { displayWidth } from '../../src/terminal/format.js';
import { plain, useScenes } from '../support/scene.js';

const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';
const startScene = useScenes({
  script: new URL('run-view-scene.mjs', import.meta.url),
  rows: 30,
  frameMark: '\u001b[G',
  isWhole: (screen) => screen.some((line) => /^\S Deliver +\w/.test(line)),
});

describe.each([80, 200])('at %i columns', (columns) => {
  it('shows a run from the wait for a worker to its redo', async () => {
    const view = await startScene(columns);
    await view.until('Find a worker');
    view.next();
    await view.until('No worker of the fleet');
    expect(view.screen.join('\n')).toMatch(/> Find a worker +running +6\.0s\n· Download +waiting\n/);
    view.next();
    await view.until('50.0 MB of 200.0 MB (25%)');
    expect(view.screen[0]).toContain('on worker-1 · 7.0s');
    expect(view.screen.join('\n')).toMatch(/✓ Find a worker +done +7\.0s\n> Download +running/);
    expect(view.screen.join('\n').includes('[#####...............]')).toBe(columns === 200);
    view.next();
    await view.until('31 of 352 pages (8%), page 32 with OCR');
    if (columns === 200) await view.until('attempt 2 after: tesseract died with signal 9');
    view.next();
    await view.until('Temporal has not answered for 0.0s');
    view.next();
    await view.until('redone 1x');
    expect(view.screen.join('\n')).toMatch(/> Download +running +0\.0s\n· Read pages +waiting\n/);
    expect(view.screen.join('\n')).not.toContain('Temporal has not answered');
    view.control.write('end\n');
    expect(await view.ended).toBe(0);
    for (const line of plain(view.output).split('\n')) expect(displayWidth(line), line).toBeLessThanOrEqual(columns);
  });
});

describe('the terminal', () => {
  it('is redrawn to a new width', async () => {
    const view = await startScene(80);
    view.next();
    view.next();
    await view.until('50.0 MB');
    expect(view.screen.join('\n')).not.toContain('[#####');
    view.pty.resize(200, 30);
    await view.until('[#####...............]');
    view.pty.resize(60, 30);
    await view.until('…');
    view.next();
    await view.until('31 of 352');
    for (const line of view.screen) expect(displayWidth(line), line).toBeLessThanOrEqual(60);
  });

  it('is free again after Ctrl-C, with its cursor and the last state', async () => {
    const view = await startScene(80);
    view.next();
    view.next();
    await view.until('50.0 MB');
    expect(view.output).toContain(HIDE_CURSOR);
    view.pty.write('\u0003');
    expect(await view.ended).toBe(130);
    expect(view.output.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(view.output.lastIndexOf(HIDE_CURSOR));
    expect(plain(view.output)).toMatch(/Deliver +waiting *\n(\^C)?the terminal is free\n$/);
  });

  it('gets no colour with NO_COLOR, and loses nothing by it', async () => {
    const view = await startScene(80, { NO_COLOR: '1' });
    view.next();
    view.next();
    await view.until('50.0 MB');

    expect(view.output).not.toMatch(/\u001b\[(3[0-7]|9[0-7])m/);
    expect(view.screen.join('\n')).toMatch(/✓ Find a worker +done[^]*> Download +running[^]*· Read pages +waiting/);
  });
});
