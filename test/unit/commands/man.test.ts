import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { MAN_PAGES } from '../../../src/man-pages.js';
import { COMMANDS } from '../../../src/commands/index.js';

const committed = (name: string): string => readFileSync(new URL(`../../../man/${name}`, import.meta.url), 'utf8');

describe('man pages', () => {
  it.each(MAN_PAGES.map((page) => [page.fileName, page.text] as const))(
    '%s is the committed one (else: npm run build && node scripts/make-man.mjs)',
    (fileName, text) => {
      expect(committed(fileName)).toBe(text);
    },
  );

  it('of atlas has every command, option and example', () => {
    const text = committed('atlas.1')
      .replace(/\\-/g, '-')
      .replace(/\\f[BIR]/g, '');
    for (const spec of COMMANDS) {
      expect(text).toContain(`.SS "${['atlas', ...spec.path].join(' ')}"`);
      for (const option of spec.options) expect(text).toContain(option.flags.replace(/ [<[].*/, ''));
      for (const example of spec.examples) expect(text).toContain(example.command.replace(/'/g, '\\(aq'));
    }
  });

  it('have no line that roff would take for an unknown request', () => {
    for (const { text } of MAN_PAGES) {
      for (const line of text.split('\n')) {
        if (/^[.']/.test(line)) expect(line).toMatch(/^\.(\\"|TH|SH|SS|TP|PP|B|I|BR|RS|RE|nf|fi|nh|ad|br)( |$)/);
      }
    }
  });
});
