/**
 * One record as text for people: blocks of `key: value` lines, the values under each other. Long values go on under
 * themselves; nothing is cut, as one record is read to the end.
 */
import { displayWidth, plainText, wrapLines } from './format.js';
import type { Style } from './style.js';

/** A key and its value; several lines where the value is a list. */
export type Fact = readonly [key: string, value: string | readonly string[]];

export interface BlockOptions {
  /** Undefined where nothing must be broken into lines. */
  readonly width: number | undefined;
  readonly style: Style;
}

const GAP = 2;
/** A terminal that leaves less than this for the values wraps them itself. */
const MIN_VALUE_WIDTH = 20;

/** The lines of a block, each ended by a line break. */
export function renderFacts(facts: readonly Fact[], { width, style }: BlockOptions): string {
  const keyWidth = Math.max(...facts.map(([key]) => displayWidth(key))) + 1;
  const indent = ' '.repeat(keyWidth + GAP);
  const valueWidth = width === undefined ? Number.POSITIVE_INFINITY : Math.max(MIN_VALUE_WIDTH, width - keyWidth - GAP);
  return facts
    .map(([key, value]) => {
      const lines = (typeof value === 'string' ? [value] : value).flatMap((line) =>
        wrapLines(plainText(line), valueWidth).split('\n'),
      );
      const label = style.bold(`${key}:`) + ' '.repeat(keyWidth + GAP - displayWidth(key) - 1);
      return `${label}${lines.join(`\n${indent}`)}\n`;
    })
    .join('');
}

/** A title and what belongs to it, indented. */
export function renderSection(title: string, body: string, { style }: BlockOptions): string {
  const indented = body
    .trimEnd()
    .split('\n')
    .map((line) => (line === '' ? '' : `  ${line}`))
    .join('\n');
  return `${style.bold(title)}\n${indented}\n`;
}
