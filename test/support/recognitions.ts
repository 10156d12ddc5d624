/** What is given to OCR, written down where it is given, and held there for as long as a test wants. */
import { execFileSync } from 'node:child_process';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryDirectory } from './atlasd.js';

const RECOGNITION_LOG = fileURLToPath(new URL('../fixtures/recognition-log.cjs', import.meta.url));

export interface Recognition {
  /** The executor. */
  readonly pid: number;
  /** The hash of the picture. */
  readonly picture: string;
}

export interface OcrWatch {
  /** For a worker. */
  readonly env: NodeJS.ProcessEnv;
  /** Whatever was given to OCR until now, what is held included. */
  recognitions(): Promise<Recognition[]>;
  /** With `holdsFrom`: lets what is held, and what comes, be read. */
  letGo(): Promise<void>;
}

interface OcrWatchOptions {
  /** The picture of this number, from 1, and all after it wait until {@link OcrWatch.letGo}. Default: none does. */
  readonly holdsFrom?: number;
}

/** Where a program is on the PATH. */
export function programPath(name: string): string | undefined {
  try {
    return execFileSync('/bin/sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
  } catch {
    return undefined;
  }
}

/** An environment in which each picture is written down when it is given to OCR by this engine. */
export async function watchOcr(engine: 'native' | 'npm', { holdsFrom }: OcrWatchOptions = {}): Promise<OcrWatch> {
  const directory = await temporaryDirectory();
  const log = join(directory, 'log');
  const gate = join(directory, 'gate');
  await writeFile(log, '');
  const env: NodeJS.ProcessEnv = {
    RECOGNITION_LOG: log,
    ...(holdsFrom === undefined ? {} : { RECOGNITION_GATE: gate, RECOGNITION_HOLDS_FROM: String(holdsFrom) }),
  };
  if (engine === 'npm') {
    env['NODE_OPTIONS'] = `--require ${RECOGNITION_LOG}`;
  } else {
    // A picture is kept in a file while it is read, so that tesseract is this process in the end and no child of it.
    const program = join(directory, 'tesseract');
    const tesseract = programPath('tesseract') ?? '';
    const isHeld = `[ "$(wc -l < "$RECOGNITION_LOG")" -ge ${holdsFrom ?? 0} ] && [ ! -e '${gate}' ]`;
    await writeFile(
      program,
      [
        '#!/bin/sh',
        `[ "$1" = stdin ] || exec ${tesseract} "$@"`,
        `file=${directory}/picture.$$`,
        'cat > "$file"',
        'exec 3< "$file"',
        'hash=$(md5sum < "$file")',
        'rm "$file"',
        'echo "$PPID ${hash%% *}" >> "$RECOGNITION_LOG"',
        ...(holdsFrom === undefined ? [] : [`while ${isHeld}; do sleep 0.05; done`]),
        `exec ${tesseract} "$@" <&3`,
        '',
      ].join('\n'),
    );
    await chmod(program, 0o755);
    env['PATH'] = `${directory}:${process.env['PATH'] ?? ''}`;
  }
  return {
    env,
    async recognitions() {
      const lines = (await readFile(log, 'utf8')).trim().split('\n');
      return lines
        .filter((line) => line !== '')
        .map((line) => line.split(' '))
        .map(([pid, picture]) => ({ pid: Number(pid), picture: picture ?? '' }));
    },
    letGo: () => writeFile(gate, ''),
  };
}
