import { describe, expect, it } from 'vitest';
import {
  executorsRecord,
  SessionTable,
  type AttemptEntry,
  type SessionEntry,
} from '../../../src/daemon/session-table.js';

function session(key: string, changes: Partial<SessionEntry> = {}): SessionEntry {
  return {
    key,
    session: key,
    workflowId: 'workflow',
    runId: 'run',
    workflowType: 'type',
    epoch: 1,
    acquiredEpoch: 1,
    grantId: 'grant',
    fencingToken: 1,
    capabilities: [],
    leaseToken: 'token',
    leaseTtlMs: 1_000,
    recoveryWindowMs: 1_000,
    idleTimeoutMs: null,
    grantedAtMs: 1,
    expiresAtMs: 2,
    state: 'granting',
    ...changes,
  };
}

function attempt(id: string, sessionKey: string | null): AttemptEntry {
  return {
    id,
    sessionKey,
    activity: 'a',
    activityId: id,
    attempt: 1,
    taskToken: 't',
    incarnation: 'i',
    startedAtMs: 1,
  };
}

describe('SessionTable', () => {
  it('is empty without records', () => {
    const table = new SessionTable();
    expect([table.sessions(), table.attempts(), table.executors(), table.owner(), table.sessionCount]).toEqual([
      [],
      [],
      [],
      null,
      0,
    ]);
  });

  it('has the sessions in the order of their grants, whatever happens to them', () => {
    const table = SessionTable.replay([
      { type: 'session', entry: session('a') },
      { type: 'session', entry: session('b') },
      { type: 'session', entry: session('a', { leaseToken: 'second' }) },
      { type: 'session-state', key: 'a', state: 'releasing' },
    ]);
    expect(table.sessions()).toEqual([session('a', { leaseToken: 'second', state: 'releasing' }), session('b')]);
    expect(table.sessionCount).toBe(2);
    expect(table.session('b')).toEqual(session('b'));
  });

  it('ignores what is said about a session that is not there', () => {
    const table = SessionTable.replay([
      { type: 'session-state', key: 'a', state: 'held' },
      { type: 'session-gone', key: 'a' },
      { type: 'attempt-ended', id: 'x' },
    ]);
    expect(table.sessionCount).toBe(0);
    expect(table.session('a')).toBeUndefined();
  });

  it('does not change entries that it gave out', () => {
    const table = SessionTable.replay([{ type: 'session', entry: session('a') }]);
    const before = table.session('a');
    table.apply({ type: 'session-state', key: 'a', state: 'held' });
    expect([before?.state, table.session('a')?.state]).toEqual(['granting', 'held']);
  });

  it('keeps attempts by session, also beyond its end', () => {
    const table = SessionTable.replay([
      { type: 'session', entry: session('a') },
      { type: 'attempt', entry: attempt('1', 'a') },
      { type: 'attempt', entry: attempt('2', null) },
      { type: 'attempt', entry: attempt('3', 'b') },
      { type: 'session-gone', key: 'a' },
      { type: 'attempt-ended', id: '3' },
    ]);
    expect(table.attemptsOf('a')).toEqual([attempt('1', 'a')]);
    expect(table.attempts().map(({ id }) => id)).toEqual(['1', '2']);
    expect(table.attempt('3')).toBeUndefined();
  });

  it('writes the fewest records that lead to the same table, its owner first', () => {
    const owner = { instance: 'k3f9', directoryId: '7.1' };
    const process = { pid: 7, startedAt: 'then' };
    const table = SessionTable.replay([
      { type: 'executor', process: { pid: 6, startedAt: 'before' } },
      { type: 'session', entry: session('a') },
      { type: 'session-state', key: 'a', state: 'held' },
      { type: 'session', entry: session('b') },
      { type: 'session-gone', key: 'b' },
      { type: 'attempt', entry: attempt('1', 'a') },
      { type: 'instance', owner },
      { type: 'executor', process },
    ]);
    expect(table.records()).toEqual([
      { type: 'instance', owner },
      { type: 'executor', process },
      { type: 'session', entry: session('a', { state: 'held' }) },
      { type: 'attempt', entry: attempt('1', 'a') },
    ]);
    expect([table.owner(), table.executors()]).toEqual([owner, [process]]);
  });

  it('knows both executors while one takes the place of another, also once it is compacted', () => {
    const [old, next] = [
      { pid: 6, startedAt: 'before' },
      { pid: 7, startedAt: 'then' },
    ];
    const table = SessionTable.replay([
      { type: 'executor', process: old },
      { type: 'executors', processes: [old, next] },
    ]);
    expect(SessionTable.replay(table.records()).executors()).toEqual([old, next]);
    table.apply(executorsRecord([next]));
    expect(table.records()).toEqual([{ type: 'executor', process: next }]);
    table.apply(executorsRecord([]));
    expect(table.records()).toEqual([{ type: 'executor', process: null }]);
  });
});
