/**
 * Copies of the build, each without one rule of the protocol. A short schedule that needs the rule must break an invariant
 * with the copy, and none with the build: a suite that passes for both would prove nothing.
 */
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { describe, expect, inject, it } from 'vitest';
import { FleetClient } from '../../src/fleet/client.js';
import { connectNative, plainProfile } from '../../src/temporal/connect.js';
import { spawnWorker, eventually } from '../support/fixtures.js';
import { temporaryDirectory } from '../support/atlasd.js';
import { temporalAddress, useClient } from '../support/server.js';
import { historyOf } from '../support/history.js';
import { letGo } from '../support/promises.js';
import { Arena, drain, type Effect, pause } from './arena.js';
import { judge, timeline, type Violation } from './invariants.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PATIENCE = { timeoutMs: 90_000 };
/** Together with the window longer than a worker of a busy machine may get no processor. */
const PRESENCE_TTL_MS = 3_000;
const SESSION = { recoveryWindow: '5s', leaseTtl: '14s' };
/** What is not to be redone is not, however busy the machine is. */
const UNHURRIED = { recoveryWindow: '1 minute', leaseTtl: '1 minute' };
/** For activities that ignore their cancellation: less than what a worker waits before it kills its executor for them. */
const STUBBORN_MS = 25_000;

interface Mutant {
  /** Relative to `dist`. */
  readonly file: string;
  /** Occurs exactly once; a rule that was written anew needs a new mutant. */
  readonly replace: string;
  readonly by: string;
}

/** `bin/atlasd.js` of a changed copy. */
async function mutate({ file, replace, by }: Mutant): Promise<string> {
  const copy = join(await temporaryDirectory('at-mutant-'), 'atlas');
  await mkdir(copy);
  for (const name of ['bin', 'dist', 'package.json']) await cp(join(ROOT, name), join(copy, name), { recursive: true });
  await symlink(realpathSync(join(ROOT, 'node_modules')), join(copy, 'node_modules'));
  const path = join(copy, 'dist', file);
  const parts = (await readFile(path, 'utf8')).split(replace);
  expect(parts, `${replace} in ${file}`).toHaveLength(2);
  await writeFile(path, parts.join(by));
  return join(copy, 'bin', 'atlasd.js');
}

const NO_FENCE: Mutant = {
  file: 'daemon/fence.js',
  replace: 'return Math.min(byLease, byPresence, byQuestion) + session.recoveryWindowMs;',
  by: 'return Math.min(byLease, byPresence) + session.recoveryWindowMs + 600_000;',
};
const NO_LOCK: Mutant = {
  file: 'daemon/state-directory.js',
  replace: 'if (!locked) {',
  by: 'if (false) {',
};
const NO_CHECK: Mutant = {
  file: 'daemon/session-keeper.js',
  replace: 'async beginAttempt(attempt) {',
  by: `async beginAttempt(attempt) {
        if (attempt.session !== undefined) return { scratchDirectory: '/nonexistent', capabilities: [], fencingToken: 1 };`,
};
const NO_WAIT: Mutant = {
  file: 'daemon/session-keeper.js',
  replace: 'while (!(await this.attemptsEnd(key, RELEASE_KILL_AFTER_MS))) {',
  by: 'while (false) {',
};
const NO_GATE: Mutant = {
  file: 'daemon/slots.js',
  replace: 'this.cordoned = cordoned;',
  by: '',
};

describe('the chaos suite', () => {
  const client = useClient();
  Runtime.install({ logger: new DefaultLogger('WARN') });

  async function arenaOf(caps: readonly number[], mutant: Mutant | undefined): Promise<Arena> {
    return await Arena.open({
      client: client(),
      address: temporalAddress(),
      caps,
      presenceTtlMs: PRESENCE_TTL_MS,
      ...(mutant === undefined ? {} : { program: await mutate(mutant) }),
    });
  }

  async function untilEffect(arena: Arena, label: string | RegExp): Promise<Effect> {
    return await eventually(
      async () =>
        (await arena.effects()).find((each) =>
          typeof label === 'string' ? each.label === label : label.test(each.label),
        ),
      {
        what: `an effect of ${String(label)}`,
        ...PATIENCE,
      },
    );
  }

  async function verdict(arena: Arena, keepsSteps = false): Promise<Violation['invariant'][]> {
    const open = await drain(arena, 60_000);
    const { violations } = await judge(arena, open, { faults: [], keepsSteps });
    await arena.close();
    for (const { invariant, message, workflowId } of violations)
      console.log(`invariant ${invariant}: ${message}\n${await timeline(arena, workflowId ?? '')}`);
    return [...new Set(violations.map(({ invariant }) => invariant))].sort();
  }

  /** A link is cut while an activity writes that hears of nothing; the session is redone on the other worker. */
  async function cutLink(mutant?: Mutant): Promise<Violation['invariant'][]> {
    const arena = await arenaOf([1, 1], mutant);
    const { handle } = await arena.start('writer', { session: SESSION, log: arena.log, ms: 30_000, mode: 'stubborn' });
    const { worker: name } = await untilEffect(arena, '1:middle');
    await eventually(async () => (await arena.heldSessions()) === 1, { what: 'the session is listed' });
    arena.workers.find((worker) => worker.name === name)!.proxy.cut();
    const redone = await untilEffect(arena, '2:middle');
    // What still writes writes again; that nothing does is seen after as many turns.
    const stillWrites = async (): Promise<boolean> =>
      (await arena.effects()).some(({ worker, atMs }) => worker === name && atMs > redone.atMs);
    if (mutant === undefined) await pause(500);
    else await eventually(stillWrites, { what: 'an effect without a fence', ...PATIENCE });
    await handle.terminate();
    arena.workflows[0]!.ended = 'terminate';
    return await verdict(arena);
  }

  /**
   * A task of the session waits in a half-open link until the session has been redone elsewhere.
   *
   * The workflow runs in this process: a dead poll of the fleet swallows its tasks for 3 s each, and a client closes a link
   * that is half-open for 45 s, and drops the task that waits there. So the redo must not be a matter of luck.
   */
  async function lateTask(mutant?: Mutant): Promise<Violation['invariant'][]> {
    const arena = await arenaOf([1, 1], mutant);
    const { fleet } = arena;
    const connection = await connectNative(plainProfile(temporalAddress()), { connectTimeoutMs: PATIENCE.timeoutMs });
    const worker = await Worker.create({
      connection,
      taskQueue: `${fleet}.workflows`,
      workflowBundle: { codePath: inject('fixtureWorkflows') },
    });
    return await worker
      .runUntil(async () => {
        const session = { ...SESSION, fleet };
        // Stubborn: the worker that comes back cancels what is left of the session, which the mutant's late task belongs to.
        const input = { session, log: arena.log, ms: 1_000, mode: 'stubborn', wait: true };
        const { handle } = await arena.start('writer', input, { taskQueue: worker.options.taskQueue });
        const { worker: name } = await untilEffect(arena, '1:first');
        await eventually(async () => (await arena.heldSessions()) === 1, { what: 'the session is listed' });
        const { proxy } = arena.workers.find((each) => each.name === name)!;
        proxy.halfOpen();
        await handle.signal('resume');
        await untilEffect(arena, '2:first');
        proxy.heal();
        // What was held back arrives now; the worker comes back, or runs what it should not. The mutant is waited for.
        const late = async (): Promise<boolean> =>
          (await arena.effects()).some(({ label, what }) => label === '1:middle' && what === 'end');
        await eventually(async () => (await late()) || (mutant === undefined && (await arena.heldSessions()) === 0), {
          what: 'the late task',
          ...PATIENCE,
        });
        await pause(3_000);
        return await verdict(arena);
      })
      .finally(() => connection.close());
  }

  /** A second atlasd is started on the same state directory by mistake. Nothing is to be redone for that. */
  async function secondDaemon(mutant?: Mutant): Promise<Violation['invariant'][]> {
    const arena = await arenaOf([2], mutant);
    const [worker] = arena.workers;
    const session = mutant === undefined ? UNHURRIED : SESSION;
    const { handle } = await arena.start('writer', { session, log: arena.log, wait: true });
    await untilEffect(arena, '1:first');
    const second = await spawnWorker({
      fleet: arena.fleet,
      name: worker!.name,
      stateDirectory: worker!.atlasd.stateDirectory,
      address: temporalAddress(),
      args: ['--max-sessions', '2', '--presence-ttl', `${PRESENCE_TTL_MS}ms`],
      ...(arena.options.program === undefined ? {} : { program: arena.options.program }),
    });
    await Promise.race([second.exited, second.event('worker-ready').catch(() => undefined)]);
    // Two daemons take each other's executors for dead ones; the first gives its sessions up.
    if (second.running) await untilEffect(arena, '2:first').catch(() => undefined);
    await handle.signal('resume');
    const found = await verdict(arena, true);
    if (second.running) await second.killAll();
    return found;
  }

  /** An owner is cancelled while its activity ignores that. */
  async function stubborn(mutant?: Mutant): Promise<Violation['invariant'][]> {
    const arena = await arenaOf([1], mutant);
    const input = { session: UNHURRIED, log: arena.log, ms: STUBBORN_MS, mode: 'stubborn' };
    const { handle } = await arena.start('writer', input);
    await untilEffect(arena, '1:middle');
    arena.workflows[0]!.ended = 'cancel';
    await handle.cancel();
    if (mutant === undefined) {
      await pause(3_000);
    } else {
      // Its release does not wait for the activity, which goes on for some turns.
      const closed = async (): Promise<Date | undefined> => (await handle.describe()).closeTime;
      const closeTime = await eventually(closed, { what: 'the end of the owner', ...PATIENCE });
      const goesOn = async (): Promise<boolean> =>
        (await arena.effects()).some(({ atMs }) => atMs > closeTime.getTime() + 200);
      await eventually(goesOn, { what: 'an effect after the end', ...PATIENCE });
    }
    await arena.start('writer', { session: UNHURRIED, log: arena.log, ms: 100 });
    await letGo(arena.log);
    await drain(arena, 60_000);
    await eventually(
      async () => {
        const last = (await arena.effects()).at(-1);
        return last !== undefined && Date.now() - last.atMs > 2_000;
      },
      { what: 'quiet', ...PATIENCE },
    );
    return await verdict(arena);
  }

  /** Workflows ask for sessions of the only worker, which is cordoned; they get them when it is uncordoned. */
  async function cordoned(mutant?: Mutant): Promise<Violation['invariant'][]> {
    const arena = await arenaOf([2], mutant);
    const { name } = arena.workers[0]!;
    const fleet = new FleetClient(client(), { fleet: arena.fleet });
    const order = { who: 'ops@test', why: null };
    expect(await fleet.cordon(name, order)).toMatchObject({ delivery: 'applied' });
    const cordon = { worker: name, fromMs: Date.now(), toMs: Number.POSITIVE_INFINITY };
    arena.cordons.push(cordon);
    for (let count = 0; count < 3; count += 1)
      await arena.start('writer', { session: SESSION, log: arena.log, ms: 100 });
    const leases = async (): Promise<boolean> => {
      const runs = await Promise.all(arena.workflows.map(({ workflowId }) => historyOf(client(), workflowId)));
      // The build grants none of those that ask; without its gate one is granted.
      return mutant === undefined
        ? runs.every(({ activities }) => activities.length > 0)
        : runs.some(({ grants }) => grants.length > 0);
    };
    await eventually(leases, { what: 'all ask for a session, or one has it', ...PATIENCE });
    await pause(mutant === undefined ? 3_000 : 100);
    cordon.toMs = Date.now();
    await fleet.uncordon(name, order);
    return await verdict(arena);
  }

  const cases = [
    { rule: 'the fence', mutant: NO_FENCE, schedule: cutLink, breaks: 3 },
    { rule: 'the lock of the state directory', mutant: NO_LOCK, schedule: secondDaemon, breaks: 6 },
    { rule: 'the check before an attempt', mutant: NO_CHECK, schedule: lateTask, breaks: 3 },
    { rule: 'the gate of a cordoned worker', mutant: NO_GATE, schedule: cordoned, breaks: 7 },
    { rule: 'the wait for the last activity', mutant: NO_WAIT, schedule: stubborn, breaks: 3 },
  ] as const;

  it.each(cases)('notices that $rule is missing', { timeout: 240_000 }, async ({ mutant, schedule, breaks }) => {
    const [sound, mutated] = await Promise.all([schedule(), schedule(mutant)]);
    expect(sound, 'the build').toEqual([]);
    expect(mutated, 'the mutant').toContain(breaks);
  });
});
