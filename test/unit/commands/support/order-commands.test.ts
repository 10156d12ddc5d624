/** The commands that change a fleet, on a fleet of records: what they order, what they say, and what they end with. */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { cordonWorkers, uncordonWorkers } from '../../../../src/commands/support/cordon-workers.js';
import { drainAsked } from '../../../../src/commands/support/drain-options.js';
import { forgetWorkers } from '../../../../src/commands/support/forget-workers.js';
import { lastReadyWarnings } from '../../../../src/commands/support/last-ready.js';
import { operatorOf } from '../../../../src/commands/support/operator.js';
import { outcomeText, releaseSessions } from '../../../../src/commands/support/release-sessions.js';
import { parseSelector } from '../../../../src/commands/support/selector.js';
import { drainWorkers } from '../../../../src/commands/support/run-drain.js';
import { goalOf, waitFor } from '../../../../src/commands/support/wait-for.js';
import { AtlasError } from '../../../../src/contract/errors.js';
import type { WorkerRecord } from '../../../../src/fleet/client.js';
import { fakeContext, parsedCommand } from '../../../support/fake-context.js';
import { FakeFleet } from '../../../support/fake-fleet.js';
import { sessionRecord, workerRecord } from '../../../support/records.js';

const env = { ATLAS_OPERATOR: 'ops@a' };
const workers = (...names: string[]): WorkerRecord[] => names.map((name) => workerRecord(name, { sessions: 0 }));
const on = (names: readonly string[], options: Record<string, unknown> = {}) => parsedCommand(options, [names]);
const lost = (name: string): WorkerRecord => workerRecord(name, { state: 'lost', heartbeatAgeMs: 60_000 });

/** A terminal on which this is typed. */
function terminal(answer: string): NodeJS.ReadStream {
  const stdin = new PassThrough();
  stdin.end(answer);
  return Object.assign(stdin, { isTTY: true }) as unknown as NodeJS.ReadStream;
}

const noTerminal = (): NodeJS.ReadStream => new PassThrough() as unknown as NodeJS.ReadStream;

describe('who gives an order', () => {
  it('is what the environment says, else user@host', () => {
    expect(operatorOf({ ATLAS_OPERATOR: ' night shift ' })).toBe('night shift');
    expect(operatorOf({ ATLAS_OPERATOR: '' })).toMatch(/^[^@]+@[^@.]+$/);
  });
});

describe('cordon', () => {
  it('says for each worker what was done and whether it is confirmed', async () => {
    const fleet = new FakeFleet(
      [workerRecord('a', { sessions: 2 }), lost('b'), ...workers('c', 'd')],
      [sessionRecord('s1', { worker: 'a' }), sessionRecord('s2', { worker: 'a' })],
    );
    fleet.deliveries.set('b', 'recorded').set('c', 'sent');
    const context = fakeContext({ env });
    expect(await cordonWorkers(context, on(['a', 'b', 'c']), fleet)).toBe(0);
    expect(context.out().split('\n')).toEqual([
      'a: cordoned; confirmed by the worker. The 2 sessions that it holds go on.',
      'b: cordoned; recorded; applied when the worker returns (it is lost).',
      'c: cordoned; no worker of the fleet runs; the order waits on the Temporal server, and the first that returns applies it.',
      '',
    ]);
    expect(fleet.given[0]).toEqual({ order: 'cordon', worker: 'a', by: { who: 'ops@a', why: null } });
  });

  it('goes on after a worker that refuses, and ends with what weighs most', async () => {
    const fleet = new FakeFleet(workers('a', 'b'));
    fleet.refusals.set('a', new AtlasError('FleetConflict', 'The worker a was changed meanwhile.'));
    const context = fakeContext({ env });
    expect(await cordonWorkers(context, on(['a', 'b']), fleet)).toBe(6);
    expect(context.out()).toBe('b: cordoned; confirmed by the worker.\n');
    expect(context.err()).toContain('error: a: The worker a was changed meanwhile.\n next: ');
  });

  it('takes those that a selector chooses', async () => {
    const fleet = new FakeFleet([workerRecord('a', { capabilities: ['gpu'] }), ...workers('b')]);
    const choose = (text: string) => on([], { selector: [parseSelector(text)] });
    expect(await cordonWorkers(fakeContext({ env }), choose('cap=gpu,name!=b'), fleet)).toBe(0);
    expect(fleet.given.map(({ worker }) => worker)).toEqual(['a']);
    await expect(cordonWorkers(fakeContext({ env }), choose('host=nowhere'), fleet)).rejects.toMatchObject({
      code: 'NotFound',
    });
  });

  it('changes nothing where a name is unknown, and takes no beginning of one', async () => {
    const fleet = new FakeFleet(workers('worker-10'));
    await expect(cordonWorkers(fakeContext({ env }), on(['worker-10', 'worker-1']), fleet)).rejects.toMatchObject({
      code: 'NotFound',
      message: 'The fleet "atlas" has no worker worker-1. Did you mean worker-10? Nothing was changed.',
    });
    expect(fleet.given).toEqual([]);
  });
});

describe('uncordon', () => {
  const cordonedBy = (who: string): FakeFleet => {
    const fleet = new FakeFleet(workers('a', 'b'));
    fleet.change('a', () => 'cordoned', who);
    return fleet;
  };

  it('leaves what another operator has cordoned, and then everything', async () => {
    const fleet = cordonedBy('eve@laptop');
    await expect(
      uncordonWorkers(fakeContext({ env, stdin: noTerminal() }), on(['a', 'b']), fleet),
    ).rejects.toMatchObject({ code: 'FleetConflict', message: expect.stringContaining('eve@laptop') as string });
    expect(fleet.given).toEqual([]);
  });

  it.each([
    ['y\n', true],
    ['n\n', false],
    ['', false],
  ])('asks on a terminal, and takes the answer %j', async (answer, goes) => {
    const fleet = cordonedBy('eve@laptop');
    const context = fakeContext({ env, isTTY: true, stdin: terminal(answer) });
    const outcome = await uncordonWorkers(context, on(['a']), fleet).catch((error: unknown) => error);
    expect(context.err()).toContain('a: cordoned by eve@laptop');
    if (!goes) expect(outcome).toMatchObject({ code: 'Declined' });
    expect(fleet.given).toEqual(
      goes ? [{ order: 'uncordon', worker: 'a', by: { who: 'ops@a', why: null, ofOthers: true, ifRevision: 1 } }] : [],
    );
  });

  it('asks nobody about what oneself has cordoned', async () => {
    const fleet = cordonedBy('ops@a');
    const context = fakeContext({ env, stdin: noTerminal() });
    expect(await uncordonWorkers(context, on(['a', 'b']), fleet)).toBe(0);
    expect(context.out()).toBe('a: uncordoned; confirmed by the worker\nb: was not cordoned; it takes sessions\n');
  });
});

describe('the warning about the last ready worker', () => {
  it('is given for the fleet, else for each capability that nobody else has', () => {
    const [a, b, c] = [
      workerRecord('a', { capabilities: ['gpu'] }),
      workerRecord('b', { capabilities: [] }),
      workerRecord('c', { capabilities: ['gpu'], reason: 'its executor is down' }),
    ] as const;
    expect(lastReadyWarnings([a, b], [a, b, c], 'atlas')).toEqual([
      expect.stringMatching(/^a, b are the last ready workers of the fleet "atlas":/),
    ]);
    expect(lastReadyWarnings([a], [a, b, c], 'atlas')).toEqual([
      expect.stringMatching(/^a is the last ready worker with the capability "gpu":/),
    ]);
    expect(lastReadyWarnings([b], [a, b, c], 'atlas')).toEqual([]);
    expect(lastReadyWarnings([c], [a, b, c], 'atlas')).toEqual([]);
  });
});

describe('the options of drain', () => {
  it.each([
    [{}, [], 'No worker was named, and none chosen with -l.'],
    [{ selector: [parseSelector('name=a')] }, ['a'], 'not both'],
    [{ selector: [parseSelector('nme=a')] }, [], 'Did you mean name?'],
    [{ force: true }, ['a'], '--force ends sessions of others; say why with --reason.'],
    [{ force: true, reason: 'x', deadline: 5 }, ['a'], '--deadline has no meaning with it.'],
    [{ onDeadline: 'release' }, ['a'], 'needs a --deadline'],
    [{ monitor: true, minReady: 1 }, [], '--monitor only watches: --min-ready has no meaning with it.'],
    [{ self: true }, ['a'], 'it takes no names'],
    [{ self: true, maxParallel: 2 }, [], '--self is about one worker: --max-parallel'],
  ])('refuse %j with %j', (options, names, message) => {
    expect(() => drainAsked(on(names, options), false)).toThrow(message);
  });

  it('wait on a terminal, unless told otherwise', () => {
    expect(drainAsked(on(['a']), true).mode).toBe('wait');
    expect(drainAsked(on(['a']), false).mode).toBe('no-wait');
    expect(drainAsked(on(['a'], { wait: true }), false).mode).toBe('wait');
    expect(drainAsked(on(['a'], { wait: false }), true).mode).toBe('no-wait');
  });
});

describe('drain', () => {
  const drain = async (
    fleet: FakeFleet,
    names: readonly string[],
    options: Record<string, unknown>,
    context = fakeContext({ env, stdin: noTerminal() }),
  ) => {
    const parsed = on(names, options);
    const exit = await drainWorkers(context, parsed, drainAsked(parsed, false), {
      fleet,
      look: () => fleet.look(),
      blockers: (sessions) =>
        Promise.resolve(
          sessions.map((session) => ({ session, owner: null, movedAtMs: null, watchedSinceMs: Date.now() })),
        ),
    });
    return { exit, out: context.out(), err: context.err() };
  };

  it('without waiting starts nothing that nobody would carry on', async () => {
    const fleet = new FakeFleet(workers('a', 'b', 'c'));
    await expect(drain(fleet, ['a', 'b'], { wait: false })).rejects.toMatchObject({
      code: 'Usage',
      next: 'Give --wait, or --max-parallel 2 to drain them all at once.',
    });
    expect(fleet.given).toEqual([]);
    expect(await drain(fleet, ['a', 'b'], { wait: false, maxParallel: 2 })).toMatchObject({
      exit: 0,
      out: 'a: drained already, held nothing; confirmed by the worker\nb: drained already, held nothing; confirmed by the worker\n',
    });
  });

  it('with release at the deadline needs consent, and says what it is for', async () => {
    const fleet = new FakeFleet(workers('a', 'b'), [sessionRecord('s1', { worker: 'a' })]);
    const asked = { deadline: 60_000, onDeadline: 'release' };
    await expect(drain(fleet, ['a'], asked)).rejects.toMatchObject({
      code: 'ConfirmationNeeded',
      message: expect.stringMatching(/Release by force what a still holds after 1m00s\?[^]*s1 {2}on a/) as string,
    });
    expect(fleet.given).toEqual([]);
    expect(await drain(fleet, ['a'], { ...asked, yes: true })).toMatchObject({ exit: 0 });
    expect(fleet.given).toMatchObject([{ order: 'drain', by: { deadlineMs: 60_000, onDeadline: 'release' } }]);
  });

  it('of the last ready worker asks on a terminal', async () => {
    const fleet = new FakeFleet(workers('a'));
    const context = fakeContext({ env: { ...env, CI: '1' }, isTTY: true, stdin: terminal('n\n') });
    await expect(drain(fleet, ['a'], {}, context)).rejects.toMatchObject({ code: 'Declined' });
    expect(context.err()).toContain('a is the last ready worker of the fleet "atlas"');
    expect(fleet.given).toEqual([]);
  });

  it('tells of each worker that could not be drained, and goes on with the others', async () => {
    const fleet = new FakeFleet([...workers('a', 'b'), workerRecord('c', { state: 'stopped', sessions: 0 })]);
    fleet.refusals.set('a', new AtlasError('FleetConflict', 'Another operator drains the worker a by other terms.'));
    const { exit, out, err } = await drain(fleet, ['a', 'b', 'c'], { wait: true });
    expect(exit).toBe(6);
    expect(out).toMatch(
      /^a {2}not drained: Another operator drains the worker a by other terms\.\nb {2}drained in .*\nc {2}drained in .*\n$/,
    );
    expect(err).toContain('a: Look at it with');
    expect(err).toContain('until `atlas uncordon b c`');
  });

  it('is only watched where it goes on', async () => {
    const fleet = new FakeFleet(workers('a'));
    await expect(drain(fleet, [], { monitor: true })).rejects.toMatchObject({ code: 'NotFound' });
    await expect(drain(fleet, ['a'], { monitor: true })).rejects.toMatchObject({
      message: 'a is not being drained (it is ready).',
    });
    expect(fleet.given).toEqual([]);
  });

  it('ends with 130 when it is interrupted, with what goes on and what was not begun', async () => {
    const fleet = new FakeFleet(workers('a', 'b'), [sessionRecord('s1', { worker: 'a' })]);
    const interrupt = new AbortController();
    const context = fakeContext({ env, stdin: noTerminal(), signal: interrupt.signal });
    const running = drain(fleet, ['a', 'b'], { wait: true, format: 'json' }, context);
    while (!context.err().includes('draining, 1 of 4')) await new Promise((resolve) => setTimeout(resolve, 5));
    interrupt.abort(new AtlasError('Interrupted', 'Interrupted by SIGINT.'));
    const { exit, out } = await running;
    expect(exit).toBe(130);
    expect(JSON.parse(out)).toMatchObject({
      version: 1,
      drain: {
        ended: 'interrupted',
        workers: [
          { worker: 'a', outcome: 'draining', endedAt: null, remaining: [{ session: 's1' }] },
          { worker: 'b', outcome: 'not-started', startedAt: null },
        ],
      },
    });
  });
});

describe('sessions release', () => {
  const sessions = [
    sessionRecord('aa11', { worker: 'a', leaked: true, ownerStatus: 'TERMINATED' }),
    sessionRecord('aa22', { worker: 'a', idleForMs: 3_600_000, step: null }),
    sessionRecord('bb33', { worker: 'b', workerState: 'lost' }),
  ];
  const release = async (fleet: FakeFleet, ids: readonly string[], options: Record<string, unknown>) => {
    const context = fakeContext({ env, stdin: noTerminal() });
    const exit = await releaseSessions(context, on(ids, options), fleet, () => fleet.listSessions());
    return { exit, out: context.out(), err: context.err() };
  };
  const fleetOf = (): FakeFleet => new FakeFleet([...workers('a'), lost('b')], [...sessions]);

  it('asks, with a list of what would go', async () => {
    const fleet = fleetOf();
    await expect(release(fleet, ['aa2'], {})).rejects.toMatchObject({
      code: 'ConfirmationNeeded',
      message: expect.stringMatching(
        /Release this session by force\?[^]*aa22 {2}on a · no step running for 1h00m/,
      ) as string,
    });
    await expect(release(fleet, ['aa'], { yes: true })).rejects.toMatchObject({ code: 'Usage' });
    await expect(release(fleet, ['zz'], { yes: true })).rejects.toMatchObject({ code: 'NotFound' });
    expect(fleet.given).toEqual([]);
  });

  it.each([
    [{ leaked: true }, 'aa11'],
    [{ idle: 1_800_000 }, 'aa22'],
    [{ worker: 'b' }, 'bb33'],
    [{ worker: 'a', leaked: true }, 'aa11'],
  ])('chooses by %j', async (options, chosen) => {
    const { out, exit } = await release(fleetOf(), [], { ...options, dryRun: true });
    expect(exit).toBe(0);
    expect(out).toMatch(new RegExp(`^Would release 1 session by force:\\n  ${chosen}  `));
    expect(out).toContain('Nothing was changed.');
  });

  it.each([
    ['released', 0],
    ['not-held', 0],
    ['owner-told', 0],
    ['owner-moved-on', 0],
    ['owner-closed', 0],
  ] as const)('says of "%s" what has come of it, and ends with %i', async (outcome, expected) => {
    const fleet = fleetOf();
    fleet.releaseOutcome = outcome;
    const { exit, out, err } = await release(fleet, ['bb33'], { yes: true, failOwner: true, reason: 'stuck' });
    expect(exit).toBe(expected);
    expect(out).toBe(`bb33  ${outcomeText(sessions[2]!, outcome)}\n`);
    expect(err).toContain('b does not answer: the owners are told instead');
    expect(fleet.given).toEqual([
      { order: 'release', worker: 'b', by: { who: 'ops@a', why: 'stuck', failOwner: true } },
    ]);
  });

  it('tells of the sessions that went although a worker of others could not be told', async () => {
    const fleet = fleetOf();
    fleet.refusals.set('b', new AtlasError('ServerUnreachable', 'The Temporal server does not answer.'));
    const { exit, out, err } = await release(fleet, ['aa11', 'bb33'], { yes: true });
    expect(exit).toBe(5);
    expect(out).toBe('aa11  released: slot and scratch on a are free\n');
    expect(err).toContain('error: b: The Temporal server does not answer.');
  });
});

describe('workers forget', () => {
  it('takes only workers that are gone and hold nothing', async () => {
    const fleet = new FakeFleet(
      [...workers('a'), lost('b'), lost('c')],
      [sessionRecord('s1', { worker: 'c', workerState: 'lost' })],
    );
    const forget = (names: readonly string[], options = {}) => {
      const context = fakeContext({ env, stdin: noTerminal() });
      return forgetWorkers(context, on(names, options), fleet).then((exit) => ({ exit, out: context.out() }));
    };
    await expect(forget(['a', 'b'], { yes: true })).rejects.toMatchObject({ code: 'FleetConflict' });
    await expect(forget(['c'], { yes: true })).rejects.toMatchObject({
      code: 'FleetConflict',
      next: expect.stringContaining('--with-sessions') as string,
    });
    await expect(forget(['b'])).rejects.toMatchObject({ code: 'ConfirmationNeeded' });
    expect(fleet.given).toEqual([]);
    expect(await forget(['b', 'c'], { yes: true, withSessions: true })).toMatchObject({
      exit: 0,
      out: 'b: forgotten; it is listed again when its daemon starts\nc: forgotten; it is listed again when its daemon starts\n',
    });
  });
});

describe('wait', () => {
  const wait = async (fleet: FakeFleet, args: string[], options: Record<string, unknown>) => {
    const context = fakeContext({ env });
    const parsed = parsedCommand({ timeout: 0, ...options }, args);
    const exit = await waitFor(context, parsed, goalOf(parsed), fleet, (task) => task());
    return { exit, out: context.out() };
  };

  it('returns when the state is reached, and says at the timeout what it is', async () => {
    const fleet = new FakeFleet([...workers('a'), lost('b')]);
    expect(await wait(fleet, ['worker', 'a'], { for: 'ready' })).toMatchObject({ exit: 0 });
    expect(await wait(fleet, ['worker', 'b'], { for: 'lost' })).toMatchObject({ exit: 0 });
    await expect(wait(fleet, ['worker', 'a'], { for: 'drained' })).rejects.toMatchObject({
      code: 'WaitTimeout',
      message: 'The worker a is not drained after 0.0s: ready.',
    });
    fleet.change('a', () => 'drained');
    expect(await wait(fleet, ['worker', 'a'], { for: 'cordoned' })).toMatchObject({ exit: 0 });
  });

  it('knows no worker by a name that nobody has, except while it is to come', async () => {
    const fleet = new FakeFleet(workers('a'));
    await expect(wait(fleet, ['worker', 'x'], { for: 'lost' })).rejects.toMatchObject({ code: 'NotFound' });
    await expect(wait(fleet, ['worker', 'x'], { for: 'ready' })).rejects.toMatchObject({
      code: 'WaitTimeout',
      message: 'The worker x is not ready after 0.0s: not known to the fleet yet.',
    });
  });

  it('waits for the end of the session that was meant at first', async () => {
    const fleet = new FakeFleet(workers('a'), [sessionRecord('aa11', { worker: 'a' })]);
    const waiting = wait(fleet, ['session', 'aa'], { timeout: 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    fleet.sessions = [sessionRecord('aa99', { worker: 'a' })];
    expect(await waiting).toMatchObject({ exit: 0 });
    await expect(wait(fleet, ['session', 'bb'], {})).rejects.toMatchObject({ code: 'NotFound' });
  });

  it.each([
    [['worker', 'a'], {}, 'Say with --for'],
    [['worker', 'a'], { for: 'redy' }, 'Did you mean ready?'],
    [['session', 'a'], { for: 'ready' }, 'is not one of released'],
    [['wroker', 'a'], {}, 'Did you mean worker?'],
  ])('refuses %j with %j', (args, options, message) => {
    expect(() => goalOf(parsedCommand(options, args))).toThrow(message);
  });
});
