/** Links of the README, the change log and docs/ that stay inside the project: the file is there, and so is the heading. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

const documents = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name))
    .sort(),
];

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
/** What is in a code block or a code span is no link and no heading. */
const withoutBlocks = (text: string): string => text.replace(/^(```+)[^\n]*\n[\s\S]*?^\1$/gm, '');
const withoutCode = (text: string): string => withoutBlocks(text).replace(/`[^`\n]*`/g, '');

/** As the usual hosts of Markdown make them. */
function anchorsOf(path: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading] of withoutBlocks(read(path)).matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const base = heading!
      .toLowerCase()
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replace(/[^\p{L}\p{N}\p{M}\p{Pc} -]/gu, '')
      .replace(/ /g, '-');
    let anchor = base;
    for (let count = 1; anchors.has(anchor); count += 1) anchor = `${base}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

function linksOf(path: string): string[] {
  const text = withoutCode(read(path));
  return [...text.matchAll(/\]\(([^()\s]+(?:\([^()\s]*\))?)(?: "[^"]*")?\)/g)]
    .map((match) => match[1]!)
    .filter((target) => !/^[a-z][a-z0-9+.-]*:/i.test(target));
}

function problemsOf(path: string): string[] {
  return linksOf(path).flatMap((link) => {
    const [file = '', anchor] = link.split('#');
    const target = file === '' ? path : relative(ROOT, resolve(ROOT, dirname(path), decodeURIComponent(file)));
    if (target.startsWith('..') || !existsSync(join(ROOT, target))) return [`${link}: there is no such file`];
    if (anchor === undefined || !target.endsWith('.md')) return [];
    return anchorsOf(target).has(anchor) ? [] : [`${link}: there is no such heading`];
  });
}

describe('links', () => {
  it.each(documents)('of %s resolve', (path) => {
    expect(problemsOf(path)).toEqual([]);
  });

  it('lead from the README to every page of docs/, directly or over another page', () => {
    const reached = new Set<string>(['README.md']);
    for (const path of reached) {
      for (const link of linksOf(path)) {
        const target = relative(ROOT, resolve(ROOT, dirname(path), link.split('#')[0]!));
        if (target.endsWith('.md') && existsSync(join(ROOT, target))) reached.add(target);
      }
    }
    expect(documents.filter((path) => !reached.has(path))).toEqual([]);
  });
});
