/**
 * The protocol without one of its rules: for each of them the schedules must find what it is there for. The mutants are
 * made here, by taking a method of the real classes away; the product has no switch for them.
 */
import { AtlasError } from '../../../src/contract/errors.js';
import { LEASE_ACTIVITY } from '../../../src/contract/session.js';
import type { Fence } from '../../../src/daemon/fence.js';
import type { TemporalPort } from '../../../src/daemon/ports.js';
import type { SessionKeeper } from '../../../src/daemon/session-keeper.js';
import type { SessionEntry } from '../../../src/daemon/session-table.js';
import { Affinity } from '../../../src/workflow/affinity.js';
import { HeldSession } from '../../../src/workflow/owner.js';
import type { Supervisor } from './host.js';
import type { MixName } from './faults.js';
import type { Violation, WorldOptions } from './world.js';

export interface Mutant {
  /** The rule of DESIGN.md §4 that is taken away, and what the protocol does without it. */
  readonly rule: string;
  readonly without: string;
  readonly mix: MixName;
  /** Where the search starts; a schedule that is known to show it saves the time. */
  readonly firstSeed?: number;
  readonly breaks: readonly Violation['invariant'][];
  /**
   * Another rule that covers this one, so that it shows only where both are taken away. A schedule counts then only if the
   * protocol without that other rule alone keeps its promises under it.
   */
  readonly coveredBy?: { readonly why: string; readonly options: WorldOptions };
  readonly options?: WorldOptions;
  /** Changes a class for the time of the run; returns what undoes it. */
  readonly patch?: () => () => void;
}

/** What the mutants take hold of inside a keeper. */
interface Insides {
  readonly ports: { temporal: { -readonly [M in keyof TemporalPort]: TemporalPort[M] } };
  readonly fence: Fence;
  readonly table: SessionKeeper['table'];
  announce: (key: string) => Promise<void>;
  end: (key: string, reason: string, fate: 'none') => Promise<void>;
  keepResult: () => Promise<void>;
  tendResult: (entry: { activity: string }) => Promise<void>;
  tendLimbo: (entry: SessionEntry, limbo: { untilMs: number }) => Promise<void>;
  heldByGrant: (grantId: string, session: string) => Promise<SessionEntry>;
  heldForAttempt: (activityId: string, owner: { session: string; runId: string; epoch: number }) => SessionEntry;
  confirm: (task: { request: { grantId: string; session: string } }) => Promise<void>;
  loseGoneMemory: () => void;
  beginAttempt: SessionKeeper['beginAttempt'];
}

function inKeeper(mutate: (keeper: Insides, supervisor: Supervisor) => void): WorldOptions {
  return {
    host: {
      keeper: (keeper, supervisor) => {
        mutate(keeper as unknown as Insides, supervisor);
      },
    },
  };
}

/** Both of what a test changes. */
export function together(one: WorldOptions, other: WorldOptions): WorldOptions {
  return {
    ...one,
    ...other,
    host: {
      ...one.host,
      ...other.host,
      keeper: (keeper, supervisor) => {
        one.host?.keeper?.(keeper, supervisor);
        other.host?.keeper?.(keeper, supervisor);
      },
    },
  };
}

function inHeldSession(mutate: (held: Record<string, unknown>) => void): () => () => void {
  return () => {
    const held = HeldSession.prototype as unknown as Record<string, unknown>;
    const before = { granted: held['granted'], cancelLeases: held['cancelLeases'] };
    mutate(held);
    return () => Object.assign(held, before);
  };
}

const NO_KILL = inKeeper(({ fence }) => {
  fence.killAtMs = () => Number.POSITIVE_INFINITY;
});

const NOT_WATCHED_WHEN_SENT = inKeeper(({ fence }) => {
  fence.presenceSent = () => undefined;
});

export const MUTANTS: readonly Mutant[] = [
  {
    rule: '1: the acquire timeout is a timer of the workflow',
    without: 'schedule-to-start bounds it, which begins anew at every retry',
    mix: 'crowd',
    breaks: [5],
    options: {
      runtime: (runtime) => {
        const { until } = runtime;
        runtime.until = (condition, timeoutMs) => until(condition, timeoutMs <= 1 ? 1 : Number.POSITIVE_INFINITY);
      },
      lease: (spec, contract) =>
        spec.type === LEASE_ACTIVITY ? { ...spec, scheduleToStartMs: contract.acquireTimeoutMs } : spec,
    },
  },
  {
    rule: '1: an epoch never repeats within a run',
    without: 'every lease of a session has the epoch 1',
    mix: 'crashes',
    breaks: [1, 3, 5],
    options: {
      runtime: (runtime) => {
        runtime.nextEpoch = () => 1;
      },
    },
  },
  {
    rule: '2: an unclear answer to the grant never fails the attempt',
    without: 'the slot is freed and the attempt fails, to be granted again',
    mix: 'gentle',
    breaks: [6],
    options: inKeeper((keeper) => {
      const { temporal } = keeper.ports;
      const signal = temporal.signalGrant;
      const unclear = new Set<string>();
      temporal.signalGrant = async (owner, grant) => {
        try {
          return await signal(owner, grant);
        } catch (error) {
          unclear.add((owner as SessionEntry).key);
          throw error;
        }
      };
      const announce = keeper.announce.bind(keeper);
      keeper.announce = async (key) => {
        await announce(key);
        if (!unclear.delete(key)) return;
        await keeper.end(key, 'the answer was unclear', 'none');
        throw new AtlasError('NoFreeSlot', 'The grant was unclear.');
      };
    }),
  },
  {
    rule: '2: a restarted supervisor signals its grants again',
    without: 'what it was granting when it died stays unsaid',
    mix: 'grants',
    firstSeed: 26,
    breaks: [5, 6],
    options: inKeeper((keeper, supervisor) => {
      const old = new Set(supervisor.table.sessions().map(({ key }) => key));
      const announce = keeper.announce.bind(keeper);
      keeper.announce = (key) => (old.has(key) ? Promise.resolve() : announce(key));
    }),
  },
  {
    rule: '2: an owner that gets a second grant releases both',
    without: 'it takes no notice of the second',
    mix: 'owners',
    breaks: [1, 2, 3, 4, 5],
    patch: inHeldSession((held) => {
      held['granted'] = function granted(this: HeldSession) {
        return true;
      };
    }),
  },
  {
    rule: '4: a pinned activity always has a heartbeat timeout',
    without: 'only start-to-close bounds an attempt',
    mix: 'cuts',
    breaks: [5],
    options: {
      pinned: ({ heartbeatMs: _, ...spec }) => spec,
    },
  },
  {
    rule: '4: a result is kept until the server has it',
    without: 'what Core could not report in time is lost',
    mix: 'gentle',
    breaks: [6],
    options: inKeeper((keeper) => {
      keeper.keepResult = () => Promise.resolve();
    }),
  },
  {
    rule: '5: an owner whose release is not answered cancels the leases',
    without: 'a worker that comes back renews them',
    mix: 'cuts',
    firstSeed: 500,
    breaks: [4],
    patch: inHeldSession((held) => {
      held['cancelLeases'] = () => undefined;
    }),
  },
  {
    rule: '5: before a redo the owner waits until the fence must have fallen',
    without: 'it acquires again at once',
    mix: 'resets under cuts',
    firstSeed: 29,
    breaks: [1, 2, 3],
    options: {
      runtime: (runtime) => {
        const { untilEvenIfCancelled } = runtime;
        runtime.untilEvenIfCancelled = (done, timeoutMs) =>
          Number.isFinite(timeoutMs) ? Promise.resolve(done()) : untilEvenIfCancelled(done, timeoutMs);
      },
    },
  },
  {
    rule: '6: an owner whose lease the server has timed out is asked',
    without: 'the slot waits for the owner to remember it',
    mix: 'everything',
    breaks: [4],
    options: inKeeper((keeper) => {
      keeper.tendLimbo = () => Promise.resolve();
    }),
  },
  {
    rule: '6: what waits without a lease is bounded',
    without: 'a session that was handed over, or whose owner is asked, is kept for ever',
    mix: 'owners',
    breaks: [4],
    options: inKeeper((keeper) => {
      const tend = keeper.tendLimbo.bind(keeper);
      keeper.tendLimbo = (entry, limbo) => {
        limbo.untilMs = Number.POSITIVE_INFINITY;
        return tend(entry, limbo);
      };
    }),
  },
  {
    rule: '7: a worker answers "unknown" only once the attempts have ended',
    without: 'it answers at once',
    mix: 'expiries',
    firstSeed: 29,
    breaks: [3],
    options: inKeeper((keeper) => {
      keeper.heldByGrant = (grantId) => {
        const entry = keeper.table.sessionByGrant(grantId);
        if (entry === undefined || entry.state === 'releasing')
          return Promise.reject(new AtlasError('SessionLost', 'It is not held any more.'));
        return Promise.resolve(entry);
      };
    }),
  },
  {
    rule: '7: a confirmation counts once the server has taken it',
    without: 'it counts from when the question was taken',
    mix: 'links that heal',
    firstSeed: 117,
    breaks: [3],
    options: inKeeper((keeper, { process }) => {
      const { confirm } = keeper;
      keeper.confirm = async (task) => {
        const entry = await keeper.heldByGrant(task.request.grantId, task.request.session);
        keeper.fence.confirmed(entry.key, process.sim.nowMs);
        await confirm.call(keeper, task);
      };
    }),
  },
  {
    rule: '8: neither a grant nor a confirmation is a sign of presence',
    without: 'the fence counts from them',
    mix: 'links that heal',
    firstSeed: 12_109,
    breaks: [3],
    options: inKeeper(({ fence }) => {
      const { confirmed } = fence;
      fence.granted = fence.confirmed = (key, nowMs) => {
        confirmed.call(fence, key, nowMs);
        const heard = (fence as unknown as { heard: Map<string, { presenceMs: number }> }).heard.get(key)!;
        heard.presenceMs = nowMs;
      };
    }),
  },
  {
    rule: '8: an owner whose word is missing is asked for it',
    without: 'the attempts of its session wait for ever',
    mix: 'links that heal',
    breaks: [5],
    options: inKeeper(({ fence }) => {
      fence.needsWord = () => false;
    }),
  },
  {
    rule: '8: a question to an owner counts for the fence',
    without: 'only its silence does',
    mix: 'links that heal',
    firstSeed: 285,
    breaks: [3],
    coveredBy: {
      why: 'presence that was missed has ended attempts by then, in a new life too from the first that was sent',
      options: NOT_WATCHED_WHEN_SENT,
    },
    options: inKeeper(({ fence }) => {
      fence.asked = () => undefined;
    }),
  },
  {
    rule: '8: presence counts from the first that was sent',
    without: 'it counts once one was answered',
    mix: 'links that heal',
    firstSeed: 101_167,
    breaks: [3],
    options: NOT_WATCHED_WHEN_SENT,
  },
  {
    rule: '8: the fence counts from when an answered call was sent',
    without: 'it counts from when the answer came',
    mix: 'slow links',
    firstSeed: 30,
    breaks: [3],
    options: inKeeper(({ fence }, { process }) => {
      const renewed = fence.renewed.bind(fence);
      const presenceAnswered = fence.presenceAnswered.bind(fence);
      fence.renewed = (session) => {
        renewed(session, process.sim.nowMs);
      };
      fence.presenceAnswered = () => {
        presenceAnswered(process.sim.nowMs);
      };
    }),
  },
  {
    rule: '8: what ignores its cancellation is killed before the fence',
    without: 'attempts are cancelled only',
    mix: 'strained',
    firstSeed: 68,
    breaks: [3],
    options: NO_KILL,
  },
  {
    rule: '8: an answered renewal alone does not lift a suspicion',
    without: 'it counts as a sign of life like any other',
    mix: 'links that heal',
    firstSeed: 31,
    breaks: [3],
    options: inKeeper(({ fence }) => {
      const { renewed } = fence;
      fence.renewed = (session, sentAtMs) => {
        renewed.call(fence, session, sentAtMs);
        fence.confirmed(session.key, sentAtMs);
      };
    }),
  },
  {
    rule: '8: a restarted worker assumes a suspicion until it is told otherwise',
    without: 'one answered renewal is enough',
    mix: 'links that heal',
    firstSeed: 53,
    breaks: [3],
    options: inKeeper(({ fence }, { process }) => {
      const { resumed } = fence;
      fence.resumed = (session, nowMs) => {
        resumed.call(fence, session, nowMs);
        fence.notMissed(process.sim.nowMs - 60_000);
      };
    }),
  },
  {
    rule: '8: an attempt that is fetched when a link heals waits for one answer',
    without: 'it starts',
    mix: 'links that heal',
    breaks: [3],
    coveredBy: {
      why: 'what starts too late is killed before the fence: the keeper looks at its fences when it begins an attempt',
      options: NO_KILL,
    },
    options: inKeeper(({ fence }) => {
      const mayStart = fence.mayStart.bind(fence);
      fence.mayStart = (session, nowMs) =>
        mayStart(session, nowMs) === 'ask-first' ? 'yes' : mayStart(session, nowMs);
    }),
  },
  {
    rule: '8: the executor fences itself when its local lease lapses',
    without: 'only the supervisor does',
    mix: 'strained',
    firstSeed: 204,
    breaks: [3],
    options: { host: { noFenceWatch: true } },
  },
  {
    rule: '11: a restarted supervisor ends what an old executor left',
    without: 'the old executor stays at work',
    mix: 'everything',
    firstSeed: 202,
    breaks: [1, 2, 3],
    options: { host: { keepsOldExecutor: true } },
  },
  {
    rule: '9: a call that a loss hit is run again where the session is rediscovered',
    without: 'it rejects with the loss',
    mix: 'affinity',
    breaks: [6],
    patch: () => {
      const { call } = Affinity.prototype;
      Affinity.prototype.call = function callOnce(start) {
        return start(this.held);
      };
      return () => {
        Affinity.prototype.call = call;
      };
    },
  },
  {
    rule: '2: a pinned activity is bound to its acquisition',
    without: 'session and epoch are enough',
    mix: 'owners',
    breaks: [1, 2, 3],
    options: inKeeper((keeper) => {
      const held = keeper.heldForAttempt.bind(keeper);
      keeper.heldForAttempt = (activityId, { session, runId, epoch }) => held(activityId, { session, runId, epoch });
    }),
  },
  {
    rule: 'a session in memory ends with the executor that it was granted for',
    without: 'it goes on in the next one',
    mix: 'memory',
    breaks: [1],
    options: inKeeper((keeper) => {
      keeper.loseGoneMemory = () => undefined;
      const begin = keeper.beginAttempt.bind(keeper);
      keeper.beginAttempt = (attempt) => {
        const { session } = attempt;
        const entry = session === undefined ? undefined : keeper.table.sessionOf(session.session, session.runId);
        if (entry?.incarnation !== undefined)
          keeper.table.apply({ type: 'session', entry: { ...entry, incarnation: attempt.incarnation } });
        return begin(attempt);
      };
    }),
  },
];
