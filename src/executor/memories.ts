/**
 * What sessions keep in the memory of this executor: a map for each, from its first activity to the word of the
 * supervisor that it is over.
 *
 * Owns the maps, and giving back what is in them: a value that knows how is disposed, since memory of a device is not
 * given back by forgetting it. Does not know attempts: the supervisor says `drop` only once those of the session have
 * ended.
 */
import { inTime } from '../contract/in-time.js';
import type { SessionMemoryName } from '../contract/local.js';

/** How long the values of a session may take to give back what they hold. Its slot waits for that. */
const DISPOSE_TIMEOUT_MS = 10_000;

export interface MemoriesOptions {
  /** Tells the supervisor, whose slot waits for it. */
  readonly dropped: (name: SessionMemoryName) => Promise<void>;
  readonly log: {
    warn(fields: object, message: string): void;
    error(fields: object, message: string): void;
  };
}

export class SessionMemories {
  private readonly maps = new Map<string, Map<string, unknown>>();

  constructor(private readonly options: MemoriesOptions) {}

  /** The map of a session, made at its first use. */
  of(name: SessionMemoryName): Map<string, unknown> {
    const id = idOf(name);
    let map = this.maps.get(id);
    if (map === undefined) {
      map = new Map();
      this.maps.set(id, map);
    }
    return map;
  }

  /**
   * Forgets the map of a session, disposes what is in it, and tells the supervisor. Resolves when all has been given back,
   * or has failed, or has taken too long, which is logged; never rejects.
   */
  async drop(name: SessionMemoryName): Promise<void> {
    const id = idOf(name);
    const map = this.maps.get(id);
    this.maps.delete(id);
    if (map !== undefined) await this.disposeAll(name, map);
    try {
      await this.options.dropped(name);
    } catch (error) {
      // It waits only for a while.
      this.options.log.warn(
        { event: 'memory-drop-untold', session: name.key, reason: messageOf(error) },
        'The supervisor could not be told that the memory of a session was given back',
      );
    }
  }

  private async disposeAll(name: SessionMemoryName, map: Map<string, unknown>): Promise<void> {
    const deadlineMs = performance.now() + DISPOSE_TIMEOUT_MS;
    // The newest first, since it may rest on what was there before.
    for (const [key, value] of [...map].reverse()) {
      try {
        await inTime(dispose(value), deadlineMs - performance.now(), () => {
          throw new Error(`The values of a session may take ${DISPOSE_TIMEOUT_MS} ms in all, and it has not ended.`);
        });
      } catch (error) {
        this.options.log.error(
          {
            event: 'memory-dispose-failed',
            session: name.key,
            key,
            reason: messageOf(error),
          },
          'A value in the memory of a session could not be given back',
        );
      }
    }
    map.clear();
  }
}

function idOf({ key, fencingToken }: SessionMemoryName): string {
  return `${key}@${fencingToken}`;
}

/** As `await using` does it: asynchronously where the value can do both. */
async function dispose(value: unknown): Promise<void> {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return;
  const { [Symbol.asyncDispose]: later, [Symbol.dispose]: now } = value as Partial<AsyncDisposable & Disposable>;
  if (typeof later === 'function') await later.call(value);
  else if (typeof now === 'function') now.call(value);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
