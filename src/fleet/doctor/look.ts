/**
 * Checks of what the workers last told: each a function of one look at the fleet, without a call to anybody.
 */
import { formatDurationMs } from '../../contract/duration.js';
import type { FleetLook, SessionRecord, WorkerRecord } from '../records.js';
import { type AtlasCommand, bad, counted, type Finding, listed, ok, orElse } from './findings.js';

const SKEW_WARN_MS = 2_000;
const SKEW_FAIL_MS = 30_000;
const LOW_DISK_SHARE = 0.1;
const LOW_DISK_BYTES = 1e9;
/** An order that is younger may be on its way. */
const APPLIED_WITHIN_MS = 10_000;

const GONE: ReadonlySet<string> = new Set(['lost', 'stopped', 'registering']);

/** Workers that can be expected to answer. */
export function liveWorkers(workers: readonly WorkerRecord[]): WorkerRecord[] {
  return workers.filter(({ state }) => !GONE.has(state));
}

/** Where to look on the host of a worker, as docs/operations.md runs atlasd. */
function onHost({ host }: WorkerRecord, command = 'systemctl status atlasd; journalctl -u atlasd -n 50'): string {
  return `on ${host}: \`${command}\``;
}

/** Liveness, executors, and what operators want. */
export function checkWorkers(
  { workers }: FleetLook,
  fleet: string,
  atlas: AtlasCommand,
  nowMs: number,
): readonly Finding[] {
  if (workers.length === 0)
    return [
      bad(
        'workers',
        'fail',
        fleet,
        'no worker is registered in the fleet',
        `\`atlasd --fleet ${fleet}\` on a host, or \`${atlas('atlas dev')}\` to try it here`,
      ),
    ];
  const live = liveWorkers(workers);
  const found = workers.flatMap((worker) => [
    ...ofState(worker, atlas),
    ...ofChecks(worker, atlas, nowMs),
    ...ofOrders(worker, atlas, nowMs),
  ]);
  if (live.length === 0)
    found.unshift(
      bad(
        'workers',
        'fail',
        fleet,
        `none of the ${counted(workers.length, 'worker')} is live, so that no session can begin or go on`,
        onHost(workers.find(({ state }) => state === 'lost') ?? workers[0]!, 'systemctl start atlasd'),
      ),
    );
  const stopped = workers.length - live.length;
  return orElse(found, ok('workers', fleet, `${live.length} live${stopped === 0 ? '' : `, ${stopped} stopped`}`));
}

function ofState(worker: WorkerRecord, atlas: AtlasCommand): Finding[] {
  const { name, state, reason, heartbeatAgeMs, executor } = worker;
  const ago = heartbeatAgeMs === null ? '' : `, last heard of ${formatDurationMs(rounded(heartbeatAgeMs))} ago`;
  switch (state) {
    case 'lost':
      return [
        bad(
          'workers',
          'fail',
          name,
          `lost${ago}: ${reason ?? 'it sends no presence'}`,
          `${onHost(worker)}; if it is gone for good: \`${atlas(`atlas workers forget ${name}${worker.sessions > 0 ? ' --with-sessions' : ''}`)}\``,
        ),
      ];
    case 'stale':
      return [
        bad(
          'workers',
          'warn',
          name,
          `its presence is late${ago}`,
          `\`${atlas('atlas doctor --check workers')}\` again; if it stays so, ${onHost(worker)}`,
        ),
      ];
    case 'degraded':
      return [
        bad(
          'workers',
          'fail',
          name,
          `its executor ends again and again (${counted(executor?.restarts ?? 0, 'restart')}), so that it takes no sessions`,
          onHost(worker, 'journalctl -u atlasd -n 200 | grep executor'),
        ),
      ];
    case 'registering':
      return [
        bad(
          'workers',
          'warn',
          name,
          'it has just started, and has sent no presence yet',
          `\`${atlas('atlas doctor')}\` again in some seconds`,
        ),
      ];
    case 'ready':
      // Stopping, or its executor is not up.
      return reason === null
        ? []
        : [
            bad(
              'workers',
              'warn',
              name,
              `takes no sessions: ${reason}`,
              `\`${atlas('atlas doctor --check workers')}\` again; if it stays so, ${onHost(worker)}`,
            ),
          ];
    default:
      return [];
  }
}

/** Capabilities that a live worker does not offer although it has them. */
function ofChecks(worker: WorkerRecord, atlas: AtlasCommand, nowMs: number): Finding[] {
  if (GONE.has(worker.state)) return [];
  return worker.withdrawn.map(({ capability, reason, since }) =>
    bad(
      'workers',
      'warn',
      worker.name,
      `it has withdrawn ${capability} for ${formatDurationMs(rounded(Math.max(0, nowMs - Date.parse(since))))}, so that nothing which asks for it runs there: ${reason}`,
      `${onHost(worker, 'atlasd --check')} runs the check again; \`${atlas('atlas pools ls')}\` tells what waits for it`,
    ),
  );
}

function ofOrders({ name, state, sessions, scheduling }: WorkerRecord, atlas: AtlasCommand, nowMs: number): Finding[] {
  const found: Finding[] = [];
  const { drain } = scheduling;
  if (drain?.overdue === true && scheduling.scheduling === 'draining')
    found.push(
      bad(
        'workers',
        'warn',
        name,
        `its drain by ${drain.who} is overdue since ${drain.deadlineAt ?? 'its deadline'}; ${counted(sessions, 'session')} left`,
        `\`${atlas('atlas sessions ls')}\` shows them; end all of them with \`${atlas(`atlas sessions release --worker ${name}`)}\``,
      ),
    );
  // A worker that is away gets it when it returns, and is reported as that.
  const sinceMs = Date.parse(scheduling.notes.at(-1)?.at ?? scheduling.since ?? '');
  const isLate = Number.isNaN(sinceMs) || nowMs - sinceMs > APPLIED_WITHIN_MS;
  if (!scheduling.applied && !GONE.has(state) && isLate)
    found.push(
      bad(
        'workers',
        'warn',
        name,
        `its daemon has not confirmed that it is ${scheduling.scheduling === 'open' ? 'open again' : `to be ${scheduling.scheduling}`}; it may still take sessions`,
        `\`${atlas('atlas doctor --check queues')}\` tells whether it answers`,
      ),
    );
  return found;
}

export function checkClocks(workers: readonly WorkerRecord[], fleet: string): readonly Finding[] {
  const known = liveWorkers(workers).filter(({ clockSkewMs }) => clockSkewMs !== null);
  const found = known.flatMap((worker) => {
    const skewMs = worker.clockSkewMs!;
    const byMs = Math.abs(skewMs);
    if (byMs <= SKEW_WARN_MS) return [];
    return [
      bad(
        'clocks',
        byMs > SKEW_FAIL_MS ? 'fail' : 'warn',
        worker.name,
        `its clock is ${formatDurationMs(rounded(byMs))} ${skewMs > 0 ? 'ahead of' : 'behind'} the server's`,
        onHost(worker, 'timedatectl status; chronyc tracking'),
      ),
    ];
  });
  const worstMs = Math.max(0, ...known.map(({ clockSkewMs }) => Math.abs(clockSkewMs!)));
  return orElse(
    found,
    ok(
      'clocks',
      fleet,
      known.length === 0
        ? 'no live worker tells its time'
        : `${counted(known.length, 'clock')} within ${formatDurationMs(worstMs)} of the server`,
    ),
  );
}

export function checkVersions(workers: readonly WorkerRecord[], fleet: string, ownVersion: string): readonly Finding[] {
  const live = liveWorkers(workers);
  const byVersion = new Map<string, string[]>();
  for (const { version, name } of live) byVersion.set(version, [...(byVersion.get(version) ?? []), name]);
  const found: Finding[] = [];
  if (byVersion.size > 1) {
    const parts = [...byVersion].map(([version, names]) => `${version} on ${listed(names)}`);
    const newest = [...byVersion.keys()].sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1)!;
    found.push(
      bad(
        'versions',
        'warn',
        fleet,
        `workers run several versions: ${parts.join('; ')}`,
        `on each older host: \`npm install temporal-atlas@${newest}\`, then \`systemctl restart atlasd\``,
      ),
    );
  }
  if (byVersion.size > 0 && !byVersion.has(ownVersion))
    found.push(
      bad(
        'versions',
        'warn',
        fleet,
        `this command is ${ownVersion}, and no live worker is: ${[...byVersion.keys()].join(', ')}`,
        `here: \`npm install temporal-atlas@${[...byVersion.keys()].at(-1)!}\``,
      ),
    );
  return orElse(
    found,
    ok('versions', fleet, live.length === 0 ? 'no live worker tells its version' : `all have ${ownVersion}`),
  );
}

export function checkDisks(workers: readonly WorkerRecord[], fleet: string): readonly Finding[] {
  const known = liveWorkers(workers).filter(({ disk }) => disk !== null);
  const found = known.flatMap((worker) => {
    const { freeBytes, totalBytes } = worker.disk!;
    if (freeBytes >= LOW_DISK_BYTES && freeBytes >= totalBytes * LOW_DISK_SHARE) return [];
    const share = totalBytes === 0 ? 0 : Math.floor((freeBytes / totalBytes) * 100);
    return [
      bad(
        'disks',
        'warn',
        worker.name,
        `its state directory has ${gigabytes(freeBytes)} free of ${gigabytes(totalBytes)} (${share} %); without room it takes no sessions`,
        onHost(worker, 'df -h; du -xsh /var/lib/atlas/*'),
      ),
    ];
  });
  return orElse(
    found,
    ok(
      'disks',
      fleet,
      known.length === 0 ? 'no live worker tells its disk' : `${counted(known.length, 'disk')} with room`,
    ),
  );
}

/** Who a worker says it is beyond its record. */
export interface MachineOf {
  readonly worker: string;
  readonly machineId: string;
}

export function checkNames(
  workers: readonly WorkerRecord[],
  machines: readonly MachineOf[],
  fleet: string,
): readonly Finding[] {
  const live = liveWorkers(workers);
  const found: Finding[] = [];
  for (const group of grouped(live, ({ instance }) => instance)) {
    if (group.length < 2) continue;
    found.push(
      bad(
        'names',
        'fail',
        listed(group.map(({ name }) => name)),
        `they have one instance id, ${group[0]!.instance}: a state directory was copied`,
        onHost(group[1]!, 'systemctl stop atlasd; mv /var/lib/atlas /var/lib/atlas.copied; systemctl start atlasd'),
      ),
    );
  }
  const machineOf = new Map(machines.map(({ worker, machineId }) => [worker, machineId]));
  for (const group of grouped(live, ({ name }) => machineOf.get(name) ?? '')) {
    const hosts = [...new Set(group.map(({ host }) => host))];
    // Several workers of one host are as they should be.
    if (hosts.length < 2 || (machineOf.get(group[0]!.name) ?? '') === '') continue;
    found.push(
      bad(
        'names',
        'warn',
        listed(group.map(({ name }) => name)),
        `the hosts ${listed(hosts)} have one machine id, so that a state directory copied between them would not be noticed`,
        `on ${hosts[1]!}: \`rm /etc/machine-id; systemd-machine-id-setup; systemctl restart atlasd\``,
      ),
    );
  }
  const capabilities = new Set(workers.flatMap((worker) => worker.capabilities));
  for (const worker of live.filter(({ name }) => capabilities.has(name)))
    found.push(
      bad(
        'names',
        'warn',
        worker.name,
        `it is named like a capability of the fleet, which who reads its name will take it for`,
        onHost(worker, `atlasd --name ${worker.name}-1`),
      ),
    );
  return orElse(
    found,
    ok(
      'names',
      fleet,
      live.length === 0
        ? 'no live worker to tell apart'
        : `${counted(live.length, 'live worker')} with names and ids of their own`,
    ),
  );
}

/** What is kept must be of use to somebody, and the rest too. */
export function checkReserves(workers: readonly WorkerRecord[], fleet: string): readonly Finding[] {
  const live = liveWorkers(workers);
  const found: Finding[] = [];
  for (const worker of live) {
    for (const [capability, slots] of Object.entries(worker.reserve ?? {})) {
      const why = worker.capabilities.includes(capability)
        ? slots > worker.cap
          ? `it has ${worker.cap} in all`
          : undefined
        : 'it does not have that capability';
      if (why !== undefined)
        found.push(
          bad(
            'reserves',
            'warn',
            worker.name,
            `it keeps ${counted(slots, 'slot')} for ${capability}, which can never be filled: ${why}`,
            onHost(worker, 'grep reserve /etc/atlas/atlasd.toml'),
          ),
        );
    }
  }
  const reservedOf = (worker: WorkerRecord): number =>
    Object.values(worker.reserve ?? {}).reduce((sum, slots) => sum + slots, 0);
  if (live.length > 0 && live.every((worker) => reservedOf(worker) >= worker.cap))
    found.push(
      bad(
        'reserves',
        'warn',
        fleet,
        'every slot of every live worker is kept for a capability: sessions that ask for nothing can never begin',
        onHost(live[0]!, 'grep reserve /etc/atlas/atlasd.toml'),
      ),
    );
  const reserved = live.reduce((sum, worker) => sum + reservedOf(worker), 0);
  return orElse(
    found,
    ok(
      'reserves',
      fleet,
      reserved === 0 ? 'no slots are reserved' : `${counted(reserved, 'reserved slot')} can be used`,
    ),
  );
}

/** Of sessions whose owners were asked for. */
export function checkSessions(
  sessions: readonly SessionRecord[],
  fleet: string,
  atlas: AtlasCommand,
): readonly Finding[] {
  const found = sessions
    .filter(({ leaked }) => leaked === true)
    .map((session) =>
      bad(
        'sessions',
        session.workerState === 'lost' ? 'warn' : 'fail',
        session.session,
        `it holds a slot of ${session.worker} for nothing: its owner ${session.workflowId} ${
          session.ownerStatus === 'RUNNING' ? 'has no lease of it any more' : `is ${session.ownerStatus ?? 'unknown'}`
        }`,
        `\`${atlas(`atlas sessions release ${session.session}`)}\``,
      ),
    );
  return orElse(
    found,
    ok(
      'sessions',
      fleet,
      sessions.length === 0 ? 'none is held' : `${counted(sessions.length, 'session')}, all in use`,
    ),
  );
}

function grouped<Item>(items: readonly Item[], key: (item: Item) => string): Item[][] {
  const groups = new Map<string, Item[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

/** Above a second nobody needs milliseconds. */
function rounded(ms: number): number {
  return ms < 1_000 ? Math.round(ms) : Math.round(ms / 1_000) * 1_000;
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(1)} GB`;
}
