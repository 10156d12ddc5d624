/**
 * A session for activities under test: a scratch and a kept directory on the real disk, what the executor would provide,
 * and Temporal's own mock of the activity's context.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { provide } from '../../src/activity/provider.js';
import type { CurrentSession, CurrentWorker } from '../../src/activity/index.js';
import type { Progress } from '../../src/contract/progress.js';

// A failure of an activity is what most of these tests are about; its log would drown everything else.
const logger = new DefaultLogger('ERROR');

export interface TestSession {
  readonly directory: string;
  readonly scratch: string;
  readonly worker: CurrentWorker;
  readonly controller: AbortController;
  /** What the activities reported. */
  readonly reports: Progress[];
  /** Called at each report. */
  onReport: (report: Progress) => void;
  run<A extends unknown[], R>(activity: (...args: A) => Promise<R>, ...args: A): Promise<R>;
  /** The same outside of any session. */
  runOnWorker<A, R>(activity: (argument: A) => Promise<R>, argument: A): Promise<R>;
  close(): Promise<void>;
}

export async function openSession(): Promise<TestSession> {
  const directory = await mkdtemp(join(tmpdir(), 'atlas-document-'));
  const scratch = await mkdtemp(join(directory, 'scratch-'));
  const controller = new AbortController();
  const worker: CurrentWorker = {
    name: 'worker-1',
    fleet: 'atlas',
    queue: 'atlas-worker-1.test',
    capabilities: [],
    keptDirectory: join(directory, 'kept'),
    cacheDirectory: join(directory, 'cache'),
    keptForMs: 86_400_000,
  };
  const session: CurrentSession = {
    id: 'session-1',
    workflowId: 'document-1',
    runId: '0123-run',
    capabilities: [],
    fencingToken: 1,
    scratchDirectory: scratch,
    state: 'disk' as const,
    memory: new Map<string, unknown>(),
    signal: controller.signal,
    worker,
  };
  const reports: Progress[] = [];
  const environment = (): MockActivityEnvironment => {
    const mock = new MockActivityEnvironment({}, { logger });
    mock.on('heartbeat', (report: Progress) => {
      reports.push(report);
      test.onReport(report);
    });
    return mock;
  };
  const test: TestSession = {
    directory,
    scratch,
    worker,
    controller,
    reports,
    onReport: () => undefined,
    run: (activity, ...args) => provide({ worker, session }, () => environment().run(activity, ...args)),
    runOnWorker: (activity, argument) => provide({ worker }, () => environment().run(activity, argument)),
    close: async () => {
      controller.abort(new Error('the test is over'));
      await rm(directory, { recursive: true, force: true });
    },
  };
  return test;
}
