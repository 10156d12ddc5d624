import { describe, expect, it } from 'vitest';
import {
  configFileKeys,
  configOptionSpecs,
  loadConfig,
  type Config,
  type ConfigInputs,
} from '../../../src/daemon/config.js';
import { EXAMPLE_CONFIG } from '../../../src/daemon/config-page.js';
import { atlasdSpec } from '../../../src/daemon/spec.js';

const FILE = '/home/a/.config/atlas/atlasd.toml';

interface Given {
  readonly flags?: ConfigInputs['flags'];
  readonly env?: NodeJS.ProcessEnv;
  /** Content by path, or of the default file. */
  readonly files?: Readonly<Record<string, string>>;
  readonly toml?: string;
  readonly uid?: number;
}

function load(given: Given = {}): Config {
  const files: Record<string, string> = { ...(given.toml === undefined ? {} : { [FILE]: given.toml }), ...given.files };
  return loadConfig({
    flags: given.flags ?? {},
    env: { HOME: '/home/a', PATH: '/bin', ...given.env },
    cwd: '/srv/here',
    uid: given.uid ?? 1000,
    readFile: (path) => {
      const content = files[path];
      if (content === undefined) throw Object.assign(new Error(`ENOENT: no file ${path}`), { code: 'ENOENT' });
      return content;
    },
  });
}

function failure(given: Given): { readonly code: unknown; readonly message: string } {
  try {
    load(given);
  } catch (error) {
    const { code, message } = error as { code?: unknown; message: string };
    return { code, message };
  }
  throw new Error('The configuration was accepted.');
}

describe('the example of the manual page', () => {
  it('is a configuration that atlasd takes', () => {
    expect(load({ toml: EXAMPLE_CONFIG })).toMatchObject({
      name: 'worker-7',
      stateDirectory: '/var/lib/atlas',
      reserve: { gpu: 2 },
      capabilityChecks: { gpu: 'nvidia-smi -L' },
      graceMs: 120_000,
      documentEnv: { ATLAS_DOCUMENT_ALLOW_FILES: '/srv/documents', ATLAS_DOCUMENT_MAX_PAGES: '2000' },
    });
  });
});

describe('configFileKeys', () => {
  it('has every option but --config, with its table', () => {
    const flags = configOptionSpecs().map(({ flags: given }) => given.split(' ')[0]);
    expect(configFileKeys().map(({ flag }) => flag)).toEqual(flags.filter((flag) => flag !== '--config'));
    expect(configFileKeys().find(({ flag }) => flag === '--document-max-pages')).toMatchObject({
      table: 'document',
      key: 'max_pages',
      type: 'integer',
      allowed: 'a whole number from 1 to 100000',
      defaultText: '5000',
    });
  });
});

describe('loadConfig', () => {
  it('has a default for everything', () => {
    expect(load()).toEqual({
      fleet: 'atlas',
      name: undefined,
      capabilities: [],
      maxSessions: 4,
      reserve: {},
      capabilityChecks: {},
      capabilityCheckIntervalMs: 30_000,
      capabilityCheckTimeoutMs: 10_000,
      stateDirectory: undefined,
      activitiesPath: undefined,
      workflowsPath: undefined,
      graceMs: 30_000,
      ephemeral: false,
      maxActivities: 16,
      keepMs: 86_400_000,
      logLevel: 'info',
      logFormat: 'auto',
      presenceTtlMs: 6_000,
      temporal: {},
      documentEnv: {},
      sources: expect.objectContaining({ 'max-sessions': 'default', 'document.ocr_engine': 'default' }),
    });
  });

  it('takes a capability alone', () => {
    expect(load({ flags: { capabilities: ['gpu'] } })).toMatchObject({ capabilities: ['gpu'], maxSessions: 4 });
  });

  it('prefers a flag to a variable, a variable to the file, and the file to the default', () => {
    const toml = 'max_sessions = 2\nmax_activities = 2\ngrace = "2s"\n';
    const env = { ATLAS_MAX_SESSIONS: '3', ATLAS_MAX_ACTIVITIES: '3' };
    const config = load({ flags: { maxSessions: '5' }, env, toml });
    expect(config).toMatchObject({ maxSessions: 5, maxActivities: 3, graceMs: 2_000, keepMs: 86_400_000 });
    expect(config.sources).toMatchObject({
      'max-sessions': 'flag',
      'max-activities': 'env',
      grace: 'file',
      keep: 'default',
    });
  });

  it('reads every option from each of the three', () => {
    const expected = {
      fleet: 'blue',
      name: 'worker-7',
      capabilities: ['gpu', 'ocr'],
      maxSessions: 6,
      reserve: { gpu: 2, ocr: 1 },
      capabilityChecks: { gpu: 'nvidia-smi -L, "all"=1', ocr: 'tesseract --version' },
      capabilityCheckIntervalMs: 5_000,
      capabilityCheckTimeoutMs: 2_000,
      graceMs: 60_000,
      ephemeral: true,
      maxActivities: 8,
      keepMs: 0,
      logLevel: 'debug',
      logFormat: 'json',
      presenceTtlMs: 12_000,
      temporal: { address: 'host:7233', namespace: 'ns', profile: 'prod' },
      documentEnv: {
        ATLAS_DOCUMENT_ALLOW_FILES: '/a,/b',
        ATLAS_DOCUMENT_MAX_PAGES: '7',
        ATLAS_DOCUMENT_OCR_ENGINE: 'native',
      },
    };
    const texts = {
      fleet: 'blue',
      name: 'worker-7',
      maxSessions: '6',
      grace: '1m',
      maxActivities: '8',
      keep: '0s',
      logLevel: 'debug',
      logFormat: 'json',
      presenceTtl: '12s',
      capabilityCheckInterval: '5s',
      capabilityCheckTimeout: '2s',
      address: 'host:7233',
      namespace: 'ns',
      profile: 'prod',
      documentMaxPages: '7',
      documentOcrEngine: 'native',
    };
    const lists = { capabilities: 'ocr, gpu,gpu', reserve: 'gpu=2,ocr=1', documentAllowFiles: '/a,/b' };
    // A command may have commas, so that these are no list with commas.
    const checks = ['gpu=nvidia-smi -L, "all"=1', 'ocr = tesseract --version'];
    const paths = { stateDir: 'state', activities: './a.js', workflows: '/w.js' };
    const here = {
      stateDirectory: '/srv/here/state',
      activitiesPath: '/srv/here/a.js',
      workflowsPath: '/w.js',
    };
    const split = Object.fromEntries(Object.entries(lists).map(([key, value]) => [key, value.split(',')]));
    expect(load({ flags: { ...texts, ...split, ...paths, capabilityCheck: checks, ephemeral: true } })).toMatchObject({
      ...expected,
      ...here,
    });
    const env = Object.fromEntries(
      Object.entries({ ...texts, ...lists, ...paths, capabilityCheck: checks.join('\n'), ephemeral: '1' }).map(
        ([key, value]) => [`ATLAS_${key.replace(/[A-Z]/g, '_$&').toUpperCase()}`, value],
      ),
    );
    expect(load({ env })).toMatchObject({ ...expected, ...here });
    const toml = `
      fleet = "blue"
      name = "worker-7"
      capabilities = ["ocr", "gpu"]
      max_sessions = 6
      grace = "1m"
      ephemeral = true
      max_activities = 8
      keep = "0s"
      log_level = "debug"
      log_format = "json"
      presence_ttl = "12s"
      capability_check_interval = "5s"
      capability_check_timeout = "2s"
      address = "host:7233"
      namespace = "ns"
      profile = "prod"
      state_dir = "state"
      activities = "./a.js"
      workflows = "/w.js"
      [reserve]
      gpu = 2
      ocr = 1
      [capability_check]
      gpu = 'nvidia-smi -L, "all"=1'
      ocr = "tesseract --version"
      [document]
      allow_files = ["/a", "/b"]
      max_pages = 7
      ocr_engine = "native"`;
    // Relative to the file, since whoever wrote it does not know from where atlasd is started.
    expect(load({ toml })).toMatchObject({
      ...expected,
      stateDirectory: '/home/a/.config/atlas/state',
      activitiesPath: '/home/a/.config/atlas/a.js',
      workflowsPath: '/w.js',
    });
  });

  it('names the variable when whoever parsed the flags has filled them from it', () => {
    const env = { ATLAS_MAX_SESSIONS: '3', ATLAS_EPHEMERAL: 'yes', ATLAS_CAPABILITIES: 'gpu,ocr' };
    const config = load({ flags: { maxSessions: '3', ephemeral: true, capabilities: ['gpu,ocr'] }, env });
    expect(config.sources).toMatchObject({ 'max-sessions': 'env', ephemeral: 'env', capabilities: 'env' });
    expect(failure({ flags: { maxSessions: 'many' }, env: { ATLAS_MAX_SESSIONS: 'many' } }).message).toMatch(
      /^ATLAS_MAX_SESSIONS: /,
    );
  });

  it('takes an empty variable for one that is not set', () => {
    expect(load({ env: { ATLAS_NAME: '', ATLAS_MAX_SESSIONS: '' } })).toMatchObject({
      name: undefined,
      maxSessions: 4,
    });
  });

  describe('finds its file', () => {
    const files = { '/etc/atlas/atlasd.toml': 'fleet = "system"', '/xdg/atlas/atlasd.toml': 'fleet = "xdg"' };

    it.each([
      ['of the system for root', { uid: 0 }, 'system'],
      ['below XDG_CONFIG_HOME', { env: { XDG_CONFIG_HOME: '/xdg' } }, 'xdg'],
      ['below the home directory', { toml: 'fleet = "home"' }, 'home'],
      ['by the flag', { flags: { config: 'own.toml' }, uid: 0 }, 'own'],
      ['by the variable', { env: { ATLAS_CONFIG: '/srv/here/own.toml' } }, 'own'],
    ])('%s', (_, given: Given, fleet) => {
      const own = { '/srv/here/own.toml': 'fleet = "own"' };
      expect(load({ ...given, files: { ...files, ...own } }).fleet).toBe(fleet);
    });

    it('and says so when a file that was asked for is not there', () => {
      expect(failure({ flags: { config: 'gone.toml' } })).toEqual({
        code: 'ConfigInvalid',
        message:
          '--config: the configuration file /srv/here/gone.toml can not be read: ENOENT: no file /srv/here/gone.toml.',
      });
    });
  });

  it.each<[string, Given, string]>([
    [
      'a flag',
      { flags: { maxSessions: '0' } },
      '--max-sessions: "0" is not valid; the value must be a whole number from 1 to 1000.',
    ],
    [
      'a variable',
      { env: { ATLAS_MAX_SESSIONS: '2.5' } },
      'ATLAS_MAX_SESSIONS: "2.5" is not valid; the value must be a whole number from 1 to 1000.',
    ],
    [
      'a key',
      { toml: 'max_sessions = 2.5' },
      `${FILE}: max_sessions: 2.5 is not valid; the value must be a whole number from 1 to 1000.`,
    ],
    [
      'a number for a text',
      { toml: 'name = 7' },
      `${FILE}: name: 7 is not valid; the value must be a text of 1 to 63 lower-case letters, digits, dots and hyphens, the first a letter or digit.`,
    ],
    [
      'an empty name',
      { flags: { name: '' } },
      '--name: "" is not valid; the value must be a text of 1 to 63 lower-case letters, digits, dots and hyphens, the first a letter or digit.',
    ],
    [
      'a duration without a unit',
      { flags: { grace: '30' } },
      '--grace: "30" has no unit: write 30s, 30m or 30h; the value must be a duration from 0s to 1d.',
    ],
    [
      'a duration without a unit in the file',
      { toml: 'grace = 30' },
      `${FILE}: grace: 30 has no unit: write 30s, 30m or 30h; the value must be a duration from 0s to 1d.`,
    ],
    [
      'a duration out of bounds',
      { flags: { presenceTtl: '500ms' } },
      '--presence-ttl: "500ms" is out of bounds; the value must be a duration from 1s to 10m.',
    ],
    [
      'a choice',
      { env: { ATLAS_LOG_LEVEL: 'loud' } },
      'ATLAS_LOG_LEVEL: "loud" is not valid; the value must be one of trace, debug, info, warn, error.',
    ],
    [
      'a switch',
      { env: { ATLAS_EPHEMERAL: 'maybe' } },
      'ATLAS_EPHEMERAL: "maybe" is not valid; the value must be true or false.',
    ],
    [
      'a reserve without a number',
      { flags: { reserve: ['gpu'] } },
      '--reserve: ["gpu"] is not valid; the value must be CAPABILITY=COUNT for each capability once, such as gpu=2.',
    ],
    [
      'a reserve given twice',
      { env: { ATLAS_RESERVE: 'gpu=1,gpu=2' } },
      'ATLAS_RESERVE: "gpu=1,gpu=2" is not valid; the value must be CAPABILITY=COUNT for each capability once, such as gpu=2.',
    ],
    [
      'a check of what it has not',
      { flags: { capabilities: ['gpu'], capabilityCheck: ['ocr=true'] } },
      '--capability-check: there is a check for "ocr", which is not a capability of this worker (gpu).',
    ],
    [
      'a check without a command',
      { env: { ATLAS_CAPABILITIES: 'gpu', ATLAS_CAPABILITY_CHECK: 'gpu' } },
      'ATLAS_CAPABILITY_CHECK: "gpu" is not valid; the value must be CAPABILITY=COMMAND for each capability once, in a variable one on each line.',
    ],
    [
      'two checks of one capability',
      { flags: { capabilities: ['gpu'], capabilityCheck: ['gpu=a', 'gpu=b'] } },
      '--capability-check: ["gpu=a","gpu=b"] is not valid; the value must be CAPABILITY=COMMAND for each capability once, in a variable one on each line.',
    ],
    [
      'a reserve of what it has not',
      { flags: { reserve: ['gpu=1'], capabilities: 'ocr' } },
      '--reserve: slots can not be kept for "gpu", which is not a capability of this worker (ocr).',
    ],
    [
      'a reserve of more than there is',
      { flags: { capabilities: 'a,b', maxSessions: '2', reserve: 'a=2,b=1' } },
      '--reserve: 3 slots are to be kept, and the worker has 2 in all (max-sessions).',
    ],
    [
      'a name that is a capability',
      { flags: { name: 'gpu', capabilities: 'gpu' } },
      '--name: the worker can not have the name "gpu", which is one of its capabilities.',
    ],
    [
      'a setting of the job',
      { toml: '[document]\nocr_engine = "best"' },
      `${FILE}: document.ocr_engine: "best" is not valid; the value must be one of auto, native, npm.`,
    ],
    [
      'a setting of the job out of bounds',
      { flags: { documentOcrDpi: '9' } },
      '--document-ocr-dpi: document.ocr_dpi (ATLAS_DOCUMENT_OCR_DPI) is "9"; it must be a whole number from 70 to 600.',
    ],
    [
      'a file that is not TOML',
      { toml: 'fleet = "a"\nname = worker' },
      `${FILE}:2:8: Invalid TOML document: invalid value.`,
    ],
  ])('refuses %s, naming it', (_, given, message) => {
    expect(failure(given)).toEqual({ code: 'ConfigInvalid', message });
  });

  it.each<[string, Given, string, RegExp]>([
    ['a fleet with a hyphen', { env: { ATLAS_FLEET: 'a-b' } }, 'NameInvalid', /^ATLAS_FLEET: The fleet name "a-b"/],
    ['a bad worker name', { toml: 'name = "A"' }, 'NameInvalid', /atlasd\.toml: name: The worker name "A"/],
    [
      'a bad capability',
      { flags: { capabilities: ['g pu'] } },
      'NameInvalid',
      /^--capabilities: The capability name "g pu"/,
    ],
    [
      'four capabilities',
      { flags: { capabilities: 'a,b,c,d' } },
      'TooManyCapabilities',
      /^--capabilities: 4 capabilities/,
    ],
  ])('refuses %s by the rule for names', (_, given, code, message) => {
    expect(failure(given)).toEqual({ code, message: expect.stringMatching(message) });
  });

  it.each<[string, Given, string]>([
    ['key', { toml: 'max_sesions = 2' }, `${FILE}: max_sesions is not known (did you mean max_sessions?).`],
    [
      'key written as a flag',
      { toml: 'max-sessions = 2' },
      `${FILE}: max-sessions is not known (did you mean max_sessions?).`,
    ],
    [
      'key in a table',
      { toml: '[document]\nocr_engin = 1' },
      `${FILE}: document.ocr_engin is not known (did you mean document.ocr_engine?).`,
    ],
    ['table', { toml: '[documents]\nocr = "auto"' }, `${FILE}: documents is not known (did you mean document?).`],
    [
      'key far from any',
      { toml: 'zzzzzz = 2\nfleeet = ""' },
      `${FILE}: zzzzzz is not known, fleeet is not known (did you mean fleet?).`,
    ],
    ['key that only a flag can be', { toml: 'config = "x"' }, `${FILE}: config is not known.`],
    ['variable', { env: { ATLAS_NAMES: 'x' } }, 'environment: ATLAS_NAMES is not known (did you mean ATLAS_NAME?).'],
    [
      'variable of the job',
      { env: { ATLAS_DOCUMENT_OCR_DPO: 'x' } },
      'environment: ATLAS_DOCUMENT_OCR_DPO is not known (did you mean ATLAS_DOCUMENT_OCR_DPI?).',
    ],
  ])('refuses an unknown %s with the nearest name', (_, given, message) => {
    expect(failure(given)).toEqual({ code: 'ConfigUnknownKey', message });
  });

  it('leaves the variables of the other program alone', () => {
    expect(() => load({ env: { ATLAS_CACHE_DIR: '/c', ATLAS_DEBUG: '1', TEMPORAL_ADDRESS: 'x' } })).not.toThrow();
  });
});

describe('configOptionSpecs', () => {
  it('gives every option a flag, a variable and its default in words', () => {
    const specs = new Map(configOptionSpecs().map((spec) => [spec.flags, spec]));
    expect(specs.get('--max-sessions <count>')).toMatchObject({ env: 'ATLAS_MAX_SESSIONS', defaultText: '4' });
    expect(specs.get('--document-allow-files <list>')).toMatchObject({
      env: 'ATLAS_DOCUMENT_ALLOW_FILES',
      repeatable: true,
    });
    expect(specs.get('--log-level <level>')?.choices).toEqual(['trace', 'debug', 'info', 'warn', 'error']);
    expect(specs.has('--ephemeral')).toBe(true);
    // A default that commander knows would come back as a flag and win over everything.
    for (const spec of specs.values()) expect(spec.default).toBeUndefined();
  });

  it('is what atlasd is specified by', () => {
    const [check, format, ...options] = atlasdSpec.options;
    // What is no setting of a worker: whether to look only, and how to say what was seen.
    expect([check?.flags, format?.flags]).toEqual(['--check', '-o, --format <format>']);
    expect(options).toEqual(configOptionSpecs());
    expect(atlasdSpec.path).toEqual([]);
  });
});
