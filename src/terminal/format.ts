/** How numbers, times and foreign text are written. Pure; imports nothing. */

/** `850 B`, `12.3 MB`, `1.2 GB`: decimal units, as file managers and cloud consoles use. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = Math.max(0, bytes);
  let unit = 0;
  // 999.95 would be written as 1000.0.
  while (value >= 999.95 && unit < units.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${value.toFixed(1)} ${units[unit]}`;
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** `0.4s`, `12s`, `3m05s`, `2h10m`, `5d03h`: at most two units, so that a column stays narrow. */
export function formatDuration(durationMs: number): string {
  const ms = Math.max(0, durationMs);
  if (ms < 9_950) return `${(Math.round(ms / 100) / 10).toFixed(1)}s`;
  if (ms < MINUTE_MS) return `${Math.min(59, Math.round(ms / SECOND_MS))}s`;
  if (ms < HOUR_MS) return twoUnits(ms, MINUTE_MS, 'm', SECOND_MS, 's');
  if (ms < DAY_MS) return twoUnits(ms, HOUR_MS, 'h', MINUTE_MS, 'm');
  return twoUnits(ms, DAY_MS, 'd', HOUR_MS, 'h');
}

function twoUnits(ms: number, largeMs: number, large: string, smallMs: number, small: string): string {
  const largeCount = Math.floor(ms / largeMs);
  const smallCount = Math.floor((ms - largeCount * largeMs) / smallMs);
  return `${largeCount}${large}${String(smallCount).padStart(2, '0')}${small}`;
}

/** An age in whole units: `0s`, `12s`, `3m`, `2h`, `5d`. For columns where the order of magnitude decides. */
export function formatAge(ageMs: number): string {
  const ms = Math.max(0, ageMs);
  if (ms < 2 * MINUTE_MS) return `${Math.floor(ms / SECOND_MS)}s`;
  if (ms < 2 * HOUR_MS) return `${Math.floor(ms / MINUTE_MS)}m`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)}h`;
  return `${Math.floor(ms / DAY_MS)}d`;
}

/** `1 page`, `12 pages`. */
export function count(amount: number, singular: string, plural = `${singular}s`): string {
  return `${amount} ${amount === 1 ? singular : plural}`;
}

/** `8 of 12 pages`, `12.3 MB of 200.0 MB`, `8 pages`. */
export function formatAmount(done: number, total: number | undefined, unit: string): string {
  if (unit === 'bytes') {
    return total === undefined ? formatBytes(done) : `${formatBytes(done)} of ${formatBytes(total)}`;
  }
  return total === undefined ? `${done} ${unit}` : `${done} of ${total} ${unit}`;
}

/**
 * Text that others chose (workflow ids, file names, notes of activities) without the control characters that would let
 * it move the cursor or hide something.
 */
export function plainText(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, '\ufffd');
}

/** Like {@link plainText} for text of several lines: line breaks and tabs stay. */
export function plainLines(text: string): string {
  return text.replace(/\r\n/g, '\n').replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '\ufffd');
}

/** Columns that a text takes: combining marks take none, East Asian wide characters and most emoji take two. */
export function displayWidth(text: string): number {
  // Nearly every cell of a list, and a list of a thousand workers has tens of thousands.
  if (PRINTABLE_ASCII.test(text)) return text.length;
  let width = 0;
  for (const character of text) {
    if (/\p{Mark}|\u200d/u.test(character)) continue;
    width += WIDE.test(character) ? 2 : 1;
  }
  return width;
}

const PRINTABLE_ASCII = /^[ -~]*$/;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;

/** Cuts a text to a width, with `…` where something is missing. */
export function truncate(text: string, width: number): string {
  if (displayWidth(text) <= width) return text;
  let result = '';
  let used = 0;
  for (const character of text) {
    const next = displayWidth(character);
    if (used + next > width - 1) break;
    result += character;
    used += next;
  }
  return width <= 0 ? '' : `${result}…`;
}

/** Breaks text into lines of at most `width` columns, for paragraphs read on a screen. A longer word stays whole. */
export function wrapLines(text: string, width: number): string {
  return text
    .split('\n')
    .map((line) => wrapLine(line, width))
    .join('\n');
}

function wrapLine(line: string, width: number): string {
  if (displayWidth(line) <= width) return line;
  const lines: string[] = [];
  // Continuation lines of a list item stay under its text.
  const indent = ' '.repeat(/^\s*(?:[-*] |\d+\. )?/.exec(line)![0].length);
  let current = '';
  for (const word of line.split(' ')) {
    const candidate = current === '' ? word : `${current} ${word}`;
    if (displayWidth(candidate) > width && current.trim() !== '') {
      lines.push(current);
      current = indent + word;
    } else {
      current = candidate;
    }
  }
  lines.push(current);
  return lines.join('\n');
}
