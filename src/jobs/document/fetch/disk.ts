/**
 * Room on the disk that documents are written to. Asks how much there is, and has what can be fetched again deleted
 * before it says that there is too little.
 */
import { statfs } from 'node:fs/promises';
import { failure } from '../failure.js';

/** Room that is left free on the disk for everything else: the artifacts, the ledger of the daemon. */
export const DISK_RESERVE_BYTES = 64 * 1024 * 1024;

export interface Disk {
  readonly directory: string;
  /** Bytes that may still be written. */
  free(): Promise<number>;
  /** Deletes what can be fetched again until this much is free, as far as there is any. */
  makeRoom(bytes: number): Promise<void>;
}

/** The disk that a directory is on, with nothing on it that could be deleted unless the caller knows of something. */
export function diskOf(
  directory: string,
  makeRoom: (bytes: number, disk: Disk) => Promise<void> = () => Promise.resolve(),
): Disk {
  const disk: Disk = {
    directory,
    async free() {
      const { bavail, bsize } = await statfs(directory);
      return bavail * bsize;
    },
    makeRoom: (bytes) => makeRoom(bytes, disk),
  };
  return disk;
}

/** @throws ApplicationFailure `OutOfDisk` when the disk has not the room that is needed, plus a reserve. */
export async function requireRoom(disk: Disk, neededBytes: number): Promise<void> {
  const wanted = neededBytes + DISK_RESERVE_BYTES;
  if ((await disk.free()) >= wanted) return;
  await disk.makeRoom(wanted);
  const free = await disk.free();
  if (free >= wanted) return;
  throw failure(
    'OutOfDisk',
    `The document needs ${neededBytes} bytes in ${disk.directory}, which has ${free} left (${DISK_RESERVE_BYTES} are kept free).`,
  );
}
