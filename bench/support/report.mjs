/** Lines of a measurement: samples to median and range, compared with a target, as a table and as JSON. */
import { cpus, loadavg, totalmem } from 'node:os';

/** Digits after the point, where one would say too little or too much. */
const DIGITS = { s: 2, x: 2, KB: 2, cores: 3, events: 0, 'pages/s': 2, '%': 3 };

/**
 * One line.
 *
 * @param {string} group the part of the measurement
 * @param {string} name what was measured
 * @param {'ms' | 's' | 'MB' | 'MB/s' | 'KB' | '/s' | 'pages/s' | '%' | 'x' | 'cores' | 'events' | ''} unit
 * @param {(number | null)[]} samples one a run; null where the system does not tell
 * @param {{ max?: number, min?: number, of?: 'median' | 'max', text: string }} [target] not met when the median, or the
 * highest sample, is over `max` or under `min`
 */
export function line(group, name, unit, samples, target) {
  const known = samples.filter((sample) => sample !== null).sort((left, right) => left - right);
  if (known.length === 0) return { group, name, unit, runs: 0, median: null, min: null, max: null };
  const round = (value) => Number(value.toFixed(DIGITS[unit] ?? 1));
  const median = medianOf(known);
  return {
    group,
    name,
    unit,
    runs: known.length,
    median: round(median),
    min: round(known[0]),
    max: round(known.at(-1)),
    ...(target === undefined ? {} : { target: judged(target, target.of === 'max' ? known.at(-1) : median, round) }),
  };
}

/** A line for what can not be measured here, and why. */
export function notMeasured(group, name, why) {
  return { group, name, unit: '', runs: 0, median: null, min: null, max: null, note: `not measured: ${why}` };
}

function judged({ text, max, min }, value, round) {
  return {
    text,
    ...(max === undefined ? {} : { max: round(max) }),
    ...(min === undefined ? {} : { min: round(min) }),
    met: value <= (max ?? Number.POSITIVE_INFINITY) && value >= (min ?? Number.NEGATIVE_INFINITY),
  };
}

export function medianOf(samples) {
  const sorted = [...samples].sort((left, right) => left - right);
  const middle = sorted.length / 2;
  return Number.isInteger(middle) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[Math.floor(middle)];
}

/** The smallest sample that this share of all does not exceed. */
export function percentile(samples, share) {
  const sorted = [...samples].sort((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

export function printTable(lines) {
  const rows = lines.map((each) => [
    each.group,
    each.name,
    amount(each.median, each.unit),
    each.median === null ? '' : `${amount(each.min, each.unit, true)} – ${amount(each.max, each.unit, true)}`,
    String(each.runs),
    each.target?.text ?? each.note ?? '',
    each.target === undefined ? '' : each.target.met ? 'met' : 'MISSED',
  ]);
  const header = ['', 'measured', 'median', 'range', 'runs', 'target', ''];
  const widths = header.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column].length)));
  const numeric = new Set([2, 3, 4]);
  let group;
  for (const row of [header, ...rows]) {
    // The name of a group once, on its first line.
    const [first, ...others] = row;
    if (group !== undefined && first !== group) console.log('');
    const cells = [first === group ? '' : first, ...others].map((cell, column) =>
      numeric.has(column) ? cell.padStart(widths[column]) : cell.padEnd(widths[column]),
    );
    console.log(cells.join('  ').trimEnd());
    group = first;
  }
  const missed = lines.filter((each) => each.target?.met === false).length;
  const targets = lines.filter((each) => each.target !== undefined).length;
  const load = loadavg()[0];
  console.log(
    `\n${targets - missed} of ${targets} targets met. Node ${process.versions.node}, ${cpus().length} processors, load ${load.toFixed(1)}${load > cpus().length ? ': others were running, so wall times are too long' : ''}.`,
  );
}

function amount(value, unit, bare = false) {
  if (value === null) return '?';
  const text = value >= 100 ? value.toFixed(0) : value.toFixed(DIGITS[unit] ?? 1);
  return bare || unit === '' ? text : `${text} ${unit}`;
}

export function machine() {
  return {
    node: process.versions.node,
    platform: `${process.platform} ${process.arch}`,
    processor: cpus()[0]?.model ?? 'unknown',
    processors: cpus().length,
    memoryBytes: totalmem(),
    load: loadavg()[0],
  };
}
