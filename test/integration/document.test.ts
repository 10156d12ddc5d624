/**
 * The document job through real atlasd processes: the demo's document from end to end, and what a death of the worker in
 * the middle of it costs. What was downloaded is counted by the server of the document.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { PROCESS_DOCUMENT_WORKFLOW, type DocumentRequest, type DocumentResult } from '../../src/contract/document.js';
import { restartAtlasd, startAtlasd, type Atlasd } from '../support/atlasd.js';
import { serveFile } from '../support/document-server.js';
import { uniqueFleet, uniqueId } from '../support/fleet.js';
import { eventually, sessionsOf } from '../support/fixtures.js';
import { activitiesOf } from '../support/history.js';
import { watchOcr } from '../support/recognitions.js';
import { useClient } from '../support/server.js';

const SAMPLE = fileURLToPath(new URL('../../examples/sample.pdf', import.meta.url));
/** tesseract.js is on every machine. */
const ARGS = ['--document-allow-urls', '127.0.0.0/8', '--document-ocr-engine', 'npm'];

describe('the document job', () => {
  const client = useClient();

  async function start(fleet: string, request: DocumentRequest): Promise<WorkflowHandle> {
    return await client().workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
      taskQueue: fleet,
      workflowId: uniqueId('document'),
      args: [request],
      workflowExecutionTimeout: '3 minutes',
    });
  }

  /** Until pages are being read on some worker, by what its presence says; returns its name. With OCR that is held. */
  async function untilReading(fleet: string): Promise<string> {
    return await eventually(
      async () =>
        (await sessionsOf(client(), fleet)).find(({ step }) => step?.activity === 'extractPages')?.worker ?? undefined,
      { what: 'pages are being read' },
    );
  }

  async function artifacts(worker: Atlasd, result: DocumentResult): Promise<Map<string, string>> {
    const folder = join(worker.stateDirectory, 'kept', result.artifacts.id);
    const files = new Map<string, string>();
    for (const { name, bytes, sha256 } of result.artifacts.files) {
      const content = await readFile(join(folder, name));
      expect(content.length).toBe(bytes);
      expect(createHash('sha256').update(content).digest('hex')).toBe(sha256);
      files.set(name, content.toString('utf8'));
    }
    return files;
  }

  it('reads the sample on one worker, and nothing of its text is in the history', async () => {
    const fleet = uniqueFleet();
    const worker = await startAtlasd({ fleet, args: ARGS });
    const { url, sent } = await serveFile(SAMPLE);
    const handle = await start(fleet, { source: { kind: 'url', url } });
    const result = (await handle.result()) as DocumentResult;

    expect(result).toMatchObject({
      pages: { total: 5, text: 3, ocr: 2, failed: 0 },
      engine: 'npm',
      sessionAttempts: 1,
    });
    expect(sent()).toBe((await stat(SAMPLE)).size);
    const files = await artifacts(worker, result);
    expect([...files.keys()].sort()).toEqual(['pages.jsonl', 'report.json', 'summary.md', 'text.txt']);
    const pages = files
      .get('pages.jsonl')!
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { page: number; method: string; text: string });
    expect(pages.map(({ page, method }) => `${page} ${method}`)).toEqual([
      '1 text',
      '2 text',
      '3 ocr',
      '4 text',
      '5 ocr',
    ]);

    const pinned = (await activitiesOf(handle)).filter(({ type }) => !type.startsWith('atlas:'));
    expect(pinned.map(({ type }) => type)).toEqual([
      'downloadDocument',
      'extractPages',
      'summarizeDocument',
      'deliverDocument',
    ]);
    expect(new Set(pinned.map(({ queue }) => queue)).size).toBe(1);
    const history = JSON.stringify(await handle.fetchHistory());
    const sentence = pages[0]!.text.split('\n')[2]!;
    expect(sentence.length).toBeGreaterThan(20);
    const encoded = Buffer.from(sentence).toString('base64').slice(4, -4);
    expect(history).not.toContain(sentence);
    expect(history).not.toContain(encoded);
    // The worker deletes them once the run has ended.
    await eventually(async () => (await readdir(join(worker.stateDirectory, 'scratch'))).length === 0, {
      what: 'no working file is left',
    });
  });

  it('downloads nothing twice when atlasd is killed with -9 during OCR and restarted within the TTL', async () => {
    const fleet = uniqueFleet();
    const ocr = await watchOcr('npm', { holdsFrom: 1 });
    // The TTL is that of the lease: a start may take longer than the fleet waits for the presence of a worker by default.
    const args = [...ARGS, '--presence-ttl', '60s'];
    const worker = await startAtlasd({ fleet, args, env: ocr.env });
    const { url, sent } = await serveFile(SAMPLE);
    const handle = await start(fleet, { source: { kind: 'url', url }, leaseTtlMs: 60_000 });
    await untilReading(fleet);
    await worker.killAll();
    await ocr.letGo();
    const again = await restartAtlasd(worker, { args, env: ocr.env });

    const result = (await handle.result()) as DocumentResult;
    expect(result).toMatchObject({ pages: { total: 5, failed: 0 }, sessionAttempts: 1 });
    expect(sent()).toBe((await stat(SAMPLE)).size);
    const activities = await activitiesOf(handle);
    expect(activities.filter(({ type }) => type === 'downloadDocument')).toHaveLength(1);
    expect(activities.filter(({ type }) => type === 'atlas:acquireWorker')).toHaveLength(1);
    expect(activities.find(({ type }) => type === 'extractPages')!.attempt).toBeGreaterThan(1);
    await artifacts(again, result);
  });

  it('redoes the whole sequence on a second worker when the first never comes back', async () => {
    const fleet = uniqueFleet();
    const workers = new Map<string, Atlasd>();
    const { env, letGo } = await watchOcr('npm', { holdsFrom: 1 });
    for (const name of ['a', 'b']) workers.set(name, await startAtlasd({ fleet, name, args: ARGS, env }));
    const { url, sent } = await serveFile(SAMPLE);
    const handle = await start(fleet, { source: { kind: 'url', url } });
    const dead = await untilReading(fleet);
    await workers.get(dead)!.killAll();
    await letGo();

    const result = (await handle.result()) as DocumentResult;
    const other = dead === 'a' ? 'b' : 'a';
    expect(result).toMatchObject({ sessionAttempts: 2, artifacts: { worker: other }, pages: { total: 5, failed: 0 } });
    expect(sent()).toBe(2 * (await stat(SAMPLE)).size);
    const downloads = (await activitiesOf(handle)).filter(({ type }) => type === 'downloadDocument');
    expect(downloads.map(({ queue }) => queue.split('.')[0])).toEqual([`${fleet}-${dead}`, `${fleet}-${other}`]);
    await artifacts(workers.get(other)!, result);
  });
});
