/** Scripts in the place of the installed tesseract and pdftoppm: they write down how they were called. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface FakePrograms {
  /** For a PATH on which they come first. */
  readonly path: string;
  /** One line per call, such as `tesseract --list-langs`. */
  calls(): Promise<string[]>;
  /** With `holds`: lets the recognition of pages, now and later, come to its end. */
  letGo(): Promise<void>;
}

export interface FakeProgramsOptions {
  /** Whether recognising a page waits until {@link FakePrograms.letGo}. */
  readonly holds?: boolean;
  /** The words on every page. */
  readonly words?: readonly string[];
}

export async function makeFakePrograms(directory: string, options: FakeProgramsOptions = {}): Promise<FakePrograms> {
  const bin = join(directory, 'bin');
  const log = join(directory, 'calls');
  const gate = join(directory, 'gate');
  await mkdir(bin);
  await writeFile(log, '');
  const rows = (options.words ?? ['Night', 'watch'])
    .map((word) => `${['5', '1', '1', '1', '1', '1', '0', '0', '1', '1', '96', word].join('\\t')}\\n`)
    .join('');
  const wait = options.holds === true ? `while [ ! -e '${gate}' ]; do sleep 0.05; done; ` : '';
  for (const name of ['tesseract', 'pdftoppm']) {
    const script = [
      '#!/bin/sh',
      `echo "${name} $*" >> '${log}'`,
      'case "$1" in',
      '  --version) echo "tesseract 5.0.0";;',
      '  --list-langs) echo eng;;',
      '  -v) echo "pdftoppm version 22.0.0";;',
      `  *) cat > /dev/null; ${wait}printf '${rows}';;`,
      'esac',
      '',
    ];
    await writeFile(join(bin, name), script.join('\n'));
    await chmod(join(bin, name), 0o755);
  }
  return {
    path: `${bin}:${process.env['PATH'] ?? ''}`,
    calls: async () => (await readFile(log, 'utf8')).trim().split('\n'),
    letGo: () => writeFile(gate, ''),
  };
}
