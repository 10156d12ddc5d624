import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ATLAS } from '../../../src/atlas.js';
import { ATLASD } from '../../../src/atlasd.js';
import { MAN_PAGES } from '../../../src/man-pages.js';
import { prose } from '../../../src/commands/support/roff.js';
import { configFileKeys } from '../../../src/daemon/config.js';

const ROOT = new URL('../../../', import.meta.url);
const REGENERATE = '(else: npm run build && node scripts/make-man.mjs)';
const committed = (name: string): string => readFileSync(new URL(`man/${name}`, ROOT), 'utf8');

/** The words of a page, as a reader finds them. */
const words = (name: string): string =>
  committed(name)
    .replace(/\\f[BIR]|\\:/g, '')
    .replace(/\\-/g, '-')
    .replace(/\\\((aq|ga|ti|ha)/g, (_, name: string) => ({ aq: "'", ga: '`', ti: '~', ha: '^' })[name]!)
    .replace(/\s+/g, ' ');

const SECTION = { atlas: 1, atlasd: 8 } as const;
const COMMAND_PAGES = [ATLAS, ATLASD].flatMap((program) =>
  program.commands.map((spec) => ({
    command: [program.name, ...spec.path].join(' '),
    page: `${[program.name, ...spec.path].join('-')}.${SECTION[program.name as keyof typeof SECTION]}`,
    spec,
  })),
);

describe('man pages', () => {
  it.each(MAN_PAGES.map((page) => [page.fileName, page.text] as const))(
    `%s is the committed one ${REGENERATE}`,
    (fileName, text) => {
      expect(committed(fileName)).toBe(text);
    },
  );

  it(`are one for each command, and atlas(1), atlasd(8) and atlas.toml(5), in man/ and in package.json ${REGENERATE}`, () => {
    const expected = ['atlas.1', 'atlasd.8', 'atlas.toml.5', ...COMMAND_PAGES.map(({ page }) => page)];
    const pages = [...new Set(expected)].sort();
    expect(readdirSync(new URL('man/', ROOT)).sort()).toEqual(pages);
    const { man } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')) as { man: string[] };
    expect([...man].sort()).toEqual(pages.map((name) => `man/${name}`));
  });

  it.each(COMMAND_PAGES)('of `$command` has its arguments, options and examples', ({ page, spec }) => {
    const text = words(page);
    expect(text).toContain(spec.summary.slice(1, -1));
    for (const argument of spec.arguments) expect(text).toContain(`.TP ${argument.name} `);
    for (const option of spec.options)
      expect(text).toContain(
        option.flags
          .replace(/[<>[\]]/g, '')
          .split(' ')
          .at(0),
      );
    for (const example of spec.examples) expect(text).toContain(example.command);
  });

  it.each([
    ['atlas.1', ATLAS],
    ['atlasd.8', ATLASD],
  ])('%s names every command with its page', (page, { name, commands }) => {
    const text = words(page);
    for (const { path } of commands.filter((spec) => spec.path.length > 0)) {
      expect(text).toContain(`.TP ${[name, ...path].join(' ')} `);
      expect(text).toContain(`.BR ${[name, ...path].join('-')} (`);
    }
  });

  it('atlas.toml.5 has every key with its flag and variable, and no other', () => {
    const text = words('atlas.toml.5');
    const [, keys = ''] = /\.SH KEYS (.*) \.SH EXAMPLE/.exec(text) ?? [];
    for (const { key, flag, env, allowed } of configFileKeys()) {
      expect(keys).toContain(`.TP ${key} (`);
      expect(keys).toContain(`Also: ${flag}, ${env}.`);
      expect(keys).toContain(`Allowed: ${allowed}.`);
    }
    expect(keys.match(/\.TP /g)).toHaveLength(configFileKeys().length);
  });

  it('have no line that roff would take for an unknown request', () => {
    for (const { text } of MAN_PAGES) {
      for (const line of text.split('\n')) {
        if (/^[.']/.test(line)) expect(line).toMatch(/^\.(\\"|TH|SH|SS|TP|PP|BR|RS|RE|nf|fi|nh|ad|br)( |$)/);
      }
    }
  });

  it('refer only to pages that exist', () => {
    const others = ['temporal(1)'];
    const own = MAN_PAGES.map(({ fileName }) => fileName.replace(/\.(\d)$/, '($1)'));
    for (const { text } of MAN_PAGES) {
      for (const [, name, section] of text.matchAll(/^\.BR (\S+) (\(\d\))/gm)) {
        expect([...own, ...others]).toContain(`${name!.replace(/\\-/g, '-')}${section}`);
      }
    }
  });

  describe.each([
    ['groff', ['-man', '-Tutf8', '-ww', '-z']],
    // Without a date a page has the same bytes each time it is generated.
    ['mandoc', ['-Tlint']],
  ])('for %s', (program, args) => {
    const missing = spawnSync(program, ['--version']).error !== undefined;
    if (missing) console.log(`man pages are not shown to ${program}: it is not installed here.`);
    it.skipIf(missing).each(MAN_PAGES.map(({ fileName }) => fileName))('%s is without fault', (fileName) => {
      const { stdout, stderr } = spawnSync(program, [...args, fileName], {
        cwd: new URL('man/', ROOT),
        encoding: 'utf8',
      });
      const complaints = `${stdout}${stderr}`.split('\n').filter((line) => line !== '' && !/missing date/.test(line));
      expect(complaints).toEqual([]);
    });
  });
});

describe('prose', () => {
  it('breaks its source after words, and never lets a line begin a request', () => {
    const text = `${'word '.repeat(15)}and then .TH is a word`;
    const lines = prose(text).split('\n');
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) {
      expect(line.length).toBeLessThanOrEqual(82);
      expect(line).not.toMatch(/^[.']/);
    }
    expect(lines.join(' ').replace(/\\&/g, '')).toBe(text);
  });
});
