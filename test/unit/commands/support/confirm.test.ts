import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { confirm, confirmOption, type Confirmation } from '../../../../src/commands/support/confirm.js';
import { describeError } from '../../../../src/commands/report-error.js';
import { EXIT } from '../../../../src/contract/exit-codes.js';
import { fakeContext, parsedCommand } from '../../../support/fake-context.js';

const RELEASE: Confirmation = {
  question: 'Release 2 sessions of worker-7?',
  detailLines: ['release s1, held by order-17', 'release s2, held by \u001b[2Jorder-18'],
};

interface Asked {
  /** undefined: it may go on. */
  readonly code: string | undefined;
  readonly exit: number;
  readonly message: string;
  readonly next: string;
  readonly err: string;
  readonly out: string;
}

async function ask(
  input: string | 'end' | AbortController,
  { stdinTTY = true, stderrTTY = true, yes = false } = {},
): Promise<Asked> {
  const stdin = Object.assign(new PassThrough(), { isTTY: stdinTTY }) as unknown as NodeJS.ReadStream & PassThrough;
  const signal = input instanceof AbortController ? input.signal : new AbortController().signal;
  const context = fakeContext({ isTTY: stderrTTY, stdin, signal });
  const answer = confirm(context, parsedCommand(yes ? { yes: true } : {}), RELEASE);
  if (input instanceof AbortController) input.abort(new Error('SIGINT'));
  else if (input === 'end') stdin.end();
  else stdin.write(input);
  const error: unknown = await answer.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  const shown = { err: context.err(), out: context.out() };
  if (error === undefined) return { code: undefined, exit: EXIT.done, message: '', next: '', ...shown };
  const { code, exitCode, message, next } = describeError(error);
  return { code, exit: exitCode, message, next, ...shown };
}

describe('confirm', () => {
  it('asks on stderr, after what it is about, and takes y and yes', async () => {
    for (const answer of ['y\n', 'Y\n', 'yes\n', ' YES \r\n']) {
      expect(await ask(answer)).toMatchObject({ code: undefined, out: '' });
    }
    const { err } = await ask('y\n');
    expect(err.replace(/\u001b\[\d+m/g, '')).toBe(
      '  release s1, held by order-17\n  release s2, held by \ufffd[2Jorder-18\nRelease 2 sessions of worker-7? [y/N] ',
    );
  });

  it.each(['n\n', '\n', 'no\n', 'yeah\n', 'yy\n', '1\n', 'end'])('takes %j for a no', async (answer) => {
    expect(await ask(answer)).toMatchObject({
      code: 'Declined',
      exit: 1,
      message: 'The answer was no. Nothing was changed.',
      out: '',
    });
  });

  it('ends with 130 when it is interrupted, before the question or at it', async () => {
    expect(await ask(new AbortController())).toMatchObject({ code: 'Interrupted', exit: 130 });
    const before = new AbortController();
    before.abort(new Error('SIGTERM'));
    expect(await ask(before)).toMatchObject({ code: 'Interrupted', exit: 130 });
  });

  it.each([
    ['stdin', { stdinTTY: false }],
    ['stderr', { stderrTTY: false }],
    ['either', { stdinTTY: false, stderrTTY: false }],
  ])('never asks when %s is no terminal, and says what it would have done', async (_, terminal) => {
    // A "y" in the input is not an answer to a question that nobody saw.
    expect(await ask('y\n', terminal)).toMatchObject({
      code: 'ConfirmationNeeded',
      exit: 2,
      message:
        '"Release 2 sessions of worker-7?" needs an answer, and there is no terminal to ask on. Nothing was changed. It would have done this:\n  release s1, held by order-17\n  release s2, held by \ufffd[2Jorder-18',
      next: 'Add --yes to do it without being asked.',
      err: '',
    });
  });

  it('does not ask with --yes, whether there is a terminal or not', async () => {
    expect(confirmOption.flags).toContain('--yes');
    for (const isTTY of [true, false]) {
      expect(await ask('n\n', { yes: true, stdinTTY: isTTY, stderrTTY: isTTY })).toMatchObject({
        code: undefined,
        err: '',
      });
    }
  });
});
