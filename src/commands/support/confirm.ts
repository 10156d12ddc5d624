/**
 * The question before something is lost. On a terminal a person answers it; without one the command refuses unless
 * `--yes` was given, and never waits for an answer that can not come.
 */
import { createInterface } from 'node:readline';
import { AtlasError } from '../../contract/errors.js';
import { plainText } from '../../terminal/format.js';
import { styleFor } from '../../terminal/style.js';
import type { CommandContext, OptionSpec, ParsedCommand } from '../spec.js';

/** Of every command that calls {@link confirm}. */
export const confirmOption: OptionSpec = { flags: '-y, --yes', description: 'do it without asking' };

export interface Confirmation {
  /** Ends with a question mark: `Release 2 sessions of worker-7?`. */
  readonly question: string;
  /** What a "yes" does, one line each: `release 985d34113fc8, held by order-17`. */
  readonly detailLines?: readonly string[];
}

/**
 * Resolves when the command may go on. It must have changed nothing before.
 *
 * @throws {@link AtlasError} `ConfirmationNeeded` without a terminal and without `--yes`, `Declined` for any answer but
 * yes and for the end of input, `Interrupted` on a signal (which a command with `handlesSignals` does not get here).
 */
export async function confirm(
  context: CommandContext,
  parsed: ParsedCommand,
  { question, detailLines = [] }: Confirmation,
): Promise<void> {
  if (parsed.options['yes'] === true) return;
  const details = detailLines.map((line) => `  ${plainText(line)}`);
  const asked = plainText(question);
  // The question goes to stderr and the answer comes from stdin: both have to be the person's terminal.
  if (context.stdin.isTTY !== true || context.stderr.isTTY !== true) {
    const what = details.length === 0 ? '' : ` It would have done this:\n${details.join('\n')}`;
    throw new AtlasError(
      'ConfirmationNeeded',
      `"${asked}" needs an answer, and there is no terminal to ask on. Nothing was changed.${what}`,
    );
  }
  const { bold } = styleFor(context.stderr, context.env);
  for (const line of details) context.stderr.write(`${line}\n`);
  context.stderr.write(`${bold(asked)} [y/N] `);
  const answer = await readLine(context);
  // What the person ends with Ctrl-C or Ctrl-D leaves the cursor behind the question.
  if (answer.kind !== 'line') context.stderr.write('\n');
  if (answer.kind === 'interrupted') {
    throw new AtlasError('Interrupted', 'Interrupted at the question. Nothing was changed.', { cause: answer.reason });
  }
  if (answer.kind === 'line' && /^\s*y(es)?\s*$/i.test(answer.text)) return;
  throw new AtlasError('Declined', 'The answer was no. Nothing was changed.');
}

type Answer =
  | { readonly kind: 'line'; readonly text: string }
  | { readonly kind: 'end' }
  | { readonly kind: 'interrupted'; readonly reason: unknown };

async function readLine({ stdin, signal }: CommandContext): Promise<Answer> {
  if (signal.aborted) return { kind: 'interrupted', reason: signal.reason };
  // Not a terminal for readline: the kernel lets the line be edited, and Ctrl-C stays the signal that it is anywhere else.
  const lines = createInterface({ input: stdin, terminal: false });
  let onAbort: (() => void) | undefined;
  try {
    return await new Promise<Answer>((resolve, reject) => {
      onAbort = () => resolve({ kind: 'interrupted', reason: signal.reason });
      signal.addEventListener('abort', onAbort, { once: true });
      lines.once('line', (text) => resolve({ kind: 'line', text }));
      lines.once('close', () => resolve({ kind: 'end' }));
      lines.once('error', reject);
    });
  } finally {
    if (onAbort !== undefined) signal.removeEventListener('abort', onAbort);
    lines.close();
  }
}
