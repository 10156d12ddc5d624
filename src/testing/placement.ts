/** Which of the workers of a test fleet gets a session or a pooled activity. Pure. */
import { hasRoom } from '../daemon/slots.js';

/** A worker as far as a choice looks at it. */
export interface Seat {
  readonly capabilities: readonly string[];
  readonly maxSessions: number;
  /** Whether it takes new sessions: it is neither lost nor cordoned. */
  readonly open: boolean;
  /** What each of its sessions asked for, those included that are on their way. */
  readonly held: readonly (readonly string[])[];
}

export function serves({ capabilities }: Pick<Seat, 'capabilities'>, asked: readonly string[]): boolean {
  return asked.every((capability) => capabilities.includes(capability));
}

/** Free slots for sessions that ask for these capabilities, over all workers. */
export function freeSlots(seats: readonly Seat[], asked: readonly string[]): number {
  return candidates(seats, asked).reduce((free, seat) => free + seat.maxSessions - seat.held.length, 0);
}

/** The worker with the fewest sessions that has room; of equal ones the first. */
export function emptiest<S extends Seat>(seats: readonly S[], asked: readonly string[]): S | undefined {
  return candidates(seats, asked).reduce<S | undefined>(
    (best, seat) => (best === undefined || seat.held.length < best.held.length ? seat : best),
    undefined,
  );
}

function candidates<S extends Seat>(seats: readonly S[], asked: readonly string[]): S[] {
  return seats.filter(
    (seat) => seat.open && serves(seat, asked) && hasRoom({ cap: seat.maxSessions, reserve: {} }, seat.held, asked),
  );
}
