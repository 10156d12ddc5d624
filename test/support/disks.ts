/** Small disks of their own for tests: where this process may mount a file system. */
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Whether a file system can be mounted here: root in a container often can not. */
export function canMount(): boolean {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return false;
  const place = join(tmpdir(), `at-probe-${process.pid}`);
  mkdirSync(place);
  try {
    mountDisk(place, 64 * 1024);
    unmountDisk(place);
    return true;
  } catch {
    return false;
  } finally {
    execFileSync('rmdir', [place]);
  }
}

export function mountDisk(place: string, bytes: number): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', place], { stdio: 'ignore' });
}

export function unmountDisk(place: string): void {
  execFileSync('umount', ['-l', place], { stdio: 'ignore' });
}
