/**
 * The password of a document: fetched from whoever has it, and kept for the later steps and for an executor that starts
 * again, on the session's scratch disk and nowhere else. It goes with the session.
 *
 * It must not get into a message, a log or a command line: nothing here puts it into an error, and what reads the
 * document with it runs inside this process.
 */
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import type { PasswordSource } from '../../../contract/document.js';
import { checkHost, guardedLookup, type AddressPolicy } from './addresses.js';
import { failure, isFailure, messageOf, systemCode } from '../failure.js';
import { writeFileAtomic } from '../files.js';
import { shown } from './http-get.js';

/** Far above what any revision of the format takes. */
export const MAX_PASSWORD_BYTES = 1024;
/** A password is one small answer: connection, answer and body have this long in all. */
const FETCH_MS = 30_000;
/** On the scratch disk of the session. */
const FILE = 'password';

export interface PasswordRequest {
  readonly source: PasswordSource;
  readonly policy: AddressPolicy;
  readonly signal: AbortSignal;
  readonly limitMs?: number;
}

/** The password that an earlier attempt or step of the session has kept. */
export async function keptPassword(scratch: string): Promise<string | undefined> {
  try {
    return await readFile(join(scratch, FILE), 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * The password of the session's document, fetched once. Who has it may end as soon as the document is here.
 *
 * @throws ApplicationFailure `SourceUnreachable` (retryable), `SourceRefused`, `AddressRefused`.
 */
export async function obtainPassword(scratch: string, request: PasswordRequest): Promise<string> {
  const kept = await keptPassword(scratch);
  if (kept !== undefined) return kept;
  const password = await fetchPassword(request);
  await writeFileAtomic(join(scratch, FILE), password);
  return password;
}

async function fetchPassword({ source, policy, signal, limitMs = FETCH_MS }: PasswordRequest): Promise<string> {
  if (!URL.canParse(source.url)) throw failure('SourceRefused', 'The address of the password is not a valid URL.');
  const url = new URL(source.url);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw failure('SourceRefused', `The password can not be fetched by ${url.protocol}.`);
  }
  const { request } = url.protocol === 'https:' ? await import('node:https') : await import('node:http');
  checkHost(policy, url.hostname);
  const limit = AbortSignal.timeout(limitMs);
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request(url, {
        headers: { authorization: `Bearer ${source.token}`, 'user-agent': 'temporal-atlas' },
        lookup: guardedLookup(policy),
        // No connection is kept: a kept one would have skipped the check of its address.
        agent: false,
        signal: AbortSignal.any([signal, limit]),
      })
        .on('response', resolve)
        .on('error', reject)
        .end();
    });
    try {
      return await readAnswer(response, url);
    } finally {
      response.destroy();
    }
  } catch (error) {
    signal.throwIfAborted();
    if (isFailure(error)) throw error;
    const why = limit.aborted
      ? `there was no answer within ${limitMs / 1000} s`
      : systemCode(error) === 'ECONNREFUSED'
        ? 'the connection was refused'
        : messageOf(error);
    throw unreachable(url, why, error);
  }
}

async function readAnswer(response: IncomingMessage, url: URL): Promise<string> {
  const status = response.statusCode ?? 0;
  if (status >= 500) throw unreachable(url, `the server answered ${status}`);
  // A redirect is not followed: it would take the token elsewhere.
  if (status !== 200) {
    throw failure('SourceRefused', `The password was not given by ${shown(url)}: the server answered ${status}.`);
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response) {
    bytes += (chunk as Buffer).length;
    if (bytes > MAX_PASSWORD_BYTES) {
      throw failure('SourceRefused', `The password at ${shown(url)} is longer than ${MAX_PASSWORD_BYTES} bytes.`);
    }
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function unreachable(url: URL, why: string, cause?: unknown): Error {
  return failure('SourceUnreachable', `The password could not be fetched from ${shown(url)}: ${why}.`, {
    cause,
    next: 'Let `atlas run` go on until the worker has it, at an address that the worker can reach (--serve-address).',
  });
}
