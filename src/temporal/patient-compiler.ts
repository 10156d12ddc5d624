/** When V8 begins to optimize, for processes that load much code once and then mostly wait. */
import { setFlagsFromString } from 'node:v8';

/** The V8 of Node 20. Later ones have no such flag, complain of it on stderr, and optimize in more and cheaper steps. */
const V8_WITH_BUDGET = /^11\./;
/**
 * In bytes of bytecode that a function runs before it is looked at; V8's own is 66 KiB. With that, what a start runs a few
 * thousand times (reading protocol descriptors, resolving modules) is optimized on other threads and never used again: a
 * fifth of the CPU of a start. Code that stays busy gets there as well, some milliseconds later.
 */
const BYTES_BEFORE_OPTIMIZING = 20 * 66 * 1024;

/** To be called first: it counts for what runs from now on, in all threads of this process. */
export function optimizeLater(): void {
  if (V8_WITH_BUDGET.test(process.versions.v8)) setFlagsFromString(`--interrupt-budget=${BYTES_BEFORE_OPTIMIZING}`);
}
