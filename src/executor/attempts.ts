/**
 * The guard around every activity of the unique queue. Before an attempt it asks the supervisor whether the session is
 * still held; during it, it heartbeats and lets the supervisor cancel; after it, it tells the supervisor.
 *
 * Owns: which attempts run in this process, one at a time per activity. Does not know workers or queues.
 */
import { asyncLocalStorage, CompleteAsyncError, Context } from '@temporalio/activity';
import type { ActivityExecuteInput, ActivityInboundCallsInterceptor, Next } from '@temporalio/worker';
import type { CurrentSession, CurrentWorker } from '../activity/index.js';
import { provide } from '../activity/provider.js';
import { AtlasError, findError } from '../contract/errors.js';
import { inTime } from '../contract/in-time.js';
import {
  type AttemptFacts,
  type BeginAttempt,
  type EncodedResult,
  type ExecutorCommand,
  KEPT_RESULT_LIMIT_BYTES,
} from '../contract/local.js';
import {
  grantOfStep,
  parseSessionActivityId,
  type SessionActivityId,
  sessionKey,
  WORKER_ACTIVITY_PREFIX,
} from '../contract/names.js';
import { failure } from '../temporal/failures.js';
import { throwingFailures } from './failures.js';
import type { SessionMemories } from './memories.js';
import type { SupervisorLink } from './supervisor-link.js';

/** Heartbeats within one heartbeat timeout. */
const HEARTBEATS_PER_TIMEOUT = 3;
/** How long a newer attempt of an activity waits for the older one to end after it was cancelled. */
const SUPERSEDE_TIMEOUT_MS = 30_000;

interface RunningAttempt {
  /** By the count of the server. */
  readonly attempt: number;
  /** That of the session once it is known, before that the one that its owner's run would have. */
  key: string | null;
  readonly abort: AbortController;
  readonly ended: Promise<void>;
}

/** Whom the guard asks: the supervisor, over its socket or in the same process. */
export type AttemptLink = Pick<SupervisorLink, 'beginAttempt' | 'endAttempt'>;

type CancelSession = Extract<ExecutorCommand, { type: 'cancel-session' }>;

export class AttemptGuard {
  /** By run and activity id: the server may hand an attempt out again while the older one runs. */
  private readonly telling = new Set<Promise<void>>();
  private readonly running = new Map<string, RunningAttempt>();

  constructor(
    private readonly link: AttemptLink,
    private readonly incarnation: string,
    private readonly worker: CurrentWorker,
    private readonly memories: SessionMemories,
  ) {}

  /** The supervisor ends the attempts of a session, for good or before a fence. */
  cancelSession({ key, session, runId, code, reason }: CancelSession): void {
    const asked = sessionKey(session, runId);
    const message =
      code === 'AttemptFenced'
        ? `The activity was ended: ${reason}.`
        : `The session of this activity is over: ${reason}`;
    for (const attempt of this.running.values()) {
      if (attempt.key === key || attempt.key === asked) attempt.abort.abort(failure(code, message));
    }
  }

  /** Cancels every attempt, which fails so that the server hands it out again. */
  cancelAll(message: string): void {
    for (const attempt of this.running.values()) attempt.abort.abort(failure('ExecutorDied', message));
  }

  /** How many attempts have not ended. */
  get runningCount(): number {
    return this.running.size;
  }

  /** Resolves when no attempt runs. */
  async allEnded(): Promise<void> {
    while (this.running.size > 0) await Promise.all([...this.running.values()].map(({ ended }) => ended));
  }

  /** The interceptor of one activity on the unique queue. */
  interceptor(context: Context): ActivityInboundCallsInterceptor {
    return { execute: (input, next) => this.execute(context, input, next) };
  }

  private async execute(
    context: Context,
    input: ActivityExecuteInput,
    next: Next<ActivityInboundCallsInterceptor, 'execute'>,
  ): Promise<unknown> {
    const { info } = context;
    const runId = info.workflowExecution?.runId ?? '';
    const sessionId = parseSessionActivityId(info.activityId);
    if (sessionId === undefined && !info.activityId.startsWith(WORKER_ACTIVITY_PREFIX)) {
      throw failure(
        'SessionLost',
        `The activity ${info.activityType} was sent to the unique queue of ${this.worker.name} without a session; use session.proxyActivities().`,
      );
    }
    const session = sessionId === undefined ? undefined : sessionOf(sessionId, runId);
    const activityKey = `${runId}/${info.activityId}`;
    const abort = new AbortController();
    let settle: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => {
      settle = resolve;
    });
    const key = session === undefined ? null : sessionKey(session.session, runId);
    const attempt: RunningAttempt = { attempt: info.attempt, key, abort, ended };
    // Registered before the supervisor is asked, so that no cancellation falls between its answer and the start.
    await this.register(activityKey, attempt);
    const id = `${activityKey}#${info.attempt}`;
    let told = Promise.resolve();
    try {
      const facts = await this.begin(id, context, session);
      attempt.key = facts.sessionKey;
      if (facts.result !== undefined) return decode(facts.result);
      let result: EncodedResult | undefined;
      try {
        const value = await this.run(context, abort, facts, sessionId?.session, runId, () =>
          throwingFailures(() => next(input)),
        );
        if (session !== undefined) result = encode(value);
        return value;
      } finally {
        told = this.tell(context, id, result);
      }
    } finally {
      // A newer attempt waits for that: it is answered with the result of this one, if there is one.
      void told.then(() => {
        this.running.delete(activityKey);
        settle();
      });
    }
  }

  private async begin(id: string, context: Context, session: BeginAttempt['session']): Promise<AttemptFacts> {
    const { info } = context;
    try {
      return await this.link.beginAttempt({
        id,
        incarnation: this.incarnation,
        ...(session === undefined ? {} : { session }),
        activity: info.activityType,
        activityId: info.activityId,
        attempt: info.attempt,
        taskToken: info.base64TaskToken,
      });
    } catch (error) {
      const found = findError(error);
      // No answer is not a refusal, and the supervisor may be back for the next attempt: that must not end the step.
      throw found === undefined || found.code === 'ExecutorFailed'
        ? failure('ExecutorDied', `The supervisor could not be asked: ${found?.message ?? String(error)}`)
        : failure(found.code, found.message);
    }
  }

  /**
   * Tells the supervisor, which keeps the result until the server has it. The report to the server does not wait for that:
   * Core goes on with it for seconds before it gives up. Never rejects.
   */
  private tell(context: Context, id: string, result: EncodedResult | undefined): Promise<void> {
    const told = this.link
      .endAttempt(id, result)
      .catch((error: unknown) => {
        // The result stands. A supervisor that does not hear of it waits for the attempt when the session is released.
        context.log.warn('The supervisor could not be told that an attempt ended', {
          activityId: context.info.activityId,
          error,
        });
      })
      .finally(() => {
        this.telling.delete(told);
      });
    this.telling.add(told);
    return told;
  }

  /** Resolves when the supervisor was told of all attempts that have ended; as bounded as a call to it is. */
  async allTold(): Promise<void> {
    await Promise.all(this.telling);
  }

  private memoryOf(session: string, { sessionKey, fencingToken, state }: AttemptFacts): Map<string, unknown> {
    if (state !== 'memory' || sessionKey === null || fencingToken === null) {
      throw new AtlasError(
        'NoSessionMemory',
        `currentSession().memory was read, but the session ${session} keeps its state on disk.`,
      );
    }
    return this.memories.of({ key: sessionKey, fencingToken });
  }

  /** Makes it the running attempt of its activity, once an older one was cancelled and has ended. */
  private async register(activityKey: string, attempt: RunningAttempt): Promise<void> {
    // From the start again after each: several may have waited for the same one.
    for (let other = this.running.get(activityKey); other !== undefined; other = this.running.get(activityKey)) {
      const superseded = failure('AttemptSuperseded', 'A newer attempt of the same activity has started.');
      if (other.attempt > attempt.attempt) throw superseded;
      other.abort.abort(superseded);
      await this.untilEnded(other);
    }
    this.running.set(activityKey, attempt);
  }

  private async untilEnded(older: RunningAttempt): Promise<void> {
    await inTime(older.ended, SUPERSEDE_TIMEOUT_MS, () => {
      throw failure(
        'AttemptSuperseded',
        `An older attempt of the activity did not end within ${SUPERSEDE_TIMEOUT_MS} ms of its cancellation.`,
      );
    });
  }

  /** Runs the activity in a context whose cancellation is also the session's, heartbeating all the while. */
  private async run(
    context: Context,
    abort: AbortController,
    facts: AttemptFacts,
    session: string | undefined,
    runId: string,
    execute: () => Promise<unknown>,
  ): Promise<unknown> {
    let details: unknown = context.info.heartbeatDetails;
    const heartbeat = (next?: unknown): void => {
      details = next;
      context.heartbeat(next);
    };
    const intervalMs = (context.info.heartbeatTimeoutMs ?? 0) / HEARTBEATS_PER_TIMEOUT;
    const timer =
      intervalMs > 0
        ? setInterval(() => {
            context.heartbeat(details);
          }, intervalMs)
        : undefined;
    const signal = AbortSignal.any([context.cancellationSignal, abort.signal]);
    const cancelled = new Promise<never>((_, reject) => {
      context.cancelled.catch(reject);
      abort.signal.addEventListener('abort', () => {
        reject(abort.signal.reason as Error);
      });
    });
    cancelled.catch(() => undefined);
    const derived = derive(context, cancelled, signal, heartbeat);
    const workflow = context.info.workflowExecution;
    const provided =
      session === undefined || facts.scratchDirectory === null
        ? { worker: this.worker }
        : {
            worker: this.worker,
            session: withMemory(
              {
                id: session,
                workflowId: workflow?.workflowId ?? '',
                runId,
                capabilities: facts.capabilities,
                fencingToken: facts.fencingToken ?? 0,
                scratchDirectory: facts.scratchDirectory,
                state: facts.state ?? 'disk',
                signal,
                worker: this.worker,
              },
              () => this.memoryOf(session, facts),
            ),
          };
    try {
      abort.signal.throwIfAborted();
      return await provide(provided, () => asyncLocalStorage.run(derived, execute));
    } catch (error) {
      if (error instanceof CompleteAsyncError)
        throw failure(
          'AsyncCompletionRefused',
          `The activity ${context.info.activityType} threw CompleteAsyncError, but it is pinned: its attempt must end on the worker.`,
        );
      // Whatever the activity made of its cancellation, the reason is what the owner must see.
      throw abort.signal.aborted ? abort.signal.reason : error;
    } finally {
      clearInterval(timer);
    }
  }
}

/** The memory is no field like the others: who copies or prints the session must not be told that it has none. */
function withMemory(session: Omit<CurrentSession, 'memory'>, memory: () => Map<string, unknown>): CurrentSession {
  return Object.defineProperty(session, 'memory', { get: memory, enumerable: false }) as CurrentSession;
}

function sessionOf({ session, epoch, step }: SessionActivityId, runId: string): BeginAttempt['session'] {
  const grantId = grantOfStep(step);
  return { session, runId, epoch, ...(grantId === undefined ? {} : { grantId }) };
}

/** A context like the given one with another cancellation and heartbeat; activities find it by `Context.current()`. */
export function derive(
  context: Context,
  cancelled: Promise<never>,
  signal: AbortSignal,
  heartbeat: (details?: unknown) => void,
): Context {
  const { _client, _cancellationDetails } = context as unknown as {
    _client: ConstructorParameters<typeof Context>[4];
    _cancellationDetails: ConstructorParameters<typeof Context>[7];
  };
  return new Context(
    context.info,
    cancelled,
    signal,
    heartbeat,
    _client,
    context.log,
    context.metricMeter,
    _cancellationDetails,
  );
}

/** A result as it is kept in the ledger; undefined for one that is too large, or is more than JSON can say. */
function encode(value: unknown): EncodedResult | undefined {
  if (value === undefined) return {};
  // Bytes travel as bytes, and as JSON they would come back as something else.
  if (value instanceof Uint8Array) return undefined;
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch {
    return undefined;
  }
  return json === undefined || Buffer.byteLength(json) > KEPT_RESULT_LIMIT_BYTES ? undefined : { json };
}

function decode({ json }: EncodedResult): unknown {
  return json === undefined ? undefined : (JSON.parse(json) as unknown);
}
