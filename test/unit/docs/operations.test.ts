/** The table of log events in docs/operations.md has every event of a worker, and no other. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const read = (path: string): string => readFileSync(`${ROOT}${path}`, 'utf8');

const logged = ['src/daemon', 'src/executor', 'src/embedded', 'src/temporal'].flatMap((folder) =>
  readdirSync(`${ROOT}${folder}`, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .flatMap((name) => [...read(`${folder}/${name}`).matchAll(/\bevent: ([^,}\n]+)/g)])
    .flatMap(([, value]) => [...value!.matchAll(/'([a-z-]+)'/g)].map(([, event]) => event!)),
);

describe('docs/operations.md', () => {
  it('has every event that is logged, and no other', () => {
    const [, table = ''] = /^## Logs\n([\s\S]*?)^## /m.exec(read('docs/operations.md')) ?? [];
    const listed = table
      .split('\n')
      .filter((line) => line.startsWith('| `'))
      .flatMap((line) => [...line.split('|')[1]!.matchAll(/`([a-z-]+)`/g)].map(([, event]) => event!));
    expect(logged.length).toBeGreaterThan(40);
    expect([...new Set(listed)].sort()).toEqual([...new Set(logged)].sort());
  });
});
