/**
 * The configuration of atlasd: one table of options, from which flags, `ATLAS_*` variables, TOML keys, help and man page
 * come.
 *
 * Owns: names, defaults and bounds of the options, their precedence (flag, variable, file, default) and the messages about
 * wrong ones. Must not act on any of them, and reads nothing but the variables and the file it is given.
 */
import { homedir } from 'node:os';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { parse as parseToml, TomlError } from 'smol-toml';
import { z } from 'zod';
import type { OptionSpec } from '../commands/spec.js';
import { formatDurationMs, parseDurationMs } from '../contract/duration.js';
import { AtlasError } from '../contract/errors.js';
import { PRESENCE_TTL_MS } from '../contract/fleet.js';
import { capabilitySet, checkName, DEFAULT_FLEET, MAX_CAPABILITIES, MAX_NAME_LENGTH } from '../contract/names.js';
import { nearestName } from '../contract/nearest.js';
import { DOCUMENT_SETTINGS, readSettings, wholeNumberWithin } from '../jobs/document/settings.js';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;

const ENV_PREFIX = 'ATLAS_';
/** Variables of the other program, `atlas`, which share the prefix. */
const FOREIGN_VARIABLES = ['ATLAS_CACHE_DIR', 'ATLAS_DEBUG', 'ATLAS_FLEET', 'ATLAS_OPERATOR'];

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;
export const LOG_FORMATS = ['auto', 'json', 'text'] as const;

interface Option<S extends z.ZodType = z.ZodType> {
  readonly schema: S;
  /** What is allowed, as the end of "it must be ...". */
  readonly allowed: string;
  /** What it is in the configuration file. */
  readonly type: string;
  readonly description: string;
  /** The name of the value in the help; none for a switch. */
  readonly value?: string;
  readonly default?: string;
  /** What the help says of a default that is found out only at the start. */
  readonly defaultText?: string;
  readonly choices?: readonly string[];
  readonly repeatable?: boolean;
  /** A relative path is relative to the file that has it, or else to the working directory. */
  readonly path?: boolean;
  readonly notInFile?: boolean;
  /** Where the name of the variable does not follow from the key. */
  readonly env?: string;
}

function option<S extends z.ZodType>(definition: Option<S>): Option<S> {
  return definition;
}

const listSchema = z
  .union([z.string().transform((text) => [text]), z.array(z.string())])
  .transform((parts) => parts.flatMap((part) => part.split(',')).map((part) => part.trim()))
  .transform((parts) => parts.filter((part) => part !== ''));

const switchSchema = z.union([
  z.boolean(),
  z.enum(['true', 'false', '1', '0', 'yes', 'no']).transform((given) => ['true', '1', 'yes'].includes(given)),
]);

const reserveSchema = z.union([
  z.record(z.string(), z.number().int().min(0)),
  listSchema.transform((entries, context) => {
    const reserve = new Map<string, number>();
    for (const entry of entries) {
      const match = /^([^=]+)=(\d+)$/.exec(entry);
      if (match === null || reserve.has(match[1]!)) {
        context.addIssue({ code: 'custom', message: 'is not valid' });
        return z.NEVER;
      }
      reserve.set(match[1]!, Number(match[2]));
    }
    return Object.fromEntries(reserve);
  }),
]);

/** Commands may have commas and equals signs. Several in one variable are on lines of their own. */
const commandsSchema = z.union([
  z.record(z.string(), z.string().trim().min(1)),
  z.union([z.string().transform((text) => text.split('\n')), z.array(z.string())]).transform((entries, context) => {
    const commands = new Map<string, string>();
    for (const entry of entries.map((each) => each.trim()).filter((each) => each !== '')) {
      const match = /^([^=\s]+)\s*=\s*(.+)$/s.exec(entry);
      if (match === null || commands.has(match[1]!)) {
        context.addIssue({ code: 'custom', message: 'is not valid' });
        return z.NEVER;
      }
      commands.set(match[1]!, match[2]!);
    }
    return Object.fromEntries(commands);
  }),
]);

const LIST_TYPE = 'array of strings, or a string with commas';

function text(
  definition: Omit<Option, 'schema' | 'allowed' | 'type'> & { readonly allowed?: string },
): Option<z.ZodString> {
  return option({ allowed: 'a text that is not empty', type: 'string', ...definition, schema: z.string().min(1) });
}

function choice<const C extends readonly string[]>(
  choices: C,
  definition: Pick<Option, 'description' | 'value' | 'default'>,
): Option<z.ZodType<C[number]>> {
  const allowed = `one of ${choices.join(', ')}`;
  return option({ ...definition, choices, allowed, type: 'string', schema: z.enum(choices) });
}

function count(
  min: number,
  max: number,
  definition: Pick<Option, 'description' | 'value' | 'default'>,
): Option<z.ZodType<number>> {
  const schema = z.union([z.number(), z.string().regex(/^\d+$/).transform(Number)]);
  return option({
    ...definition,
    allowed: `a whole number from ${min} to ${max}`,
    type: 'integer',
    schema: schema.pipe(z.number().int().min(min).max(max)),
  });
}

function duration(
  minMs: number,
  maxMs: number,
  definition: Pick<Option, 'description' | 'default'>,
): Option<z.ZodType<number>> {
  const allowed = `a duration from ${formatDurationMs(minMs)} to ${formatDurationMs(maxMs)}`;
  const schema = z.union([z.string(), z.number()]).transform((given, context) => {
    try {
      const durationMs = parseDurationMs(String(given));
      if (durationMs >= minMs && durationMs <= maxMs) return durationMs;
      context.addIssue({ code: 'custom', message: 'is out of bounds' });
    } catch (error) {
      context.addIssue({ code: 'custom', message: (error as Error).message });
    }
    return z.NEVER;
  });
  return option({ ...definition, value: 'duration', allowed, type: 'string with a duration', schema });
}

/** The options by key. A key `max-sessions` is the flag `--max-sessions`, `ATLAS_MAX_SESSIONS` and `max_sessions`. */
const OPTIONS = {
  name: text({
    value: 'name',
    description: 'name of this worker in the fleet',
    allowed: `a text of 1 to ${MAX_NAME_LENGTH} lower-case letters, digits, dots and hyphens, the first a letter or digit`,
    defaultText: "made from the host's name, once, and kept",
  }),
  fleet: text({
    value: 'name',
    description: 'fleet to join: all workers that share a queue prefix; without a hyphen',
    allowed: `a text of 1 to ${MAX_NAME_LENGTH} lower-case letters, digits and dots, the first a letter or digit`,
    default: DEFAULT_FLEET,
  }),
  capabilities: option({
    value: 'list',
    description: `what this worker offers beyond the ordinary, such as gpu,ocr; at most ${MAX_CAPABILITIES}`,
    allowed: 'a list of names such as gpu,ocr',
    type: LIST_TYPE,
    repeatable: true,
    default: '',
    schema: listSchema,
  }),
  'max-sessions': count(1, 1_000, {
    value: 'count',
    description: 'session slots: how many sessions this worker holds at once',
    default: '4',
  }),
  reserve: option({
    value: 'capability=count',
    description: 'keep slots for sessions that ask for a capability, so that others can not take them all: gpu=2',
    allowed: 'CAPABILITY=COUNT for each capability once, such as gpu=2',
    type: 'inline table of integers, or array of strings',
    repeatable: true,
    default: '',
    schema: reserveSchema,
  }),
  'capability-check': option({
    value: 'capability=command',
    description:
      'command for /bin/sh that exits with 0 while the capability can be used, such as gpu=nvidia-smi; while it does not, nothing that asks for the capability is taken',
    allowed: 'CAPABILITY=COMMAND for each capability once, in a variable one on each line',
    type: 'table of strings, or array of strings',
    repeatable: true,
    default: '',
    schema: commandsSchema,
  }),
  'capability-check-interval': duration(SECOND_MS, DAY_MS, {
    description: 'how long after a check of a capability the next one begins',
    default: '30s',
  }),
  'capability-check-timeout': duration(100, 10 * MINUTE_MS, {
    description:
      'how long a check of a capability may take; then it is killed with all that it started, and has failed',
    default: '10s',
  }),
  'max-activities': count(1, 1_000, {
    value: 'count',
    description:
      'how many pooled activities run at once, on each of the queues; pinned ones take no part, slots bound them',
    default: '16',
  }),
  activities: text({
    value: 'module',
    description: 'module that exports the activities',
    defaultText: 'those of the document job',
    path: true,
  }),
  workflows: text({
    value: 'module',
    description: 'module that exports the workflows, or a bundle built before',
    defaultText: 'those of the document job',
    path: true,
  }),
  'state-dir': text({
    value: 'dir',
    description: 'where the worker keeps its identity, its ledger and the files of its sessions',
    defaultText: '/var/lib/atlas/FLEET for root, else ~/.local/state/atlas/FLEET',
    path: true,
  }),
  grace: duration(0, DAY_MS, {
    description: 'how long SIGTERM waits for sessions to end; those that remain can be resumed by the next start',
    default: '30s',
  }),
  ephemeral: option({
    description: 'force-release the sessions that remain when it stops, since the state directory will be gone',
    allowed: 'true or false',
    type: 'boolean',
    default: 'false',
    schema: switchSchema,
  }),
  keep: duration(0, 365 * DAY_MS, {
    description: 'how long artifacts that nobody has fetched are kept, and what the cache has not used',
    default: '24h',
  }),
  'presence-ttl': duration(SECOND_MS, 10 * MINUTE_MS, {
    description: 'how long this worker may be silent before the fleet takes it for lost',
    default: formatDurationMs(PRESENCE_TTL_MS),
  }),
  address: text({
    value: 'host:port',
    description: 'address of the Temporal server',
    defaultText: 'TEMPORAL_ADDRESS, then the profile, then localhost:7233',
  }),
  namespace: text({
    value: 'name',
    description: 'namespace of Temporal',
    defaultText: 'TEMPORAL_NAMESPACE, then the profile, then default',
  }),
  profile: text({
    value: 'name',
    description: "profile of Temporal's own configuration file",
    defaultText: 'TEMPORAL_PROFILE, then default',
  }),
  'log-level': choice(LOG_LEVELS, { value: 'level', description: 'least level of log lines', default: 'info' }),
  'log-format': choice(LOG_FORMATS, {
    value: 'format',
    description: 'form of log lines; auto is text on a terminal and JSON elsewhere',
    default: 'auto',
  }),
  config: text({
    value: 'file',
    description: 'configuration file in TOML',
    defaultText: '/etc/atlas/atlasd.toml for root, else ~/.config/atlas/atlasd.toml, where there is one',
    path: true,
    notInFile: true,
  }),
};

type OptionKey = keyof typeof OPTIONS;
type OptionValue<K extends OptionKey> = z.output<(typeof OPTIONS)[K]['schema']>;

/** The settings of the document job by key, such as `document.allow_files`. Their values stay texts: the job reads them. */
const DOCUMENT_OPTIONS: Readonly<Record<string, Option>> = Object.fromEntries(
  DOCUMENT_SETTINGS.map((setting) => [setting.key, documentOption(setting)]),
);

function documentOption(setting: (typeof DOCUMENT_SETTINGS)[number]): Option {
  const { choices, env, kind } = setting;
  // The table has sentences; the help does not.
  const description = setting.description.charAt(0).toLowerCase() + setting.description.slice(1).replace(/\.$/, '');
  const base = { description, env, value: kind === 'string' ? 'value' : kind, default: setting.default };
  if (choices !== undefined) {
    const allowed = `one of ${choices.join(', ')}`;
    return option({ ...base, choices, allowed, type: 'string', schema: z.enum(choices) });
  }
  switch (kind) {
    case 'list':
      return option({
        ...base,
        repeatable: true,
        allowed: 'a list',
        type: LIST_TYPE,
        schema: listSchema.transform((l) => l.join(',')),
      });
    case 'number':
      return option({
        ...base,
        allowed: setting.bounds === undefined ? 'a number' : wholeNumberWithin(setting.bounds),
        type: 'integer',
        schema: z.union([z.number().nonnegative(), z.string().regex(/^\d+(\.\d+)?$/)]).transform(String),
      });
    case 'string':
      return option({ ...base, allowed: 'a text', type: 'string', schema: z.string() });
  }
}

const ALL_OPTIONS: Readonly<Record<string, Option>> = { ...OPTIONS, ...DOCUMENT_OPTIONS };

export type ConfigSource = 'flag' | 'env' | 'file' | 'default';

export interface Config {
  readonly fleet: string;
  /** `undefined`: the name that the state directory has, or a new one. */
  readonly name: string | undefined;
  /** Sorted, without duplicates. */
  readonly capabilities: readonly string[];
  readonly maxSessions: number;
  /** Slots by capability. */
  readonly reserve: Readonly<Record<string, number>>;
  /** Commands by capability. */
  readonly capabilityChecks: Readonly<Record<string, string>>;
  readonly capabilityCheckIntervalMs: number;
  readonly capabilityCheckTimeoutMs: number;
  readonly stateDirectory: string | undefined;
  readonly activitiesPath: string | undefined;
  readonly workflowsPath: string | undefined;
  readonly graceMs: number;
  readonly ephemeral: boolean;
  readonly maxActivities: number;
  readonly keepMs: number;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  readonly logFormat: (typeof LOG_FORMATS)[number];
  readonly presenceTtlMs: number;
  readonly temporal: { readonly address?: string; readonly namespace?: string; readonly profile?: string };
  /** The settings of the document job that were given, as the variables in which its activities read them. */
  readonly documentEnv: Readonly<Record<string, string>>;
  /** Where each value comes from, by key. */
  readonly sources: Readonly<Record<string, ConfigSource>>;
}

export interface ConfigInputs {
  /** What the command line gave, by camel-cased name; no defaults. */
  readonly flags: Readonly<Record<string, unknown>>;
  readonly env: NodeJS.ProcessEnv;
  readonly readFile: (path: string) => string;
  readonly cwd?: string;
  readonly uid?: number;
  /** How messages call an option that is given by `flags`; as on the command line unless set. */
  readonly nameOf?: (key: string) => string;
}

/**
 * Flags for the command line, all or those of some keys. Their defaults are words only: a value from commander would hide
 * the other sources.
 */
export function configOptionSpecs(keys: readonly OptionKey[] | 'all' = 'all'): OptionSpec[] {
  const wanted = Object.entries(ALL_OPTIONS).filter(([key]) => keys === 'all' || keys.some((name) => name === key));
  return wanted.map(([key, definition]) => {
    const { value, description, choices, repeatable } = definition;
    const defaultText = definition.defaultText ?? (value === undefined ? undefined : definition.default);
    return {
      flags: value === undefined ? flagOf(key) : `${flagOf(key)} <${value}>`,
      description,
      env: envOf(key),
      ...(defaultText === undefined || defaultText === '' ? {} : { defaultText }),
      ...(choices === undefined ? {} : { choices }),
      ...(repeatable === undefined ? {} : { repeatable }),
    };
  });
}

/** An option as it is written in the configuration file. */
export interface ConfigFileKey {
  /** The table that has the key; undefined for the top of the file. */
  readonly table: string | undefined;
  readonly key: string;
  readonly type: string;
  readonly description: string;
  /** What is allowed, as the end of "it must be ...". */
  readonly allowed: string;
  /** undefined: nothing. */
  readonly defaultText: string | undefined;
  readonly flag: string;
  readonly env: string;
}

/** The keys of the configuration file, for its manual page: those at the top first. */
export function configFileKeys(): ConfigFileKey[] {
  return Object.entries(ALL_OPTIONS)
    .filter(([, definition]) => definition.notInFile !== true)
    .map(([name, definition]) => {
      const [key = '', table] = tomlKeyOf(name).split('.').reverse();
      const { type, description, allowed } = definition;
      const defaultText = definition.defaultText ?? definition.default;
      return {
        ...{ table, key, type, description, allowed, flag: flagOf(name), env: envOf(name) },
        defaultText: defaultText === '' ? undefined : defaultText,
      };
    });
}

/**
 * Puts the configuration together. Throws `ConfigUnknownKey` for a key or variable that does not exist, and
 * `ConfigInvalid`, `NameInvalid` or `TooManyCapabilities` for a value, naming where it was given.
 */
export function loadConfig(inputs: ConfigInputs): Config {
  const { env } = inputs;
  refuseUnknownVariables(env);
  const file = readConfigFile(inputs);
  const values = new Map<string, FoundValue>();
  for (const [key, definition] of Object.entries(ALL_OPTIONS)) {
    const given = findValue(key, definition, inputs, file);
    let value = given.raw === undefined ? undefined : parseValue(definition, given);
    if (definition.path === true && typeof value === 'string') {
      const base = given.source === 'file' ? dirname(file!.path) : (inputs.cwd ?? process.cwd());
      value = resolve(base, value);
    }
    values.set(key, { ...given, value });
  }
  const get = <K extends OptionKey>(key: K) => values.get(key)!.value as OptionValue<K> | undefined;
  /** For the options that have a default. */
  const need = <K extends OptionKey>(key: K) => get(key) as OptionValue<K>;
  const check = <T>(key: OptionKey, run: () => T): T => namingSource(values.get(key)!.where, run);

  const fleet = check('fleet', () => checkName('fleet', need('fleet')));
  const name = check('name', () => (get('name') === undefined ? undefined : checkName('worker', need('name'))));
  const capabilities = check('capabilities', () => capabilitySet(need('capabilities')));
  const maxSessions = need('max-sessions');
  check('reserve', () => checkReserve(need('reserve'), capabilities, maxSessions));
  check('capability-check', () => checkChecks(need('capability-check'), capabilities));
  if (name !== undefined && capabilities.includes(name)) {
    throw new AtlasError(
      'ConfigInvalid',
      `${values.get('name')!.where}: the worker can not have the name ${JSON.stringify(name)}, which is one of its capabilities.`,
    );
  }
  const documentEnv: Record<string, string> = {};
  for (const key of Object.keys(DOCUMENT_OPTIONS)) {
    const { source, value, where } = values.get(key)!;
    if (source === 'default') continue;
    const setting = { [envOf(key)]: value as string };
    // The job knows the bounds. Asked here, so that a wrong value stops the start and not the first document.
    namingSource(where, () => readSettings(setting));
    Object.assign(documentEnv, setting);
  }
  const temporal = { address: get('address'), namespace: get('namespace'), profile: get('profile') };
  return {
    fleet,
    name,
    capabilities,
    maxSessions,
    reserve: need('reserve'),
    capabilityChecks: need('capability-check'),
    capabilityCheckIntervalMs: need('capability-check-interval'),
    capabilityCheckTimeoutMs: need('capability-check-timeout'),
    stateDirectory: get('state-dir'),
    activitiesPath: get('activities'),
    workflowsPath: get('workflows'),
    graceMs: need('grace'),
    ephemeral: need('ephemeral'),
    maxActivities: need('max-activities'),
    keepMs: need('keep'),
    logLevel: need('log-level'),
    logFormat: need('log-format'),
    presenceTtlMs: need('presence-ttl'),
    temporal: Object.fromEntries(Object.entries(temporal).filter(([, value]) => value !== undefined)),
    documentEnv,
    sources: Object.fromEntries([...values].map(([key, { source }]) => [key, source])),
  };
}

interface GivenValue {
  readonly source: ConfigSource;
  /** As the user knows it: `--max-sessions`, `ATLAS_MAX_SESSIONS`, `FILE: max_sessions`. */
  readonly where: string;
  readonly raw: unknown;
}

interface FoundValue extends GivenValue {
  readonly value: unknown;
}

interface ConfigFile {
  readonly path: string;
  readonly values: ReadonlyMap<string, unknown>;
}

function findValue(key: string, definition: Option, inputs: ConfigInputs, file: ConfigFile | undefined): GivenValue {
  const flag = inputs.flags[camelCase(flagOf(key))];
  const text = inputs.env[envOf(key)];
  // Unit files and compose files can only empty a variable, not remove it.
  const variable = text === '' ? undefined : text;
  // Whoever parsed the flags may have filled them from the variables; the message should name what the user wrote.
  if (flag !== undefined && (variable === undefined || !meanTheSame(definition, flag, variable))) {
    return { source: 'flag', where: (inputs.nameOf ?? flagOf)(key), raw: flag };
  }
  if (variable !== undefined) return { source: 'env', where: envOf(key), raw: variable };
  if (file !== undefined && file.values.has(key)) {
    return { source: 'file', where: `${file.path}: ${tomlKeyOf(key)}`, raw: file.values.get(key) };
  }
  return { source: 'default', where: `the default of ${(inputs.nameOf ?? flagOf)(key)}`, raw: definition.default };
}

function meanTheSame(definition: Option, flag: unknown, variable: string): boolean {
  const [one, other] = [flag, variable].map((raw) => JSON.stringify(definition.schema.safeParse(raw).data));
  return one === other && (one !== undefined || String(flag) === variable);
}

function parseValue(definition: Option, { where, raw }: GivenValue): unknown {
  const parsed = definition.schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const reason = parsed.error.issues.find((issue) => issue.code === 'custom')?.message ?? 'is not valid';
  throw new AtlasError(
    'ConfigInvalid',
    `${where}: ${JSON.stringify(raw)} ${reason}; the value must be ${definition.allowed}.`,
  );
}

function checkReserve(
  reserve: Readonly<Record<string, number>>,
  capabilities: readonly string[],
  maxSessions: number,
): void {
  for (const capability of Object.keys(reserve)) {
    if (capabilities.includes(capability)) continue;
    throw new AtlasError(
      'ConfigInvalid',
      `slots can not be kept for ${JSON.stringify(capability)}, which is not a capability of this worker (${capabilities.join(', ') || 'it has none'}).`,
    );
  }
  const reserved = Object.values(reserve).reduce((sum, slots) => sum + slots, 0);
  if (reserved > maxSessions) {
    throw new AtlasError(
      'ConfigInvalid',
      `${reserved} slots are to be kept, and the worker has ${maxSessions} in all (max-sessions).`,
    );
  }
}

function checkChecks(checks: Readonly<Record<string, string>>, capabilities: readonly string[]): void {
  for (const capability of Object.keys(checks)) {
    if (capabilities.includes(capability)) continue;
    throw new AtlasError(
      'ConfigInvalid',
      `there is a check for ${JSON.stringify(capability)}, which is not a capability of this worker (${capabilities.join(', ') || 'it has none'}).`,
    );
  }
}

/** Says where a value was given, in errors of checks that do not know. */
function namingSource<T>(where: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof AtlasError)) throw error;
    throw new AtlasError(error.code, `${where}: ${error.message}`, { cause: error });
  }
}

function refuseUnknownVariables(env: NodeJS.ProcessEnv): void {
  const known = new Set([...Object.keys(ALL_OPTIONS).map(envOf), ...FOREIGN_VARIABLES]);
  const unknown = Object.keys(env).filter((name) => name.startsWith(ENV_PREFIX) && !known.has(name));
  refuseUnknown(unknown.sort(), known, 'environment');
}

function refuseUnknown(unknown: readonly string[], known: Iterable<string>, place: string): void {
  if (unknown.length === 0) return;
  const names = [...known];
  const complaints = unknown.map((name) => {
    const nearest = nearestName(name, names);
    return `${name} is not known${nearest === undefined ? '' : ` (did you mean ${nearest}?)`}`;
  });
  throw new AtlasError('ConfigUnknownKey', `${place}: ${complaints.join(', ')}.`, {
    next: `Correct or remove ${unknown.length === 1 ? unknown[0]! : 'them'}; \`atlasd --help\` lists all.`,
  });
}

function readConfigFile(inputs: ConfigInputs): ConfigFile | undefined {
  const given = findValue('config', OPTIONS.config, inputs, undefined);
  const path =
    given.raw === undefined
      ? defaultConfigPath(inputs)
      : resolve(inputs.cwd ?? process.cwd(), parseValue(OPTIONS.config, given) as string);
  let content: string;
  try {
    content = inputs.readFile(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (given.raw === undefined && (code === 'ENOENT' || code === 'ENOTDIR')) return undefined;
    const where = given.raw === undefined ? 'The configuration file' : `${given.where}: the configuration file`;
    throw new AtlasError('ConfigInvalid', `${where} ${path} can not be read: ${message}.`, { cause: error });
  }
  let table: Record<string, unknown>;
  try {
    table = parseToml(content);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [firstLine = ''] = error.message.split('\n');
    throw new AtlasError('ConfigInvalid', `${path}:${error.line}:${error.column}: ${firstLine}.`, { cause: error });
  }
  return { path, values: namedValues(table, path) };
}

/** The values of a file by key of the option. Refuses unknown keys, all at once. */
function namedValues(table: Readonly<Record<string, unknown>>, path: string): Map<string, unknown> {
  const keys = new Map<string, string>();
  for (const [key, definition] of Object.entries(ALL_OPTIONS)) {
    if (definition.notInFile !== true) keys.set(tomlKeyOf(key), key);
  }
  const sections = new Set([...keys.keys()].filter((name) => name.includes('.')).map((name) => name.split('.')[0]!));
  const values = new Map<string, unknown>();
  const unknown: string[] = [];
  const take = (name: string, value: unknown): void => {
    const key = keys.get(name);
    if (key === undefined) unknown.push(name);
    else values.set(key, value);
  };
  for (const [name, value] of Object.entries(table)) {
    if (sections.has(name) && typeof value === 'object' && value !== null) {
      for (const [inner, innerValue] of Object.entries(value)) take(`${name}.${inner}`, innerValue);
    } else {
      take(name, value);
    }
  }
  refuseUnknown(unknown, [...keys.keys(), ...sections], path);
  return values;
}

function defaultConfigPath({ env, uid = process.getuid?.() }: ConfigInputs): string {
  if (uid === 0) return '/etc/atlas/atlasd.toml';
  const configHome = env['XDG_CONFIG_HOME'];
  const base =
    configHome !== undefined && isAbsolute(configHome) ? configHome : join(env['HOME'] ?? homedir(), '.config');
  return join(base, 'atlas', 'atlasd.toml');
}

function flagOf(key: string): string {
  return `--${key.replace(/[._]/g, '-')}`;
}

function envOf(key: string): string {
  return ALL_OPTIONS[key]?.env ?? `${ENV_PREFIX}${key.replace(/[.-]/g, '_').toUpperCase()}`;
}

function tomlKeyOf(key: string): string {
  return key.replace(/-/g, '_');
}

/** As commander names the value of a flag. */
function camelCase(flag: string): string {
  return flag.slice(2).replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}
