/** Makes small zip archives to read back. */
import { deflateRawSync } from 'node:zlib';

export interface ZipInput {
  readonly name: string;
  readonly data: Buffer;
  readonly store?: boolean;
}

export function makeZip(files: readonly ZipInput[], comment = ''): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, data, store } of files) {
    const content = store === true ? data : deflateRawSync(data);
    const method = store === true ? 0 : 8;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(method, 8);
    local.writeUInt32LE(content.length, 18);
    local.writeUInt32LE(data.length, 22);
    local.writeUInt16LE(name.length, 26);
    // An extra field that only the local header has: readers must not take the directory's length for it.
    local.writeUInt16LE(4, 28);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(method, 10);
    entry.writeUInt32LE(content.length, 20);
    entry.writeUInt32LE(data.length, 24);
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt32LE(offset, 42);
    const part = Buffer.concat([local, Buffer.from(name), Buffer.alloc(4), content]);
    parts.push(part);
    directory.push(entry, Buffer.from(name));
    offset += part.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(entries.length, 12);
  end.writeUInt32LE(offset, 16);
  end.writeUInt16LE(comment.length, 20);
  return Buffer.concat([...parts, entries, end, Buffer.from(comment)]);
}
