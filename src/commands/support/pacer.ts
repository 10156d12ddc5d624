/**
 * Does something again and again, never twice at once, and the less often the longer it takes: what is asked of the
 * server by a view that nobody may be looking at must stay a small part of what the server does.
 */

/** The pause is at least so many times what the last turn took, so that the turns fill a fifth of the time at most. */
const PAUSE_PER_TURN = 4;

export class Pacer {
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  #stopped = false;

  /** `turn` must not reject. */
  constructor(
    private readonly turn: () => Promise<void>,
    private readonly intervalMs: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** A turn at once, or right after the one that is under way. */
  soon(): void {
    if (this.#stopped) return;
    if (this.#running !== undefined) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    const startedMs = this.now();
    this.#running = this.turn().then(() => {
      this.#running = undefined;
      if (this.#stopped) return;
      if (this.#again) {
        this.#again = false;
        this.soon();
        return;
      }
      const tookMs = this.now() - startedMs;
      this.#timer = setTimeout(() => this.soon(), Math.max(this.intervalMs, PAUSE_PER_TURN * tookMs));
    });
  }

  /** Resolves once no turn is under way; none begins any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }
}
