/** A ledger that is compacted at any time leads to the same table, whatever was written to it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SessionTable, type LedgerRecord, type SessionEntry } from '../../src/daemon/session-table.js';

const key = fc.constantFrom('a.run', 'b.run', 'c.run');
const state = fc.constantFrom<SessionEntry['state']>('granting', 'held', 'releasing');
const process = fc.option(fc.record({ pid: fc.nat(9), startedAt: fc.constantFrom('x', 'y') }), { nil: null });

const record: fc.Arbitrary<LedgerRecord> = fc.oneof(
  fc
    .record({
      key,
      session: key,
      workflowId: fc.string(),
      runId: fc.string(),
      workflowType: fc.string(),
      epoch: fc.nat(5),
      acquiredEpoch: fc.nat(5),
      grantId: fc.constantFrom('g', 'h'),
      fencingToken: fc.nat(),
      capabilities: fc.subarray(['gpu', 'ocr']),
      leaseToken: fc.base64String(),
      leaseTtlMs: fc.nat(),
      recoveryWindowMs: fc.nat(),
      idleTimeoutMs: fc.option(fc.nat(), { nil: null }),
      grantedAtMs: fc.nat(),
      expiresAtMs: fc.nat(),
      state,
    })
    .map((entry) => ({ type: 'session', entry }) as const),
  fc.record({ type: fc.constant('session-state' as const), key, state }),
  fc.record({ type: fc.constant('session-gone' as const), key }),
  fc
    .record({
      id: fc.constantFrom('1', '2', '3'),
      sessionKey: fc.option(key, { nil: null }),
      activity: fc.string(),
      activityId: fc.string(),
      attempt: fc.nat(),
      taskToken: fc.base64String(),
      incarnation: fc.string(),
      startedAtMs: fc.nat(),
    })
    .map((entry) => ({ type: 'attempt', entry }) as const),
  fc.record({ type: fc.constant('attempt-ended' as const), id: fc.constantFrom('1', '2', '3') }),
  fc
    .record({
      activity: fc.constantFrom('x', 'y'),
      sessionKey: key,
      taskToken: fc.base64String(),
      result: fc.oneof(fc.constant({}), fc.record({ json: fc.string() })),
    })
    .map((entry) => ({ type: 'result', entry }) as const),
  fc.record({ type: fc.constant('result-gone' as const), activity: fc.constantFrom('x', 'y') }),
  process.map((each) => ({ type: 'executor', process: each }) as const),
  fc
    .uniqueArray(
      process.filter((each) => each !== null),
      { maxLength: 3, selector: ({ pid }) => pid },
    )
    .map((processes) => ({ type: 'executors', processes }) as const),
  fc
    .record({ instance: fc.constantFrom('k3f9', 'zz12'), directoryId: fc.constantFrom('7.1', '8.1') })
    .map((owner) => ({ type: 'instance', owner }) as const),
);

/** What a table says, by every way to ask. */
function said(table: SessionTable): unknown {
  return {
    sessions: table.sessions(),
    byKey: ['a.run', 'b.run', 'c.run'].map((each) => [table.session(each), table.attemptsOf(each)]),
    byGrant: ['g', 'h'].map((each) => table.sessionByGrant(each)),
    attempts: table.attempts(),
    results: table.results(),
    byActivity: ['x', 'y'].map((each) => table.result(each)),
    executors: table.executors(),
    owner: table.owner(),
    count: table.sessionCount,
  };
}

describe('the session table', () => {
  it('is the same after it was written as the fewest records and read again, at any point', () => {
    fc.assert(
      fc.property(fc.array(record, { maxLength: 40 }), fc.nat(40), (records, cut) => {
        const whole = SessionTable.replay(records);
        const compacted = SessionTable.replay(SessionTable.replay(records.slice(0, cut)).records());
        for (const each of records.slice(cut)) compacted.apply(each);
        expect(said(compacted)).toEqual(said(whole));
        // JSON is what the ledger really holds.
        const stored = JSON.parse(JSON.stringify(whole.records())) as LedgerRecord[];
        expect(said(SessionTable.replay(stored))).toEqual(said(whole));
        expect(stored.length).toBeLessThanOrEqual(
          whole.sessionCount + whole.attempts().length + whole.results().length + 2,
        );
      }),
      { numRuns: 1_000 },
    );
  });
});
