/**
 * Builds `dist`: compiles with tsc and bundles the workflows. Does nothing when the inputs are those of the last build.
 */
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundleWorkflows } from './bundle-workflows.mjs';
import {
  filesUnder,
  hashFiles,
  isMain,
  main,
  packageProgram,
  readJson,
  ROOT,
  run,
  say,
  ScriptError,
  seconds,
} from './lib.mjs';

/** Written last: a build that was broken off is repeated. */
const STAMP = 'dist/.build.json';

export async function build() {
  const startedMs = Date.now();
  const inputs = hashInputs();
  say('Building: compiling with tsc.');
  mkdirSync(join(ROOT, 'dist'), { recursive: true });
  rmSync(join(ROOT, STAMP), { force: true });
  removeLeftovers();
  const code = await run(
    process.execPath,
    [packageProgram('typescript', 'bin/tsc'), '-p', '.', '--incremental', '--tsBuildInfoFile', 'dist/.tsbuildinfo'],
    { stdio: ['ignore', 2, 2] },
  );
  if (code !== 0) throw new ScriptError('The build failed: see the errors of tsc above.');
  await bundleWorkflows();
  writeFileSync(join(ROOT, STAMP), JSON.stringify({ inputs }));
  say(`Built in ${seconds(startedMs)}.`);
}

export function isBuilt() {
  return existsSync(join(ROOT, STAMP)) && readJson(STAMP)?.inputs === hashInputs();
}

function hashInputs() {
  return hashFiles([
    ...filesUnder('src', (name) => /\.tsx?$/.test(name)),
    'tsconfig.json',
    'package.json',
    'package-lock.json',
    'scripts/build.mjs',
    'scripts/bundle-workflows.mjs',
  ]);
}

/** tsc leaves the output of deleted sources behind, and a module that is gone would go on working here alone. */
function removeLeftovers() {
  let removed = false;
  for (const path of filesUnder('dist')) {
    const module = /^dist\/(.+?)\.(js|d\.ts|js\.map)$/.exec(path)?.[1];
    if (module === undefined || module.startsWith('bundles/')) continue;
    const hasSource = ['.ts', '.tsx'].some((suffix) => existsSync(join(ROOT, 'src', module + suffix)));
    if (hasSource) continue;
    rmSync(join(ROOT, path));
    removed = true;
  }
  // An incremental compile believes that its output of last time is there; so it must be, as far as it has a source.
  const incomplete = filesUnder('src', (name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts')).some(
    (path) => !existsSync(join(ROOT, path.replace(/^src/, 'dist').replace(/\.tsx?$/, '.js'))),
  );
  if (removed || incomplete) rmSync(join(ROOT, 'dist/.tsbuildinfo'), { force: true });
}

if (isMain(import.meta.url)) {
  await main(async () => {
    if (isBuilt()) say('Up to date.');
    else await build();
    return 0;
  });
}
