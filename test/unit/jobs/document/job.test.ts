/**
 * The steps one after the other, as the workflow calls them, on the sample and on every kind of bad input. OCR is that of
 * the npm packages here, which every host has; the engines are compared in `ocr.test.ts`.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile, readdir, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { DocumentSource } from '../../../../src/contract/document.js';
import { ERRORS, findError } from '../../../../src/contract/errors.js';
import { VERSION } from '../../../../src/contract/version.js';
import {
  deliverDocument,
  downloadDocument,
  extractPages,
  summarizeDocument,
} from '../../../../src/jobs/document/activities.js';
import type { ExtractedPages } from '../../../../src/jobs/document/steps.js';
import { openSession, type TestSession } from '../../../support/document-session.js';
import {
  makeEncryptedPdf,
  makePdf,
  makePdfWithBookmarks,
  makeUnknownEncryptionPdf,
  truncated,
} from '../../../support/pdf.js';

const SAMPLE = fileURLToPath(new URL('../../../../examples/sample.pdf', import.meta.url));
const TEXT_PDF = makePdf([
  ['The harbour has forty berths on a coast with few safe places to land.', 'It is quiet in winter.'],
  ['The harbour master is the only person who may give a berth away.'],
]);

let session: TestSession;

beforeEach(async () => {
  session = await openSession();
  vi.stubEnv('ATLAS_DOCUMENT_OCR_ENGINE', 'npm');
  vi.stubEnv('ATLAS_DOCUMENT_ALLOW_FILES', session.directory);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await session.close();
});

/** A file on the worker's disk, as the command line announces one. */
async function fileSource(content: Buffer, name = 'given.pdf'): Promise<Extract<DocumentSource, { kind: 'file' }>> {
  const path = join(session.directory, name);
  await writeFile(path, content);
  return { kind: 'file', path, bytes: content.length, sha256: createHash('sha256').update(content).digest('hex') };
}

async function upToPages(content: Buffer, language = 'eng'): Promise<ExtractedPages> {
  const document = await session.run(downloadDocument, await fileSource(content));
  return await session.run(extractPages, { document, language });
}

describe('a document', () => {
  it('goes through all steps and leaves artifacts, of which Temporal sees references only', async () => {
    const document = await session.run(downloadDocument, await fileSource(TEXT_PDF));
    expect(document).toMatchObject({ name: 'given.pdf', bytes: TEXT_PDF.length });
    const extracted = await session.run(extractPages, { document, language: 'eng' });
    expect(extracted).toEqual({ pages: { total: 2, text: 2, ocr: 0, failed: 0, empty: 0 }, engine: null });
    expect(await session.run(summarizeDocument, { document, sentences: 6 })).toEqual({ sentences: 2 });
    const { artifacts } = await session.run(deliverDocument, {});
    const kept = (name: string): Promise<string> =>
      readFile(join(session.worker.keptDirectory, artifacts.id, name), 'utf8');
    expect(await kept('summary.md')).toBe(
      [
        '# given.pdf',
        '',
        '2 pages: 2 from the text layer.',
        '',
        '- The harbour has forty berths on a coast with few safe places to land. (page 1)',
        '- The harbour master is the only person who may give a berth away. (page 2)',
        '',
      ].join('\n'),
    );
    expect((await kept('text.txt')).split('\f')).toHaveLength(2);
    const report = JSON.parse(await kept('report.json')) as Record<string, unknown>;
    expect(report).toMatchObject({
      report: 1,
      document: { name: 'given.pdf', sha256: document.sha256, source: 'file' },
      pages: { total: 2, text: 2 },
      versions: { pdfium: '2.15.1', node: process.versions.node },
      decisions: [
        { page: 1, method: 'text', why: 'text layer' },
        { page: 2, method: 'text' },
      ],
    });
    expect(report['artifacts']).toHaveLength(3);
    expect(session.reports).toContainEqual({ done: 2, total: 2, unit: 'pages' });
  });

  it('is not fetched again by a later attempt', async () => {
    let requests = 0;
    const server = await serve(() => {
      requests += 1;
      return TEXT_PDF;
    });
    const source: DocumentSource = {
      kind: 'served',
      url: `${server.url}/file`,
      token: 'secret',
      bytes: TEXT_PDF.length,
      sha256: createHash('sha256').update(TEXT_PDF).digest('hex'),
      name: '../My report.pdf',
    };
    const first = await session.run(downloadDocument, source);
    expect(first.name).toBe('My report.pdf');
    expect(await session.run(downloadDocument, source)).toEqual(first);
    expect(requests).toBe(1);
    expect((await stat(join(session.scratch, 'document.pdf'))).size).toBe(TEXT_PDF.length);
    server.close();
  });

  it('with bookmarks has its sections in the summary, and its outline and key phrases in the report', async () => {
    const chapter = (name: string, work: string): string[] => [
      `The harbour ${name} has a house of its own on the old quay.`,
      `Each day the harbour ${name} ${work} before the first boat comes in.`,
      `Nobody but the harbour ${name} may enter the little tower at night.`,
    ];
    const content = makePdfWithBookmarks(
      [chapter('master', 'writes the book'), chapter('pilot', 'reads the tide table')],
      [
        { title: 'The master', level: 1, page: 1 },
        { title: 'His tower', level: 2, page: 1 },
        { title: 'The *pilot*', level: 1, page: 2 },
      ],
    );
    const document = await session.run(downloadDocument, await fileSource(content));
    await session.run(extractPages, { document, language: 'eng' });
    await session.run(summarizeDocument, { document, sentences: 3 });
    const summary = await readFile(join(session.scratch, 'summary.md'), 'utf8');
    expect(summary.split('\n').filter((line) => line.startsWith('Key phrases: '))).toEqual([
      expect.stringContaining('harbour master'),
    ]);
    const [top, outline] = summary.split('## Outline\n');
    expect(top?.split('\n').filter((line) => line.startsWith('- '))).toHaveLength(3);
    expect(outline?.trim().split('\n')).toEqual([
      '- **The master** (page 1)',
      expect.stringMatching(/^ {2}- .+ harbour master .+\. \(page 1\)$/),
      '- **The *pilot*** (page 2)',
      expect.stringMatching(/^ {2}- .+ harbour pilot .+\. \(page 2\)$/),
    ]);
    const report = JSON.parse(await readFile(join(session.scratch, 'report.json'), 'utf8')) as Record<string, unknown>;
    expect(report).toMatchObject({
      versions: { atlas: VERSION, node: process.versions.node },
      timingsMs: { download: expect.any(Number), pages: expect.any(Number), summary: expect.any(Number) },
      summary: { sentences: 3, candidates: 6, language: 'en' },
      keyPhrases: expect.arrayContaining([expect.stringContaining('harbour master')]),
      outline: {
        entries: [
          { title: 'The master', level: 1, page: 1 },
          { title: 'His tower', level: 2, page: 1 },
          { title: 'The *pilot*', level: 1, page: 2 },
        ],
      },
      artifacts: ['pages.jsonl', 'text.txt', 'summary.md'].map((name) => ({
        name,
        sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      })),
    });
  });

  it('keeps its summary short when it has next to no text', async () => {
    const document = await session.run(downloadDocument, await fileSource(makePdf([['Invoice number 4711, paid']])));
    await session.run(extractPages, { document, language: 'eng' });
    await session.run(summarizeDocument, { document, sentences: 6 });
    expect(await readFile(join(session.scratch, 'summary.md'), 'utf8')).toContain('has no sentences');
  });
});

describe('bad input', () => {
  it.each([
    ['no bytes', 'EmptyFile', Buffer.alloc(0)],
    ['a web page', 'NotAPdf', Buffer.from('<!DOCTYPE html><html><body>Please log in</body></html>')],
    ['a cut file', 'TruncatedFile', truncated(TEXT_PDF)],
    ['a header and nothing else', 'InvalidPdf', Buffer.from('%PDF-1.4\n%%EOF\n')],
    ['no pages', 'EmptyDocument', makePdf([])],
    ['a password', 'PasswordRequired', makeEncryptedPdf({ method: 'rc4-128', user: 'secret' })],
    ['an unknown encryption', 'UnsupportedEncryption', makeUnknownEncryptionPdf()],
    ['blank scans', 'NothingReadable', makePdf([{ image: 'blank' }, { image: 'stripes' }])],
  ] as const)('with %s is %s', async (_what, code, content) => {
    const failed = upToPages(content);
    await expect(failed).rejects.toMatchObject({ type: code, nonRetryable: true });
    const found = findError(await failed.catch((error: unknown) => error));
    expect(found?.message).toContain('given.pdf');
    expect(found?.next).toBe(ERRORS[code].next);
  });

  it('quotes what is no PDF', async () => {
    await expect(upToPages(Buffer.from('<!DOCTYPE html>\n'))).rejects.toThrow('it begins with "<!DOCTYPE html>."');
  });

  it('without an end mark is taken when it opens all the same', async () => {
    const pdf = Buffer.from(TEXT_PDF.toString('latin1').replace('%%EOF', ''), 'latin1');
    expect((await upToPages(pdf)).pages.text).toBe(2);
  });

  it('with too many pages names the limit and the setting', async () => {
    vi.stubEnv('ATLAS_DOCUMENT_MAX_PAGES', '1');
    const failed = upToPages(TEXT_PDF);
    await expect(failed).rejects.toMatchObject({
      type: 'TooManyPages',
      message: 'given.pdf has 2 pages; this worker takes at most 1.',
      details: [{ next: expect.stringContaining('ATLAS_DOCUMENT_MAX_PAGES') as string }],
    });
  });

  it('over the size limit', async () => {
    vi.stubEnv('ATLAS_DOCUMENT_MAX_BYTES', '100');
    await expect(upToPages(TEXT_PDF)).rejects.toMatchObject({ type: 'TooLarge' });
  });

  it.each([
    ['tlh', 'tlh'],
    ['eng+tlh', 'tlh'],
  ])('in language %s names what to install', async (language, missing) => {
    await expect(upToPages(TEXT_PDF, language)).rejects.toMatchObject({
      type: 'ToolMissing',
      nonRetryable: true,
      message: `This worker has no OCR data for ${missing}.`,
      details: [{ next: expect.stringContaining(`@tesseract.js-data/${missing}`) as string }],
    });
  });

  it.each(['../../etc', 'eng;rm', '--psm', ''])('in language "%s" runs nothing', async (language) => {
    await expect(upToPages(TEXT_PDF, language)).rejects.toMatchObject({ type: 'ToolMissing' });
  });

  it('with a setting that is not valid names it', async () => {
    vi.stubEnv('ATLAS_DOCUMENT_MAX_PAGES', 'many');
    await expect(upToPages(TEXT_PDF)).rejects.toMatchObject({ type: 'ConfigInvalid', nonRetryable: true });
  });
});

describe('a file of the worker', () => {
  it('is refused when no directory is listed, whether it is there or not', async () => {
    vi.stubEnv('ATLAS_DOCUMENT_ALLOW_FILES', '');
    const source = await fileSource(TEXT_PDF);
    const missing = { ...source, path: join(session.directory, 'missing.pdf') };
    for (const given of [source, missing]) {
      await expect(session.run(downloadDocument, given)).rejects.toMatchObject({ type: 'FileRefused' });
    }
  });

  it.each(['link.pdf', 'sub/../../outside.pdf'])(
    'is refused as %s when it leads out of the directory',
    async (name) => {
      const source = await fileSource(TEXT_PDF, 'outside.pdf');
      const inner = await session.run(async () => {
        const { mkdir } = await import('node:fs/promises');
        await mkdir(join(session.directory, 'inner', 'sub'), { recursive: true });
        return join(session.directory, 'inner');
      });
      await symlink(source.path, join(inner, 'link.pdf'));
      vi.stubEnv('ATLAS_DOCUMENT_ALLOW_FILES', inner);
      await expect(session.run(downloadDocument, { ...source, path: join(inner, name) })).rejects.toMatchObject({
        type: 'FileRefused',
      });
      await expect(session.run(downloadDocument, { ...source, path: 'outside.pdf' })).rejects.toMatchObject({
        type: 'FileRefused',
      });
    },
  );

  it('that is missing from a listed directory is said to be missing', async () => {
    const source = await fileSource(TEXT_PDF);
    await expect(
      session.run(downloadDocument, { ...source, path: join(session.directory, 'missing.pdf') }),
    ).rejects.toMatchObject({ type: 'FileUnreadable' });
  });

  it.each([{ bytes: 1 }, { sha256: '0'.repeat(64) }])('that is another one than announced (%o)', async (change) => {
    const source = { ...(await fileSource(TEXT_PDF)), ...change };
    await expect(session.run(downloadDocument, source)).rejects.toMatchObject({ type: 'SourceChanged' });
  });
});

describe('an address', () => {
  it('that is not public is refused', async () => {
    const server = await serve(() => TEXT_PDF);
    await expect(session.run(downloadDocument, { kind: 'url', url: `${server.url}/a.pdf` })).rejects.toMatchObject({
      type: 'AddressRefused',
    });
    vi.stubEnv('ATLAS_DOCUMENT_ALLOW_URLS', '127.0.0.0/8');
    const document = await session.run(downloadDocument, { kind: 'url', url: `${server.url}/my%20file.pdf` });
    expect(document.name).toBe('my file.pdf');
    server.close();
  });

  it('that is none is refused', async () => {
    await expect(session.run(downloadDocument, { kind: 'url', url: 'not a url' })).rejects.toMatchObject({
      type: 'SourceRefused',
    });
  });
});

describe('the sample', () => {
  it('killed while its scans are read goes on at the missing page', async () => {
    const document = await session.run(downloadDocument, await fileSource(await readFile(SAMPLE)));
    session.onReport = (report) => {
      if (report.note === 'ocr') session.controller.abort(new Error('released'));
    };
    await expect(session.run(extractPages, { document, language: 'eng' })).rejects.toThrow('released');
    const done = (await readFile(join(session.scratch, 'pages.checkpoint'), 'utf8')).trimEnd().split('\n').slice(1);
    expect(done.length).toBeGreaterThanOrEqual(4);

    // Another session object over the same scratch disk: what a restarted executor sees.
    const again = await openSession();
    const { provide } = await import('../../../../src/activity/provider.js');
    const { MockActivityEnvironment } = await import('@temporalio/testing');
    const restarted = {
      id: 'session-1',
      workflowId: 'document-1',
      runId: '0123-run',
      capabilities: [],
      fencingToken: 1,
      scratchDirectory: session.scratch,
      state: 'disk' as const,
      memory: new Map<string, unknown>(),
      signal: again.controller.signal,
      worker: session.worker,
    };
    const result = await provide({ worker: session.worker, session: restarted }, () =>
      new MockActivityEnvironment().run(extractPages, { document, language: 'eng' }),
    );
    expect(result).toEqual({ pages: { total: 5, text: 3, ocr: 2, failed: 0, empty: 0 }, engine: 'npm' });
    const lines = (await readFile(join(session.scratch, 'pages.checkpoint'), 'utf8')).trimEnd().split('\n').slice(1);
    expect(lines.slice(0, done.length)).toEqual(done);
    expect(lines.map((line) => (JSON.parse(line) as { page: number }).page).toSorted()).toEqual([1, 2, 3, 4, 5]);
    await again.close();
  });

  it('leaves only its own files on the scratch disk', async () => {
    await upToPages(TEXT_PDF);
    expect((await readdir(session.scratch)).toSorted()).toEqual([
      'document.json',
      'document.pdf',
      'extract.json',
      'pages.checkpoint',
      'pages.jsonl',
      'text.txt',
    ]);
  });
});

async function serve(body: () => Buffer): Promise<{ url: string; close: () => void }> {
  const server: Server = createServer((_request, response) => {
    const content = body();
    response.writeHead(200, { 'content-length': content.length }).end(content);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
