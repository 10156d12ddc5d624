import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { errorsDocument } from '../../../scripts/make-errors-doc.mjs';
import { EXIT_MEANINGS, EXIT_OF_ERROR } from '../../../src/commands/exit-codes.js';
import { ERRORS } from '../../../src/contract/errors.js';

const committed = readFileSync(new URL('../../../docs/errors.md', import.meta.url), 'utf8');

describe('docs/errors.md', () => {
  it('is what the catalogue gives (else: npm run build && node scripts/make-errors-doc.mjs)', () => {
    const generated = errorsDocument({ errors: ERRORS, exitOf: EXIT_OF_ERROR, exitMeanings: EXIT_MEANINGS });
    expect(committed).toBe(generated);
  });

  it('has a heading for every code, and no other', () => {
    const headings = [...committed.matchAll(/^### (\w+)$/gm)].map((match) => match[1]);
    expect(headings.sort()).toEqual(Object.keys(ERRORS).sort());
  });

  it('explains every exit code that an error has', () => {
    for (const exit of Object.values(EXIT_OF_ERROR)) expect(committed).toContain(`- \`${exit}\`: `);
  });
});
