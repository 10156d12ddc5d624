/**
 * One real Temporal server for the whole run. Tests keep apart by fleet name (see `fleet.ts`) and workflow id, not by
 * server: starting one per file would take longer than the tests.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { startDevServer } from '../../src/temporal/dev-server.js';
import { RESOLVE_STEP_LABELS, type ResolvedServer } from '../../src/temporal/resolve-server.js';
import { isBuilt } from '../../scripts/build.mjs';

declare module 'vitest' {
  interface ProvidedContext {
    temporalAddress: string;
    /** The program of that server, for tests that start one of their own. */
    temporalProgram: ResolvedServer;
    /** The bundle of the workflows in `test/fixtures/user`; bundled once, since webpack takes seconds. */
    fixtureWorkflows: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  if (!isBuilt()) console.warn('dist is older than src: tests that start bin/*.js run the old build (npm run build).');
  const server = await startDevServer({
    env: process.env,
    onStep: (event) => {
      if (event.step === 'start' || event.step === 'path' || event.step === 'cache') return;
      console.log(`temporal server: ${RESOLVE_STEP_LABELS[event.step]}: ${event.state} ${event.detail}`);
    },
  });
  let stopping = false;
  // Every test would fail by it, and none could say why.
  void server.exited.then(() => {
    if (!stopping) console.error(`The Temporal server of the suite has ended by itself.\n${server.output()}`);
  });
  project.provide('temporalAddress', server.address);
  project.provide('temporalProgram', server.program);
  const bundles = await mkdtemp(join(tmpdir(), 'atlas-bundles-'));
  const workflows = join(bundles, 'fixtures.bundle.js');
  await bundle(fileURLToPath(new URL('../fixtures/user/workflows.js', import.meta.url)), workflows);
  project.provide('fixtureWorkflows', workflows);
  return async () => {
    stopping = true;
    await server.stop();
    await rm(bundles, { recursive: true, force: true });
  };
}

async function bundle(source: string, target: string): Promise<void> {
  const { bundleWorkflowCode } = await import('@temporalio/worker');
  const quiet = () => undefined;
  const logger = { log: quiet, trace: quiet, debug: quiet, info: quiet, warn: console.warn, error: console.error };
  const { code } = await bundleWorkflowCode({ workflowsPath: source, logger });
  await writeFile(target, code);
}
