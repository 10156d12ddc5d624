/**
 * Bundles workflows at build time, so that the start of atlasd need not run webpack (1.8 s). A bundle is made again only
 * when the compiled code it may contain has changed.
 */
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { filesUnder, hashFiles, isMain, main, readJson, ROOT, say, seconds } from './lib.mjs';

const BUNDLES = [
  // The workflow that represents a worker; run by every supervisor.
  { entry: 'dist/fleet/workflow.js', output: 'dist/bundles/worker-workflow.js' },
  // The document job; run by executors without modules of their own.
  { entry: 'dist/jobs/document/workflows.js', output: 'dist/bundles/document.js' },
];
const STAMP = 'dist/bundles/.inputs.json';

export async function bundleWorkflows() {
  const inputs = hashFiles([
    ...['contract', 'workflow', 'fleet', 'jobs'].flatMap((folder) =>
      filesUnder(`dist/${folder}`, (name) => name.endsWith('.js')),
    ),
    // A workflow and the Worker that runs it have to come from the same version of the SDK.
    'package-lock.json',
    'scripts/bundle-workflows.mjs',
  ]);
  const due = BUNDLES.filter(({ entry }) => existsSync(join(ROOT, entry)));
  if (readJson(STAMP)?.inputs === inputs && due.every(({ output }) => existsSync(join(ROOT, output)))) return;

  const { bundleWorkflowCode } = await import('@temporalio/worker');
  for (const { entry, output } of due) {
    const startedMs = Date.now();
    const problems = [];
    const collect = (level) => (message) => {
      if (level === 'WARN' || level === 'ERROR') problems.push(message);
    };
    const { code } = await bundleWorkflowCode({
      workflowsPath: join(ROOT, entry),
      // Stack traces need where a line comes from, not its text, which is more than half of a bundle that each process
      // keeps in memory twice.
      webpackConfigHook: (config) => ({ ...config, devtool: 'inline-nosources-source-map' }),
      logger: {
        log: (level, message) => collect(level)(message),
        trace: collect('TRACE'),
        debug: collect('DEBUG'),
        info: collect('INFO'),
        warn: collect('WARN'),
        error: collect('ERROR'),
      },
    }).catch((error) => {
      for (const problem of problems) say(problem);
      throw error;
    });
    const target = join(ROOT, output);
    mkdirSync(dirname(target), { recursive: true });
    // An atlasd that starts meanwhile reads the old bundle or the new one, not half of it.
    writeFileSync(`${target}.new`, code);
    renameSync(`${target}.new`, target);
    say(`Bundled ${output} in ${seconds(startedMs)}.`);
  }
  mkdirSync(join(ROOT, 'dist/bundles'), { recursive: true });
  writeFileSync(join(ROOT, STAMP), JSON.stringify({ inputs }));
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await bundleWorkflows();
    return 0;
  });
}
