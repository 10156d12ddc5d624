/** The stored histories: where they are, and how one is made fit to be stored. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporal } from '@temporalio/proto';

export const HISTORIES = fileURLToPath(new URL('histories/', import.meta.url));

/** The code that a scenario is replayed against. */
export type Suite = 'session' | 'worker' | 'document';

export interface StoredHistory {
  readonly version: string;
  readonly suite: Suite;
  readonly scenario: string;
  readonly path: string;
}

/** `histories/<version>/<suite>-<scenario>.json`; every version is kept. */
export function storedHistories(): StoredHistory[] {
  return readdirSync(HISTORIES)
    .sort()
    .flatMap((version) =>
      readdirSync(join(HISTORIES, version))
        .sort()
        .map((file) => {
          const [, suite, scenario] = /^(session|worker|document)-(.+)\.json$/.exec(file) ?? [];
          if (suite === undefined || scenario === undefined) throw new Error(`${file} is not a stored history.`);
          return { version, suite: suite as Suite, scenario, path: join(HISTORIES, version, file) };
        }),
    );
}

const { History } = temporal.api.history.v1;
type History = temporal.api.history.v1.IHistory;

/** A history as JSON: enums by their names, bytes in base64. */
export type JsonHistory = { events: Record<string, unknown>[] };

export function readHistory(path: string): JsonHistory {
  return JSON.parse(readFileSync(path, 'utf8')) as JsonHistory;
}

/**
 * To and from JSON by the generated code. `historyToJSON` of the SDK throws where npm has installed protobufjs twice,
 * for `@temporalio/common` and for `@temporalio/proto`.
 */
export function toJson(history: History): JsonHistory {
  return History.toObject(History.fromObject(history), { enums: String, longs: String, bytes: String }) as JsonHistory;
}

export function fromJson(history: JsonHistory): History {
  return History.fromObject(history);
}

export function storeHistory(version: string, suite: Suite, scenario: string, history: JsonHistory): void {
  const path = join(HISTORIES, version, `${suite}-${scenario}.json`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(history)}\n`);
}

/** What tells where a history was recorded, by what it becomes. */
export type Neutral = Readonly<Record<string, string>>;

/** The history without names, paths and process numbers of the machine that recorded it, payloads included. */
export function neutralHistory(history: JsonHistory, neutral: Neutral): JsonHistory {
  const replacements: [string, string][] = [
    ...Object.entries(neutral).sort(([a], [b]) => b.length - a.length),
    [hostname(), 'host-1'],
  ];
  const text = (value: string): string => {
    let result = value;
    for (const [from, to] of replacements) result = result.replaceAll(from, to);
    return result
      .replace(/\b(supervisor|executor) \d+/g, '$1 1')
      .replace(/\bpid \d+/g, 'pid 1')
      .replace(/^\d+@/, '1@');
  };
  return mapJson(history, text) as JsonHistory;
}

/** Every string in a history, those within its payloads included. */
export function stringsOf(history: JsonHistory): string[] {
  const found: string[] = [];
  mapJson(history, (value) => {
    found.push(value);
    return value;
  });
  return found;
}

const NEUTRAL_FIELDS: Readonly<Record<string, unknown>> = {
  pid: 1,
  machineId: 'machine-1',
  bootId: 'boot-1',
  load1: 0,
  disk: null,
  stackTrace: '',
};

function mapJson(value: unknown, text: (value: string) => string): unknown {
  if (typeof value === 'string') return text(value);
  if (Array.isArray(value)) return value.map((each) => mapJson(each, text));
  if (typeof value !== 'object' || value === null) return value;
  if (isJsonPayload(value)) {
    const decoded: unknown = JSON.parse(Buffer.from(value.data, 'base64').toString('utf8'));
    return { ...value, data: Buffer.from(JSON.stringify(mapJson(decoded, text))).toString('base64') };
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [
      key,
      Object.hasOwn(NEUTRAL_FIELDS, key) ? NEUTRAL_FIELDS[key] : mapJson(each, text),
    ]),
  );
}

const JSON_ENCODING = Buffer.from('json/plain').toString('base64');

function isJsonPayload(value: object): value is { metadata: { encoding: string }; data: string } {
  if (!('metadata' in value) || !('data' in value) || typeof value.data !== 'string') return false;
  const { metadata } = value;
  return (
    typeof metadata === 'object' && metadata !== null && 'encoding' in metadata && metadata.encoding === JSON_ENCODING
  );
}
