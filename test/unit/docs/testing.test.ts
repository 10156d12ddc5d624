/** The example in docs/testing.md is the one that test/integration/testing.test.ts runs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const document = readFileSync(join(ROOT, 'docs/testing.md'), 'utf8');
const blocks = [...document.matchAll(/^```js ([^\n]+)\n([\s\S]*?)^```$/gm)];

it('shows both files of the example', () => {
  expect(blocks.map(([, name]) => name)).toEqual(['workflows.js', 'clip.test.js']);
});

it.each(blocks.map(([, name, code]) => ({ name: name!, code: code! })))('shows $name as it is', ({ name, code }) => {
  expect(code).toBe(readFileSync(join(ROOT, 'examples/testing', name), 'utf8'));
});
