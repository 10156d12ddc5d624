/**
 * Reads one file out of a Python wheel, which is a zip archive, with what Node has built in.
 *
 * Owns the part of the zip format that wheels use: stored and deflated entries, no encryption, below 4 GiB. The caller
 * has checked the archive's hash; the checks here are for a readable error, not for security.
 */
import { createWriteStream } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createInflateRaw } from 'node:zlib';

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
/** A zip comment, which follows the end record, has a 16 bit length. */
const MAX_COMMENT_BYTES = 0xffff;
/** More than any wheel has; keeps a damaged length from becoming an allocation. */
const MAX_DIRECTORY_BYTES = 16 * 1024 * 1024;

export interface ZipEntry {
  readonly name: string;
  readonly method: number;
  readonly compressedBytes: number;
  readonly bytes: number;
  readonly headerOffset: number;
}

/**
 * Writes the first entry whose name matches to a file.
 *
 * @throws an Error that says what is wrong with the archive.
 */
export async function extractEntry(
  archive: string,
  matches: (name: string) => boolean,
  target: string,
  options: { readonly mode: number; readonly signal?: AbortSignal | undefined },
): Promise<ZipEntry> {
  const handle = await open(archive, 'r');
  try {
    const entries = await readDirectory(handle);
    const entry = entries.find(({ name }) => matches(name));
    if (entry === undefined)
      throw new Error(`the archive does not have the file looked for (${entries.length} others)`);
    if (entry.method !== 0 && entry.method !== 8)
      throw new Error(`compression method ${entry.method} is not supported`);

    const local = await readExactly(handle, entry.headerOffset, LOCAL_BYTES);
    if (local.readUInt32LE(0) !== LOCAL_SIGNATURE) throw new Error('the header of the file in the archive is damaged');
    // The name and extra field are repeated here, and their lengths may differ from those in the directory.
    const start = entry.headerOffset + LOCAL_BYTES + local.readUInt16LE(26) + local.readUInt16LE(28);

    const source = handle.createReadStream({
      start,
      end: start + entry.compressedBytes - 1,
      autoClose: false,
      highWaterMark: 1024 * 1024,
    });
    const sink = createWriteStream(target, { mode: options.mode, flush: true });
    const pipelineOptions = options.signal === undefined ? {} : { signal: options.signal };
    if (entry.method === 8) await pipeline(source, createInflateRaw(), sink, pipelineOptions);
    else await pipeline(source, sink, pipelineOptions);
    if (sink.bytesWritten !== entry.bytes) {
      throw new Error(`the file in the archive has ${sink.bytesWritten} bytes instead of ${entry.bytes}`);
    }
    return entry;
  } finally {
    await handle.close();
  }
}

async function readDirectory(handle: FileHandle): Promise<ZipEntry[]> {
  const { size } = await handle.stat();
  const tailBytes = Math.min(size, END_BYTES + MAX_COMMENT_BYTES);
  const tail = await readExactly(handle, size - tailBytes, tailBytes);
  let end = tail.length - END_BYTES;
  while (end >= 0 && tail.readUInt32LE(end) !== END_SIGNATURE) end -= 1;
  if (end < 0) throw new Error('the file is not a zip archive, or is cut off');

  const count = tail.readUInt16LE(end + 10);
  const directoryBytes = tail.readUInt32LE(end + 12);
  const directoryOffset = tail.readUInt32LE(end + 16);
  if (directoryBytes > MAX_DIRECTORY_BYTES) throw new Error('the directory of the archive is too large');

  const directory = await readExactly(handle, directoryOffset, directoryBytes);
  const entries: ZipEntry[] = [];
  let at = 0;
  for (let index = 0; index < count; index += 1) {
    if (at + ENTRY_BYTES > directory.length || directory.readUInt32LE(at) !== ENTRY_SIGNATURE) {
      throw new Error('the directory of the archive is damaged');
    }
    const nameBytes = directory.readUInt16LE(at + 28);
    entries.push({
      method: directory.readUInt16LE(at + 10),
      compressedBytes: directory.readUInt32LE(at + 20),
      bytes: directory.readUInt32LE(at + 24),
      headerOffset: directory.readUInt32LE(at + 42),
      name: directory.toString('utf8', at + ENTRY_BYTES, at + ENTRY_BYTES + nameBytes),
    });
    at += ENTRY_BYTES + nameBytes + directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32);
  }
  return entries;
}

async function readExactly(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) throw new Error('the archive is cut off');
    done += bytesRead;
  }
  return buffer;
}
