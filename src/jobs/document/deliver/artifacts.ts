/**
 * What becomes of the artifacts: they are kept on the worker for a day under the run's id, and sent to whoever asked.
 *
 * Keeping is atomic and may be repeated: a reader finds a whole folder or none. Sending streams each file, bounded in
 * time, to an address that the policy for served files allows.
 */
import { createReadStream } from 'node:fs';
import { copyFile, mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import type { RequestOptions } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { ArtifactFile, ArtifactsReference, DeliveryTarget } from '../../../contract/document.js';
import { checkHost, guardedLookup, type AddressPolicy } from '../fetch/addresses.js';
import { failure, isFailure, messageOf, systemCode } from '../failure.js';
import { diskFailure, hashFile, syncDirectory } from '../files.js';
import { shown } from '../fetch/http-get.js';

/** The artifacts of the job, in the order in which they are sent: what a reader wants first comes last and complete. */
export const ARTIFACT_NAMES = ['pages.jsonl', 'text.txt', 'report.json', 'summary.md'] as const;

/** Copies the artifacts from the scratch directory to the worker's kept directory. */
export async function keepArtifacts(options: {
  readonly scratch: string;
  readonly keptDirectory: string;
  readonly keptForMs: number;
  readonly id: string;
  readonly signal: AbortSignal;
}): Promise<{ files: ArtifactFile[]; keptUntilMs: number }> {
  const { scratch, keptDirectory, keptForMs, id, signal } = options;
  const target = join(keptDirectory, checkedName(id));
  // The process is in the name: an attempt whose executor was killed may have left one behind.
  const temporary = join(keptDirectory, `.${id}.${process.pid}.tmp`);
  try {
    await mkdir(keptDirectory, { recursive: true, mode: 0o700 });
    for (const entry of await readdir(keptDirectory)) {
      if (entry.startsWith(`.${id}.`)) await rm(join(keptDirectory, entry), { recursive: true, force: true });
    }
    await mkdir(temporary, { mode: 0o700 });
    const files: ArtifactFile[] = [];
    for (const name of ARTIFACT_NAMES) {
      signal.throwIfAborted();
      const copy = join(temporary, name);
      await copyFile(join(scratch, name), copy);
      const handle = await open(copy, 'r');
      await handle.sync();
      await handle.close();
      files.push({ name, ...(await hashFile(copy, signal)) });
    }
    await syncDirectory(temporary);
    // A directory can not be renamed over another. What a former attempt or a redo kept is the same document.
    await rm(target, { recursive: true, force: true });
    await rename(temporary, target);
    await syncDirectory(keptDirectory);
    // The daemon goes by the time of the last change.
    const now = new Date();
    await utimes(target, now, now);
    return { files, keptUntilMs: now.getTime() + keptForMs };
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw diskFailure(error, `keeping the artifacts in ${keptDirectory}`);
  }
}

/**
 * The folder of kept artifacts.
 *
 * @throws ApplicationFailure `ArtifactsGone`.
 */
export async function keptFolder(keptDirectory: string, reference: ArtifactsReference): Promise<string> {
  const folder = join(keptDirectory, checkedName(reference.id));
  for (const file of reference.files) {
    const found = await stat(join(folder, checkedName(file.name))).catch((error: unknown) => {
      if (systemCode(error) === 'ENOENT') return null;
      throw error;
    });
    if (found?.size !== file.bytes) {
      throw failure('ArtifactsGone', `${file.name} of ${reference.id} is no longer on worker ${reference.worker}.`);
    }
  }
  return folder;
}

/** Ids and names come back from a client: they must stay names. */
function checkedName(name: string): string {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/.test(name)) {
    throw failure('ArtifactsGone', `"${name}" is not the name of an artifact.`);
  }
  return name;
}

export interface SendLimits {
  readonly connectMs: number;
  /** How long nothing may move. */
  readonly stallMs: number;
  readonly attempts: number;
  readonly pauseMs: number;
}

export const SEND_LIMITS: SendLimits = { connectMs: 10_000, stallMs: 30_000, attempts: 2, pauseMs: 500 };

export interface SendOptions {
  readonly folder: string;
  readonly files: readonly ArtifactFile[];
  readonly target: DeliveryTarget;
  readonly policy: AddressPolicy;
  readonly signal: AbortSignal;
  readonly limits?: SendLimits;
  readonly onFile?: (done: number, total: number, name: string) => void;
}

/**
 * Sends each file with `PUT <url>/<name>`.
 *
 * @throws ApplicationFailure `DeliveryFailed`, `AddressRefused`.
 */
export async function sendArtifacts(options: SendOptions): Promise<void> {
  const limits = options.limits ?? SEND_LIMITS;
  let done = 0;
  for (const file of options.files) {
    options.onFile?.(done, options.files.length, file.name);
    for (let attempt = 1; ; attempt += 1) {
      try {
        await sendFile(options, file, limits);
        break;
      } catch (error) {
        options.signal.throwIfAborted();
        if (!isFailure(error, 'DeliveryFailed') || attempt >= limits.attempts) throw error;
        const { setTimeout: pause } = await import('node:timers/promises');
        await pause(limits.pauseMs, undefined, { signal: options.signal });
      }
    }
    done += 1;
    options.onFile?.(done, options.files.length, file.name);
  }
}

async function sendFile(options: SendOptions, file: ArtifactFile, limits: SendLimits): Promise<void> {
  const { target, policy, signal } = options;
  const url = targetUrl(target, file.name);
  const { request } = url.protocol === 'https:' ? await import('node:https') : await import('node:http');
  checkHost(policy, url.hostname);
  const requestOptions: RequestOptions = {
    method: 'PUT',
    headers: {
      authorization: `Bearer ${target.token}`,
      'content-type': 'application/octet-stream',
      'content-length': String(file.bytes),
      'x-atlas-sha256': file.sha256,
    },
    lookup: guardedLookup(policy),
    agent: false,
    signal,
  };
  await new Promise<void>((resolve, reject) => {
    const outgoing = request(url, requestOptions);
    const fail = (why: string, cause?: unknown): void => {
      clearTimeout(timer);
      outgoing.destroy();
      if (signal.aborted) reject(signal.reason as Error);
      else if (isFailure(cause)) reject(cause);
      else reject(failure('DeliveryFailed', `${file.name} could not be sent to ${shown(url)}: ${why}.`, { cause }));
    };
    const timer = setTimeout(() => fail('no connection in time'), limits.connectMs);
    outgoing.on('socket', (socket) => {
      socket.once('connect', () => {
        clearTimeout(timer);
        socket.setTimeout(limits.stallMs, () => fail(`nothing moved for ${limits.stallMs / 1000} s`));
      });
    });
    outgoing.on('response', (response) => {
      response.resume();
      const status = response.statusCode ?? 0;
      if (status >= 200 && status < 300) {
        response.on('end', resolve);
        response.on('error', (error) => fail(messageOf(error), error));
      } else {
        fail(`the answer was ${status}`);
      }
    });
    outgoing.on('error', (error) => fail(refusedOr(error), error));
    pipeline(createReadStream(join(options.folder, file.name)), outgoing).catch((error: unknown) =>
      fail(refusedOr(error), error),
    );
  });
}

function targetUrl(target: DeliveryTarget, name: string): URL {
  let url: URL;
  try {
    url = new URL(`${target.url.replace(/\/+$/, '')}/${encodeURIComponent(name)}`);
  } catch {
    throw failure('DeliveryFailed', 'The address that the artifacts should go to is not valid.');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw failure('DeliveryFailed', `The artifacts can not be sent by ${url.protocol}.`);
  }
  return url;
}

function refusedOr(error: unknown): string {
  return systemCode(error) === 'ECONNREFUSED' ? 'the connection was refused' : messageOf(error);
}
