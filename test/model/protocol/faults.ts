/** What goes wrong, and when: the schedule of one seed. */
import type { SessionContract } from '../../../src/workflow/owner.js';
import type { Host } from './host.js';
import type { Random } from './kernel.js';
import type { Step } from './owner.js';
import type { World } from './world.js';

export type FaultKind =
  | 'cut'
  | 'half-open'
  | 'slow link'
  | 'outage'
  | 'lost answers'
  | 'slow workflows'
  | 'supervisor crash'
  | 'supervisor crash at an effect'
  | 'executor crash'
  | 'executor crash at an effect'
  | 'host crash'
  | 'supervisor freeze'
  | 'executor freeze'
  | 'short freeze of both'
  | 'long freeze of both'
  | 'reset'
  | 'terminate'
  | 'cancel'
  | 'cut of a supervisor'
  | 'slow link, then a cut'
  | 'cut after a question'
  | 'clock step'
  | 'full disk';

export interface Mix {
  readonly name: string;
  readonly kinds: readonly FaultKind[];
  readonly count: readonly [number, number];
  /** Owners continue as new. */
  readonly owners: boolean;
  /** One fault after the other, each short enough that nothing may be redone. */
  readonly gentle: boolean;
  /** Short limits, and activities that do not end when they should. */
  readonly strained: boolean;
  /** What is not left to chance: a mix that is aimed at something. */
  readonly aim: Aim;
}

type Range = readonly [number, number];

export interface Aim {
  readonly hosts?: Range;
  readonly owners?: Range;
  readonly ownersStartMs?: Range;
  /** How long each fault lasts. */
  readonly lastsMs?: Range;
  /** From the end of one fault of a gentle mix to the next. */
  readonly gapMs?: Range;
  /** What every host can do; each owner asks for it or for nothing. */
  readonly capabilities?: readonly string[];
  /** Hosts are asked by name too, by owners that prefer them. */
  readonly prefers?: boolean;
  readonly contract?: (random: Random) => Partial<SessionContract>;
  readonly step?: (random: Random) => Partial<Step>;
}

const CUTS = ['cut', 'half-open', 'slow link'] as const;
const OUTAGES = ['outage', 'slow workflows', 'lost answers'] as const;
const CRASHES = [
  'supervisor crash',
  'supervisor crash at an effect',
  'executor crash',
  'executor crash at an effect',
  'host crash',
] as const;
const FREEZES = ['supervisor freeze', 'executor freeze', 'short freeze of both'] as const;
const OWNERS = ['reset', 'terminate', 'cancel'] as const;
const SURROUNDINGS = ['clock step', 'full disk'] as const;

/** Activities that run through all that happens, and do not end when they are told to. */
const stubborn = (random: Random): Partial<Step> => ({
  durationMs: random.between(15_000, 40_000),
  stopsAfterMs: random.chance(0.6) ? null : random.between(0, 1_000),
  busy: false,
  pauseMs: 0,
});

const mix = (
  name: string,
  kinds: readonly FaultKind[],
  count: readonly [number, number],
  rest?: Partial<Mix>,
): Mix => ({
  name,
  kinds,
  count,
  owners: false,
  gentle: false,
  strained: false,
  aim: {},
  ...rest,
});

export const MIXES = {
  calm: mix('calm', [], [0, 0], { owners: true }),
  cuts: mix('cuts', CUTS, [1, 3]),
  outages: mix('outages', OUTAGES, [1, 3]),
  crashes: mix('crashes', CRASHES, [1, 4]),
  freezes: mix('freezes', FREEZES, [1, 3]),
  owners: mix('owners', OWNERS, [1, 3], { owners: true }),
  everything: mix('everything', [...CUTS, ...OUTAGES, ...CRASHES, ...FREEZES, ...OWNERS, ...SURROUNDINGS], [2, 6], {
    owners: true,
  }),
  gentle: mix(
    'gentle',
    ['outage', 'lost answers', 'supervisor crash', 'executor crash', 'supervisor crash at an effect'],
    [1, 3],
    {
      gentle: true,
    },
  ),
  strained: mix(
    'strained',
    [...CUTS, 'slow link', 'half-open', 'supervisor freeze', 'executor freeze', 'supervisor crash'],
    [2, 5],
    {
      strained: true,
    },
  ),
  flapping: mix('flapping', ['cut', 'half-open', 'cut', 'half-open', 'supervisor crash'], [4, 9], { strained: true }),
  surroundings: mix('surroundings', [...SURROUNDINGS, ...SURROUNDINGS, ...CRASHES, 'cut', 'outage'], [2, 5], {
    owners: true,
  }),
  crowd: mix('crowd', ['executor crash', 'supervisor crash'], [0, 2], {
    aim: {
      hosts: [1, 1],
      owners: [8, 14],
      ownersStartMs: [500, 12_000],
      lastsMs: [500, 3_000],
      capabilities: ['gpu'],
      contract: () => ({ acquireTimeoutMs: 4_000, maxDurationMs: 3_600_000, idleTimeoutMs: null }),
      step: (random) => ({ durationMs: random.between(1_000, 1_800), pauseMs: 0, busy: false }),
    },
  }),
  grants: mix('grants', ['supervisor crash at an effect', 'supervisor crash at an effect', 'lost answers'], [1, 2], {
    gentle: true,
    aim: { ownersStartMs: [2_000, 2_500], gapMs: [900, 1_600] },
  }),
  'links that heal': mix(
    'links that heal',
    [
      'cut of a supervisor',
      'cut of a supervisor',
      'half-open',
      'slow workflows',
      'supervisor crash',
      'cut after a question',
    ],
    [1, 4],
    {
      aim: {
        lastsMs: [6_000, 13_000],
        contract: (random) => ({
          leaseTtlMs: random.pick([10_000, 20_000, 60_000]),
          recoveryWindowMs: random.pick([5_000, 2_000]),
          maxDurationMs: 3_600_000,
        }),
        step: stubborn,
      },
    },
  ),
  'resets under cuts': mix('resets under cuts', ['reset', 'cut', 'cut of a supervisor'], [2, 5], {
    owners: true,
    aim: { hosts: [2, 3], lastsMs: [6_000, 13_000], step: stubborn },
  }),
  'slow links': mix('slow links', ['slow link, then a cut'], [1, 2], {
    aim: {
      contract: (random) => ({
        leaseTtlMs: 20_000,
        recoveryWindowMs: random.between(1_000, 2_000),
        maxDurationMs: 3_600_000,
      }),
      step: stubborn,
    },
  }),
  expiries: mix('expiries', ['cut of a supervisor', 'cut'], [1, 2], {
    aim: {
      lastsMs: [6_000, 11_000],
      contract: (random) => ({
        leaseTtlMs: random.pick([6_000, 20_000]),
        maxDurationMs: random.between(8_000, 25_000),
      }),
      step: stubborn,
    },
  }),
  memory: mix('memory', [...CRASHES, ...CRASHES, 'cut', 'outage', 'reset'], [1, 4], {
    owners: true,
    aim: { contract: (random) => ({ state: random.chance(0.7) ? 'memory' : 'disk' }) },
  }),
  affinity: mix('affinity', [...CUTS, ...OUTAGES, ...CRASHES, ...FREEZES, ...OWNERS], [1, 4], {
    owners: true,
    aim: {
      capabilities: ['gpu'],
      prefers: true,
      contract: (random) => ({
        onLost: random.chance(0.8) ? 'rediscover' : 'redo',
        // The second does not always exist.
        prefer: random.pick([null, 'w1', 'w2']),
        preferForMs: random.between(100, 8_000),
      }),
    },
  }),
  'freezes of both': mix('freezes of both', ['long freeze of both', 'cut', 'outage'], [1, 3]),
} as const satisfies Record<string, Mix>;

export type MixName = keyof typeof MIXES;

const FAULTS_FROM_MS = 1_000;
const FAULTS_UNTIL_MS = 35_000;
/** Less than presence TTL + recovery window, with what a start takes. */
const GENTLE_DOWN_MS = 5_000;

export function planFaults(world: World, { kinds, count, gentle, strained, aim }: Mix): void {
  const { sim } = world;
  const { random } = sim;
  let fromMs = FAULTS_FROM_MS;
  const faults = kinds.length === 0 ? 0 : random.int(...count);
  for (let index = 0; index < faults; index += 1) {
    const kind = random.pick(kinds);
    const atMs = gentle
      ? fromMs + random.between(...(aim.gapMs ?? ([1_000, 20_000] as const)))
      : random.chance(0.25) && index > 0
        ? fromMs + random.between(0, 500)
        : random.between(FAULTS_FROM_MS, FAULTS_UNTIL_MS);
    const host = random.pick(world.hosts);
    const isShort = random.chance(strained ? 0.2 : 0.5);
    const durationMs = random.between(
      ...(aim.lastsMs ?? (isShort ? ([200, 8_000] as const) : ([8_000, 40_000] as const))),
    );
    const { begin, lastsMs } = planFault(
      world,
      kind,
      host,
      gentle && kind !== 'outage' && kind !== 'lost answers' ? Math.min(durationMs, GENTLE_DOWN_MS) : durationMs,
    );
    // The next fault of a gentle schedule comes when everybody has recovered.
    fromMs = gentle ? atMs + lastsMs + 20_000 : atMs;
    world.faultsEndMs = Math.max(world.faultsEndMs, atMs + lastsMs);
    sim.at(atMs, async () => {
      if (world.isOver) return;
      if (world.isActive) world.hit(kind);
      sim.note('FAULT', () => `${kind} on ${host.name} for ${Math.round(lastsMs)} ms`);
      await begin();
    });
  }
}

interface Fault {
  readonly begin: () => void | Promise<void>;
  readonly lastsMs: number;
}

/** How long a cut waits for a question between a worker and an owner, either way. */
const QUESTION_WITHIN_MS = 20_000;
/** The longest time until an armed crash comes about. */
const ARMED_MS = 5_000;

function planFault(world: World, kind: FaultKind, host: Host, durationMs: number): Fault {
  const { sim, server } = world;
  const { random } = sim;
  const later = (delayMs: number, what: string, run: () => void) => {
    sim.after(delayMs, () => {
      sim.note('FAULT', () => `${what} is over`);
      run();
    });
  };
  switch (kind) {
    case 'cut':
    case 'half-open': {
      const link = random.pick([host.link, host.link, host.supervisorLink, host.executorLink]);
      const directions =
        kind === 'cut' ? (['outCuts', 'inCuts'] as const) : [random.pick(['outCuts', 'inCuts'] as const)];
      world.outageMs += durationMs;
      return {
        lastsMs: durationMs,
        begin: () => {
          for (const direction of directions) link[direction] += 1;
          later(durationMs, kind, () => {
            for (const direction of directions) link[direction] -= 1;
          });
        },
      };
    }
    case 'slow link': {
      const slowMs = random.between(200, 2_400);
      return {
        lastsMs: durationMs,
        begin: () => {
          host.link.slowMs += slowMs;
          later(durationMs, kind, () => {
            host.link.slowMs -= slowMs;
          });
        },
      };
    }
    case 'cut of a supervisor':
      world.outageMs += durationMs;
      return {
        lastsMs: durationMs,
        begin: () => {
          const link = host.supervisorLink;
          link.outCuts += 1;
          link.inCuts += 1;
          later(durationMs, kind, () => {
            link.outCuts -= 1;
            link.inCuts -= 1;
          });
        },
      };
    case 'cut after a question': {
      const waitMs = random.between(0, 300);
      world.outageMs += durationMs;
      return {
        lastsMs: QUESTION_WITHIN_MS + durationMs,
        begin: () => {
          const { link } = host;
          const cut = () => {
            host.onQuestion = () => undefined;
            sim.after(waitMs, () => {
              link.outCuts += 1;
              link.inCuts += 1;
              later(durationMs, kind, () => {
                link.outCuts -= 1;
                link.inCuts -= 1;
              });
            });
          };
          host.onQuestion = cut;
          sim.after(QUESTION_WITHIN_MS, () => {
            if (host.onQuestion === cut) host.onQuestion = () => undefined;
          });
        },
      };
    }
    case 'slow link, then a cut': {
      const slowMs = random.between(600, 980);
      const slowForMs = random.between(3_000, 8_000);
      const { link } = host;
      world.outageMs += durationMs;
      return {
        lastsMs: slowForMs + durationMs,
        begin: () => {
          link.slowMs += slowMs;
          sim.after(slowForMs, () => {
            link.outCuts += 1;
            link.inCuts += 1;
            later(durationMs, kind, () => {
              link.slowMs -= slowMs;
              link.outCuts -= 1;
              link.inCuts -= 1;
            });
          });
        },
      };
    }
    case 'clock step': {
      const stepMs = random.between(-600_000, 600_000);
      return {
        lastsMs: 0,
        begin: () => {
          host.clockOffsetMs += stepMs;
        },
      };
    }
    case 'full disk':
      return {
        lastsMs: durationMs,
        begin: () => {
          host.disk.full += 1;
          later(durationMs, kind, () => {
            host.disk.full -= 1;
          });
        },
      };
    case 'outage':
      world.outageMs += durationMs;
      return {
        lastsMs: durationMs,
        begin: () => {
          server.stop();
          later(durationMs, kind, () => {
            server.start();
          });
        },
      };
    case 'lost answers': {
      const share = random.between(0.05, 0.4);
      return {
        lastsMs: durationMs,
        begin: () => {
          server.lostAnswers = share;
          later(durationMs, kind, () => {
            server.lostAnswers = 0;
          });
        },
      };
    }
    case 'slow workflows': {
      const slowMs = random.between(200, 4_000);
      world.outageMs += durationMs;
      return {
        lastsMs: durationMs,
        begin: () => {
          server.taskSlowMs += slowMs;
          later(durationMs, kind, () => {
            server.taskSlowMs -= slowMs;
          });
        },
      };
    }
    case 'supervisor crash':
      return {
        lastsMs: durationMs,
        begin: () => {
          host.crashSupervisor();
          later(durationMs, kind, () => {
            host.start();
          });
        },
      };
    case 'supervisor crash at an effect': {
      const effects = random.int(1, 40);
      return {
        lastsMs: durationMs + ARMED_MS,
        begin: () => {
          const { supervisor } = host;
          const crash = () => {
            if (host.supervisor !== supervisor) return;
            host.crashSupervisor();
            later(durationMs, kind, () => {
              host.start();
            });
          };
          supervisor?.process.crashAtEffect(effects, crash);
          sim.after(ARMED_MS, () => supervisor?.process.crashAtEffect(Number.POSITIVE_INFINITY, () => undefined));
        },
      };
    }
    case 'executor crash':
      return {
        lastsMs: 0,
        begin: () => {
          host.crashExecutor();
        },
      };
    case 'executor crash at an effect': {
      const effects = random.int(1, 12);
      return {
        lastsMs: ARMED_MS,
        begin: () => {
          const executor = host.supervisor?.executor;
          executor?.main.crashAtEffect(effects, () => {
            executor.kill('it crashes at an effect');
          });
          sim.after(ARMED_MS, () => executor?.main.crashAtEffect(Number.POSITIVE_INFINITY, () => undefined));
        },
      };
    }
    case 'host crash':
      return {
        lastsMs: durationMs,
        begin: () => {
          host.crashHost();
          later(durationMs, kind, () => {
            host.start();
          });
        },
      };
    case 'supervisor freeze':
    case 'executor freeze':
    case 'short freeze of both':
    case 'long freeze of both': {
      const lastsMs = kind === 'short freeze of both' ? Math.min(durationMs, random.between(200, 3_000)) : durationMs;
      return {
        lastsMs,
        begin: () => {
          const { supervisor } = host;
          const executor = supervisor?.executor;
          if (kind !== 'executor freeze') supervisor?.process.freeze();
          if (kind !== 'supervisor freeze') executor?.freeze();
          host.noteFreezes();
          later(lastsMs, kind, () => {
            host.noteFreezes();
            if (kind !== 'executor freeze') supervisor?.process.thaw();
            if (kind !== 'supervisor freeze') executor?.thaw();
            host.noteFreezes();
          });
        },
      };
    }
    case 'reset':
    case 'terminate':
    case 'cancel':
      return {
        lastsMs: 0,
        begin: async () => {
          const owner = server.down ? undefined : world.runningOwner();
          if (owner === undefined) return;
          if (kind === 'reset') await world.reset(owner);
          else if (kind === 'terminate') world.terminate(owner);
          else world.cancel(owner);
        },
      };
  }
}
