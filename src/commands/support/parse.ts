/**
 * Parsers of option values. Each throws an Error whose message ends a sentence that begins with the flag, such as
 * `--timeout: "5" has no unit; write 5s, 5m or 5h`.
 */

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const DURATION_PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/g;

/** `90s`, `1h30m`, `500ms` as milliseconds. A bare number is refused: nobody agrees on its unit. */
export function parseDurationMs(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) {
    throw new Error(`"${text}" has no unit; write ${text}s, ${text}m or ${text}h`);
  }
  if (!DURATION.test(text)) {
    throw new Error(`"${text}" is not a duration; write for example 30s, 10m or 1h30m`);
  }
  let totalMs = 0;
  for (const [, amount, unit] of text.matchAll(DURATION_PART)) totalMs += Number(amount) * UNIT_MS[unit!]!;
  return Math.round(totalMs);
}

/** A parser of durations within bounds, in milliseconds. */
export function durationBetween(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const valueMs = parseDurationMs(text);
    if (valueMs < minMs || valueMs > maxMs) {
      throw new Error(`"${text}" is outside ${describeMs(minMs)} to ${describeMs(maxMs)}`);
    }
    return valueMs;
  };
}

function describeMs(valueMs: number): string {
  for (const unit of ['d', 'h', 'm', 's']) {
    const unitMs = UNIT_MS[unit]!;
    if (valueMs >= unitMs && valueMs % unitMs === 0) return `${valueMs / unitMs}${unit}`;
  }
  return `${valueMs}ms`;
}

/** A parser of whole numbers within bounds. */
export function integerBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new Error(`"${text}" is not a whole number from ${min} to ${max}`);
    }
    return value;
  };
}

const SUMMARY_LENGTHS: ReadonlyMap<string, number> = new Map([
  ['short', 3],
  ['medium', 6],
  ['long', 12],
]);
const MAX_SUMMARY_SENTENCES = 100;

/** `short`, `medium`, `long` or a number, as a number of sentences. */
export function parseSummaryLength(text: string): number {
  const value = SUMMARY_LENGTHS.get(text) ?? Number(/^\d+$/.test(text) ? text : Number.NaN);
  if (!(value >= 1 && value <= MAX_SUMMARY_SENTENCES)) {
    throw new Error(
      `"${text}" is neither ${[...SUMMARY_LENGTHS.keys()].join(', ')} nor a number of sentences from 1 to ${MAX_SUMMARY_SENTENCES}`,
    );
  }
  return value;
}

/** `gpu,ocr` as a list; empty parts are dropped. */
export function parseList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** Of the address to serve on; any port where none is named. */
export interface ServeAddress {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
}

/** `HOST[:PORT]`; IPv6 in brackets. */
export function parseServeAddress(text: string): ServeAddress {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]/\s]+))(?::(\d{1,5}))?$/.exec(text);
  const port = match?.[3] === undefined ? 0 : Number(match[3]);
  if (match === null || port > 65_535) {
    throw new Error(`"${text}" is not HOST or HOST:PORT; write an IPv6 address in brackets`);
  }
  return { host: match[1] ?? match[2]!, port };
}

/** A SHA-256 in hexadecimal, in lower case. */
export function parseSha256(text: string): string {
  if (!/^[0-9a-f]{64}$/i.test(text)) throw new Error(`"${text}" is not a SHA-256: 64 digits from 0 to 9 and a to f`);
  return text.toLowerCase();
}
