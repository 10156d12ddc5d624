import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { VERSION } from '../../../src/contract/version.js';

describe('VERSION', () => {
  it('is that of the package', () => {
    const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
    expect(VERSION).toBe((JSON.parse(text) as { version: string }).version);
  });
});
