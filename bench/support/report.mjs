/** Lines of a measurement: samples to median and range, compared with a target, as a table and as JSON. */
import { cpus, loadavg, totalmem } from 'node:os';

/**
 * One line.
 *
 * @param {string} group the part of the measurement
 * @param {string} name what was measured
 * @param {'ms' | 'MB'} unit
 * @param {(number | null)[]} samples one a run; null where the system does not tell
 * @param {{ max: number, text: string }} [target] not met when the median is over `max`
 */
export function line(group, name, unit, samples, target) {
  const known = samples.filter((sample) => sample !== null).sort((left, right) => left - right);
  if (known.length === 0) return { group, name, unit, runs: 0, median: null, min: null, max: null };
  const middle = known.length / 2;
  const median = Number.isInteger(middle) ? (known[middle - 1] + known[middle]) / 2 : known[Math.floor(middle)];
  return {
    group,
    name,
    unit,
    runs: known.length,
    median: round(median),
    min: round(known[0]),
    max: round(known.at(-1)),
    ...(target === undefined
      ? {}
      : { target: { text: target.text, max: round(target.max), met: median <= target.max } }),
  };
}

function round(value) {
  return Math.round(value * 10) / 10;
}

export function printTable(lines) {
  const rows = lines.map((each) => [
    each.group,
    each.name,
    amount(each.median, each.unit),
    each.median === null ? '' : `${amount(each.min)} – ${amount(each.max)}`,
    String(each.runs),
    each.target === undefined ? '' : each.target.text,
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

function amount(value, unit) {
  if (value === null) return '?';
  const text = value >= 100 ? value.toFixed(0) : value.toFixed(1);
  return unit === undefined ? text : `${text} ${unit}`;
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
