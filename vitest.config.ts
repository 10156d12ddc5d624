/** How tests run. `npm test` adds the report that the summary is made from. */
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { SlowestFirst } from './test/support/slowest-first.js';

const source = (path: string): string => fileURLToPath(new URL(`./src/${path}`, import.meta.url));

export default defineConfig({
  resolve: {
    // Tests import the public entry points by their names and get the sources, not the last build.
    alias: {
      'temporal-atlas/workflow': source('workflow/index.ts'),
      'temporal-atlas/activity': source('activity/index.ts'),
      'temporal-atlas/client': source('fleet/client.ts'),
      'temporal-atlas/testing': source('testing/index.ts'),
      'temporal-atlas/worker': source('embedded/index.ts'),
      'temporal-atlas/errors': source('contract/errors.ts'),
    },
  },
  test: {
    include: ['test/**/*.test.{ts,tsx}'],
    exclude: ['test/fixtures/**'],
    globalSetup: ['test/support/global-setup.ts'],
    // One process per file: Temporal's core and leaked handles stay apart.
    pool: 'forks',
    // The tests start processes and a server, and then mostly wait; more files at once only make each other slow.
    maxWorkers: 3,
    sequence: { sequencer: SlowestFirst },
    // Guards against hanging, not expectations: a test that needs a bound states it.
    testTimeout: 240_000,
    hookTimeout: 180_000,
    teardownTimeout: 30_000,
  },
});
