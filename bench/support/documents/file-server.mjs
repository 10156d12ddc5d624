/**
 * Serves one file by HTTP, under whatever path, as fast as it can be read: `node file-server.mjs FILE`. A process of its
 * own, so that what it costs is not counted with what is measured. Writes its port when it listens.
 */
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { pipeline } from 'node:stream';

const CHUNK_BYTES = 1024 * 1024;

const file = process.argv[2];
const { size } = statSync(file);

const server = createServer((_request, response) => {
  response.writeHead(200, { 'content-type': 'application/pdf', 'content-length': size });
  // A client that goes away is its own affair.
  pipeline(createReadStream(file, { highWaterMark: CHUNK_BYTES }), response, () => undefined);
});
server.listen(0, '127.0.0.1', () => console.log(`PORT ${server.address().port}`));
