/**
 * Where documents come from, through a real atlasd: what a second run, a redo on the same worker and a known hash cost.
 * What was downloaded is counted by the server of the document.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { PROCESS_DOCUMENT_WORKFLOW, type DocumentRequest, type DocumentResult } from '../../src/contract/document.js';
import { findError } from '../../src/contract/errors.js';
import { restartAtlasd, startAtlasd, temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { serve } from '../support/document-server.js';
import { eventually } from '../support/fixtures.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { makePdf } from '../support/pdf.js';
import { useClient } from '../support/server.js';

const PDF = makePdf([
  ['The harbour has forty berths on a coast with few safe places to land.', 'It is quiet in winter.'],
  ['The harbour master is the only person who may give a berth away.'],
]);
const SHA256 = createHash('sha256').update(PDF).digest('hex');
const ARGS = ['--document-allow-urls', '127.0.0.0/8'];

/** Serves the document, and answers whoever has its version that it is still that. */
async function serveDocument(): Promise<{ url: string; sent: () => number; statuses: number[] }> {
  let sent = 0;
  const statuses: number[] = [];
  const url = await serve((request, response) => {
    const headers = { etag: '"one"' };
    const isKnown = request.headers['if-none-match'] === headers.etag;
    statuses.push(isKnown ? 304 : 200);
    if (isKnown) {
      response.writeHead(304, headers).end();
      return;
    }
    sent += PDF.length;
    response.writeHead(200, { ...headers, 'content-length': PDF.length }).end(PDF);
  });
  return { url: `${url}/report.pdf?key=hidden`, sent: () => sent, statuses };
}

describe('the source of a document', () => {
  const client = useClient();

  async function start(fleet: string, request: DocumentRequest): Promise<WorkflowHandle> {
    return await client().workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
      taskQueue: fleet,
      workflowId: uniqueId('document'),
      args: [request],
      workflowExecutionTimeout: '3 minutes',
    });
  }

  async function reportOf(worker: Atlasd, result: DocumentResult): Promise<unknown> {
    const path = join(worker.stateDirectory, 'kept', result.artifacts.id, 'report.json');
    return JSON.parse(await readFile(path, 'utf8'));
  }

  it('is asked once: a second run, and one that knows the hash, take the document from the cache', async () => {
    const fleet = uniqueFleet();
    const stateDirectory = await temporaryDirectory();
    const old = join(stateDirectory, 'cache', 'old');
    await mkdir(join(stateDirectory, 'cache'), { mode: 0o700 });
    await writeFile(old, '');
    await utimes(old, 1, 1);
    const worker = await startAtlasd({ fleet, args: ARGS, stateDirectory });
    // What nobody has used for a day is not there for the first run either.
    await worker.event('sweep-cache', ({ deleted }) => JSON.stringify(deleted) === '["old"]');
    const { url, sent, statuses } = await serveDocument();
    const runOf = async (source: DocumentRequest['source']): Promise<DocumentResult> =>
      (await (await start(fleet, { source })).result()) as DocumentResult;

    const first = await runOf({ kind: 'url', url });
    expect(await reportOf(worker, first)).toMatchObject({ document: { cached: false } });
    const second = await runOf({ kind: 'url', url });
    expect(second).toMatchObject({ sha256: SHA256, pages: { total: 2, text: 2 } });
    expect(await reportOf(worker, second)).toMatchObject({ document: { cached: true } });
    expect(statuses).toEqual([200, 304]);
    await runOf({ kind: 'url', url, sha256: SHA256 });
    expect(statuses).toEqual([200, 304]);
    expect(sent()).toBe(PDF.length);

    const cache = join(stateDirectory, 'cache');
    const names = await readdir(cache);
    expect(names).toContain(`document-${SHA256}`);
    expect(names).toHaveLength(2);
    // The scratch of a session is deleted once its slot is free, which the end of its workflow does not wait for.
    await eventually(async () => (await stat(join(cache, `document-${SHA256}`))).nlink === 1, {
      what: 'no scratch has the document any more',
    });

    const failed = start(fleet, { source: { kind: 'url', url, sha256: '0'.repeat(64) } }).then((run) => run.result());
    const error = await failed.catch((thrown: unknown) => thrown);
    expect(findError(error)).toMatchObject({ code: 'SourceChanged' });
    expect(sent()).toBe(2 * PDF.length);
  });

  it('is not asked again by a redo on the same worker', async () => {
    const fleet = uniqueFleet();
    const worker = await startAtlasd({ fleet, args: ARGS });
    const { url, sent } = await serveDocument();
    let holds = true;
    let held = 0;
    const deliverTo = await serve((request, response) => {
      held += 1;
      if (holds) return;
      request.resume().on('end', () => void response.writeHead(204).end());
    });
    const handle = await start(fleet, {
      source: { kind: 'url', url },
      deliverTo: { url: deliverTo, token: 'token' },
    });
    await eventually(() => Promise.resolve(held > 0), { what: 'the last step' });
    await worker.killAll();
    // The sequence can not go on without its files, so it begins anew, with no other worker to choose.
    const scratch = join(worker.stateDirectory, 'scratch');
    for (const name of await readdir(scratch)) await rm(join(scratch, name), { recursive: true });
    holds = false;
    const again = await restartAtlasd(worker, { args: ARGS });
    const result = (await handle.result()) as DocumentResult;
    expect(result).toMatchObject({ sessionAttempts: 2, delivered: true, sha256: SHA256 });
    expect(await reportOf(again, result)).toMatchObject({ document: { cached: true } });
    expect(sent()).toBe(PDF.length);
  });
});
