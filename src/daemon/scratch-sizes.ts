/** What the scratch directories of sessions take on disk, measured now and then for those who look at the fleet. */
import { opendir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A directory with more entries than this is measured as far as that: the figure is then a lower bound. */
const MAX_ENTRIES = 20_000;

export class ScratchSizes {
  private readonly bytesByKey = new Map<string, number>();
  private measuring = false;

  constructor(private readonly directory: (key: string) => string) {}

  /** Null where it was not measured yet. */
  of(key: string): number | null {
    return this.bytesByKey.get(key) ?? null;
  }

  /** Measures one directory after the other, so that the disk has little of it. A call while one runs does nothing. */
  async measure(keys: readonly string[]): Promise<void> {
    if (this.measuring) return;
    this.measuring = true;
    try {
      for (const known of [...this.bytesByKey.keys()]) if (!keys.includes(known)) this.bytesByKey.delete(known);
      for (const key of keys) {
        const bytes = await sizeOf(this.directory(key));
        if (bytes !== null) this.bytesByKey.set(key, bytes);
      }
    } finally {
      this.measuring = false;
    }
  }
}

/** Bytes on disk of a directory tree; null where it is gone or can not be read. */
async function sizeOf(directory: string): Promise<number | null> {
  let bytes = 0;
  let entries = 0;
  const pending = [directory];
  try {
    for (let path = pending.pop(); path !== undefined && entries < MAX_ENTRIES; path = pending.pop()) {
      for await (const entry of await opendir(path)) {
        entries += 1;
        if (entries > MAX_ENTRIES) break;
        const child = join(path, entry.name);
        if (entry.isDirectory()) pending.push(child);
        // Files come and go while the session works.
        else
          bytes += await stat(child).then(
            ({ blocks }) => blocks * 512,
            () => 0,
          );
      }
    }
    return bytes;
  } catch {
    // Released while it was measured, or unreadable: not known, which is what null says.
    return null;
  }
}
