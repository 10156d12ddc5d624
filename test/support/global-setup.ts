/**
 * One real Temporal server for the whole run. Tests keep apart by fleet name (see `fleet.ts`) and workflow id, not by
 * server: starting one per file would take longer than the tests.
 */
import type { TestProject } from 'vitest/node';
import { startDevServer } from '../../src/temporal/dev-server.js';
import { RESOLVE_STEP_LABELS, type ResolvedServer } from '../../src/temporal/resolve-server.js';
import { isBuilt } from '../../scripts/build.mjs';

declare module 'vitest' {
  interface ProvidedContext {
    temporalAddress: string;
    /** The program of that server, for tests that start one of their own. */
    temporalProgram: ResolvedServer;
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
  project.provide('temporalAddress', server.address);
  project.provide('temporalProgram', server.program);
  return () => server.stop();
}
