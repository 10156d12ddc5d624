import { ActivityFailure, ApplicationFailure, CancelledFailure, RetryState } from '@temporalio/common';
import { WorkflowFailedError, WorkflowNotFoundError, WorkflowUpdateFailedError } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { describeError, reasonOf, reportError, stepOf, workerOf } from '../../../src/commands/report-error.js';
import { AtlasError } from '../../../src/contract/errors.js';
import { fakeContext } from '../../support/fake-context.js';

function failedWorkflow(cause: Error, activityType = 'extractPages'): WorkflowFailedError {
  const activity = new ActivityFailure(
    'Activity task failed',
    activityType,
    'abc.1:2',
    RetryState.NON_RETRYABLE_FAILURE,
    'worker-7@atlas executor 4711',
    cause,
  );
  return new WorkflowFailedError('Workflow execution failed', activity, RetryState.NON_RETRYABLE_FAILURE);
}

describe('describeError', () => {
  it('takes message, next step and exit code from an error of the catalogue', () => {
    expect(describeError(new AtlasError('FileUnreadable', 'a.pdf does not exist.'))).toMatchObject({
      code: 'FileUnreadable',
      message: 'a.pdf does not exist.',
      next: 'Check the path and its permissions.',
      exitCode: 4,
      unexpected: false,
    });
  });

  it('names the step and the reason of a failed job', () => {
    const cause = failedWorkflow(
      ApplicationFailure.create({ message: 'a.pdf is protected.', type: 'PasswordRequired', nonRetryable: true }),
    );
    const error = new AtlasError('JobFailed', 'The job failed at extractPages: a.pdf is protected.', { cause });
    expect(describeError(error)).toMatchObject({
      code: 'JobFailed',
      reason: 'PasswordRequired',
      step: 'extractPages',
      exitCode: 8,
    });
  });

  it('finds the code of a failure through the causes of a workflow error', () => {
    const error = failedWorkflow(ApplicationFailure.create({ message: 'full', type: 'OutOfDisk' }));
    expect(describeError(error)).toMatchObject({ code: 'OutOfDisk', step: 'extractPages' });
  });

  it('explains a failed workflow without a code of the catalogue', () => {
    const error = failedWorkflow(ApplicationFailure.create({ message: 'tool broke', type: 'Other' }));
    expect(describeError(error)).toMatchObject({
      code: 'JobFailed',
      message: 'The workflow failed at extractPages: tool broke',
      exitCode: 8,
    });
  });

  it('tells a workflow that does not exist', () => {
    expect(describeError(new WorkflowNotFoundError('no such workflow', 'id', undefined))).toMatchObject({
      code: 'NotFound',
      exitCode: 4,
    });
  });

  it.each([
    [14, 'ServerUnreachable', 5],
    [4, 'ServerUnreachable', 5],
    [7, 'ServerRefused', 5],
    [16, 'ServerRefused', 5],
    [5, 'NotFound', 4],
  ] as const)('reads gRPC status %i as %s', (code, expected, exitCode) => {
    const cause = Object.assign(new Error('14 UNAVAILABLE'), { code, details: 'no connection' });
    const error = new Error('Failed to describe', { cause });
    expect(describeError(error)).toMatchObject({ code: expected, exitCode });
    expect(describeError(error).message).toContain('no connection');
  });

  it('takes an error of the operating system for no bug', () => {
    const error = Object.assign(new Error('ENOSPC: no space left on device, write'), {
      errno: -28,
      syscall: 'write',
      code: 'ENOSPC',
    });
    expect(describeError(error)).toMatchObject({ exitCode: 1, unexpected: false });
  });

  it('takes everything else for a bug and says how to see its stack', () => {
    const report = describeError(new TypeError('x is not a function'));
    expect(report).toMatchObject({ message: 'Unexpected: x is not a function', exitCode: 1, unexpected: true });
    expect(report.next).toContain('ATLAS_DEBUG=1');
  });

  it('says the cause of what it does not know', () => {
    const cause = ApplicationFailure.nonRetryable('The Workflow completed first.', 'SomeTypeOfTheServer');
    const error = new WorkflowUpdateFailedError('Workflow Update failed', cause);
    expect(describeError(error).message).toBe('Unexpected: Workflow Update failed: The Workflow completed first.');
  });

  it('keeps a message on one line, and survives causes in a circle', () => {
    const error = new Error('one\n two');
    error.cause = error;
    expect(describeError(error).message).toBe('Unexpected: one two');
  });
});

describe('reasonOf, stepOf and workerOf', () => {
  it('name the step that failed and the worker it failed on', () => {
    const error = failedWorkflow(ApplicationFailure.create({ message: 'full', type: 'OutOfDisk' }));
    expect([stepOf(error), workerOf(error), reasonOf(error)]).toEqual(['extractPages', 'worker-7', 'full']);
    expect(workerOf(new Error('of no activity'))).toBeUndefined();
  });

  it('say that a job was cancelled', () => {
    expect(reasonOf(failedWorkflow(new CancelledFailure('')))).toBe('it was cancelled');
  });

  it('say nothing about a step where none failed', () => {
    expect(
      stepOf(new WorkflowFailedError('failed', ApplicationFailure.create({ message: 'x' }), RetryState.TIMEOUT)),
    ).toBeUndefined();
  });
});

describe('reportError', () => {
  it('prints what failed, then what to do', () => {
    const context = fakeContext();
    const exit = reportError(new AtlasError('EmptyFile', 'a.pdf has no bytes.'), { ...context, format: 'text' });
    expect(exit).toBe(8);
    expect(context.err()).toBe('error: a.pdf has no bytes.\n next: Check the source of the file.\n');
    expect(context.out()).toBe('');
  });

  it('prints JSON with a version when JSON is wanted', () => {
    const context = fakeContext();
    reportError(new AtlasError('EmptyFile', 'a.pdf has no bytes.'), { ...context, format: 'json' });
    expect(JSON.parse(context.err())).toEqual({
      version: 1,
      error: { code: 'EmptyFile', message: 'a.pdf has no bytes.', next: 'Check the source of the file.', exitCode: 8 },
    });
  });

  it('colours the label on a terminal unless NO_COLOR is set', () => {
    const colourful = fakeContext({ isTTY: true });
    reportError(new AtlasError('Usage', 'x'), { ...colourful, format: 'text' });
    expect(colourful.err()).toContain('\u001b[31m');
    const plain = fakeContext({ isTTY: true, env: { NO_COLOR: '1' } });
    reportError(new AtlasError('Usage', 'x'), { ...plain, format: 'text' });
    expect(plain.err()).not.toContain('\u001b');
  });

  it('does not call an interruption an error', () => {
    const context = fakeContext();
    expect(reportError(new AtlasError('Interrupted', 'Interrupted by SIGINT.'), { ...context, format: 'text' })).toBe(
      130,
    );
    expect(context.err()).toMatch(/^Interrupted by SIGINT\./);
  });

  it('prints the stacks of all causes with ATLAS_DEBUG', () => {
    const context = fakeContext({ env: { ATLAS_DEBUG: '1' } });
    reportError(new Error('outer', { cause: new Error('inner') }), { ...context, format: 'text' });
    expect(context.err()).toMatch(/Error: outer\n[^]*caused by: Error: inner\n/);
  });
});
