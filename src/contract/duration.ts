/**
 * Durations as people write them: `500ms`, `30s`, `1h30m`.
 *
 * Owns: the syntax, the same in flags, environment and files. Imports nothing.
 */

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 } as const;
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/g;

/**
 * The duration in whole milliseconds. A number without a unit is refused: nobody agrees on its unit.
 * Throws an Error whose message goes on from the text, such as `has no unit: write 30s, 30m or 30h`.
 */
export function parseDurationMs(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) throw new Error(`has no unit: write ${text}s, ${text}m or ${text}h`);
  if (!DURATION.test(text)) throw new Error('is not a duration: write for example 500ms, 30s, 10m or 1h30m');
  let totalMs = 0;
  for (const [, amount, unit] of text.matchAll(PART)) {
    totalMs += Number(amount) * UNITS_MS[unit as keyof typeof UNITS_MS];
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
