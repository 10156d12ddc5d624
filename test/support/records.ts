/** Records of a fleet as a client gives them, for tests of what is done with them. */
import type { SchedulingRecord, SessionRecord, WorkerRecord } from '../../src/fleet/client.js';

const OPEN: SchedulingRecord = {
  scheduling: 'open',
  revision: 0,
  applied: true,
  who: null,
  why: null,
  since: null,
  drain: null,
  notes: [],
};

export function workerRecord(name: string, over: Partial<WorkerRecord> = {}): WorkerRecord {
  return {
    name,
    state: 'ready',
    fleet: 'atlas',
    instance: 'k3f9',
    queue: `atlas-${name}.k3f9`,
    capabilities: ['gpu', 'ocr'],
    withdrawn: [],
    sessions: 1,
    cap: 4,
    reserve: null,
    version: '0.1.0',
    host: 'host-with-a-rather-long-name',
    pid: 4242,
    startedAt: new Date(Date.now() - 3_600_000).toISOString(),
    heartbeatAgeMs: 1_200,
    executor: { state: 'ready', restarts: 0 },
    disk: { freeBytes: 2e11, totalBytes: 5e11 },
    load1: 0.5,
    presenceTtlMs: 6_000,
    clockSkewMs: 40,
    scheduling: OPEN,
    reason: null,
    ...over,
  };
}

export function sessionRecord(session: string, over: Partial<SessionRecord> = {}): SessionRecord {
  const runId = over.runId ?? 'run-1';
  return {
    session,
    key: `${session}.${runId}`,
    worker: 'worker-7',
    workerState: 'ready',
    workerHeartbeatAgeMs: 1_200,
    workerPresenceTtlMs: 6_000,
    state: 'held',
    workflowId: 'document-quarterly-report-of-the-whole-company-3f9k2a',
    runId,
    workflowType: 'processDocument',
    capabilities: [],
    epoch: 1,
    step: { activity: 'extractPages', attempt: 2, startedAt: new Date(Date.now() - 65_000).toISOString() },
    heldForMs: 90_000,
    expiresInMs: 14_000_000,
    idleForMs: null,
    scratchBytes: 12_300_000,
    lastStep: null,
    ownerStatus: 'RUNNING',
    leaked: false,
    leaseTtlMs: 60_000,
    recoveryWindowMs: 5_000,
    localState: 'disk',
    ...over,
  };
}
