/**
 * The import rules themselves: each has a tree of files that violates it, and one file that does the allowed thing. A
 * rule whose pattern has stopped matching would otherwise be silent for ever.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CONFIG = join(ROOT, '.dependency-cruiser.cjs');
const { forbidden } = createRequire(import.meta.url)(CONFIG) as { forbidden: { name: string }[] };

/** What each file imports, and the rule that forbids it; `null`: allowed. */
const CASES: readonly { file: string; code: string; rule: string | null }[] = [
  { file: 'contract/allowed.ts', code: `import './other.js';`, rule: null },
  { file: 'contract/node.ts', code: `import 'node:fs';`, rule: 'contract-imports-nothing' },
  {
    file: 'contract/sdk.ts',
    code: `import type { Client } from '@temporalio/client';`,
    rule: 'contract-imports-nothing',
  },
  {
    file: 'workflow/allowed.ts',
    code: `import '@temporalio/workflow'; import type { Duration } from '@temporalio/common'; import '../contract/other.js';`,
    rule: null,
  },
  { file: 'workflow/node.ts', code: `import 'node:crypto';`, rule: 'workflow-imports-only-contract-and-sdk' },
  { file: 'workflow/client.ts', code: `import '@temporalio/client';`, rule: 'workflow-imports-only-contract-and-sdk' },
  { file: 'workflow/daemon.ts', code: `import '../daemon/other.js';`, rule: 'workflow-imports-only-contract-and-sdk' },
  {
    file: 'workflow/common.ts',
    code: `import { ApplicationFailure } from '@temporalio/common'; export const x = ApplicationFailure;`,
    rule: 'workflow-imports-common-for-types-only',
  },
  { file: 'executor/daemon.ts', code: `import '../daemon/other.js';`, rule: 'executor-never-imports-daemon' },
  {
    file: 'embedded/allowed.ts',
    code: `import '../daemon/other.js'; import '../executor/attempts.js';`,
    rule: null,
  },
  { file: 'embedded/executor.ts', code: `import '../executor/other.js';`, rule: 'embedded-runs-no-executor-process' },
  { file: 'daemon/embedded.ts', code: `import '../embedded/other.js';`, rule: 'nothing-imports-the-embedded-worker' },
  { file: 'commands/allowed.ts', code: `import 'commander'; import '../terminal/other.js';`, rule: null },
  {
    file: 'commands/daemon.ts',
    code: `import '../daemon/other.js';`,
    rule: 'commands-never-import-daemon-or-executor',
  },
  {
    file: 'commands/support/executor.ts',
    code: `export const x = (): Promise<unknown> => import('../../executor/other.js');`,
    rule: 'commands-never-import-daemon-or-executor',
  },
  { file: 'local/allowed.ts', code: `import 'node:http'; import '../contract/other.js';`, rule: null },
  { file: 'local/daemon.ts', code: `import '../daemon/other.js';`, rule: 'local-imports-only-contract' },
  { file: 'commands/local.ts', code: `import '../local/other.js';`, rule: null },
  { file: 'daemon/local.ts', code: `import '../local/other.js';`, rule: null },
  { file: 'testing/allowed.ts', code: `import '../daemon/other.js'; import '../executor/other.js';`, rule: null },
  { file: 'testing/server.ts', code: `import '@temporalio/testing';`, rule: 'testing-stays-light' },
  { file: 'testing/terminal.ts', code: `import '../terminal/other.js';`, rule: 'testing-stays-light' },
  { file: 'fleet/testing.ts', code: `import '../testing/other.js';`, rule: 'nothing-imports-testing' },
  { file: 'terminal/allowed.tsx', code: `import 'ink'; import 'react';`, rule: null },
  { file: 'commands/ink.ts', code: `import 'ink';`, rule: 'ink-and-react-only-under-terminal' },
  {
    file: 'fleet/react.ts',
    code: `import type { ReactNode } from 'react';`,
    rule: 'ink-and-react-only-under-terminal',
  },
  { file: 'atlas.ts', code: `import 'commander';`, rule: null },
  { file: 'atlasd.ts', code: `import 'commander';`, rule: null },
  { file: 'daemon/commander.ts', code: `import 'commander';`, rule: 'commander-only-under-commands-and-mains' },
  { file: 'daemon/config.ts', code: `import '../jobs/document/settings.js';`, rule: null },
  { file: 'executor/job.ts', code: `import '../jobs/document/other.js';`, rule: 'nothing-imports-the-document-job' },
  {
    file: 'daemon/settings.ts',
    code: `import '../jobs/document/settings.js';`,
    rule: 'nothing-imports-the-document-job',
  },
  {
    file: 'jobs/document/allowed.ts',
    code: `import './other.js'; import '../../contract/other.js'; import 'temporal-atlas/workflow';`,
    rule: null,
  },
  {
    file: 'jobs/document/workflow.ts',
    code: `import '../../workflow/other.js';`,
    rule: 'document-job-uses-public-entry-points',
  },
  { file: 'fleet/one.ts', code: `import './two.js';`, rule: 'no-cycles' },
  // A cycle is reported once.
  { file: 'fleet/two.ts', code: `import './one.js';`, rule: null },
  { file: 'fleet/three.ts', code: `import './four.js'; export type Three = 3;`, rule: null },
  { file: 'fleet/four.ts', code: `import type { Three } from './three.js'; export type Four = Three;`, rule: null },
  { file: 'fleet/five.ts', code: `import './six.js';`, rule: null },
  { file: 'fleet/six.ts', code: `export const x = (): Promise<unknown> => import('./five.js');`, rule: null },
  { file: 'fleet/unlisted.ts', code: `import 'vitest';`, rule: 'no-unlisted-packages' },
];

/** Harmless targets. */
const OTHERS = [
  'contract',
  'workflow',
  'daemon',
  'executor',
  'testing',
  'embedded',
  'local',
  'terminal',
  'jobs/document',
].map((folder) => `${folder}/other.ts`);

/** A second tree, as one configuration file can not both obey and break its rule. */
const CONFIG_BREAKS = [
  {
    file: 'daemon/config.ts',
    code: `import '../jobs/document/other.js';`,
    rule: 'config-imports-only-settings-of-the-job',
  },
];

let root: string;

async function cruise(files: readonly { file: string; code: string }[]): Promise<Map<string, string[]>> {
  root = await mkdtemp(join(tmpdir(), 'at-'));
  for (const { file, code } of [
    ...files,
    ...[...OTHERS, 'jobs/document/settings.ts', 'executor/attempts.ts'].map((other) => ({
      file: other,
      code: 'export {};',
    })),
  ]) {
    const path = join(root, 'src', file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, `${code}\nexport {};\n`);
  }
  for (const name of ['package.json', 'tsconfig.json', 'node_modules'])
    await symlink(join(ROOT, name), join(root, name));
  const depcruise = join(ROOT, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [depcruise, '--config', CONFIG, '--output-type', 'json', 'src'],
    { cwd: root, maxBuffer: 64 * 1024 * 1024 },
    // It ends with the number of violations as its exit code.
  ).catch((error: unknown) => error as { stdout: string });
  const { summary } = JSON.parse(stdout) as { summary: { violations: { from: string; rule: { name: string } }[] } };
  const found = new Map<string, string[]>();
  for (const { from, rule } of summary.violations) {
    const file = from.replace(/^src\//, '');
    found.set(file, [...(found.get(file) ?? []), rule.name]);
  }
  return found;
}

let violations: Map<string, string[]>;
let violationsOfConfig: Map<string, string[]>;

beforeAll(async () => {
  violations = await cruise(CASES);
  await rm(root, { recursive: true, force: true });
  violationsOfConfig = await cruise(CONFIG_BREAKS);
});
afterAll(async () => {
  await rm(root, { recursive: true, force: true });
});

describe('import rules', () => {
  it.each(CASES)('$file: $rule', ({ file, rule }) => {
    expect(new Set(violations.get(file) ?? [])).toEqual(new Set(rule === null ? [] : [rule]));
  });

  it.each(CONFIG_BREAKS)('$file: $rule', ({ file, rule }) => {
    expect(violationsOfConfig.get(file)).toEqual([rule]);
  });

  it('have a violation each', () => {
    const tested = new Set([...CASES, ...CONFIG_BREAKS].map(({ rule }) => rule));
    expect(forbidden.map(({ name }) => name).filter((name) => !tested.has(name))).toEqual([]);
  });
});
