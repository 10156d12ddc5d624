/**
 * Durations as people write them: `500ms`, `30s`, `1h30m`, and as Temporal writes them: `30 seconds`, `2 days`.
 *
 * Owns: the syntax, the same in flags, environment, files and workflow options. Imports nothing.
 */

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 } as const;
type Unit = keyof typeof UNITS_MS;

type LongUnit =
  | ('msec' | 'millisecond' | 'sec' | 'second' | 'min' | 'minute' | 'hr' | 'hour' | 'day')
  | ('msecs' | 'milliseconds' | 'secs' | 'seconds' | 'mins' | 'minutes' | 'hrs' | 'hours' | 'days');
type Gap = '' | ' ';

/**
 * How long, in milliseconds or as text with units: `5000`, `'5s'`, `'1h30m'`, `'5 seconds'`. Temporal's own type of this name is
 * anything at all where the types of `ms` are not installed.
 */
export type Duration =
  | number
  | `${number}${Gap}${Unit | LongUnit}`
  | `${number}${Unit}${Gap}${number}${Unit}`
  | `${number}${Unit}${Gap}${number}${Unit}${Gap}${number}${Unit}`;

const UNIT_NAMES: readonly (readonly [RegExp, Unit])[] = [
  [/^(?:ms|msecs?|milliseconds?)$/, 'ms'],
  [/^(?:s|secs?|seconds?)$/, 's'],
  [/^(?:m|mins?|minutes?)$/, 'm'],
  [/^(?:h|hrs?|hours?)$/, 'h'],
  [/^(?:d|days?)$/, 'd'],
];
const DURATION = /^(?:\d+(?:\.\d+)? *[a-z]+ *)+$/;
const PART = /(\d+(?:\.\d+)?) *([a-z]+)/g;
const EXPLANATION = 'is not a duration: write for example 500ms, 30s, 10m or 1h30m';

/**
 * The duration in whole milliseconds. A number without a unit is refused: nobody agrees on its unit.
 * Throws an Error whose message goes on from the text, such as `has no unit: write 30s, 30m or 30h`.
 */
export function parseDurationMs(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) throw new Error(`has no unit: write ${text}s, ${text}m or ${text}h`);
  if (!DURATION.test(text)) throw new Error(EXPLANATION);
  let totalMs = 0;
  for (const [, amount, name] of text.matchAll(PART)) {
    const unit = UNIT_NAMES.find(([pattern]) => pattern.test(name!))?.[1];
    if (unit === undefined) throw new Error(EXPLANATION);
    totalMs += Number(amount) * UNITS_MS[unit];
  }
  return Math.round(totalMs);
}

/** The shortest way to write a duration, exact: `1h30m`. */
export function formatDurationMs(durationMs: number): string {
  let remainingMs = Math.round(durationMs);
  let text = '';
  for (const [unit, unitMs] of Object.entries(UNITS_MS)) {
    const count = Math.floor(remainingMs / unitMs);
    remainingMs -= count * unitMs;
    if (count > 0) text += `${count}${unit}`;
  }
  return text === '' ? '0s' : text;
}
