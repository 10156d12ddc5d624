/**
 * What a process uses: processor time and memory. From /proc where there is one, which is exact; elsewhere from `ps`,
 * which knows no proportional set and too coarse a time.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** USER_HZ: fixed at 100 in the interface of Linux, whatever the kernel's own tick. */
const TICK_MS = 10;
const KB_PER_MB = 1_000;
const BYTES_PER_KIB = 1_024;

/** User and system time of a process with all its threads, or null where the system does not tell. */
export function cpuMs(pid) {
  const fields = statFields(pid);
  return fields === undefined ? null : (fields[0] + fields[1]) * TICK_MS;
}

/** The same with that of its children that have ended, and of theirs. */
export function cpuWithChildrenMs(pid) {
  const fields = statFields(pid);
  return fields === undefined ? null : fields.reduce((sum, ticks) => sum + ticks, 0) * TICK_MS;
}

/** The same of all children of this process that have ended: the difference over one child is its time. */
export function endedChildrenCpuMs() {
  const fields = statFields('self');
  return fields === undefined ? null : (fields[2] + fields[3]) * TICK_MS;
}

/** utime, stime, cutime, cstime. */
function statFields(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name before may contain spaces and brackets.
    return text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 15)
      .map(Number);
  } catch {
    return undefined;
  }
}

/** Resident and proportional set in MB (10^6 bytes); the latter shares out what processes have in common. */
export function memoryOf(pid) {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    let pssMb = null;
    try {
      pssMb = field(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'), 'Pss');
    } catch {
      // Some sandboxes have /proc without this file.
    }
    return { rssMb: field(status, 'VmRSS'), pssMb };
  } catch {
    const kib = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' }));
    return { rssMb: (kib * BYTES_PER_KIB) / KB_PER_MB / 1_000, pssMb: null };
  }
}

/** The most that a process has had resident until now, or null when it has ended or the system does not tell. */
export function peakRssMb(pid) {
  try {
    const peak = field(readFileSync(`/proc/${pid}/status`, 'utf8'), 'VmHWM');
    return Number.isNaN(peak) ? null : peak;
  } catch {
    return null;
  }
}

function field(text, name) {
  const kib = Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]);
  return (kib * BYTES_PER_KIB) / KB_PER_MB / 1_000;
}
