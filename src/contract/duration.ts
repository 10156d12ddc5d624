/**
 * Durations as people write them: `500ms`, `30s`, `30 seconds`, `1h30m`, `2 days`. The grammar of Temporal's own durations
 * (the `ms` package) and sums of it. Written here because the contract imports nothing, and both the configuration of
 * the daemon and workflow code read durations.
 */

const UNITS_MS: readonly (readonly [pattern: string, ms: number])[] = [
  ['milliseconds?|msecs?|ms', 1],
  ['seconds?|secs?|s', 1_000],
  ['minutes?|mins?|m', 60_000],
  ['hours?|hrs?|h', 3_600_000],
  ['days?|d', 86_400_000],
  ['weeks?|w', 604_800_000],
];

const PART = /([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*/y;

/** Milliseconds, or undefined when the text is not a duration. A number without a unit is none: its unit is a guess. */
export function parseDuration(text: string): number | undefined {
  const input = text.trim().toLowerCase();
  let totalMs = 0;
  PART.lastIndex = 0;
  let parts = 0;
  while (PART.lastIndex < input.length) {
    const match = PART.exec(input);
    if (match === null) return undefined;
    const unit = UNITS_MS.find(([pattern]) => new RegExp(`^(?:${pattern})$`).test(match[2]!));
    if (unit === undefined) return undefined;
    totalMs += Number(match[1]) * unit[1];
    parts += 1;
  }
  return parts === 0 ? undefined : Math.round(totalMs);
}
