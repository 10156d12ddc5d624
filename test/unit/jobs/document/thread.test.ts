/** What a thread of the document job gives back while it goes on. */
import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { giveBack } from '../../../../src/jobs/document/pages/thread.js';

const PICTURES = 40;
const PICTURE_BYTES = 4_000_000;

it('frees a large buffer at once, and not only for who had it', async () => {
  const before = process.memoryUsage().arrayBuffers;
  for (let count = 0; count < PICTURES; count += 1) {
    giveBack(new Uint8Array(PICTURE_BYTES));
    // A port that is closed lets go of what it has in a turn of its own.
    await setImmediate();
  }
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(PICTURES * PICTURE_BYTES * 0.5);
});

it('leaves what is small, or shared with a thread, to the garbage collector', () => {
  const small = Buffer.from('of the pool from which small buffers are cut');
  const shared = new Uint8Array(new SharedArrayBuffer(PICTURE_BYTES));
  giveBack(small);
  giveBack(shared);
  expect([small.toString(), shared.byteLength]).toEqual([
    'of the pool from which small buffers are cut',
    PICTURE_BYTES,
  ]);
});
