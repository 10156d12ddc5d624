/**
 * Every stored history is replayed against the workflow code of today: a change that would break runs of an older version
 * fails here. To make one on purpose, see `patched()` of Temporal's SDK.
 */
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { DeterminismViolationError } from '@temporalio/workflow';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { describe, expect, inject, it } from 'vitest';
import { VERSION } from '../../src/contract/version.js';
import { fromJson, readHistory, storedHistories, stringsOf, type JsonHistory, type Suite } from './histories.js';

// A replay that fails is the point of some of these tests, and Core says so at length.
Runtime.install({
  logger: new DefaultLogger('ERROR', () => undefined),
  telemetryOptions: { logging: { forward: {}, filter: 'OFF' } },
});

const bundled = (name: string): string => fileURLToPath(new URL(`../../dist/bundles/${name}`, import.meta.url));
const CODE: Readonly<Record<Suite, () => string>> = {
  session: () => inject('fixtureWorkflows'),
  worker: () => bundled('worker-workflow.js'),
  document: () => bundled('document.js'),
};

async function replay(suite: Suite, history: JsonHistory): Promise<void> {
  await Worker.runReplayHistory({ workflowBundle: { codePath: CODE[suite]() } }, fromJson(history), 'replayed');
}

interface HistoryEvent extends Record<string, unknown> {
  readonly activityTaskScheduledEventAttributes?: { activityType: { name: string }; activityId: string };
}

const histories = storedHistories();
const ofToday = (suite: Suite, scenario: string) => {
  const found = histories.find(
    (each) => each.version === VERSION && each.suite === suite && each.scenario === scenario,
  );
  if (found === undefined) throw new Error(`No history of ${suite} ${scenario}; run \`npm run record:histories\`.`);
  return readHistory(found.path) as JsonHistory & { events: HistoryEvent[] };
};

const scheduled = (events: readonly HistoryEvent[]) =>
  events.flatMap(({ activityTaskScheduledEventAttributes: attributes }) => (attributes == null ? [] : [attributes]));

describe('a stored history', () => {
  it('is there for every scenario of this version', () => {
    const scenarios = histories
      .filter(({ version }) => version === VERSION)
      .map((each) => `${each.suite} ${each.scenario}`);
    expect(scenarios).toEqual([
      'document file',
      'session acquire-timeout',
      'session adopted',
      'session cancel-while-holding',
      'session confirmed',
      'session expired',
      'session granted-late',
      'session handed-over-from',
      'session handed-over-to',
      'session owner-fails',
      'session plain',
      'session preferred-elsewhere',
      'session preferred',
      'session rediscovered',
      'session redo',
      'session release-unanswered',
      'session released-by-force',
      'session two-sessions',
      'worker lost-and-returned',
      'worker name-taken-over',
      'worker ordered',
      'worker stopped',
    ]);
  });

  it.each(histories)('replays: $version $suite $scenario', async ({ suite, path }) => {
    await replay(suite, readHistory(path));
  });

  it('replays when it is that of a run that has only begun', async () => {
    const history = ofToday('session', 'plain');
    const completed = history.events.findIndex(({ eventType }) => eventType === 'EVENT_TYPE_WORKFLOW_TASK_COMPLETED');
    const begun = scheduled(history.events.slice(0, completed + 3));
    expect(begun.map(({ activityType }) => activityType.name)).toEqual(['atlas:acquireWorker']);
    await replay('session', { events: history.events.slice(0, completed + 3) });
  });

  it.each(histories)('is small and says nothing of who recorded it: $version $suite $scenario', ({ path }) => {
    expect(statSync(path).size).toBeLessThan(150_000);
    const paths = stringsOf(readHistory(path)).filter((text) =>
      /(^|[\s"'(:])\/(work|home|Users|root|tmp)\//.test(text),
    );
    expect(paths).toEqual([]);
  });
});

describe('a history that was broken on purpose', () => {
  it.each<[Suite, string]>([
    ['session', 'plain'],
    ['worker', 'stopped'],
    ['document', 'file'],
  ])('fails by another activity: %s', async (suite, scenario) => {
    const history = ofToday(suite, scenario);
    const last = scheduled(history.events).at(-1)!;
    last.activityType.name = `${last.activityType.name}Renamed`;
    await expect(replay(suite, history)).rejects.toThrow(DeterminismViolationError);
  });

  it('fails by a lease whose id is another', async () => {
    const history = ofToday('session', 'plain');
    scheduled(history.events)[0]!.activityId = 'abcdefabcdef.1:lease';
    await expect(replay('session', history)).rejects.toThrow(DeterminismViolationError);
  });

  it('fails by an activity that the code does not schedule any more', async () => {
    const history = ofToday('session', 'two-sessions');
    const plain = ofToday('session', 'plain');
    // The first half of one run and the rest of another.
    history.events.splice(12, Infinity, ...plain.events.slice(12));
    await expect(replay('session', history)).rejects.toThrow(DeterminismViolationError);
  });
});
