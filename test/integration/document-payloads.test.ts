/**
 * What runs of the document job leave in Temporal, where every reader of histories sees it and every byte is kept: small
 * payloads, nothing of the document, and no secret of an address outside of the input.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkflowHandle } from '@temporalio/client';
import { describe, expect, it, onTestFinished } from 'vitest';
import { PROCESS_DOCUMENT_WORKFLOW, type DocumentResult } from '../../src/contract/document.js';
import { findError } from '../../src/contract/errors.js';
import { startAtlasd, temporaryDirectory, type Atlasd } from '../support/atlasd.js';
import { uniqueId } from '../support/fleet.js';
import { storedOf, type StoredRun } from '../support/payloads.js';
import { makeDamagedPdf, makePdf, type TestPage } from '../support/pdf.js';
import { useClient } from '../support/server.js';

const MAX_PAYLOAD_BYTES = 64 * 1024;
const MAX_MESSAGE_CHARACTERS = 1_001;
const PAGES = 700;
const SENTENCE = 'Forty berths lie along the northern quay of the harbour';
const BOOKMARK = 'The secret chapter on smugglers';
const SIGNATURE = 'X-Signature=5ecre7';
const USER = 'harbourmaster:5wordf1sh';
const SECRETS = /5ecre7|5wordf1sh/;
const LONG_NAME = `${'annual-report-of-the-harbour-'.repeat(8)}.pdf`;
/** Longer than any message that goes into a history may be. */
const LONG_TEXT = 'far too long '.repeat(8_000);

/** A text page for each number, in a document with a bookmark. The reader mends the table of its objects. */
function bookmarkedPdf(): Buffer {
  const pages = Array.from({ length: PAGES }, (_, index): TestPage => [`${SENTENCE}, says page ${index + 1}.`]);
  const outline =
    `9000 0 obj\n<< /Type /Outlines /First 9001 0 R /Last 9001 0 R /Count 1 >>\nendobj\n` +
    `9001 0 obj\n<< /Title (${BOOKMARK}) /Parent 9000 0 R /Dest [5 0 R /Fit] >>\nendobj\n`;
  const plain = makePdf(pages).toString('latin1');
  return Buffer.from(
    plain.replace('/Type /Catalog', '/Type /Catalog /Outlines 9000 0 R').replace('\nxref\n', `\n${outline}xref\n`),
    'latin1',
  );
}

/** A tesseract that fails on every page, at length. */
async function failingTesseract(): Promise<string> {
  const directory = await temporaryDirectory();
  const bin = join(directory, 'bin');
  await mkdir(bin);
  await writeFile(join(directory, 'message'), LONG_TEXT);
  const script = `#!/bin/sh\ncase "$1" in --version) echo "tesseract 5";; --list-langs) echo eng;; *) cat >/dev/null; cat '${directory}/message' >&2; exit 1;; esac\n`;
  await writeFile(join(bin, 'tesseract'), script);
  await chmod(join(bin, 'tesseract'), 0o755);
  return `${bin}:${process.env['PATH'] ?? ''}`;
}

/** Serves documents whatever their address, and has much to say of what it has not. */
async function serve(documents: Readonly<Record<string, Buffer>>): Promise<string> {
  const server = createServer((request, response) => {
    const name = Object.keys(documents).find((each) => request.url?.startsWith(`/${each}`));
    const content = name === undefined ? undefined : documents[name];
    if (content === undefined) response.writeHead(404, LONG_TEXT.slice(0, 9_000)).end();
    else response.writeHead(200, { 'content-length': content.length }).end(content);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('the history of a run', { timeout: 180_000 }, () => {
  const client = useClient();

  async function start({ fleet }: Atlasd, url: string): Promise<WorkflowHandle> {
    return await client().workflow.start(PROCESS_DOCUMENT_WORKFLOW, {
      taskQueue: fleet,
      workflowId: uniqueId('document'),
      args: [{ source: { kind: 'url', url } }],
      workflowExecutionTimeout: '3 minutes',
    });
  }

  /** Nothing in it is large, of the document, or a secret that is not in the input. */
  function expectSmallAndSilent(name: string, { payloads, text }: StoredRun): void {
    expect(payloads.length, name).toBeGreaterThan(10);
    for (const { place, bytes } of payloads) expect(bytes, `${name}: ${place}`).toBeLessThan(MAX_PAYLOAD_BYTES);
    expect(text, name).not.toContain(SENTENCE);
    expect(text, name).not.toContain(BOOKMARK);
    const isInput = /(workflowExecutionStarted|activityTaskScheduled)EventAttributes\.input\./;
    const repeated = payloads.filter(({ place, text: content }) => !isInput.test(place) && SECRETS.test(content));
    expect(
      repeated.map(({ place }) => place),
      name,
    ).toEqual([]);
    // What is not in a payload: messages and stacks of failures, names.
    const inputs = payloads.filter(({ place }) => isInput.test(place)).map((payload) => payload.text);
    const outside = inputs.reduce((rest, input) => rest.replace(input, ''), text);
    expect(outside, name).not.toMatch(SECRETS);
  }

  it('is small and silent, whatever the document and its server are like', async () => {
    const worker = await startAtlasd({
      args: ['--document-allow-urls', '127.0.0.0/8', '--document-ocr-engine', 'native', '--max-sessions', '4'],
      env: { PATH: await failingTesseract() },
    });
    const host = await serve({
      [LONG_NAME]: bookmarkedPdf(),
      'damaged.pdf': makeDamagedPdf(Array.from({ length: PAGES }, (): TestPage => [SENTENCE])),
      'scans.pdf': makePdf([...Array.from({ length: 4 }, (): TestPage => ({ image: 'stripes' })), [SENTENCE]]),
    });
    const query = `${SIGNATURE}&${'padding=1&'.repeat(900)}`;
    const runs = {
      'with many pages': await start(worker, `http://${USER}@${host}/${LONG_NAME}?${query}`),
      'with many broken pages': await start(worker, `http://${USER}@${host}/damaged.pdf?${query}`),
      'with pages that fail at length': await start(worker, `http://${USER}@${host}/scans.pdf?${query}`),
      'at an address with nothing': await start(worker, `http://${USER}@${host}/missing/${'x'.repeat(9_000)}?${query}`),
      'at no address': await start(worker, `nonsense://${USER}@${host}/a.pdf?${query}`),
    };

    const result = (await runs['with many pages'].result()) as DocumentResult;
    expect(result.pages).toMatchObject({ total: PAGES, text: PAGES });
    expect(result.name).toBe(LONG_NAME.slice(0, 120));
    const ends: Record<string, readonly [code: string, message: RegExp]> = {
      'with many broken pages': ['PageFailed', /^351 of the 700 pages of damaged\.pdf could not be read/],
      'with pages that fail at length': ['PageFailed', /tesseract ended with exit code 1: far too long/],
      'at an address with nothing': ['SourceRefused', /^http:\/\/127\.0\.0\.1:\d+\/missing\/x+…$/],
      'at no address': ['SourceRefused', /^nonsense:\/\/.* is not an http or https address\.$/],
    };
    for (const [name, handle] of Object.entries(runs)) {
      const end = ends[name];
      if (end !== undefined) {
        const found = findError(await handle.result().catch((error: unknown) => error));
        expect(found?.code, name).toBe(end[0]);
        expect(found?.message, name).toMatch(end[1]);
        expect(found?.message.length, name).toBeLessThanOrEqual(MAX_MESSAGE_CHARACTERS);
      }
      expectSmallAndSilent(name, await storedOf(handle));
    }
  });
});
