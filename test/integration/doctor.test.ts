/** `atlas doctor` on real fleets: one that is well, and one for each way of being ill that no record tells. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TemporalClient } from '../../src/temporal/connect.js';
import { startDevServer, type DevServer } from '../../src/temporal/dev-server.js';
import { RELEASES } from '../../src/temporal/server-versions.js';
import type { Finding } from '../../src/fleet/doctor/findings.js';
import type { Atlasd } from '../support/atlasd.js';
import { runAtlas } from '../support/cli.js';
import { eventually, sessionsOf, startWorker, startWorkflow, workersOf } from '../support/fixtures.js';
import { uniqueFleet } from '../support/fleet.js';
import { connectTestClient, temporalAddress, useClient } from '../support/server.js';

/** For workers that are well: they must not be late with their presence, however busy the machine is. */
const NEVER_LATE = ['--presence-ttl', '60s'];

interface Report {
  readonly exit: number | null;
  readonly findings: readonly Finding[];
  readonly stderr: string;
}

async function examine(fleet: string, args: readonly string[] = [], address = temporalAddress()): Promise<Report> {
  const { exit, stdout, stderr } = await runAtlas(
    ['doctor', '--fleet', fleet, '-o', 'json', '--timeout', '60s', ...args],
    { address },
  );
  expect(stdout, stderr).not.toBe('');
  const { version, findings } = JSON.parse(stdout) as { version: number; findings: Finding[] };
  expect(version).toBe(1);
  return { exit, findings, stderr };
}

const of = (report: Report, check: Finding['check']): Finding[] =>
  report.findings.filter((finding) => finding.check === check);

describe.each(RELEASES.map(({ serverVersion }) => serverVersion))('on server %s', (version) => {
  let server: DevServer;
  let connection: TemporalClient;
  beforeAll(async () => {
    server = await startDevServer({ env: process.env, version });
    connection = await connectTestClient(server.address);
  });
  afterAll(async () => {
    await connection.close();
    await server.stop();
  });

  it('says that a fleet is well, and who waits for a worker that it does not have', async () => {
    const fleet = uniqueFleet();
    const { address } = server;
    const args = ['--max-sessions', '1', ...NEVER_LATE];
    await startWorker({ fleet, name: 'a', capabilities: ['gpu'], address, args });
    await eventually(async () => (await workersOf(connection.client, fleet))[0]?.state === 'ready');

    const well = await examine(fleet, [], address);
    expect(well.findings.filter(({ level, check }) => level !== 'ok' && check !== 'disks')).toEqual([]);
    expect(well.exit).toBe(0);
    expect(well.stderr).toBe('');
    expect(of(well, 'server')[0]?.message).toContain(`Temporal ${version}, namespace "default"`);
    expect(of(well, 'queues')[0]?.message).toContain('1 of 1 live worker answered on both queues');
    expect(of(well, 'acquire').map(({ subject, message }) => [subject, message.slice(0, 19)])).toEqual([
      ['any', 'a granted a session'],
      ['gpu', 'a granted a session'],
    ]);
    // What the probe took it gave back.
    expect(await eventually(async () => (await sessionsOf(connection.client, fleet)).length === 0)).toBe(true);

    const holder = await startWorkflow(connection.client, fleet, 'holder');
    await eventually(async () => (await sessionsOf(connection.client, fleet)).length === 1);
    const waiter = await startWorkflow(connection.client, fleet, 'holder', { session: { capabilities: ['ocr'] } });
    const ill = await eventually(
      async () => {
        const report = await examine(
          fleet,
          ['--check', 'waiting', '--check', 'acquire', '--check', 'sessions'],
          address,
        );
        return report.exit === 1 ? report : undefined;
      },
      { timeoutMs: 60_000 },
    );
    expect(new Set(ill.findings.map(({ check }) => check))).toEqual(new Set(['waiting', 'acquire', 'sessions']));
    expect(of(ill, 'waiting')).toEqual([
      expect.objectContaining({
        level: 'fail',
        subject: 'ocr',
        message: expect.stringMatching(
          new RegExp(`^1 session waits, the first for \\d+s: ${waiter.workflowId}; no live worker serves it$`),
        ) as string,
        next: `start a worker that does: \`atlasd --fleet ${fleet} --capabilities ocr\``,
      }),
    ]);
    expect(of(ill, 'acquire').map(({ level, message }) => [level, message])).toEqual([
      ['ok', 'not tried: every slot is taken or reserved'],
      ['ok', 'not tried: every slot is taken or reserved'],
    ]);
    expect(of(ill, 'sessions')[0]?.level).toBe('ok');
    await holder.signal('finish');
    await holder.result();
    await waiter.terminate();
  });
});

describe('the doctor', () => {
  const client = useClient();
  const allReady = (fleet: string, count: number) =>
    eventually(async () => {
      const ready = (await workersOf(client(), fleet)).filter(({ state }) => state === 'ready');
      return ready.length === count;
    });
  const executorOf = (worker: Atlasd): number => {
    const found = worker.processes().find(({ command }) => command.includes('executor/main'));
    if (found === undefined) throw new Error('The worker has no executor.');
    return found.pid;
  };

  it('finds an executor that is frozen', async () => {
    const fleet = uniqueFleet();
    const args = NEVER_LATE;
    const [a] = [await startWorker({ fleet, name: 'a', args }), await startWorker({ fleet, name: 'b', args })];
    await allReady(fleet, 2);
    const pid = executorOf(a);
    process.kill(pid, 'SIGSTOP');
    try {
      const report = await examine(fleet, ['--check', 'queues']);
      expect(report.exit).toBe(1);
      expect(report.findings.map(({ level, subject }) => [level, subject])).toEqual([
        ['fail', 'a'],
        ['ok', fleet],
      ]);
      expect(report.findings[0]?.message).toContain('its executor does not run pinned activities');
      expect(report.findings[1]?.message).toContain('1 of 2 live workers');
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });

  it('finds a supervisor that is frozen before its presence is overdue', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a', args: ['--presence-ttl', '120s'] });
    await startWorker({ fleet, name: 'b', args: NEVER_LATE });
    await allReady(fleet, 2);
    a.signal('SIGSTOP');
    try {
      const report = await examine(fleet, ['--check', 'queues']);
      expect(report.exit).toBe(1);
      const failed = report.findings.filter(({ level }) => level === 'fail');
      expect(failed.map(({ subject }) => subject)).toContain('a');
      expect(failed.map(({ subject }) => subject)).not.toContain('b');
      expect(failed[0]?.message).toContain('its supervisor does not answer');
    } finally {
      a.signal('SIGCONT');
    }
  });

  it('says that nothing is known where no supervisor runs the probe', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a', args: ['--presence-ttl', '120s'] });
    await allReady(fleet, 1);
    a.signal('SIGSTOP');
    try {
      const startedMs = performance.now();
      const report = await examine(fleet, ['--check', 'queues', '--check', 'clocks', '--timeout', '8s']);
      // Its own start included; without the limit that it is given it would take a minute.
      expect(performance.now() - startedMs).toBeLessThan(50_000);
      expect(report.exit).toBe(1);
      expect(of(report, 'queues').map(({ level, subject }) => [level, subject])).toEqual([['fail', fleet]]);
      expect(of(report, 'queues')[0]?.message).toMatch(/nothing is known of a$|was not checked within/);
      // What needs no answer of the worker is told all the same.
      expect(of(report, 'clocks')[0]?.level).toBe('ok');
    } finally {
      a.signal('SIGCONT');
    }
  });

  it('finds pinned work that waits for a worker which was killed', async () => {
    const fleet = uniqueFleet();
    const a = await startWorker({ fleet, name: 'a', args: ['--presence-ttl', '2s'] });
    await startWorker({ fleet, name: 'b', args: NEVER_LATE });
    await allReady(fleet, 2);
    const queue = (await workersOf(client(), fleet)).find(({ name }) => name === 'a')!.queue;
    await a.killAll();
    const call = await startWorkflow(client(), fleet, 'callQueue', { queue });
    const report = await eventually(
      async () => {
        const seen = await examine(fleet, ['--check', 'stranded', '--check', 'workers']);
        return of(seen, 'stranded').some(({ level }) => level === 'fail') ? seen : undefined;
      },
      { timeoutMs: 60_000 },
    );
    expect(report.exit).toBe(1);
    expect(of(report, 'workers')).toEqual([
      expect.objectContaining({ level: 'fail', subject: 'a', message: expect.stringContaining('lost') as string }),
    ]);
    expect(of(report, 'stranded')).toEqual([
      expect.objectContaining({
        level: 'fail',
        subject: call.workflowId,
        message: expect.stringMatching(/^name waits for a, which is lost, for \d+s$/) as string,
        next: expect.stringContaining(`temporal workflow cancel --workflow-id ${call.workflowId}`) as string,
      }),
    ]);
    await call.terminate();
  });
});
