/** What the answers of probes mean. Pure; `probe-client.ts` asks. */
import { acquireQueue } from '../../contract/names.js';
import type { ProbeOutcome } from '../../contract/probe.js';
import type { AcquireAnswer, Probed, ProbedQueues } from '../probe-client.js';
import type { PoolRecord, WorkerRecord } from '../records.js';
import { type AtlasCommand, bad, counted, type Finding, listed, ok } from './findings.js';

export function findingsOfQueues(
  probed: readonly ProbedQueues[],
  workers: readonly WorkerRecord[],
  fleet: string,
  atlas: AtlasCommand,
): readonly Finding[] {
  if (probed.length === 0) return [ok('queues', fleet, 'no live worker to ask')];
  const found: Finding[] = [];
  const notRun = probed.flatMap(({ target, probed: each }) =>
    each.kind === 'not-run' ? [{ name: target.worker, ...each }] : [],
  );
  const [first] = notRun;
  if (first !== undefined) {
    const names = listed(notRun.map(({ name }) => name));
    found.push(
      bad(
        'queues',
        'fail',
        fleet,
        `${first.reason}; nothing is known of ${names}`,
        first.hadTime
          ? `on the hosts of ${names}: \`systemctl restart atlasd\``
          : `\`${atlas('atlas doctor --check queues --timeout 60s')}\``,
      ),
    );
  }
  let slowestMs = 0;
  let answered = 0;
  for (const { target, probed: each } of probed) {
    if (each.kind === 'not-run') continue;
    const host = workers.find(({ name }) => name === target.worker)?.host ?? target.worker;
    const { control, pinned } = each.answer;
    if (!control.answered)
      found.push(
        bad(
          'queues',
          'fail',
          target.worker,
          `its supervisor does not answer on its control queue: ${because(control)}`,
          `on ${host}: \`systemctl status atlasd; journalctl -u atlasd -n 50\``,
        ),
      );
    if (!pinned.answered)
      found.push(
        bad(
          'queues',
          'fail',
          target.worker,
          `its executor does not run pinned activities on ${target.queue}: ${because(pinned)}`,
          control.answered
            ? `on ${host}: \`pgrep -af executor/main\` for a process that is stopped or busy, then \`systemctl restart atlasd\``
            : `on ${host}: \`systemctl status atlasd\``,
        ),
      );
    if (control.answered && pinned.answered) {
      answered += 1;
      slowestMs = Math.max(slowestMs, control.tookMs, pinned.tookMs);
    }
  }
  if (answered > 0)
    found.push(
      ok(
        'queues',
        fleet,
        `${answered} of ${counted(probed.length, 'live worker')} answered on both queues, within ${(slowestMs / 1_000).toFixed(1)} s`,
      ),
    );
  return found;
}

function because({ reason }: ProbeOutcome): string {
  return reason ?? 'no reason was given';
}

/** Of a set with a free slot. `poolNow`: the set as it was seen after a probe that got nothing. */
export function findingsOfAcquire(
  pool: PoolRecord,
  probed: Probed<AcquireAnswer>,
  poolNow: PoolRecord | undefined,
  fleet: string,
  atlas: AtlasCommand,
): Finding {
  const { pool: label, capabilities } = pool;
  const again = `\`${atlas('atlas doctor --check acquire --check queues')}\``;
  if (probed.kind === 'not-run')
    return bad('acquire', 'fail', label, `it is not known whether a session is granted: ${probed.reason}`, again);
  const { outcome, worker } = probed.answer;
  if (outcome.answered)
    return ok(
      'acquire',
      label,
      `${worker ?? 'a worker'} granted a session within ${(outcome.tookMs / 1_000).toFixed(1)} s`,
    );
  // Taken meanwhile by somebody who needs it.
  if (poolNow?.freeSlots === 0) return notTried(poolNow);
  return bad(
    'acquire',
    'fail',
    label,
    `no session was granted although ${counted(pool.freeSlots, 'slot')} of ${listed(pool.workers)} ${pool.freeSlots === 1 ? 'is' : 'are'} free: ${outcome.reason ?? ''}`,
    `${again}; \`temporal task-queue describe --task-queue ${acquireQueue(fleet, capabilities)} --task-queue-type activity\` shows who polls`,
  );
}

/** A probe would have to wait for a slot, and take it from an owner. */
export function notTried({ pool, reason }: PoolRecord): Finding {
  return ok('acquire', pool, `not tried: ${reason ?? 'no slot is free'}`);
}
