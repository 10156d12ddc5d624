/** `atlas doctor` once its command line is known to be valid: examines, and prints the findings by check. */
import { EXIT, type ExitCode } from '../../contract/exit-codes.js';
import { DEFAULT_FLEET } from '../../contract/names.js';
import { examine } from '../../fleet/doctor/doctor.js';
import { CHECK_NAMES, type CheckName, type Finding, type Level } from '../../fleet/doctor/findings.js';
import { toServerError } from '../../temporal/connect.js';
import { plainText } from '../../terminal/format.js';
import { JSON_VERSION } from '../../terminal/records.js';
import { styleFor, type Style, wantsLiveView } from '../../terminal/style.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { fleetOf, openConnection } from './connection.js';

type Format = 'table' | 'json' | 'jsonl';

export async function runDoctor(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  const checks = (parsed.options['check'] as readonly CheckName[] | undefined) ?? CHECK_NAMES;
  const progress = progressOn(context, checks);
  progress.show();
  try {
    const connection = await openConnection(context.env, parsed);
    try {
      const { findings, errors } = await untilInterrupted(
        context,
        examine(connection.client, {
          fleet: fleetOf(parsed),
          address: connection.profile.address,
          checks,
          timeoutMs: parsed.options['timeout'] as number,
          atlas: (command) => `${command}${sameFleet(parsed)}`,
          onChecked: progress.checked,
        }),
      );
      progress.clear();
      const format = parsed.options['format'] as Format;
      context.stdout.write(formatFindings(findings, format, styleFor(context.stdout, context.env)));
      // The server went away, or refuses what was asked: what was found before that is still printed.
      for (const error of errors) {
        const known = toServerError(error, connection.profile);
        if (known !== undefined) throw known;
      }
      return findings.some(({ level }) => level === 'fail') ? EXIT.failed : EXIT.done;
    } finally {
      await connection.close();
    }
  } finally {
    progress.clear();
  }
}

function untilInterrupted<T>({ signal }: CommandContext, task: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      reject(signal.reason as Error);
    };
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    task.then(resolve, reject).finally(() => {
      signal.removeEventListener('abort', onAbort);
    });
  });
}

/** The options by which another command means the same fleet on the same server. */
export function sameFleet({ options }: ParsedCommand): string {
  const words: string[] = [];
  for (const name of ['address', 'namespace', 'profile', 'fleet']) {
    const value = options[name];
    if (typeof value === 'string' && !(name === 'fleet' && value === DEFAULT_FLEET)) words.push(`--${name} ${value}`);
  }
  return words.map((word) => ` ${word}`).join('');
}

const LEVEL_COLOURS = { ok: 'green', warn: 'yellow', fail: 'red' } as const;

/** Pure. */
export function formatFindings(findings: readonly Finding[], format: Format, style: Style): string {
  const amount = (wanted: Level): number => findings.filter(({ level }) => level === wanted).length;
  const summary = { ok: amount('ok'), warn: amount('warn'), fail: amount('fail') };
  if (format === 'json') return `${JSON.stringify({ version: JSON_VERSION, summary, findings }, null, 2)}\n`;
  if (format === 'jsonl') {
    const lines = [...findings.map((finding) => ({ finding })), { summary }];
    return lines.map((line) => `${JSON.stringify({ version: JSON_VERSION, ...line })}\n`).join('');
  }
  const checkWidth = Math.max(...CHECK_NAMES.map((check) => check.length)) + 2;
  const lines = findings.flatMap(({ check, level, subject, message, next }) => [
    `${style[LEVEL_COLOURS[level]](level)}${' '.repeat(6 - level.length)}${check.padEnd(checkWidth)}${plainText(subject)}: ${plainText(message)}`,
    ...(next === null ? [] : [`      ${style.bold('next:')} ${plainText(next)}`]),
  ]);
  const verdict = summary.fail > 0 ? 'Something fails' : summary.warn > 0 ? 'Nothing fails' : 'Nothing is wrong';
  return `${lines.join('\n')}\n\n${style.bold(verdict)}: ${summary.fail} fail, ${summary.warn} warn, ${summary.ok} ok.\n`;
}

interface DoctorProgress {
  readonly show: () => void;
  readonly checked: (check: CheckName) => void;
  readonly clear: () => void;
}

/** On a terminal one line that says what is still being checked. */
function progressOn({ stderr, env }: CommandContext, checks: readonly CheckName[]): DoctorProgress {
  const isLive = wantsLiveView(stderr, env);
  const left = new Set<CheckName>(checks);
  const clear = (): void => {
    if (isLive) stderr.write('\r\u001b[K');
  };
  const show = (): void => {
    if (!isLive || left.size === 0) return;
    const line = `Checking ${[...left].join(', ')}`;
    // A line that wraps could not be cleared.
    stderr.write(`\r\u001b[K${line.slice(0, (stderr.columns ?? 80) - 1)}`);
  };
  return {
    show,
    clear,
    checked: (check) => {
      left.delete(check);
      show();
    },
  };
}
