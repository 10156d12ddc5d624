/**
 * Documents that open with a password only: which passwords open them, how the worker comes by one, and where it is
 * afterwards. The installed programs are scripts here that write down how they were called.
 */
import { once } from 'node:events';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { DocumentSource, PasswordSource } from '../../../../src/contract/document.js';
import {
  deliverDocument,
  downloadDocument,
  extractPages,
  summarizeDocument,
} from '../../../../src/jobs/document/activities.js';
import { listedAddresses } from '../../../../src/jobs/document/fetch/addresses.js';
import { keptPassword, obtainPassword } from '../../../../src/jobs/document/fetch/password.js';
import { openPdf } from '../../../../src/jobs/document/pages/pdf-reader.js';
import { closedPort } from '../../../support/document-server.js';
import { openSession, type TestSession } from '../../../support/document-session.js';
import { makeEncryptedPdf, makePdf, type Encryption } from '../../../support/pdf.js';
import { makeFakePrograms } from '../../../support/programs.js';

const PASSWORD = 'open-sesame-4711';
const TOKEN = 'the token of the run';
const LINE = 'The harbour has forty berths on a coast with few safe places to land.';

let session: TestSession;

beforeEach(async () => {
  session = await openSession();
  vi.stubEnv('ATLAS_DOCUMENT_ALLOW_FILES', session.directory);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await session.close();
});

async function fileSource(content: Buffer): Promise<DocumentSource> {
  const path = join(session.directory, 'given.pdf');
  await writeFile(path, content);
  return { kind: 'file', path, bytes: content.length, sha256: createHash('sha256').update(content).digest('hex') };
}

interface PasswordServer {
  readonly source: PasswordSource;
  readonly asked: () => number;
  close(): void;
}

async function servePassword(
  answer: (request: IncomingMessage, response: ServerResponse) => void = (_, response) => response.end(PASSWORD),
): Promise<PasswordServer> {
  let asked = 0;
  const server = createServer((request, response) => {
    asked += 1;
    if (request.headers.authorization === `Bearer ${TOKEN}`) answer(request, response);
    else response.writeHead(401).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  onTestFinished(close);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/password`;
  return { source: { url, token: TOKEN }, asked: () => asked, close };
}

describe.each(['rc4-128', 'aes-256'] as const)('a document under %s', (method) => {
  interface Opened {
    readonly text: string;
    readonly needsPassword: boolean;
  }

  async function open(encryption: Omit<Encryption, 'method'>, password?: string): Promise<Opened> {
    const path = join(session.directory, 'a.pdf');
    await writeFile(path, makeEncryptedPdf({ method, ...encryption }, [[LINE]]));
    const reader = await openPdf({ path, name: 'a.pdf', password, signal: session.controller.signal });
    try {
      return { text: (await reader.facts(1)).text, needsPassword: reader.needsPassword };
    } finally {
      await reader.close();
    }
  }

  const opened = { text: LINE, needsPassword: true };

  it('opens with the password of its user, and of its owner', async () => {
    const encryption = { user: 'secret', owner: 'boss' };
    expect(await open(encryption, 'secret')).toEqual(opened);
    expect(await open(encryption, 'boss')).toEqual(opened);
  });

  it('opens with a password that is not ASCII, however its accents are written', async () => {
    const encryption = { user: 'caf\u00e9 \u00fcber', owner: '\u00f1and\u00fa' };
    expect(await open(encryption, 'caf\u00e9 \u00fcber')).toEqual(opened);
    expect(await open(encryption, 'cafe\u0301 u\u0308ber')).toEqual(opened);
    expect(await open(encryption, '\u00f1and\u00fa')).toEqual(opened);
  });

  it('does not open with another, nor without', async () => {
    await expect(open({ user: 'secret' }, 'Secret')).rejects.toMatchObject({ type: 'PasswordWrong' });
    await expect(open({ user: 'secret' })).rejects.toMatchObject({ type: 'PasswordRequired' });
    await expect(open({ user: 'secret' }, '')).rejects.toMatchObject({ type: 'PasswordWrong' });
  });

  it('that anyone may open does so with any password', async () => {
    const anyone = { text: LINE, needsPassword: false };
    expect(await open({ user: '', owner: 'boss' })).toEqual(anyone);
    expect(await open({ user: '', owner: 'boss' }, 'whatever')).toEqual(anyone);
  });
});

it('a document without encryption opens with any password', async () => {
  const { source } = await servePassword();
  const document = await session.run(downloadDocument, await fileSource(makePdf([[LINE]])), { password: source });
  expect(await session.run(extractPages, { document, language: 'eng' })).toMatchObject({ pages: { text: 1 } });
});

describe('the password of a document', () => {
  const content = makeEncryptedPdf({ method: 'aes-256', user: PASSWORD }, [[LINE], { image: 'stripes' }]);

  it('is asked for once, and later steps and attempts have it although nobody serves it any more', async () => {
    const programs = await makeFakePrograms(session.directory);
    vi.stubEnv('PATH', programs.path);
    vi.stubEnv('ATLAS_DOCUMENT_OCR_ENGINE', 'native');
    const source = await fileSource(content);
    const server = await servePassword();
    const document = await session.run(downloadDocument, source, { password: server.source });
    expect(server.asked()).toBe(1);
    server.close();

    const kept = join(session.scratch, 'password');
    expect((await stat(kept)).mode & 0o777).toBe(0o600);
    expect(await session.run(downloadDocument, source, { password: server.source })).toEqual(document);
    const extracted = await session.run(extractPages, { document, language: 'eng' });
    expect(extracted).toMatchObject({ pages: { total: 2, text: 1, ocr: 1 }, engine: 'native' });

    // No program draws the pages: it would be given the password on its command line.
    const calls = await programs.calls();
    expect(calls.some((call) => call.startsWith('tesseract stdin'))).toBe(true);
    expect(calls.filter((call) => call.startsWith('pdftoppm'))).toEqual([]);

    await session.run(summarizeDocument, { document, sentences: 3 });
    const { artifacts } = await session.run(deliverDocument, {});
    expect(artifacts.files.map(({ name }) => name)).not.toContain('password');
    for (const { name } of artifacts.files) {
      expect(await readFile(join(session.worker.keptDirectory, artifacts.id, name), 'utf8')).not.toContain(PASSWORD);
    }
    expect(JSON.stringify(session.reports)).not.toContain(PASSWORD);
    for (const name of await readdir(session.scratch)) {
      if (name !== 'password') expect(await readFile(join(session.scratch, name), 'latin1')).not.toContain(PASSWORD);
    }
  });

  it('that is wrong fails the first step for good, without being repeated', async () => {
    const { source } = await servePassword((_, response) => response.end('not-the-right-one'));
    const failed = session.run(downloadDocument, await fileSource(content), { password: source });
    await expect(failed).rejects.toMatchObject({
      type: 'PasswordWrong',
      nonRetryable: true,
      message: 'The given password does not open given.pdf.',
    });
    const { failure: seen } = await failed.then(
      () => ({ failure: '' }),
      (error: unknown) => ({ failure: JSON.stringify(error, Object.getOwnPropertyNames(error)) }),
    );
    expect(seen).not.toContain('not-the-right-one');
  });

  it('that nobody gave fails the first step for good', async () => {
    await expect(session.run(downloadDocument, await fileSource(content))).rejects.toMatchObject({
      type: 'PasswordRequired',
      nonRetryable: true,
    });
  });
});

describe('a password that can not be had', () => {
  async function obtain(source: PasswordSource, allowed = '127.0.0.0/8', limitMs?: number): Promise<string> {
    return await obtainPassword(session.scratch, {
      source,
      policy: listedAddresses([allowed]),
      signal: session.controller.signal,
      ...(limitMs === undefined ? {} : { limitMs }),
    });
  }

  it.each([
    ['is too long', (_: IncomingMessage, response: ServerResponse) => response.end('x'.repeat(1025)), 'SourceRefused'],
    ['is elsewhere', redirect, 'SourceRefused'],
    ['is not there', (_: IncomingMessage, response: ServerResponse) => response.writeHead(404).end(), 'SourceRefused'],
    ['fails', (_: IncomingMessage, response: ServerResponse) => response.writeHead(503).end(), 'SourceUnreachable'],
    ['is cut off', (_: IncomingMessage, response: ServerResponse) => cutOff(response), 'SourceUnreachable'],
  ] as const)('since it %s', async (_what, answer, code) => {
    const server = await servePassword(answer);
    await expect(obtain(server.source)).rejects.toMatchObject({ type: code, nonRetryable: code === 'SourceRefused' });
    expect(server.asked()).toBe(1);
    expect(await keptPassword(session.scratch)).toBeUndefined();
  });

  it('since the token is not the right one', async () => {
    const { source } = await servePassword();
    await expect(obtain({ ...source, token: 'guessed' })).rejects.toMatchObject({ type: 'SourceRefused' });
  });

  it('since nobody answers', async () => {
    const url = `http://127.0.0.1:${await closedPort()}/password?signature=hidden`;
    await expect(obtain({ url, token: TOKEN })).rejects.toMatchObject({
      type: 'SourceUnreachable',
      message: expect.stringMatching(
        /^The password could not be fetched from \S+\/password: the connection was refused/,
      ),
      details: [{ next: expect.stringContaining('--serve-address') as string }],
    });
  });

  it('since the answer takes too long', async () => {
    const { source } = await servePassword(() => undefined);
    await expect(obtain(source, '127.0.0.0/8', 50)).rejects.toThrow('there was no answer within 0.05 s');
  });

  it('since the worker does not connect to the address', async () => {
    const server = await servePassword();
    await expect(obtain(server.source, '10.0.0.0/8')).rejects.toMatchObject({ type: 'AddressRefused' });
    expect(server.asked()).toBe(0);
  });

  it.each(['file:///etc/passwd', 'nowhere'])('since %s is no web address', async (url) => {
    await expect(obtain({ url, token: TOKEN })).rejects.toMatchObject({ type: 'SourceRefused' });
  });

  it('since the session ended', async () => {
    const { source } = await servePassword(() => session.controller.abort(new Error('the session ended')));
    await expect(obtain(source)).rejects.toThrow('the session ended');
  });
});

function redirect(request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(302, { location: `${request.url ?? ''}/elsewhere` }).end();
}

function cutOff(response: ServerResponse): void {
  response.writeHead(200, { 'content-length': 100 }).write('half', () => response.destroy());
}
