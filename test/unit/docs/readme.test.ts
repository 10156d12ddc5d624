/** What the README says of the commands is what their specifications say. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ATLAS } from '../../../src/atlas.js';
import { ATLASD } from '../../../src/atlasd.js';
import type { ProgramSpec } from '../../../src/commands/spec.js';

const text = (path: string): string => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
const readme = text('README.md');

const rowsOf = ({ name, commands }: ProgramSpec): string[] =>
  commands.map(({ path, summary }) => `\`${[name, ...path].join(' ')}\` | ${summary}`);

describe('README.md', () => {
  it('has a row for every command, with its summary, and no other', () => {
    const [, section = ''] = /^## Commands\n([\s\S]*?)^## /m.exec(readme) ?? [];
    const rows = section
      .split('\n')
      .filter((line) => line.startsWith('| `'))
      .map((line) =>
        line
          .split('|')
          .slice(1, -1)
          .map((cell) => cell.trim())
          .join(' | '),
      );
    expect(rows).toEqual([...rowsOf(ATLAS), ...rowsOf(ATLASD)]);
  });

  it('names the oldest Node that the package allows', () => {
    const { engines, version } = JSON.parse(text('package.json')) as { engines: { node: string }; version: string };
    expect(readme).toContain(`Node ${engines.node.replace('>=', '')} or later`);
    expect(readme).toContain(`This is version ${version}`);
  });

  it('has only npm scripts that exist', () => {
    const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
    const used = [...readme.matchAll(/npm (?:run )?(demo|test|build)\b/g)].map((match) => match[1]!);
    expect(used.length).toBeGreaterThan(1);
    for (const name of used) expect(scripts).toHaveProperty([name]);
  });

  it('shows no option of atlasd that does not exist', () => {
    const flags = new Set(ATLASD.commands[0]!.options.map(({ flags: given }) => given.split(' ')[0]));
    const shown = [...readme.matchAll(/^ *(?:npx )?atlasd [^\n]*(?:\\\n[^\n]*)?/gm)].flatMap(([command]) => [
      ...command.matchAll(/--[a-z-]+/g),
    ]);
    expect(shown.length).toBeGreaterThan(3);
    for (const [flag] of shown) expect(flags).toContain(flag);
  });
});
