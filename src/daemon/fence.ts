/**
 * When the attempts of a session must have ended because the worker can not be heard: before its owner may have given it
 * to another worker. Pure: times are passed in, by a clock that is never set.
 *
 * The owner moves on a recovery window after the fleet missed the worker's presence, or after its lease timed out,
 * whichever comes first. Both are counted by the server from the last call that reached it; this side counts from when
 * the last *answered* call was sent, which is earlier.
 */

/** What the fence needs to know of a session. */
export interface FencedSession {
  readonly key: string;
  readonly leaseTtlMs: number;
  readonly recoveryWindowMs: number;
}

/** From the cancellation of an attempt to its kill, and from the kill to the fence; less where the window is short. */
const CANCEL_BEFORE_MS = 3_000;
const KILL_BEFORE_MS = 1_000;
const CANCEL_WINDOW_SHARE = 0.6;
const KILL_WINDOW_SHARE = 0.2;
/** An owner that was told of a suspicion has asked by then; any other has to be asked for its word. */
const OWNER_ASKS_WITHIN_MS = 3_000;

export type MayStart =
  | 'yes'
  /** An owner may have given the session up, or may be about to. */
  | 'no'
  /** Nothing was answered for a while: the link may have healed just now, and one answer decides. */
  | 'ask-first';

interface Heard {
  /** When the last renewal that was answered was sent. */
  renewalMs: number;
  /** The same for presence, or the confirmation that the owner got since. */
  presenceMs: number;
  /** Set while presence was "not found" and no owner has confirmed since. */
  suspectedSinceMs: number | null;
  /** When the owner was first asked for its word that has not come yet: it may be about to give up since. */
  askedMs: number | null;
  /** The suspicion is only assumed: this life of the worker does not know yet what the fleet made of the one before. */
  assumed: boolean;
}

export class Fence {
  private readonly heard = new Map<string, Heard>();
  /** When the last presence that was answered was sent, or the very first; until there is one, nobody watches it. */
  private lastPresenceMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly presenceTtlMs: number) {}

  private get presenceIsWatched(): boolean {
    return this.lastPresenceMs !== Number.NEGATIVE_INFINITY;
  }

  /**
   * A session is held from now on. That says nothing of presence: one that the server has timed out meanwhile may still
   * become a suspicion, when the fleet gets to it, and meet an owner that was on its list with an earlier session.
   */
  granted(key: string, nowMs: number): void {
    const presenceMs = this.presenceIsWatched ? this.lastPresenceMs : nowMs;
    this.heard.set(key, { renewalMs: nowMs, presenceMs, suspectedSinceMs: null, askedMs: null, assumed: false });
  }

  /** An owner has got the answer that its session is held, to a question that was taken then. */
  confirmed(key: string, nowMs: number): void {
    const before = this.heard.get(key);
    const renewalMs = Math.max(before?.renewalMs ?? nowMs, nowMs);
    // Where presence was answered since it was missed, the server counts from that.
    const isAnswered = this.lastPresenceMs > (before?.suspectedSinceMs ?? Number.NEGATIVE_INFINITY);
    const presenceMs = isAnswered ? Math.max(this.lastPresenceMs, before?.presenceMs ?? 0) : nowMs;
    this.heard.set(key, { renewalMs, presenceMs, suspectedSinceMs: null, askedMs: null, assumed: false });
  }

  /**
   * A session of an earlier life goes on. Nothing was heard of it yet, and the fleet may have missed the worker meanwhile:
   * owners that are asking, or about to move on, would not be known.
   */
  resumed(session: FencedSession, nowMs: number): void {
    const longAgoMs = nowMs - session.leaseTtlMs - this.presenceTtlMs;
    this.heard.set(session.key, {
      renewalMs: longAgoMs,
      presenceMs: longAgoMs,
      suspectedSinceMs: nowMs,
      askedMs: null,
      assumed: true,
    });
  }

  /** The registration that was sent then has the answer that the fleet had not missed the worker. */
  notMissed(sentAtMs: number): void {
    for (const heard of this.heard.values()) {
      if (!heard.assumed) continue;
      heard.suspectedSinceMs = null;
      heard.assumed = false;
      heard.presenceMs = Math.max(heard.presenceMs, sentAtMs);
    }
  }

  /** Whether the fleet has yet to say what it made of the life of the worker before this one. */
  awaitsFleet(key: string): boolean {
    return this.heard.get(key)?.assumed === true;
  }

  isSuspected(key: string): boolean {
    const heard = this.heard.get(key);
    return heard !== undefined && (heard.suspectedSinceMs !== null || heard.askedMs !== null);
  }

  forget(key: string): void {
    this.heard.delete(key);
  }

  renewed(session: FencedSession, sentAtMs: number): void {
    const heard = this.heard.get(session.key);
    if (heard === undefined) return;
    heard.renewalMs = Math.max(heard.renewalMs, sentAtMs);
  }

  /**
   * Whether attempts wait for the word of the owner, and it does not seem to come by itself: it may never have been told,
   * and how long one that was told may take to decide nobody knows.
   */
  needsWord(key: string, nowMs: number): boolean {
    const heard = this.heard.get(key);
    if (heard === undefined) return false;
    const { suspectedSinceMs, askedMs } = heard;
    return askedMs !== null || (suspectedSinceMs !== null && nowMs - suspectedSinceMs >= OWNER_ASKS_WITHIN_MS);
  }

  /** The owner is being asked for its word. One that gets the question, and no answer to its own, gives the session up. */
  asked(key: string, nowMs: number): void {
    const heard = this.heard.get(key);
    if (heard !== undefined) heard.askedMs ??= nowMs;
  }

  /** From the first presence on the fleet may miss this worker, and tell its owners, whether that was answered or not. */
  presenceSent(sentAtMs: number): void {
    if (!this.presenceIsWatched) this.lastPresenceMs = sentAtMs;
  }

  presenceAnswered(sentAtMs: number): void {
    this.lastPresenceMs = Math.max(this.lastPresenceMs, sentAtMs);
    for (const heard of this.heard.values()) {
      if (heard.suspectedSinceMs === null) heard.presenceMs = Math.max(heard.presenceMs, sentAtMs);
    }
  }

  /** Presence had ended for another reason than silence. */
  presenceTrusted(nowMs: number): void {
    for (const heard of this.heard.values()) {
      // What an earlier life of the worker missed only the registration tells.
      if (heard.suspectedSinceMs === null || heard.assumed) continue;
      heard.suspectedSinceMs = null;
      heard.presenceMs = nowMs;
    }
  }

  /** The server has timed presence out: the owners have been told, or will be. */
  presenceGone(nowMs: number): void {
    for (const heard of this.heard.values()) {
      heard.suspectedSinceMs ??= nowMs;
      heard.assumed = false;
    }
  }

  /** When every attempt of the session must have ended. */
  deadlineMs(session: FencedSession): number {
    const heard = this.heard.get(session.key);
    if (heard === undefined) return Number.NEGATIVE_INFINITY;
    const byLease = heard.renewalMs + session.leaseTtlMs;
    const byPresence = this.presenceIsWatched ? heard.presenceMs + this.presenceTtlMs : Number.POSITIVE_INFINITY;
    const byQuestion = heard.askedMs ?? Number.POSITIVE_INFINITY;
    return Math.min(byLease, byPresence, byQuestion) + session.recoveryWindowMs;
  }

  cancelAtMs(session: FencedSession): number {
    return this.deadlineMs(session) - Math.min(CANCEL_BEFORE_MS, session.recoveryWindowMs * CANCEL_WINDOW_SHARE);
  }

  killAtMs(session: FencedSession): number {
    return this.deadlineMs(session) - Math.min(KILL_BEFORE_MS, session.recoveryWindowMs * KILL_WINDOW_SHARE);
  }

  mayStart(session: FencedSession, nowMs: number): MayStart {
    const heard = this.heard.get(session.key);
    if (heard === undefined || heard.suspectedSinceMs !== null || heard.askedMs !== null) return 'no';
    if (nowMs >= this.cancelAtMs(session)) return 'ask-first';
    // Within a third of the TTL a renewal is answered; presence comes more often.
    const freshForMs =
      Math.min(session.leaseTtlMs, this.presenceIsWatched ? this.presenceTtlMs : session.leaseTtlMs) * 0.75;
    const lastHeardMs = Math.max(heard.renewalMs, heard.presenceMs);
    return nowMs - lastHeardMs > freshForMs ? 'ask-first' : 'yes';
  }
}
