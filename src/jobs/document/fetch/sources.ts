/**
 * The kinds of places that a document comes from. Each is one {@link Source}; another kind, such as an object store, is
 * one more of these and an entry in {@link KINDS}.
 *
 * What a source needs to fetch is loaded when it does: most sessions use one kind.
 */
import { createHash } from 'node:crypto';
import type { DocumentSource } from '../../../contract/document.js';
import type { DocumentCache } from './cache.js';
import type { Disk } from './disk.js';
import type { Downloaded, DownloadRequest } from './download.js';
import { failure, tooLarge } from '../failure.js';
import type { DocumentSettings } from '../settings.js';

export interface Source {
  /** What the document is called: a plain name, whatever the request says. */
  readonly name: string;
  /** What it is fetched from, in a form that two attempts share and that gives away no token. */
  readonly key: string;
  /** Brings the document to the target: whole, and with the size and hash that were announced. */
  fetch(to: Destination): Promise<Fetched>;
}

export interface Destination {
  readonly target: string;
  readonly settings: DocumentSettings;
  readonly disk: Disk;
  readonly cache: DocumentCache;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number | undefined) => void;
}

export interface Fetched {
  readonly bytes: number;
  readonly sha256: string;
  /** Bytes that an earlier connection had brought already. */
  readonly resumedBytes: number;
  readonly cached: boolean;
  /** Keeps the document for the next who wants it, once it has turned out to be one. */
  keep?(): Promise<void>;
}

type Kind = DocumentSource['kind'];
type Of<K extends Kind> = Extract<DocumentSource, { kind: K }>;

const KINDS: { readonly [K in Kind]: (source: Of<K>) => Source } = {
  url: urlSource,
  served: servedSource,
  file: fileSource,
};

/** @throws ApplicationFailure `SourceRefused` for a kind that this version does not know. */
export function openSource<K extends Kind>(source: Of<K>): Source {
  const open = Object.hasOwn(KINDS, source.kind) ? (KINDS[source.kind as K] as (source: Of<K>) => Source) : undefined;
  if (open === undefined) {
    throw failure('SourceRefused', `This worker knows no source of the kind ${JSON.stringify(source.kind)}.`);
  }
  return open(source);
}

function urlSource({ kind, url, sha256 }: Of<'url'>): Source {
  const name = plainName(URL.canParse(url) ? decoded(new URL(url).pathname) : '');
  return {
    name,
    key: keyOf(kind, url, ...(sha256 === undefined ? [] : [sha256])),
    async fetch(to) {
      const { publicAddresses } = await import('./addresses.js');
      const policy = publicAddresses(to.settings.allowUrls);
      if (sha256 !== undefined) {
        return await fetchKnown({ name, url, policy, expected: { sha256: checkedHash(sha256) } }, to);
      }
      const { download, NOT_MODIFIED } = await import('./download.js');
      const { cache } = to;
      const request = { ...(await requestTo(to, url, policy)), policy };
      const known = await cache.remembered(request.url);
      let got = await download(known === undefined ? request : { ...request, known: known.version });
      if (got === NOT_MODIFIED && known !== undefined) {
        const taken = await cache.take(known.sha256, to);
        if (taken !== undefined) return fromCache(name, taken, to);
      }
      // What was here is damaged or gone meanwhile.
      if (got === NOT_MODIFIED) got = await download(request);
      if (got === NOT_MODIFIED) throw new Error('An answer that was not asked for came from the download.');
      const { version } = got;
      // Without a version nobody could ask whether it is still the document of the address.
      if (version === undefined) return { ...resultOf(got), cached: false };
      const remembered = { version, bytes: got.bytes, sha256: got.sha256 };
      return {
        ...resultOf(got),
        cached: false,
        keep: async () => {
          await cache.put(to.target, remembered);
          await cache.remember(request.url, remembered);
        },
      };
    },
  };
}

function servedSource({ kind, url, token, bytes, sha256, name: given }: Of<'served'>): Source {
  const name = plainName(given);
  return {
    name,
    key: keyOf(kind, sha256),
    async fetch(to) {
      if (bytes === 0) throw failure('EmptyFile', `${name} has no bytes.`);
      const { listedAddresses } = await import('./addresses.js');
      const policy = listedAddresses(to.settings.allowServed);
      return await fetchKnown({ name, url, policy, token, expected: { bytes, sha256: checkedHash(sha256) } }, to);
    },
  };
}

/** Not cached: it is on a disk of the worker already, and the rule for its directory is asked each time. */
function fileSource({ kind, path, bytes, sha256 }: Of<'file'>): Source {
  return {
    name: plainName(path),
    key: keyOf(kind, path, sha256),
    async fetch({ target, settings, disk, signal, onProgress }) {
      const { copyLocalFile } = await import('./local-file.js');
      const copied = await copyLocalFile({
        path,
        target,
        expected: { bytes, sha256 },
        allowed: settings.allowFiles,
        maxBytes: settings.maxBytes,
        disk,
        signal,
        onProgress,
      });
      return { ...copied, cached: false };
    },
  };
}

/** A document whose hash is known before it is fetched: whoever has it may give it. */
async function fetchKnown(
  what: Pick<DownloadRequest, 'url' | 'policy' | 'token'> & {
    readonly expected: NonNullable<DownloadRequest['expected']>;
    readonly name: string;
  },
  to: Destination,
): Promise<Fetched> {
  const { name, expected, policy, token } = what;
  const request = {
    ...(await requestTo(to, what.url, policy)),
    policy,
    expected,
    ...(token === undefined ? {} : { token }),
  };
  const taken = await to.cache.take(expected.sha256, to);
  if (taken !== undefined) {
    if (expected.bytes !== undefined && expected.bytes !== taken.bytes) {
      throw failure(
        'SourceChanged',
        `The document with sha256 ${taken.sha256} has ${taken.bytes} bytes, but ${expected.bytes} were announced.`,
      );
    }
    return fromCache(name, taken, to);
  }
  const { download, NOT_MODIFIED } = await import('./download.js');
  const got = await download(request);
  if (got === NOT_MODIFIED) throw new Error('An answer that was not asked for came from the download.');
  return { ...resultOf(got), cached: false, keep: () => to.cache.put(to.target, got) };
}

/** @throws ApplicationFailure `SourceRefused`, `AddressRefused`: also for a document that is in the cache. */
async function requestTo(
  { target, settings, disk, signal, onProgress }: Destination,
  text: string,
  policy: DownloadRequest['policy'],
): Promise<Omit<DownloadRequest, 'policy' | 'known' | 'expected' | 'token'>> {
  if (!URL.canParse(text)) throw failure('SourceRefused', 'The address of the document is not a valid URL.');
  const [{ checkUrl }, { DOWNLOAD_LIMITS }] = await Promise.all([import('./http-get.js'), import('./download.js')]);
  const url = new URL(text);
  url.hash = '';
  checkUrl(policy, url);
  return {
    url: url.href,
    target,
    limits: { ...DOWNLOAD_LIMITS, maxBytes: settings.maxBytes },
    disk,
    signal,
    onProgress,
  };
}

function resultOf({ bytes, sha256, resumedBytes }: Downloaded): Omit<Fetched, 'cached'> {
  return { bytes, sha256, resumedBytes };
}

function fromCache(
  name: string,
  { bytes, sha256 }: { readonly bytes: number; readonly sha256: string },
  { settings }: Destination,
): Fetched {
  // It came while the limit was another.
  if (bytes > settings.maxBytes) throw tooLarge(`${name} has ${bytes} bytes`, settings.maxBytes);
  return { bytes, sha256, resumedBytes: 0, cached: true };
}

/** The hash comes with the request and becomes the name of a file. */
function checkedHash(sha256: string): string {
  const lower = sha256.toLowerCase();
  if (/^[0-9a-f]{64}$/.test(lower)) return lower;
  throw failure('SourceRefused', 'The sha256 of the document is not one: it has 64 hexadecimal digits.');
}

function keyOf(...identity: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}

const MAX_NAME_CHARACTERS = 120;

function plainName(raw: string): string {
  const last = raw.split(/[/\\]/).findLast((part) => part !== '') ?? '';
  const plain = last.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '').trim();
  return plain === '' ? 'document.pdf' : plain.slice(0, MAX_NAME_CHARACTERS);
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
