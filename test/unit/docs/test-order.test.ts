/** The list of slow test files must not outlive the files. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { SLOWEST } from '../../support/slowest-first.js';

it.each(SLOWEST)('%s is there', (file) => {
  expect(existsSync(fileURLToPath(new URL(`../../../${file}`, import.meta.url)))).toBe(true);
});
