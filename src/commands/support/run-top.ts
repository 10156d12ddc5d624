/** `atlas top` against a fleet on Temporal: how it is read, and what the answers to orders are in words. */
import { findError } from '../../contract/errors.js';
import type { ExitCode } from '../../contract/exit-codes.js';
import { FleetClient, type OrderResult, type ReleaseResult } from '../../fleet/client.js';
import { isUnavailable, toServerError, type TemporalClient } from '../../temporal/connect.js';
import { describeAction, type OrderOutcome, type TopOrder } from '../../terminal/top-model.js';
import type { TopData } from '../../terminal/top-panels.js';
import { describeError } from '../report-error.js';
import type { CommandContext, ParsedCommand } from '../spec.js';
import { fleetOf, openConnection } from './connection.js';
import { operatorOf } from './operator.js';
import { needTerminal, runTopLoop, type TopSource } from './top-loop.js';

/** A look at a large fleet takes a thousand calls; one that takes longer than this is not worth waiting for. */
const READ_DEADLINE_MS = 30_000;

export async function runTop(context: CommandContext, parsed: ParsedCommand): Promise<ExitCode> {
  needTerminal(context);
  const connection = await openConnection(context.env, parsed);
  try {
    return await runTopLoop(context, sourceOf(connection, fleetOf(parsed)), {
      operator: operatorOf(context.env),
      intervalMs: Number(parsed.options['interval']),
    });
  } finally {
    await connection.close();
  }
}

function sourceOf({ client, profile }: TemporalClient, fleet: string): TopSource {
  const fleetClient = new FleetClient(client, { fleet });
  return {
    fleet,
    address: profile.address,
    read: (signal) =>
      client.withAbortSignal(AbortSignal.any([signal]), () =>
        client.withDeadline(Date.now() + READ_DEADLINE_MS, () => readFleet(fleetClient)),
      ),
    explain: (error) => {
      const known = toServerError(error, profile);
      return known === undefined ? undefined : known.message;
    },
    order: (order) => give(fleetClient, order),
  };
}

async function readFleet(fleet: FleetClient): Promise<TopData> {
  const look = await fleet.look();
  const [sessions, pools] = await Promise.all([fleet.withOwners(look.sessions), fleet.listPools(look)]);
  return { workers: look.workers, sessions, pools };
}

async function give(fleet: FleetClient, order: TopOrder): Promise<OrderOutcome> {
  try {
    return await sent(fleet, order);
  } catch (error) {
    const { message, next } = describeError(error);
    const about = describeAction(order.action);
    if (findError(error)?.code === 'FleetConflict') {
      return { kind: 'conflict', text: `Conflict, nothing was changed: ${message}` };
    }
    // The server may have taken an order to which no answer came.
    const doubt = isUnavailable(error) ? 'It is not known whether it was taken' : 'It failed';
    return { kind: 'failed', text: `${doubt}: ${about}: ${message} ${next}` };
  }
}

async function sent(fleet: FleetClient, order: TopOrder): Promise<OrderOutcome> {
  const { action, who, why, ifRevision, ofOthers } = order;
  const by = { who, why, ...(ifRevision === undefined ? {} : { ifRevision }) };
  switch (action.kind) {
    case 'cordon':
      return ordered(order, await fleet.cordon(action.worker.name, by));
    case 'uncordon':
      return ordered(order, await fleet.uncordon(action.worker.name, { ...by, ofOthers }));
    case 'drain':
      return ordered(order, await fleet.drain(action.worker.name, by));
    case 'release': {
      const [result] = await fleet.release([action.session], by);
      return released(order, result!);
    }
  }
}

function ordered({ action }: TopOrder, { delivery, changed }: OrderResult): OrderOutcome {
  const about = describeAction(action);
  switch (delivery) {
    case 'applied':
      return { kind: 'done', text: changed ? `Applied: ${about}.` : `Applied: ${about}; it was so already.` };
    case 'recorded':
      return { kind: 'done', text: `Recorded: ${about}. The worker is away and applies it when it returns.` };
    case 'sent':
      return {
        kind: 'done',
        text: `Sent: ${about}. No worker of the fleet runs; the first that returns checks and applies it.`,
      };
  }
}

const RELEASED: Readonly<Record<ReleaseResult['outcome'], string>> = {
  released: 'Applied: its slot and scratch are free',
  'not-held': 'Nothing to do: its worker does not hold it any more',
  'owner-told': 'Recorded: its owner has lost it; what the worker still has of it ends when it returns',
  'owner-moved-on': 'Recorded: its owner waits for it no more; what the worker still has of it ends when it returns',
  'owner-closed': 'Recorded: its owner has closed; what the worker still has of it ends when it returns',
};

function released({ action }: TopOrder, { outcome }: ReleaseResult): OrderOutcome {
  return { kind: 'done', text: `${RELEASED[outcome]}: ${describeAction(action)}.` };
}
