/** A web server on the loopback interface from which a worker fetches documents. Ends with the test. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** Answers with this listener; resolves to the address, without a slash at its end. */
export async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export interface ServedFile {
  readonly url: string;
  readonly size: number;
  /** Bytes of bodies sent. */
  readonly sent: () => number;
}

/** Serves one file, whole each time, and counts what it sends. */
export async function serveFile(path: string): Promise<ServedFile> {
  let sent = 0;
  const { size } = await stat(path);
  const address = await serve((_, response) => {
    response.writeHead(200, { 'content-type': 'application/pdf', 'content-length': size });
    const file = createReadStream(path);
    file.on('data', (chunk) => {
      sent += chunk.length;
    });
    file.pipe(response);
  });
  return { url: `${address}/document.pdf`, size, sent: () => sent };
}

/** Serves these files by their names; resolves to the address they are under, without a slash at its end. */
export async function serveDocuments(files: Readonly<Record<string, Buffer>>): Promise<string> {
  return await serve((request, response) => {
    const body = files[(request.url ?? '/').slice(1)];
    if (body === undefined) response.writeHead(404).end();
    else response.writeHead(200, { 'content-type': 'application/pdf', 'content-length': body.length }).end(body);
  });
}

/** A port of the loopback interface on which nothing listens. */
export async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
