/**
 * The thread of tesseract.js: its own code with other hands, which leave nothing behind. With those that it brings, the
 * language data stays in the thread three times, as packed, as unpacked and as a file of its file system in memory, and
 * each picture once more; for a garbage collector that has little to do there and comes late.
 *
 * What it builds on is not public: `tesseract.js` is pinned for it.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { parentPort } from 'node:worker_threads';
import { gunzipSync } from 'node:zlib';
import { giveBack } from './thread.js';

/** The part of the file system of Emscripten that is used here. */
interface FileSystem {
  open(path: string, flags: number): object;
  write(stream: object, bytes: Uint8Array, offset: number, length: number, position: number, canOwn: boolean): number;
  close(stream: object): void;
  unlink(path: string): void;
  writeFile(path: string, data: Uint8Array | string): void;
}

interface Core {
  readonly FS: FileSystem;
}

interface Packet {
  readonly action: string;
}

interface Answer {
  readonly action: string;
  readonly status: string;
}

interface WorkerScript {
  setAdapter(adapter: object): void;
  dispatchHandlers(packet: Packet, send: (answer: Answer) => void): void;
}

type StartCore = (options: object) => Promise<Core>;

/** `O_WRONLY | O_CREAT | O_TRUNC` as Emscripten counts them. */
const WRITE_ANEW = 577;
/** The largest data of a language, unpacked. With less room it would be put together of many small pieces. */
const UNPACKED_BYTES = 32 * 1024 * 1024;

const require = createRequire(import.meta.url);
const script = require('tesseract.js/src/worker-script/index.js') as WorkerScript;
const getCore = require('tesseract.js/src/worker-script/node/getCore.js') as (...of: unknown[]) => Promise<StartCore>;

const port = parentPort;
if (port === null) throw new Error('This module is a thread of ocr-npm.js.');

/** The language data, as the files that the core has in memory; needed until it has read them. */
const data = new Map<string, Uint8Array>();
let fs: FileSystem | undefined;

script.setAdapter({
  async getCore(...of: unknown[]): Promise<StartCore> {
    const start = await getCore(...of);
    return async (options) => {
      const core = await start(options);
      fs = withoutCopies(core.FS);
      return core;
    };
  },
  /** It is a function for reading any file; the cache is not used. */
  readCache: readFile,
  gunzip(packed: Uint8Array): Uint8Array {
    const unpacked = gunzipSync(packed, { chunkSize: UNPACKED_BYTES });
    giveBack(packed);
    return unpacked;
  },
});

port.on('message', (packet: Packet) => {
  script.dispatchHandlers(packet, (answer) => {
    if (answer.action === 'initialize' && answer.status === 'resolve') forgetData();
    port.postMessage(answer);
  });
});

/** Files are the very bytes that they are written from. */
function withoutCopies(system: FileSystem): FileSystem {
  const { writeFile } = system;
  system.writeFile = (path, content) => {
    if (typeof content === 'string') {
      writeFile(path, content);
      return;
    }
    const stream = system.open(path, WRITE_ANEW);
    system.write(stream, content, 0, content.length, 0, true);
    system.close(stream);
    if (path.endsWith('.traineddata')) data.set(path, content);
  };
  return system;
}

function forgetData(): void {
  for (const [path, bytes] of data) {
    fs?.unlink(path);
    giveBack(bytes);
  }
  data.clear();
}
