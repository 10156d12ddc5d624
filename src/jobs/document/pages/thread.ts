/**
 * What the threads of the job have in common.
 */

/**
 * A compiled module beside this one. A thread can not run TypeScript, so the tests, which run from `src`, use the build
 * as well.
 */
export function threadScript(name: string): URL {
  const here = import.meta.url;
  if (!here.endsWith('.ts')) return new URL(`./${name}.js`, here);
  return new URL(`../../../../dist/jobs/document/pages/${name}.js`, here);
}

/** More than the pool from which Node cuts small buffers, which can not be transferred. */
const LARGE_BYTES = 65_536;

/**
 * Frees the memory of a large buffer now: the garbage collector lets 64 MB of them come together first, in each thread.
 * What is transferred to a port that is closed is gone. It has to be the port at the other end: closing this one would
 * keep the buffer, and where the collector does not count it.
 *
 * @param bytes Nobody may need them any more, nor anything else of their buffer. A small or shared one is left to the
 *   collector.
 */
export function giveBack({ buffer }: Uint8Array): void {
  if (!(buffer instanceof ArrayBuffer) || buffer.byteLength < LARGE_BYTES) return;
  const { port1, port2 } = new MessageChannel();
  port2.close();
  port1.postMessage(null, [buffer]);
}
