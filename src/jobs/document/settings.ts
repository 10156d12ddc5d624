/**
 * What the operator of a worker decides about the document job: which places it reads from, its limits, its engine.
 *
 * Owns the table of settings and how they are read. The daemon imports the table to merge flags, environment and file,
 * and hands the result to the executor as environment variables: an activity has no other way to the configuration.
 * Must not import anything heavy, and nothing of the job.
 */
import type { OcrEngine } from '../../contract/document.js';
import { AtlasError } from '../../contract/errors.js';

export interface DocumentSetting {
  /** The key in the configuration file. */
  readonly key: string;
  /** The environment variable in which the executor receives it. */
  readonly env: string;
  /** Values of a list are separated by commas. */
  readonly kind: 'list' | 'number' | 'string';
  readonly default: string;
  readonly choices?: readonly string[];
  /** Within which a number makes sense; outside them the setting is refused. */
  readonly bounds?: NumberBounds;
  readonly description: string;
}

interface NumberBounds {
  readonly min: number;
  readonly max: number;
}

/** The end of "it must be ...". */
export function wholeNumberWithin({ min, max }: NumberBounds): string {
  return `a whole number from ${min} to ${max}`;
}

/**
 * Loopback and the private ranges: where a command line that serves a file usually is. Link-local is left out because
 * cloud metadata services live there.
 */
const DEFAULT_ALLOW_SERVED = '127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7';

/** pdfium takes the length of a file as 32 bits. */
export const PDFIUM_MAX_BYTES = 4_294_967_295;

export const DOCUMENT_SETTINGS: readonly DocumentSetting[] = [
  {
    key: 'document.allow_files',
    env: 'ATLAS_DOCUMENT_ALLOW_FILES',
    kind: 'list',
    default: '',
    description: 'Directories of this worker that a document may be read from. None by default.',
  },
  {
    key: 'document.allow_output',
    env: 'ATLAS_DOCUMENT_ALLOW_OUTPUT',
    kind: 'list',
    default: '',
    description: 'Directories of this worker below which artifacts may be put when a run asks for it. None by default.',
  },
  {
    key: 'document.allow_served',
    env: 'ATLAS_DOCUMENT_ALLOW_SERVED',
    kind: 'list',
    default: DEFAULT_ALLOW_SERVED,
    description:
      'Networks (CIDR) or hosts from which a file served by `atlas run` is taken, and to which artifacts go.',
  },
  {
    key: 'document.allow_urls',
    env: 'ATLAS_DOCUMENT_ALLOW_URLS',
    kind: 'list',
    default: '',
    description: 'Networks (CIDR) or hosts that a document may be fetched from although they are not public.',
  },
  {
    key: 'document.cache_bytes',
    env: 'ATLAS_DOCUMENT_CACHE_BYTES',
    kind: 'number',
    default: String(2 * 1024 ** 3),
    bounds: { min: 0, max: 2 ** 50 },
    description:
      'How much of the disk fetched documents may take to be found again by a later run, in bytes; 0 for none.',
  },
  {
    key: 'document.max_bytes',
    env: 'ATLAS_DOCUMENT_MAX_BYTES',
    kind: 'number',
    default: String(PDFIUM_MAX_BYTES),
    bounds: { min: 1, max: PDFIUM_MAX_BYTES },
    description: 'The largest document that is taken, in bytes.',
  },
  {
    key: 'document.max_pages',
    env: 'ATLAS_DOCUMENT_MAX_PAGES',
    kind: 'number',
    default: '5000',
    bounds: { min: 1, max: 100_000 },
    description: 'The most pages that a document may have.',
  },
  {
    key: 'document.ocr_engine',
    env: 'ATLAS_DOCUMENT_OCR_ENGINE',
    kind: 'string',
    default: 'auto',
    choices: ['auto', 'native', 'npm'],
    description: 'What reads scanned pages: the installed tesseract, the npm packages, or the first that is there.',
  },
  {
    key: 'document.ocr_dpi',
    env: 'ATLAS_DOCUMENT_OCR_DPI',
    kind: 'number',
    default: '200',
    // Below 70 dpi tesseract refuses to guess; above 600 a page costs more than it gains.
    bounds: { min: 70, max: 600 },
    description: 'The resolution at which pages are rendered for OCR, in dots per inch.',
  },
  {
    key: 'document.tool_memory_bytes',
    env: 'ATLAS_DOCUMENT_TOOL_MEMORY_BYTES',
    kind: 'number',
    default: String(1024 ** 3),
    // With this tesseract reads a page of the most pixels (240 MB); with half of it, it does not even start. The default
    // leaves room for what it takes of a page of pure noise, 800 MB.
    bounds: { min: 256 * 1024 ** 2, max: 2 ** 40 },
    description: 'How much memory (address space) one run of an installed program may take, in bytes.',
  },
];

export interface DocumentSettings {
  readonly allowFiles: readonly string[];
  readonly allowOutput: readonly string[];
  readonly allowServed: readonly string[];
  readonly allowUrls: readonly string[];
  readonly cacheBytes: number;
  readonly maxBytes: number;
  readonly maxPages: number;
  readonly ocrEngine: OcrEngine;
  readonly ocrDpi: number;
  readonly toolMemoryBytes: number;
}

/**
 * Reads the settings from environment variables; one that is not set or empty has its default.
 *
 * @throws {@link AtlasError} `ConfigInvalid` that names the variable.
 */
export function readSettings(env: Readonly<Record<string, string | undefined>> = process.env): DocumentSettings {
  const raw = (key: string): { readonly setting: DocumentSetting; readonly value: string } => {
    const setting = DOCUMENT_SETTINGS.find((candidate) => candidate.key === key);
    if (setting === undefined) throw new Error(`There is no setting ${key}.`);
    const given = env[setting.env]?.trim();
    return { setting, value: given === undefined || given === '' ? setting.default : given };
  };
  const list = (key: string): string[] =>
    raw(key)
      .value.split(',')
      .map((entry) => entry.trim())
      .filter((entry) => entry !== '');
  const number = (key: string): number => {
    const { setting, value } = raw(key);
    const { bounds } = setting;
    if (bounds === undefined) throw new Error(`The setting ${key} has no bounds.`);
    const parsed = Number(value);
    if (!Number.isInteger(parsed) || parsed < bounds.min || parsed > bounds.max) {
      throw invalid(setting, value, wholeNumberWithin(bounds));
    }
    return parsed;
  };
  const engine = raw('document.ocr_engine');
  if (engine.setting.choices?.includes(engine.value) !== true) {
    throw invalid(engine.setting, engine.value, `one of ${engine.setting.choices?.join(', ') ?? ''}`);
  }
  return {
    allowFiles: list('document.allow_files'),
    allowOutput: list('document.allow_output'),
    allowServed: list('document.allow_served'),
    allowUrls: list('document.allow_urls'),
    cacheBytes: number('document.cache_bytes'),
    maxBytes: number('document.max_bytes'),
    maxPages: number('document.max_pages'),
    ocrEngine: engine.value as OcrEngine,
    ocrDpi: number('document.ocr_dpi'),
    toolMemoryBytes: number('document.tool_memory_bytes'),
  };
}

function invalid(setting: DocumentSetting, value: string, wanted: string): AtlasError {
  return new AtlasError('ConfigInvalid', `${setting.key} (${setting.env}) is "${value}"; it must be ${wanted}.`);
}
