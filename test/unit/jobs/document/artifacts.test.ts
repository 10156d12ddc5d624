import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deliverDocument, sendKeptArtifacts } from '../../../../src/jobs/document/activities.js';
import { ARTIFACT_NAMES } from '../../../../src/jobs/document/deliver/artifacts.js';
import { openSession, type TestSession } from '../../../support/document-session.js';

interface Received {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

let session: TestSession;
let server: Server;
let url: string;
let received: Received[];
let status: number;

beforeEach(async () => {
  session = await openSession();
  for (const name of ARTIFACT_NAMES) await writeFile(join(session.scratch, name), `content of ${name}`);
  received = [];
  status = 201;
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: Buffer.concat(chunks),
      });
      response.writeHead(status).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/runs/1/`;
});

afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await session.close();
});

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('delivering a document', () => {
  it('keeps the artifacts on the worker, with a reference that leads back to them', async () => {
    const { artifacts, delivered } = await session.run(deliverDocument, {});
    expect(delivered).toBe(false);
    expect(artifacts).toMatchObject({ id: '0123-run', worker: 'worker-1', queue: 'atlas-worker-1.test' });
    expect(artifacts.files.map(({ name }) => name)).toEqual([...ARTIFACT_NAMES]);
    expect(artifacts.files[0]).toEqual({
      name: 'pages.jsonl',
      bytes: 22,
      sha256: sha256('content of pages.jsonl'),
    });
    expect(artifacts.keptUntilMs).toBeGreaterThan(Date.now());
    const folder = join(session.worker.keptDirectory, artifacts.id);
    expect((await readdir(folder)).toSorted()).toEqual([...ARTIFACT_NAMES].toSorted());
  });

  it('may be repeated, also after an attempt that was killed half-way', async () => {
    const first = await session.run(deliverDocument, {});
    await mkdir(join(session.worker.keptDirectory, '.0123-run.999999.tmp'));
    await writeFile(join(session.scratch, 'summary.md'), 'another');
    const second = await session.run(deliverDocument, {});
    expect(second.artifacts.id).toBe(first.artifacts.id);
    expect(await readdir(session.worker.keptDirectory)).toEqual(['0123-run']);
    expect(await readFile(join(session.worker.keptDirectory, '0123-run', 'summary.md'), 'utf8')).toBe('another');
  });

  it('sends each file with its hash, its length and the token', async () => {
    const result = await session.run(deliverDocument, { deliverTo: { url, token: 'secret' } });
    expect(result.delivered).toBe(true);
    expect(received.map((request) => [request.method, request.url])).toEqual(
      ARTIFACT_NAMES.map((name) => ['PUT', `/runs/1/${name}`]),
    );
    for (const request of received) {
      expect(request.headers.authorization).toBe('Bearer secret');
      expect(request.headers['content-length']).toBe(String(request.body.length));
      expect(request.headers['x-atlas-sha256']).toBe(sha256(request.body.toString()));
    }
    expect(session.reports.at(-1)).toMatchObject({ done: 4, total: 4, unit: 'files' });
  });

  it('does not fail when nobody is there to take them', async () => {
    server.close();
    await once(server, 'close');
    const result = await session.run(deliverDocument, { deliverTo: { url, token: 'secret' } });
    expect(result.delivered).toBe(false);
    expect(result.deliveryError).toContain('the connection was refused');
    expect(result.artifacts.files).toHaveLength(4);
  });

  it('does not fail when they are refused', async () => {
    status = 507;
    const result = await session.run(deliverDocument, { deliverTo: { url, token: 'secret' } });
    expect(result).toMatchObject({ delivered: false, deliveryError: expect.stringContaining('507') as string });
  });

  it('sends nothing to an address that is not listed', async () => {
    const result = await session.run(deliverDocument, {
      deliverTo: { url: 'http://169.254.169.254/latest', token: 'secret' },
    });
    expect(result.delivered).toBe(false);
    expect(result.deliveryError).toContain('169.254.169.254');
  });
});

describe('sending kept artifacts', () => {
  it('needs no session', async () => {
    const { artifacts } = await session.run(deliverDocument, {});
    await rm(session.scratch, { recursive: true });
    expect(await session.runOnWorker(sendKeptArtifacts, { artifacts, deliverTo: { url, token: 'later' } })).toEqual({
      files: 4,
    });
    expect(received).toHaveLength(4);
    expect(received[3]?.body.toString()).toBe('content of summary.md');
  });

  it('says when they are gone', async () => {
    const { artifacts } = await session.run(deliverDocument, {});
    await rm(join(session.worker.keptDirectory, artifacts.id), { recursive: true });
    await expect(
      session.runOnWorker(sendKeptArtifacts, { artifacts, deliverTo: { url, token: 'later' } }),
    ).rejects.toMatchObject({ type: 'ArtifactsGone', nonRetryable: true });
  });

  it('may be retried when they can not be sent', async () => {
    const { artifacts } = await session.run(deliverDocument, {});
    status = 500;
    await expect(
      session.runOnWorker(sendKeptArtifacts, { artifacts, deliverTo: { url, token: 'later' } }),
    ).rejects.toMatchObject({ type: 'DeliveryFailed', nonRetryable: false });
  });

  it.each([
    ['id', { id: '../scratch' }],
    ['id', { id: '.' }],
    ['name', { files: [{ name: '../../secret', bytes: 1, sha256: '' }] }],
  ])('reads nothing outside of the kept directory (%s)', async (_what, change) => {
    const { artifacts } = await session.run(deliverDocument, {});
    await expect(
      session.runOnWorker(sendKeptArtifacts, {
        artifacts: { ...artifacts, ...change },
        deliverTo: { url, token: 'later' },
      }),
    ).rejects.toMatchObject({ type: 'ArtifactsGone' });
    expect(received).toEqual([]);
  });
});
